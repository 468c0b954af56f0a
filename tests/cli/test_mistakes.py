"""Mistakes of a first hour, each with the message that says what to do."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from palaestrai_mosaik.cli import arsenai
from palaestrai_mosaik.cli.main import main
from palaestrai_mosaik.core.errors import FAILED, FINISHED, UNSOUND
from palaestrai_mosaik.testing import check_environment

DOCUMENT = """
uid: t
seed: 7
schedule:
  - train:
      environments:
        - environment: {uid: myenv, name: dummy}
      agents:
        - name: g
          muscle: random
          sensors: [myenv.1]
      phase_config: {episodes: 1}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(text: str, capsys: pytest.CaptureFixture[str], name: str = "run.yml") -> list[str]:
    """Return the problems that ``check`` finds in ``text``, without the file's name."""
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    assert main(["check", name]) == UNSOUND
    return [line.removeprefix(f"{name}:") for line in capsys.readouterr().err.splitlines()[:-1]]


@pytest.mark.parametrize("value", ["no", "Yes", "off", "'true'"])
def test_a_boolean_of_yaml_1_1(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCUMENT.replace("name: dummy", f"name: dummy, params: {{discrete: {value}}}")
    (problem,) = problems(text, capsys)
    meant = "true" if value.strip("'").lower() in ("yes", "true") else "false"
    assert problem.startswith("7: ") and "'discrete' of" in problem and problem.endswith(f"write {meant}")


def test_a_module_that_lies_beside_the_document(capsys: pytest.CaptureFixture[str]) -> None:
    Path("else").mkdir()
    Path("else/mine.py").write_text("")
    (problem,) = problems(DOCUMENT.replace("muscle: random", "muscle: mine:Own"), capsys, "else/run.yml")
    assert "there is no module 'mine'" in problem
    assert (
        "it lies beside the document, and modules are found in the working directory: cd else first, or set PYTHONPATH=else"
        in problem
    )


def test_a_controller_is_compared_with_the_two_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCUMENT + "      simulation: {name: TakingTurn}\n"
    (problem,) = problems(text, capsys)
    assert problem.endswith("'TakingTurn' (did you mean 'taking_turns'?); allowed: vanilla, taking_turns")


@pytest.mark.parametrize(
    ("old", "new"), [("          sensors", "         sensors"), ("      phase_config", "     phase_config")]
)
def test_a_slip_of_the_indentation(old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    (problem,) = problems(DOCUMENT.replace(old, new), capsys)
    columns = len(new) - len(new.lstrip()) + 1, 11
    assert f"the line begins in column {columns[0]}, the one before it in column {columns[1]}" in problem


def test_no_agents_are_one_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    text = textwrap.dedent(DOCUMENT).partition("      agents")[0] + "      agents: []\n  - b: {}\n  - c: {}\n"
    text += "run_config: {condition: {name: agent_objective, params: {a: {brain_avg10: 4}}}}\n"
    assert problems(text, capsys) == ["5: schedule.0.train: the phase 'train' needs at least one of 'agents'"]


def test_a_number_of_very_many_digits(capsys: pytest.CaptureFixture[str]) -> None:
    (problem,) = problems(DOCUMENT.replace("seed: 7", f"seed: {'7' * 20_000}"), capsys)
    assert problem == "3: seed: the number has 20,000 digits; at most 4,300 are read"


def test_a_package_of_an_extra_is_missing_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [one for one in sys.modules if one.startswith("palaestrai_mosaik.agent.library.sb3")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    text = DOCUMENT.replace("muscle: random", "muscle: ppo\n          brain: ppo")
    found = problems(text, capsys)
    assert found and all("Traceback" not in line and "File" not in line for line in found)
    assert "need torch" in found[0] and "pip install" in found[0]


def test_arrays_are_loaded_of_the_dumpers(capsys: pytest.CaptureFixture[str]) -> None:
    Path("loads_wrongly.py").write_text(
        "from palaestrai_mosaik.agent import load_arrays\n"
        "from palaestrai_mosaik.agent.library.dummy import DummyMuscle\n"
        "class Greedy(DummyMuscle):\n    def prepare_model(self):\n        load_arrays(self)\n"
    )
    text = DOCUMENT.replace("muscle: random", "muscle: loads_wrongly:Greedy\n          brain: dummy")
    Path("run.yml").write_text(
        text + "  - test: {agents: [{name: g, load: {}}], phase_config: {mode: test}}\n"
    )
    assert main(["start", "run.yml", "--no-store"]) == FAILED
    assert (
        "load_arrays takes the dumpers of a brain or a muscle, self._dumpers; found a Greedy"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("factor", "said"),
    [
        ({"when": "order == together"}, "a level is text, write 'together' with its quotes"),
        ({"path": "schedule.train.phase_config.workers"}, "add create: true to the factor"),
    ],
)
def test_a_factor_that_is_almost_right(
    factor: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("base.yml").write_text(DOCUMENT)
    keys = {"path": "schedule.train.phase_config.episodes", **factor}
    written = ", ".join(f'{key}: "{value}"' for key, value in keys.items())
    Path("design.yml").write_text(
        "uid: d\nseed: 1\nbase: base.yml\nsampler: factorial\nfactors:\n"
        "  order: {path: schedule.train.agents.g.muscle.name, levels: [random, idle], labels: [together, alone]}\n"
        f"  n: {{levels: [1, 2], {written}}}\n"
    )
    assert arsenai.main(["plan", "design.yml"]) == UNSOUND
    assert said in capsys.readouterr().err


SAMPLED = """
uid: d
seed: 1
base: base.yml
sampler: {sampler}
factors:
  n: {{path: schedule.train.phase_config.episodes, low: 1, high: 4, type: int}}
"""


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        (
            "{name: lhs, n: 4, optimise: maximin}",
            "'optimise' of the sampler lhs (did you mean 'optimize'?); allowed: n, optimize",
        ),
        ("{name: lhs, N: 4}", "'N' of the sampler lhs (did you mean 'n'?); allowed: n, optimize"),
        ("{name: fast, n: 100, m: 4}", "'m' of the sampler fast (did you mean 'M'?); allowed: n, M"),
        ("{name: lhs, n: 4, scramble}", "unknown option 'scramble' of the sampler lhs; allowed: n, optimize"),
        (
            "{name: sobol, n: 4, scramble: yes}",
            "sampler.scramble: scramble must be true or false, found the string 'yes'",
        ),
        (
            "{name: lhs, n: 4, optimize: true}",
            "optimize must be one of none, maximin, discrepancy, found the boolean true",
        ),
        ("{lhs: 4}", "sampler needs the key 'name', which is missing; write {name: lhs, n: ...}"),
        ("{name: sobl, n: 4}", "no sampler is called 'sobl' (did you mean 'sobol'?); allowed: factorial, "),
    ],
)
def test_an_option_of_a_sampler(sampler: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("base.yml").write_text(DOCUMENT)
    Path("design.yml").write_text(SAMPLED.format(sampler=sampler))
    assert arsenai.main(["plan", "design.yml", "--check", "none"]) == UNSOUND
    line = next(one for one in capsys.readouterr().err.splitlines() if said in one)
    assert line.startswith("design.yml:5: sampler")


def test_a_flag_of_a_sampler_without_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    Path("base.yml").write_text(DOCUMENT)
    Path("design.yml").write_text(SAMPLED.format(sampler="{name: plackett_burman, foldover}"))
    assert arsenai.main(["plan", "design.yml", "--check", "none"]) == FINISHED
    said = "design.yml:5: sampler.foldover: foldover has no value, so its default holds, false; write foldover: true or foldover: false"
    assert f"warning: {said}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("23_anker.yml", " (did you mean '23_anchor.yml'?)"),
        ("x.yml", "; the documents in '.' are 23_anchor.yml, other.yaml"),
        ("23_anchor.yaml", " (did you mean '23_anchor.yml'?)"),
        ("nowhere/x.yml", ": there is no folder 'nowhere'"),
    ],
)
def test_a_missing_document(path: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("23_anchor.yml", "other.yaml", "23_ankerr.py"):
        Path(name).write_text(DOCUMENT)
    for call in (main, arsenai.main):
        assert call(["check", path]) == UNSOUND
        assert (
            capsys.readouterr().err.splitlines()[0]
            == f"{path}: cannot be read: No such file or directory{said}"
        )


@pytest.mark.parametrize(
    ("pattern", "near"),
    [
        ("myenv.*x", " (did you mean 'myenv."),
        ("myenv.[x-z]", " (did you mean 'myenv."),
        ("myenv.1?0", " (did you mean 'myenv.1'?)"),
    ],
)
def test_a_pattern_that_nothing_matches(pattern: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    (problem,) = problems(DOCUMENT.replace("[myenv.1]", f"['{pattern}']"), capsys)
    assert f"no sensor matches the pattern '{pattern}'" in problem
    assert near in problem and "environment 'myenv' offers myenv.0, " in problem


def test_readings_in_a_list_are_right_for_the_check_as_they_are_for_runs() -> None:
    from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
    from palaestrai_mosaik.types import Box as BoxSpace
    from palaestrai_mosaik.types import Discrete, RewardInformation, SensorInformation

    class Listing(Environment):
        def setup(self) -> EnvironmentBaseline:
            reward = RewardInformation(0.0, BoxSpace(0.0, 1.0, shape=()), "r")
            return EnvironmentBaseline([SensorInformation(0, Discrete(3), "s")], [], [reward])

        def reset(self) -> EnvironmentState:
            self.steps = 0
            return EnvironmentState([0], [0.0])

        def step(self, setpoints: object) -> EnvironmentState:
            self.steps += 1
            return EnvironmentState([self.steps % 3], [0.5], truncated=self.steps == 5)

    check_environment(Listing)

"""``arsenai plan`` and ``generate`` check documents of a design as ``palaestrai-mosaik check`` does."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.model import INACTIVE
from palaestrai_mosaik.arsenai.design.rows import MOST_COMBINATIONS, draw_rows, representative_rows
from palaestrai_mosaik.arsenai.execution.design_check import check_design
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import UNSOUND, DocumentError

ROOT = Path(__file__).parents[3]
MUSCLE = "palaestrai_mosaik.agent.library.dummy:DummyMuscle"
AGENT = "schedule.train.agents.mighty_defender"
ENVIRONMENT = "schedule.train.environments.myenv.environment"

#: notes where it is made, and does not work in the middle of its range
ENVIRONMENTS = """
    from pathlib import Path
    from palaestrai_mosaik.environment.dummy import DummyEnvironment

    class Noting(DummyEnvironment):
        def __init__(self, gain=0.0, **params):
            with open(Path(__file__).with_name("made"), "a") as file:
                print(gain, file=file)
            if 0.45 < gain < 0.55:
                raise ValueError(f"a gain of {gain} resonates")
            super().__init__(discrete=True, max_iter=10)
"""


def design(factors: dict[str, Any], **more: Any) -> dict[str, Any]:
    base = yaml.safe_load((ROOT / "scenarios" / "dummy.yml").read_text(encoding="utf-8"))
    base = {"schedule": base["schedule"]}
    factors = {name: {"path": path, **rest} for name, (path, rest) in factors.items()}
    return {"uid": "d", "seed": 1, "version": "3.5", "base": base, "factors": factors} | {
        "sampler": {"name": "factorial"},
        **more,
    }


def written(folder: Path, data: dict[str, Any]) -> str:
    path = folder / "design.yml"
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return str(path)


WRONG = {
    "muscle": (f"{AGENT}.muscle.name", {"levels": ["dummy", MUSCLE.replace("Dummy", "Dumy")]}),
    "sensors": (f"{AGENT}.sensors", {"levels": [["myenv.0"], ["myenv.77"]]}),
    "max_iter": (f"{ENVIRONMENT}.params.max_iter", {"levels": [3, -3, "ten"]}),
}


@pytest.mark.parametrize("command", ["plan", "generate"])
def test_each_mistake_of_a_level_is_reported_once_at_its_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, design(WRONG))
    assert main([command, path]) == UNSOUND
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith(path)]
    assert len(lines) == 4
    text = Path(path).read_text(encoding="utf-8").splitlines()
    for name, said in [
        ("muscle", "no class 'DumyMuscle' (did you mean 'DummyMuscle'?)"),
        ("sensors", "no sensor 'myenv.77' (did you mean 'myenv.7'?)"),
        ("max_iter", "found -2"),
        ("max_iter", "'ten'"),
    ]:
        (line,) = [line for line in lines if said in line]
        number = int(line.removeprefix(f"{path}:").partition(":")[0])
        assert any(f"{name}:" in one for one in text[number - 2 : number])
        assert "(in row " in line
    assert [one.name for one in tmp_path.iterdir()] == ["design.yml"], "nothing is written"


def test_a_mistake_of_the_base_is_reported_where_it_is_written(tmp_path: Path) -> None:
    data = design({"max_iter": (f"{ENVIRONMENT}.params.max_iter", {"levels": [3, 4]})})
    data["base"]["schedule"][0]["train"]["agents"][1]["sensors"][0] = "myenv.77"
    path = written(tmp_path, data)
    with pytest.raises(DocumentError) as error:
        check_design(Design.load(path).spec)
    (problem,) = error.value.problems
    assert problem.path == "base.schedule.0.train.agents.1.sensors.0"
    assert problem.line is not None
    assert "myenv.77" in Path(path).read_text(encoding="utf-8").splitlines()[problem.line - 1]
    assert "in row 0 and 1 other" in problem.message


@pytest.fixture
def noting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A design over the gain of an environment that notes each time it is made."""
    module = f"noting_{len(str(tmp_path))}_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(textwrap.dedent(ENVIRONMENTS), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    data = design(
        {
            "gain": (f"{ENVIRONMENT}.params.gain", {"low": 0.0, "high": 1.0}),
            "episodes": ("schedule.train.phase_config.episodes", {"levels": [1, 2, 3]}),
        },
        sampler={"name": "lhs", "n": 30},
    )
    environment = data["base"]["schedule"][0]["train"]["environments"][0]["environment"]
    environment |= {"name": f"{module}:Noting", "params": {"gain": 0.0}}
    return data


def test_every_level_and_both_ends_are_checked_and_with_all_every_row(
    tmp_path: Path, noting: dict[str, Any]
) -> None:
    spec = Design.from_mapping(noting).spec
    calls: list[tuple[int, int]] = []
    rows = check_design(spec, progress=lambda *numbers: calls.append(numbers)).rows
    assert rows == len((tmp_path / "made").read_text().splitlines()) <= 5
    assert calls == [(done, rows) for done in range(1, rows + 1)]
    with pytest.raises(DocumentError, match="resonates"):
        check_design(spec, "all")
    assert len(set((tmp_path / "made").read_text().splitlines())) == 30
    assert check_design(spec, "none").rows == 0


def test_an_environment_is_set_up_once_for_all_rows(tmp_path: Path, noting: dict[str, Any]) -> None:
    del noting["factors"]["gain"]
    noting |= {"sampler": {"name": "factorial"}}
    assert check_design(Design.from_mapping(noting).spec).rows == 3
    assert (tmp_path / "made").read_text() == "0.0\n"


def test_documents_that_cannot_be_checked_here_are_generated_nevertheless(
    tmp_path: Path,
    noting: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    environment = noting["base"]["schedule"][0]["train"]["environments"][0]["environment"]
    environment["name"] = "only_on_the_cluster:Grid"
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path, noting)
    assert main(["generate", path]) == UNSOUND
    message = capsys.readouterr().err
    assert "only_on_the_cluster" in message and "--check none" in message
    assert main(["generate", path, "--check", "none", "--quiet"]) == 0


def test_representative_rows_hold_each_level_each_end_and_each_combination() -> None:
    factors: dict[str, Any] = {
        "muscle": (f"{AGENT}.muscle.name", {"levels": [MUSCLE, "palaestrai_mosaik.agent.library.constant:ConstantMuscle"]}),
        "sensors": (f"{AGENT}.sensors", {"levels": [["myenv.0"], ["myenv.1"], ["myenv.2"]]}),
        "max_iter": (f"{ENVIRONMENT}.params.max_iter", {"levels": list(range(1, 12))}),
        "gain": (f"{AGENT}.muscle.params.gain", {"low": -2.0, "high": 5.0, "create": True, "when": "max_iter > 3"}),
    }  # fmt: skip
    spec = Design.from_mapping(design(factors, sampler={"name": "random", "n": 400})).spec
    rows = draw_rows(spec)
    chosen = list(representative_rows(spec, rows).values())
    assert len(chosen) <= 6 + 11 + 2 + 2
    assert {str((one["muscle"], one["sensors"])) for one in chosen} == {
        str((muscle, sensors))
        for muscle in factors["muscle"][1]["levels"]
        for sensors in factors["sensors"][1]["levels"]
    }
    assert {one["max_iter"] for one in chosen} == set(range(1, 12))
    gains = [one["gain"] for one in chosen]
    assert INACTIVE in gains
    unit = rows.sample.unit[:, 3]
    every = [value for value in (-2 + 7 * unit) if value is not INACTIVE]
    known = [gain for gain in gains if gain is not INACTIVE]
    assert min(every) - 1e-9 <= min(known) and max(known) <= max(every) + 1e-9
    assert max(known) - min(known) > 6.5


def test_of_very_many_combinations_each_level_is_checked() -> None:
    factors = {
        f"sensors_{i}": (f"schedule.train.agents.{agent}.sensors", {"levels": [[f"myenv.{k}"] for k in range(10)]})
        for i, agent in enumerate(("mighty_defender", "evil_attacker"))
    }  # fmt: skip
    factors["discrete"] = (f"{ENVIRONMENT}.params.discrete", {"levels": [True, False, "no"]})
    spec = Design.from_mapping(design(factors)).spec
    rows = draw_rows(spec)
    assert rows.count == 300
    assert MOST_COMBINATIONS <= len(representative_rows(spec, rows)) <= MOST_COMBINATIONS + 23

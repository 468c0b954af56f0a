"""What the analysis could not do is said by ``plan`` and ``generate``, before anything is executed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.factors import function_design

from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.cli.main import main as palaestrai_mosaik
from palaestrai_mosaik.core.errors import FINISHED, UNSOUND

X = {"low": 0.0, "high": 1.0}
LEVELS = {"x1": {"levels": [0, 1]}, "x2": {"levels": [0, 1]}}
INLINE = ("--executor", "inline", "--quiet")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def written(sampler: Any, factors: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """Write a design over a linear function into ``d.yml``; return it. Its agent has no objective."""
    data = function_design("linear", factors or {"x1": X, "x2": X}, sampler, uid="d", **keys)
    (phase,) = data["base"]["schedule"]
    (agent,) = phase["p"]["agents"]
    agent.pop("objective")
    return write(data)


def write(data: dict[str, Any]) -> dict[str, Any]:
    Path("d.yml").write_text(yaml.safe_dump(data, sort_keys=False))
    return data


def called(capsys: pytest.CaptureFixture[str], *words: str, program: Any = main) -> tuple[int, str, str]:
    """Return the exit code of a command, and what it has printed."""
    capsys.readouterr()
    code = program(words)
    return code, *capsys.readouterr()


@pytest.mark.parametrize("outcomes", [{"y": {"of": "objective"}}, None])
def test_an_agent_without_an_objective_has_the_same_sum_in_analyse_and_show(
    outcomes: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    written("factorial", LEVELS, **({} if outcomes is None else {"outcomes": outcomes}))
    assert called(capsys, "generate", "d.yml", "--quiet")[0] == FINISHED
    assert called(capsys, "run", "_outputs/d", *INLINE)[0] == FINISHED
    code, _, err = called(capsys, "analyse", "_outputs/d", "--output", "found", "--quiet")
    assert code == FINISHED and "no agent" not in err
    table = Path("found/outcomes.csv").read_text().splitlines()
    columns, values = (line.split(",") for line in table[:2])
    analysed = dict(zip(columns, values, strict=True))["y" if outcomes else "objective"]
    store = ("--store", "_outputs/d/results", "--json")
    code, out, _ = called(capsys, "show", "d-0-r0", *store, program=palaestrai_mosaik)
    (episode,) = json.loads(out)["episodes"]
    assert float(analysed) == pytest.approx(episode["objective_sum"], rel=1e-12)


MISSING = [
    ("reward.f.yy", "the phase 'p' has no reward 'f.yy' (did you mean 'f.y'?); there are: f.y"),
    ("reward.g.y", "has no reward 'g.y' (did you mean 'f.y'?)"),
    ("reading.f.z", "the phase 'p' has no reading 'f.z' (did you mean 'f.y'?); there are: f.y"),
    ("setpoint.f.idel", "has no set-point 'f.idel' (did you mean 'f.idle'?)"),
]


@pytest.mark.parametrize(("of", "message"), MISSING)
@pytest.mark.parametrize("command", ["plan", "generate"])
def test_an_outcome_that_no_run_will_have(
    command: str, of: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    written("factorial", LEVELS, outcomes={"y": {"of": "steps"}, "x": {"of": of}})
    code, _, err = called(capsys, command, "d.yml")
    line = 1 + Path("d.yml").read_text().splitlines().index(f"    of: {of}")
    assert code == UNSOUND
    assert f"d.yml:{line}: outcomes.x.of: " in err and message in err
    assert not Path("_outputs").exists()
    assert called(capsys, "plan", "d.yml", "--check", "none")[0] == FINISHED


def test_outcomes_that_are_there_under_other_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["reward.y", "reward.f.y", "reading.f.*", "setpoint.f.idle", "statistic.loss", "objective"]
    written("factorial", LEVELS, outcomes={f"o{i}": {"of": of} for i, of in enumerate(names)})
    assert called(capsys, "plan", "d.yml")[0] == FINISHED


def test_an_objective_of_several_agents(capsys: pytest.CaptureFixture[str]) -> None:
    data = written("factorial", LEVELS, outcomes={"y": {"of": "objective"}})
    agents = data["base"]["schedule"][0]["p"]["agents"]
    agents.append({**agents[0], "name": "b", "actuators": []})
    write(data)
    code, _, err = called(capsys, "plan", "d.yml")
    assert code == UNSOUND
    assert (
        "several agents of the phase 'p' get rewards, and none has an objective: name one under `agent` (a, b)"
        in err
    )
    agents[1]["objective"] = {"name": "dummy"}
    write(data)
    assert called(capsys, "plan", "d.yml")[0] == FINISHED


def test_evaluation_episodes_that_a_phase_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    written("factorial", LEVELS, outcomes={"y": {"of": "objective", "evaluation": True}})
    code, _, err = called(capsys, "plan", "d.yml")
    assert code == UNSOUND and "the phase 'p' has no evaluation episodes" in err


def problem_of(design: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what both commands say of a design that is not sound; they write nothing."""
    write(design)
    told = []
    for command in ("plan", "generate"):
        code, _, err = called(capsys, command, "d.yml", "--check", "none")
        assert code == UNSOUND and not Path("_outputs/d/design.json").exists()
        told.append(err)
    assert told[0] == told[1]
    return told[0]


TOO_FEW = [
    ({"name": "lhs", "n": 19}, "pawn", "19 rows are too few for PAWN, which needs 20"),
    ({"name": "lhs", "n": 59}, "rbd_fast", "59 rows are too few for RBD-FAST, which needs 60"),
    ({"name": "random", "n": 39}, "delta", "39 rows are too few for DELTA, which needs 40"),
    # of each block, two rows are independent
    ({"name": "sobol", "n": 8}, "pawn", "16 rows are too few for PAWN, which needs 20"),
    ({"name": "sobol", "n": 16}, "delta", "32 rows are too few for DELTA, which needs 40"),
    ({"name": "finite_differences", "n": 1}, "dgsm", "of one base point there is no variance"),
]


@pytest.mark.parametrize(("sampler", "method", "message"), TOO_FEW)
def test_too_few_rows_for_a_method(
    sampler: Any, method: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    design = written(sampler, analysis={"methods": [method]})
    err = problem_of(design, capsys)
    assert "d.yml:" in err and f"analysis.methods.0: {method} cannot be computed: {message}" in err
    # of the methods that the design does not name, it is said as a warning
    design["analysis"] = {}
    write(design)
    code, _, err = called(capsys, "plan", "d.yml", "--check", "none")
    assert code == FINISHED
    assert (f"({method}: {message}" in err or f"; {method}: {message}" in err) == (
        sampler["name"] != "sobol" and method != "delta"
    )


def test_rows_that_constraints_or_inactive_factors_take_away(capsys: pytest.CaptureFixture[str]) -> None:
    lhs = {"name": "lhs", "n": 30}
    half = written(lhs, analysis={"methods": ["pawn"]}, constraints=["x1 < 0.5"])
    assert "15 rows are too few for PAWN, which needs 20" in problem_of(half, capsys)
    factors = {"x1": {"levels": [0, 1]}, "x2": {"low": 0, "high": 1, "when": "x1 == 1"}}
    shared = written(lhs, factors, analysis={"methods": ["pawn"]})
    assert "30 rows share 16 executed runs and are worth" in problem_of(shared, capsys)
    write(shared | {"seeds": {"policy": "independent"}})
    assert called(capsys, "plan", "d.yml", "--check", "none")[0] == FINISHED


def test_too_few_runs_for_the_contrasts_of_a_factorial(capsys: pytest.CaptureFixture[str]) -> None:
    levels = {name: {"levels": [0, 1, 2, 3, 4]} for name in ("x1", "x2")}
    design = written("factorial", levels, max_runs=8, analysis={"methods": ["anova"]})
    assert "anova cannot be computed: 8 runs are too few for the 8 contrasts" in problem_of(design, capsys)
    one = written("factorial", LEVELS, constraints=["x1 + x2 < 1"], analysis={"methods": ["anova"]})
    assert "all rows are one executed run, so that nothing varies" in problem_of(one, capsys)


def test_too_few_settings_for_a_box(capsys: pytest.CaptureFixture[str]) -> None:
    outcomes = {"y": {"of": "objective"}}
    design = written({"name": "lhs", "n": 19}, outcomes=outcomes, analysis={"discover": ["y > 0.5"]})
    told = "19 settings are too few to tell a box from chance; at least 20 are needed"
    assert f"analysis.discover: {told}" in problem_of(design, capsys)
    adaptive = {"name": "adaptive", "n": 10, "condition": "y > 0.5", "until": {"max_n": 15}}
    design = written(adaptive, outcomes=outcomes)
    assert "15 settings are too few to tell a box from chance" in problem_of(design, capsys)


def test_too_many_levels_to_compare(capsys: pytest.CaptureFixture[str]) -> None:
    design = written("factorial", {"x1": {"levels": list(range(31))}}, analysis={"compare": ["x1"]})
    assert "31 levels of x1 are too many to compare (at most 30)" in problem_of(design, capsys)
    design = written("factorial", LEVELS, constraints=["x1 < 1"], analysis={"compare": ["x1"]})
    assert "the rows have one level of x1 only" in problem_of(design, capsys)


# the smallest p of n seeds is 2 ** (1 - n), times the pairs
SEEDS = [
    (2, {}, 6),
    (3, {}, 7),
    (3, {"baseline": "0"}, 7),
    (4, {}, 8),
    (4, {"baseline": "0"}, 7),
    (2, {"confidence": 0.99}, 8),
    (3, {"confidence": 0.9}, 6),
]


@pytest.mark.parametrize(("size", "analysis", "enough"), SEEDS)
def test_too_few_seeds_to_find_a_difference(
    size: int, analysis: dict[str, Any], enough: int, capsys: pytest.CaptureFixture[str]
) -> None:
    factors = {"x1": {"levels": list(range(size))}, "x2": {"levels": [0, 1]}}
    design = written("factorial", factors, analysis={"compare": ["x1"], **analysis}, repetitions=enough - 1)
    code, _, err = called(capsys, "plan", "d.yml", "--check", "none")
    assert code == FINISHED
    assert "analysis.compare: " in err and f"{enough} would do (repetitions: {enough})" in err
    assert called(capsys, "generate", "d.yml", "--check", "none")[2] == err
    write(design | {"repetitions": enough})
    assert "would do" not in called(capsys, "plan", "d.yml", "--check", "none")[2]


def test_seeds_of_levels_that_share_no_setting_or_have_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    factors = {"x1": {"levels": [0, 1]}, "x2": X}
    lhs = {"name": "lhs", "n": 30}
    design = written(lhs, factors, analysis={"compare": ["x1"]}, repetitions=2)
    err = called(capsys, "plan", "d.yml", "--check", "none")[2]
    assert "2 seeds are few" in err and "repetitions: 10" in err
    own = {"seeds": {"policy": "independent"}}
    write(design | own)
    assert "compare" not in called(capsys, "plan", "d.yml", "--check", "none")[2]
    # 2 / (6 over 3) is above 0.05, and 2 / (8 over 4) below
    design = written(
        "factorial", {"x1": {"levels": [0, 1]}}, analysis={"compare": ["x1"]}, repetitions=3, **own
    )
    assert "repetitions: 4 would do" in called(capsys, "plan", "d.yml", "--check", "none")[2]


@pytest.mark.parametrize(
    ("keys", "advised"),
    [
        ({"seeds": {"policy": "independent"}}, True),
        ({"seeds": {"policy": "independent"}, "repetitions": 2}, False),
        ({}, False),
    ],
)
def test_repetitions_are_advised_if_every_row_has_a_seed_of_its_own(
    keys: dict[str, Any], advised: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    written({"name": "morris", "n": 8}, **keys)
    code, _, err = called(capsys, "plan", "d.yml")
    assert code == FINISHED
    assert ("morris cannot tell noise and interactions apart (repetitions: 2 would)" in err) is advised

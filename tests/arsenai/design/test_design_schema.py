"""The JSON Schema of design documents agrees with what loading takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.design.vocabulary import design_schema
from palaestrai_mosaik.experiment.yaml_text import read

jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed (extra 'test')")

ROOT = Path(__file__).parents[3]
FILES = [*sorted((ROOT / "designs").glob("*.yml")), ROOT / "tests/data/designs/two_grids.yml"]
VALIDATOR = jsonschema.Draft202012Validator(design_schema())


def faults(data: Any) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(data)]


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(design_schema())
    assert len(FILES) > 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_designs_and_what_they_resolve_to_are_valid(path: Path) -> None:
    assert faults(read(path.read_text(), "").value) == []
    assert faults(load(path).resolved) == []


SMALL: dict[str, Any] = {
    "uid": "d",
    "seed": 1,
    "base": "run.yml",
    "factors": [{"path": "a.b", "low": 0, "high": 1}],
}


@pytest.mark.parametrize(
    "keys",
    [
        {"factors": {"x": {"path": "a", "levels": [1, 2], "labels": ["p", 2], "weights": [1, 2]}}},
        {"factors": {"x": None}, "extends": "other.yml"},
        {"sampler": "lhs", "constraints": "x < 1", "outcomes": {"y": "reward.z"}, "max_runs": -1},
        {
            "sampler": {"name": "sobol", "n": 8, "second_order": True},
            "groups": {"g": ["x"]},
            "zip": [["x", "y"]],
        },
        {"base": {"schedule": [{"p": None}]}, "seeds": {"policy": "common"}, "execution": {"jobs": 2}},
        {
            "execution": {
                "executor": "slurm",
                "allow_modules": "mine, yours",
                "slurm": {"time": 30, "memory": "4G", "qos": None, "directives": ["--exclusive"]},
                "parsl": {"provider": "pbspro", "options": {"queue": "short"}, "prologue": "module load x"},
            }
        },
    ],
)
def test_other_forms_are_valid(keys: dict[str, Any]) -> None:
    assert faults({**SMALL, **keys}) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"factrs": []},
        {"seed": "one"},
        {"factors": [{"path": "a", "low": 0, "high": 1, "hgih": 2}]},
        {"factors": [{"path": "a", "levels": [1, 2], "low": 0}]},
        {"factors": [{"path": "a", "low": 0, "high": 1, "weights": [1, 2]}]},
        {"factors": [{"path": "a", "levels": [1]}]},
        {"factors": [{"path": "a", "low": 0, "high": 1, "dist": "unifrm"}]},
        {"outcomes": {"x": {"of": "rewards.y"}}},
        {"outcomes": {"x": {"of": "steps", "better": "more"}}},
        {"analysis": {"confidence": 2}},
        {"seeds": {"policy": "mine"}},
        {"execution": {"slurm": {"partiton": "short"}}},
        {"execution": {"slurm": {"cpus": 0}}},
        {"execution": {"parsl": {"provider": "slrum"}}},
        {"repetitions": 0},
        {"schedule": [{"p": {"agents": [[1]]}}]},
        {"base": {"schedule": [{"p": {"agent": []}}]}},
    ],
)
def test_mistakes_are_invalid(keys: dict[str, Any]) -> None:
    assert faults({**SMALL, **keys})

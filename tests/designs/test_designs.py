"""Every design of ``designs/``: whole as it is shipped, and executed in a smaller size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import palaestrai_mosaik as pm
from palaestrai_mosaik.arsenai.design import Design, load
from palaestrai_mosaik.cli import arsenai
from palaestrai_mosaik.experiment import dumps
from palaestrai_mosaik.experiment.yaml_text import read
from tests.support.pages import blocks_of

pytest.importorskip("pandapower", reason="the extra 'grid' is not installed")

ROOT = Path(__file__).parents[2]
DESIGNS = {path.stem: path for path in sorted((ROOT / "designs").glob("*.yml"))}

#: what makes each one small: keys of a design that extends it
SMALL: dict[str, dict[str, Any]] = {
    "agents_grids_sensors": {"repetitions": 1, "analysis": {"resamples": 50}},
    "cigre_morris": {"sampler": {"name": "morris", "n": 2, "levels": 4}},
    "cigre_sobol": {"sampler": {"name": "sobol", "n": 2, "second_order": False}},
    "cigre_search": {"search": {"budget": {"runs": 3}, "confirm": 1}},
    "cigre_learner_search": {"search": {"budget": {"runs": 4}, "seeds_per_setting": 2, "confirm": 1}},
    "ishigami_slurm": {"sampler": {"name": "sobol", "n": 2, "second_order": False}},
    # (so few runs that PRIM may find no box, and has no trajectory then)
    "rural_discovery": {"sampler": {"name": "lhs", "n": 24}, "analysis": {"resamples": 2}},
    "rural_week_sobol": {"sampler": {"name": "sobol", "n": 2, "second_order": False}},
}

#: those that are executed by ``arsenai tune``
SEARCHES = {"cigre_search", "cigre_learner_search"}

#: rows, and documents of all repetitions, of each as shipped
SIZES = {
    "agents_grids_sensors": (12, 36),
    "cigre_morris": (52, 52),
    "cigre_sobol": (48, 48),
    # settings are proposed one by one: these stand for them
    "cigre_search": (256, 256),
    "cigre_learner_search": (256, 512),
    "ishigami_slurm": (40, 40),
    "rural_discovery": (120, 120),
    "rural_week_sobol": (640, 640),
}


def test_every_design_is_tested() -> None:
    assert set(DESIGNS) == set(SMALL) == set(SIZES)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_design_makes_what_its_comment_says(name: str) -> None:
    plan = Design.load(DESIGNS[name]).plan()
    assert (plan.rows, plan.documents) == SIZES[name]


@pytest.mark.parametrize("name", DESIGNS)
def test_a_design_goes_all_the_way(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if load(DESIGNS[name]).analysis.discover:
        pytest.importorskip("sklearn", reason="the extra discovery is not installed")
    small = tmp_path / "small.yml"
    keys = {"uid": f"small_{name}", "extends": str(DESIGNS[name]), **SMALL[name]}
    small.write_text(dumps(keys))
    folder = tmp_path / "folder"
    # one of them in processes, as they are executed by default; what these cost, the others need not pay
    how = ["--jobs", "2"] if name == "cigre_morris" else ["--executor", "inline"]
    execution = [
        ["generate", str(small), "-o", str(folder), "--quiet"],
        ["run", str(folder), *how, "--quiet"],
    ]
    if name in SEARCHES:
        pytest.importorskip("optuna")
        execution = [["tune", str(small), "-o", str(folder), *how, "--quiet"]]
    steps: list[list[str]] = [
        *execution,
        ["status", str(folder)],
        ["compare" if name == "agents_grids_sensors" else "analyse", str(folder)],
        ["report", str(folder)],
    ]
    for step in steps:
        assert arsenai.main(step) == 0, f"{step}: {capsys.readouterr().err}"
    tables = [one for one in sorted((folder / "analysis").glob("*.csv")) if "trajectory" not in one.name]
    assert tables
    # three settings have no importances, and so few runs may have no boxes
    empty = ("search-importances", "discovery-boxes", "discovery-limits")
    assert all(len(pd.read_csv(table)) for table in tables if table.stem not in empty)
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    for outcome in load(small).outcomes:
        assert outcome.name in page


def test_what_the_search_for_a_learner_varies_matters(tmp_path: Path) -> None:
    """With good parameters it learns in its evaluations, with too small ones nothing, with too large ones the wrong thing."""
    base = load(DESIGNS["cigre_learner_search"]).resolved["base"]
    agent = "agents.controller"

    def learned(rate: float, std: float) -> float:
        overrides = {
            f"{agent}.brain.params.learning_rate": rate,
            f"{agent}.muscle.params.std": std,
        }
        with pm.run({**base, "uid": "x", "seed": 1}, store=tmp_path, quiet=True, overrides=overrides) as run:
            evaluations = run.store.episodes(run.instance, agent="controller", evaluation=True)
        assert len(evaluations) == 8
        return float(evaluations["objective_mean"].mean())

    untrained, good, wild = learned(1e-9, 1e-9), learned(0.1, 0.3), learned(3.0, 0.3)
    assert wild < untrained - 0.02 < untrained + 0.02 < good


def test_the_tutorial_shows_the_search_for_a_learner_as_it_is() -> None:
    page = (ROOT / "docs" / "tuning-a-learner.md").read_text(encoding="utf-8")
    blocks = [read(block.text, "page").value for block in blocks_of(page) if block.language == "yaml"]
    design = read(DESIGNS["cigre_learner_search"].read_text(encoding="utf-8"), "design").value
    assert isinstance(blocks[0], dict) and isinstance(blocks[1], dict) and isinstance(design, dict)
    assert (
        blocks[0]["schedule"][0]["train"]["environments"]
        == (design["base"]["schedule"][0]["train"]["environments"])
    )
    assert blocks[1] == {key: design[key] for key in ("factors", "search", "outcomes")}

"""Robustness that a design asks for: by ``analyse``, in the report, and as the default of ``compare --robustness``."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.factors import function_design

from palaestrai_mosaik.arsenai.analysis.comparison.robustness import robustness_design
from palaestrai_mosaik.arsenai.analysis.report import collect
from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.cli.arsenai import main

#: the levels of x1, the decision; x2 makes the scenarios
DECISIONS = ("a", "b")


def study(folder: Path, asked: Any, **keys: Any) -> Path:
    """Execute y = sobol_g(x1, x2), which is (|4 x1 - 2| + 0)(|4 x2 - 2| + 1) / 2, over all levels."""
    told = function_design(
        "sobol_g",
        {
            "x1": {"levels": [0.5, 1.0], "labels": list(DECISIONS)},
            "x2": {"levels": [0.0, 0.5, 1.5], "ordered": True},
        },
        "factorial",
        params={"coefficients": [0.0, 1.0]},
        **{
            "uid": "robust",
            "outcomes": {"y": {"of": "reward.y", "better": "lower"}, "n": {"of": "steps"}},
            "analysis": {"resamples": 50, "robustness": asked},
        },
    )
    generated = Design.from_mapping({**told, **keys}).generate(folder)
    run_folder(generated, settings=Settings(executor="inline"))
    return folder


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    asked = {"by": "x1", "over": ["x2"], "satisfice": ["y <= 1"]}
    return study(tmp_path_factory.mktemp("robust") / "s", asked)


def test_analyse_prints_what_the_design_asks_for(executed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyse", str(executed), "--json"]) == 0
    outcome, condition = json.loads(capsys.readouterr().out)["robustness"]
    assert (outcome["what"], outcome["by"], outcome["over"]) == ("y", ["x1"], ["x2"])
    # y of a is 0 everywhere; of b, |4 - 2| = 2 times (|4 x2 - 2| + 1) / 2: 3, 1 and 5
    values = {(one["level"], one["metric"]): one["value"] for one in outcome["metrics"]}
    assert values["b", "regret_max"] == pytest.approx(5) and values["b", "regret_mean"] == pytest.approx(3)
    assert values["b", "regret_percentile"] == pytest.approx(3 + 0.8 * 2)
    assert values["a", "regret_max"] == 0
    shares = {one["level"]: one["value"] for one in condition["metrics"]}
    assert shares == {"a": 1, "b": pytest.approx(1 / 3)}
    assert (executed / "analysis" / "robustness.csv").is_file()
    assert len(pd.read_csv(executed / "analysis" / "robustness-scenarios.csv")) == 12
    # who asks for something else gets that alone
    assert main(["analyse", str(executed), "--methods", "anova", "--outcomes", "y", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["robustness"] == []


def test_compare_needs_no_options_then(executed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # 'n' says no direction: the design's question leaves it out
    assert main(["compare", str(executed), "--robustness", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["robustness"]
    assert [one["what"] for one in told] == ["y", "y <= 1"]
    assert main(["compare", str(executed), "--robustness", "--satisfice", "y < 4", "--json"]) == 0
    assert [one["what"] for one in json.loads(capsys.readouterr().out)["robustness"]] == ["y", "y < 4"]


def test_the_report_has_a_section_with_regret_and_tables(executed: Path) -> None:
    assert main(["report", str(executed), "--quiet"]) == 0
    page = (executed / "report" / "index.html").read_text(encoding="utf-8")
    assert 'id="robustness"' in page and "Regret in y" in page and "y &lt;= 1 by x1 over x2" in page
    facts = json.loads((executed / "report" / "report.json").read_text(encoding="utf-8"))
    rows = {row["level"]: row for row in facts["tables"]["robustness-0-levels"]["rows"]}
    assert rows["b"]["regret_max"] == pytest.approx(5)
    assert "regret_max" in rows["a"]["best"] and "regret_max" not in rows["b"]["best"]
    scenarios = facts["tables"]["robustness-0-scenarios"]["rows"]
    assert sorted(row["regret"] for row in scenarios if row["level"] == "b") == pytest.approx([1, 3, 5])


def test_a_sample_without_shared_scenarios_has_values_and_no_regret(tmp_path: Path) -> None:
    folder = study(tmp_path / "s", {"by": "x1"}, sampler={"name": "lhs", "n": 6}, factors=LATIN)
    data = collect(Results(folder))
    (one,) = data.robustness
    assert one.scenarios["regret"].isna().all()
    assert main(["report", str(folder), "--quiet"]) == 0
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert "Levels share no scenarios" in page and "Regret in y" not in page


_PARAMS = "schedule.p.environments.f.environment.params"
LATIN = {
    "x1": {"path": f"{_PARAMS}.x1", "levels": [0.5, 1.0], "labels": list(DECISIONS)},
    "x2": {"path": f"{_PARAMS}.x2", "low": 0.0, "high": 1.0},
}


def test_a_question_that_has_no_answer_is_told(tmp_path: Path) -> None:
    """All runs give NaN: the report says why among its notes."""
    folder = study(tmp_path / "s", {"by": "x1"}, outcomes={"y": {"of": "reward.y", "better": "lower"}})
    results = Results(folder)
    results.outcomes()["y"] = math.nan
    found, why = robustness_design(results)
    assert found == [] and "no scenario is left in which every level has a finite value" in why
    assert "each level needs runs with a value in each scenario (sampler factorial or grid)" in why
    assert any("no robustness: " in note for note in collect(results).notes)

"""One function for each number that commands, reports and pages show, with values computed by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.reports import made_up

from palaestrai_mosaik.arsenai.analysis.moments import Moments, best_first, student_interval, worst_first
from palaestrai_mosaik.arsenai.analysis.report import tables
from palaestrai_mosaik.arsenai.analysis.report.best import chosen_runs
from palaestrai_mosaik.arsenai.analysis.report.data import ReportData
from palaestrai_mosaik.arsenai.analysis.report.sections import outcome
from palaestrai_mosaik.arsenai.analysis.report.wording import Cautions
from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.web import theatre
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import Source

#: a design without `outcomes` has the objective, and higher is better
DESIGN = """
uid: ties
seed: 1
base:
  uid: walk
  seed: 7
  schedule:
    train:
      environments: [{environment: {uid: lake, name: slippery_grid, params: {map: [SFFH, FFFG], slip: 0.2}}}]
      agents: [{name: walker, muscle: random}]
      phase_config: {episodes: 1}
factors:
  episodes: {path: schedule.train.phase_config.episodes, levels: [20, 10, 30]}
sampler: factorial
"""


def test_moments_are_those_of_the_finite_values() -> None:
    moments = Moments.of(np.array([9.0, 1.0, math.nan, 4.0, math.inf, 2.0]))
    assert (moments.count, moments.mean) == (4, 4.0)
    assert moments.std == pytest.approx(math.sqrt((25 + 9 + 0 + 4) / 3))
    quartiles = (moments.min, moments.lower_quartile, moments.median, moments.upper_quartile, moments.max)
    assert quartiles == (1.0, 1.75, 3.0, 5.25, 9.0)
    single, nothing = Moments.of(np.array([3.0])), Moments.of(np.array([math.nan]))
    assert (single.mean, single.median) == (3.0, 3.0) and math.isnan(single.std)
    assert nothing.count == 0 and math.isnan(nothing.mean)


def test_the_interval_of_a_mean_is_students() -> None:
    # t(0.975) with 1 degree of freedom is 12.7062; the standard error of 1 and 3 is 1
    assert student_interval(2.0, math.sqrt(2.0), 2, 0.95) == pytest.approx(
        (2 - 12.7062, 2 + 12.7062), abs=1e-4
    )
    assert np.isnan(student_interval(2.0, math.nan, 1, 0.95)).all()
    assert np.isnan(student_interval(2.0, 0.0, 5, 0.95)).all()


def test_equal_values_keep_their_order_at_both_ends() -> None:
    values = np.array([2.0, 1.0, math.nan, 2.0, 1.0, math.inf, 3.0])
    assert best_first(values, "higher").tolist() == [6, 0, 3, 1, 4]
    assert worst_first(values, "higher").tolist() == best_first(values, "lower").tolist() == [1, 4, 0, 3, 6]


def with_values(values: list[float]) -> ReportData:
    """Return a report of single runs with these values of violations, which should be low."""
    data = made_up(rows=len(values), repetitions=1)
    return replace(data, runs=data.runs.assign(violations=values, run=data.runs["uid"], status="finished"))


def test_report_table_and_page_name_the_same_best_and_worst_runs() -> None:
    values = [2.0, 1.0, 3.0, 1.0, 3.0, math.nan]
    data = with_values(values)
    uids = data.runs["uid"].tolist()
    assert chosen_runs(data, ["best", "worst"]) == [uids[1], uids[2]]
    frame, by = tables.sort_runs(data, tables.runs(data))
    assert (frame["uid"].tolist(), by) == ([uids[i] for i in (1, 3, 0, 2, 4, 5)], "violations")
    states = {"changed": {"run": np.arange(6), "instance": uids, "errors": []}}
    outcomes: Any = {"outcomes": [{"better": "lower", "values": np.array(values)}]}
    shown = theatre._extreme_runs({"cells": np.arange(6)}, states, outcomes)
    assert shown == [uids[i] for i in (1, 2, 3, 4, 0)]


def test_a_row_with_an_infinite_run_is_the_mean_of_the_others() -> None:
    data = made_up(rows=4, repetitions=2)
    runs = data.runs.copy()
    runs.loc[runs.index[0], "violations"] = math.inf
    view = outcome(replace(data, runs=runs), "violations", Cautions())
    assert view["values"]["rows"] == 4


def test_command_report_and_page_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "design.yml").write_text(DESIGN)
    folder = tmp_path / "ties"
    assert main(["generate", str(tmp_path / "design.yml"), "-o", str(folder), "--quiet"]) == 0
    assert main(["run", str(folder), "--executor", "inline", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["analyse", str(folder), "--json"]) == 0
    (said,) = json.loads(capsys.readouterr().out)["outcomes"]
    results = Results(folder)
    values = results.outcomes()["objective"].to_numpy(float)
    moments = Moments.of(values)
    for name in ("mean", "std", "min", "median", "max"):
        assert said[name] == getattr(moments, name) == results.moments()["objective"][name]
    assert main(["report", str(folder), "--quiet"]) == 0
    facts = json.loads((folder / "report" / "report.json").read_text())
    table = pd.DataFrame(facts["tables"]["summary-objective"]["rows"]).set_index("what")["value"]
    assert table["mean"] == moments.mean and table["standard deviation"] == moments.std
    # an outcome that no document declares is an objective, and higher is better everywhere
    assert facts["outcomes"][0]["better"] == "higher"
    with results.open_store() as store:
        answer: Any = get(Source(store, results.folder), "design/outcomes")
    assert answer["outcomes"][0]["better"] == "higher"

"""What commands tell of a search that has ended: tables, the report, and figures that can be counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from arsenai.search.searches import search_design, settings, tuned

from palaestrai_mosaik.arsenai.design.load import from_mapping, load
from palaestrai_mosaik.arsenai.design.settings import SettingRecord
from palaestrai_mosaik.arsenai.search.ranking import ranked
from palaestrai_mosaik.arsenai.search.result import history, importances
from palaestrai_mosaik.arsenai.search.search import open_search
from palaestrai_mosaik.cli.arsenai import main

pytest.importorskip("optuna")


def test_analyse_and_report_show_the_search(capsys):
    search = {"sampler": "random", "budget": {"runs": 70}, "prune": "median", "confirm": 2}
    tuned(search_design(search=search, episodes=2, noise=0.1))
    capsys.readouterr()
    assert main(["analyse", "f", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    complete = [one for one in settings() if one["state"] == "complete"]
    # what was stopped early is not lost
    assert (answer["runs"], answer["missing"], answer["failed"]) == (len(complete), 0, 0)
    told = answer["search"]["importances"]["y"]
    assert sum(one["share"] for one in told.values()) == pytest.approx(1)
    table = pd.read_csv("f/analysis/search-history.csv")
    assert len(table) == len(complete)
    assert table["best"].tolist() == table["value"].cummin().tolist()
    assert table["steps"].iloc[-1] <= sum(int(one["steps"]) for one in settings())
    best = pd.read_csv("f/analysis/search-best.csv")
    assert best["y, n"].tolist() == [2, 2, 2]
    assert main(["report", "f", "--quiet"]) == 0
    page = Path("f/report/index.html").read_text(encoding="utf-8")
    assert "the best setting so far" in page and "Which factors mattered in the search" in page
    assert "Search with random" in page and "arsenai tune design.yml" in page
    # (that of the report has all digits)
    pd.testing.assert_frame_equal(pd.read_csv("f/report/search-best.csv"), best)


@pytest.mark.parametrize(("better", "least"), [("lower", 0.8), ("higher", 0.8)])
def test_importances_are_those_of_the_direction_that_is_good(better, least, capsys):
    """Known answer: y is x1 + 0.01 x2; x1 alone decides, in both directions."""
    outcomes = {"y": {"of": "reward.y", "better": better}}
    base = search_design(function="linear")["base"]
    params = base["schedule"][0]["only"]["environments"][0]["environment"]["params"]
    params["coefficients"] = [1.0, 0.01]
    search = {"sampler": "random", "budget": {"runs": 40}}
    tuned(search_design(base=base, outcomes=outcomes, search=search))
    spec = load("f/design.yml")
    journal = open_search(spec, Path("f"))
    found = importances(spec, journal)["y"]
    assert found["x1"].share > least and found["x1"].p_adjusted == 0.01
    assert found["x2"].p_adjusted > 0.05
    capsys.readouterr()
    assert main(["analyse", "f"]) == 0
    chance = "Chance alone could explain the importance of x2 for y (p above 0.05, corrected for the number of factors)."
    assert chance in " ".join(capsys.readouterr().out.split())


def test_importances_of_noise_are_chance():
    """Shares add up to 1, whether or not a factor matters. By chance, more than 2 of 10 have a probability of 1 %."""
    import optuna

    spec = from_mapping(search_design())
    uniform = optuna.distributions.FloatDistribution(0, 1)
    named = 0
    for seed in range(10):
        draw = np.random.default_rng(seed)
        study = optuna.create_study()
        for x1, x2, y in zip(*draw.random((2, 20)), draw.normal(size=20), strict=True):
            point = {"params": {"x1": x1, "x2": x2}, "distributions": {"x1": uniform, "x2": uniform}}
            study.add_trial(optuna.trial.create_trial(value=y, **point))
        found = importances(spec, SimpleNamespace(study=study, trials=lambda study=study: study.trials))["y"]
        named += min(one.p_adjusted for one in found.values()) <= 0.05
    assert named <= 2


@pytest.mark.parametrize("factors", [("x1",), ("x1", "x2")])
def test_a_constant_outcome_has_no_importances(capsys, factors):
    design = search_design(function="linear", search={"sampler": "random", "budget": {"runs": 12}})
    params = design["base"]["schedule"][0]["only"]["environments"][0]["environment"]["params"]
    params["coefficients"] = [0.0, 0.0]
    design["factors"] = {name: design["factors"][name] for name in factors}
    tuned(design)
    capsys.readouterr()
    assert main(["analyse", "f", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["search"]["importances"] == {}
    why = (
        "There are no importances for y: it is 0 in all 12 complete settings, so there is nothing to explain."
    )
    assert main(["analyse", "f"]) == 0
    said = capsys.readouterr().out
    assert why in " ".join(said.split()) and "which factors mattered" not in said
    assert main(["report", "f", "--quiet"]) == 0
    page = Path("f/report/index.html").read_text(encoding="utf-8")
    assert why in page and "Which factors mattered in the search" not in page


def test_a_front_holds_what_nothing_else_beats():
    outcomes = {"y": {"of": "reward.y", "better": "lower"}, "n": {"of": "steps", "better": "higher"}}
    search = {"budget": {"runs": 9}, "objectives": ["y", "n"]}
    spec = from_mapping(search_design(outcomes=outcomes, search=search))
    points = [(1.0, 1.0), (2.0, 3.0), (2.0, 2.0), (3.0, 9.0), (0.5, 0.5), (2.0, 3.0)]
    records = [SettingRecord(i, "complete", point) for i, point in enumerate(points)]
    records[5] = SettingRecord(5, "complete", points[5], first=1)
    records.append(SettingRecord(6, "pruned", (0.0, 99.0)))
    assert [one.number for one in ranked(spec, records)] == [4, 0, 1, 3]


def test_the_history_is_in_the_order_in_which_settings_were_told():
    spec = from_mapping(search_design())
    records = [
        SettingRecord(0, "complete", (5.0,), 1, 10, told="2026-01-01T00:00:03"),
        SettingRecord(1, "failed", (), 1, 4, told="2026-01-01T00:00:01"),
        SettingRecord(2, "complete", (7.0,), 1, 10, told="2026-01-01T00:00:02"),
        SettingRecord(3, "running"),
        SettingRecord(4, "complete", (6.0,), 2, 20, told="2026-01-01T00:00:04"),
    ]
    found = [(one.number, one.runs, one.steps, one.value, one.best) for one in history(spec, records)]
    assert found == [(2, 2, 14, 7.0, 7.0), (0, 3, 24, 5.0, 5.0), (4, 5, 44, 6.0, 5.0)]

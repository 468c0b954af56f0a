"""What users read of a search: why settings failed, the front, what is to be trusted, what to do next."""

from __future__ import annotations

import csv
import json
import statistics
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from arsenai.search.searches import PARAMS, answered, printed, search_design, settings, tuned, written

from palaestrai_mosaik.arsenai.analysis import Results
from palaestrai_mosaik.arsenai.design.settings import read_table, write_settings
from palaestrai_mosaik.cli.arsenai import main


def two_objectives(**search):
    factors = {
        "x1": {"path": f"{PARAMS}.x1", "low": -5, "high": 10},
        "steps": {"path": f"{PARAMS}.steps", "type": "int", "low": 1, "high": 6},
    }
    return search_design(
        factors=factors,
        search={"budget": {"runs": 12}, "sampler": "random", "objectives": ["y", "length"], **search},
        outcomes={
            "y": {"of": "reward.y", "step": "mean", "better": "lower"},
            "length": {"of": "steps", "better": "higher"},
        },
    )


def test_a_misspelt_outcome_is_told_where_the_settings_failed(capsys):
    design = search_design(
        search={"budget": {"runs": 3}}, outcomes={"y": {"of": "reward.z", "better": "lower"}}
    )
    written(design)
    why = "outcome 'y': no run has the reward 'z'; there are: formula.y"
    wrong = printed(capsys, "tune", "d.yml", "-o", "f", "--executor", "inline", code=2).err
    assert "outcomes.y.of: the phase 'only' has no reward 'z'; there are: formula.y" in wrong
    words = ("tune", "d.yml", "-o", "f", "--executor", "inline", "--check", "none")
    out = printed(capsys, *words, code=1)
    assert f"settings 0, 1, 2: {why}" in out.out and "nothing was found: no setting is complete" in out.err
    # (as quiet as it is, a failure has its reason; nothing is executed this time)
    again = printed(capsys, *words, "--quiet", code=1)
    assert again.out == "" and f"settings 0, 1, 2: {why}" in again.err
    assert f"failed:\n  settings 0, 1, 2: {why}" in printed(capsys, "status", "f").out
    expected = [{"setting": number, "why": why} for number in range(3)]
    assert answered(capsys, "status", "f")["failed_settings"] == expected
    assert answered(capsys, "resume", "f", code=1)["failed_settings"] == expected


def test_a_run_that_failed_is_told_once(capsys):
    params = {"function": "branin", "x1": 0.0, "x2": 0.0, "failures": 1.0}
    design = search_design(search={"budget": {"runs": 2}})
    design["base"]["schedule"][0]["only"]["environments"][0]["environment"]["params"] = params
    written(design)
    out = printed(capsys, "tune", "d.yml", "-o", "f", "--executor", "inline", code=1).out
    assert out.count("valley-0-r0") == 1 and "settings 0" not in out and "setting 0" not in out
    assert "setting 0: run valley-0-r0" in printed(capsys, "resume", "f", code=1).out
    assert printed(capsys, "status", "f").out.count("as `failures` asks for") == 2


def test_a_search_executes_at_least_one_setting(capsys):
    written(search_design(search={"budget": {"hours": 1e-9}}))
    printed(capsys, "tune", "d.yml", "-o", "f", "--executor", "inline", "--quiet")
    assert "search with tpe: 1 setting (1 complete" in printed(capsys, "status", "f").out


def test_of_several_objectives_the_front_is_told(capsys):
    written(two_objectives(confirm=2))
    said = printed(capsys, "tune", "d.yml", "-o", "f", "--executor", "inline").out
    assert "winner.yml (of the front, that with the best y)" in said
    front = answered(capsys, "status", "f")["front"]
    values = {int(one["number"]): (float(one["values_y"]), float(one["values_length"])) for one in settings()}
    best = {
        a
        for a, (y, n) in values.items()
        if not any(v <= y and m >= n and (v, m) != (y, n) for v, m in values.values())
    }
    assert set(front) == best
    said = printed(capsys, "status", "f").out
    assert f"Pareto front so far: settings {', '.join(map(str, front))}" in said and "best so far" not in said
    assert main(["report", "f", "--quiet"]) == 0
    assert '"caption": "Pareto front"' in Path("f/report/report.json").read_text()


def test_each_of_several_objectives_has_a_column_of_the_table():
    written(two_objectives())
    assert main(["tune", "d.yml", "-o", "f", "--quiet", "--executor", "inline"]) == 0
    table = pd.read_csv("f/search/settings.csv", float_precision="round_trip")
    assert list(table.columns[:5]) == ["number", "state", "values_y", "values_length", "runs"]
    # (numbers for pandas, so that it needs to split nothing)
    assert table["values_y"].dtype == float and set(table["values_length"]) <= set(range(1, 7))
    records = read_table(Path("f"))
    assert [one.values for one in records] == list(
        zip(table["values_y"], table["values_length"], strict=True)
    )
    # what is not complete has no values
    write_settings(Path("f"), [replace(records[0], state="running", values=())], ["y", "length"])
    assert [one.values for one in read_table(Path("f"))] == [()]


def test_the_best_settings_are_compared_in_the_folder_that_confirms_them(capsys):
    search = {"budget": {"runs": 6}, "confirm": 3}
    analysis = {"methods": ["pawn"], "discover": ["y > 1"], "resamples": 20}
    tuned(search_design(search=search, noise=1.0, analysis=analysis))
    best = {
        one["setting"]: one["fresh_seeds"]["y"]["mean"] for one in answered(capsys, "resume", "f")["best"]
    }
    (found,) = answered(capsys, "compare", "f/confirm")["comparisons"]
    assert found["by"] == ["x1", "x2"] and len(found["levels"]) == len(best) == 3
    means = sorted(level["mean"] for level in found["levels"])
    assert means == pytest.approx(sorted(best.values()))
    # what the design asks for is asked of what was searched
    assert main(["analyse", "f/confirm", "--quiet"]) == 0
    assert main(["report", "f/confirm", "--quiet"]) == 0


def test_runs_that_another_search_has_recorded_confirm_this_one_too(capsys):
    search = {"budget": {"runs": 3}, "confirm": 2}
    for uid in ("one", "two"):
        written(search_design(search=search, uid=uid))
        assert main(["tune", "d.yml", "-o", uid, "--store", "s", "--executor", "inline", "--quiet"]) == 0
        confirmed = answered(capsys, "status", uid, "--store", "s")["confirm"]
        assert confirmed == {"runs": 6, "finished": 6, "failed": 0}
        assert "with fresh seeds" not in printed(capsys, "status", uid, "--store", "s").out


def test_levels_are_called_by_their_labels(capsys):
    factors = {
        "x1": {"path": f"{PARAMS}.x1", "low": -5, "high": 10},
        "length": {"path": f"{PARAMS}.steps", "levels": {"short one": 1, "long one": 2}},
        "x2": {"path": f"{PARAMS}.x2", "low": 0, "high": 15, "when": 'length == "short one"'},
    }
    written(search_design(factors=factors, search={"budget": {"runs": 12}, "sampler": "random"}))
    said = printed(capsys, "tune", "d.yml", "-o", "f", "--executor", "inline").out
    assert "short one" in said or "long one" in said
    said = printed(capsys, "analyse", "f").out
    assert "without x2, which not all settings have ('when')" in said
    with open("f/analysis/search-best.csv", encoding="utf-8", newline="") as stream:
        assert {row["length"] for row in csv.DictReader(stream)} <= {"short one", "long one"}
    best = answered(capsys, "resume", "f")["best"]
    assert {one["factors"]["length"] for one in best} <= {1, 2}


def test_one_fresh_seed_has_no_spread(capsys):
    written(search_design(search={"budget": {"runs": 3}, "confirm": 1}, noise=1.0))
    said = printed(capsys, "tune", "d.yml", "-o", "f", "--executor", "inline").out
    assert "(n=1)" in said and "±" not in said
    assert answered(capsys, "resume", "f")["best"][0]["fresh_seeds"]["y"]["std"] is None
    assert main(["report", "f", "--quiet"]) == 0


def test_the_report_recommends_the_setting_that_is_best_over_fresh_seeds(capsys):
    # (with so much noise the one that looked best is another one)
    search = {"budget": {"runs": 40}, "sampler": "random", "confirm": 4}
    factors = {"x1": {"path": f"{PARAMS}.x1", "low": 3.0, "high": 3.3}}
    design = search_design(
        search=search, factors=factors, noise=20.0, seeds={"policy": "independent"}, seed=3
    )
    tuned(design)
    best = answered(capsys, "resume", "f")["best"]
    chosen = min(settings(), key=lambda one: float(one["values"]))
    assert best[0]["setting"] != int(chosen["number"])
    assert main(["report", "f", "--quiet"]) == 0
    (told,) = json.loads(Path("f/report/report.json").read_text())["outcomes"]
    assert told["best"]["row"] == best[0]["setting"]
    frame = Results("f/confirm").outcomes()
    with open("f/search/confirmed.csv", encoding="utf-8", newline="") as stream:
        confirmed = [line["setting"] for line in csv.DictReader(stream)]
    values = frame.loc[frame["row"] == confirmed.index(str(best[0]["setting"])), "y"].tolist()
    fresh = told["best"]["fresh_seeds"]
    assert fresh["runs"] == 4 and fresh["mean"] == pytest.approx(statistics.fmean(values))
    # Student's t for 3 degrees of freedom is 3.1824
    half = 3.182446 * statistics.stdev(values) / 2
    assert fresh["high"] - fresh["mean"] == pytest.approx(half, rel=1e-6)
    assert not [text for text in told["cautions"] if "execute it again" in str(text)]
    page = Path("f/report/index.html").read_text()
    assert "with seeds that the search has not used" in page and "Before you rely on it" not in page
    assert "what it depends on was not analysed" not in page


def test_tune_takes_the_document_and_not_the_folder(capsys):
    tuned(search_design(search={"budget": {"runs": 1}}))
    assert "goes on with: arsenai resume f" in printed(capsys, "tune", "f", code=2).err
    design = search_design(sampler={"name": "lhs", "n": 2})
    del design["search"]
    written(design)
    assert "arsenai generate d.yml, then arsenai run" in printed(capsys, "tune", "d.yml", code=2).err


def test_without_results_it_says_how_to_go_on(capsys):
    written(search_design(search={"budget": {"runs": 1}}))
    assert main(["generate", "d.yml", "-o", "f", "--quiet"]) == 0
    assert "arsenai resume" in printed(capsys, "analyse", "f", code=2).err


def test_discovery_alone_says_nothing_of_the_search(capsys):
    tuned(search_design(search={"budget": {"runs": 3}}))
    said = printed(capsys, "analyse", "f", "--discover", "y > 5", code=1).out
    assert "best settings" not in said and "y > 5 holds in" in said

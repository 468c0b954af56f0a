"""Runs that are stopped early: when, what is kept of them, and what is not started then."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from arsenai.search.searches import search_design, settings, told, tuned, written

from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.cli.main import main as runs
from palaestrai_mosaik.store import Store

pytest.importorskip("optuna")


def pruned_design(prune, seeds=1, runs=16, **keys):
    search = {"sampler": "random", "budget": {"runs": runs}, "seeds_per_setting": seeds, "prune": prune}
    return search_design(search=search, episodes=6, **keys)


def states(folder="f"):
    return [one["state"] for one in settings(folder)]


@pytest.mark.parametrize("prune", ["halving", "hyperband", "median"])
def test_bad_settings_are_stopped_early(prune):
    found = tuned(pruned_design(prune, runs=20))
    pruned = [one for one in found if one["state"] == "pruned"]
    complete = [one for one in found if one["state"] == "complete"]
    assert pruned and complete
    assert {one["steps"] for one in complete} == {"6"}
    assert all(int(one["steps"]) < 6 for one in pruned)
    # the function has one value in all episodes, so what is pruned is worse than the best
    assert min(float(one["values"]) for one in complete) < min(float(one["values"]) for one in pruned)


def test_the_median_pruner_stops_what_is_worse_than_the_median():
    """Known answer: after five complete settings, the sixth is compared with the median of all before."""
    found = tuned(pruned_design("median"))
    kept = []
    for one in found:
        value = float(one["values"])
        if len(kept) >= 5:
            middle = sorted(kept)[len(kept) // 2]
            low = sorted(kept)[(len(kept) - 1) // 2]
            worse = value > (middle + low) / 2
            assert (one["state"] == "pruned") == worse
            assert not worse or one["steps"] == "1"
        else:
            assert one["state"] == "complete"
        if one["state"] == "complete":
            kept.append(value)


def test_pruned_is_a_status_with_what_was_recorded(capsys):
    tuned(pruned_design("median"))
    number = states().index("pruned")
    with Store("f/results", read_only=True) as store:
        frame = store.runs()
        row = frame[frame["document"] == f"valley-{number}-r0"].iloc[0]
        assert row["status"] == "pruned"
        assert store.steps_across([row["run"]]) == {row["run"]: 1}
    assert runs(["list", "--store", "f/results", "--status", "pruned"]) == 0
    assert f"valley-{number}-r0" in capsys.readouterr().out
    assert runs(["show", f"valley-{number}-r0", "--store", "f/results"]) == 0
    assert "pruned" in capsys.readouterr().out
    assert main(["status", "f", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert counts == {"finished": states().count("complete"), "pruned": states().count("pruned")}
    record = json.loads(Path(f"f/jobs/valley-{number}-r0.json").read_text())
    assert (record["status"], record["exit_code"]) == ("pruned", 0)
    assert "median stops setting" in record["error"]


def test_other_seeds_of_a_pruned_setting_are_not_started(capsys):
    found = tuned(pruned_design("median", seeds=3, runs=30, noise=0.1))
    pruned = [one for one in found if one["state"] == "pruned"]
    assert pruned and all(int(one["runs"]) < 3 for one in pruned)
    # what is not executed does not count: more settings than 30 / 3
    assert sum(int(one["runs"]) for one in found) > 27 and len(found) > 10
    assert main(["status", "f", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert counts["skipped"] == sum(3 - int(one["runs"]) for one in pruned)


def test_wilcoxon_compares_seed_by_seed():
    search = {"sampler": "random", "budget": {"runs": 60}, "seeds_per_setting": 8, "prune": "wilcoxon"}
    found = tuned(search_design(search=search, noise=0.5))
    pruned = [one for one in found if one["state"] == "pruned"]
    # with less than four pairs, no difference is significant at 0.1
    assert pruned and all(4 <= int(one["runs"]) < 8 for one in pruned)
    assert {int(one["runs"]) for one in found if one["state"] == "complete"} == {8}


def test_a_search_that_prunes_is_reproducible():
    design = pruned_design("hyperband", seeds=2, noise=0.3)
    tuned(design, "one")
    tuned(design, "two", jobs=1)
    assert told("one") == told("two") and "pruned" in states("one")


def test_evaluations_are_reported_where_the_outcome_is_of_evaluations():
    pytest.importorskip("optuna")
    design = pruned_design("median")
    only = design["base"]["schedule"][0]["only"]
    only["phase_config"] = {"mode": "train", "episodes": 8, "evaluate_every": 2}
    design["outcomes"]["y"]["evaluation"] = True
    found = tuned(design)
    assert {one["steps"] for one in found if one["state"] == "complete"} == {"12"}
    # two episodes of training, and the first evaluation
    assert {one["steps"] for one in found if one["state"] == "pruned"} == {"3"}


def test_what_cannot_be_reported_cannot_be_pruned(capsys):
    design = pruned_design("halving")
    design["outcomes"]["y"] = {"of": "reading.formula.y", "better": "lower"}
    assert main(["tune", written(design), "-o", "f"]) == 2
    assert "halving stops runs early by what they have so far" in capsys.readouterr().err


def test_settings_that_were_stopped_early_can_be_confirmed_too(capsys):
    design = pruned_design("median", runs=12, noise=30.0)
    design["search"] |= {"confirm": 2, "confirm_pruned": 2}
    found = tuned(design)
    pruned = [one for one in found if one["state"] == "pruned"]
    stopped = {int(one["number"]) for one in sorted(pruned, key=lambda one: float(one["values"]))[:2]}
    capsys.readouterr()
    assert main(["tune", "d.yml", "-o", "f", "--executor", "inline", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert {one["setting"] for one in best if one["pruned"]} == stopped and len(stopped) == 2
    means = [one["fresh_seeds"]["y"]["mean"] for one in best]
    assert means == sorted(means) and len(means) == 5
    assert main(["tune", "d.yml", "-o", "f", "--executor", "inline"]) == 0
    assert "(pruned)" in capsys.readouterr().out
    assert main(["report", "f", "--quiet"]) == 0
    page = Path("f/report/index.html").read_text(encoding="utf-8")
    assert ("In the search, it was stopped early." in page) == best[0]["pruned"]

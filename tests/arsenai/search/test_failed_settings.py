"""Settings that fail: what a sampler learns of them, and that those that lost runs do not win."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from arsenai.search.searches import search_design, settings, tuned, written

from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.search.samplers import shown_to_sampler
from palaestrai_mosaik.arsenai.search.search import open_search
from palaestrai_mosaik.cli.arsenai import main

pytest.importorskip("optuna")


def corner(edge=0.5, odds=1.0, built=True, noise=0.0, **search):
    """Return a search for the largest sum of two numbers in [0, 1], where a setting fails beyond ``edge``."""
    design = search_design(outcomes={"y": {"of": "reward.y", "better": "higher"}})
    environment = design["base"]["schedule"][0]["only"]["environments"][0]["environment"]
    environment["name"] = "arsenai.search.corner:Corner"
    environment["params"] = {"edge": edge, "odds": odds, "built": built, "noise": noise, "x1": 0.0, "x2": 0.0}
    for factor in design["factors"].values():
        factor |= {"low": 0, "high": 1}
    design["search"] = {"sampler": "tpe", "budget": {"runs": 30}, **search}
    return design


def failed(found):
    return [int(one["number"]) for one in found if one["state"] == "failed"]


def test_a_sampler_leaves_the_corner_that_fails():
    """The sum is the largest next to it, so a sampler that learns nothing of failures goes there again and again."""
    late = {}
    for failures in ("worst", "exclude"):
        found = tuned(corner(failures=failures, budget={"runs": 20}), failures, code=1)
        late[failures] = sum(number >= 10 for number in failed(found))
    assert late["worst"] < late["exclude"]
    # what goes on shows the sampler the same
    tuned(corner(budget={"runs": 13}), "parts", code=1)
    parts = tuned(corner(budget={"runs": 20}), "parts", code=1)
    assert [one["values"] for one in parts] == [one["values"] for one in settings("worst")]


@pytest.mark.parametrize(("sampler", "runs"), [("cmaes", 12), ("nsgaii", 22)])
def test_samplers_with_generations_learn_of_failures(sampler, runs):
    found = tuned(corner(sampler=sampler, budget={"runs": runs}), code=1)
    assert failed(found) and len(found) == runs


def test_a_failure_is_shown_as_worse_than_all_that_finished():
    found = tuned(corner(budget={"runs": 6}), code=1)
    spec = load("f/design.yml")
    journal = open_search(spec, Path("f"))
    shown = shown_to_sampler(spec.search, journal).get_all_trials(journal.study._study_id)
    worst = min(float(one["values"]) for one in found if one["state"] == "complete")
    assert all(shown[number].values[0] < worst for number in failed(found))
    assert {one.state.name for one in shown} == {"COMPLETE"}
    # the journal keeps what happened
    assert [one.number for one in journal.trials() if one.state.name == "FAIL"] == failed(found)


def test_a_setting_that_cannot_be_built_is_a_failure(capsys):
    found = tuned(corner(built=False, budget={"runs": 8}), code=1)
    assert 0 < len(failed(found)) < 8
    assert "does not fit into the memory" in next(one["why"] for one in found if one["state"] == "failed")
    assert "settings like this one will fail" in capsys.readouterr().err
    # it counts as a failed run, though nothing was recorded of it
    assert main(["analyse", "f", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["runs"], answer["failed"]) == (8, len(failed(found)))
    with open("f/analysis/outcomes.csv", encoding="utf-8", newline="") as stream:
        statuses = [row["status"] for row in csv.DictReader(stream)]
    assert statuses.count("failed") == len(failed(found))
    # nor one whose document is not sound
    design = corner(edge=1.0, budget={"runs": 8})
    design["factors"]["n"] = {
        "path": "schedule.only.phase_config.episodes",
        "type": "int",
        "low": 0,
        "high": 2,
    }
    found = tuned(design, "g", code=1)
    assert 0 < len(failed(found)) < 8 == len(found)
    assert "episodes must be an integer of at least 1" in found[failed(found)[0]]["why"]


def test_a_document_that_is_wrong_in_every_setting_is_refused(capsys):
    assert main(["tune", written(corner(edge=-1.0, built=False)), "-o", "f", "--executor", "inline"]) == 2
    assert "does not fit into the memory" in capsys.readouterr().err
    assert not Path("f").exists()


def test_a_setting_that_lost_runs_does_not_win(capsys):
    """What fails by chance beyond the edge has the larger mean, of the runs that finished."""
    design = corner(odds=0.4, sampler="random", budget={"runs": 8}, confirm=4)
    design["seeds"] = {"policy": "independent"}
    tuned(design, code=1)
    capsys.readouterr()
    main(["tune", "d.yml", "-o", "f", "--executor", "inline"])
    said = capsys.readouterr().out
    assert (
        "of 4 finished)" in said and "ranks behind all that lost none" in said and "trust these" not in said
    )
    main(["tune", "d.yml", "-o", "f", "--executor", "inline", "--json"])
    best = json.loads(capsys.readouterr().out)["best"]
    finished = [one["fresh_seeds"]["y"]["seeds"] for one in best]
    assert finished[0] == 4 > min(finished) and [one["recommended"] for one in best] == [True, False, False]
    assert best[0]["fresh_seeds"]["y"]["mean"] < max(one["fresh_seeds"]["y"]["mean"] or 0 for one in best)
    assert Path("f/search/winner.yml").exists()
    gone = 12 - sum(finished)
    main(["status", "f"])
    assert f"with fresh seeds: {12 - gone} of 12 runs finished, {gone} failed\n" in capsys.readouterr().out
    assert main(["report", "f", "--quiet"]) == 0
    page = Path("f/report/index.html").read_text(encoding="utf-8")
    assert f"{gone} of 12 such runs did not finish; a setting that lost runs ranks behind" in page


def test_without_a_setting_that_kept_its_runs_there_is_no_winner(capsys):
    design = corner(edge=-1.0, odds=0.5, noise=1.0, sampler="random", budget={"runs": 8}, confirm=4)
    design["seeds"] = {"policy": "independent"}
    found = tuned(design, code=1)
    assert failed(found) and len(failed(found)) < 8
    capsys.readouterr()
    main(["tune", "d.yml", "-o", "f", "--executor", "inline"])
    assert "no winner: all of these settings lost runs" in capsys.readouterr().out
    assert settings() and not Path("f/search/winner.yml").exists()


def test_settings_that_tie_are_called_so(capsys):
    """All settings give 0: the three that are shown are the first ones, and confirmed all the same."""
    design = search_design(
        function="linear", search={"sampler": "random", "budget": {"runs": 6}, "confirm": 2}
    )
    design["base"]["schedule"][0]["only"]["environments"][0]["environment"]["params"]["coefficients"] = [
        0.0,
        0.0,
    ]
    tuned(design)
    capsys.readouterr()
    main(["tune", "d.yml", "-o", "f", "--executor", "inline"])
    assert (
        "all of these gave the same y in the search, which could not tell them apart"
        in capsys.readouterr().out
    )
    assert main(["report", "f"]) == 0
    tie = "6 settings share the best y, 0; the first 3 of them are shown, and more seeds_per_setting may tell them apart."
    assert tie in Path("f/report/index.html").read_text(encoding="utf-8")
    facts = json.loads(Path("f/report/report.json").read_text(encoding="utf-8"))
    assert facts["outcomes"][0]["best"] is not None

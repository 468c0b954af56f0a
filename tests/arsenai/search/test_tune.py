"""A search through the whole chain: what it proposes, executes, writes and finds."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from arsenai.search.searches import (
    MINIMUM,
    PARAMS,
    generated,
    outcomes,
    search_design,
    settings,
    told,
    tuned,
    written,
)

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.model import INACTIVE
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.cli.main import main as start
from palaestrai_mosaik.store import Store

optuna = pytest.importorskip("optuna")


def values(folder="f"):
    """Return the values of the factors in each setting."""
    return DesignFolder.open(folder).values()


def test_one_worker_gives_the_same_bytes_again():
    design = search_design(search={"budget": {"runs": 26}, "seeds_per_setting": 2}, noise=0.5)
    tuned(design, "one")
    tuned(design, "two", jobs=1)
    assert generated("one") == generated("two")
    assert told("one") == told("two")
    assert outcomes("one") == outcomes("two")
    assert len(outcomes("one")) == 26


def test_another_seed_gives_another_search():
    tuned(search_design(search={"budget": {"runs": 2}}), "one")
    tuned(search_design(search={"budget": {"runs": 2}}, seed=12), "two")
    assert values("one") != values("two")


def test_it_finds_the_minimum_of_a_function():
    found = tuned(search_design(search={"sampler": "cmaes", "budget": {"runs": 60}}))
    assert min(float(one["values"]) for one in found) < MINIMUM + 1.0
    assert all(one["state"] == "complete" for one in found)


def test_larger_budgets_go_on_with_the_same_search():
    tuned(search_design(search={"budget": {"runs": 8}}), "one")
    before = told("one")
    tuned(search_design(search={"budget": {"runs": 16}}), "one")
    tuned(search_design(search={"budget": {"runs": 16}}), "two")
    assert told("one") == told("two")
    assert told("one")[:8] == before
    assert generated("one") == generated("two")


def test_a_setting_is_executed_again_by_hand_with_the_same_bytes(capsys):
    tuned(search_design(search={"budget": {"runs": 3}}, noise=0.3))
    document = "valley-2-r0"
    assert start(["start", f"f/runs/{document}.yml", "--store", "by-hand", "--quiet"]) == 0
    with Store("by-hand", read_only=True) as store:
        run = store.runs().iloc[0]
    marker = json.loads(Path("by-hand/instances", run["run"], "complete.json").read_text())
    assert [marker["digests"]] == outcomes()[document]


def test_a_document_of_the_winner_is_in_the_folder():
    found = tuned(search_design())
    best = min(found, key=lambda one: float(one["values"]))
    assert (
        Path("f/search/winner.yml").read_bytes()
        == Path(f"f/runs/valley-{best['number']}-r0.yml").read_bytes()
    )


def test_all_kinds_of_factors_are_searched():
    factors = {
        "x1": {"path": f"{PARAMS}.x1", "levels": [-3.0, 0.0, 3.0]},
        "x2": {"path": f"{PARAMS}.x2", "dist": "normal", "mean": 5, "std": 2},
        "noise": {"path": f"{PARAMS}.noise", "low": 1e-6, "high": 1e-3, "dist": "loguniform"},
        "steps": {"path": f"{PARAMS}.steps", "type": "int", "low": 1, "high": 3},
        "function": {"path": f"{PARAMS}.function", "levels": ["branin", "linear"]},
        "episodes": {"path": "schedule.only.phase_config.episodes", "levels": [1, 2, 4], "ordered": True},
    }
    tuned(search_design(factors=factors, search={"budget": {"runs": 30}}))
    rows = values()
    assert {row["x1"] for row in rows} == {-3.0, 0.0, 3.0}
    assert {row["steps"] for row in rows} == {1, 2, 3}
    assert {row["function"] for row in rows} == {"branin", "linear"}
    assert {row["episodes"] for row in rows} == {1, 2, 4}
    assert all(1e-6 <= row["noise"] <= 1e-3 for row in rows)
    assert [one["steps"] for one in settings()] == [str(row["steps"] * row["episodes"]) for row in rows]


@pytest.mark.parametrize("sampler", ["tpe", "random"])
def test_a_factor_with_when_is_a_parameter_of_some_settings_only(sampler):
    factors = {
        "function": {"path": f"{PARAMS}.function", "levels": ["branin", "linear"]},
        "x1": {"path": f"{PARAMS}.x1", "low": -5, "high": 10},
        "x2": {"path": f"{PARAMS}.x2", "low": 0, "high": 15, "when": "function == 'linear'"},
    }
    tuned(search_design(factors=factors, search={"sampler": sampler, "budget": {"runs": 24}}))
    rows = values()
    assert {row["x2"] is INACTIVE for row in rows if row["function"] == "branin"} == {True}
    assert not any(row["x2"] is INACTIVE for row in rows if row["function"] == "linear")


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "nsgaii", "random", "gp"])
def test_constraints_reject_a_setting_before_it_is_executed(sampler):
    if sampler == "gp":
        pytest.importorskip("torch")
    design = search_design(
        search={"sampler": sampler, "budget": {"runs": 14}}, constraints=["x1 + x2 < 5", "x1 < x2"]
    )
    found = tuned(design)
    assert all(row["x1"] + row["x2"] < 5 and row["x1"] < row["x2"] for row in values())
    assert sum(int(one["rejected"]) for one in found) > 0
    assert len(found) == 14


def test_constraints_that_nothing_can_keep_end_the_search(capsys):
    design = search_design(
        search={"sampler": "random", "budget": {"runs": 20}}, constraints=["x1 > 9.9999999999"]
    )
    assert (
        main(["tune", written(design), "-o", "f", "--executor", "inline", "--check", "none", "--quiet"]) == 2
    )
    assert "the constraints reject 1,000 proposals in a row for setting 0" in capsys.readouterr().err


def test_what_was_tried_before_is_not_executed_again():
    factors = {
        name: {"path": f"{PARAMS}.{name}", "levels": [0.0, 1.0], "ordered": True} for name in ("x1", "x2")
    }
    found = tuned(search_design(factors=factors, search={"sampler": "random", "budget": {"runs": 20}}))
    assert len(found) == 20
    assert sum(int(one["runs"]) for one in found) == 4 == len(outcomes())
    first = {one["number"]: one["values"] for one in found if not one["first"]}
    assert len(first) == 4
    assert all(one["values"] == first[one["first"]] for one in found if one["first"])


def test_a_search_that_has_tried_everything_ends():
    factors = {
        name: {"path": f"{PARAMS}.{name}", "levels": [0.0, 1.0], "ordered": True} for name in ("x1", "x2")
    }
    found = tuned(search_design(factors=factors, search={"sampler": "random", "budget": {"steps": 10**6}}))
    assert 100 <= len(found) < 200
    assert sum(int(one["steps"]) for one in found) == 4


def test_the_budget_is_in_steps_of_environments():
    found = tuned(
        search_design(steps=5, episodes=2, search={"budget": {"steps": 41}, "seeds_per_setting": 2})
    )
    assert [one["steps"] for one in found] == ["20", "20", "20"]


def test_the_budget_is_in_hours(capsys):
    design = search_design(search={"sampler": "random", "budget": {"hours": 1.5 / 3600}})
    found = tuned(design)
    assert 1 <= len(found) < 100
    # A second process counts the same hours, so it executes nothing.
    assert tuned(design) == found


def test_several_objectives_give_a_front(capsys):
    outcomes = {
        "y": {"of": "reward.y", "better": "lower"},
        "length": {"of": "steps", "better": "higher"},
    }
    factors = search_design()["factors"] | {
        "steps": {"path": f"{PARAMS}.steps", "type": "int", "low": 1, "high": 4}
    }
    design = search_design(
        factors=factors,
        outcomes=outcomes,
        search={"sampler": "nsgaii", "budget": {"runs": 30}, "objectives": ["y", "length"]},
    )
    assert main(["tune", written(design), "-o", "f", "--executor", "inline", "--json"]) == 0
    front = [one["outcomes"] for one in json.loads(capsys.readouterr().out)["best"]]
    everything = [(float(one["values_y"]), float(one["values_length"])) for one in settings()]
    points = {(one["y"], one["length"]) for one in front}
    assert points <= set(everything)
    # no setting is better in one and as good in the other, and none of these is missing
    best = {
        (y, n)
        for y, n in everything
        if not any((a <= y and b >= n) and (a, b) != (y, n) for a, b in everything)
    }
    assert points == best


def test_the_best_are_confirmed_with_seeds_that_the_search_has_not_seen(capsys):
    search = {"budget": {"runs": 24}, "seeds_per_setting": 2, "confirm": 5}
    design = search_design(search=search, noise=1.0)
    assert main(["tune", written(design), "-o", "f", "--executor", "inline", "--json"]) == 0
    best = json.loads(capsys.readouterr().out)["best"]
    assert [one["fresh_seeds"]["y"]["seeds"] for one in best] == [5, 5, 5]
    searched = {run.seed for run in DesignFolder.open("f").runs}
    fresh = {run.seed for run in DesignFolder.open("f/confirm").runs}
    assert len(fresh) == 5 and not searched & fresh
    rows = DesignFolder.open("f/confirm").values()
    with open("f/search/confirmed.csv", encoding="utf-8") as stream:
        numbers = [int(line["setting"]) for line in csv.DictReader(stream)]
    assert rows == [values()[number] for number in numbers]
    means = [one["fresh_seeds"]["y"]["mean"] for one in best]
    assert means == sorted(means)
    # nothing is executed twice
    again = main(["tune", "d.yml", "-o", "f", "--executor", "inline", "--json"])
    assert again == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["ended"] == {} and answer["best"] == best


def test_a_failure_is_a_setting_without_values(capsys):
    seeds = {"policy": "independent"}
    found = tuned(search_design(base=failing_base(), search={"budget": {"runs": 20}}, seeds=seeds), code=1)
    states = [one["state"] for one in found]
    assert 0 < states.count("failed") < 20
    assert states.count("failed") + states.count("complete") == len(states)
    failed = next(one for one in found if one["state"] == "failed")
    assert "fails, as `failures` asks for" in failed["why"]
    capsys.readouterr()
    assert main(["status", "f", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["failed"] == states.count("failed")


def failing_base():
    base = search_design()["base"]
    base["schedule"][0]["only"]["environments"][0]["environment"]["params"]["failures"] = 0.4
    return base


def test_seeds_of_a_failed_setting_are_skipped(capsys):
    design = search_design(
        base=failing_base(),
        search={"budget": {"runs": 12}, "seeds_per_setting": 3},
        seeds={"policy": "independent"},
    )
    tuned(design, code=1)
    assert main(["status", "f", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["counts"]
    assert counts["skipped"] > 0 and "waiting" not in counts


def test_a_search_in_which_everything_fails_ends(capsys):
    base = failing_base()
    base["schedule"][0]["only"]["environments"][0]["environment"]["params"]["failures"] = 1.0
    found = tuned(search_design(base=base, search={"budget": {"runs": 50}}), code=1)
    assert len(found) == 10


def test_several_workers_lose_nothing_and_execute_nothing_twice():
    found = tuned(search_design(search={"budget": {"runs": 24}, "seeds_per_setting": 2}), jobs=2)
    assert [one["number"] for one in found] == [str(number) for number in range(12)]
    assert {one["state"] for one in found} == {"complete"}
    assert {len(several) for several in outcomes().values()} == {1}
    assert len(outcomes()) == 24


def test_another_search_in_the_folder_is_refused(capsys):
    tuned(search_design(search={"budget": {"runs": 1}}))
    assert main(["tune", written(search_design(seed=99)), "-o", "f", "--quiet"]) == 2
    assert "the folder holds another design" in capsys.readouterr().err


def test_other_commands_name_the_one_for_searches(capsys):
    tuned(search_design(search={"budget": {"runs": 1}}))
    assert main(["run", "f", "--quiet"]) == 2
    assert "arsenai resume f" in capsys.readouterr().err
    assert main(["generate", "d.yml"]) == 0
    out = capsys.readouterr().out
    assert "next: arsenai tune d.yml\n      arsenai submit _outputs/valley (on Slurm)" in out
    # what there is stays
    before = generated()
    assert main(["generate", "d.yml", "-o", "f", "--quiet"]) == 0
    assert generated() == before
    assert main(["submit", "f"]) == 0
    out = capsys.readouterr().out
    assert "the search is over: 1 run" in out and "next: arsenai report f" in out
    plain = {key: value for key, value in search_design().items() if key != "search"} | {
        "sampler": {"name": "lhs", "n": 2}
    }
    assert main(["tune", written(plain), "--quiet"]) == 2
    assert "says nothing under 'search'" in capsys.readouterr().err


def test_without_optuna_it_says_what_to_install(capsys, monkeypatch):
    from palaestrai_mosaik.arsenai.execution import journal

    journal.optuna.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "optuna", None)
    try:
        assert main(["tune", written(search_design()), "--quiet"]) == 2
    finally:
        journal.optuna.cache_clear()
    assert "a search needs Optuna" in capsys.readouterr().err

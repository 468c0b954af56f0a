"""Settings that failed are executed once more where the user asks for it: which, with which seeds, and after a kill."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from arsenai.search.searches import (
    GATED,
    PARAMS,
    outcomes,
    search_design,
    settings,
    start,
    told,
    tuned,
    written,
)
from arsenai.search.test_tasks import instances, submitted
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.growing import GrowingFolder
from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.design.model import Budget, SearchSpec
from palaestrai_mosaik.arsenai.design.settings import SettingRecord, retries_text
from palaestrai_mosaik.arsenai.execution import Settings
from palaestrai_mosaik.arsenai.search.budget import runs_left, spent
from palaestrai_mosaik.arsenai.search.search import Search, open_search
from palaestrai_mosaik.arsenai.search.settings import Trials
from palaestrai_mosaik.arsenai.search.stores import Worker
from palaestrai_mosaik.arsenai.search.task import execute_search_task
from palaestrai_mosaik.cli.arsenai import main

pytest.importorskip("optuna")


def gated(runs=12, seeds=1, sampler="random", **keys):
    search = {
        "sampler": sampler,
        "budget": {"runs": runs},
        "seeds_per_setting": seeds,
        **keys.pop("search", {}),
    }
    return search_design(muscle=GATED, steps=4, noise=0.2, search=search, **keys)


def mend():
    Path("mended").touch()


def states(folder="f"):
    return [one["state"] for one in settings(folder)]


def runs(folder="f"):
    """Return seed and values of the factors of each run, by the uid of its document."""
    opened = DesignFolder.open(folder)
    values = opened.values()
    return {run.uid: (run.seed, values[run.row]) for run in opened.documents}


@pytest.mark.parametrize(("policy", "jobs"), [("common", "inline"), ("independent", 2)])
def test_settings_that_failed_are_executed_once_more_before_others(policy, jobs, capsys):
    design = {**gated(), "seeds": {"policy": policy}}
    assert main(["tune", written(design), "-o", "f", "--executor", "inline"]) == 1
    said = capsys.readouterr().out
    assert "ended by: the first 10 settings failed" in said
    assert "10 settings failed; once the cause is fixed: arsenai resume f --retry-failed" in said
    # without the option it is over, and says how to go on
    assert main(["resume", "f", "--executor", "inline"]) == 1
    said = capsys.readouterr().out
    assert "0 runs executed now" in said and "arsenai resume f --retry-failed" in said
    assert main(["status", "f"]) == 0
    said = capsys.readouterr().out
    assert "the search is over: the first 10 settings failed" in said
    assert "arsenai resume f --retry-failed" in said
    assert states() == ["failed"] * 10

    mend()
    found = tuned(design, "f", "--retry-failed", jobs=jobs)
    # 10 runs that do not count, 10 in their place, and 2 more: the budget of 12
    assert [one["state"] for one in found] == ["retried"] * 10 + ["complete"] * 12
    assert sorted(one["retries"] for one in found[10:]) == sorted(["", "", *map(str, range(10))])
    assert [one["first"] for one in found] == [""] * 22
    # each is the very run that had failed, which gives what it gives where nothing ever failed
    tuned(design, "whole")
    assert told("whole")[0][1] == "complete"
    of, whole = runs(), runs("whole")
    of_whole = outcomes("whole")
    for one in found[10:]:
        if one["retries"]:
            mine, failed = f"valley-{one['number']}-r0", f"valley-{one['retries']}-r0"
            assert of[mine] == of[failed] == whole[failed]
            assert outcomes()[mine] == of_whole[failed]
            assert one["values"] == settings("whole")[int(one["retries"])]["values"]
    assert DesignFolder.open("f").verify() == []
    # it is over, and nothing is left to be tried again
    before = told()
    capsys.readouterr()
    assert main(["resume", "f", "--executor", "inline", "--retry-failed"]) == 0
    assert "no failed setting is left to try again" in capsys.readouterr().out
    assert told() == before


def test_one_worker_gives_the_same_bytes_again():
    for folder in ("one", "two"):
        shutil.rmtree("f", ignore_errors=True)
        Path("mended").unlink(missing_ok=True)
        tuned(gated(sampler="tpe"), "f", code=1)
        mend()
        tuned(gated(sampler="tpe"), "f", "--retry-failed", jobs=1 if folder == "one" else "inline")
        Path("f").rename(folder)
    assert told("one") == told("two") and runs("one") == runs("two") and outcomes("one") == outcomes("two")


def test_the_budget_is_never_exceeded_and_what_waits_comes_first_with_a_larger_one(capsys):
    """Ten settings fail at the first of two seeds; a budget of 12 runs has room for six of them."""
    assert states_after(gated(12, seeds=2), 1) == ["failed"] * 10
    mend()
    found = tuned(gated(12, seeds=2), "f", "--retry-failed", code=1)
    assert [one["state"] for one in found] == ["retried"] * 10 + ["complete"] * 6
    assert [one["retries"] for one in found[10:]] == [str(number) for number in range(6)]
    assert [one["runs"] for one in found[10:]] == ["2"] * 6
    assert main(["status", "f"]) == 0
    said = capsys.readouterr().out
    assert "tried again: setting 0 as 10, 1 as 11" in said and "6 (not yet)" in said
    assert "4 failed settings not tried again yet; if the budget is spent, write a larger one" in said
    assert "the search is over: 12 runs" in said
    # (the option need not be said again)
    found = tuned(gated(22, seeds=2))
    assert [one["retries"] for one in found[10:]] == [*map(str, range(10)), ""]
    assert [one["state"] for one in found[10:]] == ["complete"] * 11
    assert sum(int(one["runs"]) for one in found[10:]) == 22


def states_after(design, code, *options):
    return [one["state"] for one in tuned(design, "f", *options, code=code)]


def test_what_fails_again_may_be_tried_again_and_the_last_one_counts():
    assert states_after(gated(2), 1) == ["failed", "failed"]
    assert states_after(gated(2), 1, "--retry-failed") == ["retried", "retried", "failed", "failed"]
    mend()
    found = tuned(gated(2), "f", "--retry-failed")
    assert [one["state"] for one in found] == ["retried"] * 4 + ["complete"] * 2
    assert [one["retries"] for one in found] == ["", "", "0", "1", "2", "3"]
    assert len({run[0] for run in runs().values()}) == 1


def test_after_one_failure_with_fail_fast_that_setting_is_not_lost():
    found = tuned(gated(3), "f", "--fail-fast", code=1)
    assert [one["state"] for one in found] == ["failed"]
    # it fails once more, and nothing else begins
    assert states_after(gated(3), 1, "--fail-fast", "--retry-failed") == ["retried", "failed"]
    mend()
    found = tuned(gated(3), "f", "--fail-fast", "--retry-failed")
    assert [(one["state"], one["retries"]) for one in found] == [
        ("retried", ""),
        ("retried", "0"),
        ("complete", "1"),
        ("complete", ""),
        ("complete", ""),
    ]


def test_what_was_proposed_before_is_what_the_last_attempt_has_given():
    """Four settings in all: repeats are not tried again, and later ones have the figures of the attempt that went well."""
    factors = {
        name: {"path": f"{PARAMS}.{name}", "levels": [0.0, 1.0], "ordered": True} for name in ("x1", "x2")
    }
    design = gated(40, factors=factors)
    found = tuned(design, code=1)
    own = [one["number"] for one in found if not one["first"]]
    assert len(found) == 10 and 1 < len(own) <= 4
    mend()
    found = tuned(design, "f", "--retry-failed")
    again = {one["retries"]: one for one in found if one["retries"]}
    assert sorted(again) == own
    assert [one["state"] for one in found if one["number"] in own] == ["retried"] * len(own)
    # each of the four was executed once with success, and a repeat names that
    complete = {
        one["number"]: one["values"] for one in found if one["runs"] == "1" and one["state"] == "complete"
    }
    assert len(complete) == 4
    repeats = [one for one in found[10:] if one["first"]]
    assert len(repeats) > 20
    assert all((one["state"], one["values"]) == ("complete", complete[one["first"]]) for one in repeats)
    assert Counter(map(len, outcomes().values())) == {1: 4}


def test_a_search_in_which_everything_is_a_repeat_of_what_failed_goes_on(capsys):
    """Ten failures, of which one setting has one and its repeats nine: the repeats of what is tried again do not count."""
    factors = {"x1": {"path": f"{PARAMS}.x1", "levels": [0.0, 1.0], "ordered": True}}
    design = gated(30, factors=factors, search={"sampler": "random"})
    found = tuned(design, code=1)
    assert len(found) == 10
    mend()
    found = tuned(design, "f", "--retry-failed")
    assert {one["state"] for one in found[10:]} == {"complete"}


def test_other_designs_execute_what_failed_anyway(capsys):
    plain = {key: value for key, value in gated().items() if key != "search"}
    plain |= {"sampler": {"name": "lhs", "n": 2}}
    assert main(["generate", written(plain), "-o", "g", "--quiet"]) == 0
    assert main(["run", "g", "--executor", "inline", "--quiet"]) == 1
    mend()
    assert main(["resume", "g", "--executor", "inline", "--retry-failed"]) == 0
    assert "2 of 2 runs finished" in capsys.readouterr().out
    tuned(gated(1), "f")
    assert main(["resume", "f", "--failed"]) == 2
    assert "--retry-failed executes failed settings once more" in capsys.readouterr().err


def test_every_command_says_which_setting_tries_which_again(capsys):
    assert states_after(gated(3), 1, "--fail-fast") == ["failed"]
    mend()
    tuned(gated(3), "f", "--retry-failed")
    capsys.readouterr()
    assert main(["status", "f", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["settings"] == {"complete": 3, "retried": 1}
    assert (answer["retried"], answer["to_retry"]) == ({"0": 1}, 0)
    assert answer["counts"] == {"finished": 3, "failed": 1}
    # what has taken its place is what the search has found
    assert main(["analyse", "f", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["runs"], answer["missing"], answer["failed"]) == (3, 0, 0)
    assert main(["tune", "d.yml", "-o", "f", "--executor", "inline", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["retried"], answer["retries_left"]) == (0, 0)
    assert main(["report", "f", "--quiet"]) == 0
    assert "Tried again: setting 0 as 1." in Path("f/report/index.html").read_text(encoding="utf-8")
    records = [
        SettingRecord(0, "retried"),
        SettingRecord(1, "retried"),
        SettingRecord(2, "failed", retries=0),
    ]
    assert retries_text(records) == "tried again: setting 0 as 2, 1 (not yet)"
    assert retries_text(records[2:] and [SettingRecord(0, "failed")]) == ""


def trial(number, state, runs=0, first=None):
    """Return what is counted of a trial."""
    attributes = {
        "runs": [{"steps": 10} for _ in range(runs)],
        "setting": {"first": number if first is None else first},
    }
    finished = state != "RUNNING"
    kind = SimpleNamespace(name=state, is_finished=lambda: finished)
    return SimpleNamespace(number=number, state=kind, user_attrs=attributes)


def test_what_counts_for_the_budget():
    """Three seeds per setting: complete 3 runs, failed 1, a repeat 3, one in progress 3, of which it has executed 2."""
    trials = [
        trial(0, "COMPLETE", 3),
        trial(1, "FAIL", 1),
        trial(2, "COMPLETE", first=0),
        trial(3, "RUNNING", 2),
    ]

    def search(**limits):
        return SearchSpec("tpe", Budget(**limits), 3, "none", ("y",), 0)

    none, one = Trials(trials), Trials(trials, frozenset({1}))
    assert runs_left(search(runs=12), none) == 2
    assert runs_left(search(runs=12), one) == 3
    assert runs_left(search(runs=12), one, reserve=False) == 4
    assert spent(search(runs=12), none) == "12 runs"
    assert spent(search(runs=12), none, reserve=False) is None
    assert spent(search(runs=12), one) is None
    assert spent(search(runs=11), one, reserve=False) is None
    assert spent(search(runs=10), one, reserve=False) == "10 runs"
    assert spent(search(runs=None, steps=60), none) == "60 steps"
    assert spent(search(runs=None, steps=60), one) is None


@pytest.mark.parametrize("sampler", ["nsgaii"])
def test_it_belongs_to_the_generation_of_what_failed(sampler):
    assert states_after(gated(2, sampler=sampler), 1) == ["failed", "failed"]
    mend()
    tuned(gated(2, sampler=sampler), "f", "--retry-failed")
    trials = open_search(load("f/design.yml"), Path("f")).trials()
    generations = [value for one in trials for key, value in one.system_attrs.items() if "generation" in key]
    assert generations == [0, 0, 0, 0]


def test_a_kill_between_any_two_writes_loses_nothing_and_executes_nothing_twice():
    design = gated(4, seeds=2)
    # one run each; the fourth would need two, and one is left
    assert states_after(design, 1) == ["failed"] * 3
    journal = Path("f/search/journal.log")
    before = len(journal.read_text().splitlines())
    mend()
    assert states_after(design, 1, "--retry-failed") == ["retried"] * 3 + ["complete"] * 2
    known, recorded, lines = told(), outcomes(), journal.read_text().splitlines(keepends=True)
    marked = next(n for n, line in enumerate(lines) if '"retry"' in line)
    Path("f").rename("kept")
    for end in range(before, len(lines)):
        shutil.rmtree("f", ignore_errors=True)
        shutil.copytree("kept", "f")
        # as if the process had been killed here: runs leave their records and results earlier than the journal knows of them
        journal.write_text("".join(lines[:end]))
        option = ["--retry-failed"] if end <= marked else []
        assert main(["resume", "f", "--executor", "inline", "--quiet", *option]) == 1
        assert told() == known, end
        assert outcomes() == recorded, end
        assert [one["retries"] for one in settings()] == ["", "", "", "0", "1"], end


def test_kills_at_any_moment_change_nothing():
    design = gated(4, seeds=2)
    tuned(design, "f", code=1)
    shutil.copytree("f", "whole")
    mend()
    tuned(design, "whole", "--retry-failed", code=1)
    name = written(design)
    options = ("--executor", "inline", "--check", "none", "--quiet", "--retry-failed")
    size = Path("f/search/journal.log").stat().st_size
    for number in range(3):
        driver = start("tune", name, "-o", "f", *options)
        if not number:
            until(lambda: Path("f/search/journal.log").stat().st_size > size)
        time.sleep(0.15 * number)
        driver.kill()
        driver.communicate()
    driver = start("tune", name, "-o", "f", *options)
    _out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 1, err
    assert told() == told("whole")
    assert outcomes() == outcomes("whole")


def test_a_task_of_a_cluster_takes_what_is_to_be_tried_again():
    design = gated(3, seeds=1)
    submitted(design, tasks=2)
    assert execute_search_task(Path("f"), 1, 0, name="77_0").failed == 3
    mend()
    spec = load("f/design.yml")
    driver = Search(spec, GrowingFolder(spec, Path("f")), Settings(), Worker(None, own_store=True))
    assert driver.retry_failed() == 3 and driver.retry_failed() == 0
    assert driver.over() is None
    driver.close()
    assert states() == ["retried"] * 3
    outcome = execute_search_task(Path("f"), 1, 1, name="77_1")
    assert (outcome.finished, outcome.failed) == (3, 0)
    assert [(one["state"], one["retries"]) for one in settings()[3:]] == [
        ("complete", str(n)) for n in range(3)
    ]
    assert main(["collect", "f", "--remove", "--quiet"]) == 0
    assert len(outcomes()) == 3 and {run for run, _ in instances()} <= {f"valley-{n}-r0" for n in range(3)}


def test_resume_submits_tasks_for_what_is_to_be_tried_again(monkeypatch, capsys):
    from palaestrai_mosaik.arsenai.search import cluster

    submission = submitted(gated(3), tasks=1)
    execute_search_task(Path("f"), 1, 0, name="77_0")
    asked = []
    monkeypatch.setattr(cluster, "states_of", lambda folder: {})
    monkeypatch.setattr(cluster, "recover_submissions", lambda folder: None)
    monkeypatch.setattr(cluster, "submit_tasks", lambda path, plan, *rest: asked.append(plan) or submission)
    assert main(["resume", "f"]) == 0
    said = capsys.readouterr().out
    assert "the search is over: 3 runs" in said and "arsenai resume f --retry-failed" in said
    assert asked == []
    assert main(["resume", "f", "--retry-failed"]) == 0
    said = capsys.readouterr().out
    assert "tried again: 3 settings that failed" in said and "submission 1" in said
    assert len(asked) == 1 and states() == ["retried"] * 3

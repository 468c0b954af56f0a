"""Tasks of a cluster that work on a search, without a cluster: alone, together, told to end, killed, followed by others."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from arsenai.execution.folders import environment_now
from arsenai.search.searches import (
    generated,
    outcomes,
    search_design,
    settings,
    told,
    tuned,
    written,
)
from arsenai.search.test_killed import SLOW, running
from support.processes import Program
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.design.model import Budget, SearchSpec
from palaestrai_mosaik.arsenai.execution import JobRecord
from palaestrai_mosaik.arsenai.execution.cluster.scheduler import TaskState
from palaestrai_mosaik.arsenai.execution.cluster.slurm import Slurm
from palaestrai_mosaik.arsenai.execution.cluster.submission import Array, Submission, Submissions
from palaestrai_mosaik.arsenai.execution.cluster.submit import searched_modules
from palaestrai_mosaik.arsenai.execution.job import Marker, now
from palaestrai_mosaik.arsenai.execution.settings import SlurmSettings
from palaestrai_mosaik.arsenai.search.cluster import give_back, tasks_for
from palaestrai_mosaik.arsenai.search.task import execute_search_task
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.runner.worker_process import THREADS

pytest.importorskip("optuna")


def slow_search(runs=6, steps=12):
    search = {"budget": {"runs": runs}, "seeds_per_setting": 2}
    return search_design(muscle=SLOW, steps=steps, search=search, noise=0.2)


def submitted(design, tasks=1, folder="f", **fields):
    """Make the folder of a search, and a submission with so many tasks, as Slurm would have it as job 77."""
    assert main(["generate", written(design), "-o", folder, "--quiet"]) == 0
    submissions = Submissions(Path(folder))
    array = (Array("77", 0, tasks),)
    submission = Submission(
        submissions.next_number(),
        "slurm",
        "valley-test",
        now(),
        tasks,
        0,
        arrays=array,
        search=True,
        **fields,
    )
    submissions.begin(submission, [[] for _ in range(tasks)])
    return submission


def start(task=0, number=1, **environment):
    """Start the process of a task as Slurm's script does."""
    names = {"SLURM_ARRAY_JOB_ID": "77", "SLURM_ARRAY_TASK_ID": str(task)}
    return Program(
        [sys.executable, "-m", "palaestrai_mosaik.cli.node", "f", str(number), str(task)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment_now() | dict.fromkeys(THREADS, "1") | names | environment,
        process_group=0,
    )


def instances(folder="f"):
    """Return how many instances each run has in all stores of single runs, by how they ended."""
    found = Counter()
    for marker in Path(folder).glob("stores/*/instances/*/complete.json"):
        found[marker.parents[2].name, json.loads(marker.read_text())["status"]] += 1
    return found


def test_one_task_is_the_search_that_this_machine_would_make():
    design = search_design(search={"budget": {"runs": 12}, "seeds_per_setting": 2}, noise=0.2)
    tuned(design, "whole")
    submitted(design)
    outcome = execute_search_task(Path("f"), 1, 0, name="77_0")
    assert (outcome.finished, outcome.failed, outcome.exit_code) == (12, 0, 0)
    assert told() == told("whole")
    assert generated() == generated("whole")
    # nothing is in the common store before it is collected; then everything is
    assert not Path("f/results").exists()
    assert main(["collect", "f", "--remove", "--quiet"]) == 0
    assert outcomes() == outcomes("whole")
    assert list(Path("f/stores").glob("[!.]*")) == []
    assert main(["analyse", "f", "--quiet"]) == main(["analyse", "whole", "--quiet"]) == 0
    tables = sorted(path.name for path in Path("whole/analysis").glob("*.csv"))
    assert tables and all(
        Path("f/analysis", name).read_bytes() == Path("whole/analysis", name).read_bytes() for name in tables
    )


def test_what_was_stopped_early_is_collected_too():
    search = {"budget": {"runs": 20}, "prune": "median", "sampler": "random"}
    design = search_design(search=search, episodes=4, noise=0.2)
    tuned(design, "whole")
    states = [one["state"] for one in settings("whole")]
    assert states.count("pruned") > 3
    submitted(design)
    assert execute_search_task(Path("f"), 1, 0, name="77_0").finished == 20
    assert told() == told("whole")
    assert main(["collect", "f", "--remove", "--quiet"]) == 0
    assert list(Path("f/stores").glob("[!.]*")) == []
    assert outcomes() == outcomes("whole")


def test_a_run_that_is_killed_when_it_is_to_stop_early_stops_there_the_next_time():
    search = {"budget": {"runs": 12}, "prune": "median", "sampler": "random"}
    submitted(search_design(search=search, episodes=4, noise=0.2), tasks=2)
    execute_search_task(Path("f"), 1, 0, name="77_0")
    known = told()
    number = max(int(one["number"]) for one in settings() if one["state"] == "pruned")
    # as if its process, and the worker, had been killed right after the pruner's decision
    journal = Path("f/search/journal.log")
    lines = journal.read_text().splitlines(keepends=True)
    decided = [n for n, line in enumerate(lines) if '"stopped"' in line]
    journal.write_text("".join(lines[: decided[-1] + 1]))
    Path(f"f/jobs/valley-{number}-r0.json").unlink()
    shutil.rmtree(f"f/stores/valley-{number}-r0")
    outcome = execute_search_task(Path("f"), 1, 1, name="77_1")
    # what came after it in the journal had ended, and is not executed again
    assert (outcome.finished, outcome.exit_code) == (1, 0)
    assert told() == known
    assert JobRecord.read(Path(f"f/jobs/valley-{number}-r0.json")).status == "pruned"


def test_tasks_together_spend_no_more_than_the_budget():
    submitted(search_design(search={"budget": {"runs": 11}, "seeds_per_setting": 2}), tasks=3)
    tasks = [start(task) for task in range(3)]
    said = [task.communicate(timeout=HANG)[0] for task in tasks]
    assert [task.returncode for task in tasks] == [0, 0, 0], said
    assert [(one["state"], one["runs"]) for one in settings()] == [("complete", "2")] * 5
    # none was executed twice, and each task did something or came too late
    assert set(instances().values()) == {1} and len(instances()) == 10
    assert sum(line.count(": finished after") for line in said) == 10
    # what several have written is whole
    folder = DesignFolder.open("f")
    assert folder.verify() == []
    assert len(folder.runs) == 10
    assert list(Path("f/search/settings").iterdir()) == []


def test_a_worker_that_is_killed_is_followed_by_another_one():
    tuned(slow_search(), "whole", jobs=1)
    submitted(slow_search(), tasks=2)
    first = start(0)
    # in the middle of a setting: its first seed has ended, its second is executed
    until(lambda: next((one for one in running() if one.run == "valley-1-r1"), None))
    first.kill()
    first.communicate()
    # at once: the killed one's run may still be ending
    second = start(1)
    out, _ = second.communicate(timeout=HANG)
    assert second.returncode == 0, out
    assert told() == told("whole")
    assert generated() == generated("whole")
    assert "3 settings before" not in out and "run valley-1-r1: finished" in out
    # what had ended was not executed again
    assert "valley-0-r0" not in out and "valley-1-r0" not in out
    assert all(n == 1 for (_, status), n in instances().items() if status == "finished")
    assert main(["collect", "f", "--quiet"]) == 0
    assert outcomes() == outcomes("whole")


def executed_and_forgotten():
    """Execute a search; then let its journal be as if the worker had been killed before it noted the last run."""
    submitted(search_design(search={"budget": {"runs": 4}, "seeds_per_setting": 2}, noise=0.2), tasks=2)
    execute_search_task(Path("f"), 1, 0, name="77_0")
    journal = Path("f/search/journal.log")
    lines = journal.read_text().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if '"runs"' in line and "valley-1-r1" in line)
    journal.write_text("".join(lines[:last]))


def test_a_run_that_ended_before_its_worker_was_killed_is_taken_over():
    executed_and_forgotten()
    known, stores = told(), instances()
    # its store stays where it is until its setting is settled
    assert main(["collect", "f", "--remove", "--quiet"]) == 0
    assert {path.name for path in Path("f/stores").glob("[!.]*")} == {"valley-1-r0", "valley-1-r1"}
    outcome = execute_search_task(Path("f"), 1, 1, name="77_1")
    assert (outcome.finished, outcome.exit_code) == (0, 0)
    assert told() == known
    assert all(stores[key] == n for key, n in instances().items())


def test_what_is_in_the_common_store_alone_is_left_to_who_can_reach_it():
    executed_and_forgotten()
    known = told()
    assert main(["collect", "f", "--quiet"]) == 0
    # by hand: collect keeps the stores of a setting that is not settled, whatever the table says
    shutil.rmtree("f/stores")
    before = outcomes()
    assert execute_search_task(Path("f"), 1, 1, name="77_1").finished == 0
    assert told() != known
    assert main(["resume", "f", "--executor", "inline", "--quiet"]) == 0
    assert told() == known
    assert outcomes() == before


def test_a_task_of_which_the_time_limit_is_near_gives_its_setting_back():
    # (its process asks once a second whether it is to end)
    tuned(slow_search(4, steps=40), "whole", jobs=1)
    submitted(slow_search(4, steps=40), tasks=1)
    first = start(0)
    until(lambda: next((one for one in running() if one.run == "valley-1-r0"), None))
    first.send_signal(signal.SIGUSR1)
    out, _ = first.communicate(timeout=HANG)
    assert first.returncode == 130, out
    assert "run valley-1-r0: interrupted" in out and "the task is not requeued (0 of 0" in out
    assert list(Path("f/search/settings").iterdir()) == []
    assert [one["state"] for one in settings()] == ["complete", "running"]
    # here, in the run's own store, and collected at the end
    assert main(["resume", "f", "--executor", "inline", "--quiet"]) == 0
    assert told() == told("whole")
    assert outcomes() == outcomes("whole")


def test_a_task_executes_no_more_runs_than_it_is_given():
    submitted(slow_search(12), tasks=2, settings={"runs_per_task": 3})
    assert execute_search_task(Path("f"), 1, 0, name="77_0").finished == 4
    assert [one["state"] for one in settings()] == ["complete", "complete"]


def test_after_a_failure_nothing_more_begins_where_that_is_wanted():
    failing = {"name": "arsenai.execution.parts:Doing", "params": {"do": "raise"}}
    submitted(search_design(muscle=failing, steps=4, search={"budget": {"runs": 6}}), tasks=1, fail_fast=True)
    outcome = execute_search_task(Path("f"), 1, 0, name="77_0")
    assert (outcome.failed, outcome.exit_code) == (1, 1)


@pytest.fixture
def slurm(monkeypatch):
    """Let Slurm say the same of all tasks."""
    said = {"state": TaskState.RUNNING}

    def task_states(self, submission):
        return dict.fromkeys(range(submission.tasks), said["state"])

    monkeypatch.setattr(Slurm, "task_states", task_states)
    return said


def marker_of_another_host(name, task="77_0"):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    run = path.name.removesuffix(".running")
    hashes = {one.uid: one.hash for one in DesignFolder.open("f").documents}
    Marker(run, hashes.get(run, "x"), 1, "elsewhere", 1, 0.0, now(), "instance", task).write(path)
    return path


def test_status_knows_the_tasks_of_a_search(slurm, capsys):
    submitted(search_design(search={"budget": {"runs": 2}, "confirm": 2}), tasks=3)
    assert main(["status", "f"]) == 0
    assert "submission 1 (slurm, 77): tasks 3 running" in capsys.readouterr().out
    slurm["state"] = TaskState.FAILED
    assert main(["status", "f"]) == 0
    out = capsys.readouterr().out
    assert "3 tasks of the newest submission failed: what they printed is in f/submissions/0001" in out
    assert "the search is not over: arsenai resume f" in out
    # (what has ended is not asked again)
    Path("f/submissions/0001.ended.json").unlink()
    execute_search_task(Path("f"), 1, 0, name="77_0")
    slurm["state"] = TaskState.COMPLETED
    capsys.readouterr()
    assert main(["status", "f"]) == 0
    out = capsys.readouterr().out
    assert "the search is over: 2 runs" in out and "submission" not in out
    assert "the best settings with fresh seeds: not yet: arsenai resume f" in out
    assert "2 runs to be collected: arsenai collect f" in out
    # here, though it was submitted
    assert main(["resume", "f", "--executor", "inline", "--quiet"]) == 0
    assert main(["status", "f"]) == 0
    out = capsys.readouterr().out
    assert "fresh seeds" not in out and "collected" not in out


def test_what_a_dead_node_had_is_given_back_as_soon_as_slurm_says_so(slurm, capsys):
    submitted(search_design(search={"budget": {"runs": 4}}), tasks=1)
    execute_search_task(Path("f"), 1, 0, name="77_0")
    run = marker_of_another_host("f/jobs/valley-1-r0.running")
    Path("f/jobs/valley-1-r0.json").unlink()
    claim = marker_of_another_host("f/search/settings/setting-1.running")
    other = marker_of_another_host("f/search/settings/setting-2.running", task="78_0")
    assert main(["status", "f"]) == 0
    assert "running" in capsys.readouterr().out
    give_back(Path("f"), {1: {0: TaskState.RUNNING}})
    assert run.exists() and claim.exists()
    give_back(Path("f"), {1: {0: TaskState.NODE_FAILED}})
    assert not run.exists() and not claim.exists() and other.exists()
    record = JobRecord.read(Path("f/jobs/valley-1-r0.json"))
    assert (record.status, record.attempt, record.task) == ("interrupted", 1, "77_0")


@pytest.mark.parametrize(
    ("left", "settings", "tasks"),
    [
        # ten settings in turn each
        (100, {}, 10),
        (101, {}, 11),
        (100, {"cpus": 4}, 3),
        # as many at a time as are allowed, but none for which there is no setting
        (100, {"throttle": 30}, 30),
        (20, {"throttle": 30}, 20),
        (20, {"throttle": 30, "cpus": 4}, 5),
        # each setting takes two runs
        (100, {"runs_per_task": 20}, 10),
        (3, {"runs_per_task": 1}, 3),
        # by steps or hours
        (None, {}, 10),
        (None, {"throttle": 3}, 3),
        (0, {}, 0),
    ],
)
def test_how_many_tasks_work_on_a_search(left, settings, tasks):
    search = SearchSpec("tpe", Budget(runs=None), 2, "none", ("y",), 0)
    assert tasks_for(search, left, SlurmSettings(**settings)) == tasks


def test_the_modules_that_settings_may_name_are_those_of_all_levels():
    design = search_design(search={"budget": {"runs": 4}})
    muscle = "schedule.only.agents.nobody.muscle"
    names = ["idle", "arsenai.execution.parts:Doing", "ours.other:Muscle"]
    design["factors"]["who"] = {"path": muscle, "levels": names}
    assert searched_modules(load(written(design))) == ("arsenai.execution.parts", "ours.other")


def test_choices_of_runs_mean_nothing_for_a_search(capsys):
    submitted(search_design())
    for option in ("--failed", "--rows=0"):
        assert main(["submit", "f", option]) == 2
        assert f"{option[:6]}" in capsys.readouterr().err
    assert main(["generate", "d.yml", "-o", "f", "--force"]) == 2
    assert "--force replaces none" in capsys.readouterr().err
    assert os.path.exists("f/manifest.json")

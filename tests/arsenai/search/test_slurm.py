"""A search on a real Slurm: waited for, submitted, cancelled, killed; and what is left of it afterwards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from arsenai.execution.slurm_cluster import needs_slurm, output_of, slurm_jobs  # noqa: F401
from arsenai.search.searches import (
    GATED,
    generated,
    outcomes,
    search_design,
    settings,
    start,
    told,
    tuned,
    written,
)
from arsenai.search.test_killed import SLOW, running
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.execution.cluster.slurm import Slurm
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions
from palaestrai_mosaik.arsenai.execution.job import Marker
from palaestrai_mosaik.cli.arsenai import main

pytest.importorskip("optuna")
pytestmark = [needs_slurm, pytest.mark.usefixtures("slurm_jobs")]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


def slow_search(runs=6, steps=12, confirm=1, **slurm):
    search = {"budget": {"runs": runs}, "seeds_per_setting": 2, "confirm": confirm}
    keys = {"execution": {"slurm": slurm}} if slurm else {}
    return search_design(muscle=SLOW, steps=steps, search=search, noise=0.2, **keys)


def ended(folder="f"):
    """Return whether no task of a folder waits or runs any more."""
    states = [
        state
        for submission in Submissions(Path(folder)).all()
        for state in Slurm().task_states(submission).values()
    ]
    return all(state.ended for state in states)


def finished_twice(folder="f"):
    """Return the runs of which more than one instance has finished in all stores of single runs."""
    runs = [
        marker.parents[2].name
        for marker in Path(folder).glob("stores/*/instances/*/complete.json")
        if json.loads(marker.read_text())["status"] == "finished"
    ]
    return sorted({run for run in runs if runs.count(run) > 1})


def test_one_task_that_is_waited_for_is_the_search_that_this_machine_would_make():
    design = search_design(search={"budget": {"runs": 6}, "confirm": 2}, noise=0.2)
    tuned(design, "whole")
    assert main(["tune", written(design), "-o", "f", "--executor", "slurm", "--quiet"]) == 0
    assert [(one.tasks, one.search) for one in Submissions(Path("f")).all()] == [(1, True)]
    assert told() == told("whole"), output_of(Path("f"))
    assert generated() == generated("whole")
    assert outcomes() == outcomes("whole")
    assert outcomes("f/confirm") == outcomes("whole/confirm")
    # a larger budget goes on, and it is over here as well as there
    larger = search_design(search={"budget": {"runs": 8}, "confirm": 2}, noise=0.2)
    tuned(larger, "whole")
    assert main(["tune", written(larger), "-o", "f", "--executor", "slurm", "--quiet"]) == 0
    assert told() == told("whole")


def test_a_submitted_search_is_followed_by_what_resume_does_next(capsys):
    design = slow_search(throttle=2)
    assert main(["generate", written(design), "-o", "f", "--quiet"]) == 0
    assert main(["submit", "f", "--dry-run"]) == 0
    assert "queue      6 runs in 2 tasks; 1 job array, 2 tasks at a time" in capsys.readouterr().out
    assert main(["submit", "f", "--time", "10"]) == 0
    assert "submission 1: a search in 2 tasks, job" in capsys.readouterr().out
    # what is there is enough
    assert main(["submit", "f"]) == 0
    out = capsys.readouterr().out
    assert "2 tasks of earlier submissions wait or run" in out and "nothing to submit" in out
    until(ended)
    assert [one["state"] for one in settings()] == ["complete"] * 3, output_of(Path("f"))
    assert finished_twice() == []
    assert main(["status", "f"]) == 0
    assert "the best settings with fresh seeds: not yet: arsenai resume f" in capsys.readouterr().out
    assert main(["resume", "f"]) == 0
    out = capsys.readouterr().out
    assert "the search is over: 6 runs" in out and "submission 1: 3 runs in" in out
    until(lambda: ended("f/confirm"))
    assert main(["resume", "f"]) == 0
    out = capsys.readouterr().out
    assert "y, fresh seeds" in out and "winner     f/search/winner.yml" in out
    # with the same settings as were submitted
    assert Submissions(Path("f/confirm")).read(1).settings["time"] == "10"
    assert main(["status", "f"]) == 0
    assert "resume" not in capsys.readouterr().out


def test_settings_that_failed_are_submitted_again(tmp_path, capsys):
    """Each task has a setting that fails until its cause is mended; ``resume --retry-failed`` has them all executed."""
    gate = tmp_path / "mended"
    muscle = {**GATED, "params": {"do": "well", "gate": str(gate)}}
    search = {"sampler": "random", "budget": {"runs": 4}, "confirm": 0}
    design = search_design(muscle=muscle, steps=4, search=search, execution={"slurm": {"throttle": 2}})
    assert main(["generate", written(design), "-o", "f", "--quiet"]) == 0
    assert main(["submit", "f", "--quiet"]) == 0
    until(ended)
    assert [one["state"] for one in settings()] == ["failed"] * 4, output_of(Path("f"))
    # settings that fail are not submitted again by themselves
    capsys.readouterr()
    assert main(["resume", "f"]) == 0
    assert (
        "4 settings failed; once the cause is fixed: arsenai resume f --retry-failed"
        in capsys.readouterr().out
    )
    assert len(Submissions(Path("f")).all()) == 1
    gate.touch()
    assert main(["resume", "f", "--retry-failed"]) == 0
    assert "tried again: 4 settings that failed" in capsys.readouterr().out
    until(ended)
    assert main(["resume", "f"]) == 0
    assert "the search is over: 4 runs" in capsys.readouterr().out
    found = settings()
    assert [one["state"] for one in found] == ["retried"] * 4 + ["complete"] * 4, output_of(Path("f"))
    assert sorted(one["retries"] for one in found[4:]) == ["0", "1", "2", "3"]
    assert finished_twice() == []


def test_ctrl_c_and_cancel_give_settings_back():
    tuned(slow_search(), "whole", jobs=1)
    name = written(slow_search(steps=12))
    driver = start("tune", name, "-o", "f", "--executor", "slurm")
    until(lambda: next((one for one in running() if one.run == "valley-0-r1"), None))
    os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 130, out + err
    assert "to go on: arsenai resume f" in out and ended()
    assert list(Path("f/search/settings").iterdir()) == []
    # a task that is cancelled does the same
    assert main(["resume", "f", "--quiet"]) == 0
    until(lambda: next((one for one in running() if one.run.startswith("valley-1")), None))
    assert main(["cancel", "f", "--quiet"]) == 0
    until(ended)
    assert list(Path("f/search/settings").iterdir()) == []
    assert main(["resume", "f", "--executor", "slurm", "--quiet"]) == 0
    assert told() == told("whole"), output_of(Path("f"))
    assert outcomes() == outcomes("whole")


def test_kill_of_the_driver_of_a_worker_and_of_a_run_loses_nothing():
    tuned(slow_search(8), "whole", jobs=1)
    driver = start("tune", written(slow_search(8)), "-o", "f", "--executor", "slurm", "--quiet")
    until(lambda: next((one for one in running() if one.run == "valley-0-r0"), None))
    # the driver: its task goes on
    driver.kill()
    driver.communicate()
    # a run: it begins once more
    marker = until(lambda: next((one for one in running() if one.run == "valley-0-r1"), None))
    os.kill(marker.pid, signal.SIGKILL)
    # the worker, with what it is at
    until(lambda: next((one for one in running() if one.run == "valley-2-r0"), None))
    claim = until(lambda: Marker.read(Path("f/search/settings/setting-2.running")))
    os.kill(claim.pid, signal.SIGKILL)
    until(ended)
    again = start("tune", "d.yml", "-o", "f", "--executor", "slurm", "--quiet")
    out, err = again.communicate(timeout=HANG)
    assert again.returncode == 0, out + err + output_of(Path("f"))
    assert len(Submissions(Path("f")).numbers()) == 2
    assert told() == told("whole")
    assert outcomes() == outcomes("whole")
    assert finished_twice() == []


def test_a_task_that_is_queued_again_goes_on_with_its_setting():
    tuned(slow_search(4, steps=40, confirm=0), "whole", jobs=1)
    design = slow_search(4, steps=40, confirm=0, requeue=1, time="10")
    assert main(["generate", written(design), "-o", "f", "--quiet"]) == 0
    assert main(["submit", "f", "--quiet"]) == 0
    until(lambda: next((one for one in running() if one.run == "valley-1-r0"), None))
    job = f"{Submissions(Path('f')).read(1).arrays[0].job}_0"
    # as Slurm itself says it before the time limit: to the script alone
    subprocess.run(["scancel", "--batch", "--signal=USR1", job], check=True)
    until(lambda: "the task is requeued (1 of 1)" in output_of(Path("f")))
    until(ended)
    assert told() == told("whole"), output_of(Path("f"))
    assert finished_twice() == []


def test_what_a_node_had_that_is_requeued_by_slurm_goes_on():
    tuned(slow_search(4, confirm=0), "whole", jobs=1)
    design = slow_search(4, confirm=0, requeue=1)
    assert main(["generate", written(design), "-o", "f", "--quiet"]) == 0
    assert main(["submit", "f", "--quiet"]) == 0
    until(lambda: next((one for one in running() if one.run == "valley-0-r1"), None))
    job = f"{Submissions(Path('f')).read(1).arrays[0].job}_0"
    # as where a node fails: the task is killed, and queued again
    subprocess.run(["scontrol", "requeue", job], check=True)
    until(lambda: len(settings()) == 2 and ended())
    assert told() == told("whole"), output_of(Path("f"))
    assert finished_twice() == []

"""A search whose processes are killed: it goes on with nothing lost, and nothing executed twice."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from arsenai.search.searches import (
    generated,
    outcomes,
    search_design,
    settings,
    start,
    told,
    tuned,
    written,
)
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.design.settings import STOPPED
from palaestrai_mosaik.arsenai.execution.job import Marker
from palaestrai_mosaik.arsenai.search.search import open_search

pytest.importorskip("optuna")

#: twenty steps of 30 ms
SLOW = {"name": "arsenai.execution.parts:Doing", "params": {"do": "slow"}}


def slow_search(**keys):
    return search_design(
        muscle=SLOW,
        steps=12,
        search={"budget": {"runs": 6}, "seeds_per_setting": 2, "confirm": 1},
        noise=0.2,
        **keys,
    )


def running():
    """Return the markers of the runs that are executed now."""
    found = [Marker.read(path) for path in Path("f/jobs").glob("*.running")]
    return [marker for marker in found if marker is not None and marker.instance is not None]


def finished():
    """Return how many runs have ended."""
    return len(list(Path("f/jobs").glob("*.json")))


def test_a_killed_driver_leaves_what_resume_goes_on_from():
    tuned(slow_search(), "whole", jobs=1)
    name = written(slow_search())
    driver = start("tune", name, "-o", "f", "-j", "1", "--quiet")
    # in the middle of a setting: its first seed has ended, its second is executed
    marker = until(lambda: next((one for one in running() if one.run.endswith("-r1")), None))
    driver.kill()
    driver.communicate()
    before = finished()
    assert 0 < before < 6
    again = start("resume", "f", "-j", "1", "--quiet")
    _out, err = again.communicate(timeout=HANG)
    assert again.returncode == 0, err
    # the same search as if nobody had killed it
    assert told() == told("whole")
    assert generated() == generated("whole")
    assert outcomes() == outcomes("whole")
    taken = open_search(load("f/design.yml"), Path("f")).trials()
    assert [bool(trial.user_attrs.get("taken_over")) for trial in taken].count(True) == 1
    assert marker.run in outcomes()


def test_a_worker_that_is_killed_is_begun_again():
    tuned(slow_search(), "whole", jobs=1)
    driver = start("tune", written(slow_search()), "-o", "f", "-j", "1", "--quiet")
    marker = until(lambda: next((one for one in running() if one.run == "valley-1-r0"), None))
    os.kill(marker.pid, signal.SIGKILL)
    _out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 0, err
    assert told() == told("whole")
    assert outcomes() == outcomes("whole")


def test_kills_at_any_moment_change_nothing():
    """The driver is killed again and again, whatever it is at."""
    design = search_design(search={"budget": {"runs": 10}, "seeds_per_setting": 2}, noise=0.2)
    tuned(design, "whole")
    name = written(design)
    for number in range(8):
        driver = start("tune", name, "-o", "f", "--executor", "inline", "--check", "none", "--quiet")
        until(Path("f/search/journal.log").exists)
        time.sleep(0.11 * number)
        driver.kill()
        driver.communicate()
    driver = start("tune", name, "-o", "f", "--executor", "inline", "--quiet")
    _out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 0, err
    assert told() == told("whole")
    assert outcomes() == outcomes("whole")


def test_ctrl_c_stops_between_two_steps_and_resume_goes_on():
    tuned(slow_search(), "whole", jobs=1)
    driver = start("tune", written(slow_search()), "-o", "f", "-j", "1")
    until(lambda: finished() >= 1 and running())
    os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 130, err
    assert "to go on: arsenai resume f" in out
    assert [one["state"] for one in settings()].count("running") == 1
    again = start("resume", "f", "-j", "1", "--quiet")
    out, err = again.communicate(timeout=HANG)
    assert again.returncode == 0, err
    assert told() == told("whole")
    assert outcomes() == outcomes("whole")


def test_a_torn_line_at_the_journals_end_is_cut_off():
    design = search_design(search={"budget": {"runs": 4}})
    tuned(design)
    journal = Path("f/search/journal.log")
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code":4,"work')
    larger = search_design(search={"budget": {"runs": 6}})
    assert len(tuned(larger)) == 6
    assert journal.read_bytes().startswith(whole)
    assert STOPPED not in str(journal.read_bytes())

"""A search whose runs are executed by pilot jobs of a real Parsl: the process that was called proposes them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from arsenai.execution.test_parsl import worker_of
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
from arsenai.search.test_killed import SLOW, running
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.execution import JobRecord
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions

pytest.importorskip("optuna")
pytest.importorskip("parsl")


def on_pilots(workers=1, **keys):
    return search_design(execution={"executor": "parsl", "parsl": {"workers": workers}}, **keys)


def test_one_worker_makes_the_search_that_this_machine_would_make():
    search = {"budget": {"runs": 10}, "prune": "median", "sampler": "random"}
    design = on_pilots(search=search, episodes=4, noise=0.2)
    tuned(design, "whole")
    assert "pruned" in [one["state"] for one in settings("whole")]
    tuned(design, "f", "--executor", "parsl", jobs=1)
    assert told() == told("whole")
    assert generated() == generated("whole")
    # collected, what was pruned as well
    assert outcomes() == outcomes("whole")
    (submission,) = Submissions(Path("f")).all()
    assert (submission.executor, submission.tasks, submission.runs) == ("parsl", 10, 10)


def test_a_worker_dies_ctrl_c_comes_and_resume_goes_on():
    search = {"budget": {"runs": 12}, "seeds_per_setting": 2, "confirm": 1}
    name = written(on_pilots(2, muscle=SLOW, steps=12, search=search, noise=0.2))
    driver = start("tune", name, "-o", "f")
    marker = until(lambda: next((one for one in running() if one.run == "valley-0-r0"), None))
    worker_of(marker).kill()
    table = Path("f/search/settings.csv")
    until(lambda: table.exists() and "complete" in [row["state"] for row in settings()[:1]] and running())
    os.killpg(driver.pid, signal.SIGINT)
    out, err = driver.communicate(timeout=HANG)
    assert driver.returncode == 130, out + err
    # what had ended until then is in the common store
    assert "collected: " in out and outcomes()
    assert list(Path("f/search/settings").iterdir()) == []
    again = start("resume", "f", "--quiet")
    out, err = again.communicate(timeout=HANG)
    assert again.returncode == 0, out + err
    assert [(one["state"], one["runs"]) for one in settings()] == [("complete", "2")] * 6
    assert len(outcomes()) == 12 and all(len(of_run) == 1 for of_run in outcomes().values())
    assert JobRecord.read(Path("f/jobs/valley-0-r0.json")).attempt == 2
    assert len(outcomes("f/confirm")) == 3

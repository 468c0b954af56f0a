"""What settings in progress may not need of the budget: it is used once they have ended, and never exceeded."""

from __future__ import annotations

from collections import deque
from pathlib import Path

import pytest
from arsenai.search.searches import GATED, search_design, settings, written
from arsenai.search.test_tasks import start, submitted
from support.waiting import HANG

from palaestrai_mosaik.arsenai.design.growing import GrowingFolder
from palaestrai_mosaik.arsenai.design.load import load
from palaestrai_mosaik.arsenai.execution import Settings, early_stopping
from palaestrai_mosaik.arsenai.execution.executor import Executor
from palaestrai_mosaik.arsenai.execution.task import execute_job
from palaestrai_mosaik.arsenai.search.search import Search, executed
from palaestrai_mosaik.arsenai.search.stores import Worker
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.runner import Interrupt, Progress
from palaestrai_mosaik.store.store import StoreLocation

pytest.importorskip("optuna")


def execute(job):
    """Execute a job in this process, and return its record."""
    done = execute_job(job, Interrupt(), Progress())
    assert done is not None
    done[0].write(job.record)
    job.marker.unlink(missing_ok=True)
    return done[0]


class Several(Executor):
    """Has so many runs at a time, which end in the order in which they were begun."""

    def __init__(self, processes):
        super().__init__()
        self._processes = processes

    @property
    def processes(self):
        return self._processes

    def run(self, jobs):
        source, running = iter(jobs), deque()
        while True:
            while len(running) < self._processes and (job := next(source, None)):
                running.append(job)
            if not running:
                return
            yield execute(running.popleft())


def searched(budget, processes, pruned, monkeypatch):
    """Search with three seeds per setting, where these settings are stopped at their first report."""
    monkeypatch.setattr(early_stopping, "asks_to_stop", lambda journal, number, prune: number in pruned)
    search = {"sampler": "random", "budget": {"runs": budget}, "seeds_per_setting": 3, "prune": "median"}
    name = written(search_design(search=search, episodes=2))
    assert main(["generate", name, "-o", "f", "--quiet"]) == 0
    spec, path = load("f/design.yml"), Path("f").resolve()
    found = Search(spec, GrowingFolder(spec, path), Settings(), Worker(StoreLocation(str(path / "results"))))
    for record in executed(found, Several(processes)):
        found.ended(record)
    found.close()
    told = [(one["state"], int(one["runs"])) for one in settings()]
    assert sum(runs for _, runs in told) <= budget
    return told, found.ended_by


WHOLE, STOPPED = ("complete", 3), ("pruned", 1)


@pytest.mark.parametrize(
    ("budget", "processes", "pruned", "told"),
    [
        # 0 and 1 take 6 runs, 2 and 3 reserve the other 6; each uses 1 of its 3, and 4 of 12 are left: room for one more
        (12, 2, {2, 3}, [WHOLE, WHOLE, STOPPED, STOPPED, WHOLE]),
        # 2 of 12 are left, which is not enough
        (12, 2, {3}, [WHOLE, WHOLE, WHOLE, STOPPED]),
        # what a setting leaves that began with what another one has left is used, too: 6 and 4 times 1, 2 are left
        (12, 2, {2, 3, 4, 5, 6}, [WHOLE, WHOLE, *[STOPPED] * 4]),
        # all three that are left at a time are stopped: 9 - 3 = 6, which is enough for two
        (9, 3, {0, 1, 2}, [STOPPED, STOPPED, STOPPED, WHOLE, WHOLE]),
        # one at a time
        (12, 1, {2, 3}, [WHOLE, WHOLE, STOPPED, STOPPED, WHOLE]),
    ],
)
def test_what_pruning_frees_at_the_end_is_used(budget, processes, pruned, told, monkeypatch):
    assert searched(budget, processes, pruned, monkeypatch) == (told, f"{budget} runs")


def test_what_a_setting_leaves_is_used_by_the_task_that_had_it():
    """Seven runs, three per setting: two settings reserve six; the one that fails at once leaves room for a third."""
    search = {"sampler": "random", "budget": {"runs": 7}, "seeds_per_setting": 3}
    submitted(search_design(muscle=GATED, steps=4, search=search), tasks=2)
    spec, path = load("f/design.yml"), Path("f").resolve()
    mine = Search(spec, GrowingFolder(spec, path), Settings(), Worker(None, own_store=True, task="77_1"))
    failing = next(mine)
    # another task has the second setting, and finds nothing more to begin then
    Path("mended").touch()
    other = start(0)
    out, _ = other.communicate(timeout=HANG)
    assert other.returncode == 0, out
    assert out.count(": finished after") == 3
    assert "nothing more to begin: other tasks may need what is left of the budget" in out
    # neither is there for this one
    assert list(mine) == []
    assert mine.ended_by is None and mine.reserved
    Path("mended").unlink()
    assert mine.ended(execute(failing)).state == "failed"
    Path("mended").touch()
    for record in executed(mine, Several(1)):
        mine.ended(record)
    mine.close()
    assert [(one["state"], one["runs"]) for one in settings()] == [
        ("failed", "1"),
        ("complete", "3"),
        ("complete", "3"),
    ]
    assert mine.ended_by == "7 runs"

"""Pilots of Parsl are killed, each with all that it executes, again and again."""

from __future__ import annotations

import os
import signal
import threading

import psutil
import pytest
from arsenai.execution.folders import markers, statuses
from faults.batch import execute, gone, make_batch, recorded, results
from support.waiting import HANG, until

from palaestrai_mosaik.arsenai.execution import job_records
from palaestrai_mosaik.arsenai.execution.settings import ParslSettings

pytest.importorskip("parsl")


class PilotKiller(threading.Thread):
    """Kills the pilot of the run that is at work, with all of its processes, once for each of the first runs."""

    def __init__(self, folder, times):
        super().__init__(daemon=True)
        self._folder, self._times = folder, times
        #: the processes that were killed
        self.killed = []
        #: how often
        self.times = 0

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.join(timeout=HANG)

    def run(self):
        hit = set()
        while self.times < self._times:
            name, marker = until(
                lambda: next((one for one in markers(self._folder.path).items() if one[0] not in hit), None)
            )
            try:
                # the run's process was forked by the server of a worker of the pilot
                pilot = psutil.Process(marker.pid).parent().parent().parent()
                family = [pilot, *pilot.children(recursive=True)]
                os.killpg(os.getpgid(pilot.pid), signal.SIGKILL)
            except (psutil.NoSuchProcess, AttributeError):
                continue
            hit.add(name)
            self.killed += family
            self.times += 1


def test_killed_pilots_cost_nothing(tmp_path, undisturbed):
    """Other pilots follow, and execute what they were at: each run has finished once, and nothing is left of them."""
    folder = make_batch(tmp_path / "f", 4, seconds=0.05)
    parsl = ParslSettings(workers=1, retries=2)
    with PilotKiller(folder, 3) as killer:
        summary = execute(folder, executor="parsl", parsl=parsl, checkpoint_every=0.05)
    assert killer.times == 3
    assert summary.whole, [record.error for record in summary.failures]
    assert sum(record.attempt for record in job_records(folder).values()) == 4 + 3
    assert set(statuses(folder.path)) == {"finished"}
    until(lambda: gone(killer.killed))
    with results(folder) as store:
        table = store.runs()
    assert sorted(table["document"][table["status"] == "finished"]) == sorted(
        run.uid for run in folder.documents
    )
    assert recorded(folder) == recorded(undisturbed(4))

"""Worker processes of runs are killed: before there is a checkpoint, and two of them between two checkpoints."""

from __future__ import annotations

import threading

import psutil
import pytest
from arsenai.execution.folders import markers
from faults.batch import execute, gone, make_batch, recorded, results
from support.waiting import until

from palaestrai_mosaik.arsenai.execution import job_records
from palaestrai_mosaik.runner.checkpoint import has_checkpoints

WORKERS = 3


class WorkerKiller(threading.Thread):
    """Kills ``number`` workers of each run of the folder at once, its first attempt's, as soon as it is to."""

    def __init__(self, folder, number, *, checkpoint):
        super().__init__(daemon=True)
        self._folder, self._number, self._checkpoint = folder, number, checkpoint
        self._end = threading.Event()
        #: processes of the runs whose workers were killed, and all of their workers
        self.runs, self.workers = [], []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self.join()

    def run(self):
        seen = set()
        while not self._end.wait(0.002):
            for name, marker in markers(self._folder.path).items():
                directory = self._folder.path / "results" / "instances" / marker.instance
                if name in seen or (self._checkpoint and not has_checkpoints(directory)):
                    continue
                try:
                    process = psutil.Process(marker.pid)
                    workers = process.children()
                    if len(workers) < WORKERS:
                        continue
                    assert self._checkpoint or not has_checkpoints(directory)
                    for worker in workers[: self._number]:
                        worker.kill()
                except psutil.NoSuchProcess:
                    continue
                seen.add(name)
                self.runs.append(process)
                self.workers += workers


@pytest.mark.parametrize(
    ("number", "checkpoint", "rows"),
    [
        pytest.param(1, False, 2, id="before-the-first-checkpoint"),
        pytest.param(2, True, 2, id="two-between-checkpoints"),
        pytest.param(1, False, 4, id="before-the-first-checkpoint-many"),
        pytest.param(2, True, 4, id="two-between-checkpoints-many"),
    ],
)
def test_killed_workers_cost_what_came_after_the_last_checkpoint(
    tmp_path, undisturbed, number, checkpoint, rows
):
    every = 1e-6 if checkpoint else 3600.0
    folder = make_batch(tmp_path / "f", rows, seconds=0.05, workers=WORKERS)
    with WorkerKiller(folder, number, checkpoint=checkpoint) as killer:
        summary = execute(folder, jobs=2, checkpoint_every=every)
    assert len(killer.runs) == rows
    assert len(summary.failures) == rows
    for record in job_records(folder).values():
        assert "was ended by signal 9 (SIGKILL)" in record.error
    until(lambda: gone([*killer.runs, *killer.workers]))

    assert execute(folder, jobs=2, checkpoint_every=every).whole
    assert recorded(folder) == recorded(undisturbed(rows, WORKERS))
    with results(folder) as store:
        table = store.runs()
        resumed = [
            run for run in table["run"] if "resumed from checkpoint" in " ".join(store.warnings(run)["text"])
        ]
    # with a checkpoint, the instance that was hit goes on; without one, another begins
    assert (len(table), len(resumed)) == ((rows, rows) if checkpoint else (2 * rows, 0))
    assert sorted(table["document"][table["status"] == "finished"]) == sorted(
        run.uid for run in folder.documents
    )

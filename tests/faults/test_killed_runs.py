"""Processes of runs that are killed at any moment; what is left, and what ``resume`` makes of it."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from arsenai.execution.folders import statuses
from faults.batch import Killer, analysed, execute, make_batch, recorded, results

from palaestrai_mosaik.arsenai.execution import RunStatus, job_records
from palaestrai_mosaik.store.verify import verify


@pytest.mark.parametrize(
    ("rows", "checkpoint_every"),
    [
        (3, 0.01),
        (8, 0.01),
        (8, 0.0),
    ],
)
def test_runs_killed_at_random_moments_end_as_if_they_had_not_been(
    tmp_path, undisturbed, rows, checkpoint_every
):
    reference = undisturbed(rows)
    seconds = statistics.median(record.seconds for record in job_records(reference).values())
    folder = make_batch(tmp_path / "killed", rows)
    # from before its marker is there to after its record is
    delays = np.random.default_rng(rows).uniform(0.0, 1.5 * seconds, size=rows)
    with Killer(delays) as killer:
        summary = execute(folder, jobs=2, checkpoint_every=checkpoint_every)
    assert killer.killed > 0
    assert sum(summary.ended.values()) == rows

    records = job_records(folder)
    for run, status in zip(folder.documents, statuses(folder.path), strict=True):
        assert status in ("finished", "failed")
        if status == "failed":
            assert "its process died (killed by signal 9, SIGKILL)" in records[run.uid].error
    with results(folder) as store:
        for instance, status in store.runs()[["run", "status"]].to_numpy().tolist():
            assert status in ("finished", "lost")
            # whatever was written until then can be read
            assert verify(store, instance).damage == ()
            store.steps(instance)

    again = execute(folder, jobs=2, checkpoint_every=checkpoint_every)
    assert again.whole
    assert again.before.get(RunStatus.FINISHED, 0) + again.ended[RunStatus.FINISHED] == rows
    assert recorded(folder) == recorded(reference)
    assert analysed(folder) == analysed(reference)

"""Stores that go away while a run writes to them, and come back."""

from __future__ import annotations

import pytest
from execution.folders import statuses
from faults.batch import execute, make_batch, recorded, results
from faults.parts import away

from palaestrai_mosaik.execution import job_records
from palaestrai_mosaik.store.verify import verify


@pytest.mark.parametrize(
    "at", ["train 12", *(pytest.param(at, marks=pytest.mark.slow) for at in ("train 3", "test 9"))]
)
def test_a_folder_of_results_that_goes_away_and_comes_back(tmp_path, undisturbed, order, at):
    """Nothing must come up in its place: else it could not come back, and parts of the run would lie here and there."""
    folder = make_batch(tmp_path / "f", seconds=0.0)
    where = folder.path / "results"
    order(at, "rename", where)
    summary = execute(folder, jobs=1, checkpoint_every=1e-6)
    assert not summary.whole
    assert not where.exists()
    assert {record.status for record in job_records(folder).values()} == {"failed"}
    assert "finished" not in statuses(folder.path)
    away(where).rename(where)
    with results(folder) as store:
        for instance in store.runs()["run"]:
            assert verify(store, instance).damage == ()
    assert execute(folder, jobs=1).whole
    assert recorded(folder) == recorded(undisturbed())


def test_a_database_that_is_deleted_takes_its_runs_with_it(tmp_path, undisturbed, order):
    """No run is believed to have finished whose results are gone, and what is left of them is in nobody's way."""
    folder = make_batch(tmp_path / "f", seconds=0.0)
    assert execute(folder, executor="inline", rows=[0]).whole
    order("train 12", "delete", folder.path / "results" / "store.db")
    execute(folder, jobs=1)
    assert "finished" not in statuses(folder.path)
    assert execute(folder, jobs=1).whole
    assert recorded(folder) == recorded(undisturbed())

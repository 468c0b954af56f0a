"""Stores that go away while a run writes to them, and come back."""

from __future__ import annotations

import re
import threading
import time

import numpy as np
import pytest
from arsenai.execution.folders import markers, statuses
from faults.batch import execute, make_batch, recorded, results
from faults.parts import away
from support import postgresql

from palaestrai_mosaik.arsenai.execution import job_records
from palaestrai_mosaik.store.verify import verify


@pytest.mark.parametrize("at", ["train 12", "train 3", "test 9"])
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


#: SQLite keeps no sign of a zero
ZERO = re.compile(r"-0\.0(?=[,\n])")


class Outages(threading.Thread):
    """Ends a server's connections, stops or kills the server, and starts it again, up to four times while runs go on."""

    def __init__(self, server, folder, seconds):
        super().__init__(daemon=True)
        self._server, self._folder, self._seconds = server, folder, seconds
        self._end = threading.Event()
        #: how the server went away, and for how long
        self.done = []

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self.join()

    def run(self):
        rng = np.random.default_rng(1)
        # the runs take some three seconds of their own: at least two outages fall into them
        while len(self.done) < 4 and not self._end.wait(rng.uniform(0.2, 1.0)):
            if not markers(self._folder):
                continue
            how = ("kill", "stop")[len(self.done) % 2]
            self._server(how)
            time.sleep(self._seconds)
            self._server("start")
            self.done.append(how)


@postgresql.needs_server
@pytest.mark.parametrize(("rows", "seconds"), [(4, 1.0), (6, 4.0)])
def test_a_database_that_is_killed_and_comes_back_costs_nothing(tmp_path, undisturbed, rows, seconds):
    """Again and again, while runs begin, go on and end: none fails, and none is executed twice."""
    folder = make_batch(tmp_path / "f", rows, seconds=0.05)
    with postgresql.own_server() as server:
        with Outages(server, folder.path, seconds) as outages:
            summary = execute(folder, store=server.url, jobs=2, checkpoint_every=0.05)
        assert len(outages.done) >= 2
        assert summary.whole, [record.error for record in summary.failures]
        with results(folder, server.url) as store:
            assert sorted(store.runs()["document"]) == sorted(run.uid for run in folder.documents)
        found, expected = (
            {
                run: [digests, *(ZERO.sub("0.0", table) for table in tables)]
                for run, (digests, *tables) in some.items()
            }
            for some in (recorded(folder, server.url), recorded(undisturbed(rows)))
        )
        assert found == expected

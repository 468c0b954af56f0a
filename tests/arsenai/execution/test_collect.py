"""What runs recorded in stores of their own is collected into one store: once, whole, while others go on."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import sys
from collections import Counter
from contextlib import closing
from types import SimpleNamespace

import pytest
import sqlalchemy as sa
from arsenai.execution.folders import make_folder
from support.waiting import meanwhile

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution import (
    InlineExecutor,
    Settings,
    StoreLocation,
    load_run_states,
    run_folder,
)
from palaestrai_mosaik.arsenai.execution.cluster import collect
from palaestrai_mosaik.arsenai.execution.cluster.collect import collect_folder
from palaestrai_mosaik.arsenai.execution.cluster.submission import run_store_location
from palaestrai_mosaik.arsenai.execution.job import Job, JobRecord, Marker
from palaestrai_mosaik.arsenai.execution.run_store import earlier_attempts, is_whole, open_run_store
from palaestrai_mosaik.arsenai.execution.status import job_path
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.core.errors import ExecutionError, StoreError
from palaestrai_mosaik.store import ChannelRecord, EnvironmentRecord, Store, recorder
from palaestrai_mosaik.store import verify as verifying
from palaestrai_mosaik.store.merge import has_finished
from palaestrai_mosaik.store.verify import mark_failed, verify
from tests.support import postgresql
from tests.support.records import one_body

NAN = float("nan")  # (there are no episodes with outcomes)
TIME = "2026-01-01T00:00:00.000+00:00"


class Run:
    """A run with a store of its own in ``root``; its instance has one phase, recorded step by step."""

    def __init__(self, root, slug, attempt=1):
        self.root, self.slug, self.attempt = root, slug, attempt
        self.path = root / "stores" / slug
        for name in ("jobs", "stores"):
            (root / name).mkdir(exist_ok=True)
        self.store = open_run_store(run_store_location(root, slug))
        self.instance = None

    def begin(self):
        self.instance = self.store.begin_run(
            uid=self.slug,
            document={"uid": self.slug},
            text="",
            hash=f"hash of {self.slug}",
            seed=1,
            version="3.5",
        )
        self.phase = self.instance.begin_phase(0, "only", **self._phase())
        return self

    def _phase(self):
        space = ChannelRecord("e.0", "", 1)
        members = {
            "environments": [EnvironmentRecord("e", "E", sensors=[space])],
            "agents": [one_body("a", sensors=[space], actuators=[space], rewards=[])],
        }
        return members | {"mode": "train", "workers": 1, "episodes": 2, "controller": "Vanilla"}

    def step(self, number):
        self.phase.agent("a").append(0, 0, number, number, [number], [0.0], [], NAN, False, False, 0.0)
        return self

    def resume(self, mark):
        told = self._phase()
        self.instance = self.store.resume_run(mark["instance"], mark)
        self.phase = self.instance.reopen_phase(0, told["environments"], told["agents"])
        self.attempt += 1
        return self

    def end(self, status):
        self.instance.finish(status, ValueError("it failed") if status == "failed" else None)
        return self.record(status)

    def record(self, status):
        uid = None if self.instance is None else self.instance.uid
        self.store.close()
        JobRecord(
            self.slug, self._hash, status, uid, "", TIME, TIME, 1.0, 0, None, "a host", 1, self.attempt
        ).write(self.root / "jobs" / f"{self.slug}.json")
        return self

    def marker(self):
        found = Marker(self.slug, self._hash, self.attempt, "another host", 1, 1.0, TIME)
        found.write(self.root / "jobs" / f"{self.slug}.running")
        return self

    @property
    def _hash(self):
        return f"hash of {self.slug}"


@pytest.fixture
def root(tmp_path):
    (tmp_path / "folder").mkdir()
    return tmp_path / "folder"


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=postgresql.needs_server)])
def location(request, root):
    """Where results are collected: what holds for one database must hold for the other."""
    if request.param == "sqlite":
        yield StoreLocation.of(root / "results")
    else:
        with postgresql.fresh_database() as url:
            yield StoreLocation.of(root / "results", url)


def collected(root, location=None, **options):
    return collect_folder(SimpleNamespace(path=root, spec=SimpleNamespace(search=None)), location, **options)


def contents(location):
    """Return what is in a store: status, steps and errors of each instance, by uid."""
    with location.open() as store:
        runs = store.runs()
        found = {}
        for uid, status in zip(runs["run"], runs["status"], strict=True):
            steps = store.steps(uid, agent="a")["step"].tolist()
            assert (store.instance_directory(uid) / "complete.json").exists() == (status != "lost")
            found[uid] = (
                status,
                steps,
                len(store.errors(uid)),
                store.streams(uid)["digest"].dropna().tolist(),
            )
        return found


def test_what_has_ended_is_collected(root, location):
    whole = Run(root, "whole").begin().step(0).step(1).end("finished")
    failed = Run(root, "failed").begin().step(0).end("failed")
    stopped = Run(root, "stopped").begin().step(0).end("interrupted")
    (stopped.path / "instances" / stopped.instance.uid / "checkpoints" / "0").mkdir(parents=True)
    # its process was killed, and who waited for it wrote the record: a second attempt finished
    killed = Run(root, "killed").begin().step(0)
    killed.store.close()
    again = Run(root, "killed", attempt=2).begin().step(0).end("finished")
    again.marker()  # killed after the record, and before it could remove its marker
    lost = Run(root, "lost").begin().record("failed")
    # (these are left)
    Run(root, "goes-on").begin().marker()
    Run(root, "again").begin().end("failed")
    Run(root, "again", attempt=2).marker()
    Run(root, "silent").begin()
    Run(root, "never").record("failed")

    found = collected(root, location)
    assert (found.runs, found.before) == (Counter(finished=2, failed=1, interrupted=1, lost=1), 0)
    assert (found.going_on, found.empty, found.damaged) == (3, 1, {})
    there = contents(location)
    # (whether its row was in an open part already is a matter of time)
    assert len(there[killed.instance.uid][1]) <= 1
    assert {uid: (status, len(steps)) for uid, (status, steps, *_) in there.items()} == {
        whole.instance.uid: ("finished", 2),
        failed.instance.uid: ("failed", 1),
        stopped.instance.uid: ("interrupted", 1),
        killed.instance.uid: ("lost", len(there[killed.instance.uid][1])),
        again.instance.uid: ("finished", 1),
        lost.instance.uid: ("lost", 0),
    }
    assert [errors for *_, errors, _ in there.values()] == [0, 1, 0, 0, 0, 0]
    assert not (root / "results" / "instances" / stopped.instance.uid / "checkpoints").exists()
    assert (stopped.path / "instances" / stopped.instance.uid / "checkpoints").exists()

    # a second time, nothing changes
    found = collected(root, location)
    assert (found.runs, found.before, found.going_on, found.empty) == (Counter(), 5, 3, 1)
    assert contents(location) == there


def test_without_records_the_stores_themselves_tell(root):
    whole = Run(root, "whole").begin().step(0).end("finished")
    Run(root, "goes-on").begin().step(0)
    shutil.rmtree(root / "jobs")
    found = collected(root)
    assert (found.runs, found.going_on) == (Counter(finished=1), 1)
    assert list(contents(StoreLocation.of(root / "results"))) == [whole.instance.uid]


def test_what_went_on_takes_the_place_of_what_it_was(root, location):
    other = Run(root, "other").begin().step(0).end("finished")
    run = Run(root, "run").begin().step(0)
    mark = run.instance.mark()
    run.step(1).step(2).end("interrupted")
    collected(root, location)
    assert contents(location)[run.instance.uid][:2] == ("interrupted", [0, 1, 2])
    (root / "results" / "instances" / other.instance.uid / "untouched").touch()

    run.resume(mark)
    run.marker()
    assert collected(root, location).going_on == 1
    assert contents(location)[run.instance.uid][:2] == ("interrupted", [0, 1, 2])
    (root / "jobs" / "run.running").unlink()
    for number in range(1, 5):
        run.step(number)
    run.end("finished")
    found = collected(root, location)
    assert (found.runs, found.before) == (Counter(finished=1), 1)
    with run.store as own:
        digest = own.streams(run.instance.uid)["digest"].dropna().tolist()
    assert contents(location)[run.instance.uid] == ("finished", [0, 1, 2, 3, 4], 0, digest)
    assert (root / "results" / "instances" / other.instance.uid / "untouched").exists()
    # the files of a finished instance that were deleted come back
    shutil.rmtree(root / "results" / "instances" / run.instance.uid)
    assert collected(root, location).runs == Counter(finished=1)
    assert contents(location)[run.instance.uid][1] == [0, 1, 2, 3, 4]


def test_a_damaged_store_stops_no_other(root, location):
    runs = {name: Run(root, name).begin().step(0) for name in ("a", "b", "c", "d", "e", "f")}
    mark = runs["f"].instance.mark()
    for run in runs.values():
        run.end("interrupted" if run.slug == "f" else "finished")
    assert collected(root, location).runs.total() == 6
    runs["f"].resume(mark).step(1).end("finished")
    shutil.rmtree(root / "results" / "instances")
    # all but one must be collected again, and cannot be
    (runs["b"].path / "store.db").write_bytes(b"no database" * 500)
    os.truncate(runs["c"].path / "store.db", 8192)
    (runs["d"].path / "store.db").unlink()
    part = next(runs["e"].path.glob("instances/*/trajectories/phase-0/agent-a/part-*"))
    part.unlink()
    shutil.rmtree(next(runs["f"].path.glob("instances/*")))
    found = collected(root, location)
    assert found.runs == Counter(finished=1)
    assert {path.name for path in found.damaged} == {"b", "c", "d", "e", "f"}
    assert "not a database" in found.damaged[runs["b"].path]
    assert "malformed" in found.damaged[runs["c"].path]
    assert "there is no store at" in found.damaged[runs["d"].path]
    assert "0 are there" in found.damaged[runs["e"].path]
    assert "no folder of its instance" in found.damaged[runs["f"].path]
    # what was there of them is not given up
    with location.open() as store:
        assert len(store.runs()) == 6


def flip(path):
    """Turn a bit of a file, without touching what else is linked to its old content."""
    data = bytearray(path.read_bytes())
    data[len(data) // 8] ^= 4
    path.unlink()
    path.write_bytes(bytes(data))


def test_a_damaged_copy_is_replaced_by_a_whole_one_only(root, location):
    whole, bad = (Run(root, name).begin().step(0).end("finished") for name in ("whole", "bad"))
    collected(root, location)
    with location.open() as store:
        for run in (whole, bad):
            pattern = "trajectories/phase-0/agent-a/part-*"
            flip(next(store.instance_directory(run.instance.uid).glob(pattern)))
            if run is bad:
                flip(next((run.path / "instances" / run.instance.uid).glob(pattern)))
            found = verify(store, run.instance.uid)
            assert mark_failed(store, found) and len(found.damage) == 1
    found = collected(root, location)
    assert found.runs == Counter(finished=1)
    assert list(found.damaged) == [bad.path]
    assert "damaged like its copy" in found.damaged[bad.path]
    with location.open() as store:
        assert dict(zip(store.runs()["document"], store.runs()["status"], strict=True)) == {
            "whole": "finished",
            "bad": "failed",
        }
        assert verify(store, whole.instance.uid, outcomes=False).damage == ()
        assert store.errors(bad.instance.uid)["kind"].tolist() == ["Damaged"]
    assert [is_whole(run.path, run.instance.uid) for run in (whole, bad)] == [True, False]
    # executed again, elsewhere: the damaged store is no matter any more
    with location.open() as store:
        again = store.begin_run(
            uid="bad", document={"uid": "bad"}, text="", hash="hash of bad", seed=1, version="3.5"
        )
        again.finish("finished")
    bad.instance = again
    bad.record("finished")
    found = collected(root, location)
    assert (found.damaged, found.before) == ({}, 2)


class Ended(BaseException):
    """What a process meets that is killed."""


def end_here(*_):
    raise Ended


@pytest.mark.parametrize("moment", ["file", "database"])
def test_marking_damage_can_be_killed_and_done_again(root, location, monkeypatch, moment):
    run = Run(root, "run").begin().step(0).end("finished")
    collected(root, location)
    with location.open() as store:
        flip(next(store.instance_directory(run.instance.uid).glob("trajectories/phase-0/agent-a/part-*")))
        with monkeypatch.context() as patch, pytest.raises(Ended):
            where = {"file": (verifying, "write_text"), "database": (store.database, "write")}
            patch.setattr(*where[moment], end_here)
            mark_failed(store, verify(store, run.instance.uid))
        assert mark_failed(store, verify(store, run.instance.uid))
        assert store.runs()["status"].tolist() == ["failed"]
    # the whole files take the place of the damaged ones
    assert collected(root, location).runs == Counter(finished=1)
    with location.open() as store:
        assert verify(store, run.instance.uid, outcomes=False).damage == ()


def test_only_what_has_finished_is_marked(root, location):
    run = Run(root, "run").begin().step(0).end("interrupted")
    collected(root, location)
    with location.open() as store:
        directory = store.instance_directory(run.instance.uid)
        before = (directory / "complete.json").read_text()
        flip(next(directory.glob("trajectories/phase-0/agent-a/part-*")))
        found = verify(store, run.instance.uid)
        assert found.damage and not mark_failed(store, found)
        assert store.runs()["status"].tolist() == ["interrupted"]
    assert (directory / "complete.json").read_text() == before


def test_a_run_that_was_killed_right_after_its_end_is_collected_and_removed(root, location, monkeypatch):
    """The database of its own store has the end, and the marker its pending name."""
    run = Run(root, "run").begin().step(0)
    with monkeypatch.context() as patch, pytest.raises(Ended):
        patch.setattr(recorder, "put_marker", end_here)
        run.end("finished")
    run.record("failed")  # by who waited for its process
    directory = run.path / "instances" / run.instance.uid
    assert [path.name for path in directory.glob("complete.json*")] == ["complete.json.pending"]
    assert not is_whole(run.path, run.instance.uid)
    assert collected(root, location).runs == Counter(finished=1)
    with location.open() as store:
        assert verify(store, run.instance.uid, outcomes=False).damage == ()
    assert collected(root, location).before == 1
    # who executes it again finds that it has finished, and ends what was left
    with open_run_store(run_store_location(root, "run")) as store:
        assert earlier_attempts(store, run.record("finished")._hash).finished == run.instance.uid
    assert is_whole(run.path, run.instance.uid)
    assert [path.name for path in directory.glob("complete.json*")] == ["complete.json"]
    found = collected(root, location, remove=True)
    assert (found.removed, found.kept, found.damaged) == (1, {}, {})
    with location.open() as store:
        assert verify(store, run.instance.uid, outcomes=False).damage == ()


def test_the_store_of_a_run_that_was_killed_right_after_its_end_can_be_removed(root, monkeypatch):
    run = Run(root, "run").begin().step(0)
    with monkeypatch.context() as patch, pytest.raises(Ended):
        patch.setattr(recorder, "put_marker", end_here)
        run.end("finished")
    run.record("failed")
    # its record says otherwise, so it stays
    assert collected(root, remove=True).removed == 0
    run.record("finished")
    found = collected(root, remove=True)
    assert (found.removed, found.kept) == (1, {})


def test_a_pending_marker_of_other_digests_is_damage(root, monkeypatch):
    run = Run(root, "run").begin().step(0)
    with monkeypatch.context() as patch, pytest.raises(Ended):
        patch.setattr(recorder, "put_marker", end_here)
        run.end("finished")
    run.record("finished")
    (marker,) = (run.path / "instances" / run.instance.uid).glob("complete.json*")
    marker.write_text(marker.read_text().replace('"digests":{"', '"digests":{"x'))
    assert "other digests than the database" in collected(root).damaged[run.path]


@pytest.mark.parametrize("harm", ["garbage", "cut", "empty", "missing", "phases", "marker"])
def test_a_damaged_store_is_left_for_a_new_one(root, harm, capsys):
    run = Run(root, "run").begin().step(0).end("finished")
    file, marker = run.path / "store.db", run.path / "instances" / run.instance.uid / "complete.json"
    assert is_whole(run.path, run.instance.uid)
    good = file.read_bytes(), marker.read_bytes()
    if harm == "garbage":
        file.write_bytes(b"no database" * 500)
    elif harm == "cut":
        os.truncate(file, 8192)
    elif harm == "empty":
        file.write_bytes(b"")
    elif harm == "missing":
        file.unlink()
    elif harm == "phases":
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("DELETE FROM phases")
    else:
        marker.write_text("{")
    found = collected(root, remove=True)
    assert (list(found.damaged), found.runs, found.removed) == ([run.path], Counter(), 0)
    assert found.damaged[run.path] in (run.path / "damaged").read_text()
    assert not is_whole(run.path, run.instance.uid)
    if harm == "marker":  # mended by hand
        file.write_bytes(good[0])
        marker.write_bytes(good[1])
        assert collected(root).runs == Counter(finished=1)
        assert is_whole(run.path, run.instance.uid)
        return
    if harm in ("cut", "garbage", "empty"):  # also where nobody has collected yet
        (run.path / "damaged").unlink()
    again = Run(root, "run", attempt=2)
    assert "this run starts from the beginning" in capsys.readouterr().err
    assert (root / "stores" / ".damaged-run-1" / "instances" / run.instance.uid).is_dir()
    again.begin().step(0).step(1).end("finished")
    assert collected(root).runs == Counter(finished=1)
    assert list(contents(StoreLocation.of(root / "results"))) == [again.instance.uid]


def test_what_lies_in_between_is_left_out(root):
    whole = Run(root, "whole").begin().step(0).end("finished")
    (root / "stores" / "notes.txt").write_text("mine")
    (root / "stores" / "odd").mkdir()
    (root / "stores" / "odd" / "instances").write_text("no folder")
    found = collected(root)
    assert (found.runs, found.damaged) == (Counter(finished=1), {})
    assert not has_finished(root / "stores" / "notes.txt")
    assert list(contents(StoreLocation.of(root / "results"))) == [whole.instance.uid]


def test_what_another_has_collected_meanwhile_is_left_out(root, location, monkeypatch):
    """Two collect copies of a folder into one database: the second has asked before the first was done."""
    whole = Run(root, "whole").begin().step(0).end("finished")
    collected(root, location)
    monkeypatch.setattr(collect._Collecting, "_states_in_target", lambda *_: {})
    found = collected(root, location)
    assert found.damaged == {}
    assert list(contents(location)) == [whole.instance.uid]


def test_nothing_is_removed_whose_copy_is_damaged(root):
    runs = [Run(root, name).begin().step(0).end("finished") for name in ("part", "marker", "whole")]
    collected(root)
    there = root / "results" / "instances"
    flip(next((there / runs[0].instance.uid / "trajectories/phase-0/agent-a").glob("part-*")))
    for place in (there, runs[1].path / "instances"):
        path = place / runs[1].instance.uid / "complete.json"
        text = path.read_text().replace('"digests":{"', '"digests":{"x')
        path.unlink()
        path.write_text(text)
    found = collected(root, remove=True)
    assert found.removed == 1
    assert {path.name for path in found.kept} == {"part", "marker"}
    assert "part-000000.parquet is damaged" in found.kept[runs[0].path]
    assert "other digests than the database" in found.kept[runs[1].path]
    assert sorted(os.listdir(root / "stores")) == ["marker", "part"]


def test_one_collects_at_a_time_and_others_write(root, monkeypatch):
    for number in range(6):
        Run(root, f"run-{number}").begin().step(0).end("finished")
    monkeypatch.setattr(collect, "_TOGETHER", 1)
    results = root / "results"

    def write():
        with Store(results, create=True) as store:
            for number in range(20):
                instance = store.begin_run(
                    uid="local", document={}, text="", hash=f"local {number}", seed=1, version="3.5"
                )
                instance.finish("finished")

    def look(done, total):
        if done == 1:
            with pytest.raises(ExecutionError, match=r"is being collected by process \d+ on host .* since"):
                collected(root)

    with Store(results, create=True), meanwhile(write):
        found = collected(root, progress=look)
    assert found.runs == Counter(finished=6)
    with Store(results, create=True) as store:
        assert Counter(store.runs()["status"]) == Counter(finished=26)
    assert sorted(os.listdir(root / "stores")) == [f"run-{number}" for number in range(6)]  # no lock is left


def test_stores_of_finished_runs_are_removed(root):
    whole = Run(root, "whole").begin().step(0).end("finished")
    Run(root, "failed").begin().step(0).end("failed")
    Run(root, "goes-on").begin().marker()
    incomplete = Run(root, "incomplete").begin().step(0).end("finished")
    files = [path for path in whole.path.rglob("*") if path.is_file()]
    database = (whole.path / "store.db").stat().st_size
    collected(root)
    # part of it is gone from the results: then it is not removed
    next((root / "results" / "instances" / incomplete.instance.uid).rglob("part-*")).unlink()
    (root / "stores" / ".left.removed" / "folder").mkdir(parents=True)  # by one that was killed
    found = collected(root, remove=True)
    assert (found.removed, found.files) == (1, len(files))
    assert found.freed == database  # the rest is linked from the results
    assert sorted(os.listdir(root / "stores")) == ["failed", "goes-on", "incomplete"]
    assert contents(StoreLocation.of(root / "results"))[whole.instance.uid][:2] == ("finished", [0])
    assert collected(root, remove=True).removed == 0


def test_labels_survive_collecting_again(root, location):
    run = Run(root, "labelled").begin()
    uid, mark = run.instance.uid, None
    run.step(0).phase.mark()
    mark = run.instance.mark()
    run.store.label(uid, name="theirs", tags="own")
    run.end("failed")
    collected(root, location)
    with location.open() as store:
        assert store.labels(uid) == ("theirs", ("own",), None)
        store.label(uid, name="ours", tags="common", note="a note")
    # its rows are replaced, as the run was resumed
    again = Run(root, "labelled")
    again.resume(mark)
    again.step(1).end("finished")
    assert collected(root, location).runs == {"finished": 1}
    with location.open() as store:
        assert store.labels(uid) == ("ours", ("common", "own"), "a note")
    # labels that the run's own store got after that are kept before the store is removed
    with Store(again.path) as own:
        own.label(uid, tags="late")
    assert collected(root, location, remove=True).removed == 1
    with location.open() as store:
        assert store.labels(uid) == ("ours", ("common", "late", "own"), "a note")


def test_a_full_disk_stops_it(root, monkeypatch):
    Run(root, "whole").begin().step(0).end("finished")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        patch.setattr(shutil, "copyfileobj", full)
        with pytest.raises(StoreError, match="No space left on device"):
            collected(root)
    assert contents(StoreLocation.of(root / "results")) == {}
    assert collected(root).runs == Counter(finished=1)


class Killed:
    """Ends this process, a fork, before the step with this number: of the file system or the database."""

    CALLS = ("link", "mkdir", "rename", "rmdir", "unlink")

    def __init__(self, step):
        self.left = step
        for name in self.CALLS:
            setattr(os, name, self._counted(getattr(os, name)))
        # what is done for SQL: the beginning, and what takes effect
        sa.event.listen(sa.Engine, "commit", lambda _: self._count())
        sa.event.listen(sa.Engine, "savepoint", lambda *_: self._count())

    def _counted(self, call):
        def counted(*args, **options):
            self._count()
            return call(*args, **options)

        return counted

    def _count(self):
        self.left -= 1
        if self.left < 0:
            os._exit(9)


def killed_at(step, root):
    """Collect in a fork that is killed at a step; return whether it was."""
    child = os.fork()
    if not child:
        try:
            Killed(step)
            collected(root, remove=True)
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def prepared(root):
    """Runs of which one is there, one has gone on since, one is new; return what must be there at last."""
    Run(root, "there").begin().step(0).end("finished")
    run = Run(root, "changed").begin().step(0)
    mark = run.instance.mark()
    run.step(1).end("interrupted")
    collected(root)
    run.resume(mark).step(1).step(2).end("finished")
    Run(root, "new").begin().step(0).end("finished")


def check_killed(root, steps):
    prepared(root)
    location = StoreLocation.of(root / "results")
    shutil.copytree(root, root.parent / "whole")
    collected(root.parent / "whole")
    wanted = contents(StoreLocation.of(root.parent / "whole" / "results"))
    shutil.copytree(root, root.parent / "copy")
    kills = 0
    for step in steps:
        shutil.rmtree(root)
        shutil.copytree(root.parent / "copy", root, symlinks=True)
        if not killed_at(step, root):
            return kills
        kills += 1
        between = contents(location)  # (its steps, too: whoever finds rows finds their files)
        assert between.keys() <= wanted.keys()
        for uid, found in between.items():
            assert found == wanted[uid] or found[:2] == ("interrupted", [0, 1]), step
        collected(root)
        assert contents(location) == wanted, step
        assert [name for name in os.listdir(root / "results" / "instances") if name[0] == "."] == []
    return kills


def test_killed_at_any_step_the_next_one_ends_whole(root):
    steps = random.Random(6).sample(range(60), 5)
    assert check_killed(root, sorted(steps)) == 5


def test_killed_at_every_third_step_the_next_one_ends_whole(root):
    assert 20 < check_killed(root, range(0, 1000, 3)) < 333


def test_collected_runs_are_analysed_as_if_executed_here(tmp_path, capsys):
    """The whole way: generate, execute into stores of their own, collect, remove, analyse."""
    paths = {}
    for name in ("local", "cluster"):
        paths[name] = make_folder(tmp_path / name, ["well", "raise", "well"], repetitions=2).path
    run_folder(DesignFolder.open(paths["local"]), settings=Settings(executor="inline"))
    folder = DesignFolder.open(paths["cluster"])
    jobs = []
    for run in folder.documents:
        path = job_path(folder.path, run)
        path.parent.mkdir(exist_ok=True)
        store = run_store_location(folder.path, path.name)
        jobs.append(Job(run.uid, run.hash, folder.path / run.file, path, store, own_store=True))
    (folder.path / "stores").mkdir()
    records = list(InlineExecutor().run(jobs))
    assert Counter(record.status for record in records) == Counter(finished=4, failed=2)
    cluster = str(paths["cluster"])
    assert main(["analyse", cluster]) == 2
    assert "4 runs have finished and are not collected: arsenai collect" in capsys.readouterr().err

    assert main(["collect", cluster]) == 0
    assert "collected: 6 runs (2 failed, 4 finished)" in capsys.readouterr().out
    assert main(["collect", cluster, "--remove"]) == 0
    out = capsys.readouterr().out
    assert "left out: 6 runs collected before" in out
    assert "removed: 4 stores" in out
    assert len(list((folder.path / "stores").iterdir())) == 2
    states = load_run_states(folder, StoreLocation.of(folder.path / "results"))
    assert Counter(str(state.status) for state in states.runs) == Counter(finished=4, failed=2)
    tables = []
    for path in paths.values():
        assert main(["analyse", str(path)]) in (0, 1)
        tables.append({file.name: file.read_bytes() for file in (path / "analysis").iterdir()})
    assert tables[0] == tables[1] and "outcomes.csv" in tables[0]
    digests = []
    for path in paths.values():
        with Store(path / "results", create=False) as store:
            runs = store.runs().sort_values("document")
            digests.append([store.streams(uid)["digest"].tolist() for uid in runs["run"]])
    assert digests[0] == digests[1]
    # a store that is damaged is told, by its file
    left = next((folder.path / "stores").iterdir())
    (left / "store.db").write_bytes(b"no database" * 500)
    assert main(["collect", cluster, "--quiet"]) == 1
    assert f"not collected: {left.name}: " in capsys.readouterr().err

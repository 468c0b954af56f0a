"""Disks that are full, or cannot be written to: a clear word, nothing half there, and ``resume`` goes on."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from contextlib import closing

import pytest
import yaml
from arsenai.execution.folders import statuses
from faults import disks
from faults.batch import execute, make_batch, recorded, results
from faults.parts import fill

from palaestrai_mosaik.arsenai.design.folder import DESIGN, DesignFolder
from palaestrai_mosaik.arsenai.execution import InlineExecutor, job_records
from palaestrai_mosaik.arsenai.execution.cluster.submission import run_store_location
from palaestrai_mosaik.arsenai.execution.job import Job
from palaestrai_mosaik.arsenai.execution.status import job_path
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.cli.main import main as results_main
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.store.verify import verify

FULL = re.compile(r"No space left on device|disk is full|disk I/O error")

pytestmark = pytest.mark.skipif(disks.why_not() is not None, reason=str(disks.why_not()))


@pytest.fixture
def disk(request):
    """Return the function that mounts a disk."""

    def mount(folder, kib):
        disks.mount(folder, kib)
        request.addfinalizer(lambda: disks.unmount(folder))
        return folder

    return mount


@pytest.mark.parametrize("at", ["train 12", "test 9"])
def test_results_on_a_full_disk(tmp_path, disk, undisturbed, order, at):
    folder = make_batch(tmp_path / "f", seconds=0.0)
    where = disk(folder.path / "results", 8192)
    order(at, "fill", where)
    summary = execute(folder, jobs=1, checkpoint_every=1e-6)
    assert not summary.whole
    assert "finished" not in statuses(folder.path)
    for record in job_records(folder).values():
        assert FULL.search(record.error), record.error
    (where / "filler").unlink()
    with results(folder) as store:
        for instance in store.runs()["run"]:
            assert verify(store, instance).damage == ()
    assert execute(folder, executor="inline").whole
    assert recorded(folder) == recorded(undisturbed())


def test_records_on_a_full_disk(tmp_path, disk, undisturbed, order, capsys):
    """What ``results`` has counts, although the record could not be written."""
    folder = make_batch(tmp_path / "f", seconds=0.0)
    where = disk(folder.path / "jobs", 1024)
    order("test 9", "fill", where)
    with pytest.raises(ExecutionError, match=r"cannot write .*jobs.*No space left on device"):
        execute(folder, jobs=1)
    assert statuses(folder.path) == ["finished", "waiting", "waiting"]
    # nothing can be begun either
    assert main(["run", str(folder.path), "--jobs", "1"]) == 2
    told = capsys.readouterr().err
    assert re.search(r"arsenai: cannot write .*No space left on device", told)
    assert "Traceback" not in told
    (where / "filler").unlink()
    assert execute(folder, jobs=1).whole
    assert recorded(folder) == recorded(undisturbed())


def test_a_design_on_a_full_disk(tmp_path, disk, undisturbed, capsys):
    where = disk(tmp_path / "disk", 256)
    design = tmp_path / "design.yml"
    written = yaml.safe_load((undisturbed().path / DESIGN).read_text()) | {"repetitions": 30}
    design.write_text(yaml.safe_dump(written))
    (where / "room").write_bytes(b"\0" * (200 * 1024))
    assert main(["generate", str(design), "-o", str(where / "f"), "--quiet"]) == 2
    told = capsys.readouterr().err
    assert "No space left on device" in told
    assert os.listdir(where) == ["room"]


def test_nothing_can_be_written(tmp_path, disk, undisturbed, capsys):
    where = disk(tmp_path / "disk", 8192)
    folder = make_batch(where / "f", seconds=0.0)
    assert execute(folder, executor="inline", rows=[0]).whole
    before = sorted(path for path in where.rglob("*"))
    disks.remount(where, "ro")
    for command in ("run", "resume"):
        assert main([command, str(folder.path), "--quiet"]) == 2
        assert "Read-only file system" in capsys.readouterr().err
    # but all that is there can be read
    assert main(["status", str(folder.path)]) == 0
    assert re.search(r"finished +1\n", capsys.readouterr().out)
    main(["analyse", str(folder.path), "--output", str(tmp_path / "analysis")])
    assert (tmp_path / "analysis" / "outcomes.csv").exists()
    capsys.readouterr()
    design = str(folder.path / DESIGN)
    assert main(["generate", design, "-o", str(where / "g"), "--quiet"]) == 2
    assert "Read-only file system" in capsys.readouterr().err
    disks.remount(where, "rw")
    assert sorted(path for path in where.rglob("*")) == before
    assert execute(folder, executor="inline").whole
    assert recorded(folder) == recorded(undisturbed())


LOOKING = [
    *(("arsenai", "status", "{f}"), ("arsenai", "analyse", "{f}", "-o", "{out}/analysis")),
    *(
        ("arsenai", "compare", "{f}", "-o", "{out}/compare"),
        ("arsenai", "report", "{f}", "-o", "{out}/report"),
    ),
    *(("palaestrai-mosaik", "list"), ("palaestrai-mosaik", "show", "latest", "--steps", "2")),
    ("palaestrai-mosaik", "plot", "latest", "--output", "{out}/plot.svg"),
    ("palaestrai-mosaik", "plot", "latest", "--learning", "--output", "{out}/learning.svg"),
    *(("palaestrai-mosaik", "export", "latest", "{out}/export"), ("palaestrai-mosaik", "verify", "--all")),
]


def look_at_all(folder, out, capsys):
    """Call every command that only looks; return what each prints."""
    told = []
    for program, *arguments in LOOKING:
        words = [one.format(f=folder.path, out=out) for one in arguments]
        if program == "palaestrai-mosaik":
            words += ["--store", str(folder.path / "results")]
        code = {"arsenai": main, "palaestrai-mosaik": results_main}[program](words)
        found = capsys.readouterr()
        assert code == 0, (arguments, found.err)
        told.append(found.out)
    return told


def contents(folder):
    """Return what the files in ``folder`` hold; of memory that processes share, only that it is there."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path: None if path.name.endswith("-shm") else path.read_bytes() for path in files}


def leave_log(folder):
    """Leave the log of a database that a process was killed with, and which nobody has opened since."""
    database = folder.path / "results" / "store.db"
    with closing(sqlite3.connect(database, isolation_level=None)) as writer:
        writer.execute("UPDATE instances SET host = 'elsewhere'")
        beside = {path: path.read_bytes() for path in database.parent.glob("store.db-*")}
    for path, content in beside.items():
        path.write_bytes(content)
    assert {path.name for path in beside} == {"store.db-wal", "store.db-shm"}


def leave_journal(folder):
    """Let the database have no log, but a journal for each transaction, as the own store of a run on a cluster has."""
    with closing(sqlite3.connect(folder.path / "results" / "store.db")) as connection:
        assert connection.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)


@pytest.mark.parametrize(
    ("how", "left"),
    [(how, left) for how in ("full", "read-only") for left in (None, leave_log, leave_journal)],
)
def test_whoever_only_looks_needs_no_room(tmp_path, disk, how, left, undisturbed, capsys):
    where = disk(tmp_path / "disk", 8192)
    shutil.copytree(undisturbed().path, where / "f")
    folder = DesignFolder.open(where / "f")
    if left is not None:
        left(folder)
    before = contents(where)
    (tmp_path / "room").mkdir()
    reference = look_at_all(undisturbed(), tmp_path / "room", capsys)
    if how == "full":
        fill(where)
    else:
        disks.remount(where, "ro")
    (tmp_path / "out").mkdir()
    told = look_at_all(folder, tmp_path / "out", capsys)
    for one, other in zip(told, reference, strict=True):
        assert len(one.splitlines()) == len(other.splitlines())
    assert ("elsewhere" in "".join(told)) == (left is leave_log), "what is in the log counts"
    if how == "full":
        (where / "filler").unlink()
    assert contents(where) == before


def test_a_full_disk_is_named_where_something_must_be_written(tmp_path, disk, undisturbed, capsys):
    """SQLite calls it an error of the disk, or a file that cannot be opened."""
    where = disk(tmp_path / "disk", 8192)
    shutil.copytree(undisturbed().path, where / "f")
    fill(where)
    store = str(where / "f" / "results")
    part = next((where / "f" / "results").rglob("part-*.parquet"))
    part.unlink()
    fill(where)
    assert results_main(["verify", "--all", "--mark-failed", "--store", store]) == 2
    assert f"(the disk is full: {store})" in capsys.readouterr().err


def test_collecting_on_a_full_disk(tmp_path, disk, undisturbed, capsys):
    """However little room there is: what does not fit is not there, and is collected once there is more."""
    folder = make_batch(tmp_path / "f", seconds=0.0)
    jobs = []
    for run in folder.documents:
        path = job_path(folder.path, run)
        document = (folder.path / run.file).absolute()
        jobs.append(
            Job(run.uid, run.hash, document, path, run_store_location(folder.path, path.name), own_store=True)
        )
    (folder.path / "jobs").mkdir()
    assert [record.status for record in InlineExecutor().run(jobs)] == ["finished"] * 3
    where = disk(folder.path / "results", 2048)
    fill(where)
    for kib in (0, 64, 192, 256):
        os.truncate(where / "filler", (2048 - kib) * 1024)
        assert main(["collect", str(folder.path), "--quiet"]) in (1, 2)
        told = capsys.readouterr().err
        assert FULL.search(told), told
        assert "Traceback" not in told
    (where / "filler").unlink()
    # they have finished, wherever their results are
    assert statuses(folder.path) == ["finished"] * 3
    assert main(["collect", str(folder.path), "--quiet"]) == 0
    assert recorded(folder) == recorded(undisturbed())

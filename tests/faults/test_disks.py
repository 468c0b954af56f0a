"""Disks that are full, or cannot be written to: a clear word, nothing half there, and ``resume`` goes on."""

from __future__ import annotations

import os
import re

import pytest
import yaml
from execution.folders import statuses
from faults import disks
from faults.batch import execute, make_batch, recorded, results
from faults.parts import fill

from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.design.folder import DESIGN
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.execution import InlineExecutor, job_records
from palaestrai_mosaik.execution.cluster.submission import own_store
from palaestrai_mosaik.execution.job import Job
from palaestrai_mosaik.execution.status import job_path
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


@pytest.mark.parametrize("at", [pytest.param("train 12", marks=pytest.mark.slow), "test 9"])
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


@pytest.mark.slow
def test_collecting_on_a_full_disk(tmp_path, disk, undisturbed, capsys):
    """However little room there is: what does not fit is not there, and is collected once there is more."""
    folder = make_batch(tmp_path / "f", seconds=0.0)
    jobs = []
    for run in folder.documents:
        path = job_path(folder.path, run)
        document = (folder.path / run.file).absolute()
        jobs.append(Job(run.uid, run.hash, document, path, own_store(folder.path, path.name), own=True))
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

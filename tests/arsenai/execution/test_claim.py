"""One process at a time executes a run: markers, as processes of this and of other hosts see them."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import replace

import pytest
from arsenai.execution.folders import make_folder, markers
from support.waiting import meanwhile, until

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution import InlineExecutor, JobRecord, claim
from palaestrai_mosaik.arsenai.execution.job import STALE_AFTER, Job, Marker, now
from palaestrai_mosaik.store.process import process_started
from palaestrai_mosaik.store.store import StoreLocation

#: no process has this number
NOBODY = 2**22 + 1


@pytest.fixture
def job(tmp_path):
    return Job(
        "run", "abc", tmp_path / "run.yml", tmp_path / "run", StoreLocation(str(tmp_path)), 2, task="7_1"
    )


def marker_of(job, host=None, pid=NOBODY, **changes):
    """Put the marker of another process in place."""
    marker = replace(Marker.of_this_process(job), pid=pid, pid_started=1.0, **changes)
    marker = marker if host is None else replace(marker, host=host)
    marker.write(job.marker)
    return marker


def no_links(*_, **__):
    raise OSError(errno.EPERM, "no links here")


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("before", ["nothing", "dead", "dead in between"])
def test_of_many_processes_one_executes_the_run(job, before, links, monkeypatch):
    if not links:
        monkeypatch.setattr(os, "link", no_links)
    for _ in range(6):
        job.marker.unlink(missing_ok=True)
        if before != "nothing":
            dead = marker_of(job)
        if before == "dead in between":  # of two that took its place
            dead.write(job.marker.with_name(f".{job.marker.name}.taking"))
        winners = race(job, 10)
        assert len(winners) == 1
        assert Marker.read(job.marker).pid == winners[0]
        assert [path.name for path in job.marker.parent.iterdir()] == [job.marker.name]


def race(job, count):
    """Let processes claim the run at the same time; return the ids of those that have won."""
    begin, hold = os.pipe(), os.pipe()
    told = os.pipe()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if not pid:
            try:
                os.close(begin[1])
                os.close(hold[1])
                os.read(begin[0], 1)
                won = claim.claim(job) is not None
                os.write(told[1], f"{os.getpid()} {won}\n".encode())
                # whoever has won must live until all have tried
                os.read(hold[0], 1)
            finally:
                os._exit(0)
        pids.append(pid)
    os.close(begin[1])
    text = b""
    while text.count(b"\n") < count:
        text += os.read(told[0], 4096)
    os.close(hold[1])
    for pid in pids:
        os.waitpid(pid, 0)
    for end in (begin[0], hold[0], *told):
        os.close(end)
    return [int(line.split()[0]) for line in text.decode().splitlines() if line.endswith("True")]


@pytest.mark.parametrize(
    ("host", "task", "silent", "taken"),
    [
        (None, "7_1", STALE_AFTER + 5, True),  # of this host, and dead
        ("elsewhere", "7_2", STALE_AFTER - 5, False),
        ("elsewhere", "7_2", STALE_AFTER + 5, True),
        ("elsewhere", None, STALE_AFTER - 5, False),
        # an earlier start of this very task: it has ended before
        ("elsewhere", "7_1", 0, True),
    ],
)
def test_whose_place_is_taken(job, host, task, silent, taken):
    other = marker_of(job, host, task=task)
    os.utime(job.marker, (time.time() - silent,) * 2)
    got = claim.claim(job)
    assert (got is not None) is taken
    assert Marker.read(job.marker) == (got if taken else other)


def test_a_process_that_lives_keeps_its_run(job):
    parent = os.getppid()
    other = replace(marker_of(job), pid=parent, pid_started=process_started(parent))
    other.write(job.marker)
    os.utime(job.marker, (0, 0))
    assert claim.claim(job) is None
    assert Marker.read(job.marker) == other


def test_what_was_recorded_in_between_is_not_executed_again(job):
    record = JobRecord("run", "abc", "finished", "i", "s", now(), now(), 1.0, 0, None, "elsewhere", 1, 2)
    record.write(job.record)
    assert claim.claim(job) is None
    assert not job.marker.exists()
    assert claim.claim(replace(job, attempt=3)) is not None
    # a marker that the machine's fault left half-written
    job.marker.write_text("{")
    assert claim.claim(replace(job, attempt=3)) is None
    os.utime(job.marker, (time.time() - 60,) * 2)
    assert claim.claim(replace(job, attempt=3)) is not None


def test_a_run_that_goes_on_says_so_and_ends_when_another_process_has_it(tmp_path, monkeypatch):
    monkeypatch.setattr(claim, "HEARTBEAT_INTERVAL", 0.05)
    folder = make_folder(tmp_path / "f", ["slow", "well"], steps=400).path
    planned, _ = DesignFolder.open(folder).documents
    (folder / "jobs").mkdir()
    job = Job(
        *(planned.uid, planned.hash, folder / planned.file, folder / "jobs" / "doing-0-r0"),
        StoreLocation(str(tmp_path / "own")),
        own_store=True,
    )
    touched = []

    def meddle():
        until(lambda: markers(folder))
        os.utime(job.marker, (0, 0))
        until(lambda: job.marker.stat().st_mtime > 0)
        touched.append(True)
        replace(Marker.read(job.marker), host="elsewhere").write(job.marker)

    executor = InlineExecutor()
    with meanwhile(meddle):
        assert list(executor.run([job])) == []
    assert touched
    assert executor.left_out == [planned.uid]
    assert not job.record.exists()
    assert Marker.read(job.marker).host == "elsewhere"

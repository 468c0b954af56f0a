"""The process of a run: executes the document, and records its end."""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import io
import os
import pickle
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from palaestrai_mosaik.arsenai.design.folder import trust
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import (
    FAILED,
    FINISHED,
    INTERRUPTED,
    CheckpointError,
    DocumentError,
    ExecutionError,
    Problem,
    RunInterrupted,
    RunPruned,
    StoreError,
    describe,
    format_traceback,
)
from palaestrai_mosaik.core.importing import named_users_code
from palaestrai_mosaik.core.printing import use_null_device, write
from palaestrai_mosaik.experiment import RunDocument, load, only_modules
from palaestrai_mosaik.runner import Interrupt, Progress, execute, make_progress
from palaestrai_mosaik.runner.checkpoint import document_of_instance
from palaestrai_mosaik.runner.interrupt import ending_signals
from palaestrai_mosaik.runner.worker_process import read_frame
from palaestrai_mosaik.store import Store

from .claim import Heartbeat, claim, is_taken_over
from .early_stopping import EarlyStopping
from .job import Job, JobRecord, Marker, RecordStatus, now
from .run_store import earlier_attempts, open_run_store

#: seconds within which a run must end once its driver is gone
GRACE = 5.0
#: the exit code of a process that skipped its current run, because another process executes it
EXIT_LEFT_OUT = 75


class _DocumentReplaced(Exception):
    """The design was generated again after the job was created, and the run's new document was executed."""


class _MarkerProgress(Progress):
    """Shows the progress, and adds the instance to the marker once it exists."""

    def __init__(self, shown: Progress, marker: Marker, path: Path):
        self.instance: str | None = None
        #: called with the instance once it exists
        self.on_begin: Callable[[str], None] = lambda instance: None
        self._shown, self._marker, self._path = shown, marker, path
        # bind the methods directly, because some are called at every step
        for name in ("step", "begin_phase", "carry", "episode", "end_phase"):
            setattr(self, name, getattr(shown, name))

    def begin_run(self, instance: str) -> None:
        self.instance = instance
        replace(self._marker, instance=instance).write(self._path)
        self._shown.begin_run(instance)
        self.on_begin(instance)


def execute_job(job: Job, interrupt: Interrupt, shown: Progress) -> tuple[JobRecord, str] | None:
    """Execute ``job`` in this process.

    Holds the run's marker. The caller writes the record, and then removes the marker.

    Args:
        job: the job.
        interrupt: asks the run to end.
        shown: displays the progress of the run.

    Returns:
        The record and the traceback of a failure, which is empty after success. ``None`` if the job was skipped, so
        that nothing must be recorded: another process executes the run, or the document was replaced by one that has a
        record.

    Raises:
        ExecutionError: the marker cannot be written. This is the only error; failures of the run are recorded.
    """
    try:
        trust(job.folder)
    except OSError as refused:
        raise ExecutionError(f"cannot write to {job.folder}: {refused.strerror}") from refused
    marker = claim(job)
    if marker is None:
        return None
    progress = _MarkerProgress(shown, marker, job.marker)
    clock = time.perf_counter()
    status: RecordStatus = "finished"
    code, error, trace = FINISHED, None, ""
    try:
        with Heartbeat(job, marker, interrupt), only_modules(job.allow_modules):
            document = _load(job)
            with open_run_store(job.store) if job.own_store else job.store.open() as store:
                _execute(document, store, job, interrupt, progress)
    except _DocumentReplaced:
        files.remove(job.marker, missing_ok=True)
        return None
    except (RunInterrupted, KeyboardInterrupt) as stopped:
        status, code, error = "interrupted", INTERRUPTED, str(stopped) or "interrupted"
    except RunPruned as pruned:
        status, error = "pruned", str(pruned)
    except (Exception, SystemExit) as failure:
        status, code, error = "failed", FAILED, describe(failure)
        trace = format_traceback(failure)
    if is_taken_over(job, marker):
        return None
    record = JobRecord(
        job.run,
        job.hash,
        status,
        progress.instance,
        job.store.shown,
        marker.started,
        now(),
        round(time.perf_counter() - clock, 3),
        code,
        error,
        marker.host,
        marker.pid,
        job.attempt,
        job.task,
    )
    return record, trace


def _load(job: Job) -> RunDocument:
    document = load(job.document)
    if document.hash != job.hash:
        record = JobRecord.read(job.record)
        if record is not None and record.hash == document.hash:
            raise _DocumentReplaced
        raise DocumentError([Problem("was edited after it was generated", file=str(job.document))])
    return document


def _execute(
    document: RunDocument, store: Store, job: Job, interrupt: Interrupt, noted: _MarkerProgress
) -> None:
    options: dict[str, Any] = {
        "store": store,
        "progress": noted,
        "interrupt": interrupt,
        "checkpoint_every": job.checkpoint_every,
    }
    if job.reporting is not None:
        stopping = EarlyStopping(job.reporting, interrupt)
        noted.on_begin = partial(stopping.resumed, store)
        noted.reports = stopping.reports  # type: ignore[method-assign]
    resume = job.resume
    if job.own_store:
        finished, resume = earlier_attempts(store, job.hash)
        if finished is not None:
            noted.instance = finished
            write(f"instance {finished} has finished already", sys.stderr)
            return
    if resume is not None:
        try:
            execute(document_of_instance(document, store, resume), resume=resume, **options)
        except (CheckpointError, StoreError) as error:
            if noted.instance is not None:
                raise
            write(f"instance {resume} cannot be resumed, starting from the beginning: {error}", sys.stderr)
        else:
            return
    execute(document, **options)


def execute_jobs(jobs: Sequence[Job], lifeline: int) -> int:
    """Execute ``jobs`` one after the other in this process, which does nothing else.

    All output goes to the logs, including that of compiled code and child processes. SIGTERM ends the current run
    between two steps, a second one within a step, and no further run is started. The end of the driver has the same
    effect.

    Users' code may change the globals of modules. Therefore, a run that has named users' code is the last one in this
    process, unless ``shares_process`` of its job is set; another process executes the remaining jobs.

    Args:
        jobs: the jobs.
        lifeline: a file descriptor without data, closed at the other end when the driver is gone.

    Returns:
        The exit code of the process. The first skipped run ends it with :data:`EXIT_LEFT_OUT`.
    """
    interrupt = Interrupt()
    for number in ending_signals():
        signal.signal(number, lambda *_: interrupt.request())
    threading.Thread(target=_watch, args=(lifeline, interrupt), daemon=True).start()
    use_null_device(0)
    for job in jobs:
        if interrupt.requested:
            break
        _redirect(job)
        result = execute_job(job, interrupt, make_progress(stream=sys.stderr))
        if result is None:
            write(
                f"{now()}: skipped: another process executes this run, or executed its new document",
                sys.stderr,
            )
            return EXIT_LEFT_OUT
        record, trace = result
        write(trace, sys.stderr, end="")
        _flush()
        record.write(job.record)
        files.remove(job.marker, missing_ok=True)
        if not job.shares_process and named_users_code():
            break
    return FINISHED


def _watch(lifeline: int, interrupt: Interrupt) -> None:
    os.read(lifeline, 1)
    # the driver is gone: ask the run to stop twice, then exit
    interrupt.request()
    time.sleep(GRACE / 2)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE / 2)
    os._exit(FAILED)


def _redirect(job: Job) -> None:
    """Redirect all further output to the log."""
    _flush()
    log = open_log(job)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.close(log)
    for stream in (sys.stdout, sys.stderr):
        # flush after every line, because the process may be killed at any time
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True, errors="backslashreplace")
    faulthandler.enable(2)
    if job.attempt > 1:
        write(f"--- attempt {job.attempt}, {now()}", sys.stderr)


def open_log(job: Job) -> int:
    """Open the log for appending; return the file descriptor.

    Anything but a regular file is replaced, because another user may have created a link to any of this user's files.
    """
    trust(job.folder)
    return files.open_log(job.log)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if os.name == "posix":
        # flush the buffers of compiled code
        ctypes.CDLL(None).fflush(None)


def exit_process(code: int) -> None:
    """Exit this forked process without unwinding the frames inherited from its parent."""
    with suppress(Exception):
        # errors do not matter, because the records are written; the functions remove temporary folders, for example
        atexit._run_exitfuncs()
    _flush()
    os._exit(code)


def main() -> None:
    """Execute jobs read from standard input, in a process that was not forked."""
    stream = os.fdopen(os.dup(0), "rb")
    frame = read_frame(stream)
    if frame is not None:
        sys.exit(execute_jobs(pickle.loads(frame), stream.fileno()))

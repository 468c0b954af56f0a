"""Jobs, which are planned runs to be executed, and their files.

Each run of a design folder has up to three files in ``jobs/``, named like its document::

    jobs/
      <slug>.json       the record: how the run ended; renamed into place at its end
      <slug>.running    the marker: which process executes it now
      <slug>.log        the output of the run, and the traceback of its failure
      .lock             held by the command that executes the folder

The process of a run writes marker and record itself. If it dies, its marker remains, and the process that notices
this writes the record. Records of other documents (by ``hash``) and unreadable records are ignored.

During a run, its process touches the marker every :data:`HEARTBEAT_INTERVAL` seconds, which is the only sign of life
that other hosts can see.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from palaestrai_mosaik.arsenai.design.folder import FileLock
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.runner.checkpoint import INTERVAL as CHECKPOINT_EVERY
from palaestrai_mosaik.store.process import process_started, still_runs
from palaestrai_mosaik.store.store import StoreLocation

if TYPE_CHECKING:
    from .early_stopping import Reporting


def write_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Atomically write ``text`` to ``path``. A link at ``path`` is replaced, not followed.

    Args:
        path: the file.
        text: its content.
        durable: flush the file to disk.

    Raises:
        ExecutionError: the file cannot be written.
    """
    try:
        files.write_text(path, text, durable=durable)
    except OSError as error:
        raise ExecutionError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def held(lock: FileLock, folder: Path) -> Iterator[None]:
    """Hold a lock of the design folder ``folder``.

    Raises:
        ExecutionError: another process holds the lock, or it cannot be created.
    """
    with ExitStack() as stack:
        try:
            stack.enter_context(lock)
        except BlockingIOError as error:
            raise ExecutionError(f"the folder {folder} {error.strerror}: wait for it, or end it") from None
        except OSError as error:
            raise ExecutionError(f"cannot write to {lock.path.parent}: {error.strerror}") from error
        yield


RecordStatus = Literal["finished", "failed", "interrupted", "pruned"]
#: the JSON types of a record's or marker's field, by the field's annotation
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "RecordStatus": (str,),
    "int": (int,),
    "float": (int, float),
}
#: seconds between two touches of a marker
HEARTBEAT_INTERVAL = 30.0
#: seconds after which the process of an untouched marker of another host is considered dead
STALE_AFTER = 10 * HEARTBEAT_INTERVAL
#: seconds by which the recorded start of a process may differ, except on Linux
_START_TOLERANCE = 2.0


@dataclass(frozen=True, slots=True)
class Job:
    """A planned run to be executed; plain data that can be sent to another process.

    Attributes:
        run: the uid of the run.
        hash: the hash of the run's document.
        document: the path of the document.
        path: the path of the run's files in ``jobs/``, without a suffix.
        store: the store for the results.
        attempt: the number of the attempt, from 1.
        resume: the instance in the store to resume from its checkpoint, if any.
        checkpoint_every: seconds between two checkpoints; 0: no checkpoints.
        own_store: whether ``store`` belongs to this run alone. It is then created if it is missing, and the run resumes
            from the newest checkpoint in it.
        task: the scheduler's name of the cluster task that executes the run.
        allow_modules: prefixes of the modules with classes that the document may name; ``None``: all.
        shares_process: whether another run may follow in the same process, even if a document has named users' code.
        reporting: how the run reports to a search, which may stop it early; ``None``: it does not.
    """

    run: str
    hash: str
    document: Path
    path: Path
    store: StoreLocation
    attempt: int = 1
    resume: str | None = None
    checkpoint_every: float = CHECKPOINT_EVERY
    own_store: bool = False
    task: str | None = None
    allow_modules: tuple[str, ...] | None = None
    shares_process: bool = False
    reporting: Reporting | None = None

    @property
    def folder(self) -> Path:
        """The design folder."""
        return self.path.parent.parent

    @property
    def record(self) -> Path:
        """The path of the record."""
        return with_suffix(self.path, ".json")

    @property
    def marker(self) -> Path:
        """The path of the marker, which exists during the run."""
        return with_suffix(self.path, ".running")

    @property
    def log(self) -> Path:
        """The path of the log."""
        return with_suffix(self.path, ".log")

    def is_covered_by(self, file: JobRecord | Marker) -> bool:
        """Whether a record or marker belongs to this attempt at the document, or to a later one.

        Args:
            file: the record or marker of the run.
        """
        return file.hash == self.hash and file.attempt >= self.attempt


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The end of an attempt at a run.

    Attributes:
        run: the uid of the run.
        hash: the hash of the run's document.
        status: how the attempt ended.
        instance: the run's uid in ``store``; ``None`` if it had not begun.
        store: the store with the results.
        started: the start, UTC in ISO 8601.
        ended: the end, UTC in ISO 8601.
        seconds: the time between start and end.
        exit_code: 0, 1 or 130 if the run ended by itself, else that of its process (negative: the signal that killed
            it).
        error: the error message, of one or a few lines.
        host: the host of the process.
        pid: the id of the process.
        attempt: the number of the attempt, from 1.
        task: see :class:`Job`.
    """

    run: str
    hash: str
    status: RecordStatus
    instance: str | None
    store: str
    started: str
    ended: str
    seconds: float
    exit_code: int
    error: str | None
    host: str
    pid: int
    attempt: int
    task: str | None = None

    def write(self, path: Path) -> None:
        """Atomically write the record, and flush it to disk.

        Args:
            path: the path of the file.

        Raises:
            ExecutionError: the file cannot be written.
        """
        write_file(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def of_dead_process(
        cls,
        job: Job,
        marker: Marker | None,
        *,
        status: RecordStatus,
        seconds: float,
        exit_code: int,
        error: str,
    ) -> JobRecord:
        """Return the record of a run after the death of its process.

        Args:
            job: the job.
            marker: the marker that the process left, if any. A marker of an earlier attempt is ignored.
            status: how the attempt ended.
            seconds: its duration.
            exit_code: the exit code of the process.
            error: the error message.
        """
        ended = now()
        record = cls(
            run=job.run,
            hash=job.hash,
            status=status,
            instance=None,
            store=job.store.shown,
            started=ended,
            ended=ended,
            seconds=round(seconds, 3),
            exit_code=exit_code,
            error=error,
            host=socket.gethostname(),
            pid=0,
            attempt=job.attempt,
            task=job.task,
        )
        if marker is None or not job.is_covered_by(marker):
            return record
        return replace(
            record,
            instance=marker.instance,
            started=marker.started,
            host=marker.host,
            pid=marker.pid,
            attempt=marker.attempt,
            task=marker.task,
        )

    @classmethod
    def read(cls, path: Path) -> JobRecord | None:
        """Read a record.

        Args:
            path: the path of the file.

        Returns:
            The record; ``None`` if it is missing or unreadable.
        """
        values = _read(path, cls)
        return None if values is None else cls(**values)


def write_end(
    job: Job, marker: Marker | None, status: RecordStatus, error: str, *, exit_code: int, seconds: float = 0.0
) -> JobRecord:
    """Write and return the record of a run after the death of its process, and remove its marker.

    Args:
        job: the job.
        marker: the marker that the process left, if any. A marker of an earlier attempt says nothing of this one.
        status: how the attempt ended.
        error: the error message.
        exit_code: the exit code of the process.
        seconds: the duration of the attempt.
    """
    record = JobRecord.of_dead_process(
        job, marker, status=status, seconds=seconds, exit_code=exit_code, error=error
    )
    record.write(job.record)
    files.remove(job.marker, missing_ok=True)
    return record


@dataclass(frozen=True, slots=True)
class Marker:
    """The process that executes a run, its start, and the instance once it is known."""

    run: str
    hash: str
    attempt: int
    host: str
    pid: int
    pid_started: float
    started: str
    instance: str | None = None
    task: str | None = None

    @classmethod
    def of_this_process(cls, job: Job) -> Marker:
        """Return a new marker of ``job`` for this process, with the current time."""
        process = (socket.gethostname(), os.getpid(), process_started())
        return cls(job.run, job.hash, job.attempt, *process, now(), task=job.task)

    def write(self, path: Path) -> None:
        """Atomically write the marker."""
        write_file(path, json.dumps(asdict(self), indent=1) + "\n", durable=False)

    @classmethod
    def read(cls, path: Path) -> Marker | None:
        """Read the marker at ``path``; ``None`` if it is missing or unreadable."""
        values = _read(path, cls)
        return None if values is None else cls(**values)

    @property
    def of_this_host(self) -> bool:
        """Whether the process belongs to this host."""
        return self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        """Whether the process still runs. Processes of other hosts are assumed to run."""
        return not self.of_this_host or still_runs(self.pid, self.pid_started, _START_TOLERANCE)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The record and the marker of a run in ``jobs/``, if they belong to its document."""

    record: JobRecord | None
    marker: Marker | None

    @classmethod
    def of(cls, path: Path, hash: str) -> Evidence:
        """Read the evidence on the document with ``hash``; ``path``: that of its files, without a suffix."""
        record = JobRecord.read(with_suffix(path, ".json"))
        marker = Marker.read(with_suffix(path, ".running"))
        return cls(
            record if record is not None and record.hash == hash else None,
            marker if marker is not None and marker.hash == hash else None,
        )

    @property
    def attempts(self) -> int:
        """The number of attempts that have begun."""
        return max((file.attempt for file in (self.record, self.marker) if file is not None), default=0)


def is_stale(marker: Path, seconds: float = STALE_AFTER) -> bool:
    """Whether the file ``marker`` is missing, or has not been touched for ``seconds``.

    A temporary file next to it gives the file system's time, because its clock may be that of another host.
    """
    try:
        return files.file_system_time(marker) - marker.stat().st_mtime > seconds
    except FileNotFoundError:
        return True
    except OSError:  # the folder is not writable, so use this host's clock
        return time.time() - marker.stat().st_mtime > seconds


def with_suffix(path: Path, suffix: str) -> Path:
    """Append ``suffix`` to ``path``, because ``Path.with_suffix`` would cut run names that contain dots."""
    return path.with_name(path.name + suffix)


def now() -> str:
    """Return the current time, UTC in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _read(path: Path, kind: type[JobRecord | Marker]) -> dict[str, Any] | None:
    """Read the fields of a record or marker; return ``None`` if the file is missing or invalid."""
    try:
        values = json.loads(files.read_text(path))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(values, dict):
        return None
    types = {field.name: _TYPES[str(field.type)] for field in fields(kind)}
    is_whole = values.keys() == types.keys()
    return values if is_whole and all(isinstance(values[name], types[name]) for name in values) else None

"""A job (one planned run that is to be executed), its files, and what is known of it afterwards.

Each run of a design folder has up to three files in ``jobs/``, named as its document::

    jobs/
      <slug>.json       the record: how the run ended; renamed into place at its end
      <slug>.running    the marker: which process runs it now
      <slug>.log        what the run printed, and the traceback of its failure
      .lock             held by the command that executes the folder

The process of a run writes marker and record itself. A process that died leaves its marker;
the process that notices writes the record. A record that belongs to another document (its ``hash``) or
cannot be read does not count.

While a run is executing, its process touches the marker every :data:`HEARTBEAT_INTERVAL` seconds: another host can see
nothing else of it.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import FileLock
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.runner.checkpoint import INTERVAL as CHECKPOINT_EVERY
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.process import process_started, still_runs

if TYPE_CHECKING:
    from .early_stopping import Reporting


def write_file(path: Path, text: str, *, durable: bool = True) -> None:
    """Put ``text`` in place at ``path``: whole, or not at all; ``durable``: and on the disk.

    A link at ``path`` is replaced, not followed. Raises :class:`ExecutionError`.
    """
    try:
        files.write_text(path, text, durable=durable)
    except OSError as error:
        raise ExecutionError(f"cannot write {path}: {error.strerror}") from error


@contextmanager
def held(lock: FileLock, folder: Path) -> Iterator[None]:
    """Hold a lock of the design folder ``folder``.

    Raises :class:`ExecutionError` where another process holds it, or it cannot be made.
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
#: annotation of a field of a record or marker -> the types of its value in JSON
_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str, type(None)),
    "RecordStatus": (str,),
    "int": (int,),
    "float": (int, float),
}
#: seconds between two touches of a marker by the process of its run
HEARTBEAT_INTERVAL = 30.0
#: seconds after which a marker of another host that has not been touched belongs to a dead process
STALE_AFTER = 10 * HEARTBEAT_INTERVAL
#: seconds by which the start of a process may differ that an older release wrote down
_START_TOLERANCE = 2.0


@dataclass(frozen=True, slots=True)
class Job:
    """One planned run that is to be executed; plain data, to be sent to another process.

    ``run`` is the run's uid, ``hash`` that of its document, which lies at ``document``;
    ``path`` is that of its files in ``jobs/``, without a suffix. ``attempt`` counts from 1.
    ``resume`` is the instance in the store to resume from its checkpoint, if there is one;
    ``checkpoint_every`` are the seconds between two of them (0: none).

    ``own_store``: ``store`` is that of this run alone. It is made where it is missing, and the run goes
    on from the newest checkpoint that it finds there. ``task`` is what the scheduler of a
    cluster calls the task that executes the run. ``allow_modules`` are the beginnings of modules'
    names of which the document may name classes (``None``: all). ``shares_process``: another run may follow
    in its process even if a document has named users' code there. ``reporting``: what the run tells a search while
    it goes on, which may stop it early.
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

    def is_covered_by(self, found: JobRecord | Marker) -> bool:
        """Whether ``found`` is of this attempt at the document, or of a later one."""
        return found.hash == self.hash and found.attempt >= self.attempt


@dataclass(frozen=True, slots=True)
class JobRecord:
    """How an attempt at a run ended.

    ``started`` and ``ended`` are UTC in ISO 8601, ``seconds`` the time between.
    ``exit_code`` is 0, 1 or 130 where the run ended by itself, else that of its process
    (negative: the signal that killed it). ``error`` is what went wrong, one line or a few.
    ``instance`` is the run's id in ``store``, ``None`` where it had not begun. ``task`` is that of
    the :class:`Job`.
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
        """Put the record in place: whole, and on the disk, or not at all."""
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
        """Return the record of a run whose process is gone, and which left ``marker`` (``None``: nothing).

        A marker of an attempt before that of ``job`` says nothing of it.
        """
        if marker is not None and not job.is_covered_by(marker):
            marker = None
        ended = now()
        return cls(
            job.run,
            job.hash,
            status,
            None if marker is None else marker.instance,
            job.store.shown,
            ended if marker is None else marker.started,
            ended,
            round(seconds, 3),
            exit_code,
            error,
            socket.gethostname() if marker is None else marker.host,
            0 if marker is None else marker.pid,
            job.attempt if marker is None else marker.attempt,
            job.task if marker is None else marker.task,
        )

    @classmethod
    def read(cls, path: Path) -> JobRecord | None:
        """Read the record at ``path``; ``None`` if it is missing or unreadable."""
        found = _read(path, cls)
        return None if found is None else cls(**found)


@dataclass(frozen=True, slots=True)
class Marker:
    """Which process executes a run, since when, and as which instance once that is known."""

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
        """Return the marker of ``job`` for this process, from now on."""
        return cls(
            job.run,
            job.hash,
            job.attempt,
            socket.gethostname(),
            os.getpid(),
            process_started(),
            now(),
            task=job.task,
        )

    def write(self, path: Path) -> None:
        """Put the marker in place, whole."""
        write_file(path, json.dumps(asdict(self), indent=1) + "\n", durable=False)

    @classmethod
    def read(cls, path: Path) -> Marker | None:
        """Read the marker at ``path``; ``None`` if it is missing or unreadable."""
        found = _read(path, cls)
        return None if found is None else cls(**found)

    @property
    def of_this_host(self) -> bool:
        """Whether the process is one of this host."""
        return self.host == socket.gethostname()

    @property
    def alive(self) -> bool:
        """Whether the process still runs; of another host it is believed."""
        return not self.of_this_host or still_runs(self.pid, self.pid_started, _START_TOLERANCE)


def is_stale(marker: Path, seconds: float = STALE_AFTER) -> bool:
    """Whether the file ``marker`` has not been touched for ``seconds`` (or is gone).

    The clock is that of the file system, which may be another host's: a file beside it is made for that.
    """
    try:
        return files.file_system_time(marker) - marker.stat().st_mtime > seconds
    except FileNotFoundError:
        return True
    except OSError:  # a folder that cannot be written: this host's clock has to do
        return time.time() - marker.stat().st_mtime > seconds


def with_suffix(path: Path, suffix: str) -> Path:
    """Return ``path`` with ``suffix`` added (names of runs may hold dots)."""
    return path.with_name(path.name + suffix)


def now() -> str:
    """Return the time, UTC, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _read(path: Path, kind: type[JobRecord | Marker]) -> dict[str, Any] | None:
    """Return the fields of a ``kind`` that the file holds, ``None`` if it holds no such thing."""
    try:
        found = json.loads(files.read_text(path))
    except (FileNotFoundError, ValueError):
        return None
    if not isinstance(found, dict):
        return None
    types = {field.name: _TYPES[str(field.type)] for field in fields(kind)}
    # older releases wrote no task
    whole = found.keys() <= types.keys() and types.keys() - found.keys() <= {"task"}
    return found if whole and all(isinstance(found[name], types[name]) for name in found) else None

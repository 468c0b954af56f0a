"""The journal of a search: Optuna's log in the design folder, the only state that workers of a search share.

It is a file to which lines are appended under a lock that works on shared file systems, without a server. It has every
proposed setting with its process, its reports and its result. Unlike Optuna's backend, the file follows no links and names
damaged lines.
"""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NoReturn

from palaestrai_mosaik.arsenai.design.folder import trust
from palaestrai_mosaik.arsenai.design.model import Pruner
from palaestrai_mosaik.arsenai.design.settings import DAMAGED, FOLDER, JOURNAL, parse
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.core.installation import install_extra

#: seconds after which the lock of a process that was killed is removed; a holder needs milliseconds
GRACE = 30.0
#: seconds between two attempts to lock: at first, and at most
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.001, 1.0
#: bytes of the longest line; the lines of a setting with 10,000 runs have a few MB
_LONGEST_LINE = 1 << 26
#: bytes read at a time to find the end of the last whole line
_BLOCK = 1 << 16

#: distinguishes a file from an earlier one with the same name: device, inode, modification time in ns
_Identity = tuple[int, int, int]


class JournalFile:
    """Reads and appends the lines of a journal, as ``optuna.storages.journal.BaseJournalBackend``.

    Several processes may append to one file. A line that a killed process has not finished is ignored by readers, and
    removed by the next writer.

    Args:
        path: the file, below a root of :mod:`palaestrai_mosaik.core.files`. It is created if it is missing.

    Raises:
        OSError: the file cannot be written, or is a symbolic or hard link to another file.
    """

    def __init__(self, path: Path):
        self.path = path
        #: the offset of each known line, and of the next one
        self._begins = [0]
        os.close(files.open_append(path))

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """Yield the entries from number ``log_number_from`` on, counted from 0.

        Raises:
            ExecutionError: the file cannot be read, a line is damaged, or lines that were read before are gone.
        """
        number = min(log_number_from, len(self._begins) - 1)
        try:
            with files.open_read(self.path) as file:
                self._refuse_shorter(file.seek(0, os.SEEK_END))
                file.seek(self._begins[number])
                while line := self._next_line(file, number):
                    entry = parse(line)
                    if entry is None:
                        entry = self._parse_again(number)
                    if number + 1 == len(self._begins):
                        self._begins.append(self._begins[number] + len(line))
                    if number >= log_number_from:
                        yield entry
                    number += 1
        except OSError as error:
            raise ExecutionError(f"cannot read {self.path}: {error.strerror}") from error

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append all entries or none, and flush them to disk.

        Raises:
            ExecutionError: the file cannot be written, or lines that were read before are gone.
        """
        data = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        try:
            with _locked(self.path):
                handle = files.open_update(self.path)
                try:
                    self._append(handle, data)
                finally:
                    os.close(handle)
        except OSError as error:
            raise ExecutionError(f"cannot write {self.path}: {error.strerror}") from error

    def refuse_line(self, number: int, error: Exception | None = None) -> NoReturn:
        """Raise :class:`ExecutionError` for the damaged entry ``number``, counted from 0."""
        raise ExecutionError(f"{self.path}:{number + 1}: {DAMAGED}") from error

    def _append(self, handle: int, data: bytes) -> None:
        """Append ``data`` to the open file; the caller holds the lock."""
        size = _whole_size(handle)
        self._refuse_shorter(size)
        if size != os.fstat(handle).st_size:
            os.ftruncate(handle, size)
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(handle, left) :]
            os.fsync(handle)
        except OSError:
            with suppress(OSError):
                os.ftruncate(handle, size)
            raise

    def _next_line(self, file: BinaryIO, number: int) -> bytes:
        """Return the next whole line; empty at the end, or if the last line is not finished."""
        line = file.readline(_LONGEST_LINE)
        if line.endswith(b"\n"):
            return line
        if len(line) == _LONGEST_LINE:
            self.refuse_line(number)
        return b""

    def _parse_again(self, number: int) -> dict[str, Any]:
        """Return an entry that could not be read while others may have been writing it."""
        # on NFS, a reader may see the new size of a file before its new content
        with _locked(self.path), files.open_read(self.path) as file:
            file.seek(self._begins[number])
            entry = parse(self._next_line(file, number))
        if entry is None:
            self.refuse_line(number)
        return entry

    def _refuse_shorter(self, size: int) -> None:
        if size < self._begins[-1]:
            raise ExecutionError(
                f"{self.path}: lines that were read from the search's journal are gone: another process has replaced or "
                "shortened the file; end this command and start it again"
            )


def _whole_size(handle: int) -> int:
    """Return the number of bytes of an open file up to the end of its last finished line."""
    end = os.fstat(handle).st_size
    while end > 0:
        begin = max(0, end - _BLOCK)
        os.lseek(handle, begin, os.SEEK_SET)
        index = os.read(handle, end - begin).rfind(b"\n")
        if index >= 0:
            return begin + index + 1
        end = begin
    return 0


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the journal at ``path``. Raises ``OSError`` if it cannot be created."""
    lock = path.with_name(f"{path.name}.lock")
    identity = _create(lock)
    try:
        yield
    finally:
        # another process may have taken the lock of a process that was stopped for a while
        if _identity(lock) == identity:
            with suppress(FileNotFoundError):
                files.remove(lock)


def _create(lock: Path) -> _Identity:
    """Wait until the lock is free, create its file, and return its identity."""
    seen: _Identity | None = None
    since, pause = time.monotonic(), _SHORTEST_PAUSE
    while True:
        try:
            with files.open_new(lock) as file:
                status = os.fstat(file.fileno())
            return status.st_dev, status.st_ino, status.st_mtime_ns
        except FileExistsError:
            current = _identity(lock)
        if current != seen:
            seen, since, pause = current, time.monotonic(), _SHORTEST_PAUSE
        elif current is not None and time.monotonic() - since > GRACE:
            _remove_stale(lock, current)
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _remove_stale(lock: Path, stale: _Identity) -> None:
    """Remove the lock of a process that was killed, unless another process has just done so."""
    aside = files.temporary_path(lock)
    with suppress(FileNotFoundError):
        files.move(lock, aside)
        if _identity(aside) != stale:
            # this is the lock of a process that writes right now
            with suppress(FileExistsError):
                files.link(aside, lock)
        files.remove_tree(aside)


def _identity(path: Path) -> _Identity | None:
    """Return the identity of a file; ``None`` if it does not exist."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns


@cache
def optuna() -> ModuleType:
    """Import Optuna, silence its log, and return it.

    Raises:
        ExecutionError: Optuna is not installed.
    """
    try:
        import optuna as found
    except ImportError as error:
        raise ExecutionError(f"a search needs Optuna: {install_extra('search')} ({error})") from None
    module: ModuleType = found
    module.logging.set_verbosity(module.logging.ERROR)
    return module


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress Optuna's warnings of experimental features, which are safe to use because its version is pinned."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Journal:
    """The open journal of a search: Optuna's ``storage``, and the ``study`` in it."""

    path: Path
    storage: Any
    study: Any

    def trial(self, number: int) -> Any:
        """Return the current state of the trial ``number``."""
        return self.storage.get_trial(self.trial_id(number))

    def trial_id(self, number: int) -> int:
        """Return the id of the trial ``number`` in the storage."""
        trial: int = self.storage.get_trial_id_from_study_id_trial_number(self.study._study_id, number)
        return trial

    def trials(self) -> list[Any]:
        """Return the current state of all trials, in order. The caller must not modify them."""
        trials: list[Any] = self.storage.get_all_trials(self.study._study_id, deepcopy=False)
        return trials


def open_journal(folder: Path, name: str, directions: tuple[str, ...]) -> Journal:
    """Open the journal of the search in a design folder, creating it if it is missing.

    Args:
        folder: the design folder.
        name: the name of the study.
        directions: ``minimize`` or ``maximize`` for each objective.

    Raises:
        ExecutionError: Optuna is not installed, or the journal cannot be read or written.
    """
    module = optuna()
    path = folder.absolute() / FOLDER / JOURNAL
    try:
        trust(folder)
        files.make_folder(path.parent)
        backend = JournalFile(path)
    except OSError as error:
        raise ExecutionError(f"cannot write {path}: {error.strerror}") from error
    with quiet():
        storage = _storage_class()(backend)
        study = module.create_study(
            storage=storage,
            study_name=name,
            directions=list(directions),
            load_if_exists=True,
            sampler=module.samplers.RandomSampler(seed=0),
            pruner=module.pruners.NopPruner(),
        )
    return Journal(path, storage, study)


@cache
def _storage_class() -> Any:
    """Return a subclass of Optuna's journal storage that names the line that it cannot apply."""

    class Storage(optuna().storages.JournalStorage):  # type: ignore[misc]
        def _sync_with_backend(self) -> None:
            try:
                super()._sync_with_backend()
            except optuna().exceptions.OptunaError:
                # about this process's own entry, such as an existing study, or a trial that has ended
                raise
            except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
                self._backend.refuse_line(self._replay_result.log_number_read - 1, error)

    return Storage


def make_pruner(name: Pruner) -> Any:
    """Return Optuna's pruner of this name with its default settings."""
    pruners = optuna().pruners
    with quiet():
        if name == "halving":
            return pruners.SuccessiveHalvingPruner()
        if name == "hyperband":
            return pruners.HyperbandPruner()
        if name == "median":
            return pruners.MedianPruner()
        if name == "wilcoxon":
            return pruners.WilcoxonPruner()
        return pruners.NopPruner()

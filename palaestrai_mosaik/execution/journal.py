"""The journal of a search: Optuna's log in the design folder, the only state that workers of a search share.

It is a file to which whole lines are appended under a lock that works on file systems that nodes share: no server,
no network. It has every setting that was proposed, by which process, what was reported of it, and what became of it.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from palaestrai_mosaik import files
from palaestrai_mosaik.design.model import Pruner
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.installation import install_extra

#: the folder of a search in its design's folder, and its journal
FOLDER, JOURNAL = "search", "journal.log"
#: bytes that are looked at for the end of the last whole line
_TAIL = 1 << 16


@cache
def optuna() -> ModuleType:
    """Import and return Optuna, which then says nothing by itself.

    Raises :class:`ExecutionError` where it is not installed.
    """
    try:
        import optuna as found
    except ImportError as error:
        raise ExecutionError(f"a search needs Optuna: {install_extra('search')} ({error})") from None
    found.logging.set_verbosity(found.logging.ERROR)
    return found


@contextmanager
def quiet() -> Iterator[None]:
    """Leave out what Optuna warns of: that parts of it are experimental, which its version pins here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@dataclass(frozen=True)
class Journal:
    """The journal of a search, opened: Optuna's ``storage``, and the ``study`` in it."""

    path: Path
    storage: Any
    study: Any

    def trial(self, number: int) -> Any:
        """Return the trial ``number`` as it is now."""
        return self.storage.get_trial(self.trial_id(number))

    def trial_id(self, number: int) -> int:
        """Return what the storage calls the trial ``number``."""
        found: int = self.storage.get_trial_id_from_study_id_trial_number(self.study._study_id, number)
        return found

    def trials(self) -> list[Any]:
        """Return all trials as they are now, in order; they are not to be changed."""
        found: list[Any] = self.storage.get_all_trials(self.study._study_id, deepcopy=False)
        return found


def open_journal(folder: Path, name: str, directions: tuple[str, ...]) -> Journal:
    """Open the journal of the search in the design folder ``folder``, which is made where it is missing.

    Args:
        folder: the design folder.
        name: the name of the study.
        directions: ``minimize`` or ``maximize``, for each objective.

    Raises:
        ExecutionError: Optuna is not installed, or the journal cannot be read or written.
    """
    found = optuna()
    path = folder.absolute() / FOLDER / JOURNAL
    files.add_root(folder)
    try:
        files.make_folder(path.parent)
        # (Optuna opens it by its name, and would follow a link)
        os.close(files.open_append(path))
        with quiet():
            lock = found.storages.journal.JournalFileSymlinkLock(str(path))
            backend = found.storages.journal.JournalFileBackend(str(path), lock_obj=lock)
            _cut_torn_line(path, lock)
            storage = found.storages.JournalStorage(backend)
            study = found.create_study(
                storage=storage,
                study_name=name,
                directions=list(directions),
                load_if_exists=True,
                sampler=found.samplers.RandomSampler(seed=0),
                pruner=found.pruners.NopPruner(),
            )
    except OSError as error:
        raise ExecutionError(f"cannot write {path}: {error.strerror}") from error
    except ValueError as error:
        raise ExecutionError(f"the journal of the search cannot be read: {path}: {error}") from error
    return Journal(path, storage, study)


def _cut_torn_line(path: Path, lock: Any) -> None:
    """Cut off what a process that was killed while it wrote has left of a line: others would write behind it."""
    if _whole(path):
        return
    lock.acquire()
    try:
        if not _whole(path):
            size = path.stat().st_size
            begin = max(0, size - _TAIL)
            with files.open_read(path) as stream:
                stream.seek(begin)
                end = stream.read().rfind(b"\n") + 1
            files.truncate(path, begin + end)
    finally:
        lock.release()


def _whole(path: Path) -> bool:
    """Whether the file is empty, or ends with a line's end."""
    with files.open_read(path) as stream:
        if stream.seek(0, os.SEEK_END) == 0:
            return True
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) == b"\n"


def make_pruner(name: Pruner) -> Any:
    """Return Optuna's pruner of this name, with its defaults."""
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

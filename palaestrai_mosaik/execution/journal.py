"""The journal of a search: Optuna's log in the design folder, the only state that workers of a search share.

It is a file to which whole lines are appended under a lock that works on file systems that nodes share
(:mod:`.journal_file`): no server, no network. It has every setting that was proposed, by which process, what was reported of it, and what became of it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import trust
from palaestrai_mosaik.design.model import Pruner
from palaestrai_mosaik.design.search_journal import FOLDER, JOURNAL
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.installation import install_extra

from .journal_file import JournalFile


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
    try:
        trust(folder)
        files.make_folder(path.parent)
        backend = JournalFile(path)
    except OSError as error:
        raise ExecutionError(f"cannot write {path}: {error.strerror}") from error
    with quiet():
        storage = _storage_class()(backend)
        study = found.create_study(
            storage=storage,
            study_name=name,
            directions=list(directions),
            load_if_exists=True,
            sampler=found.samplers.RandomSampler(seed=0),
            pruner=found.pruners.NopPruner(),
        )
    return Journal(path, storage, study)


@cache
def _storage_class() -> Any:
    """Return Optuna's class of journals, which names the line that it cannot apply."""

    class Storage(optuna().storages.JournalStorage):  # type: ignore[misc]
        def _sync_with_backend(self) -> None:
            try:
                super()._sync_with_backend()
            except optuna().exceptions.OptunaError:
                # of this process's own entry: the study is there already, a trial has ended
                raise
            except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
                self._backend.refuse_line(self._replay_result.log_number_read - 1, error)

    return Storage


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

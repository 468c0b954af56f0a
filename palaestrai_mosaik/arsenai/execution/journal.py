"""The journal of a search: Optuna's log in the design folder, the only state that workers of a search share.

It is a file to which lines are appended under a lock that works on shared file systems (:mod:`.journal_file`), without
a server or a network connection. It has every proposed setting with its process, its reports and its result.
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

from palaestrai_mosaik.arsenai.design.folder import trust
from palaestrai_mosaik.arsenai.design.model import Pruner
from palaestrai_mosaik.arsenai.design.search_journal import FOLDER, JOURNAL
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.core.installation import install_extra

from .journal_file import JournalFile


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
    found.logging.set_verbosity(found.logging.ERROR)
    return found


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

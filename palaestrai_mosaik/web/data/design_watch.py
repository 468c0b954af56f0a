"""What is known of a design while it is shown: read again only where something has changed, and not too often."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from palaestrai_mosaik.analysis.results import Results
from palaestrai_mosaik.design.folder import JOBS, MANIFEST, STORES, SUBMISSIONS, DesignFolder, read_manifest
from palaestrai_mosaik.errors import DocumentError, StoreError
from palaestrai_mosaik.execution import RunState, RunStatus, States, TimeLeft, run_states, time_left
from palaestrai_mosaik.execution.runs import STATUSES_TO_EXECUTE
from palaestrai_mosaik.execution.status import run_file_stem
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.text import shorten
from palaestrai_mosaik.types.arrays import IntArray

from ..resources import ResourceError, Source

#: seconds between two looks at a folder that changes
_CHANGING = 1.0
#: seconds after which a folder is looked at though no file has changed: a process may have died
_UNCHANGED = 10.0
#: a look that takes long is taken less often: at most one part of so many of the time goes into looks
_SHARE = 8
#: seconds between two questions to a scheduler
ASK_EVERY = 10.0
_LONGEST_ERROR = 500
#: what a scheduler does not know better
_SURE = frozenset({RunStatus.FINISHED, RunStatus.FAILED, RunStatus.RUNNING})


@dataclass(frozen=True, slots=True)
class DesignStates:
    """The states of a design's runs at one moment.

    Attributes:
        version: grows with each change.
        states: the state of each run that is executed, in the order of the design.
        instances: the uid of the instance in the store that shows each run; ``None`` where the store has none.
        errors: what went wrong, one line for each run; ``None`` where nothing did.
        changed: the version in which each run changed last.
        finished: grows with each change of the runs whose results the store has.
        left: how long the missing runs will take.
    """

    version: int
    states: States
    instances: tuple[str | None, ...]
    errors: tuple[str | None, ...]
    changed: IntArray
    finished: int
    left: TimeLeft

    def statuses(self) -> list[RunStatus]:
        """Return the status of each run."""
        return [state.status for state in self.states.runs]


class DesignWatch:
    """Looks at the runs of a design folder.

    Args:
        folder: the design folder.
        store: where its results are.
    """

    def __init__(self, folder: DesignFolder, store: Store):
        self.folder, self.store = folder, store
        self._states: DesignStates | None = None
        self._results: tuple[int, Results] | None = None
        self._lock, self._results_lock = threading.Lock(), threading.Lock()
        #: when the last look ended, what it took, and what the files were like before it
        self._looked, self._cost, self._files = 0.0, 0.0, _Files()
        self._asked: float | None = None
        self._generated = _modified(folder.path / MANIFEST)

    def states(self) -> DesignStates:
        """Return the states of all runs, which are at most some seconds old."""
        with self._lock:
            if self._states is None or self._is_due():
                begun = time.monotonic()
                self._files = self._read_files()
                self._states = self._compared(self._look())
                self._looked = time.monotonic()
                self._cost = self._looked - begun
            return self._states

    def results(self) -> tuple[int, Results]:
        """Return the results of the runs that have finished, and the number ``finished`` of their states.

        Outcomes are read as far as they can be; the results raise again what they raised then.
        """
        finished = self.states().finished
        with self._results_lock:
            if self._results is None or self._results[0] != finished:
                last = self._results
                fresh = Results(self.folder, self.store) if last is None else last[1].refreshed()
                # several threads must not read the same outcomes
                with suppress(StoreError):
                    fresh.outcomes()
                self._results = finished, fresh
            return self._results

    def problems(self) -> list[str]:
        """Return what the reader must know of the folder: schedulers that do not answer, a folder that was exchanged."""
        found = [
            f"the scheduler did not answer, and its runs are shown as lost or waiting: {problem}"
            for problem in self.states().states.problems
        ]
        if _modified(self.folder.path / MANIFEST) != self._generated and self._is_exchanged():
            found.append(
                "the design's folder was generated anew since it was opened: end this command and start it again"
                if self.folder.spec.search is None
                else "the search has new settings since the folder was opened: end this command and start it again"
            )
        return found

    def _is_exchanged(self) -> bool:
        try:
            return read_manifest(self.folder.path) != self.folder.manifest
        except DocumentError:
            return True

    def _is_due(self) -> bool:
        age = time.monotonic() - self._looked
        if age >= max(_UNCHANGED, 2 * _SHARE * self._cost):
            return True
        return age >= max(_CHANGING, _SHARE * self._cost) and self._read_files() != self._files

    def _read_files(self) -> _Files:
        path, directory = self.folder.path, self.store.directory
        folders = (path / JOBS, path / STORES, path / SUBMISSIONS)
        databases = (directory / "store.db", directory / "store.db-wal")
        return _Files(tuple(map(_modified, folders)), tuple(map(_modified, databases)))

    def _look(self) -> States:
        now = time.monotonic()
        ask = self._asked is None or now - self._asked >= ASK_EVERY
        states = run_states(self.folder, self.store, ask=ask)
        if ask:
            self._asked = time.monotonic()
            return states
        # between two questions, what a scheduler said last counts
        assert self._states is not None
        before = {state.planned.uid: state for state in self._states.states.runs}
        runs = tuple(_as_told(state, before[state.planned.uid]) for state in states.runs)
        return replace(states, runs=runs, problems=self._states.states.problems)

    def _compared(self, states: States) -> DesignStates:
        """Return the states, with what has changed since the last ones."""
        instances = tuple(map(_instance, states.runs))
        errors = tuple(self._errors(states))
        before = self._states
        if before is None:
            left = time_left(self.folder, states)
            return DesignStates(
                1, states, instances, errors, np.ones(len(instances), dtype=np.int64), 1, left
            )
        old = list(zip(before.statuses(), before.instances, before.errors, strict=True))
        new = list(zip((state.status for state in states.runs), instances, errors, strict=True))
        differs = np.array([one != other for one, other in zip(old, new, strict=True)], dtype=bool)
        if not differs.any():
            return replace(before, states=states, left=time_left(self.folder, states))
        version = before.version + 1
        changed = np.where(differs, version, before.changed)
        results = [_result(one) for one in new] != [_result(one) for one in old]
        left = time_left(self.folder, states)
        return DesignStates(version, states, instances, errors, changed, before.finished + results, left)

    def _errors(self, states: States) -> Iterator[str | None]:
        recorded: Mapping[str, str] = {}
        failed = STATUSES_TO_EXECUTE["failed"]
        unknown = [
            state.planned.hash
            for state in states.runs
            if state.status is RunStatus.FAILED and state.error is None and state.instances
        ]
        if unknown:  # its files in jobs/ were deleted
            frame = self.store.newest_runs(unknown, self.folder.contents)
            recorded = {
                hash_: error for hash_, error in zip(frame["hash"], frame["error"], strict=True) if error
            }
        for state in states.runs:
            error = state.error or recorded.get(state.planned.hash)
            if error is None and state.status in failed:
                error = str(state.status)
            yield None if error is None else shorten(error.strip().split("\n")[0], _LONGEST_ERROR)


@dataclass(frozen=True, slots=True)
class _Files:
    """When folders of the design, and the store's database, were modified; ``None`` where they are missing."""

    folders: tuple[int | None, ...] = ()
    databases: tuple[int | None, ...] = ()


def _modified(path: Path) -> int | None:
    with suppress(OSError):
        return os.stat(path).st_mtime_ns
    return None


def _as_told(state: RunState, before: RunState) -> RunState:
    """Return the state of a run without its scheduler's word, or what that said before."""
    return state if state.assignment is None or state.status in _SURE else before


def _instance(state: RunState) -> str | None:
    """Return the instance that shows a run: a finished one if there is one, else the newest."""
    finished = [one.uid for one in state.instances if one.status == "finished"]
    uids = finished or [one.uid for one in state.instances]
    return uids[-1] if uids else None


def _result(state: tuple[Any, ...]) -> str | None:
    """Return the instance whose outcomes count, or the error: what an analysis is made of."""
    status, instance, _ = state
    return instance if status in (RunStatus.FINISHED, RunStatus.FAILED) else None


def log_of(state: RunState) -> str:
    """Return the log that explains how a run ended, relative to the folder."""
    if state.before is not None and state.assignment is not None and state.assignment.log is not None:
        return state.assignment.log
    return f"{JOBS}/{run_file_stem(state.planned)}.log"


@lru_cache(maxsize=4)
def _watch(folder: DesignFolder, store: Store) -> DesignWatch:
    return DesignWatch(folder, store)


_LOCK = threading.Lock()


def watch(source: Source) -> DesignWatch:
    """Return what looks at the design of a source, the same for the same source.

    Raises:
        ResourceError: no design is shown.
    """
    if source.folder is None:
        raise ResourceError("no design is shown here: arsenai serve FOLDER shows one")
    with _LOCK:
        return _watch(source.folder, source.store)

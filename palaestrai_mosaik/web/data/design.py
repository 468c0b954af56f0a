"""A design in the page: its watched folder, factors and rows, the states of its runs, their outcomes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from palaestrai_mosaik.arsenai.analysis.results import Results, labels
from palaestrai_mosaik.arsenai.design.folder import JOBS, MANIFEST, STORES, SUBMISSIONS, DesignFolder
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, Factor
from palaestrai_mosaik.arsenai.design.settings import FOLDER, JOURNAL
from palaestrai_mosaik.arsenai.execution import RunState, RunStatus, States, TimeLeft, run_states, time_left
from palaestrai_mosaik.arsenai.execution.status import STATUSES_TO_EXECUTE, run_file_stem
from palaestrai_mosaik.core.errors import DocumentError, StoreError
from palaestrai_mosaik.core.printing import shorten
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types.arrays import Array, IntArray

from ..resources import Query, ResourceError, Source, resource

#: seconds between two checks of a changing folder
_CHANGING = 1.0
#: seconds after which an unchanged folder is checked, because a process may have died
_UNCHANGED = 10.0
#: checks take at most one part in this number of the time, so slow checks are made less often
_SHARE = 8
#: seconds between two queries to a scheduler
ASK_EVERY = 10.0
_LONGEST_ERROR = 500
#: statuses that do not depend on a scheduler
_SURE = frozenset({RunStatus.FINISHED, RunStatus.FAILED, RunStatus.RUNNING})


@dataclass(frozen=True, slots=True)
class DesignStates:
    """The states of a design's runs at one moment.

    Attributes:
        version: increases with each change.
        states: the state of each executed run, in the order of the design.
        instances: the uid of the instance in the store that shows each run; ``None`` if the store has none.
        errors: the error of each run in one line; ``None`` for runs without errors.
        changed: the version of each run's last change.
        finished: increases with each change of the runs with results in the store.
        left: the estimated time for the missing runs.
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
    """Watches the runs of a design folder, which may get more rows from a search.

    Args:
        folder: the design folder.
        store: the store of its results.
        before: the last version of an earlier watch for the same folder with another store.

    Attributes:
        folder: the folder with all rows of the last check.
        store: as given to the constructor.
    """

    def __init__(self, folder: DesignFolder, store: Store, before: int = 0):
        self.folder, self.store = folder, store
        self._before = before
        self._states: DesignStates | None = None
        self._results: tuple[int, Results] | None = None
        self._lock, self._results_lock = threading.Lock(), threading.Lock()
        #: the end and duration of the last check, and the files' modification times before it
        self._looked, self._cost, self._files = 0.0, 0.0, _Files()
        self._asked: float | None = None
        #: modification time of the manifest that was read last (``None``: unknown), and the problem with it
        self._generated: int | None = None
        self._exchanged: str | None = None

    @property
    def version(self) -> int:
        """The last version that was returned."""
        return self._before if self._states is None else self._states.version

    def states(self) -> DesignStates:
        """Return the states of all runs, which are at most some seconds old."""
        with self._lock:
            if self._states is None or self._is_due():
                started = time.monotonic()
                files = self._read_files()
                self._follow()
                self._states = self._compared(self._look())
                # After an error, the next call looks again.
                self._files, self._looked = files, time.monotonic()
                self._cost = self._looked - started
            return self._states

    def results(self) -> tuple[int, Results]:
        """Return the results of the finished runs, and the number ``finished`` of their states.

        Outcomes are read in advance; an error in reading is raised again when the results are used.
        """
        finished = self.states().finished
        with self._results_lock:
            if self._results is None or self._results[0] != finished:
                last = self._results
                fresh = Results(self.folder, self.store) if last is None else last[1].refreshed(self.folder)
                # read the outcomes here, so that threads do not read them several times
                with suppress(StoreError):
                    fresh.outcomes()
                self._results = finished, fresh
            return self._results

    def problems(self) -> list[str]:
        """Return warnings about the folder: schedulers that do not answer, and a folder that was generated again."""
        problems = [
            f"the scheduler did not answer, and its runs are shown as lost or waiting: {problem}"
            for problem in self.states().states.problems
        ]
        return [*problems, *([] if self._exchanged is None else [self._exchanged])]

    def _follow(self) -> None:
        """Read the rows that were added to the folder, if its manifest has been replaced since the last read."""
        manifest = _modified(self.folder.path / MANIFEST)
        if manifest == self._generated:
            return
        try:
            self.folder, self._exchanged = self.folder.refreshed(), None
        except DocumentError:
            self._exchanged = "the design's folder was generated again since it was opened: end this command and start it again"
            # a round may be being added right now, so try again at the next check
            return
        self._generated = manifest

    def _is_due(self) -> bool:
        age = time.monotonic() - self._looked
        if age >= max(_UNCHANGED, 2 * _SHARE * self._cost):
            return True
        return age >= max(_CHANGING, _SHARE * self._cost) and self._read_files() != self._files

    def _read_files(self) -> _Files:
        path, directory = self.folder.path, self.store.directory
        folders = (path / JOBS, path / STORES, path / SUBMISSIONS, path / MANIFEST, path / FOLDER / JOURNAL)
        databases = (directory / "store.db", directory / "store.db-wal")
        return _Files(tuple(map(_modified, folders)), tuple(map(_modified, databases)))

    def _look(self) -> States:
        now = time.monotonic()
        ask = self._asked is None or now - self._asked >= ASK_EVERY
        states = run_states(self.folder, self.store, ask=ask)
        if ask:
            self._asked = time.monotonic()
            return states
        # between two queries, the scheduler's last answer is used
        assert self._states is not None
        before = {state.planned.uid: state for state in self._states.states.runs}
        runs = tuple(_sure_or_before(state, before.get(state.planned.uid, state)) for state in states.runs)
        return replace(states, runs=runs, problems=self._states.states.problems)

    def _compared(self, states: States) -> DesignStates:
        """Return the new states, with the changes since the previous ones."""
        instances, errors = tuple(map(_instance, states.runs)), tuple(self._errors(states))
        before, left = self._states, time_left(self.folder, states)
        if before is None:
            version = self._before + 1
            changed = np.full(len(instances), version, dtype=np.int64)
            return DesignStates(version, states, instances, errors, changed, version, left)
        old = list(zip(before.statuses(), before.instances, before.errors, strict=True))
        new = list(zip((state.status for state in states.runs), instances, errors, strict=True))
        added = len(new) - len(old)
        differs = np.array([item != other for item, other in zip_longest(old, new)], dtype=bool)
        if not differs.any():
            return replace(before, states=states, left=left)
        version = before.version + 1
        changed = np.where(differs, version, np.append(before.changed, np.zeros(added, dtype=np.int64)))
        results = [_result(item) for item in new] != [_result(item) for item in old] + [None] * added
        finished = version if results else before.finished
        return DesignStates(version, states, instances, errors, changed, finished, left)

    def _errors(self, states: States) -> Iterator[str | None]:
        """Yield the error of each run in one line, from the store if its files in ``jobs/`` were deleted."""
        unknown = [
            state.planned.hash
            for state in states.runs
            if state.status is RunStatus.FAILED and state.error is None and state.instances
        ]
        recorded: Mapping[str, str | None] = {}
        if unknown:
            frame = self.store.newest_runs(unknown, self.folder.contents)
            recorded = dict(zip(frame["hash"], frame["error"], strict=True))
        for state in states.runs:
            is_failed = state.status in STATUSES_TO_EXECUTE["failed"]
            error = (
                state.error or recorded.get(state.planned.hash) or (str(state.status) if is_failed else None)
            )
            yield None if error is None else shorten(error.strip().split("\n")[0], _LONGEST_ERROR)


@dataclass(frozen=True, slots=True)
class _Files:
    """Modification times of parts of the design's folder, and of the store's database; ``None`` for missing files."""

    folders: tuple[int | None, ...] = ()
    databases: tuple[int | None, ...] = ()


def _modified(path: Path) -> int | None:
    with suppress(OSError):
        return os.stat(path).st_mtime_ns
    return None


def _sure_or_before(state: RunState, before: RunState) -> RunState:
    """Return the state of a run, or its state before if the new one depends on a scheduler that was not queried."""
    return state if state.assignment is None or state.status in _SURE else before


def _instance(state: RunState) -> str | None:
    """Return the instance that shows a run: the newest finished one, or the newest of all if none has finished."""
    finished = [instance for instance in state.instances if instance.status == "finished"]
    return next((instance.uid for instance in reversed(finished or state.instances)), None)


def _result(state: tuple[Any, ...]) -> str | None:
    """Return the data of a run that an analysis depends on: the instance with the outcomes, or the failed instance."""
    status, instance, _ = state
    return instance if status in (RunStatus.FINISHED, RunStatus.FAILED) else None


def log_of(state: RunState) -> str:
    """Return the log that explains how a run ended, relative to the folder."""
    if state.before is not None and state.assignment is not None and state.assignment.log is not None:
        return state.assignment.log
    return f"{JOBS}/{run_file_stem(state.planned)}.log"


_WATCHES: WeakKeyDictionary[Source, DesignWatch] = WeakKeyDictionary()
_LOCK = threading.Lock()


def watch(source: Source) -> DesignWatch:
    """Return the watch of a source's design, the same object as long as its store is the same.

    Raises:
        ResourceError: no design is shown.
    """
    if source.folder is None:
        raise ResourceError("no design is shown here: arsenai serve FOLDER shows one")
    store = source.store
    with _LOCK:
        current = _WATCHES.get(source)
        if current is None:
            current = _WATCHES[source] = DesignWatch(source.folder, store)
        elif current.store is not store:
            # the first run has created the store, so a page that is already open must get all runs
            current = _WATCHES[source] = DesignWatch(current.folder, store, current.version)
        return current


#: the statuses; the page gets their indices
_STATUSES = list(RunStatus)
_LOGARITHMIC = ("loguniform", "lognormal")


@resource("design")
def design(source: Source, query: Query) -> dict[str, Any]:
    """Return the parts of a design that are fixed when it is generated. A search adds rows later (:func:`rows`).

    ``cells`` are the repetitions of the rows, row by row: the number of the run that is executed for each, an index of
    ``runs``. Rows with identical documents share a run.
    """
    folder = watch(source).folder
    spec, counts = folder.spec, folder.manifest["counts"]
    factors = [_factor(axis, factor) for axis in spec.axes for factor in axis.factors]
    added = _rows(folder, 0)
    return {
        "uid": spec.uid,
        "folder": str(folder.path),
        "sampler": {
            "name": spec.sampler.name if spec.search is None else spec.search.sampler,
            "n": spec.sampler.n,
            "options": [f"{k}: {value}" for k, value in spec.sampler.options.items() if value is not None],
        },
        "search": spec.search is not None,
        "rows": counts["rows"],
        "rejected": counts["rejected"],
        "repetitions": spec.repetitions,
        "seeds": spec.seed_policy,
        "constraints": list(spec.constraints),
        "warnings": list(folder.sample.warnings),
        "factors": [
            {**description, "values": values}
            for description, values in zip(factors, added["values"], strict=True)
        ],
        "cells": added["cells"],
        "runs": added["runs"],
        "statuses": [str(status) for status in _STATUSES],
    }


@resource("design/rows")
def rows(source: Source, query: Query) -> dict[str, Any]:
    """Return the rows of the design after the first ``from`` rows.

    ``rows`` is the total number of rows. ``cells`` and ``runs`` are those of :func:`design`, with runs counted over all
    rows; ``values`` has the column of each factor.
    """
    return _rows(watch(source).folder, query.integer("from", 0))


def _rows(folder: DesignFolder, first: int) -> dict[str, Any]:
    spec, count = folder.spec, folder.manifest["counts"]["rows"]
    documents = folder.documents
    number = {run.uid: i for i, run in enumerate(documents)}
    cells = np.zeros((count, spec.repetitions), dtype=np.int64)
    for run in folder.runs:
        cells[run.row, run.repetition] = number[run.run]
    values = folder.values(first)
    added = [run for run in documents if run.row >= first]
    return {
        "rows": count,
        "cells": cells[first:].ravel(),
        "runs": {
            "uid": [run.uid for run in added],
            "row": np.array([run.row for run in added], dtype=np.int64),
            "repetition": np.array([run.repetition for run in added], dtype=np.int64),
        },
        "values": [column_of(factor, values) for axis in spec.axes for factor in axis.factors],
    }


def _factor(axis: Axis, factor: Factor) -> dict[str, Any]:
    """Return the description of a factor."""
    zipped = [other.name for other in axis.factors if other is not factor]
    return {
        "name": factor.name,
        "levels": list(factor.labels) if factor.kind == "levels" else None,
        "whole": factor.kind == "int",
        "log": is_logarithmic(factor),
        "path": factor.path,
        "when": factor.when,
        "zipped": zipped,
        "group": axis.group,
    }


def is_logarithmic(factor: Factor) -> bool:
    """Whether a factor is drawn on a logarithmic axis."""
    return factor.kind != "levels" and factor.dist in _LOGARITHMIC


def column_of(factor: Factor, values: Sequence[Mapping[str, Any]]) -> Array:
    """Return the value of a factor in each row: a number, or the index of its level.

    If the factor is inactive, the number is NaN, and the index is -1.
    """
    if factor.kind == "levels":
        indices = {label: i for i, label in enumerate(factor.labels)}
        row_labels = labels([factor], values)
        return np.array([-1 if label is None else indices[label] for label in row_labels], dtype=np.int64)
    numbers = (row[factor.name] for row in values)
    return np.array([np.nan if number is INACTIVE else number for number in numbers], dtype=np.float64)


@resource("design/states")
def states(source: Source, query: Query) -> dict[str, Any]:
    """Return the states of all runs, or with ``since`` of those that have changed after that version.

    ``rows`` is the number of rows in the design; a page with fewer rows gets the others from :func:`rows`.
    """
    design_watch = watch(source)
    current = design_watch.states()
    since = query.integer("since", 0)
    chosen = (
        np.flatnonzero(current.changed > since)
        if since <= current.version
        else np.arange(len(current.changed))
    )
    runs = current.states.runs
    counts = dict.fromkeys(_STATUSES, 0)
    for state in runs:
        counts[state.status] += 1
    code = {status: i for i, status in enumerate(_STATUSES)}
    picked = chosen.tolist()
    return {
        "version": current.version,
        "rows": design_watch.folder.manifest["counts"]["rows"],
        "finished": current.finished,
        "counts": {str(status): number for status, number in counts.items() if number},
        "seconds_per_run": current.left.seconds_per_run,
        "processes": current.left.processes,
        "seconds_left": current.left.seconds,
        "not_collected": sum(not state.collected for state in runs),
        "problems": design_watch.problems(),
        "changed": {
            "run": chosen,
            "status": np.array([code[runs[i].status] for i in picked], dtype=np.uint8),
            "instance": [current.instances[i] for i in picked],
            "errors": [
                [i, current.errors[i], log_of(runs[i])] for i in picked if current.errors[i] is not None
            ],
        },
    }


@resource("design/outcomes")
def outcomes(source: Source, query: Query) -> dict[str, Any]:
    """Return the outcomes of the finished runs that have results in the store.

    ``values`` are those of the cells of the design (:func:`design`), NaN if missing. With ``since`` (an earlier
    ``finished``), only this number is returned if it has not changed.
    """
    finished, results = watch(source).results()
    if query.integer("since") == finished:
        return {"finished": finished, "unchanged": True}
    problem, frame = None, None
    try:
        specs, frame = results.outcome_specs, results.outcomes()
    except StoreError as error:
        specs, problem = results.spec.outcomes, str(error)
    answer = []
    for spec in specs:
        values = np.full(len(results.folder.runs), np.nan)
        if frame is not None:
            # for a search, the frame only has settings that were executed in full
            values[frame["row"] * results.spec.repetitions + frame["repetition"]] = frame[spec.name]
        answer.append({"name": spec.name, "better": spec.better, "of": spec.of, "values": values})
    return {"finished": finished, "outcomes": answer, "problem": problem}

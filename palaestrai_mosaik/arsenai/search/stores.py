"""The stores of a search's runs: the common one, and those of single runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from palaestrai_mosaik.arsenai.analysis.outcomes import take
from palaestrai_mosaik.arsenai.design.folder import PlannedRun
from palaestrai_mosaik.arsenai.design.model import OutcomeSpec
from palaestrai_mosaik.arsenai.design.settings import seconds_between
from palaestrai_mosaik.arsenai.execution.cluster.submission import run_store_location
from palaestrai_mosaik.arsenai.execution.job import JobRecord
from palaestrai_mosaik.arsenai.execution.run_store import instances_of
from palaestrai_mosaik.arsenai.execution.status import run_file_stem
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.runner.checkpoint import resumable
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import instance_uids
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.store import StoreLocation


@dataclass(frozen=True, slots=True)
class Worker:
    """A process that works on a search: its permissions, and the stores of its runs.

    Attributes:
        store: the common store of the runs; ``None``: it is out of reach, as on a node of a cluster.
        own_store: whether each run records into a store of its own.
        task: the scheduler's name of the task of this process; ``None``: it belongs to none.
        most: number of runs after which no setting begins; ``None``: unlimited.
        writes: whether it writes documents and tables.
    """

    store: StoreLocation | None
    own_store: bool = False
    task: str | None = None
    most: int | None = None
    writes: bool = True


class RunStores:
    """The stores of the runs of the search in the folder ``path``, as far as ``worker`` reaches them.

    The common store stays open until :meth:`close`.
    """

    def __init__(self, path: Path, worker: Worker):
        self._path, self._worker = path, worker
        self._store: Store | None = None

    def close(self) -> None:
        """Close the common store."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def own(self, run: PlannedRun) -> StoreLocation:
        """Return the location of the run's own store."""
        return run_store_location(self._path, run_file_stem(run))

    def location(self, run: PlannedRun, instance: str) -> StoreLocation | None:
        """Return the store of an instance: the run's own, otherwise the common one, or None if that is out of reach."""
        own_store = self.own(run)
        return own_store if (Path(own_store.location) / INSTANCES / instance).is_dir() else self._worker.store

    def records_alone(self, run: PlannedRun) -> bool:
        """Whether the next attempt of a run records into its own store: all do, or an earlier one of it did."""
        return self._worker.own_store or bool(instance_uids(Path(self.own(run).location)))

    def has(self, run: PlannedRun, instance: str) -> bool:
        """Whether the store of an instance has it. Raises :class:`StoreError` if that store is out of reach."""
        with self.of_instance(run, instance) as store:
            instances = instances_of(store, [run.hash]).get(run.hash, ())
            return any(candidate.uid == instance for candidate in instances)

    def earlier(self, run: PlannedRun) -> tuple[str | None, str | None]:
        """Return the finished instance in the common store, and the one that can be resumed, or None for each."""
        if self._worker.store is None:
            return None, None
        with self._opened(self._worker.store) as store:
            instances = instances_of(store, [run.hash]).get(run.hash, [])
            finished = next(
                (candidate.uid for candidate in instances if candidate.status == "finished"), None
            )
            return finished, resumable(store, [candidate[:2] for candidate in instances])

    def _opened(self, location: StoreLocation) -> _Opened:
        if location != self._worker.store:
            return _Opened(location.open(create=True, journal="delete"), keep=False)
        if self._store is None:
            self._store = location.open(create=True)
        return _Opened(self._store, keep=True)

    def of_instance(self, run: PlannedRun, instance: str) -> _Opened:
        """Open the store of an instance. Raises :class:`StoreError` if it is out of reach."""
        location = self.location(run, instance)
        if location is None:
            raise StoreError(f"the own store of run {run.uid} is gone")
        return self._opened(location)

    def outcomes(self, run: PlannedRun, instance: str, outcomes: Sequence[OutcomeSpec]) -> dict[str, float]:
        """Return the outcomes of an instance by name, NaN for those that it lacks.

        Raises :class:`StoreError` if its store is out of reach, or has nothing that such an outcome could be.
        """
        with self.of_instance(run, instance) as store:
            taken = {outcome.name: take(store, [instance], outcome) for outcome in outcomes}
        return {name: values.get(instance, float("nan")) for name, values in taken.items()}

    def record_of(self, run: PlannedRun, instance: str) -> JobRecord:
        """Build the record of a finished run after its process was killed without writing one."""
        assert self._worker.store is not None
        with self._opened(self._worker.store) as store:
            frame = store.runs()
            row = frame[frame["run"] == instance].iloc[0]
        started, ended = (row[name].isoformat() for name in ("started", "ended"))
        return JobRecord(
            *(run.uid, run.hash, "finished", instance, self._worker.store.shown, started, ended),
            *(seconds_between(started, ended), 0, None, "", 0, 1, self._worker.task),
        )


class _Opened:
    """A context manager for a store: it closes the store of a run, but not that of the search."""

    def __init__(self, store: Store, *, keep: bool):
        self._store, self._keep = store, keep

    def __enter__(self) -> Store:
        return self._store

    def __exit__(self, *error: object) -> None:
        if not self._keep:
            self._store.close()

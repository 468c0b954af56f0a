"""The stores of a search's runs: the common one, and those of single runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from palaestrai_mosaik.arsenai.analysis.outcomes import take
from palaestrai_mosaik.arsenai.design.folder import PlannedRun
from palaestrai_mosaik.arsenai.design.model import OutcomeSpec
from palaestrai_mosaik.arsenai.design.settings import seconds_between
from palaestrai_mosaik.arsenai.execution.cluster.submission import run_store_location
from palaestrai_mosaik.arsenai.execution.job import Evidence, JobRecord
from palaestrai_mosaik.arsenai.execution.run_store import instances_of
from palaestrai_mosaik.arsenai.execution.status import RECORDED, job_path, run_file_stem
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

    def final_record(self, run: PlannedRun) -> JobRecord | None:
        """Return the record of a run that needs no further attempt; None: it is to be executed.

        The record of a run with results out of reach (:meth:`location`) is final, because they may have been collected.
        """
        record = Evidence.of(job_path(self._path, run), run.hash).record
        if record is not None and record.status == "failed" and record.exit_code > 0:
            # It failed by itself, and its worker was killed before it could report that.
            return record
        if record is not None and record.status in RECORDED and record.instance is not None:
            location = self.location(run, record.instance)
            if location is None or record.instance in self._statuses(location, run):
                return record
        statuses = {} if self._worker.store is None else self._statuses(self._worker.store, run)
        finished = next((uid for uid, status in statuses.items() if status == "finished"), None)
        return None if finished is None else self._record_of(run, finished)

    def _statuses(self, location: StoreLocation, run: PlannedRun) -> dict[str, str]:
        """Return the status of each instance of a run in a store, by uid; the newest last."""
        with self._opened(location) as store:
            instances = instances_of(store, [run.hash]).get(run.hash, [])
        return {instance.uid: instance.status for instance in instances}

    def resumable(self, run: PlannedRun) -> str | None:
        """Return the instance of a run in the common store that can be resumed, or None."""
        if self._worker.store is None:
            return None
        with self._opened(self._worker.store) as store:
            return resumable(store, list(self._statuses(self._worker.store, run).items()))

    @contextmanager
    def _opened(self, location: StoreLocation) -> Iterator[Store]:
        """Open a store, and close it again if it is a run's own."""
        if location != self._worker.store:
            with location.open(create=True, journal="delete") as store:
                yield store
            return
        if self._store is None:
            self._store = location.open(create=True)
        yield self._store

    def of_instance(self, run: PlannedRun, instance: str) -> AbstractContextManager[Store]:
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

    def _record_of(self, run: PlannedRun, instance: str) -> JobRecord:
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

"""Results of a search that are gone because the store, or runs in it, were deleted.

Their runs are executed again with the same documents. The journal has their outcomes, so nothing is written there, and
they do not count for the budget a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from palaestrai_mosaik.arsenai.design.settings import SettingRecord
from palaestrai_mosaik.arsenai.execution.cluster.submission import run_store_location
from palaestrai_mosaik.arsenai.execution.job import Job, JobRecord
from palaestrai_mosaik.arsenai.execution.runs import STATUSES_TO_EXECUTE
from palaestrai_mosaik.arsenai.execution.status import RunState, States, run_file_stem
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.urls import is_database

from .search import Search
from .settings import runs_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LostResults:
    """The lost results of a search.

    Attributes:
        runs: the runs that have ended, and whose results are in no store any more.
        other_store: another existing store into which some of these runs have recorded; ``None``: there is none.
    """

    runs: tuple[RunState, ...] = ()
    other_store: str | None = None

    @classmethod
    def of(cls, folder: Path, states: States, store: StoreLocation) -> LostResults:
        """Determine the lost results of the search in a folder.

        Args:
            folder: the folder.
            states: the states of its runs.
            store: the common store from which these were determined.
        """
        runs = states.lost_results
        return cls(runs, next(filter(None, (_other_store(folder, state, store) for state in runs)), None))

    def to_execute(self, *, retry_failed: bool = False) -> list[RunState]:
        """Return the runs to execute again; those that have failed at that only on request."""
        statuses = STATUSES_TO_EXECUTE["unfinished" if retry_failed else "missing"]
        return [state for state in self.runs if state.status in statuses]


def _other_store(folder: Path, state: RunState, store: StoreLocation) -> str | None:
    """Return the store that a run's record names, if it exists and is not one of those that were searched."""
    if state.record is None:
        return None
    recorded_in = state.record.store
    own_store = run_store_location(folder, run_file_stem(state.planned))
    if recorded_in in (store.shown, own_store.shown):
        return None
    return recorded_in if is_database(recorded_in) or Path(recorded_in, "store.db").exists() else None


class Recovery:
    """Executes ``runs`` with lost results again.

    Attributes:
        recorded: the number of runs that have recorded results again.
    """

    def __init__(self, search: Search, runs: Sequence[RunState]):
        self._search = search
        #: the runs whose results are still lost, by uid
        self._lost = {state.planned.uid: state.planned for state in runs}
        self._runs, self.recorded = tuple(runs), 0

    def __bool__(self) -> bool:
        return bool(self._runs)

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs of the runs; with ``fail_fast``, until one of them fails."""
        search = self._search
        for state in self._runs:
            if search.fail_fast and search.failures:
                return
            run = state.planned
            ended = runs_of(search.journal.trial(run.row))
            setting = search.write_documents(run.row)
            reporting = None
            if ended[run.repetition].status == "pruned":
                # The journal has its reports and the one at which it stops.
                reporting = search.reporting(setting, ended[: run.repetition])
            resume = search.stores.earlier(run)[1]
            yield search.start(run, state.attempts + 1, resume, reporting)

    def ended(self, record: JobRecord) -> None:
        """Process the end of a run; warn if its outcomes differ from those in the journal."""
        search = self._search
        if record.status == "failed":
            search.failures.append(record)
        if record.status not in ("finished", "pruned") or record.instance is None:
            return
        self.recorded += 1
        run = self._lost.pop(record.run)
        before = runs_of(search.journal.trial(run.row))[run.repetition]
        outcomes: dict[str, float] = {}
        try:
            if record.status == "finished" and before.outcomes:
                outcomes = search.stores.outcomes(run, record.instance, search.outcomes)
        except StoreError as error:
            logger.warning(
                "run %s was executed again, and its outcomes cannot be read: %s", record.run, error
            )
            return
        if (record.status, outcomes) != (before.status, before.outcomes):
            logger.warning(
                "run %s was executed again, and its result differs from the former one (%s, now %s): its code, its data "
                "or the packages have changed",
                *(record.run, before.outcomes or before.status, outcomes or record.status),
            )

    def settings(self) -> list[SettingRecord]:
        """Return the settled settings that have all their results again."""
        rows = {state.planned.row for state in self._runs} - {run.row for run in self._lost.values()}
        records = self._search.records()
        return [setting for setting in records if setting.number in rows and setting.state != "running"]

"""Results of a search that are gone because the store, or runs in it, were deleted.

Their runs are executed again with the same documents. The journal has their outcomes, so nothing is written there, and
they do not count for the budget a second time.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from palaestrai_mosaik.arsenai.design.folder import STORES
from palaestrai_mosaik.arsenai.design.settings import SettingRecord
from palaestrai_mosaik.arsenai.execution import RunStatus
from palaestrai_mosaik.arsenai.execution.job import Job, JobRecord
from palaestrai_mosaik.arsenai.execution.runs import STATUSES_TO_EXECUTE
from palaestrai_mosaik.arsenai.execution.status import RunState, States
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store.database import Database
from palaestrai_mosaik.store.merge import instance_states
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.urls import check_named, is_database

from .search import Search
from .settings import runs_of

logger = logging.getLogger(__name__)

#: the statuses of runs with results
_RECORDED = (RunStatus.FINISHED, RunStatus.PRUNED)


@dataclass(frozen=True, slots=True)
class LostResults:
    """The lost results of a search.

    Attributes:
        runs: the ended runs with results in none of the searched stores.
        other_store: another store that has results of these runs, if the searched one has none of the search.
    """

    runs: tuple[RunState, ...] = ()
    other_store: str | None = None

    @classmethod
    def of(cls, folder: Path, states: States, store: StoreLocation) -> LostResults:
        """Determine the lost results of the search in a folder.

        Args:
            folder: the folder.
            states: the states of its runs.
            store: the common store that ``states`` were read from.
        """
        runs = states.lost_results
        has_results = any(state.status in _RECORDED and state.collected for state in states.runs)
        # A copy of a design folder has results of its own, and the records in it name the store of the original.
        return cls(runs, None if has_results else _other_store(folder, runs, store))

    def to_execute(self, *, retry_failed: bool = False) -> list[RunState]:
        """Return the runs to execute again; those that failed again only with ``retry_failed``."""
        statuses = STATUSES_TO_EXECUTE["unfinished" if retry_failed else "missing"]
        return [state for state in self.runs if state.status in statuses]


def _other_store(folder: Path, runs: Sequence[RunState], store: StoreLocation) -> str | None:
    """Return a store other than ``store`` that has results of lost runs, according to their records."""
    instances = defaultdict(list)
    for state in runs:
        if state.record is not None and state.record.instance is not None:
            instances[state.record.store].append(state.record.instance)
    for recorded, uids in instances.items():
        if recorded != store.shown and _has_results(folder, recorded, uids):
            return recorded
    return None


def _has_results(folder: Path, recorded: str, instances: Sequence[str]) -> bool:
    """Whether a store that a record names has complete results of one of the instances, except a run's own store."""
    location: str | sa.URL = recorded
    try:
        if not is_database(recorded):
            if _is_below(recorded, folder / STORES):
                return False
            location = sa.URL.create("sqlite", database=os.path.join(recorded, "store.db"))
        elif not recorded.startswith("sqlite:"):
            # The password is masked, and a record must not make this process connect to a server.
            return True
        check_named(recorded)
        # Opened without its folder, a store gives no permission to follow links to it.
        with (
            closing(Database(location, create=False, read_only=True)) as database,
            database.reading() as session,
        ):
            return any(state.status in _RECORDED for state in instance_states(session, instances))
    except (StoreError, ValueError):
        return False


def _is_below(path: str, folder: Path) -> bool:
    """Whether ``path`` is directly below ``folder``, whatever their names; false if one of the folders is missing."""
    try:
        return os.path.samefile(os.path.dirname(path), folder)
    except OSError:
        return False


class Recovery:
    """Executes ``runs`` with lost results again, as an iterator of jobs for an executor.

    With ``fail_fast``, it stops when one of them has failed. It can be resumed after the next record.

    Attributes:
        recorded: the number of runs that have recorded results again.
    """

    def __init__(self, search: Search, runs: Sequence[RunState]):
        self._search = search
        #: the runs with results that are still lost, by uid
        self._lost = {state.planned.uid: state.planned for state in runs}
        #: the runs to begin, with the number of the next attempt
        self._ready = deque((state.planned, state.attempts + 1) for state in runs)
        self.runs, self.recorded = tuple(runs), 0

    def __iter__(self) -> Recovery:
        return self

    def __next__(self) -> Job:
        search = self._search
        if not self._ready or (search.fail_fast and search.failures):
            raise StopIteration
        run, attempt = self._ready.popleft()
        ended = runs_of(search.journal.trial(run.row))
        setting = search.write_documents(run.row)
        reporting = None
        if ended[run.repetition].status == "pruned":
            # The journal has its reports and the one at which it stops.
            reporting = search.reporting(setting, ended[: run.repetition])
        resume = search.stores.earlier(run)[1]
        return search.start(run, attempt, resume, reporting)

    def ended(self, record: JobRecord) -> None:
        """Process the end of a run; warn if its outcomes differ from the journal's."""
        search = self._search
        if record.status == "failed":
            if search.was_killed(record):
                self._ready.append((self._lost[record.run], record.attempt + 1))
            else:
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
        rows = {state.planned.row for state in self.runs} - {run.row for run in self._lost.values()}
        records = self._search.records()
        return [setting for setting in records if setting.number in rows and setting.state != "running"]

"""Runs of a search that have ended, and whose results are gone: somebody has deleted the store, or runs in it.

They are executed again as they were, with the same documents. The journal has what they gave, so nothing is written
there, and they do not count for the budget a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from palaestrai_mosaik.analysis.outcomes import take
from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.search import sought
from palaestrai_mosaik.design.settings_table import SettingRecord
from palaestrai_mosaik.execution.job import Job, JobRecord
from palaestrai_mosaik.execution.status import RunState, load_run_states, lost_runs, without_lost
from palaestrai_mosaik.store.location import StoreLocation

from .search import Search
from .settings import runs_of

logger = logging.getLogger(__name__)


class LostRuns:
    """The runs of a search that have ended before, and whose results are neither in the store nor in their own.

    Attributes:
        runs: the runs, with their statuses.
    """

    def __init__(self, search: Search, store: StoreLocation):
        self._search = search
        states = load_run_states(DesignFolder.open(search.path), store, held=True, ask=False)
        self.runs: tuple[RunState, ...] = lost_runs(states, search.records())

    def settings(self) -> list[SettingRecord]:
        """Return the settings of the search; those that have lost runs count as not executed."""
        return without_lost(self._search.records(), self.runs)

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs that execute the runs again."""
        search = self._search
        for state in self.runs:
            run = state.planned
            ended = runs_of(search.journal.trial(run.row))
            setting = search.write_documents(run.row)
            reporting = None
            if ended[run.repetition].status == "pruned":
                # The journal has its reports, and where it stops.
                reporting = search.reporting(setting, ended[: run.repetition])
            resume = search.stores.earlier(run)[1]
            yield search.start(run, state.attempts + 1, resume, reporting)

    def made_again(self, records: Iterable[JobRecord]) -> Iterator[SettingRecord]:
        """Yield the settled settings of which all lost runs have ended again."""
        ended = {record.run for record in records if record.status in ("finished", "pruned")}
        left = {state.planned.row for state in self.runs if state.planned.uid not in ended}
        numbers = {state.planned.row for state in self.runs} - left
        for setting in self._search.records():
            if setting.number in numbers and setting.state != "running":
                yield setting

    def ended(self, record: JobRecord) -> None:
        """Process the end of a run that was executed again. Warn if it gave something else than before."""
        search = self._search
        if record.status == "failed":
            search.failures.append(record)
        if record.status not in ("finished", "pruned") or record.instance is None:
            return
        run = next(state.planned for state in self.runs if state.planned.uid == record.run)
        before = runs_of(search.journal.trial(run.row))[run.repetition]
        outcomes = dict[str, float | None]()
        if record.status == "finished" and before.outcomes:
            with search.stores.of_instance(run, record.instance) as store:
                outcomes = {
                    spec.name: take(store, [record.instance], spec).get(record.instance)
                    for spec in sought(search.spec)
                }
        if (record.status, outcomes) != (before.status, before.outcomes):
            logger.warning(
                "run %s was executed again and gave something else than before (%s, now %s): its code, its data or the "
                "packages have changed",
                *(record.run, before.outcomes or before.status, outcomes or record.status),
            )

"""The recovery of a search's results that are gone because the store, or runs in it, were deleted.

Their runs are executed again with the same documents. The journal has their outcomes, so nothing is written there, and
they do not count for the budget a second time.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from palaestrai_mosaik.arsenai.design.settings import SettingRecord
from palaestrai_mosaik.arsenai.execution.job import Job, JobRecord
from palaestrai_mosaik.arsenai.execution.status import RECORDED, RunState
from palaestrai_mosaik.core.errors import StoreError

from .search import Search
from .settings import runs_of

logger = logging.getLogger(__name__)


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
        #: the runs to begin
        self._ready = deque(self._lost.values())
        self.runs, self.recorded = tuple(runs), 0

    def __iter__(self) -> Recovery:
        return self

    def __next__(self) -> Job:
        search = self._search
        if not self._ready or (search.fail_fast and search.failures):
            raise StopIteration
        run = self._ready.popleft()
        ended = runs_of(search.journal.trial(run.row))
        setting = search.write_documents(run.row)
        reporting = None
        if ended[run.repetition].status == "pruned":
            # The journal has its reports and the one at which it stops.
            reporting = search.reporting(setting, ended[: run.repetition])
        return search.start(run, reporting)

    def ended(self, record: JobRecord) -> None:
        """Process the end of a run; warn if its outcomes differ from the journal's."""
        search = self._search
        if record.status == "failed":
            if search.restarts(record):
                self._ready.append(self._lost[record.run])
            else:
                search.failures.append(record)
        if record.status not in RECORDED or record.instance is None:
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

"""Runs in this process, one after the other: for debugging, and where nothing else is to be had."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator

from palaestrai_mosaik import files
from palaestrai_mosaik.run import Interrupt, Progress

from .executor import Executor
from .job import Job, JobRecord
from .task import open_log, perform


class InlineExecutor(Executor):
    """Executes jobs in this process, one after the other.

    Standard streams stay as they are, so ``breakpoint()`` works in users' code. The traceback
    of a failure is printed whole and written to the log. There is no time limit, and a
    process that dies takes all with it.
    """

    processes = 1

    def run(self, jobs: Iterable[Job]) -> Iterator[JobRecord]:
        """See :class:`Executor`."""
        for job in jobs:
            if self.cancelled:
                return
            done = perform(job, Interrupt(), Progress())
            if done is None:
                self.left_out.append(job.run)
                continue
            record, trace = done
            if trace:
                print(f"run {job.run!r} failed:\n{trace}", end="", file=sys.stderr)
                with os.fdopen(open_log(job), "a", encoding="utf-8", errors="backslashreplace") as log:
                    log.write(trace)
            record.write(job.record)
            files.remove(job.marker, missing_ok=True)
            if record.status == "interrupted":
                self.cancel()
            yield record

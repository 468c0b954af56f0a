"""What an executor of runs is, and the one that executes them in this process.

::

    executor = LocalExecutor(processes=4)
    for record in executor.run(jobs):      # in the order in which they end
        print(record.run, record.status)

Rules for all of them:

- ``jobs`` is taken lazily: a job is taken when it can be started (or handed to the
  scheduler of a cluster), so that the caller can stop yielding jobs.
- Every job that was taken gives exactly one record, and its file is in place before it is
  yielded. None is given for jobs that had not begun where the executor was cancelled, or where one
  failed and ``fail_fast`` is wanted, and for
  those whose run another process executes, or has executed meanwhile (:mod:`.claim`): they are in ``left_out``.
- A job's failure, the death of its process included, is a record, never an exception.
- When the iteration ends, or is left, no process of a run is left.
"""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from palaestrai_mosaik import files
from palaestrai_mosaik.experiment.classes import canonical_name
from palaestrai_mosaik.experiment.short_names import SHORT_NAMES, full_name
from palaestrai_mosaik.printing import write
from palaestrai_mosaik.runner import Interrupt, Progress

from .job import Job, JobRecord
from .task import execute_job, open_log

#: module, class and parameters of a part of this package that runs are made of
PreloadedClass = tuple[str, str, dict[str, Any]]
_OURS = re.compile(r"(palaestrai_mosaik\.(?:environment|agent)\.[\w.]+):(\w+)")
#: modules that import what takes seconds and starts threads
_LEFT_OUT = re.compile(r"palaestrai_mosaik\.agent\.library\.sb3")


class Executor(ABC):
    """Executes jobs somewhere. See the rules of this module."""

    def __init__(self) -> None:
        self._cancelled = 0
        #: runs that were left out, by uid: another process executes them
        self.left_out: list[str] = []

    @abstractmethod
    def run(self, jobs: Iterable[Job]) -> Iterator[JobRecord]:
        """Execute jobs.

        Args:
            jobs: is taken lazily, job by job, as each can be started.

        Yields:
            The record of each job as it ends.
        """

    @property
    @abstractmethod
    def processes(self) -> int:
        """How many runs are executed at the same time, at most."""

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._cancelled > 0

    def cancel(self, *, now: bool = False) -> None:
        """Start no more runs, and stop the current ones.

        Only notes the wish, so a signal handler or another thread may call it.

        Args:
            now: kill the current runs.
        """
        self._cancelled = max(self._cancelled, 2 if now else 1)


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
            done = execute_job(job, Interrupt(), Progress())
            if done is None:
                self.left_out.append(job.run)
                continue
            record, trace = done
            if trace:
                write(f"run {job.run!r} failed:\n{trace}", sys.stderr, end="")
                with os.fdopen(open_log(job), "a", encoding="utf-8", errors="backslashreplace") as log:
                    log.write(trace)
            record.write(job.record)
            files.remove(job.marker, missing_ok=True)
            if record.status == "interrupted":
                self.cancel()
            yield record


def classes_to_preload(design: Mapping[str, Any]) -> list[PreloadedClass]:
    """Return the classes of this package that a design names, with their parameters, each once.

    Those are left out that import torch, or that another interpreter imports; users' classes always are.
    """
    found: dict[str, PreloadedClass] = {}
    for topic, entry in _mappings(design):
        name = str(entry.get("name"))
        if topic in SHORT_NAMES:
            name = full_name(name, topic)
        match = _OURS.fullmatch(canonical_name(name))
        if match and not _LEFT_OUT.match(match[1]) and entry.get("interpreter") is None:
            params = entry.get("params")
            params = dict(params) if isinstance(params, Mapping) else {}
            found.setdefault(f"{match[0]} {params!r}", (match[1], match[2], params))
    return [found[key] for key in sorted(found)]


def _mappings(value: Any, topic: str = "") -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Yield all mappings in ``value``, each with the key that it lies under, in the singular: what it describes."""
    if isinstance(value, Mapping):
        yield topic, value
        for key, part in value.items():
            yield from _mappings(part, str(key))
    if isinstance(value, list | tuple):
        for part in value:
            yield from _mappings(part, topic.removesuffix("s"))

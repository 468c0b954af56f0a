"""The interface of executors, and the executor that runs jobs in this process.

::

    executor = LocalExecutor(processes=4)
    for record in executor.run(jobs):      # in the order in which they end
        print(record.run, record.status)

All executors follow these rules:

- ``jobs`` is consumed lazily: a job is taken when it can be started, or submitted to the scheduler of a cluster, so
  that the caller can stop yielding jobs.
- Each job that was taken yields exactly one record, and its file is written before. There are two exceptions: jobs
  that had not begun when the executor was cancelled, or when a job failed with ``fail_fast``; and jobs with a run that
  another process executes or has executed meanwhile (:mod:`.claim`), which are listed in ``left_out``.
- The failure of a job, including the death of its process, yields a record and never raises an exception.
- When the iteration ends, or the caller leaves it, no process of a run remains.
"""

from __future__ import annotations

import os
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.printing import write
from palaestrai_mosaik.experiment.class_names import SHORT_NAMES, canonical_name, full_name
from palaestrai_mosaik.runner import Interrupt, Progress

from .job import Job, JobRecord
from .task import execute_job, open_log

#: a class of this package that runs use: its module, name and parameters
PreloadedClass = tuple[str, str, dict[str, Any]]
_OURS = re.compile(r"(palaestrai_mosaik\.(?:environment|agent)\.[\w.]+):(\w+)")
#: modules not preloaded, because their imports take seconds and start threads
_LEFT_OUT = re.compile(r"palaestrai_mosaik\.agent\.library\.sb3")


class Executor(ABC):
    """Executes jobs, following the rules of this module."""

    def __init__(self) -> None:
        self._cancelled = 0
        #: the uids of runs that were skipped, because another process executes them
        self.left_out: list[str] = []

    @abstractmethod
    def run(self, jobs: Iterable[Job]) -> Iterator[JobRecord]:
        """Execute jobs.

        Args:
            jobs: an iterable, consumed lazily as jobs can be started.

        Yields:
            The record of each job as it ends.
        """

    @property
    @abstractmethod
    def processes(self) -> int:
        """The maximum number of concurrent runs."""

    @property
    def cancelled(self) -> bool:
        """Whether :meth:`cancel` was called."""
        return self._cancelled > 0

    def cancel(self, *, now: bool = False) -> None:
        """Start no more runs, and stop the current ones.

        Only sets a flag, so signal handlers and other threads may call it.

        Args:
            now: kill the current runs.
        """
        self._cancelled = max(self._cancelled, 2 if now else 1)


class InlineExecutor(Executor):
    """Executes jobs in this process, one after the other.

    The standard streams are not redirected, so ``breakpoint()`` works in users' code. The full traceback of a failure
    is printed and written to the log. There is no time limit, and a crash of the process ends all runs.
    """

    processes = 1

    def run(self, jobs: Iterable[Job]) -> Iterator[JobRecord]:
        """See :class:`Executor`."""
        for job in jobs:
            if self.cancelled:
                return
            result = execute_job(job, Interrupt(), Progress())
            if result is None:
                self.left_out.append(job.run)
                continue
            record, trace = result
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
    """Return the distinct classes of this package that a design names, with their parameters.

    Users' classes are left out, as are classes that import torch or run in another interpreter.

    Args:
        design: the resolved design.
    """
    classes: dict[str, PreloadedClass] = {}
    for topic, entry in _mappings(design):
        name = str(entry.get("name"))
        if topic in SHORT_NAMES:
            name = full_name(name, topic)
        match = _OURS.fullmatch(canonical_name(name))
        if match and not _LEFT_OUT.match(match[1]) and entry.get("interpreter") is None:
            params = entry.get("params")
            params = dict(params) if isinstance(params, Mapping) else {}
            classes.setdefault(f"{match[0]} {params!r}", (match[1], match[2], params))
    return [classes[key] for key in sorted(classes)]


def _mappings(value: Any, topic: str = "") -> Iterator[tuple[str, Mapping[Any, Any]]]:
    """Yield all nested mappings in ``value``, each with its topic: its key, in the singular."""
    if isinstance(value, Mapping):
        yield topic, value
        for key, part in value.items():
            yield from _mappings(part, str(key))
    if isinstance(value, list | tuple):
        for part in value:
            yield from _mappings(part, topic.removesuffix("s"))

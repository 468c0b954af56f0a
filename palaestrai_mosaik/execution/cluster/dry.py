"""What a submission would take, before anything is submitted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from palaestrai_mosaik.design.estimate import EMPTY_DATABASE, Experience

from .settings import SlurmSettings

#: files and folders of a run beside those of its results: record and log; the folder of its own store,
#: the database in it, and the folder around the results
_OF_JOBS, _OF_STORE = 2, 3


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a submission would take. ``None``: not known.

    ``arrays``: how many tasks each job array has; ``runs_per_task``: the most that a task has,
    ``runs_at_a_time`` of them at the same time. ``task_seconds``: of the longest task;
    ``core_seconds``: of all tasks' cores together; ``seconds``: of the whole where as many tasks run as
    ``throttle`` lets of each array (``None`` without one: it is the cluster that says). ``fitting``: how
    many runs fit into a task's time limit.

    ``files`` (folders with them: what counts towards a quota) and ``size`` (bytes) are what runs add to the
    folder until they are collected, each with a database of its own. ``collected_files`` and
    ``collected_size`` are left once all are collected and their own stores removed; ``database`` of these
    bytes are in the database.
    """

    runs: int
    tasks: int
    arrays: tuple[int, ...] | None
    runs_per_task: int
    runs_at_a_time: int
    task_seconds: float | None
    core_seconds: float | None
    seconds: float | None
    fitting: int | None
    files: int | None
    size: int | None
    collected_files: int | None
    collected_size: int | None
    database: int | None


def dry_run(
    tasks: Sequence[int], settings: SlurmSettings, experience: Experience, array_size: int | None = None
) -> DryRun:
    """Return what ``tasks`` would take, of which it is known how many runs each has.

    ``experience``: what a run takes. ``array_size``: how many tasks the cluster lets a job array have
    (``None``: not known). The time that a task needs to begin is not counted.
    """
    runs, at_a_time, seconds = sum(tasks), settings.runs_at_a_time, experience.seconds
    arrays = None if array_size is None else array_sizes(len(tasks), array_size)
    rounds = [math.ceil(of_task / at_a_time) for of_task in tasks]
    longest = None if seconds is None else max(rounds, default=0) * seconds
    whole = None
    if longest is not None and arrays is not None and settings.throttle is not None:
        # arrays do not wait for each other
        whole = max((math.ceil(size / settings.throttle) for size in arrays), default=0) * longest
    limit, fitting = settings.time_limit, None
    if limit is not None and seconds:
        fitting = math.floor((limit - settings.warning) / seconds) * at_a_time
    files, size = experience.files, experience.size
    return DryRun(
        runs=runs,
        tasks=len(tasks),
        arrays=arrays,
        runs_per_task=max(tasks, default=0),
        runs_at_a_time=at_a_time,
        task_seconds=longest,
        core_seconds=None if seconds is None else sum(rounds) * seconds * settings.cpus,
        seconds=whole,
        fitting=fitting,
        files=None if files is None else round(runs * (files + _OF_JOBS + _OF_STORE)) + len(tasks),
        size=None if size is None else runs * (size + EMPTY_DATABASE),
        collected_files=None if files is None else round(runs * (files + _OF_JOBS)) + len(tasks),
        collected_size=None if size is None else runs * size,
        database=None if experience.database is None else runs * experience.database,
    )


def array_sizes(tasks: int, array_size: int) -> tuple[int, ...]:
    """Return how many tasks each job array has, where one may have ``array_size``."""
    whole, rest = divmod(tasks, array_size)
    return (array_size,) * whole + ((rest,) if rest else ())

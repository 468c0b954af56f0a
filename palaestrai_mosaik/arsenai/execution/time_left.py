"""Estimates the time until all runs of a folder are executed, from the duration of the finished ones."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass

from palaestrai_mosaik.arsenai.design.design import available_cores
from palaestrai_mosaik.arsenai.design.folder import DesignFolder

from .runs import STATUSES_TO_EXECUTE
from .settings import Settings
from .status import RunStatus, States


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """An estimate of the time that the missing runs will take.

    Attributes:
        seconds_per_run: the median over the finished runs, including the start of their processes; ``None`` if no
            finished run has a record.
        processes: the number of concurrent runs: those that are running, else as many as would be.
        seconds: the time until all runs are executed that have neither finished nor failed; ``None`` if
            ``seconds_per_run`` is.
    """

    seconds_per_run: float | None
    processes: int
    seconds: float | None


def time_left(folder: DesignFolder, states: States) -> TimeLeft:
    """Estimate the time that the missing runs of a design folder will take.

    Args:
        folder: the design folder.
        states: the states of its runs.
    """
    counts = Counter(state.status for state in states.runs)
    durations = [
        state.record.seconds
        for state in states.runs
        if state.status is RunStatus.FINISHED and state.record is not None
    ]
    median = statistics.median(durations) if durations else None
    # read only `jobs`, because other settings of the section may be invalid
    section = folder.spec.resolved.get("execution") or {}
    processes = counts[RunStatus.RUNNING] or Settings(jobs=section.get("jobs")).jobs or available_cores()
    failed = sum(counts[status] for status in STATUSES_TO_EXECUTE["failed"])
    ended = sum(counts[status] for status in (RunStatus.FINISHED, RunStatus.PRUNED, RunStatus.SKIPPED))
    missing = len(states.runs) - ended - failed
    return TimeLeft(median, processes, None if median is None else median * missing / processes)

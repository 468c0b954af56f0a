"""How long the runs of a folder that are missing will take, from how long the finished ones took."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass

from palaestrai_mosaik.design.folder import DesignFolder

from .local import available_cores
from .runs import STATUSES_TO_EXECUTE
from .settings import Settings
from .status import RunStatus, States


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """An estimate of how long the missing runs will take.

    Attributes:
        seconds_per_run: median over the finished runs, with the start of their processes; ``None`` where no run
            has finished, or nothing is known of those that have.
        processes: how many runs are executed at the same time: those that are running, else as many as would be.
        seconds: until all are executed that have neither finished nor failed; ``None`` where ``seconds_per_run`` is.
    """

    seconds_per_run: float | None
    processes: int
    seconds: float | None


def time_left(folder: DesignFolder, states: States) -> TimeLeft:
    """Return how long the missing runs of a design folder will take.

    Args:
        folder: the design folder.
        states: the states of its runs.
    """
    counts = Counter(state.status for state in states.runs)
    taken = [
        state.record.seconds
        for state in states.runs
        if state.status is RunStatus.FINISHED and state.record is not None
    ]
    median = statistics.median(taken) if taken else None
    # what else the section says may be at fault, and is not needed
    section = folder.spec.resolved.get("execution") or {}
    processes = counts[RunStatus.RUNNING] or Settings(jobs=section.get("jobs")).jobs or available_cores()
    failed = sum(counts[status] for status in STATUSES_TO_EXECUTE["failed"])
    over = sum(counts[status] for status in (RunStatus.FINISHED, RunStatus.PRUNED, RunStatus.SKIPPED))
    missing = len(states.runs) - over - failed
    return TimeLeft(median, processes, None if median is None else median * missing / processes)

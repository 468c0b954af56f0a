"""What executing a design will cost, by what is known of earlier executions of its folder."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .folder import JOBS, RESULTS


@dataclass(frozen=True, slots=True)
class Experience:
    """What earlier runs of a design took: ``seconds`` (median) and ``size`` (bytes, mean) of one.

    ``None`` where nothing is known.
    """

    runs: int
    seconds: float | None
    size: int | None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the runs of a design take.

    ``seconds``: of the whole, with ``jobs`` at a time; ``seconds_per_run`` is what ``source``
    says; ``size``: bytes of all results. ``None`` where nothing is known.
    """

    jobs: int
    seconds_per_run: float | None
    seconds: float | None
    size: int | None
    source: str


def estimate(runs: int, jobs: int, seconds_per_run: float | None, experience: Experience) -> Estimate:
    """Return what ``runs`` runs take; ``seconds_per_run`` goes before what is known by experience."""
    source = "as given"
    if seconds_per_run is None:
        seconds_per_run = experience.seconds
        source = f"median of {experience.runs} earlier" if seconds_per_run is not None else ""
    # all runs alike: the last ones of a round begin and end together
    seconds = None if seconds_per_run is None else math.ceil(runs / jobs) * seconds_per_run
    size = None if experience.size is None else experience.size * runs
    return Estimate(jobs, seconds_per_run, seconds, size, source)


def experience(folder: Path) -> Experience:
    """Return what earlier runs in the folder of a design took, of which it keeps records."""
    seconds = list(_seconds(folder / JOBS))
    if not seconds:
        return Experience(0, None, None)
    size = sum(file.stat().st_size for file in (folder / RESULTS).rglob("*") if file.is_file())
    return Experience(len(seconds), statistics.median(seconds), size // len(seconds) or None)


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _seconds(jobs: Path) -> Iterator[float]:
    for file in sorted(jobs.glob("*.json")):
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            continue  # it was edited, as one without a number of seconds: it says nothing about time
        if isinstance(record, dict) and record.get("status") == "finished":
            seconds = record.get("seconds")
            if isinstance(seconds, float | int):
                yield seconds

"""From measurements to figures: medians, spread and ratios."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

#: what is read from a run: key, heading, whether higher is better
METRICS: dict[str, tuple[str, bool]] = {
    "steps_per_s": ("environment steps per second", True),
    "start_s": ("start-up: seconds until the first step", False),
    "stop_s": ("tear-down: seconds after the last step", False),
    "seconds": ("seconds of the whole command", False),
    "cpu_s": ("CPU seconds of all processes", False),
    "peak_mb": ("peak memory (PSS) of all processes in MB", False),
    "peak_rss_mb": ("peak memory (sum of RSS) in MB", False),
    "processes": ("processes at once", False),
    "bytes_per_step": ("bytes of results per step", False),
}


@dataclass(frozen=True)
class Figure:
    """One quantity of one side, measured several times."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one, or the mean of the two in the middle."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The smallest one."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The largest one."""
        return max(self.values)


@dataclass(frozen=True)
class Row:
    """A line of the table. ``ratio``: how many times better ours is, the median over the rounds."""

    case: str
    metric: str
    theirs: Figure | None
    ours: Figure | None
    ratio: float | None


def clock_of(text: str, began: float, ended: float) -> dict[str, float]:
    """Return start-up, tear-down and rate from what the clock of the documents wrote.

    ``began`` and ``ended`` are the times of the command. Empty where no first step was made; without
    rate and tear-down where the last one is missing.
    """
    lines = [json.loads(line) for line in text.splitlines()]
    first = next((line["first"] for line in lines if "first" in line), None)
    last = next((line for line in lines if "last" in line), None)
    found: dict[str, float] = {}
    if first is not None:
        found["start_s"] = first - began
    if first is not None and last is not None:
        found["stop_s"] = ended - last["last"]
        if last["steps"] > 1 and last["last"] > first:
            found["steps_per_s"] = (last["steps"] - 1) / (last["last"] - first)
    return found


def ratio(theirs: Sequence[float], ours: Sequence[float], higher_is_better: bool) -> float | None:
    """Return how many times better ours is: the median of the ratios of each round.

    Rounds are compared with themselves, so that what slows down both sides does little harm. ``None``
    where a round is missing on one side, or a figure is 0.
    """
    if not theirs or len(theirs) != len(ours) or 0 in (*theirs, *ours):
        return None
    pairs = zip(theirs, ours, strict=True)
    return statistics.median(b / a if higher_is_better else a / b for a, b in pairs)


def table(measured: Iterable[dict[str, Any]], theirs: str, ours: str) -> list[Row]:
    """Return the rows of all cases and metrics, in the order in which they were measured.

    Measurements that failed (``ok`` is false) do not count.
    """
    values: dict[tuple[str, str], dict[str, list[float]]] = {}
    for one in measured:
        if one["ok"]:
            for metric in METRICS:
                if metric in one:
                    sides = values.setdefault((one["case"], metric), {})
                    sides.setdefault(one["side"], []).append(one[metric])
    rows = []
    for (case, metric), sides in values.items():
        a, b = sides.get(theirs, []), sides.get(ours, [])
        better = ratio(a, b, METRICS[metric][1])
        rows.append(
            Row(case, metric, Figure(tuple(a)) if a else None, Figure(tuple(b)) if b else None, better)
        )
    return rows

"""A point in simulated time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SimTime:
    """Simulated time as mosaik ticks since the start of the episode, as a date, or both."""

    simtime_ticks: int | None = None
    simtime_timestamp: datetime | None = None

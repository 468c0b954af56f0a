"""Phases x workers x episodes: executes a run document."""

from .checkpoint import Earlier, earlier_run
from .interrupt import Interrupt
from .preflight import inspect
from .progress import Progress, make_progress
from .runner import RunResult, execute

__all__ = [
    "Earlier",
    "Interrupt",
    "Progress",
    "RunResult",
    "earlier_run",
    "execute",
    "inspect",
    "make_progress",
]

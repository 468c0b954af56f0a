"""Phases x workers x episodes: executes a run document."""

from .inspect import inspect
from .interrupt import Interrupt
from .progress import Progress, make_progress
from .resume import Earlier, earlier_run
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

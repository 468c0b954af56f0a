"""Phases x workers x episodes: executes a run document."""

from .inspect import inspect
from .interrupt import Interrupt
from .progress import Progress, make_progress
from .runner import RunResult, execute, newest_run

__all__ = ["Interrupt", "Progress", "RunResult", "execute", "inspect", "make_progress", "newest_run"]

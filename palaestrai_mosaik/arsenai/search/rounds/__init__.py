"""Rounds of designs that grow: evaluate the results so far, and choose the next rows or stop.

:func:`run_rounds` executes a folder round by round; :func:`advance` adds the next round after the runs of all earlier
ones have ended. New rows depend only on the design and the results, so the same results yield the same folder.
"""

from .advance import advance, decide
from .decision import Decision
from .run import run_rounds

__all__ = ["Decision", "advance", "decide", "run_rounds"]

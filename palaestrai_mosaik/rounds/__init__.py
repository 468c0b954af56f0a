"""Adds rows to designs in rounds: looks at what was measured, chooses where to measure next, and when to stop.

:func:`run_rounds` executes a folder round by round; :func:`advance` adds the next one, once the runs of those before have
ended. What a round adds follows from the design and from what its runs gave, so the same results make the same folder.
"""

from .advance import advance, decide
from .decision import Decision
from .run import run_rounds

__all__ = ["Decision", "advance", "decide", "run_rounds"]

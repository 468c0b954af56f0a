"""Searches for the best settings of a design: Optuna proposes them, and the runs are those of a design folder.

``arsenai tune`` calls :func:`tune`. See ``docs/tuning.md``.
"""

from .tune import TuneSummary, tune

__all__ = ["TuneSummary", "tune"]

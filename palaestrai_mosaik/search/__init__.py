"""Searches for the best settings of a design: Optuna proposes them, and the runs are those of a design folder.

``arsenai tune`` calls :func:`tune`, ``arsenai submit`` :func:`submit`. See ``docs/tuning.md``.
"""

from .tune import SearchSubmission, TuneSummary, submit, tune

__all__ = ["SearchSubmission", "TuneSummary", "submit", "tune"]

"""Searches for the best settings of a design: Optuna proposes them, and the runs are those of a design folder.

``arsenai tune`` calls :func:`tune`, ``arsenai submit`` :func:`submit`; :func:`history_figure` draws how a search went. See
``docs/tuning.md``.
"""

from .figure import history_figure
from .tune import SearchSubmission, TuneSummary, submit, tune

__all__ = ["SearchSubmission", "TuneSummary", "history_figure", "submit", "tune"]

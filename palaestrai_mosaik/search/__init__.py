"""Searches for the best settings of a design: Optuna proposes them, and the runs are those of a design folder.

``arsenai tune`` calls :func:`tune`; :func:`history_figure` draws how a search went. See ``docs/tuning.md``.
"""

from .figure import history_figure
from .tune import TuneSummary, tune

__all__ = ["TuneSummary", "history_figure", "tune"]

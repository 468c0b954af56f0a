"""Searches for the best settings of a design: Optuna proposes them, and the runs are those of a design folder.

``arsenai tune`` calls :func:`tune`, ``arsenai submit`` :func:`submit`; :func:`search_result` returns what a search has found until
now, :func:`history_figure` draws how it went. See ``docs/tuning.md``.
"""

from .figure import history_figure
from .result import SearchResult, search_result
from .tune import SearchSubmission, TuneSummary, submit, tune

__all__ = [
    "SearchResult",
    "SearchSubmission",
    "TuneSummary",
    "history_figure",
    "search_result",
    "submit",
    "tune",
]

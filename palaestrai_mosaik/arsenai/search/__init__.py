"""Searches for the best settings of a design. Optuna proposes them; their runs are those of a design folder.

``arsenai tune`` calls :func:`tune`, ``arsenai submit`` calls :func:`submit`. :func:`search_result` returns the results
so far, :func:`history_figure` draws the progress. See ``docs/tuning.md``.
"""

from .result import SearchResult, history_figure, search_result
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

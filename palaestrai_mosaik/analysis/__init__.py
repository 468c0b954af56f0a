"""From the store to answers: pictures of runs and of learning, and what the runs of a design say.

:class:`Results` are the outcomes of a design's runs, :func:`sensitivity` tells which factors
matter, :func:`compare_design` which agents or settings are better, :func:`robustness` which are good in all
scenarios, :func:`discover_design` where conditions hold.
"""

from .comparison import Comparison, Robustness, compare_design, robustness
from .discovery import Discovery, FoundBox, discover_design, discovery_figure
from .learning import Fold, LearningChoice
from .plot import plot_learning, plot_run
from .results import Results
from .sensitivity import SensitivityResult, sensitivity

__all__ = [
    "Comparison",
    "Discovery",
    "Fold",
    "FoundBox",
    "LearningChoice",
    "Results",
    "Robustness",
    "SensitivityResult",
    "compare_design",
    "discover_design",
    "discovery_figure",
    "plot_learning",
    "plot_run",
    "robustness",
    "sensitivity",
]

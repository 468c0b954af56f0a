"""Analyses of stored results: pictures of runs and of learning, and the evaluation of designs.

:class:`Results` are the outcomes of a design's runs. :func:`sensitivity` finds the factors that matter,
:func:`compare_design` the better agents or settings, :func:`robustness` those that are good in all scenarios, and
:func:`discover_design` the factor ranges in which conditions hold.
"""

from palaestrai_mosaik.plot.figures import plot_learning, plot_run
from palaestrai_mosaik.plot.learning import Fold, LearningChoice

from .comparison import Comparison, Robustness, compare_design, robustness
from .discovery import Discovery, FoundBox, discover_design, discovery_figure
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

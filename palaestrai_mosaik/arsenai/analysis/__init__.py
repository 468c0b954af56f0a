"""The evaluation of designs from stored results.

:class:`Results` are the outcomes of a design's runs. :func:`sensitivity` finds the factors that matter,
:func:`compare_design` the better agents or settings, :func:`robustness` those that are good in all scenarios, and
:func:`discover_design` the factor ranges in which conditions hold.
"""

from .comparison import Comparison, Robustness, compare_design, robustness
from .discovery import Discovery, FoundBox, discover_design, discovery_figure
from .results import Results
from .sensitivity import SensitivityResult, sensitivity

__all__ = [
    "Comparison",
    "Discovery",
    "FoundBox",
    "Results",
    "Robustness",
    "SensitivityResult",
    "compare_design",
    "discover_design",
    "discovery_figure",
    "robustness",
    "sensitivity",
]

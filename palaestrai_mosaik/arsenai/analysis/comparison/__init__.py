"""Comparison of agents or settings: aggregates with intervals, paired tests, effect sizes, profiles.

``compare`` takes a table of runs, ``compare_design`` the results of a design. ``robustness`` also takes the results
of a design, and treats the factors that are not compared as scenarios.
"""

from .compare import Comparison, compare, compare_design
from .robustness import Robustness, robustness
from .runs import ComparisonOptions, Normalise

__all__ = [
    "Comparison",
    "ComparisonOptions",
    "Normalise",
    "Robustness",
    "compare",
    "compare_design",
    "robustness",
]

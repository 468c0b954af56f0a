"""Comparing agents or settings: aggregates with intervals, paired tests, effect sizes, profiles.

``compare`` works on a table of runs; ``compare_design`` on a generated folder and its results, and so does
``robustness``, which takes what varies beside the levels for scenarios.
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

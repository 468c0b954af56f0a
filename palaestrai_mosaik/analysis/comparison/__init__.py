"""Comparing agents or settings: aggregates with intervals, paired tests, effect sizes, profiles.

``compare`` works on a table of runs; ``compare_design`` on a generated folder and its results.
"""

from .compare import Comparison, compare, compare_design
from .runs import ComparisonOptions, Normalise

__all__ = ["Comparison", "ComparisonOptions", "Normalise", "compare", "compare_design"]

"""Comparing agents or settings: aggregates with intervals, paired tests, effect sizes, profiles.

``compare`` works on a table of runs; ``compare_design`` on a generated folder and its results.
"""

from .compare import Comparison, compare
from .options import ComparisonOptions, Normalise
from .study import compare_design

__all__ = ["Comparison", "ComparisonOptions", "Normalise", "compare", "compare_design"]

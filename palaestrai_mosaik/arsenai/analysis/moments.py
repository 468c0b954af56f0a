"""Numbers that describe the values of an outcome, for commands, reports and pages alike."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from palaestrai_mosaik.types.arrays import FloatVector, IndexVector

Better = Literal["higher", "lower"]


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean, standard deviation of the sample (NaN for a single value), and quartiles of ``count`` values."""

    count: int
    mean: float
    std: float
    min: float
    lower_quartile: float
    median: float
    upper_quartile: float
    max: float

    @classmethod
    def of(cls, values: FloatVector) -> Moments:
        """Describe the finite ``values``; without any, all numbers are NaN."""
        finite = values[np.isfinite(values)]
        if not len(finite):
            return cls(0, *[math.nan] * 7)
        std = float(finite.std(ddof=1)) if len(finite) > 1 else math.nan
        return cls(
            len(finite), float(finite.mean()), std, *map(float, np.quantile(finite, np.linspace(0, 1, 5)))
        )


def student_interval(mean: float, std: float, count: int, confidence: float) -> tuple[float, float]:
    """Return Student's interval of a mean; NaN for fewer than two values, or without a spread."""
    from scipy.stats import t

    if count < 2 or not std > 0:
        return math.nan, math.nan
    reach = float(t.ppf((1 + confidence) / 2, count - 1)) * std / math.sqrt(count)
    return mean - reach, mean + reach


def best_first(values: FloatVector, better: Better) -> IndexVector:
    """Return the indices of the finite ``values``, the best first; equal ones keep their order."""
    order = np.argsort(-values if better == "higher" else values, kind="stable")
    return np.asarray(order[np.isfinite(values[order])])


def worst_first(values: FloatVector, better: Better) -> IndexVector:
    """Return the indices of the finite ``values``, the worst first; equal ones keep their order."""
    return best_first(values, "lower" if better == "higher" else "higher")

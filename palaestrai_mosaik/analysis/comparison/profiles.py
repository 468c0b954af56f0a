"""Performance profiles: which share of the runs does better than a threshold.

Source: Agarwal et al. 2021 (score distributions); Dolan & More 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .aggregates import FloatArray
from .resampling import Sample, distinct, tail

_SCORES = 51


@dataclass(frozen=True)
class Profile:
    """The ``share`` of runs better than each of ``scores``, ``low`` to ``high`` its band."""

    scores: FloatArray
    share: FloatArray
    low: FloatArray
    high: FloatArray


def scores(values: FloatArray) -> FloatArray:
    """Return evenly spaced scores from the smallest to the largest of ``values``."""
    if not len(values):
        return np.empty(0)
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, high, _SCORES if low < high else 1)


def profile(
    sample: Sample,
    places: FloatArray,
    lower_is_better: bool,
    confidence: float,
    resamples: int,
    generator: np.random.Generator,
) -> Profile:
    """Return the profile of a level's runs at ``places``, averaged over the strata.

    The band is the bootstrap's, and holds at each score on its own. NaN where the sample cannot say how runs
    vary, and where all runs are equal.
    """
    sign = -1 if lower_is_better else 1
    # (runs, places): whether the run is better
    passed = (sign * sample.values[:, None] > sign * places).astype(float)
    share = (sample.weights() @ passed)[0]
    if not sample.known or distinct(sample.values) < 2:
        nothing = np.full(len(places), np.nan)
        return Profile(places, share, nothing, nothing)
    drawn = [sample.weights(counts) @ passed for counts in sample.draws(resamples, generator, len(places))]
    outside = tail(sample.blocks, confidence)
    low, high = np.quantile(np.concatenate(drawn), [outside, 1 - outside], axis=0)
    return Profile(places, share, low, high)

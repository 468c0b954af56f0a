"""Performance profiles: which share of the runs does better than a threshold.

Source: Agarwal et al. 2021 (score distributions); Dolan & More 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .aggregates import FloatArray, batches

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
    strata: Sequence[FloatArray],
    places: FloatArray,
    lower_is_better: bool,
    confidence: float,
    resamples: int,
    generator: np.random.Generator,
) -> Profile:
    """Return the profile of a level's runs at ``places``, averaged over the strata.

    The band is the stratified percentile bootstrap's, and holds at each score on its own. NaN
    where a stratum has fewer than two runs.
    """
    sign = -1 if lower_is_better else 1
    ascending = np.sort(sign * places)
    sizes = [len(stratum) for stratum in strata]
    # a run is better than so many of the scores
    passed = np.searchsorted(ascending, sign * np.concatenate(strata), side="left")
    weights = np.repeat([1 / (size * len(sizes)) for size in sizes], sizes)
    share = _shares(passed[None], weights, len(places))[0, ::sign]
    if min(sizes) < 2:
        nothing = np.full(len(places), np.nan)
        return Profile(places, share, nothing, nothing)
    drawn = np.empty((resamples, len(places)))
    starts = np.cumsum([0, *sizes[:-1]])
    for part in batches(drawn, len(passed)):
        own = [
            first + generator.integers(size, size=(len(part), size))
            for first, size in zip(starts, sizes, strict=True)
        ]
        part[:] = _shares(passed[np.concatenate(own, axis=1)], weights, len(places))[:, ::sign]
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return Profile(places, share, low, high)


def _shares(passed: npt.NDArray[np.intp], weights: FloatArray, count: int) -> FloatArray:
    """Return the weight of the runs beyond each of ``count`` scores: (resamples, count).

    ``passed``: (resamples, runs) how many scores each run is better than.
    """
    rows = len(passed)
    cells = passed + (count + 1) * np.arange(rows)[:, None]
    weighted = np.broadcast_to(weights, passed.shape).ravel()
    sums: FloatArray = np.bincount(cells.ravel(), weighted, minlength=rows * (count + 1)).astype(float)
    sums = sums.reshape(rows, count + 1)
    # better than k scores is better than each of the first k
    return np.cumsum(sums[:, ::-1], axis=1)[:, ::-1][:, 1:]

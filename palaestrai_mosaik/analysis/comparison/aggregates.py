"""Numbers that stand for many runs of several settings.

A *stratum* holds the runs of one setting of the other factors (a task). Source: Agarwal et al. 2021, "Deep
reinforcement learning at the edge of the statistical precipice".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IndexVector

#: strata -> number; arrays of any shape, the runs along ``axis``
Statistic = Callable[..., Any]


def mean(*strata: FloatArray, axis: int = -1) -> Any:
    """Return the mean of the strata's means: each setting counts the same, whatever is lost there."""
    return np.mean([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def iqm(*strata: FloatArray, axis: int = -1) -> Any:
    """Return the interquartile mean: that of the middle half of all runs.

    A run at the edge of the middle half counts in part, so that this half is one whatever the number of
    runs: of three runs the outer ones count a quarter of the middle one each, of two or one it is the
    mean. Where the number divides by four, it is the mean without the lower and the upper quarter.
    Where strata lost different numbers of runs, runs are weighted so that each stratum counts
    the same; else one lost run would move the middle towards the settings that lost none.
    """
    return _middle(*_weighted(strata, axis))


def _middle(values: FloatArray, weights: FloatArray, end: FloatArray) -> Any:
    inside = np.clip(np.minimum(end, 0.75) - np.maximum(end - weights, 0.25), 0, None)
    return (values * inside).sum(axis=-1) / inside.sum(axis=-1)


def median(*strata: FloatArray, axis: int = -1) -> Any:
    """Return the median of all runs, weighted as for the interquartile mean."""
    if _alike(strata, axis):
        return np.median(np.concatenate(strata, axis=axis), axis=axis)
    values, _, end = _weighted(strata, axis)
    return np.mean([np.take_along_axis(values, i[..., None], -1)[..., 0] for i in _halves(end)], axis=0)


def _halves(end: FloatArray) -> list[IndexVector]:
    """Return between which two places half of the weight ends; it may end exactly between two runs."""
    return [np.argmax(end >= 0.5 + rounding, axis=-1) for rounding in (-1e-9, 1e-9)]


def _alike(strata: Sequence[FloatArray], axis: int) -> bool:
    return len({stratum.shape[axis] for stratum in strata}) == 1


def _weighted(strata: Sequence[FloatArray], axis: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the values sorted along the last axis, their weights and the sums of these up to each.

    Where all runs weigh the same, weights and sums are those of any sorted row: (runs,).
    """
    moved = [np.moveaxis(stratum, axis, -1) for stratum in strata]
    sizes = [stratum.shape[-1] for stratum in moved]
    if _alike(strata, axis):
        count = sum(sizes)
        return (
            np.sort(np.concatenate(moved, axis=-1)),
            np.full(count, 1 / count),
            np.arange(1, count + 1) / count,
        )
    weights = np.concatenate([np.full(size, 1 / (size * len(sizes))) for size in sizes])
    values = np.concatenate(moved, axis=-1)
    order = np.argsort(values, axis=-1, kind="stable")
    sorted_weights = weights[order]
    return np.take_along_axis(values, order, -1), sorted_weights, np.cumsum(sorted_weights, axis=-1)


def weighted_mean(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the mean of the ascending ``values`` under each row of ``weights``, which sum up to 1."""
    return weights @ values


def weighted_iqm(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the interquartile mean in the same way."""
    return np.asarray(_middle(values, weights, np.cumsum(weights, axis=-1)))


def weighted_median(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the median in the same way."""
    return np.asarray(np.mean([values[i] for i in _halves(np.cumsum(weights, axis=-1))], axis=0))


AGGREGATES: dict[str, Statistic] = {"mean": mean, "iqm": iqm, "median": median}
#: the same, of weighted values
WEIGHTED = {"mean": weighted_mean, "iqm": weighted_iqm, "median": weighted_median}


def spread(strata: Sequence[FloatArray]) -> float:
    """Return the standard deviation within strata, NaN where no stratum has two runs.

    The strata's variances are pooled by their degrees of freedom, so that what the settings
    differ by does not count.
    """
    freedom = sum(len(stratum) - 1 for stratum in strata)
    if freedom < 1:
        return float("nan")
    squares = sum(float(((stratum - stratum.mean()) ** 2).sum()) for stratum in strata)
    return float(np.sqrt(squares / freedom))

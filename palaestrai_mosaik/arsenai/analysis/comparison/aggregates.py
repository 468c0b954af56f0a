"""Aggregates of runs in several settings.

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
    """Return the mean of the strata's means, so that each setting has the same weight, whatever is lost there."""
    return np.mean([np.mean(stratum, axis=axis) for stratum in strata], axis=0)


def iqm(*strata: FloatArray, axis: int = -1) -> Any:
    """Return the interquartile mean: the mean of the middle half of all runs.

    Runs at the edge of the middle half have a partial weight, so that the weights add up to half of any number of
    runs: of three runs, the outer ones have a quarter of the weight of the middle one; of two or one, it is the mean.
    If the number is divisible by four, it is the mean without the lower and the upper quarter. If strata lost
    different numbers of runs, their runs are weighted so that each stratum counts the same; otherwise, one lost run
    would move the middle towards the settings that lost none.
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
    """Return the indices at which the weight reaches a half. They differ if it does so exactly between two runs."""
    return [np.argmax(end >= 0.5 + rounding, axis=-1) for rounding in (-1e-9, 1e-9)]


def _alike(strata: Sequence[FloatArray], axis: int) -> bool:
    return len({stratum.shape[axis] for stratum in strata}) == 1


def _weighted(strata: Sequence[FloatArray], axis: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the values sorted along the last axis, their weights and the cumulative weights.

    If all runs have the same weight, weights and sums have the shape (runs,).
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
    """Return the mean of the ascending ``values`` under each row of ``weights``, which sum to 1."""
    return weights @ values


def weighted_iqm(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the interquartile mean of the ascending ``values`` under each row of ``weights``."""
    return np.asarray(_middle(values, weights, np.cumsum(weights, axis=-1)))


def weighted_median(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the median of the ascending ``values`` under each row of ``weights``."""
    return np.asarray(np.mean([values[i] for i in _halves(np.cumsum(weights, axis=-1))], axis=0))


AGGREGATES: dict[str, Statistic] = {"mean": mean, "iqm": iqm, "median": median}
#: the same aggregates of weighted values
WEIGHTED = {"mean": weighted_mean, "iqm": weighted_iqm, "median": weighted_median}


def spread(strata: Sequence[FloatArray]) -> float:
    """Return the pooled standard deviation within strata, NaN if no stratum has two runs.

    Variances are pooled by their degrees of freedom, so differences between settings do not count.
    """
    freedom = sum(len(stratum) - 1 for stratum in strata)
    if freedom < 1:
        return float("nan")
    squares = sum(float(((stratum - stratum.mean()) ** 2).sum()) for stratum in strata)
    return float(np.sqrt(squares / freedom))

"""Bounds for lost runs: whether these could change the order of settings, or of the levels of a comparison.

Runs seldom fail by chance, so the mean of finished runs flatters a setting that fails often (survivorship bias). A
lost run could have been as bad, or as good, as any observed run. An order is therefore certain if it stays the same
with each lost run counted against it: those of the better side as the worst observed value, those of the other side as
the best. A seed that all sides share, and that none finished, carries no information on their order and is ignored.

Sources: Horowitz & Manski 2000, "Nonparametric Analysis of Randomized Experiments with Missing Covariate and Outcome
Data", Journal of the American Statistical Association 95 (bounds); Lachin 1999, "Worst-Rank Score Analysis with
Informatively Missing Observations in Clinical Trials", Controlled Clinical Trials 20 (lost runs rank last).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.types.arrays import FloatMatrix, IntArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Bounds:
    """The values of runs with each lost one counted as the ``lowest``, and as the ``highest``, of its setting.

    If no level finished a seed, its runs are NaN in both.
    """

    lowest: pd.Series[float]
    highest: pd.Series[float]


def bounds(runs: pd.DataFrame, common: bool) -> Bounds:
    """Compute the bounds of runs by counting lost ones as extreme values.

    Args:
        runs: a row per planned run with ``setting``, ``repetition`` and ``value`` (NaN if lost). A setting without
            finished runs has the extremes of all settings.
        common: whether levels share the seeds of their repetitions.

    Returns:
        Both bounds of each run.
    """
    values, setting = runs["value"], runs["setting"]
    ends = values.groupby(setting).agg(["min", "max"])
    ends = ends.fillna({"min": values.min(), "max": values.max()})
    lowest, highest = (values.fillna(setting.map(ends[end])) for end in ("min", "max"))
    if common:
        finished = values.notna().groupby([setting, runs["repetition"]]).transform("any")
        lowest, highest = lowest.where(finished), highest.where(finished)
    return Bounds(lowest, highest)


@dataclass(frozen=True)
class Ranking:
    """The order of settings.

    Attributes:
        order: the indices of the settings, the best first.
        lost: (settings,) the number of lost runs.
        certain: whether the first setting is the best, whatever the values of lost runs.
    """

    order: IntArray
    lost: IntArray
    certain: bool

    @property
    def winner(self) -> int | None:
        """The index of the setting to recommend; None if lost runs could change which one is the first."""
        return int(self.order[0]) if self.certain else None


def rank(values: FloatMatrix, higher: bool, common: bool) -> Ranking:
    """Rank settings by their means; those that lost a run rank behind all that lost none.

    Settings that lost runs are ordered by their means with lost runs counted as the worst observed value. If all
    settings lost some, the first one is certain only if its mean is still the best with the lost runs of all others
    counted as the best.

    Args:
        values: (settings, runs) not finite if lost; at least one value is finite.
        higher: whether higher values are better.
        common: whether the columns are seeds that all settings share.

    Returns:
        The order of the settings.
    """
    import pandas as pd

    sign = 1 if higher else -1
    count, width = values.shape
    signed = np.where(np.isfinite(values), sign * values, np.nan)
    runs = pd.DataFrame(
        {"setting": "all", "repetition": np.tile(np.arange(width), count), "value": signed.ravel()}
    )
    extremes = bounds(runs, common)
    worst, best = (
        np.nanmean(series.to_numpy().reshape(values.shape), axis=1)
        for series in (extremes.lowest, extremes.highest)
    )
    counted = signed[:, np.isfinite(signed).any(axis=0)] if common else signed
    lost = np.isnan(counted).sum(axis=1)
    order = np.lexsort((np.arange(count), -worst, lost > 0))
    first, following = order[0], order[1:]
    return Ranking(order, np.asarray(lost), bool(not lost[first] or (worst[first] > best[following]).all()))

"""A classifier that replaces runs: it predicts a condition at points that were not executed.

The rows of an adaptive design lie at points with an uncertain answer, so shares of them are meaningless, and methods
that search for boxes among them are misled. Boxes are therefore found among many points of the design's distribution,
which a classifier trained on the runs labels. Source: Arzamasov and Böhm (2021), "REDS: Rule Extraction for Discovering
Scenarios", SIGMOD. The classifier is scikit-learn's: extremely randomised trees (Geurts, Ernst and Wehenkel 2006),
which accept factors of any kind and scale, and are certain only near runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palaestrai_mosaik.arsenai.design import distributions
from palaestrai_mosaik.arsenai.design.decode import decode, keep
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatVector, IntArray

from ..results import Results
from .algorithms import Points, not_installed
from .boxes import Column, code_rows
from .conditions import LabelledRuns

#: number of points of the design's distribution, enough for shares with an accuracy of one percent
_POINTS = 2048
_TREES = 100
#: folds of the cross-validation
_FOLDS = 5


def spread_points(spec: DesignSpec) -> FloatArray:
    """Draw points of the design's distribution, (points, axes), from a Sobol' sequence, subject to its constraints."""
    from scipy.stats import qmc

    generator = seeding.generator(spec.seed, "discovery", "points")
    unit = qmc.Sobol(len(spec.axes), seed=generator).random(_POINTS)
    return allowed(spec, unit)


def allowed(spec: DesignSpec, unit: FloatArray) -> FloatArray:
    """Select the points of ``unit``, (points, axes), that the constraints of the design allow."""
    return unit[keep(spec, decode(spec, unit))] if spec.constraints else unit


def code_with_points(
    results: Results, share: FloatVector, unit: FloatArray
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Code the axes of a design for its rows and for the points ``unit``, with the same codes.

    ``share``: (rows,) the share of a row's runs in which the condition holds, NaN if unknown.
    """
    spec, rows = results.spec, results.folder.sample.unit
    both = code_rows(
        spec,
        np.concatenate([rows, unit]),
        [*results.folder.values(), *decode(spec, unit)],
        np.append(share, np.full(len(unit), np.nan)),
    )
    n = len(rows)
    return (
        tuple(replace(column, codes=column.codes[:n]) for column in both),
        tuple(replace(column, codes=column.codes[n:]) for column in both),
    )


def features(columns: Sequence[Column]) -> FloatArray:
    """Return the codes as a table of numbers, (rows, features), with one column per level of nominal axes."""
    table_columns = []
    for column in columns:
        if column.kind == "nominal":
            last = len(column.labels) + (column.inactive is not None)
            table_columns += [(column.codes == code).astype(float) for code in range(last)]
        else:
            table_columns.append(column.codes.astype(float))
    return np.column_stack(table_columns)


class Surrogate:
    """Extremely randomised trees trained to predict a condition.

    Args:
        points: the runs.

    Raises:
        PalaestraiMosaikError: scikit-learn is not installed.
    """

    def __init__(self, points: Points):
        self._table, self._points = features(points.columns), points
        self._trees = _fitted(self._table[points.row], points.holds)

    def probability(self, columns: Sequence[Column]) -> FloatVector:
        """Return the predicted probability of the condition at other points, which must have the codes of the rows."""
        return _probability(self._trees, features(columns))

    def held_out(self) -> FloatVector:
        """Return the predicted probability of the condition in each run, from trees trained without its setting.

        Five-fold cross-validation over the settings.
        """
        points, probability = self._points, np.full(len(self._points.holds), 0.5)
        _, setting = np.unique(points.setting, return_inverse=True)
        for part in range(_FOLDS):
            left = setting % _FOLDS == part
            if not left.any() or not (~left).any():
                continue
            trees = _fitted(self._table[points.row[~left]], points.holds[~left])
            probability[left] = _probability(trees, self._table[points.row[left]])
        return probability


def accuracy(points: Points, probability: FloatVector) -> float:
    """Return the balanced accuracy of a classifier, the mean of those for runs with and without the condition.

    Args:
        points: the runs.
        probability: (points,) that the condition holds, from :meth:`Surrogate.held_out`.
    """
    right = (probability > 0.5) == points.holds
    shares = [right[points.holds == holds].mean() for holds in (True, False) if (points.holds == holds).any()]
    return float(np.mean(shares))


def chance_of(points: Points, probability: FloatVector) -> float:
    """Return the probability that a useless classifier is at least as accurate.

    One-sided test of the rank correlation of the probabilities with the shares of the runs in which the condition
    holds, by setting. The arguments are those of :func:`accuracy`.
    """
    from scipy.stats import spearmanr

    _, setting = np.unique(points.setting, return_inverse=True)
    runs = np.bincount(setting)
    predicted, true = (
        np.bincount(setting, weights=numbers) / runs for numbers in (probability, points.holds)
    )
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return 1.0
    return float(spearmanr(predicted, true, alternative="greater").pvalue)


def _fitted(table: FloatArray, holds: BoolVector) -> Any:
    try:
        from sklearn.ensemble import ExtraTreesClassifier
    except ImportError as error:
        raise not_installed("An adaptive sampler", "scikit-learn", error) from error
    trees = ExtraTreesClassifier(_TREES, max_features=None, class_weight="balanced", random_state=0)
    return trees.fit(table, holds)


def _probability(trees: Any, table: FloatArray) -> FloatVector:
    if len(trees.classes_) == 1:
        return np.full(len(table), float(trees.classes_[0]))
    probability: FloatVector = trees.predict_proba(table)[:, 1]
    return probability


class Relabelling:
    """Replaces runs by points of the design's distribution that a surrogate labels.

    Args:
        results: the results of the design.
        runs: the labelled runs.
        share: (rows,) the share of a row's runs in which the condition holds.

    Attributes:
        rows: the axes of the rows, coded.
        columns: the axes of the points, coded.
        weight: (rows,) the number of points nearest to each row, as its weight in the design's distribution.
    """

    def __init__(self, results: Results, runs: LabelledRuns, share: FloatVector):
        spec, unit = results.spec, spread_points(results.spec)
        self.rows, self.columns = code_with_points(results, share, unit)
        _, self._nearest = nearest(positions(spec, results.folder.sample.unit), positions(spec, unit))
        self._setting = runs.setting
        self.weight = np.bincount(self._nearest, minlength=len(results.folder.sample.unit)).astype(float)

    def points(self, runs: Points) -> Points:
        """Return the labelled points that replace the ``runs``; the setting of a point is that of its nearest row."""
        holds = Surrogate(runs).probability(self.columns) > 0.5
        return Points(self.columns, np.arange(len(holds)), holds, self._setting[self._nearest])


def positions(spec: DesignSpec, unit: FloatArray) -> FloatArray:
    """Return coordinates of points for distances, (points, axes and levels without an order).

    An axis with an order has the coordinate in the unit cube, so logarithmic factors are compared by their logarithm.
    Two levels without an order have a city block distance of 1.
    """
    coordinates = []
    for i, axis in enumerate(spec.axes):
        coordinate = unit[:, i]
        if axis.levels is None:
            coordinates.append(coordinate)
            continue
        level = distributions.levels(distributions.shares(axis), coordinate)
        if axis.nominal:
            coordinates += [(level == index) / 2 for index in range(axis.levels)]
        else:
            coordinates.append(distributions.middles(axis)[level])
    return np.column_stack(coordinates).astype(float)


def nearest(rows: FloatArray, points: FloatArray) -> tuple[FloatVector, IntArray]:
    """Return the city block distance of each point to its nearest row, and the index of that row."""
    from scipy.spatial import cKDTree

    distance, number = cKDTree(rows).query(points, p=1)
    return distance, number

"""A classifier in place of runs: where a condition holds in points that were not executed.

The rows of an adaptive design lie where the answer is uncertain, so shares of them stand for nothing, and a method that
looks for boxes among them is misled. So the boxes are found among many points of the design's distribution, and a
classifier that has learnt from the runs says in which of them the condition holds. Source: Arzamasov and Böhm (2021),
"REDS: Rule Extraction for Discovering Scenarios", SIGMOD. The classifier is scikit-learn's: extremely randomised trees
(Geurts, Ernst and Wehenkel 2006), which take factors of any kind and scale, and are sure only near runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from palaestrai_mosaik import seeding
from palaestrai_mosaik.design import distributions
from palaestrai_mosaik.design.decode import decode, keep
from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatVector, IntArray

from ..results import Results
from .algorithms import Points, not_installed
from .boxes import Column, code_rows
from .conditions import LabelledRuns

#: points of the design's distribution: so many that a share of them is right to a percent
_POINTS = 2048
_TREES = 100
#: folds of the cross-validation
_FOLDS = 5


def spread_points(spec: DesignSpec) -> FloatArray:
    """Return points of the design's distribution, (points, axes): those of a Sobol' sequence that constraints allow."""
    from scipy.stats import qmc

    generator = seeding.generator(spec.seed, "discovery", "points")
    unit = qmc.Sobol(len(spec.axes), seed=generator).random(_POINTS)
    return allowed(spec, unit)


def allowed(spec: DesignSpec, unit: FloatArray) -> FloatArray:
    """Return those of the points ``unit`` that the constraints of the design allow."""
    return unit[keep(spec, decode(spec, unit))] if spec.constraints else unit


def code_with_points(
    results: Results, share: FloatVector, unit: FloatArray
) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    """Return the axes of the rows of a design, and those of the points ``unit``, with the same codes.

    ``share``: (rows,) in which share of a row's runs the condition holds, NaN where that is not known.
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
    """Return the codes as a table of numbers: levels without an order are a column each."""
    found = []
    for column in columns:
        if column.kind == "nominal":
            last = len(column.labels) + (column.inactive is not None)
            found += [(column.codes == code).astype(float) for code in range(last)]
        else:
            found.append(column.codes.astype(float))
    return np.column_stack(found)


class Surrogate:
    """Extremely randomised trees that have learnt in which runs a condition holds.

    Args:
        points: the runs.

    Raises:
        PalaestraiMosaikError: scikit-learn is not installed.
    """

    def __init__(self, points: Points):
        self._table, self._points = features(points.columns), points
        self._trees = _fitted(self._table[points.row], points.holds)

    def probability(self, columns: Sequence[Column]) -> FloatVector:
        """Return how probable it is that the condition holds at each of other points, which are coded as the rows are."""
        return _probability(self._trees, features(columns))

    def accuracy(self) -> float:
        """Return how often it is right in settings that it has not seen (balanced: holds and does not hold count the same).

        Five-fold cross-validation over the settings.
        """
        points, right = self._points, np.zeros(len(self._points.holds), dtype=bool)
        _, setting = np.unique(points.setting, return_inverse=True)
        for part in range(_FOLDS):
            left = setting % _FOLDS == part
            if not left.any() or not (~left).any():
                continue
            trees = _fitted(self._table[points.row[~left]], points.holds[~left])
            right[left] = (_probability(trees, self._table[points.row[left]]) > 0.5) == points.holds[left]
        shares = [
            right[points.holds == holds].mean() for holds in (True, False) if (points.holds == holds).any()
        ]
        return float(np.mean(shares))


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
    found: FloatVector = trees.predict_proba(table)[:, 1]
    return found


class Relabelling:
    """Replaces runs by points of the design's distribution, of which a surrogate says where the condition holds.

    Args:
        results: the results of the design.
        runs: where the condition holds.
        share: (rows,) in which share of a row's runs it does.

    Attributes:
        rows: the axes of the rows, coded.
        columns: the axes of the points, coded.
    """

    def __init__(self, results: Results, runs: LabelledRuns, share: FloatVector):
        spec, unit = results.spec, spread_points(results.spec)
        self.rows, self.columns = code_with_points(results, share, unit)
        _, self._nearest = nearest(positions(spec, results.folder.sample.unit), positions(spec, unit))
        self._setting = runs.setting

    def points(self, runs: Points) -> Points:
        """Return the points in place of the ``runs``. The setting of a point is that of the row next to it."""
        holds = Surrogate(runs).probability(self.columns) > 0.5
        return Points(self.columns, np.arange(len(holds)), holds, self._setting[self._nearest])


def positions(spec: DesignSpec, unit: FloatArray) -> FloatArray:
    """Return where points lie, so that distances mean something: (points, axes and levels without an order).

    Along an axis with an order it is the coordinate in the unit cube, so logarithmic factors are compared by their
    logarithm. Two levels without an order have the (city block) distance 1.
    """
    found = []
    for i, axis in enumerate(spec.axes):
        coordinate = unit[:, i]
        if axis.levels is None:
            found.append(coordinate)
            continue
        level = distributions.levels(distributions.shares(axis), coordinate)
        if axis.nominal:
            found += [(level == one) / 2 for one in range(axis.levels)]
        else:
            found.append(distributions.middles(axis)[level])
    return np.column_stack(found).astype(float)


def nearest(rows: FloatArray, points: FloatArray) -> tuple[FloatVector, IntArray]:
    """Return how far each point is from the row next to it (city block), and the number of that row."""
    from scipy.spatial import cKDTree

    distance, number = cKDTree(rows).query(points, p=1)
    return distance, number

"""PRIM and CART: find boxes among coded points in which a condition holds or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.types.arrays import Array, BoolVector, FloatArray, FloatVector, IntArray

from .boxes import Box, Column, Side, tidy

#: share of a box's points that one step peels off or pastes on (EMA Workbench's default)
STEP = 0.05

Limit = tuple[float, float] | frozenset[int]


@dataclass(frozen=True)
class Step:
    """A box on a peeling trajectory.

    Attributes:
        limits: by column, the lowest and the highest code or the codes of levels, all included.
        inside: (points,) the points in the box.
    """

    limits: Mapping[int, Limit]
    inside: BoolVector


def trajectory(codes: FloatArray, nominal: Sequence[bool], holds: BoolVector, smallest: float) -> list[Step]:
    """Return the boxes from all points to the last one: peel while the density rises, then paste while it does.

    Args:
        codes: (points, columns) the coded points.
        nominal: for each column, whether its codes are whole numbers without an order.
        holds: (points,) whether the condition holds.
        smallest: the smallest allowed box, as a share of the points.
    """
    search = _Search(codes, nominal, holds, smallest)
    steps = [Step({}, np.ones(len(holds), dtype=bool))]
    for following in (search.peeled, search.pasted):
        while (step := following(steps[-1])) is not None:
            steps.append(step)
    return steps


class _Search:
    """The points of a search; the arguments are those of :func:`trajectory`."""

    def __init__(self, codes: FloatArray, nominal: Sequence[bool], holds: BoolVector, smallest: float):
        self._holds, self._smallest = holds, smallest
        self._ordered = [i for i, unordered in enumerate(nominal) if not unordered]
        self._codes = codes
        self._cases = holds.astype(float)
        self._ends = {i: (float(codes[:, i].min()), float(codes[:, i].max())) for i in self._ordered}
        self._levels = {
            i: frozenset(map(int, np.unique(codes[:, i]))) for i, unordered in enumerate(nominal) if unordered
        }

    def peeled(self, box: Step) -> Step | None:
        """Return the box without its worst slice, or None if no removal makes it denser."""
        rows = np.flatnonzero(box.inside)
        candidates: list[tuple[int, Limit]] = []
        counts: list[FloatVector] = []
        if self._ordered:
            codes, cases = self._codes[rows][:, self._ordered], self._cases[rows]
            ordered = np.sort(codes, axis=0)
            lows, highs = _lower_quantiles(ordered), _upper_quantiles(ordered)
            kept = np.stack([codes <= highs, codes >= lows], axis=2).reshape(len(rows), -1)
            counts += [kept.sum(axis=0, dtype=float), cases @ kept]
            for column, low, high in zip(self._ordered, lows, highs, strict=True):
                below, above = self._limit(box, column)
                candidates += [(column, (below, float(high))), (column, (float(low), above))]
        n, k = list(counts[0]) if counts else [], list(counts[1]) if counts else []
        for column in self._levels:
            levels = frozenset(map(int, self._limit(box, column)))
            for level in sorted(levels) if len(levels) > 1 else ():
                kept_rows = rows[self._codes[rows, column] != level]
                candidates.append((column, levels - {level}))
                n.append(float(len(kept_rows)))
                k.append(float(self._cases[kept_rows].sum()))
        if not candidates:
            return None
        best, gain = self._best(box, candidates, np.array(n), np.array(k))
        if n[best] / len(self._holds) < self._smallest or n[best] >= len(rows) or gain <= 0:
            return None
        column, limit = candidates[best]
        return self._step(box, column, limit, box.inside & self._within(column, limit))

    def pasted(self, box: Step) -> Step | None:
        """Return the box with the best slice put back, or None if none makes it denser."""
        candidates: list[tuple[int, Limit]] = []
        for column in (*self._ordered, *self._levels):
            if column in box.limits:
                candidates += self._pastes(box, column)
        if not candidates:
            return None
        elsewhere = {column: self._within_others(box, column) for column in box.limits}
        members = [elsewhere[column] & self._within(column, limit) for column, limit in candidates]
        n, k = np.array([[inside.sum(), self._cases[inside].sum()] for inside in members], dtype=float).T
        best, gain = self._best(box, candidates, n, k)
        if n[best] / len(self._holds) < self._smallest or n[best] <= box.inside.sum() or gain <= 0:
            return None
        return self._step(box, *candidates[best], members[best])

    def _pastes(self, box: Step, column: int) -> Iterator[tuple[int, Limit]]:
        """Yield the candidates for wider limits of one column."""
        limit = self._limit(box, column)
        if isinstance(limit, frozenset):
            yield from ((column, limit | {level}) for level in sorted(self._levels[column] - limit))
            return
        (low, high), (least, most) = limit, self._ends[column]
        codes = self._codes[self._within_others(box, column), column]
        below, above = (np.sort(part)[:, None] for part in (codes[codes <= low], codes[codes >= high]))
        yield column, (float(_upper_quantiles(below)[0]) if len(below) else least, high)
        yield column, (low, float(_lower_quantiles(above)[0]) if len(above) else most)

    def _best(
        self, box: Step, candidates: Sequence[tuple[int, Limit]], n: FloatVector, k: FloatVector
    ) -> tuple[int, float]:
        """Return the index of the best candidate, and its gain in density per point removed or added.

        Of equally good candidates, the first one with the fewest limited columns wins.
        """
        size, cases = float(box.inside.sum()), float(self._cases[box.inside].sum())
        density = np.where(n > 0, k / np.maximum(n, 1), 0.0)
        change = np.abs(size - n)
        gains = np.where(change > 0, (density - cases / size) / np.maximum(change, 1), 0.0)
        best = np.flatnonzero(gains == gains.max())
        limited = [len(self._limits(box, *candidates[int(i)])) for i in best] if len(best) > 1 else [0]
        chosen = int(best[int(np.argmin(limited))])
        return chosen, float(gains[chosen])

    def _step(self, box: Step, column: int, limit: Limit, inside: BoolVector) -> Step:
        return Step(self._limits(box, column, limit), inside)

    def _limits(self, box: Step, column: int, limit: Limit) -> Mapping[int, Limit]:
        """Return the limits of the box with that of one column replaced, or dropped if it excludes nothing."""
        limits = dict(box.limits)
        limits.pop(column, None)
        if limit != (self._levels.get(column) or self._ends[column]):
            limits[column] = limit
        return limits

    def _limit(self, box: Step, column: int) -> Limit:
        everything: Limit = self._levels[column] if column in self._levels else self._ends[column]
        return box.limits.get(column, everything)

    def _within(self, column: int, limit: Limit) -> BoolVector:
        codes = self._codes[:, column]
        if isinstance(limit, frozenset):
            members: BoolVector = np.isin(codes, sorted(limit))
            return members
        inside: BoolVector = (codes >= limit[0]) & (codes <= limit[1])
        return inside

    def _within_others(self, box: Step, column: int) -> BoolVector:
        """Return whether each point satisfies the limits of all other columns."""
        inside = np.ones(len(self._holds), dtype=bool)
        for other, limit in box.limits.items():
            if other != column:
                inside &= self._within(other, limit)
        return inside


def _lower_quantiles(ordered: FloatArray) -> FloatVector:
    """Return the midpoint between the two codes around the lower quantile :data:`STEP` of each column.

    Equal codes are not separated: the upper of the two is the next larger one. ``ordered``: (points, columns), sorted.
    """
    last = len(ordered) - 1
    position = last * STEP
    low, high = ordered[math.floor(position)], ordered[math.ceil(position)].copy()
    for i in np.flatnonzero(low == high):
        following = int(np.searchsorted(ordered[:, i], low[i], side="right"))
        high[i] = ordered[min(following, last), i]
    middle: FloatVector = (low + high) / 2
    return middle


def _upper_quantiles(ordered: FloatArray) -> FloatVector:
    """Return the midpoint between the two codes around the upper quantile, as :func:`_lower_quantiles` does."""
    position = (len(ordered) - 1) * (1 - STEP)
    low, high = ordered[math.floor(position)].copy(), ordered[math.ceil(position)]
    for i in np.flatnonzero(low == high):
        before = int(np.searchsorted(ordered[:, i], high[i], side="left")) - 1
        low[i] = ordered[max(before, 0), i]
    middle: FloatVector = (low + high) / 2
    return middle


Limits = Mapping[int, Limit]

#: the most boxes of a method
MOST_BOXES = 4
#: the smallest box, as a share of all runs; for rare conditions, half of their share
SMALLEST = 0.05
#: the smallest number of runs in a box
_FEWEST_RUNS = 10
#: restrictions with a higher quasi-p value are dropped (Bryant and Lempert 2010)
SIGNIFICANT = 0.05
#: the smallest share of the cases that a box after the first must cover
_LEAST_COVERAGE = 0.1
#: splits of a tree are dropped if they reduce the impurity by less than this share
_LEAST_GAIN = 0.01


@dataclass(frozen=True)
class Points:
    """Runs as points, in which methods look for boxes.

    Attributes:
        columns: the axes, coded by row.
        row: (points,) the row of each point; resamples repeat points.
        holds: (points,) whether the condition holds.
        setting: (points,) the setting of each point.
    """

    columns: tuple[Column, ...]
    row: IntArray
    holds: BoolVector
    setting: IntArray

    def inside(self, box: Box) -> BoolVector:
        """Return whether each point lies in the box, (points,)."""
        inside: BoolVector = box.contains(self.columns)[self.row]
        return inside

    def only(self, kept: BoolVector | IntArray) -> Points:
        """Select some of the points."""
        return Points(self.columns, self.row[kept], self.holds[kept], self.setting[kept])


@dataclass(frozen=True)
class FoundLimits:
    """A box found by a method; ``trajectory``: of PRIM, columns of a table of the boxes on the way to it."""

    box: Box
    trajectory: Mapping[str, Array] | None = None


def smallest_mass(points: Points) -> float:
    """Return the size of the smallest allowed box, as a share of the points."""
    return min(SMALLEST, max(float(points.holds.mean()) / 2, _FEWEST_RUNS / len(points.holds)))


def quasi_p(points: Points, box: Box) -> dict[tuple[int, Side], float]:
    """Return the quasi-p value of each restriction (Bryant and Lempert 2010, section 4.2).

    It is the probability of at least this number of cases in the box if the restriction had no effect: a one-sided
    binomial test with the density of the box without it. Settings are counted, because repetitions are not independent.
    """
    from scipy.special import bdtrc

    kept = {(index, side): points.inside(box.only(index, side)) for index, side in box.sides()}
    inside = np.logical_and.reduce([np.ones(len(points.holds), dtype=bool), *kept.values()])
    trials = len(np.unique(points.setting[inside]))
    if not trials:
        return dict.fromkeys(kept, 1.0)
    cases = round(trials * float(points.holds[inside].mean()))
    values = {}
    for name in kept:
        wider = np.ones(len(points.holds), dtype=bool)
        for other, rows in kept.items():
            if other != name:
                wider &= rows
        values[name] = float(bdtrc(cases - 1, trials, float(points.holds[wider].mean())))
    return values


def significant(points: Points, box: Box) -> Box:
    """Drop insignificant restrictions, the least significant first."""
    while box.limits:
        values = quasi_p(points, box)
        worst = max(values, key=lambda name: values[name])
        if values[worst] <= SIGNIFICANT:
            break
        box = box.without(*worst)
    return box


# --- PRIM ---------------------------------------------------------------------------------


def find_by_prim(points: Points, most: int) -> list[FoundLimits]:
    """Find at most ``most`` boxes by PRIM, each among the points that the previous ones leave.

    The chosen box of a peeling trajectory has the highest correlation with the condition. This balances coverage and
    density for rare and common conditions; their harmonic mean would select all runs if the condition holds in most.
    """
    boxes: list[FoundLimits] = []
    mass = smallest_mass(points) * len(points.holds)
    cases, share = int(points.holds.sum()), float(points.holds.mean())
    left = np.ones(len(points.holds), dtype=bool)
    densest = 0.0
    while len(boxes) < most:
        remaining = points.only(left)
        if len(remaining.holds) <= mass or remaining.holds.all() or not remaining.holds.any():
            break
        box = _peeled(remaining, mass / len(remaining.holds), cases)
        inside = points.inside(box.box) & left
        if not box.box.limits or not inside.any():
            break
        density, coverage = float(points.holds[inside].mean()), points.holds[inside].sum() / cases
        if density <= share or (boxes and (coverage < _LEAST_COVERAGE or density < densest / 2)):
            break
        boxes.append(box)
        densest = max(densest, density)
        left &= ~inside
    return boxes


def _peeled(points: Points, mass: float, cases: int) -> FoundLimits:
    """Find one box; ``cases``: the number of cases in all points, the denominator of coverage."""
    codes = np.column_stack([column.codes[points.row] for column in points.columns])
    nominal = [column.kind == "nominal" for column in points.columns]
    steps = trajectory(codes, nominal, points.holds, mass)
    inside = np.array([step.inside for step in steps])
    n, k = inside.sum(axis=1).astype(float), (inside & points.holds).sum(axis=1).astype(float)
    best = int(np.argmax(correlations(n, k, points.holds)))
    table = {
        "step": np.arange(len(steps)),
        "coverage": k / cases,
        "density": k / n,
        "mass": n / len(points.holds),
        "restricted": np.array([_restricted(step, points.columns) for step in steps]),
        "chosen": np.arange(len(steps)) == best,
    }
    return FoundLimits(significant(points, tidy(steps[best].limits, points.columns)), table)


def _restricted(step: Step, columns: Sequence[Column]) -> int:
    """Count the columns with limits that exclude a row."""
    return sum(not Box({column: limit}).contains(columns).all() for column, limit in step.limits.items())


def correlations(n: FloatVector, k: FloatVector, holds: BoolVector) -> FloatVector:
    """Return the correlation of being in a box with the condition: the phi coefficient, 0 if all runs are in the box.

    ``n``: (boxes,) the runs in each box, ``k``: (boxes,) those in which the condition holds.
    """
    total, cases = len(holds), int(holds.sum())
    spread = n * (total - n) * cases * (total - cases)
    return np.where(spread > 0, (k * total - n * cases) / np.sqrt(np.maximum(spread, 1)), 0.0)


def check_installed() -> None:
    """Raise :class:`PalaestraiMosaikError` if scikit-learn, from the extra ``discovery``, is missing."""
    _tree()


def not_installed(method: str, package: str, error: ImportError) -> PalaestraiMosaikError:
    """Build the error for a missing package of the extra ``discovery``."""
    return PalaestraiMosaikError(
        f"{method} needs {package} ({error}); install it with: {install_extra('discovery')}"
    )


# --- CART ---------------------------------------------------------------------------------


def find_by_cart(points: Points, most: int) -> list[FoundLimits]:
    """Find at most ``most`` boxes by CART: the leaves in which the condition mostly holds, by their coverage.

    If there is no such leaf, those are taken in which it holds twice as often as in all runs.
    """
    leaves = []
    share = float(points.holds.mean())
    for limits in _leaves(points):
        box = Box(limits)
        inside = points.inside(box)
        if limits and inside.any():
            leaves.append((float(points.holds[inside].mean()), int(points.holds[inside].sum()), box))
    least = 0.5 if any(density > 0.5 for density, _, _ in leaves) else 2 * share
    kept = [leaf for leaf in leaves if leaf[0] > max(least, share)]
    kept.sort(key=lambda leaf: -leaf[1])
    return [FoundLimits(tidy(box.limits, points.columns)) for _, _, box in kept[:most]]


def _leaves(points: Points) -> Iterator[Limits]:
    """Yield the limits of each leaf of a tree that predicts the condition."""
    share = float(points.holds.mean())
    # Each level without order is a column that is 1 if the row has it.
    feature_columns: list[tuple[int, int | None]] = []
    for index, column in enumerate(points.columns):
        if column.kind == "nominal":
            feature_columns += [(index, int(code)) for code in np.unique(column.codes)]
        else:
            feature_columns.append((index, None))
    x = np.column_stack([_feature(points, index, code) for index, code in feature_columns])
    tree = _tree()(
        min_samples_leaf=max(1, math.ceil(smallest_mass(points) * len(points.holds))),
        min_impurity_decrease=_LEAST_GAIN * 2 * share * (1 - share),
        random_state=0,
    ).fit(x, points.holds)
    yield from _limits_below(tree.tree_, 0, feature_columns, points.columns, {})


def _tree() -> Any:
    try:
        from sklearn.tree import DecisionTreeClassifier
    except ImportError as error:
        raise not_installed("CART", "scikit-learn", error) from error
    return DecisionTreeClassifier


def _feature(points: Points, index: int, code: int | None) -> FloatVector:
    codes = points.columns[index].codes[points.row]
    return codes if code is None else (codes == code).astype(float)


def _limits_below(
    tree: Any,
    node: int,
    feature_columns: Sequence[tuple[int, int | None]],
    columns: Sequence[Column],
    limits: Limits,
) -> Iterator[Limits]:
    """Yield the limits of the leaves below ``node``, itself within ``limits``."""
    if tree.children_left[node] < 0:
        yield limits
        return
    index, code = feature_columns[tree.feature[node]]
    threshold = float(tree.threshold[node])
    left: Limit
    right: Limit
    if code is None:
        low, high = limits.get(index, (-math.inf, math.inf))
        left = (low, min(high, threshold))
        right = (max(low, math.nextafter(threshold, math.inf)), high)
    else:
        whole = frozenset(map(int, np.unique(columns[index].codes)))
        levels: Any = limits.get(index, whole)
        left, right = levels - {code}, levels & {code}
    for child, limit in ((tree.children_left[node], left), (tree.children_right[node], right)):
        yield from _limits_below(tree, child, feature_columns, columns, {**limits, index: limit})


#: name of a method -> its search function
METHODS: Mapping[str, Callable[[Points, int], list[FoundLimits]]] = {
    "PRIM": find_by_prim,
    "CART": find_by_cart,
}

"""PRIM's peeling and pasting: from all points to a small box in which a condition holds more often.

The algorithm is that of Friedman and Fisher (1999), "Bump hunting in high-dimensional data", Statistics and Computing
9. Objective, quantiles and the order of equally good peels are those of EMA Workbench (Kwakkel 2017, Environmental
Modelling & Software 96), so that both find the same boxes; ``tests/arsenai/analysis/test_prim.py`` compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatVector

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

"""Subsets of a factorial design that are balanced, and spread over all combinations.

Rows are taken one after the other. Each is the best by three criteria, in this order: its levels have been
taken least often so far; so have its pairs of levels; it lies far from the rows taken. The
distance is Gower's (1971, "A general coefficient of similarity"): 0 or 1 along a nominal axis,
the difference of ranks along others.

The rows are then improved: a level that is too frequent is replaced by one that is too rare,
and two rows exchange a level if that makes the pairs more even or moves the rows further apart
(Li and Wu, 1997, "Columnwise-pairwise algorithms with applications to the construction of
supersaturated designs"). Memory does not grow with the square of the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from palaestrai_mosaik.core.seeding import generator
from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .decode import decode, keep
from .model import INACTIVE, DesignSpec
from .samplers.sampler import Sample

#: Returns whether there is a row with these levels.
Allowed = Callable[[tuple[int, ...]], bool]

#: number of rows to decode at a time
_DECODED = 1000
#: Largest number of rows with the best levels to compare by their pairs.
_SHORTLIST = 400
#: number of exchanges to try per row and axis, and largest number in total
_TRIES, _MOST_TRIES = 200, 30_000
#: distance of equal rows
_NEAREST = 1e-3


def capped(spec: DesignSpec, drawn: Sample, size: int) -> Sample:
    """Select at most ``size`` rows of a factorial, and keep their order.

    Rows that differ only in inactive factors count as one.

    Args:
        spec: the design.
        drawn: all rows of the factorial, all rows that the constraints allow, or candidates (`samplers.candidates`).
        size: largest number of rows.
    """
    if not len(drawn.unit):
        return drawn
    levels, codes = _coded(drawn.unit)
    candidates = _candidates(spec, drawn.unit, codes)
    random = generator(spec.seed, "sample", "subset")
    nominal = [axis.nominal for axis in spec.axes]
    whole = "candidates" not in drawn.arguments or any(factor.when for factor in spec.factors)

    # row i holds the i-th value of every factor
    most = max(len(values) for values in levels)
    values = decode(spec, np.stack([np.resize(coordinates, most) for coordinates in levels], axis=1))

    def allowed(row: tuple[int, ...]) -> bool:
        pairs = zip(spec.axes, row, strict=True)
        return bool(
            keep(spec, [{f.name: values[code][f.name] for axis, code in pairs for f in axis.factors}])
        )

    taken = subset(candidates, nominal, size, random, None if whole else allowed)
    unit = np.stack(
        [coordinates[column] for coordinates, column in zip(levels, taken.T, strict=True)], axis=1
    )
    arguments = {**drawn.arguments, "max_runs": size, "chosen_from": len(candidates)}
    warnings = (*drawn.warnings, *_warning(drawn.arguments, len(taken), len(candidates), size))
    return Sample(unit, np.arange(len(unit), dtype=np.int64), arguments, warnings)


def _warning(arguments: Mapping[str, Any], taken: int, candidates: int, size: int) -> Iterator[str]:
    """Yield a warning with the number of selected rows, if some are left out."""
    if "looked_at" in arguments:
        seen = f"{arguments['looked_at']:,} of {arguments['combinations']:,} combinations were looked at"
        if taken < size:
            yield f"max_runs: only {taken:,} of {size:,} rows were found ({seen}); there may be more"
        else:
            yield f"max_runs: {taken:,} rows are taken ({seen})"
        return
    rows = arguments["allowed"] if "candidates" in arguments else candidates
    if taken < rows:
        yield f"max_runs: {taken:,} of {rows:,} rows are taken"


def subset(
    codes: IntArray,
    nominal: Sequence[bool],
    size: int,
    random: np.random.Generator,
    allowed: Allowed | None = None,
) -> IntArray:
    """Select ``size`` rows of ``codes``, in ascending order; all rows if there are not more.

    In a subset of a full factorial, the levels of an axis are equally frequent, +-1.

    Args:
        codes: (rows, axes) ranks of levels from 0, without duplicates.
        nominal: for each axis, whether it has no order.
        size: number of rows.
        random: the random generator.
        allowed: returns whether another row exists; None if ``codes`` are all rows.
    """
    if size >= len(codes):
        return codes
    # if the whole is balanced, the remainder is as balanced as the selected rows
    fewer = min(size, len(codes) - size) if allowed is None and _is_balanced(codes) else size
    all_rows = {tuple(row) for row in codes.tolist()}
    first = codes[_Greedy(codes, nominal, random).take(fewer)]
    chosen = _Improved(
        first, codes.max(axis=0) + 1, nominal, all_rows.__contains__ if allowed is None else allowed
    )
    chosen.balance(random)
    chosen.exchange(random)
    rows = chosen.known if fewer == size else all_rows - chosen.known
    return np.array(sorted(rows), dtype=np.int64)


def _is_balanced(codes: IntArray) -> bool:
    return all(len(np.unique(np.unique(column, return_counts=True)[1])) == 1 for column in codes.T)


def _coded(unit: FloatArray) -> tuple[list[FloatArray], IntArray]:
    """Return the coordinates of every axis, and the rows as ranks among them."""
    columns = [np.unique(column, return_inverse=True) for column in unit.T]
    return [levels for levels, _ in columns], np.stack([ranks for _, ranks in columns], axis=1)


def _candidates(spec: DesignSpec, unit: FloatArray, codes: IntArray) -> IntArray:
    """Return the rows that the constraints allow, without duplicates that differ only in inactive factors."""
    if not spec.constraints and not any(factor.when for factor in spec.factors):
        return codes
    allowed: list[int] = []
    keys: set[tuple[int, ...]] = set()
    for start in range(0, len(codes), _DECODED):
        values = decode(spec, unit[start : start + _DECODED])
        for index in keep(spec, values):
            row = values[index]
            off = [all(row[factor.name] is INACTIVE for factor in axis.factors) for axis in spec.axes]
            key = tuple(np.where(off, -1, codes[start + index]).tolist())
            if key not in keys:
                keys.add(key)
                allowed.append(start + index)
    return codes[allowed]


class _Distance:
    """Gower's distance between rows of ranks."""

    def __init__(self, counts: IntArray, nominal: Sequence[bool]):
        self._nominal = np.array(nominal, dtype=bool)
        self._ends = np.maximum(counts - 1, 1)

    def crowding(self, rows: IntArray, row: IntArray) -> FloatArray:
        """Return the closeness of each of ``rows``, (rows, axes), to ``row``: large if they are near."""
        gaps = np.abs(rows - row) / self._ends
        gaps[:, self._nominal] = gaps[:, self._nominal] > 0
        closeness: FloatArray = 1 / (gaps.mean(axis=1) + _NEAREST) ** 2
        return closeness


class _Greedy:
    """Takes rows one after the other, and counts how often each level and pair was taken."""

    def __init__(self, codes: IntArray, nominal: Sequence[bool], random: np.random.Generator):
        self._codes = codes
        self._columns = [np.ascontiguousarray(column) for column in codes.T]
        self._counts = codes.max(axis=0) + 1
        self._present = [np.unique(column) for column in self._columns]
        self._distance = _Distance(self._counts, nominal)
        self._level_use = [np.zeros(count, dtype=np.int64) for count in self._counts]
        pairs = combinations(range(codes.shape[1]), 2)
        self._pair_use = {
            (i, j): np.zeros((self._counts[i], self._counts[j]), dtype=np.int64) for i, j in pairs
        }
        self._crowding = np.zeros(len(codes))
        self._tie = random.random(len(codes))
        self._taken = np.zeros(len(codes), dtype=bool)

    def take(self, size: int) -> IntArray:
        """Take ``size`` rows, and return their indices."""
        for _ in range(size):
            row = self._best()
            self._taken[row] = True
            for use, column in zip(self._level_use, self._columns, strict=True):
                use[column[row]] += 1
            for (i, j), uses in self._pair_use.items():
                uses[self._codes[row, i], self._codes[row, j]] += 1
            self._crowding += self._distance.crowding(self._codes, self._codes[row])
        return np.flatnonzero(self._taken)

    def _best(self) -> int:
        excess = np.zeros(len(self._codes), dtype=np.int64)
        for use, present, column in zip(self._level_use, self._present, self._columns, strict=True):
            excess += ((use - use[present].min()) ** 2)[column]
        excess[self._taken] = np.iinfo(np.int64).max
        rows = np.flatnonzero(excess == excess.min())
        if len(rows) > _SHORTLIST:
            rows = rows[np.argpartition(self._tie[rows], _SHORTLIST)[:_SHORTLIST]]
        pairs = np.zeros(len(rows), dtype=np.int64)
        for (i, j), uses in self._pair_use.items():
            pairs += uses[self._columns[i][rows], self._columns[j][rows]]
        rows = rows[pairs == pairs.min()]
        order = np.lexsort((self._tie[rows], np.round(self._crowding[rows], 9)))
        return int(rows[order[0]])


class _Improved:
    """Rows that are changed level by level; ``known`` contains all of them as tuples."""

    def __init__(self, rows: IntArray, counts: IntArray, nominal: Sequence[bool], allowed: Allowed):
        self._rows = rows.copy()
        self._counts = counts
        self._allowed = allowed
        self._distance = _Distance(counts, nominal)
        self.known = {tuple(row) for row in rows.tolist()}
        self._pair_use = {(i, j): self._uses(i, j) for i, j in combinations(range(len(counts)), 2)}

    def _uses(self, i: int, j: int) -> IntArray:
        keys = self._rows[:, i] * self._counts[j] + self._rows[:, j]
        uses = np.bincount(keys, minlength=self._counts[i] * self._counts[j])
        return uses.reshape(self._counts[i], self._counts[j])

    def balance(self, random: np.random.Generator) -> None:
        """Replace levels that are too frequent, in one row each, as far as other rows are allowed."""
        for axis, count in enumerate(self._counts):
            while self._replace(axis, np.bincount(self._rows[:, axis], minlength=count), random):
                pass

    def _replace(self, axis: int, use: IntArray, random: np.random.Generator) -> bool:
        """Replace one level of ``axis`` that occurs at least two times more than another; return False if impossible."""
        for often in np.argsort(-use, kind="stable"):
            for rarely in np.argsort(use, kind="stable"):
                if use[often] - use[rarely] < 2:
                    break
                for index in random.permutation(np.flatnonzero(self._rows[:, axis] == often)):
                    row = self._rows[index].copy()
                    row[axis] = rarely
                    if self._put([int(index)], row[None]):
                        return True
        return False

    def exchange(self, random: np.random.Generator) -> None:
        """Let random pairs of rows exchange a level, which keeps the frequencies of levels.

        In the first half, every exchange is accepted unless it makes the pairs of levels less even, so that the search
        can wander. Later, exchanges that do not change the pairs must move the rows further apart.
        """
        size, axes = self._rows.shape
        tries = min(_TRIES * size * axes, _MOST_TRIES) if axes > 1 else 0
        for number in range(tries):
            axis, *pair = (int(random.integers(end)) for end in (axes, size, size))
            rows = self._rows[pair]
            if rows[0, axis] == rows[1, axis]:
                continue
            grown = self._unevenness(axis, *rows)
            if grown > 0:
                continue
            rows[:, axis] = rows[::-1, axis]
            if number > tries // 2 and grown == 0 and not self._wider(pair, rows):
                continue
            self._put(pair, rows)

    def _unevenness(self, axis: int, row: IntArray, other_row: IntArray) -> int:
        """Return the increase of the sum of squared frequencies of pairs, if the two rows exchange a level."""
        grown = 0
        a, b = row[axis], other_row[axis]
        for second in range(len(row)):
            c, d = row[second], other_row[second]
            if second == axis or c == d:
                continue
            uses = self._pair_use[axis, second] if axis < second else self._pair_use[second, axis].T
            grown += 2 * int(uses[a, d] + uses[b, c] - uses[a, c] - uses[b, d]) + 4
        return grown

    def _wider(self, pair: list[int], new: IntArray) -> bool:
        """Return whether ``new`` would be further from the other rows than the two rows that it replaces."""
        remaining = np.delete(self._rows, pair, axis=0)
        before, after = (
            sum(float(self._distance.crowding(remaining, row).sum()) for row in rows)
            for rows in (self._rows[pair], new)
        )
        return after < before

    def _put(self, indices: list[int], new: IntArray) -> bool:
        """Replace the rows at ``indices`` by ``new`` if these are allowed; return whether they were."""
        rows = [tuple(row) for row in new.tolist()]
        if any(row in self.known or not self._allowed(row) for row in rows):
            return False
        for index, row in zip(indices, new, strict=True):
            old = self._rows[index].copy()
            for (i, j), uses in self._pair_use.items():
                uses[old[i], old[j]] -= 1
                uses[row[i], row[j]] += 1
            self.known.remove(tuple(old.tolist()))
            self.known.add(tuple(row.tolist()))
            self._rows[index] = row
        return True

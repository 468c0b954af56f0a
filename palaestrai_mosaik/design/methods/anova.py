"""Analysis of variance of a factorial design: the shares of variance of factors and their pairs.

Source: Montgomery, "Design and Analysis of Experiments", chapters 4 (blocks), 5 (factorial
designs) and 14 (nested factors). With a full factorial in which every combination of levels was run
equally often, the sums of squares are those of marginal means, exact and adding up. Else they are
of type II (each term given all others that do not contain it; Langsrud 2003, "ANOVA for unbalanced
data", Statistics and Computing 13), and do not add up.

Each executed run is one observation. A factor that is inactive in part of the runs has no level
there: its contrasts are 0 in these runs, and it is nested in the factors that decide whether it is
active. A nested factor contains those, so that they are tested without it: the mean of all runs of
one algorithm is compared with that of another, whatever parameters only one of them has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np

from palaestrai_mosaik.text import joined
from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .method import Index, Indices, Method, MethodDisplay, Refused, Study, no_resamples

#: names of what is no factor
ERROR, HIGHER, REPETITION = "(error)", "(higher interactions)", "(repetition)"
#: columns of a linear model beyond which pairs are left out
_MOST_COLUMNS = 300
#: fractions of this resolution on, pairs of factors are confounded with no other pair and no factor
_PAIRS_TOLD = 5
_CONFOUNDED = (
    "single factors only: interactions are in them, or in the error, as the aliases of the design say"
)
_NO_ERROR = "no run is left for an error, so that it cannot be told which shares are more than chance"
_TINY = 1e-12

Term = tuple[int, ...]


@dataclass(frozen=True)
class _Table:
    """Sums of squares with their degrees of freedom; an error with 0 of them is missing."""

    terms: dict[Term, tuple[float, int]]
    total: float
    error: tuple[float, int]
    error_name: str
    others: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()


def anova(study: Study) -> Indices:
    """Return eta squared of every axis and pair of axes, with ``F``, ``p`` and ``df`` where there is an error.

    Eta squared is the sum of squares of a term over the total one, repetitions and all. The
    error is the spread of repetitions; where they share their seeds over all rows, the seed is a
    block and its share the row :data:`REPETITION`. Without repetitions it is what the terms
    leave unexplained. ``omega2`` is the estimate of the same share in the population, which
    does not grow with the number of levels. NaN where a term has no degree of freedom: of a factor
    one level is left, or the term is confounded with others as a whole. The rows of ``study`` are
    those that were executed, each once.
    """
    codes = np.column_stack([_levels(column) for column in _coordinates(study).T])
    if study.repetitions is not None:
        runs = study.repetitions
        codes, number, y = codes[runs.row], runs.number, runs.y
    else:
        number, y = np.zeros(len(study.y), dtype=np.int64), study.y
    levels = tuple(int(column.max()) + 1 for column in codes.T)
    contrasts = sum(max(size - 1, 0) for size in levels)
    if len(y) <= contrasts:
        raise Refused(f"{len(y)} runs are too few for the {contrasts} contrasts of all levels and a mean")
    order = 2 if _pairs_distinguishable(study) else 1
    common = study.repetitions is not None and study.repetitions.common
    if codes.min() >= 0 and _is_balanced(codes, number, levels, common):
        table = _balanced(codes, number, y, levels, order, common)
    else:
        coded_runs = _Runs(codes, number, y, common, study.repetitions is not None)
        table = _type_two(coded_runs, study.names, order)
    notes = table.notes if table.error[1] else (*table.notes, _NO_ERROR)
    notes = notes if order > 1 else (*notes, _CONFOUNDED)
    return Indices(list(_rows(table, study.names)), notes)


def _coordinates(study: Study) -> FloatArray | IntArray:
    return study.unit if study.levels is None else study.levels


def _levels(column: FloatArray | IntArray) -> IntArray:
    """Return the numbers of the levels that occur in ``column``, counted from 0; below 0 is inactive."""
    found = np.unique(column[column >= 0])
    return np.where(column < 0, -1, np.searchsorted(found, column)).astype(np.int64)


def _pairs_distinguishable(study: Study) -> bool:
    """Whether the design tells pairs of factors from each other and from single factors."""
    if "resolution" not in study.arguments:
        return study.sampler == "factorial"
    resolution = study.arguments["resolution"]  # None: a full factorial
    return resolution is None or int(resolution) >= _PAIRS_TOLD


def _is_balanced(codes: IntArray, number: IntArray, levels: tuple[int, ...], common: bool) -> bool:
    """Whether every combination of levels was run equally often; where they share seeds, once with each seed.

    Combinations that lost one run each, but not of the same seed, are as many and not balanced.
    """
    wanted = prod(levels)
    if common:
        codes, wanted = np.column_stack([codes, number]), wanted * len(np.unique(number))
    counts = np.unique(codes, axis=0, return_counts=True)[1]
    return bool(len(counts) == wanted and counts.min() == counts.max() and (not common or counts.max() == 1))


def _rows(table: _Table, names: Sequence[str]) -> Iterator[Index]:
    from scipy.stats import f

    def cleared(square: float) -> float:
        """Return the sum of squares, 0 where it is nothing but rounding."""
        return 0.0 if square <= _TINY * table.total else square

    square, freedom = cleared(table.error[0]), table.error[1]
    mean_error = square / freedom if freedom else float("nan")
    for term, (explained, df) in table.terms.items():
        explained = cleared(explained)
        factor, other = names[term[0]], names[term[1]] if len(term) > 1 else ""
        shares = {"eta2": explained / table.total if df else float("nan"), "df": float(df)}
        if freedom and df:
            shares["omega2"] = (explained - df * mean_error) / (table.total + mean_error)
            if mean_error:
                shares["F"] = explained / df / mean_error
                shares["p"] = float(f.sf(shares["F"], df, freedom))
        for index, value in shares.items():
            yield Index(index, factor, value, factor2=other)
    for name, share in (*table.others, *([(table.error_name, square)] if freedom else [])):
        yield Index("eta2", name, cleared(share) / table.total)
    if freedom:
        yield Index("df", table.error_name, float(freedom))


def _balanced(
    codes: IntArray, number: IntArray, y: FloatArray, levels: tuple[int, ...], order: int, common: bool
) -> _Table:
    repetitions = len(y) // prod(levels)
    sorting = np.lexsort((number, *codes.T[::-1]))
    values = (y - y.mean())[sorting].reshape(*levels, repetitions)
    cells = values.mean(axis=-1)
    effects: dict[Term, FloatArray] = {(): np.zeros((1,) * len(levels))}
    terms: dict[Term, tuple[float, int]] = {}
    for term in _terms(len(levels), order):
        rest = tuple(axis for axis in range(len(levels)) if axis not in term)
        inner = [effects[part] for k in range(len(term)) for part in combinations(term, k)]
        effects[term] = cells.mean(axis=rest, keepdims=True) - sum(inner)
        share = float((effects[term] ** 2).sum()) * len(y) / prod(levels[axis] for axis in term)
        terms[term] = (share, prod(levels[axis] - 1 for axis in term))
    total = float((values**2).sum())
    between = float((cells**2).sum()) * repetitions
    higher = max(between - sum(square for square, _ in terms.values()), 0.0)
    df_higher = prod(levels) - 1 - sum(df for _, df in terms.values())
    if repetitions == 1:
        note = "without repetitions, terms are tested against the interactions of more factors"
        return _Table(terms, total, (higher, df_higher), HIGHER, (), (note,) if df_higher else ())
    others = [(HIGHER, higher)] if df_higher else []
    within, freedom = total - between, prod(levels) * (repetitions - 1)
    if common:
        seeds = values.reshape(-1, repetitions).mean(axis=0)
        block = float((seeds**2).sum()) * prod(levels)
        others.append((REPETITION, block))
        within, freedom = within - block, freedom - (repetitions - 1)
    return _Table(terms, total, (max(within, 0.0), freedom), ERROR, tuple(others))


def _terms(size: int, order: int) -> list[Term]:
    return [term for k in range(1, min(order, size) + 1) for term in combinations(range(size), k)]


@dataclass(frozen=True)
class _Runs:
    """The executed runs: ``codes``, (runs, axes), their levels, -1 where inactive; ``number``, their repetition."""

    codes: IntArray
    number: IntArray
    y: FloatArray
    common: bool
    repeated: bool

    @property
    def blocks(self) -> FloatArray:
        """The contrasts of the seeds that all rows share."""
        if not self.common:
            return np.empty((len(self.y), 0))
        return _contrasts(np.unique(self.number, return_inverse=True)[1])

    def spread(self) -> tuple[float, int]:
        """Return the sum of squares between runs of the same levels, seeds apart, and its degrees of freedom."""
        cell = np.unique(self.codes, axis=0, return_inverse=True)[1].ravel()
        counts = np.bincount(cell)
        both = np.column_stack([self.y - self.y.mean(), self.blocks])
        sums = np.zeros((len(counts), both.shape[1]))
        np.add.at(sums, cell, both)
        within = both - (sums / counts[:, None])[cell]
        left, rank = float((within**2).sum()), 0
        if within.shape[1] > 1:
            left, rank = _unexplained([within[:, 1:]], within[:, 0])
        return left, len(self.y) - len(counts) - rank


def _type_two(runs: _Runs, names: Sequence[str], order: int) -> _Table:
    centred = runs.y - runs.y.mean()
    blocks = [np.ones((len(centred), 1)), runs.blocks]
    single = [_contrasts(column) for column in runs.codes.T]
    columns: dict[Term, FloatArray] = {(i,): block for i, block in enumerate(single)}
    above = _nesting(runs.codes)
    notes = ["not every combination of levels was run equally often: sums of squares are of type II"]
    nested = [names[i] for i, column in enumerate(runs.codes.T) if column.min() < 0]
    if nested:
        notes.append(_nested_note(nested))
    pairs = [term for term in _terms(len(single), order) if len(term) == 2]
    if sum(single[i].shape[1] * single[j].shape[1] for i, j in pairs) > _MOST_COLUMNS:
        notes.append(f"pairs of factors are left out: they have more than {_MOST_COLUMNS} contrasts")
        pairs = []
    most = {term: block.shape[1] for term, block in columns.items()}
    for i, j in pairs:
        own = (single[i][:, :, None] * single[j][:, None, :]).reshape(len(centred), -1)
        free = own.shape[1]
        if runs.codes[:, [i, j]].min() < 0:
            # levels that never meet, because one factor is inactive there, have no contrast
            alone = [blocks[0], single[i], single[j]]
            free = _unexplained([*alone, own], centred)[1] - _unexplained(alone, centred)[1]
        if free or not own.shape[1]:
            columns[(i, j)], most[(i, j)] = own, free
    terms: dict[Term, tuple[float, int]] = {}
    for term, own in columns.items():
        given = [
            block
            for other, block in columns.items()
            # what a pair consists of is given, also where it is nested in the other half
            if set(other) < set(term) or not set(term) <= set(other).union(*(above[axis] for axis in other))
        ]
        without, rank_without = _unexplained([*blocks, *given], centred)
        left, rank = _unexplained([*blocks, *given, own], centred)
        df = rank - rank_without
        terms[term] = (max(without - left, 0.0) if df else float("nan"), df)
    left, rank = _unexplained([*blocks, *columns.values()], centred)
    lost = [term for term, (_, df) in terms.items() if df < most[term]]
    if lost:
        notes.append(
            f"{len(lost)} of {len(terms)} terms are confounded with others, in part or as a whole (see df)"
        )
    error: tuple[float, int] = (left, len(centred) - rank)
    others: list[tuple[str, float]] = []
    if runs.repeated:
        within, freedom = runs.spread()
        if 0 < freedom < error[1]:
            others.append((HIGHER, max(left - within, 0.0)))
            error = (within, freedom)
    if runs.blocks.shape[1]:
        others.append((REPETITION, max(_unexplained([blocks[0], *columns.values()], centred)[0] - left, 0.0)))
    return _Table(terms, float((centred**2).sum()), error, ERROR, tuple(others), tuple(notes))


def _nested_note(names: Sequence[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{joined(names)} {verb} inactive in part of the runs and nested in what decides on that: the levels of a nested factor "
        "are compared where it is active, those of other factors by the mean of all of their runs"
    )


def _nesting(codes: IntArray) -> list[set[int]]:
    """Return for each axis those that it is nested in: at some of their levels it is never active, at others it is."""
    active = codes >= 0
    above: list[set[int]] = []
    for own in active.T:
        found = set()
        for axis, column in enumerate(codes.T):
            levels = np.unique(column)
            share = np.array([own[column == level].any() for level in levels])
            if own.any() and not share.all():
                found.add(axis)
        above.append(found)
    for _ in range(len(above)):
        above = [one.union(*(above[axis] for axis in one)) for one in above]
    return [one - {axis} for axis, one in enumerate(above)]


def _contrasts(code: IntArray) -> FloatArray:
    """Return the columns of a factor in deviation coding: the last level is -1 in all of them, what is inactive 0."""
    last = int(code.max())
    if last < 1:
        return np.empty((len(code), 0))
    result: FloatArray = (code[:, None] == np.arange(last)).astype(float)
    result[code == last] = -1.0
    return result


def _unexplained(parts: Sequence[FloatArray], y: FloatArray) -> tuple[float, int]:
    """Return the residual sum of squares of a linear model, and its rank."""
    matrix = np.column_stack(parts)
    solution, _, rank, _ = np.linalg.lstsq(matrix, y, rcond=None)
    return float(((y - matrix @ solution) ** 2).sum()), int(rank)


ANOVA = Method(
    "anova",
    anova,
    indices=("eta2",),
    samplers=("factorial", "fractional_factorial", "plackett_burman"),
    why="it needs every factor on a few levels, in balance with the others",
    drops="run",
    shared_runs="observations",
    resamples=no_resamples,
    display=MethodDisplay(
        "Analysis of variance",
        ("eta2",),
        "eta2",
        True,
        "eta2 (eta squared) is the share of the sum of squares that a factor explains on its own; F and p "
        "test it against the spread of repetitions, without a correction for several factors.",
        "eta2",
    ),
)

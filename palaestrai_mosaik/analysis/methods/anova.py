"""Analysis of variance of a factorial design: the shares of variance of factors and their pairs.

Source: Montgomery, "Design and Analysis of Experiments", chapters 4 (blocks) and 5 (factorial
designs). With a full factorial in which every combination of levels was run equally often, the
sums of squares are those of marginal means, exact and adding up. Else they are of type II (each
term given all others that do not contain it; Langsrud 2003, "ANOVA for unbalanced data",
Statistics and Computing 13), and do not add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np

from .study import FloatArray, Index, Indices, IntArray, Refused, Study

#: names of what is no factor
ERROR, HIGHER, REPETITION = "(error)", "(higher interactions)", "(repetition)"
#: columns of a linear model beyond which pairs are left out
_MOST_COLUMNS = 300
#: fractions of this resolution on, pairs of factors are confounded with no other pair and no factor
_PAIRS_TOLD = 5
_CONFOUNDED = (
    "single factors only: interactions are in them, or in the error, as the aliases of the design say"
)
_TINY = 1e-12

Term = tuple[int, ...]


@dataclass(frozen=True)
class _Table:
    """Sums of squares with their degrees of freedom; an error with 0 of them is none."""

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
    one level is left, or the term is confounded with others as a whole.
    """
    codes = np.column_stack([np.unique(column, return_inverse=True)[1] for column in study.unit.T])
    if study.repetitions is not None:
        runs = study.repetitions
        codes, number, y = codes[runs.row], runs.number, runs.y
    else:
        number, y = np.zeros(len(study.y), dtype=np.int64), study.y
    levels = tuple(int(column.max()) + 1 for column in codes.T)
    contrasts = sum(levels) - len(levels)
    if len(y) <= contrasts:
        raise Refused(f"{len(y)} runs are too few for the {contrasts} contrasts of all levels and a mean")
    order = 2 if _pairs_told(study) else 1
    common = study.repetitions is not None and study.repetitions.common
    cells, counts = np.unique(codes, axis=0, return_counts=True)
    balanced = len(cells) == prod(levels) and counts.min() == counts.max()
    if balanced:
        table = _balanced(codes, number, y, levels, order, common)
    else:
        table = _type_two(codes, number, y, levels, order, common)
    notes = table.notes if order > 1 else (*table.notes, _CONFOUNDED)
    return Indices(list(_rows(table, study.names)), notes)


def _pairs_told(study: Study) -> bool:
    """Whether the design tells pairs of factors from each other and from single factors."""
    if "resolution" not in study.arguments:
        return study.sampler == "factorial"
    resolution = study.arguments["resolution"]  # None: a full factorial
    return resolution is None or int(resolution) >= _PAIRS_TOLD


def _rows(table: _Table, names: Sequence[str]) -> Iterator[Index]:
    from scipy.stats import f

    square, freedom = table.error
    if square <= _TINY * table.total:
        square = 0.0
    mean_error = square / freedom if freedom else float("nan")
    for term, (explained, df) in table.terms.items():
        factor, other = names[term[0]], names[term[1]] if len(term) > 1 else ""
        told = {"eta2": explained / table.total if df else float("nan"), "df": float(df)}
        if freedom and df:
            told["omega2"] = (explained - df * mean_error) / (table.total + mean_error)
            if mean_error:
                told["F"] = explained / df / mean_error
                told["p"] = float(f.sf(told["F"], df, freedom))
        for index, value in told.items():
            yield Index(index, factor, value, factor2=other)
    for name, share in (*table.others, *([(table.error_name, square)] if freedom else [])):
        yield Index("eta2", name, share / table.total)
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


def _type_two(
    codes: IntArray, number: IntArray, y: FloatArray, levels: tuple[int, ...], order: int, common: bool
) -> _Table:
    centred = y - y.mean()
    blocks = [np.ones((len(y), 1))]
    if common and number.max() > number.min():
        blocks.append(_contrasts(np.unique(number, return_inverse=True)[1]))
    single = [_contrasts(column) for column in codes.T]
    columns: dict[Term, FloatArray] = {(i,): block for i, block in enumerate(single)}
    notes = ["not every combination of levels was run equally often: sums of squares are of type II"]
    pairs = [term for term in _terms(len(levels), order) if len(term) == 2]
    if sum(single[i].shape[1] * single[j].shape[1] for i, j in pairs) > _MOST_COLUMNS:
        notes.append(f"pairs of factors are left out: they have more than {_MOST_COLUMNS} contrasts")
        pairs = []
    for i, j in pairs:
        columns[(i, j)] = (single[i][:, :, None] * single[j][:, None, :]).reshape(len(y), -1)
    terms: dict[Term, tuple[float, int]] = {}
    for term, own in columns.items():
        given = [columns[other] for other in columns if not set(term) <= set(other)]
        without, rank_without = _unexplained([*blocks, *given], centred)
        left, rank = _unexplained([*blocks, *given, own], centred)
        df = rank - rank_without
        terms[term] = (max(without - left, 0.0) if df else float("nan"), df)
    left, rank = _unexplained([*blocks, *columns.values()], centred)
    lost = [term for term, (_, df) in terms.items() if df < columns[term].shape[1]]
    if lost:
        notes.append(
            f"{len(lost)} of {len(terms)} terms are confounded with others, in part or as a whole (see df)"
        )
    total = float((centred**2).sum())
    return _Table(terms, total, (left, len(y) - rank), ERROR, (), tuple(notes))


def _contrasts(code: IntArray) -> FloatArray:
    """Return the columns of a factor in deviation coding: the last level is -1 in all of them."""
    last = int(code.max())
    if last == 0:
        return np.empty((len(code), 0))
    result = (code[:, None] == np.arange(last)).astype(float)
    result[code == last] = -1.0
    return result


def _unexplained(parts: Sequence[FloatArray], y: FloatArray) -> tuple[float, int]:
    """Return the residual sum of squares of a linear model, and its rank."""
    matrix = np.column_stack(parts)
    solution, _, rank, _ = np.linalg.lstsq(matrix, y, rcond=None)
    return float(((y - matrix @ solution) ** 2).sum()), int(rank)

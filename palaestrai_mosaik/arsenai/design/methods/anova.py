"""Analysis of variance of a factorial design: the shares of variance of factors and their pairs.

Source: Montgomery, "Design and Analysis of Experiments", chapters 4 (blocks), 5 (factorial
designs) and 14 (nested factors). For a full factorial in which every combination of levels was run
equally often, the sums of squares are those of marginal means, which are exact and add up. Otherwise they
are of type II (each term adjusted for all others that do not contain it; Langsrud 2003, "ANOVA for unbalanced
data", Statistics and Computing 13). In an orthogonal design (a complete fraction, a Plackett-Burman
design) all types of sums of squares are the same, and add up.

If all rows share their seeds, the analysis is one of repeated measures: a seed is a random block, and an effect
is tested against how much it differs from seed to seed. Contrasts of an effect may differ by unequal amounts, so the
degrees of freedom are reduced (Huynh and Feldt 1976, "Estimation of the Box correction for degrees of freedom from
sample data", Journal of Educational Statistics 1, corrected by Lecoutre 1991, the same journal, 16).

Each executed run is one observation. A factor that is inactive in part of the runs has no level
there: its contrasts are 0 in these runs, and it is nested in the factors that decide whether it is
active. The latter are tested without the nested factor, which contains them: the mean of all runs of one
algorithm is compared with that of another, whatever parameters only one of them has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import prod

import numpy as np

from palaestrai_mosaik.core.printing import count, joined, listed
from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .method import Index, Indices, Method, MethodDisplay, Study, no_resamples, require
from .significance import holm, p_rows

#: names of the rows that stand for no factor
ERROR, HIGHER, REPETITION = "(error)", "(higher interactions)", "(repetition)"
#: largest number of contrasts of pairs in a linear model; with more, pairs are left out
_MOST_COLUMNS = 300
# confounded terms that are named
_MOST_TERMS = 5
#: from this resolution on, pairs of factors are confounded with no other pair and no factor
_PAIRS_TOLD = 5
_CONFOUNDED = (
    "single factors only: interactions are in them, or in the error, as the aliases of the design say"
)
_NO_ERROR = "no run is left for an error, so that it cannot be told which shares are more than chance"
_TINY = 1e-12
#: Fewest seeds for an estimate of the variances of contrasts. With three, the correction yields 2 to 3 % false alarms.
_SEEDS_FOR_SPHERICITY = 4
#: singular values of a matrix of contrasts below this are rounding errors
_RANK = 1e-9

Term = tuple[int, ...]


@dataclass(frozen=True)
class _Test:
    """An F test of one effect.

    Attributes:
        effect: sum of squares of the effect.
        df: its degrees of freedom.
        error: mean square of the error.
        freedom: degrees of freedom of the error.
        sphericity: factor for both degrees of freedom; 1 if all contrasts of the effect have the same error variance.
    """

    effect: float
    df: int
    error: float
    freedom: int
    sphericity: float = 1.0


@dataclass(frozen=True)
class _Table:
    """An analysis of variance: sums of squares with their degrees of freedom.

    An error with 0 degrees of freedom is missing. ``tests`` holds the tests of terms with errors of their own; all
    others are tested against ``error``.
    """

    terms: dict[Term, tuple[float, int]]
    total: float
    error: tuple[float, int]
    error_name: str
    others: tuple[tuple[str, float], ...] = ()
    notes: tuple[str, ...] = ()
    tests: Mapping[Term, _Test] = field(default_factory=dict)


def anova(study: Study) -> Indices:
    """Compute eta squared of every axis and pair of axes, and their F tests if there is an error.

    Eta squared is the sum of squares of a term, divided by the total sum, including the repetitions. ``omega2``
    estimates the same share in the population; it does not grow with the number of levels. Tests have the indices
    ``F``, ``p``, ``df`` and ``df_error``; ``p_adjusted`` is p of a single factor, adjusted by Holm's method.

    The error is the spread of repetitions; without repetitions, it is the variance that the terms do not explain. If
    all rows share their seeds, the share of the seed is the row :data:`REPETITION`, and the error of a term is its
    interaction with the seed; ``epsilon`` is the factor that corrects the degrees of freedom of its test.

    Eta squared is NaN for a term without degrees of freedom: only one level of a factor is left, or the term is fully
    confounded with others.

    Args:
        study: a study with one row for each executed row.

    Raises:
        Refused: there are too few runs for the contrasts of all levels and a mean.
    """
    require(_needs(study))
    codes = _codes(study)
    if study.repetitions is not None:
        number, y = study.repetitions.number, study.repetitions.y
    else:
        number, y = np.zeros(len(study.y), dtype=np.int64), study.y
    levels = tuple(int(column.max()) + 1 for column in codes.T)
    order = 2 if _pairs_distinguishable(study) else 1
    common = study.repetitions is not None and study.repetitions.common
    model = _model(codes, study.names, order)
    if codes.min() >= 0 and _is_balanced(codes, number, levels, common):
        table = _balanced(codes, number, y, levels, order, common)
    else:
        table = _type_two(_Runs(codes, number, y, common, study.repetitions is not None), model, study.names)
    notes = [*table.notes]
    if common and len(np.unique(number)) > 1:
        table = replace(table, tests=_tests_by_seed(model, table.terms, number, y))
        notes += _notes_of_seeds(table.tests, len(np.unique(number)))
    elif not table.error[1]:
        notes.append(_NO_ERROR)
    rows = list(_rows(table, study.names))
    p = {row.factor: row.value for row in rows if row.index == "p" and not row.factor2}
    rows += p_rows(list(p), holm(list(p.values())))
    return Indices(rows, (*notes, *([] if order > 1 else [_CONFOUNDED])))


def _notes_of_seeds(tests: Mapping[Term, _Test], seeds: int) -> Iterator[str]:
    if not any(test.freedom for test in tests.values()):
        yield _NO_ERROR
        return
    yield "all rows share their seeds: each effect is tested against how much it differs from seed to seed"
    if seeds < _SEEDS_FOR_SPHERICITY and any(test.df > 1 for test in tests.values()):
        yield (
            f"{seeds} seeds do not tell whether the levels of a factor differ from seed to seed by equal amounts; if they do not, "
            "some 10 % of the tests alarm without an effect, not 5 %"
        )


def _needs(study: Study) -> str | None:
    codes = _codes(study)
    contrasts = int(np.maximum(codes.max(axis=0), 0).sum())
    if len(codes) > contrasts:
        return None
    runs = "1 run is" if len(codes) == 1 else f"{len(codes)} runs are"
    return f"{runs} too few for the {contrasts} contrasts of all levels and a mean"


def _codes(study: Study) -> IntArray:
    """Return the levels of the executed runs, (runs, axes), numbered from 0; negative if inactive."""
    codes = np.column_stack([_levels(column) for column in _coordinates(study).T])
    return codes if study.repetitions is None else codes[study.repetitions.row]


def _coordinates(study: Study) -> FloatArray | IntArray:
    return study.unit if study.levels is None else study.levels


def _levels(column: FloatArray | IntArray) -> IntArray:
    """Number the levels in ``column`` from 0; negative values, of inactive rows, become -1."""
    levels = np.unique(column[column >= 0])
    return np.where(column < 0, -1, np.searchsorted(levels, column)).astype(np.int64)


def _pairs_distinguishable(study: Study) -> bool:
    """Return whether pairs of factors are confounded with no other pair and no single factor."""
    if "resolution" not in study.arguments:
        return study.sampler == "factorial"
    resolution = study.arguments["resolution"]  # None: a full factorial
    return resolution is None or int(resolution) >= _PAIRS_TOLD


def _is_balanced(codes: IntArray, number: IntArray, levels: tuple[int, ...], common: bool) -> bool:
    """Return whether every combination of levels was run equally often; with common seeds, once with each seed.

    Equal counts are not enough with common seeds: combinations may have lost runs of different seeds.
    """
    cells = prod(levels)
    if common:
        codes, cells = np.column_stack([codes, number]), cells * len(np.unique(number))
    counts = np.unique(codes, axis=0, return_counts=True)[1]
    return bool(len(counts) == cells and counts.min() == counts.max() and (not common or counts.max() == 1))


def _rows(table: _Table, names: Sequence[str]) -> Iterator[Index]:
    from scipy.stats import f

    def cleared(square: float) -> float:
        """Return the sum of squares, or 0 if it is a rounding error."""
        return 0.0 if square <= _TINY * table.total else square

    def tested(test: _Test) -> Iterator[tuple[str, float]]:
        """Yield the effect size and the F test of a term that has degrees of freedom."""
        error = cleared(test.error)
        omega2 = (test.effect - test.df * error) / (table.total + error)
        yield "omega2", omega2 if abs(omega2) > _TINY else 0.0
        if error:
            ratio = test.effect / test.df / error
            yield "F", ratio
            yield "p", float(f.sf(ratio, test.df * test.sphericity, test.freedom * test.sphericity))
            yield "df_error", float(test.freedom)
            if table.tests:
                yield "epsilon", test.sphericity
        elif cleared(test.effect):
            yield "p", 0.0  # repetitions are equal: F is infinite

    square, freedom = cleared(table.error[0]), table.error[1]
    variance = square / freedom if freedom else float("nan")
    for term, (explained, df) in table.terms.items():
        explained = cleared(explained)
        factor, other = names[term[0]], names[term[1]] if len(term) > 1 else ""
        yield Index("eta2", factor, explained / table.total if df else float("nan"), factor2=other)
        yield Index("df", factor, float(df), factor2=other)
        test = table.tests.get(term) or _Test(explained, df, variance, freedom)
        if test.freedom and test.df:
            for index, value in tested(test):
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
        averaged = tuple(axis for axis in range(len(levels)) if axis not in term)
        inner = [effects[part] for k in range(len(term)) for part in combinations(term, k)]
        effects[term] = cells.mean(axis=averaged, keepdims=True) - sum(inner)
        share = float((effects[term] ** 2).sum()) * len(y) / prod(levels[axis] for axis in term)
        terms[term] = (share, prod(levels[axis] - 1 for axis in term))
    total = float((values**2).sum())
    between = float((cells**2).sum()) * repetitions
    higher = max(between - sum(square for square, _ in terms.values()), 0.0)
    df_higher = prod(levels) - 1 - sum(df for _, df in terms.values())
    if repetitions == 1:
        note = (
            "without repetitions, terms are tested against the remaining interactions "
            f"({count(df_higher, 'degree')} of freedom)"
        )
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
    """The executed runs: ``codes``, (runs, axes), are their levels, -1 if inactive; ``number`` is their repetition."""

    codes: IntArray
    number: IntArray
    y: FloatArray
    common: bool
    repeated: bool

    @property
    def blocks(self) -> FloatArray:
        """Contrasts of the seeds that all rows share, (runs, contrasts)."""
        if not self.common:
            return np.empty((len(self.y), 0))
        return _contrasts(np.unique(self.number, return_inverse=True)[1])

    def spread(self) -> tuple[float, int]:
        """Return the sum of squares between runs of the same levels, adjusted for seeds, and its degrees of freedom."""
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


@dataclass(frozen=True)
class _Model:
    """A linear model.

    Attributes:
        columns: (runs, contrasts) of each term.
        most: greatest possible rank of each term's columns.
        above: for each axis, the axes that it is nested in.
        notes: notes about the terms.
    """

    columns: dict[Term, FloatArray]
    most: dict[Term, int]
    above: list[set[int]]
    notes: tuple[str, ...]

    def beside(self, term: Term) -> list[FloatArray]:
        """Return the contrasts of the terms that do not contain ``term``."""
        return [
            block
            for other, block in self.columns.items()
            # a pair is adjusted for both of its factors, even if one is nested in the other
            if set(other) < set(term)
            or not set(term) <= set(other).union(*(self.above[axis] for axis in other))
        ]


def _model(codes: IntArray, names: Sequence[str], order: int) -> _Model:
    single = [_contrasts(column) for column in codes.T]
    columns: dict[Term, FloatArray] = {(i,): block for i, block in enumerate(single)}
    most = {term: block.shape[1] for term, block in columns.items()}
    notes: list[str] = []
    nested = [names[i] for i, column in enumerate(codes.T) if column.min() < 0]
    if nested:
        notes.append(_nested_note(nested))
    pairs = [(term[0], term[1]) for term in _terms(len(single), order) if len(term) == 2]
    if sum(single[i].shape[1] * single[j].shape[1] for i, j in pairs) > _MOST_COLUMNS:
        notes.append(f"pairs of factors are left out: they have more than {_MOST_COLUMNS} contrasts")
        pairs = []
    for i, j in pairs:
        product, free = _pair(single[i], single[j], inactive=bool(codes[:, [i, j]].min() < 0))
        if free or not product.shape[1]:
            columns[(i, j)], most[(i, j)] = product, free
    return _Model(columns, most, _nesting(codes), tuple(notes))


def _pair(first: FloatArray, second: FloatArray, inactive: bool) -> tuple[FloatArray, int]:
    """Return the contrasts of a pair of factors, (runs, contrasts), and their greatest possible rank.

    Args:
        first: contrasts of the first factor.
        second: contrasts of the second factor.
        inactive: whether one of them is inactive in some runs.
    """
    product = (first[:, :, None] * second[:, None, :]).reshape(len(first), -1)
    if not inactive:
        return product, product.shape[1]
    # levels that never meet, because one factor is inactive there, have no contrast
    alone, zeros = [np.ones((len(first), 1)), first, second], np.zeros(len(first))
    return product, _unexplained([*alone, product], zeros)[1] - _unexplained(alone, zeros)[1]


def _type_two(runs: _Runs, model: _Model, names: Sequence[str]) -> _Table:
    centred = runs.y - runs.y.mean()
    blocks = [np.ones((len(centred), 1)), runs.blocks]
    columns, most = model.columns, model.most
    notes = list(model.notes)
    terms: dict[Term, tuple[float, int]] = {}
    for term, contrasts in columns.items():
        adjusting = model.beside(term)
        without, rank_without = _unexplained([*blocks, *adjusting], centred)
        left, rank = _unexplained([*blocks, *adjusting, contrasts], centred)
        df = rank - rank_without
        terms[term] = (max(without - left, 0.0) if df else float("nan"), df)
    left, rank = _unexplained([*blocks, *columns.values()], centred)
    if runs.codes.min() < 0 or not _are_orthogonal([runs.blocks, *columns.values()]):
        notes.insert(
            0, "not every combination of levels was run equally often: sums of squares are of type II"
        )
    lost = [term for term, (_, df) in terms.items() if df < most[term]]
    if lost:
        notes.append(
            f"{_terms_text(lost, names)} {'is' if len(lost) == 1 else 'are'} confounded with other terms, in part or as "
            "a whole (see df)"
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


def _tests_by_seed(
    model: _Model, terms: Collection[Term], number: IntArray, y: FloatArray
) -> dict[Term, _Test]:
    """Test each term against its interaction with the seed; ``number`` is the seed of each run, (runs,)."""
    seeds = [np.flatnonzero(number == seed) for seed in np.unique(number)]
    mean = np.ones((len(y), 1))
    untested = _Test(0.0, 0, float("nan"), 0)
    return {
        term: _test_by_seed(model.columns[term], np.column_stack([mean, *model.beside(term)]), seeds, y)
        if term in model.columns
        else untested
        for term in terms
    }


def _test_by_seed(
    contrasts: FloatArray, others: FloatArray, seeds: Sequence[IntArray], y: FloatArray
) -> _Test:
    """Test ``contrasts``, adjusted for the columns ``others`` within each seed.

    Fitted to each seed separately, the adjusted contrasts explain a larger sum of squares than fitted to all seeds
    together. The smaller sum is that of the term, the difference that of its interaction with the seed.
    """
    normal, scores = [], []
    for runs in seeds:
        adjusted = _adjusted(np.column_stack([contrasts[runs], y[runs]]), others[runs])
        normal.append(adjusted[:, :-1].T @ adjusted[:, :-1])
        scores.append(adjusted[:, :-1].T @ adjusted[:, -1])
    sizes, axes = np.linalg.eigh(sum(normal, np.zeros((contrasts.shape[1], contrasts.shape[1]))))
    estimable = sizes > _RANK * max(sizes.max(initial=0.0), 1.0)
    df = int(estimable.sum())
    # in these coordinates, the contrasts of all seeds together are orthonormal
    white = axes[:, estimable] / np.sqrt(sizes[estimable])
    weights = [white.T @ array @ white for array in normal]
    sums = [white.T @ array for array in scores]
    inverses = [np.linalg.pinv(array, rcond=_RANK, hermitian=True) for array in weights]
    effects = np.array([inverse @ array for inverse, array in zip(inverses, sums, strict=True)])
    ranks = [np.linalg.matrix_rank(array, tol=_RANK, hermitian=True) for array in weights]
    effect = float((sum(sums, np.zeros(df)) ** 2).sum())
    apart = float(sum(array @ effect_of for array, effect_of in zip(sums, effects, strict=True))) - effect
    freedom = max(int(sum(ranks)) - df, 0)
    error = max(apart, 0.0) / freedom if freedom else float("nan")
    whole = effects[np.array(ranks) == df]
    return _Test(effect, df, error, freedom, _sphericity(whole))


def _sphericity(effects: FloatArray) -> float:
    """Return the factor for the degrees of freedom, from the effects of each seed, (seeds, contrasts).

    The estimate of Huynh and Feldt, as corrected by Lecoutre, at most 1; 1 if there are too few seeds for an estimate.
    """
    seeds, contrasts = effects.shape
    if contrasts < 2 or seeds < _SEEDS_FOR_SPHERICITY:
        return 1.0
    centred = effects - effects.mean(axis=0)
    covariance = centred.T @ centred
    squares = float((covariance**2).sum())
    if not squares:
        return 1.0
    # Greenhouse and Geisser's estimate of Box's factor, times the number of contrasts; too low in small samples
    box = float(np.trace(covariance)) ** 2 / squares
    left = seeds - 1 - box
    corrected = (seeds * box - 2) / (contrasts * left) if left > _RANK else 1.0
    return float(min(max(corrected, box / contrasts), 1.0))


def _adjusted(columns: FloatArray, others: FloatArray) -> FloatArray:
    """Return ``columns`` without their linear dependence on the columns of ``others``."""
    directions, sizes, _ = np.linalg.svd(others, full_matrices=False)
    directions = directions[:, sizes > _RANK * sizes.max(initial=0.0)]
    adjusted: FloatArray = columns - directions @ (directions.T @ columns)
    return adjusted


def _nested_note(names: Sequence[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{joined(names)} {verb} inactive in part of the runs and nested in the factor that activates it: the levels of a nested factor "
        "are compared where it is active, those of other factors by the mean of all of their runs"
    )


def _nesting(codes: IntArray) -> list[set[int]]:
    """Return the axes that each axis is nested in: at some of their levels it is never active."""
    active = codes >= 0
    above: list[set[int]] = []
    for activity in active.T:
        parents = set()
        for axis, column in enumerate(codes.T):
            levels = np.unique(column)
            share = np.array([activity[column == level].any() for level in levels])
            if activity.any() and not share.all():
                parents.add(axis)
        above.append(parents)
    for _ in range(len(above)):
        above = [axes.union(*(above[axis] for axis in axes)) for axes in above]
    return [axes - {axis} for axis, axes in enumerate(above)]


def _terms_text(terms: Sequence[Term], names: Sequence[str]) -> str:
    """Name some terms, as ``a x b``."""
    return listed([" x ".join(names[axis] for axis in term) for term in terms], _MOST_TERMS)


def _contrasts(code: IntArray) -> FloatArray:
    """Build the columns of a factor in deviation coding: the last level is -1 in all of them, inactive rows are 0."""
    last = int(code.max())
    if last < 1:
        return np.empty((len(code), 0))
    result: FloatArray = (code[:, None] == np.arange(last)).astype(float)
    result[code == last] = -1.0
    return result


def _are_orthogonal(blocks: Sequence[FloatArray]) -> bool:
    """Return whether no two blocks of contrasts are correlated, so that all types of sums of squares are the same."""
    matrix = np.column_stack(blocks)
    owner = np.repeat(np.arange(len(blocks)), [block.shape[1] for block in blocks])
    centred = matrix - matrix.mean(axis=0)
    products = np.abs(centred.T @ centred)
    return bool(products[owner[:, None] != owner].max(initial=0.0) <= _TINY * len(matrix))


def _unexplained(parts: Sequence[FloatArray], y: FloatArray) -> tuple[float, int]:
    """Fit a linear model, and return its residual sum of squares and its rank."""
    matrix = np.column_stack(parts)
    solution, _, rank, _ = np.linalg.lstsq(matrix, y, rcond=None)
    return float(((y - matrix @ solution) ** 2).sum()), int(rank)


ANOVA = Method(
    "anova",
    anova,
    indices=("eta2",),
    samplers=("factorial", "fractional_factorial", "plackett_burman"),
    why="it needs every factor on a few levels, in balance with the others",
    needs=_needs,
    drops="run",
    shared_runs="observations",
    resamples=no_resamples,
    display=MethodDisplay(
        "Analysis of variance",
        ("eta2",),
        "eta2",
        True,
        "eta2 (eta squared) is the share of the sum of squares that a factor explains on its own; F and p "
        "test it against the error: the spread of repetitions, the interaction with the seed if rows share "
        "seeds, or the remaining interactions; p_adjusted is corrected for the number of factors.",
        "eta2",
    ),
)

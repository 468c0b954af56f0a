"""The difference of two levels: an estimate, its interval and its p value, all from one procedure.

The estimate is divided by its standard error. The quotient t is compared with two distributions: Student's, and that
of t over permutations, which reassign the same runs to the two levels. The critical value and p are the larger of
the two results, and the interval extends to either side by the critical value times the standard error. The interval
therefore excludes "no difference" exactly if p is significant. Permutations alone have more false alarms than Welch's
test if a few runs vary more than many others. Student's distribution alone has more if both levels have the same
skewed distribution and unequal numbers of runs (``tests/benchmarks/comparison_false_alarms.py``).

Independent units are permuted: with common seeds, all runs of a seed change sides together; otherwise, runs are
reassigned within their setting.

Sources: Fisher 1935, "The Design of Experiments" (paired); Janssen 1997, "Studentized permutation tests for
non-i.i.d. hypotheses and the generalized Behrens-Fisher problem", Statistics & Probability Letters 36 (unpaired, with
Welch's statistic); Neubert & Brunner 2007, "A studentized permutation test for the non-parametric Behrens-Fisher
problem", Computational Statistics & Data Analysis 51, and Konietschke & Pauly 2012, "A studentized permutation test
for the nonparametric Behrens-Fisher problem in paired data", Electronic Journal of Statistics 6 (improvement).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from palaestrai_mosaik.arsenai.design.few import least_p_of_pairs, least_p_of_runs, significance_level
from palaestrai_mosaik.types.arrays import FloatArray, FloatMatrix, IndexVector

from .aggregates import NOTHING, ROUNDING, UnpairedRuns, coded

#: number of random permutations; if there are no more than this, all of them are used instead
PERMUTATIONS = 9999
#: tests of values that do not differ, or of too few units to estimate a variance
NO_DIFFERENCE = "none (no pair differs)"
ONE_PAIR, ONE_SEED, ONE_ROW, ONE_RUN = (f"none (one {what})" for what in ("pair", "seed", "row", "run"))
NO_RUNS = "none (no runs)"
# Limits on the numbers in memory at once, and on the products summed for the permutations of ranks.
_HELD, _MOST_PRODUCTS = 1_000_000, 4_000_000_000


@dataclass(frozen=True)
class Tested:
    """An estimate with its interval and its two-sided p value, each NaN if undefined.

    ``p_least`` is the smallest p that the number of permutations allows, NaN if none are used. ``test`` names the
    statistic and the distributions that t was compared with.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    p: float = math.nan
    p_least: float = math.nan
    test: str = NO_RUNS

    def shifted(self, by: float) -> Tested:
        """Turn the test of a probability minus ``by`` into that of the probability; clip its interval to [0, 1]."""
        low, high = np.clip((self.low + by, self.high + by), 0.0, 1.0)
        return replace(self, value=self.value + by, low=float(low), high=float(high))


@dataclass(frozen=True)
class _Statistic:
    """An estimate, its standard error and degrees of freedom; ``drawn``: \\|t\\| of the permutations."""

    value: float
    error: float
    freedom: float
    name: str
    drawn: FloatArray | None = None
    exact: bool = False
    least: float = math.nan

    def tested(self, confidence: float, scale: float) -> Tested:
        """Test whether ``value`` is 0. ``scale`` is the magnitude of the data, to separate 0 from rounding errors."""
        from scipy.stats import t as student

        if self.error <= ROUNDING * scale and abs(self.value) <= ROUNDING * scale:
            return Tested(self.value, test=NO_DIFFERENCE)
        quotient = abs(self.value) / self.error if self.error > ROUNDING * scale else math.inf
        p = 2 * float(student.sf(quotient, self.freedom))
        critical = float(student.ppf((1 + confidence) / 2, self.freedom))
        level, how = significance_level(confidence), "Student's"
        if self.drawn is not None:
            how += " and all permutations" if self.exact else f" and {len(self.drawn):,} permutations"
            extra = 0 if self.exact else 1
            total = extra + len(self.drawn)
            p = max(p, float(extra + np.count_nonzero(self.drawn >= quotient * (1 - 1e-9))) / total)
            # The smallest number of permutations for which p exceeds the level.
            most = math.floor(level * total - extra) + 1
            critical = max(critical, float(np.partition(self.drawn, -most)[-most])) if most > 0 else math.inf
        low, high = NOTHING
        reach = critical * self.error
        if not self.least > level and math.isfinite(reach) and reach > ROUNDING * scale:
            ends = (self.value - reach, self.value + reach)
            low, high = (0.0 if abs(end) <= ROUNDING * scale else end for end in ends)
        return Tested(self.value, low, high, p, self.least, f"{self.name} ({how})")


def paired_means(
    contributions: FloatArray, weights: FloatArray, confidence: float, generator: np.random.Generator
) -> Tested:
    """Test whether the mean of paired differences is 0, by permutations of signs.

    Args:
        contributions: (seeds,) contribution of each seed to the mean difference.
        weights: (seeds,) its contribution if all differences were 1; 1 if no run is lost.
        confidence: confidence level of the interval.
        generator: draws signs if there are more than ``PERMUTATIONS`` of them.
    """
    count = len(contributions)
    if not count:
        return Tested(math.nan)
    mean = float(contributions.sum() / weights.sum())
    if not contributions.any():
        return Tested(mean, test=NO_DIFFERENCE)
    if count < 2:
        return Tested(mean, test=ONE_PAIR)
    parts, exact = _signs(count, generator)
    drawn = []
    for signs in parts:
        means = signs @ contributions / weights.sum()
        residuals = signs * contributions - means[:, None] * weights
        drawn.append(_quotient(np.abs(means), _error(residuals, weights)))
    error = float(_error((contributions - mean * weights)[None], weights)[0])
    statistic = _Statistic(
        mean, error, count - 1, "paired t", np.concatenate(drawn), exact, least_p_of_pairs(count)
    )
    return statistic.tested(confidence, float(np.abs(contributions).max()))


def _error(residuals: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the standard error of a weighted mean from the ``residuals`` of each seed, (permutations, seeds)."""
    count = residuals.shape[1]
    return np.asarray(np.sqrt(count / (count - 1) * (residuals**2).sum(axis=1)) / weights.sum())


def _quotient(above: FloatArray, below: FloatArray) -> FloatArray:
    """Return the quotients: 0 for 0 / 0, and infinity if only the denominator is 0."""
    small = below <= ROUNDING * (above + below)
    nothing = np.where(above > 0, np.inf, 0.0)
    return np.asarray(np.where(small, nothing, above / np.where(small, 1.0, below)))


def _signs(count: int, generator: np.random.Generator) -> tuple[Iterator[FloatArray], bool]:
    """Return batches of signs of seeds, and whether these are all possible ones, up to negation."""
    if 2 ** (count - 1) <= PERMUTATIONS:
        every = np.arange(2 ** (count - 1))[:, None] >> np.arange(count)
        return iter([(1 - 2 * (every & 1)).astype(np.float64)]), True
    batch = max(1, _HELD // count)
    sizes = (min(batch, PERMUTATIONS - first) for first in range(0, PERMUTATIONS, batch))
    return ((1 - 2 * generator.integers(2, size=(size, count))).astype(np.float64) for size in sizes), False


class _Strata:
    """The pooled runs of two levels by setting, with their assignment to the first level (``own``)."""

    def __init__(self, a: Sequence[FloatArray], b: Sequence[FloatArray]):
        self.sizes = [(len(x), len(y)) for x, y in zip(a, b, strict=True)]
        self.parts = np.cumsum([0, *(n + m for n, m in self.sizes)])
        pooled = [np.concatenate([x, y]) for x, y in zip(a, b, strict=True)]
        # Centred, because sums of squares lose digits if all values are far from 0.
        self.values = np.concatenate([runs - runs.mean() for runs in pooled])
        self.scale = float(np.abs(self.values).max())
        self.own = np.concatenate([np.arange(n + m) < n for n, m in self.sizes])[None].astype(float)
        self.count = math.prod(math.comb(n + m, n) for n, m in self.sizes)
        self.least = least_p_of_runs(self.sizes)

    @property
    def freedoms(self) -> tuple[int, int]:
        return sum(n - 1 for n, _ in self.sizes), sum(m - 1 for _, m in self.sizes)

    def slices(self) -> Iterator[tuple[int, int, slice]]:
        for (n, m), first, last in zip(self.sizes, self.parts[:-1], self.parts[1:], strict=True):
            yield n, m, slice(first, last)

    def deals(self, generator: np.random.Generator) -> tuple[Iterator[FloatArray], bool]:
        """Return assignments to the first level, batches of (deals, runs) of 0 and 1, and whether they are complete."""
        if self.count <= PERMUTATIONS:
            return iter([self._all()]), True
        batch = max(1, _HELD // len(self.values))
        sizes = (min(batch, PERMUTATIONS - first) for first in range(0, PERMUTATIONS, batch))
        return (self._drawn(size, generator) for size in sizes), False

    def _all(self) -> FloatArray:
        from itertools import combinations, product

        every = [combinations(range(part.start, part.stop), n) for n, _, part in self.slices()]
        deals = np.zeros((self.count, len(self.values)))
        for i, members in enumerate(product(*every)):
            deals[i, [index for part in members for index in part]] = 1.0
        return deals

    def _drawn(self, size: int, generator: np.random.Generator) -> FloatArray:
        parts = [
            generator.permuted(np.broadcast_to(self.own[0, part], (size, part.stop - part.start)), axis=1)
            for _, _, part in self.slices()
        ]
        return np.concatenate(parts, axis=1)

    def welch(self, dealt: FloatArray, values: FloatMatrix) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the difference of means, its standard error and the degrees of freedom of each deal.

        ``values``: (1 or deals, runs). The variance of a level is pooled over settings, so that settings with one
        run contribute too.
        """
        squares, shares = np.zeros((2, len(dealt))), np.zeros(2)
        for n, m, part in self.slices():
            for side, (members, size) in enumerate(((dealt[:, part], n), (1 - dealt[:, part], m))):
                total = (members * values[:, part]).sum(axis=1)
                squares[side] += (members * values[:, part] ** 2).sum(axis=1) - total**2 / size
                shares[side] += 1 / (size * len(self.sizes) ** 2)
        free = np.array(self.freedoms)[:, None]
        parts = np.maximum(squares, 0.0) / free * shares[:, None]
        total = parts.sum(axis=0)
        freedom = total**2 / np.maximum((parts**2 / free).sum(axis=0), np.finfo(float).tiny)
        return self.means(dealt, values), np.sqrt(total), np.maximum(freedom, 1.0)

    def means(self, dealt: FloatArray, values: FloatMatrix) -> FloatArray:
        """Return the difference of means of each deal, averaged over settings."""
        differences = np.zeros(len(dealt))
        for n, m, part in self.slices():
            weights = dealt[:, part] * (1 / n + 1 / m) - 1 / m
            differences += (weights * values[:, part]).sum(axis=1) / len(self.sizes)
        return differences


def unpaired_means(
    a: Sequence[FloatArray], b: Sequence[FloatArray], confidence: float, generator: np.random.Generator
) -> Tested:
    """Test whether the mean difference within settings is 0, by Welch's statistic.

    Args:
        a: the runs of the first level in each setting that both levels have.
        b: those of the second level.
        confidence: confidence level of the interval.
        generator: assigns runs to levels if there are more than ``PERMUTATIONS`` ways.
    """
    if not a:
        return Tested(math.nan)
    strata = _Strata(a, b)
    values = strata.values[None]
    difference = float(strata.means(strata.own, values)[0])
    if strata.scale <= ROUNDING * max(float(np.abs(numbers).max()) for numbers in (*a, *b)):
        return Tested(difference, test=NO_DIFFERENCE)
    if min(strata.freedoms) < 1:
        return Tested(difference, test=ONE_RUN)
    parts, exact = strata.deals(generator)
    drawn = [
        _quotient(np.abs(differences), error)
        for differences, error, _ in (strata.welch(part, values) for part in parts)
    ]
    value, error, freedom = (float(numbers[0]) for numbers in strata.welch(strata.own, values))
    statistic = _Statistic(value, error, freedom, "Welch's t", np.concatenate(drawn), exact, strata.least)
    return statistic.tested(confidence, strata.scale)


def nested_means(a: UnpairedRuns, b: UnpairedRuns, confidence: float) -> Tested:
    """Test by Student's t whether the means of two levels differ that share seeds but no setting.

    Both a row (a randomly drawn setting) and a seed can be good or bad for all runs of a level. The variance of the
    difference is therefore the sum of the variances of rows and of seeds, with the smaller of their degrees of freedom.
    Noise of single runs counts twice, so the test is conservative. Source: Cameron, Gelbach & Miller 2011, "Robust
    inference with multiway clustering".
    """
    if not (len(a.values) and len(b.values)):
        return Tested(math.nan)
    result = _nested(a, b, float(a.values.mean() - b.values.mean()), confidence)
    if result.p == 0:
        # Each level has only one value. Its rows can still be compared by permutations.
        return unpaired_means([a.means], [b.means], confidence, np.random.default_rng(0))
    return result


def _nested(a: UnpairedRuns, b: UnpairedRuns, value: float, confidence: float) -> Tested:
    """Test whether ``value`` is 0, with the variance of the difference of the means of both sides."""
    rows = [np.bincount(side.rows) for side in (a, b)]
    both = np.concatenate([a.values, b.values])
    scale = float(np.abs(both).max())
    if np.ptp(both) <= ROUNDING * scale:
        return Tested(value, test=NO_DIFFERENCE)
    free = np.array([len(sizes) - 1 for sizes in rows])
    if free.min() < 1:
        return Tested(value, test=ONE_ROW)
    parts = [sign * (side.values - side.values.mean()) / len(side.values) for side, sign in ((a, 1), (b, -1))]
    of_rows = [np.bincount(side.rows, part) for side, part in zip((a, b), parts, strict=True)]
    variances = np.array([(sums**2).sum() for sums in of_rows]) * (free + 1) / free
    variance, name = float(variances.sum()), "t, by rows"
    # Welch-Satterthwaite degrees of freedom.
    freedom = variance**2 / max(float((variances**2 / free).sum()), np.finfo(float).tiny)
    if a.seeds is not None and b.seeds is not None:
        seeds = coded(np.concatenate([a.seeds, b.seeds]))
        count = int(seeds.max()) + 1
        if count < 2:
            return Tested(value, test=ONE_SEED)
        variance += float((np.bincount(seeds, np.concatenate(parts)) ** 2).sum()) * count / (count - 1)
        freedom, name = min(count - 1.0, freedom), "t, by rows and seeds"
    return _Statistic(value, math.sqrt(variance), max(freedom, 1.0), name).tested(confidence, scale)


def improvement(
    a: Sequence[FloatArray],
    b: Sequence[FloatArray],
    seeds: Sequence[IndexVector] | None,
    confidence: float,
    generator: np.random.Generator,
) -> Tested:
    """Test whether the probability of improvement is a half, by the statistic of Brunner and Munzel.

    It is the probability that a run of the first level has a higher value than one of the second; ties count half.
    Settings are averaged. Source of the probability: Agarwal et al. 2021; for one setting it is A12 of Vargha &
    Delaney 2000.

    Args:
        a: the runs of the first level in each setting that both levels have.
        b: those of the second level.
        seeds: the seed of entry i of both levels if these are a pair; ``None``: runs are not paired.
        confidence: confidence level of the interval.
        generator: assigns runs to levels if there are more than ``PERMUTATIONS`` ways.
    """
    if not a:
        return Tested(math.nan)
    strata = _Strata(a, b)
    above = [_above(np.concatenate([x, y])) for x, y in zip(a, b, strict=True)]
    if seeds is None:
        units, least, enough = None, strata.least, min(strata.freedoms) > 0
    else:
        units = coded(np.concatenate(seeds))
        count = int(units.max()) + 1
        least, enough = least_p_of_pairs(count), count > 1
    chance = float(np.mean([array[: len(x), len(x) :].mean() for x, array in zip(a, above, strict=True)]))
    _, error, freedom = (float(array[0]) for array in _brunner_munzel(strata, above, strata.own, units))
    if not enough:
        return Tested(chance, test=ONE_RUN if seeds is None else ONE_PAIR)
    products = 2 * PERMUTATIONS * sum(len(array) ** 2 for array in above)
    name, drawn, exact = "Brunner-Munzel", None, False
    if products > _MOST_PRODUCTS:
        least = math.nan
    else:
        if units is None:
            parts, exact = strata.deals(generator)
        else:
            turned, exact = _signs(int(units.max()) + 1, generator)
            parts = (_turned(strata, signs, units) for signs in turned)
        results = (_brunner_munzel(strata, above, part, units) for part in parts)
        drawn = np.concatenate([_quotient(np.abs(values), errors) for values, errors, _ in results])
    statistic = _Statistic(chance - 0.5, error, freedom, name, drawn, exact, least)
    return replace(statistic.tested(confidence, 1.0).shifted(0.5), value=chance)


def nested_improvement(a: UnpairedRuns, b: UnpairedRuns, confidence: float) -> Tested:
    """Test whether the probability of improvement is a half if levels share no setting (:func:`nested_means`)."""
    if not (len(a.values) and len(b.values)):
        return Tested(math.nan)
    above = _above(np.concatenate([a.values, b.values]))[: len(a.values), len(a.values) :]
    of_a, of_b = (
        replace(side, values=values) for side, values in ((a, above.mean(axis=1)), (b, -above.mean(axis=0)))
    )
    chance = float(above.mean())
    return replace(_nested(of_a, of_b, chance - 0.5, confidence).shifted(0.5), value=chance)


def _above(values: FloatArray) -> FloatMatrix:
    """Return a matrix with 1 if the value of the row exceeds that of the column, and a half if they are equal."""
    return np.asarray((np.sign(values[:, None] - values) + 1) / 2)


def _turned(strata: _Strata, signs: FloatArray, units: IndexVector) -> FloatArray:
    """Return the deals that swap all pairs of the seeds with sign -1."""
    deals, first = np.empty((len(signs), len(strata.values))), 0
    for n, _, part in strata.slices():
        stays = (signs[:, units[first : first + n]] + 1) / 2
        deals[:, part] = np.concatenate([stays, 1 - stays], axis=1)
        first += n
    return deals


def _brunner_munzel(
    strata: _Strata, above: Sequence[FloatMatrix], dealt: FloatArray, units: IndexVector | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the probability minus a half, its standard error and the degrees of freedom of each deal."""
    placements = np.empty(dealt.shape)
    for (n, m, part), matrix in zip(strata.slices(), above, strict=True):
        members = dealt[:, part]
        # The share of the other side that lies below a run of the first level, and above one of the second.
        placements[:, part] = np.where(members > 0, (1 - members) @ matrix.T / m, -(members @ matrix) / n)
    if units is None:
        if min(strata.freedoms) < 1:
            return strata.means(dealt, placements) / 2 - 0.5, np.zeros(len(dealt)), np.ones(len(dealt))
        difference, error, freedom = strata.welch(dealt, placements)
        return difference / 2 - 0.5, error, freedom
    count, first = int(units.max()) + 1, 0
    contributions, total = np.zeros((len(dealt), count)), np.zeros(len(dealt))
    for n, _, part in strata.slices():
        size = np.abs(placements[:, part])
        chance = (size.sum(axis=1) / (2 * n))[:, None]
        total += chance[:, 0] / len(strata.sizes)
        pairs = (size[:, :n] + size[:, n:] - 2 * chance) * count / (n * len(strata.sizes))
        np.add.at(contributions.T, units[first : first + n], pairs.T)
        first += n
    error = _error(contributions, np.ones(count)) if count > 1 else np.zeros(len(dealt))
    return total - 0.5, error, np.full(len(dealt), float(max(count - 1, 1)))


def cohens_dz(differences: FloatArray) -> float:
    """Return the mean of paired differences divided by their standard deviation (Cohen 1988).

    0 if no pair differs; NaN for fewer than two pairs, or if all differences are equal.
    """
    if len(differences) < 2:
        return float("nan")
    if np.ptp(differences) == 0:
        return float("nan") if differences[0] else 0.0
    return float(differences.mean() / differences.std(ddof=1))

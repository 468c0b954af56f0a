"""Two levels against each other: the difference, whether it is one, and how large."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik import seeding
from palaestrai_mosaik.progress import PartsProgress
from palaestrai_mosaik.types.arrays import FloatArray, IndexVector

from . import effects
from .aggregates import mean, weighted_mean
from .hypothesis_tests import holm, rank_sum, signed_rank, smallest_rank_sum, smallest_signed_rank, two_way
from .resampling import ROUNDING, Sample, UnpairedRuns, coded, distinct, intervals, levelled
from .runs import ComparisonOptions, Runs

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("a", "b", "n", "n_b", "lost", "units", "settings"),
    *("difference", "difference_low", "difference_high", "shift", "shift_low", "shift_high"),
    *("improvement", "improvement_low", "improvement_high", "won", "tied", "distinct", "settings_won"),
    *("effect", "effect_name", "rank_effect", "rank_effect_name"),
    *("test", "p", "p_least", "p_holm", "favours"),
)


@dataclass(frozen=True)
class Sides:
    """The values of two levels by setting; paired: entry i of both is the same repetition.

    ``lost``: planned pairs (runs, if not paired) of the shared settings that cannot be used.
    ``seeds``: the repetition of each entry (paired only). ``rows``: both sides with their rows, where these
    share no setting.
    """

    a: list[FloatArray]
    b: list[FloatArray]
    lost: int
    seeds: list[IndexVector] | None = None
    rows: tuple[UnpairedRuns, UnpairedRuns] | None = None

    @property
    def paired(self) -> bool:
        return self.seeds is not None

    @property
    def single(self) -> bool:
        """Whether each of several settings has one run a side: it is settings that are drawn then."""
        return len(self.a) > 1 and all(len(x) == len(y) == 1 for x, y in zip(self.a, self.b, strict=True))

    @property
    def differences(self) -> list[FloatArray]:
        """Entry i of one side less that of the other by setting (paired or single only); 0 is exactly 0."""
        return [_difference(x, y) for x, y in zip(self.a, self.b, strict=True)]

    @property
    def turned(self) -> Sides:
        """The same with all signs turned, so that what was lower is higher."""
        return self._with([-x for x in self.a], [-y for y in self.b])

    @property
    def levelled(self) -> Sides:
        """The same with values made equal that differ by rounding only: ranks would tell them apart."""
        every = levelled(np.concatenate([*self.a, *self.b]))
        parts = np.split(every, np.cumsum([len(one) for one in (*self.a, *self.b)])[:-1])
        return self._with(parts[: len(self.a)], parts[len(self.a) :])

    def _with(self, a: list[FloatArray], b: list[FloatArray]) -> Sides:
        rows = None
        if self.rows:
            # without a shared setting, all runs of a side are of one
            rows = replace(self.rows[0], values=a[0]), replace(self.rows[1], values=b[0])
        return replace(self, a=a, b=b, rows=rows)


def _difference(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return x - y, 0 where the two differ by rounding only."""
    found = x - y
    return np.asarray(np.where(np.abs(found) <= ROUNDING * np.maximum(np.abs(x), np.abs(y)), 0.0, found))


def pairs_of(runs: Runs) -> list[tuple[str, str]]:
    """Return which levels are compared with which: all, or each with its baseline."""
    return list(combinations(runs.levels, 2) if runs.against is None else runs.against.items())


class _Unpaired:
    """What two levels have in the settings that both were planned for."""

    def __init__(self, runs: Runs, options: ComparisonOptions):
        self._values = {level: runs.strata(level) for level in runs.levels}
        self._rows = (
            {} if runs.crossed else {level: runs.rows(level, options.common_seeds) for level in runs.levels}
        )
        counts = runs.frame.groupby(["level", "setting"])["value"].agg(["size", "count"])
        lost = counts["size"] - counts["count"]
        self._lost = {level: lost.xs(level).to_dict() for level in runs.levels}

    def sides(self, level: str, against: str) -> Sides:
        planned, other = self._lost[level], self._lost[against]
        lost = sum(count + other[setting] for setting, count in planned.items() if setting in other)
        a, b = self._values[level], self._values[against]
        shared = [setting for setting in a if setting in b]
        rows = (self._rows[level], self._rows[against]) if self._rows else None
        return Sides([a[setting] for setting in shared], [b[setting] for setting in shared], lost, rows=rows)


class _Paired:
    """What two levels have in the settings and repetitions that both were planned for."""

    def __init__(self, runs: Runs):
        self._values, self._runs = units(runs)

    def sides(self, level: str, against: str) -> Sides:
        names = [level, against]
        planned = self._values[names].dropna()
        # the same two runs can stand in several settings
        planned = planned[~self._runs.loc[planned.index, names].duplicated().to_numpy()]
        whole = planned[np.isfinite(planned).all(axis=1)]
        settings = whole.index.get_level_values("setting").to_numpy()
        seeds = whole.index.get_level_values("repetition").to_numpy()
        places = np.flatnonzero(settings[1:] != settings[:-1]) + 1
        parts = (whole[level].to_numpy(float), whole[against].to_numpy(float), seeds)
        a, b, of = (np.split(part, places) if len(whole) else [] for part in parts)
        return Sides(a, b, len(planned) - len(whole), of)


def by_seed(differences: Sequence[FloatArray], seeds: Sequence[IndexVector]) -> FloatArray:
    """Return what each seed contributes to the mean over settings of their mean differences.

    The mean of the contributions is that mean; a seed that has all settings contributes its own. A seed is
    good or bad in several settings at once, so it is one observation however many these are: where both levels
    are equal, all differences of a seed change their sign at once, with what it contributes, whatever goes
    together within it. So the signed-rank test of contributions is exact.
    """
    if not differences:
        return np.empty(0)
    units = coded(np.concatenate(seeds))
    weights = np.repeat(
        [1 / (len(one) * len(differences)) for one in differences], list(map(len, differences))
    )
    found = np.bincount(units, weights * np.concatenate(differences)) * (units.max() + 1)
    largest = np.abs(np.concatenate(differences)).max()
    found[np.abs(found) <= ROUNDING * largest] = 0.0
    return np.asarray(levelled(found))


def units(runs: Runs) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the value, and which runs it is of, per setting and repetition; one column per level.

    Sorted by setting. NaN: not planned, inf: lost. Where a level has several runs in one place, their mean stands
    for them; if one of them is lost, so is the mean, which would speak of something else.
    """
    grouped = runs.frame.groupby(["setting", "repetition", "level"], sort=False)
    totals = grouped["value"].agg(["sum", "size", "count"])
    value = (totals["sum"] / totals["size"]).mask(totals["size"] > totals["count"], np.inf)
    executed = grouped["run"]
    uids = (
        executed.first() if (totals["size"] == 1).all() else executed.agg(lambda run: " ".join(map(str, run)))
    )
    return value.unstack("level"), uids.unstack("level")


def compare_pairs(
    runs: Runs, outcome: str, paired: bool, options: ComparisonOptions, counted: PartsProgress | None = None
) -> pd.DataFrame:
    """Return a table with a row per pair of levels, its columns ``COLUMNS`` (see ``Comparison``)."""
    import pandas as pd

    source = _Paired(runs) if paired else _Unpaired(runs, options)
    rows = []
    for names in pairs_of(runs):
        rows.append(_row(source.sides(*names), outcome, names, options))
        if counted is not None:
            counted.end(2 * options.resamples)
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    found["p_least"] = found["p_least"].where(found["p"].notna())
    found["p_holm"] = holm(found["p"].to_numpy(float))
    found["favours"] = list(_favoured(found, options))
    return found


def _favoured(found: pd.DataFrame, options: ComparisonOptions) -> Iterator[str]:
    for row in found.to_dict("records"):
        significant = options.better is not None and row["p_holm"] <= 1 - options.confidence
        if not significant or row["rank_effect"] == 0:
            yield ""
        else:
            higher = row["rank_effect"] > 0
            yield str(row["a" if higher == (options.better == "higher") else "b"])


def _row(both: Sides, outcome: str, names: tuple[str, str], options: ComparisonOptions) -> dict[str, Any]:
    def generator(what: str) -> np.random.Generator:
        return seeding.generator(options.seed, "comparison", outcome, *names, what)

    better = both.turned if options.better == "lower" else both
    row: dict[str, Any] = {
        **{"a": names[0], "b": names[1], "settings": len(both.a)},
        "settings_won": int(np.count_nonzero(_difference(*_means(better)) > 0)),
        **{"n": sum(map(len, both.a)), "n_b": sum(map(len, both.b)), "lost": both.lost},
    }
    if not both.a:
        return {**row, "units": 0, "test": "none (no runs)"}
    found = _paired_row if both.paired else _unpaired_row
    return {
        **row,
        **found(both, options, generator),
        **_improvement(better.levelled, options, generator("improvement")),
    }


def _means(both: Sides) -> list[FloatArray]:
    """Return the means of the settings of both sides."""
    return [np.array([one.mean() for one in side]) for side in (both.a, both.b)]


def _paired_row(both: Sides, options: ComparisonOptions, generator: Any) -> dict[str, Any]:
    assert both.seeds is not None
    strata = both.differences
    every = np.concatenate(strata)
    sample = Sample.of(strata, both.seeds)
    how = (options.confidence, options.resamples, generator("difference"))
    low, high = intervals(sample, {"mean": weighted_mean}, *how)["mean"]
    seeds = by_seed(strata, both.seeds)
    shift, shift_low, shift_high = effects.hodges_lehmann(seeds, options.confidence)
    p, test = signed_rank(seeds)
    signs = np.sign(every) * (-1 if options.better == "lower" else 1)
    return {
        **{"difference": mean(*strata), "difference_low": low, "difference_high": high},
        **{"shift": shift, "shift_low": shift_low, "shift_high": shift_high},
        **{"won": int(np.count_nonzero(signs > 0)), "tied": int(np.count_nonzero(signs == 0))},
        **{"units": len(seeds), "distinct": distinct(every)},
        **{"effect": effects.cohens_dz(seeds), "effect_name": "Cohen's dz"},
        "rank_effect": effects.rank_biserial(seeds),
        "rank_effect_name": "rank-biserial correlation",
        **{"test": test, "p": p, "p_least": smallest_signed_rank(int(np.count_nonzero(seeds)))},
    }


def _unpaired_row(both: Sides, options: ComparisonOptions, generator: Any) -> dict[str, Any]:
    a, b = both.a, both.b
    # each setting counts the same, so the mean over both sides of these is the difference
    doubled = [*(2 * x for x in a), *(-2 * y for y in b)]
    sample = Sample.of(both.differences) if both.single else Sample.of(doubled, pool=False)
    if both.rows:
        x, y = both.rows
        sample = Sample.of_rows([replace(x, values=2 * x.values), replace(y, values=-2 * y.values)])
    how = (options.confidence, options.resamples, generator("difference"))
    low, high = intervals(sample, {"mean": weighted_mean}, *how)["mean"]
    return {
        **{"difference": mean(*a) - mean(*b), "difference_low": low, "difference_high": high},
        "distinct": distinct(np.concatenate([*a, *b])),
        "rank_effect": 2 * effects.improvement(both.levelled.a, both.levelled.b) - 1,
        "rank_effect_name": "Cliff's delta",
        **_rank_sum(both.levelled, generator("test")),
    }


def _rank_sum(both: Sides, generator: np.random.Generator) -> dict[str, Any]:
    """Return p, its test and what this counts."""
    a, b = both.a, both.b
    if both.rows:
        x, y = both.rows
        if x.seeds is not None and y.seeds is not None:
            p, test = two_way(x, y)
            seeds = len(np.unique(np.concatenate([x.seeds, y.seeds])))
            return {"test": test, "p": p, "units": min(seeds, len(x.means), len(y.means))}
        a, b = [levelled(x.means)], [levelled(y.means)]
    p, test = rank_sum(a, b, generator)
    units = min(sum(map(len, a)), sum(map(len, b)))
    return {"test": test, "p": p, "p_least": smallest_rank_sum(a, b), "units": units}


def _improvement(both: Sides, options: ComparisonOptions, generator: np.random.Generator) -> dict[str, float]:
    """Return the probability of improvement; pairs are drawn together, other runs on their own."""
    how = (options.confidence, options.resamples, generator)
    if both.single:
        # 1 where the setting is won, a half where it is tied
        won = [(np.sign(one) + 1) / 2 for one in both.differences]
        low, high = intervals(Sample.of(won), {"mean": weighted_mean}, *how)["mean"]
    else:
        a, b = Sample.of(both.a, both.seeds), Sample.of(both.b, both.seeds)
        if both.rows:
            a, b = (Sample.of_rows([side]) for side in both.rows)
        low, high = effects.improvement_interval(a, b, both.paired, *how)
    return {
        "improvement": effects.improvement(both.a, both.b),
        "improvement_low": low,
        "improvement_high": high,
    }

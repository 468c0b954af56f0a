"""Compare two levels: the difference, its significance, and its size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.design.few import significance_level
from palaestrai_mosaik.arsenai.design.methods.significance import holm
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.progress import PartsProgress
from palaestrai_mosaik.types.arrays import FloatArray, IndexVector

from ..lost_runs import bounds
from .aggregates import ROUNDING, UnpairedRuns, coded, distinct, levelled
from .runs import ComparisonOptions, Runs
from .studentized import (
    NO_RUNS,
    PERMUTATIONS,
    Tested,
    cohens_dz,
    improvement,
    nested_improvement,
    nested_means,
    paired_means,
    unpaired_means,
)

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("a", "b", "n", "n_b", "lost", "units", "settings"),
    *(
        "difference",
        "difference_low",
        "difference_high",
        "test",
        "p",
        "p_least",
        "p_holm",
        "p_worst",
        "favours",
    ),
    *("improvement", "improvement_low", "improvement_high", "improvement_test", "improvement_p"),
    *("won", "tied", "distinct", "settings_won", "cohens_dz"),
)


@dataclass(frozen=True)
class Sides:
    """The values of two levels by setting; if paired, entries i of both sides are the same repetition.

    ``lost``: planned pairs (runs, if not paired) of the shared settings that cannot be used.
    ``seeds``: the repetition of each entry (paired only). ``rows``: both sides with their rows, if these share no
    setting.
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
        """Whether each of several settings has one run per side, so that settings are the independent units."""
        return len(self.a) > 1 and all(len(x) == len(y) == 1 for x, y in zip(self.a, self.b, strict=True))

    @property
    def differences(self) -> list[FloatArray]:
        """The differences a - b by setting (paired or single only), exactly 0 for equal values."""
        return [_difference(x, y) for x, y in zip(self.a, self.b, strict=True)]

    @property
    def turned(self) -> Sides:
        """The sides with negated values."""
        return self._with([-x for x in self.a], [-y for y in self.b])

    @property
    def levelled(self) -> Sides:
        """The sides with values equalised that differ only by rounding, because ranks would distinguish them."""
        every = levelled(np.concatenate([*self.a, *self.b]))
        parts = np.split(every, np.cumsum([len(values) for values in (*self.a, *self.b)])[:-1])
        return self._with(parts[: len(self.a)], parts[len(self.a) :])

    def _with(self, a: list[FloatArray], b: list[FloatArray]) -> Sides:
        rows = None
        if self.rows:
            # Without a shared setting, all runs of a side are in one.
            rows = replace(self.rows[0], values=a[0]), replace(self.rows[1], values=b[0])
        return replace(self, a=a, b=b, rows=rows)


def _difference(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return x - y, or 0 if they differ only by rounding."""
    differences = x - y
    return np.asarray(
        np.where(np.abs(differences) <= ROUNDING * np.maximum(np.abs(x), np.abs(y)), 0.0, differences)
    )


def pairs_of(runs: Runs) -> list[tuple[str, str]]:
    """Return the pairs of levels to compare: all, or each with its baseline."""
    return list(combinations(runs.levels, 2) if runs.against is None else runs.against.items())


class _Unpaired:
    """The runs of levels, to be compared in the settings that two levels share."""

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
    """The runs of levels, to be paired in the settings and repetitions planned for two levels."""

    def __init__(self, runs: Runs):
        self._values, self._runs = units(runs)

    def sides(self, level: str, against: str) -> Sides:
        names = [level, against]
        planned = self._values[names].dropna()
        # The same two runs can belong to several settings.
        planned = planned[~self._runs.loc[planned.index, names].duplicated().to_numpy()]
        whole = planned[np.isfinite(planned).all(axis=1)]
        settings = whole.index.get_level_values("setting").to_numpy()
        seeds = whole.index.get_level_values("repetition").to_numpy()
        borders = np.flatnonzero(settings[1:] != settings[:-1]) + 1
        parts = (whole[level].to_numpy(float), whole[against].to_numpy(float), seeds)
        a, b, of = (np.split(part, borders) if len(whole) else [] for part in parts)
        return Sides(a, b, len(planned) - len(whole), of)


def by_seed(differences: Sequence[FloatArray], seeds: Sequence[IndexVector]) -> tuple[FloatArray, FloatArray]:
    """Return each seed's contribution to the mean difference over settings, and its weight.

    The mean of the contributions is the mean over settings of their mean differences. The weight is the contribution
    if all differences were 1, which is 1 if no run is lost. A seed can be good or bad in several settings at once, so
    it is one observation. If both levels are equal, a change of sign applies to all differences of a seed, and
    therefore to its contribution, whatever the dependence within it.

    Args:
        differences: (pairs,) in each setting.
        seeds: (pairs,) seeds of the differences in each setting.

    Returns:
        Contributions and weights, (seeds,) each.
    """
    if not differences:
        return np.empty(0), np.empty(0)
    units = coded(np.concatenate(seeds))
    weights = np.repeat(
        [1 / (len(values) * len(differences)) for values in differences], list(map(len, differences))
    )
    count = units.max() + 1
    contributions = np.bincount(units, weights * np.concatenate(differences)) * count
    largest = np.abs(np.concatenate(differences)).max()
    contributions[np.abs(contributions) <= ROUNDING * largest] = 0.0
    return levelled(contributions), np.bincount(units, weights) * count


def units(runs: Runs) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the values and the uids of their runs, per setting and repetition, with a column per level.

    Sorted by setting. NaN marks values that were not planned, inf lost ones. Several runs of a level in a setting and
    repetition are averaged; if one of them is lost, so is the mean, as that of the others would not be comparable.
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
    """Return a table with a row per pair of levels and the columns ``COLUMNS`` (see ``Comparison``)."""
    import pandas as pd

    source = _source(runs, paired, options)
    rows = []
    for names in pairs_of(runs):
        row = _row(source.sides(*names), outcome, names, options)
        rows.append({**row, "p_worst": _worst_p(runs, paired, row, outcome, options)})
        if counted is not None:
            counted.end(2 * PERMUTATIONS)
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    table["p_least"] = table["p_least"].where(table["p"].notna())
    for corrected, p in (("p_holm", "p"), ("p_worst", "p_worst")):
        table[corrected] = holm(table[p].to_numpy(float))
    table["favours"] = list(_favoured(table, options))
    return table


def _source(runs: Runs, paired: bool, options: ComparisonOptions) -> _Paired | _Unpaired:
    return _Paired(runs) if paired else _Unpaired(runs, options)


def _worst_p(
    runs: Runs, paired: bool, row: dict[str, Any], outcome: str, options: ComparisonOptions
) -> float:
    """Return p of a pair with each lost run counted against the level that seems better; 1 if the order reverses."""
    p, difference = row.get("p", np.nan), row.get("difference", np.nan)
    if not row["lost"] or np.isnan(p) or not difference:
        return float(p)
    a, b = row["a"], row["b"]
    frame = runs.frame[runs.frame["level"].isin([a, b])]
    extremes = bounds(frame, paired)
    is_higher = frame["level"] == (a if difference > 0 else b)
    values = extremes.lowest.where(is_higher, extremes.highest)
    levels = {name: runs.levels[name] for name in (a, b)}
    filled = replace(runs, frame=frame.assign(value=values), levels=levels)
    generator = seeding.generator(options.seed, "comparison", outcome, a, b, "worst case")
    tested = _tested_means(_source(filled, paired, options).sides(a, b), options, generator)
    if np.isnan(tested.p) or tested.value * difference <= 0:
        return 1.0
    return float(max(p, tested.p))


def _favoured(table: pd.DataFrame, options: ComparisonOptions) -> Iterator[str]:
    for row in table.to_dict("records"):
        # p_worst is never below p_holm.
        significant = options.better is not None and row["p_worst"] <= significance_level(options.confidence)
        if not significant or row["difference"] == 0:
            yield ""
        else:
            higher = row["difference"] > 0
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
        return {**row, "units": 0, "test": NO_RUNS}
    means = _tested_means(both, options, generator("difference"))
    chance = _tested_improvement(better.levelled, options, generator("improvement"))
    return {
        **row,
        **(_of_pairs(both, options) if both.paired else _of_runs(both)),
        **{"difference": means.value, "difference_low": means.low, "difference_high": means.high},
        **{"test": means.test, "p": means.p, "p_least": means.p_least},
        **{"improvement": chance.value, "improvement_low": chance.low, "improvement_high": chance.high},
        **{"improvement_test": chance.test, "improvement_p": chance.p},
    }


def _means(both: Sides) -> list[FloatArray]:
    """Return the means of the settings of both sides."""
    return [np.array([values.mean() for values in side]) for side in (both.a, both.b)]


def _of_pairs(both: Sides, options: ComparisonOptions) -> dict[str, Any]:
    """Count won, tied and independent pairs."""
    assert both.seeds is not None
    every = np.concatenate(both.differences)
    seeds, _ = by_seed(both.differences, both.seeds)
    signs = np.sign(every) * (-1 if options.better == "lower" else 1)
    return {
        **{"won": int(np.count_nonzero(signs > 0)), "tied": int(np.count_nonzero(signs == 0))},
        **{"units": len(seeds), "distinct": distinct(every), "cohens_dz": cohens_dz(seeds)},
    }


def _of_runs(both: Sides) -> dict[str, Any]:
    """Count the independent units of unpaired runs."""
    units = min(sum(map(len, both.a)), sum(map(len, both.b)))
    if both.rows:
        x, y = both.rows
        units = min(len(x.means), len(y.means))
        if x.seeds is not None and y.seeds is not None:
            units = min(units, len(np.unique(np.concatenate([x.seeds, y.seeds]))))
    return {"units": units, "distinct": distinct(np.concatenate([*both.a, *both.b]))}


def _tested_means(both: Sides, options: ComparisonOptions, generator: np.random.Generator) -> Tested:
    if both.seeds is not None:
        return paired_means(*by_seed(both.differences, both.seeds), options.confidence, generator)
    if both.rows:
        return nested_means(*both.rows, options.confidence)
    if both.single:
        # The settings are the independent units.
        differences = np.concatenate(both.differences)
        return paired_means(differences, np.ones(len(differences)), options.confidence, generator)
    return unpaired_means(both.a, both.b, options.confidence, generator)


def _tested_improvement(both: Sides, options: ComparisonOptions, generator: np.random.Generator) -> Tested:
    if both.seeds is not None:
        return improvement(both.a, both.b, both.seeds, options.confidence, generator)
    if both.rows:
        return nested_improvement(*both.rows, options.confidence)
    if both.single:
        # 1 if the setting is won, a half if it is tied.
        won = np.sign(np.concatenate(both.differences)) / 2
        return paired_means(won, np.ones(len(won)), options.confidence, generator).shifted(0.5)
    return improvement(both.a, both.b, None, options.confidence, generator)

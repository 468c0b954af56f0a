"""Two levels against each other: the difference, whether it is one, and how large."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik import seeding

from . import effects
from .aggregates import FloatArray, interval, mean
from .hypothesis_tests import holm, rank_sum, signed_rank
from .options import Options
from .runs import Runs

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("a", "b", "n", "n_b", "lost", "settings"),
    *("difference", "difference_low", "difference_high", "shift", "shift_low", "shift_high"),
    *("improvement", "improvement_low", "improvement_high", "won", "tied", "settings_won"),
    *(
        "effect",
        "effect_name",
        "rank_effect",
        "rank_effect_name",
        "test",
        "p",
        "p_holm",
        "favours",
        "together",
    ),
)
# Differences that vary by less than this, relative to the values, vary by rounding only.
_ROUNDING = 1e-9
# To see whether repetitions go together takes as many of them, and as many settings.
_FEWEST_REPETITIONS, _FEWEST_SETTINGS = 3, 2
# Up to that p, repetitions are taken for going together.
_TOGETHER = 0.05


@dataclass(frozen=True)
class Sides:
    """The values of two levels by setting; paired: entry i of both is the same repetition.

    ``lost``: planned pairs (runs, if not paired) of the shared settings that cannot be used.
    ``means``: where the settings of one repetition go together, by the share ``together`` of how
    differences vary, the sides whose entries are the means over settings of each repetition.
    """

    a: list[FloatArray]
    b: list[FloatArray]
    paired: bool
    lost: int
    means: Sides | None = None
    together: float = float("nan")

    @property
    def single(self) -> bool:
        """Whether each of several settings has one run a side: it is settings that are drawn then."""
        return len(self.a) > 1 and all(len(x) == len(y) == 1 for x, y in zip(self.a, self.b, strict=True))

    @property
    def differences(self) -> FloatArray:
        """Entry i of one side less that of the other, setting by setting (paired or single only)."""
        return np.concatenate([x - y for x, y in zip(self.a, self.b, strict=True)] or [np.empty(0)])

    @property
    def turned(self) -> Sides:
        """The same with all signs turned, so that what was lower is higher."""
        return replace(self, a=[-x for x in self.a], b=[-y for y in self.b], means=None)


def pairs_of(runs: Runs) -> list[tuple[str, str]]:
    """Return which levels are compared with which: all, or each with its baseline."""
    return list(combinations(runs.levels, 2) if runs.against is None else runs.against.items())


class _Unpaired:
    """What two levels have in the settings that both were planned for."""

    def __init__(self, runs: Runs):
        self._values = {level: runs.strata(level) for level in runs.levels}
        counts = runs.frame.groupby(["level", "setting"])["value"].agg(["size", "count"])
        lost = counts["size"] - counts["count"]
        self._lost = {level: lost.xs(level).to_dict() for level in runs.levels}

    def sides(self, level: str, against: str) -> Sides:
        planned, other = self._lost[level], self._lost[against]
        lost = sum(count + other[setting] for setting, count in planned.items() if setting in other)
        a, b = self._values[level], self._values[against]
        shared = [setting for setting in a if setting in b]
        return Sides([a[setting] for setting in shared], [b[setting] for setting in shared], False, lost)


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
        ends = np.flatnonzero(settings[1:] != settings[:-1]) + 1
        a, b = (np.split(whole[name].to_numpy(float), ends) if len(whole) else [] for name in names)
        found = Sides(a, b, True, len(planned) - len(whole))
        # by repetition and setting, those repetitions that have all settings
        x, y = (whole[name].unstack("setting").dropna().to_numpy(float) for name in names)
        share = _together(x, y)
        if not share:
            return found
        repetitions = planned.index.get_level_values("repetition").nunique()
        means = Sides([x.mean(axis=1)], [y.mean(axis=1)], True, repetitions - len(x))
        return replace(found, means=means, together=share)


def _together(x: FloatArray, y: FloatArray) -> float:
    """Return how far the settings of a repetition go together in the differences x - y; 0: not seen to.

    ``x``, ``y``: (repetitions, settings). A two-way analysis of variance without interaction tells
    whether repetitions differ by more than their settings do (an F test at 5 %), the intraclass
    correlation by how much: 1 where a setting adds nothing to what its repetition is. Source:
    Shrout & Fleiss 1979, "Intraclass correlations", ICC(3,1).
    """
    from scipy.stats import f

    rows, columns = x.shape
    if rows < _FEWEST_REPETITIONS or columns < _FEWEST_SETTINGS:
        return 0.0
    differences = x - y
    by_row, by_column = differences.mean(axis=1, keepdims=True), differences.mean(axis=0, keepdims=True)
    freedom = (rows - 1) * (columns - 1)
    rest = float(((differences - by_row - by_column + differences.mean()) ** 2).sum()) / freedom
    between = columns * float(((by_row - differences.mean()) ** 2).sum()) / (rows - 1)
    rounding = (_ROUNDING * max(np.abs(x).max(), np.abs(y).max())) ** 2
    if between <= rounding:
        return 0.0
    if rest <= rounding:
        return 1.0
    if f.sf(between / rest, rows - 1, freedom) >= _TOGETHER:
        return 0.0
    return (between - rest) / (between + (columns - 1) * rest)


def units(runs: Runs) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the value, and which runs it is of, per setting and repetition; one column per level.

    Sorted by setting. NaN: not planned, inf: lost. Where a level has several runs in one place, their mean stands
    for them; if one of them is lost, so is the mean, which would speak of something else.
    """
    grouped = runs.frame.groupby(["setting", "repetition", "level"], sort=False)
    told = grouped["value"].agg(["sum", "size", "count"])
    value = (told["sum"] / told["size"]).mask(told["size"] > told["count"], np.inf)
    own = grouped["run"].agg(lambda run: " ".join(map(str, run)))
    return value.unstack("level"), own.unstack("level")


def compare_pairs(runs: Runs, outcome: str, paired: bool, options: Options) -> pd.DataFrame:
    """Return a table with a row per pair of levels, its columns ``COLUMNS`` (see ``Comparison``)."""
    import pandas as pd

    source = _Paired(runs) if paired else _Unpaired(runs)
    rows = [_row(source.sides(*names), outcome, names, options) for names in pairs_of(runs)]
    found = pd.DataFrame(rows, columns=list(COLUMNS))
    found["p_holm"] = holm(found["p"].to_numpy(float))
    found["favours"] = list(_favoured(found, options))
    return found


def _favoured(found: pd.DataFrame, options: Options) -> Iterator[str]:
    for row in found.to_dict("records"):
        told = options.better is not None and row["p_holm"] <= 1 - options.confidence
        if not told or row["rank_effect"] == 0:
            yield ""
        else:
            higher = row["rank_effect"] > 0
            yield str(row["a" if higher == (options.better == "higher") else "b"])


def _row(both: Sides, outcome: str, names: tuple[str, str], options: Options) -> dict[str, Any]:
    def generator(what: str) -> np.random.Generator:
        return seeding.generator(options.seed, "comparison", outcome, *names, what)

    differences = _setting_differences(both.turned if options.better == "lower" else both)
    row: dict[str, Any] = {
        "a": names[0],
        "b": names[1],
        "settings": len(both.a),
        "settings_won": int(np.count_nonzero(differences > 0)),
        "together": both.together,
    }
    both = both.means or both
    row |= {"n": sum(map(len, both.a)), "n_b": sum(map(len, both.b)), "lost": both.lost}
    if not both.a:
        return {**row, "test": "none (no runs)"}
    found = _paired_row if both.paired else _unpaired_row
    return {
        **row,
        **found(both, options, generator),
        **_improvement(both.turned if options.better == "lower" else both, options, generator("improvement")),
    }


def _setting_differences(both: Sides) -> FloatArray:
    return np.array([x.mean() - y.mean() for x, y in zip(both.a, both.b, strict=True)])


def _paired_row(both: Sides, options: Options, generator: Any) -> dict[str, Any]:
    strata = [x - y for x, y in zip(both.a, both.b, strict=True)]
    low, high = interval(mean, pooled(strata), options.confidence, options.resamples, generator("difference"))
    shift, shift_low, shift_high = effects.hodges_lehmann(both.differences, options.confidence)
    p, test = signed_rank(both.differences)
    signs = np.sign(both.differences) * (-1 if options.better == "lower" else 1)
    return {
        **{"difference": mean(*strata), "difference_low": low, "difference_high": high},
        **{"shift": shift, "shift_low": shift_low, "shift_high": shift_high},
        **{"won": int(np.count_nonzero(signs > 0)), "tied": int(np.count_nonzero(signs == 0))},
        **{"effect": effects.cohens_dz(both.differences), "effect_name": "Cohen's dz"},
        "rank_effect": effects.rank_biserial(both.differences),
        "rank_effect_name": "rank-biserial correlation",
        **{"test": test, "p": p},
    }


def _unpaired_row(both: Sides, options: Options, generator: Any) -> dict[str, Any]:
    settings = len(both.a)

    def difference(*strata: FloatArray, axis: int = -1) -> Any:
        return mean(*strata[:settings], axis=axis) - mean(*strata[settings:], axis=axis)

    strata = [*both.a, *both.b]
    how = (options.confidence, options.resamples, generator("difference"))
    low, high = (
        interval(mean, [both.differences], *how) if both.single else interval(difference, strata, *how)
    )
    p, test = rank_sum(both.a, both.b, generator("test"))
    return {
        **{"difference": difference(*strata), "difference_low": low, "difference_high": high},
        "rank_effect": 2 * effects.improvement(both.a, both.b) - 1,
        "rank_effect_name": "Cliff's delta",
        **{"test": test, "p": p},
    }


def _improvement(both: Sides, options: Options, generator: np.random.Generator) -> dict[str, float]:
    """Return the probability of improvement; pairs are drawn together, other runs on their own."""
    how = (options.confidence, options.resamples, generator)
    if both.single:
        # 1 where the setting is won, a half where it is tied
        low, high = interval(mean, [(np.sign(both.differences) + 1) / 2], *how)
    else:
        low, high = effects.improvement_interval(both.a, both.b, both.paired, *how)
    return {
        "improvement": effects.improvement(both.a, both.b),
        "improvement_low": low,
        "improvement_high": high,
    }


def pooled(strata: list[FloatArray]) -> list[FloatArray]:
    """Return the strata; as one where each has a single run.

    With one seed per setting it is the settings that are drawn: the interval then tells how
    results vary from setting to setting.
    """
    if len(strata) > 1 and all(len(stratum) == 1 for stratum in strata):
        return [np.concatenate(strata)]
    return strata

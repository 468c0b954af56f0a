"""Warnings and notes for the reader of a comparison."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.design.few import FEW_SEEDS, significance_level
from palaestrai_mosaik.arsenai.design.methods.significance import holm
from palaestrai_mosaik.arsenai.design.remark import ALONE, IDENTICAL, LOST, OPEN, Remark
from palaestrai_mosaik.core.printing import count, listed
from palaestrai_mosaik.types.arrays import FloatArray

from .aggregates import distinct, spread
from .runs import ComparisonOptions, Runs
from .studentized import ONE_PAIR, ONE_ROW, ONE_RUN, ONE_SEED

if TYPE_CHECKING:
    import pandas as pd

#: settings have different scales if their spreads differ at least by this factor
OTHER_SCALE = 2.0
_MOST_NAMED = 5


def warnings(
    runs: Runs, levels: pd.DataFrame, pairs: pd.DataFrame, paired: bool, options: ComparisonOptions
) -> tuple[str, ...]:
    """Return warnings about losses, constant values, unequal settings, few seeds and mixed scales."""
    level = significance_level(options.confidence)
    texts = [
        _nothing_left(levels),
        _missing_runs(levels),
        _missing_pairs(pairs, paired),
        _open(pairs, level),
        _constant(levels),
        _identical(levels, pairs, paired),
        _unmatched(runs),
        *_few(levels, pairs, runs, paired, options),
    ]
    if len(runs.settings) > 1 and options.normalise == "none":
        texts.append(_scales(runs))
    return tuple(filter(None, texts))


def notes(runs: Runs, pairs: pd.DataFrame, paired: bool, options: ComparisonOptions) -> tuple[str, ...]:
    """Explain how levels were compared."""
    if paired:
        how = (
            "paired by setting and repetition, whose seed all levels and settings share: a seed is one observation, "
            "what it contributes to the difference over all settings"
        )
    elif options.common_seeds:
        how = "not paired, because the levels share no setting: rows are drawn at random, and seeds, which rows share"
    else:
        how = "not paired, because every row of the design has seeds of its own"
        if not runs.crossed:
            how += "; a row is one observation, the mean of its repetitions"
    tests = ", ".join(dict.fromkeys(pairs["test"].dropna()))
    share = f"{options.confidence:.4g}"
    drawn = "seeds, each with its runs of all settings" if paired else "runs within settings"
    if len(runs.settings) > 1 and runs.frame["repetition"].nunique() == 1:
        drawn = "settings, which have one run of each level"
    if not runs.crossed:
        drawn = "rows and of seeds" if options.common_seeds else "rows"
    texts = [
        f"{how}; tests: {tests}; pairs that p_holm is corrected for (Holm): "
        f"{int(pairs['p'].notna().sum())}, those of other outcomes and comparisons do not count",
        f"intervals: confidence {share}; of a level, expanded percentile bootstrap of {drawn}, {options.resamples} "
        "resamples; of a pair, the values that the test does not reject; none if all values are equal",
    ]
    if options.better is None:
        texts.append("it is not said which direction is better: 'improvement' and 'won' mean higher values")
    if options.normalise != "none":
        texts.append(f"values are normalised by setting ({options.normalise})")
    return tuple(texts)


def _missing_runs(levels: pd.DataFrame) -> str:
    lost = levels[levels["lost"] > 0]
    if lost.empty:
        return ""
    shares_lost = [
        f"{row['lost']} of {row['n'] + row['lost']} of {row['level']} "
        f"({row['lost'] / (row['n'] + row['lost']):.1%})"
        for row in lost.to_dict("records")
    ]
    text = f"lost runs (failed, missing or not finite), left out: {', '.join(shares_lost)}"
    shares = levels["lost"] / (levels["n"] + levels["lost"])
    if np.ptp(shares.to_numpy(float)) > 0:
        text += "; what is left of a level that loses more may look better than it is"
    return Remark(LOST, text)


def _missing_pairs(pairs: pd.DataFrame, paired: bool) -> str:
    lost, used = pairs["lost"], pairs["n"]
    if not paired or not lost.any():
        return ""
    share = (lost / (lost + used)).max()
    return f"pairs that lack one run are left out: up to {share:.1%} of the pairs of two levels"


def _open(pairs: pd.DataFrame, level: float) -> str:
    """Warn of pairs without a better level because of lost runs."""
    open_ = pairs[(pairs["p_holm"] <= level) & (pairs["p_worst"] > level)]
    if open_.empty:
        return ""
    parts = [f"{row['a']} and {row['b']} (p {row['p_worst']:.2g})" for row in open_.to_dict("records")]
    text = f"not significant if lost runs are counted against the better level: {listed(parts, _MOST_NAMED)}"
    return Remark(OPEN, f"{text}; none is called better")


def _constant(levels: pd.DataFrame) -> str:
    """Warn of levels with only one value in all their runs, which have no interval."""
    constant = levels[(levels["n"] > 1) & (levels["distinct"] == 1)]
    if constant.empty:
        return ""
    values = constant["mean"].to_numpy(float)
    if len(constant) == (levels["n"] > 0).sum() and distinct(values) == 1:
        n = int(constant["n"].sum())
        return f"all {n:,} runs gave {values[0]:.6g}: nothing varies, so there is nothing to compare"
    parts = [
        f"all {row['n']:,} runs of {row['level']} gave {row['mean']:.6g}"
        for row in constant.to_dict("records")
    ]
    more = f"; and {len(parts) - _MOST_NAMED} levels more" if len(parts) > _MOST_NAMED else ""
    return f"{'; '.join(parts[:_MOST_NAMED])}{more}: no interval, because the values do not vary"


def _identical(levels: pd.DataFrame, pairs: pd.DataFrame, paired: bool) -> str:
    """Warn of levels with equal values in every pair of runs."""
    if not paired or (levels["distinct"] <= 1).all():
        return ""
    identical = pairs[(pairs["n"] > 0) & (pairs["tied"] == pairs["n"])]
    if identical.empty:
        return ""
    parts = [f"{row['a']} and {row['b']} ({row['n']:,})" for row in identical.to_dict("records")]
    more = f" and {len(parts) - _MOST_NAMED} others" if len(parts) > _MOST_NAMED else ""
    named = f"{', '.join(parts[:_MOST_NAMED])}{more}"
    return Remark(IDENTICAL, f"the two runs of each pair gave the same, so there is no test: {named}")


def _few(
    levels: pd.DataFrame, pairs: pd.DataFrame, runs: Runs, paired: bool, options: ComparisonOptions
) -> Iterator[str]:
    """Yield warnings about few seeds, missing intervals, and tests without power."""
    left = levels[levels["n"] > 0]
    seeds = int(left["seeds"].min()) if len(left) else FEW_SEEDS
    varied = (levels["distinct"] > 1) | (levels["n"] == 1)
    if seeds < FEW_SEEDS and varied.any():
        what = "repetition" if runs.crossed else "run"
        yield (
            f"only {count(seeds, what)} of a level{' in a setting' * runs.crossed} "
            f"({FEW_SEEDS} or more are advised): intervals are rough, and only large differences are found"
        )
    without_interval: dict[str, list[str]] = {}
    for row in levels[levels["mean_low"].isna() & varied].to_dict("records"):
        without_interval.setdefault(_why_no_interval(row, runs, options), []).append(str(row["level"]))
    yield from (f"no interval for {', '.join(names)}: {reason}" for reason, names in without_interval.items())
    if not without_interval and seeds == 1 and len(runs.settings) > 1:
        yield "with one repetition, intervals tell how results vary over settings, not over seeds"
    for tests, cause in (((ONE_PAIR, ONE_RUN, ONE_SEED), "seed"), ((ONE_ROW,), "row")):
        if pairs["test"].isin(tests).any():
            yield Remark(ALONE, f"one {cause} gives no test: a difference may be due to the {cause}")
    unit = "seed" if paired else "run" if runs.crossed else "row"
    yield _least_p(pairs, unit, significance_level(options.confidence))


def _least_p(pairs: pd.DataFrame, unit: str, level: float) -> str:
    """Warn if too few units were tested for a significant difference of every pair."""
    tested = pairs[pairs["p_least"].notna()]
    least = holm(tested["p_least"].to_numpy(float))
    smallest = least.max(initial=0.0)
    if smallest <= level:
        return ""
    units = count(int(tested["units"].iloc[int(least.argmax())]), unit)
    return (
        f"with {units}, p_holm cannot fall below {min(1.0, smallest):.2g}, whatever the difference"
        + ", and a difference has no interval" * bool(tested["p_least"].max() > level)
    )


def _why_no_interval(row: Mapping[Any, Any], runs: Runs, options: ComparisonOptions) -> str:
    """Explain why a level has no interval; ``row`` is its row of the levels."""
    level = str(row["level"])
    if not runs.crossed and len(runs.rows(level, common_seeds=False).means) == 1:
        return "only one row"
    if runs.crossed and (row["n"] == len(runs.strata(level)) or row["seeds"] < 2):
        return "a setting has only one run"
    if runs.sample(level, options.common_seeds).few(options.confidence):
        return "too few seeds" if runs.crossed or options.common_seeds else "too few rows"
    return f"no two of its {'seeds' if runs.crossed else 'rows'} differ"


def _unmatched(runs: Runs) -> str:
    """Warn if some settings lack runs of a level."""
    if not runs.crossed:
        return ""
    used = runs.frame[runs.frame["value"].notna()].groupby("setting", sort=False)["level"]
    levels = {level for names in used.unique() for level in names}
    part = [set(names) for names in used.unique() if len(names) < len(levels)]
    if not part:
        return ""
    every = len(used.unique())
    counts = {
        name: every - sum(name not in names for names in part) for name in runs.levels if name in levels
    }
    texts = [f"{name} {count}" for name, count in counts.items()]
    return (
        f"unequal settings: {len(part)} of {every} settings lack a level (settings with runs: "
        f"{listed(texts, _MOST_NAMED)}). Two levels are compared in the settings that both have, but "
        "each level's mean, IQM and profile are over all of its own, and are not comparable"
    )


def _scales(runs: Runs) -> str:
    by_setting: dict[str, list[FloatArray]] = {}
    for level in runs.levels:
        for setting, values in runs.strata(level).items():
            by_setting.setdefault(setting, []).append(values)
    spreads = np.array([spread(strata) for strata in by_setting.values()])
    spreads = spreads[~np.isnan(spreads)]
    if not len(spreads) or spreads.max() == 0:
        return ""
    ratio = spreads.max() / spreads.min() if spreads.min() else np.inf
    if ratio < OTHER_SCALE:
        return ""
    factor = f"by a factor of {ratio:.3g}" if np.isfinite(ratio) else "(some have none)"
    return (
        f"values of {len(runs.settings)} settings are taken together as they are, though their spread within levels differs "
        f"{factor}: where scales differ, the widest setting decides, unless values are normalised"
    )


def _nothing_left(levels: pd.DataFrame) -> str:
    empty = [str(level) for level in levels.loc[levels["n"] == 0, "level"]]
    if not empty:
        return ""
    return (
        f"no run of {', '.join(empty)} is left: nothing can be said of {'it' if len(empty) == 1 else 'them'}"
    )

"""What a reader of a comparison must know, in sentences made from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.text import count, listed
from palaestrai_mosaik.types.arrays import FloatArray

from .aggregates import spread
from .hypothesis_tests import ONE_PAIR, ONE_ROW, ONE_SEED, holm
from .resampling import distinct
from .runs import ComparisonOptions, Runs

if TYPE_CHECKING:
    import pandas as pd

#: fewer seeds than this are told (Agarwal et al. 2021; Colas et al. 2018)
FEW_SEEDS = 10
#: settings whose spreads differ by less than this factor are of one scale
OTHER_SCALE = 2.0
_MOST_NAMED = 5
#: how these warnings begin
IDENTICAL = "the two runs of each pair gave the same"
ALONE, ALONE_ROW = "of one seed there is no test", "of one row there is no test"


def warnings(
    runs: Runs, levels: pd.DataFrame, pairs: pd.DataFrame, paired: bool, options: ComparisonOptions
) -> tuple[str, ...]:
    """Return what may mislead: losses, what does not vary, unequal settings, few seeds, mixed scales."""
    found = [
        _nothing_left(levels),
        _missing_runs(levels),
        _missing_pairs(pairs, paired),
        _constant(levels),
        _identical(levels, pairs, paired),
        _unmatched(runs),
        *_few(levels, pairs, runs, paired),
    ]
    if len(runs.settings) > 1 and options.normalise == "none":
        found.append(_scales(runs))
    return tuple(filter(None, found))


def notes(runs: Runs, pairs: pd.DataFrame, paired: bool, options: ComparisonOptions) -> tuple[str, ...]:
    """Return how levels were compared, and why so."""
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
    said = [
        f"{how}; tests: {tests}; pairs that p_holm is corrected for (Holm): "
        f"{int(pairs['p'].notna().sum())}, those of other outcomes and comparisons do not count",
        f"intervals: confidence {share}, expanded percentile bootstrap of {drawn}, {options.resamples} "
        "resamples; none where all that it would come from is equal; those of shifts invert the signed-rank test",
    ]
    if options.better is None:
        said.append("it is not said which direction is better: 'improvement' and 'won' mean higher values")
    if options.normalise != "none":
        said.append(f"values are normalised by setting ({options.normalise})")
    return tuple(said)


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
    return text


def _missing_pairs(pairs: pd.DataFrame, paired: bool) -> str:
    lost, used = pairs["lost"], pairs["n"]
    if not paired or not lost.any():
        return ""
    share = (lost / (lost + used)).max()
    return f"pairs that lack one run are left out: up to {share:.1%} of the pairs of two levels"


def _constant(levels: pd.DataFrame) -> str:
    """Say which levels gave one value in all of their runs: of these there is no interval."""
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
    return f"{'; '.join(parts[:_MOST_NAMED])}{more}: there is no interval of what does not vary"


def _identical(levels: pd.DataFrame, pairs: pd.DataFrame, paired: bool) -> str:
    """Say which levels gave the same in every pair of runs."""
    if not paired or (levels["distinct"] <= 1).all():
        return ""
    identical = pairs[(pairs["n"] > 0) & (pairs["tied"] == pairs["n"])]
    if identical.empty:
        return ""
    parts = [f"{row['a']} and {row['b']} ({row['n']:,})" for row in identical.to_dict("records")]
    more = f" and {len(parts) - _MOST_NAMED} others" if len(parts) > _MOST_NAMED else ""
    return f"{IDENTICAL}, so there is no test: {', '.join(parts[:_MOST_NAMED])}{more}"


def _few(levels: pd.DataFrame, pairs: pd.DataFrame, runs: Runs, paired: bool) -> list[str]:
    found = []
    left = levels[levels["n"] > 0]
    seeds = int(left["seeds"].min()) if len(left) else FEW_SEEDS
    varied = left[(left["distinct"] > 1) | (left["n"] == 1)]
    if seeds < FEW_SEEDS and len(varied):
        what = "repetition" if runs.crossed else "run"
        found.append(
            f"only {count(seeds, what)} of a level{' in a setting' * runs.crossed} "
            f"({FEW_SEEDS} or more are advised): intervals are rough, and only large differences are found"
        )
    alone = [
        str(row["level"])
        for row in levels.to_dict("records")
        if np.isnan(row["mean_low"]) and (row["distinct"] > 1 or row["n"] == 1)
    ]
    if alone:
        found.append(f"no interval for {', '.join(alone)}: {_why_alone(levels, alone, runs)}")
    elif seeds == 1 and len(runs.settings) > 1:
        found.append("with one repetition, intervals tell how results vary over settings, not over seeds")
    if pairs["test"].isin((ONE_PAIR, ONE_SEED)).any():
        found.append(f"{ALONE}: whether levels differ, or the seed does them good or bad")
    if (pairs["test"] == ONE_ROW).any():
        found.append(f"{ALONE_ROW}: whether levels differ, or the row does one of them good or bad")
    tested = pairs[pairs["p_least"].notna()]
    least = holm(tested["p_least"].to_numpy(float))
    smallest = least.max(initial=0.0)
    if smallest > 0.05:
        worst = tested.iloc[int(least.argmax())]
        what = "seed" if paired else "run" if runs.crossed else "row"
        found.append(
            f"with {count(int(worst['units']), what)}, p_holm cannot fall below {min(1.0, smallest):.2g}, whatever the difference"
        )
    return found


def _why_alone(levels: pd.DataFrame, names: list[str], runs: Runs) -> str:
    if not runs.crossed:
        alone = any(len(runs.rows(name, common_seeds=False).means) == 1 for name in names)
        return "a level has runs of one row only" if alone else "no two of its rows differ"
    named = levels[levels["level"].isin(names)]
    if (named["n"] == named["settings"]).any() or (named["seeds"] < 2).any():
        return "a setting has one run only"
    return "no two of its seeds differ"


def _unmatched(runs: Runs) -> str:
    """Say where levels have runs in settings of which others have none."""
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
        "each level's mean, IQM and profile are over all of its own, and do not compare"
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

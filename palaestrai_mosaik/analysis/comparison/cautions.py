"""What a reader of a comparison must know, in sentences made from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .aggregates import FloatArray, spread
from .options import Options
from .runs import Runs

if TYPE_CHECKING:
    import pandas as pd

#: fewer seeds than this are told (Agarwal et al. 2021; Colas et al. 2018)
FEW_SEEDS = 10
#: settings whose spreads differ by less than this factor are of one scale
OTHER_SCALE = 2.0
_MOST_NAMED = 5


def warnings(
    runs: Runs, levels: pd.DataFrame, pairs: pd.DataFrame, paired: bool, options: Options
) -> tuple[str, ...]:
    """Return what may mislead: losses, few seeds, mixed scales, runs that go together."""
    found = [
        _nothing_left(levels),
        _losses(levels),
        _losses_of_pairs(pairs, paired),
        *_few(levels, pairs, runs, paired),
    ]
    found.append(_unmatched(runs))
    if len(runs.settings) > 1 and options.normalise == "none":
        found.append(_scales(runs))
    found.append(_together(pairs))
    return tuple(filter(None, found))


def notes(paired: bool, pairs: pd.DataFrame, options: Options) -> tuple[str, ...]:
    """Return how levels were compared, and why so."""
    if paired:
        how = "paired by setting and repetition, whose seed all levels share"
    elif options.common_seeds:
        how = "not paired, because the levels share no setting"
    else:
        how = "not paired, because every row of the design has seeds of its own"
    tests = ", ".join(dict.fromkeys(pairs["test"].dropna()))
    share = f"{options.confidence:.4g}"
    said = [
        f"{how}; tests: {tests}; pairs that p_holm is corrected for (Holm): "
        f"{int(pairs['p'].notna().sum())}, those of other outcomes and comparisons do not count",
        f"intervals: confidence {share}, percentile bootstrap within settings, {options.resamples} "
        "resamples; those of shifts invert the signed-rank test",
    ]
    if options.better is None:
        said.append("it is not said which direction is better: 'improvement' and 'won' mean higher values")
    if options.normalise != "none":
        said.append(f"values are normalised by setting ({options.normalise})")
    return tuple(said)


def _losses(levels: pd.DataFrame) -> str:
    lost = levels[levels["lost"] > 0]
    if lost.empty:
        return ""
    told = [
        f"{row['lost']} of {row['n'] + row['lost']} of {row['level']} "
        f"({row['lost'] / (row['n'] + row['lost']):.1%})"
        for row in lost.to_dict("records")
    ]
    text = f"lost runs (failed, missing or not finite), left out: {', '.join(told)}"
    shares = levels["lost"] / (levels["n"] + levels["lost"])
    if np.ptp(shares.to_numpy(float)) > 0:
        text += "; what is left of a level that loses more may look better than it is"
    return text


def _losses_of_pairs(pairs: pd.DataFrame, paired: bool) -> str:
    lost, used = pairs["lost"], pairs["n"]
    if not paired or not lost.any():
        return ""
    share = (lost / (lost + used)).max()
    return f"pairs that lack one run are left out: up to {share:.1%} of the pairs of two levels"


def _few(levels: pd.DataFrame, pairs: pd.DataFrame, runs: Runs, paired: bool) -> list[str]:
    found = []
    left = levels[levels["n"] > 0]
    seeds = int(left["seeds"].min()) if len(left) else FEW_SEEDS
    if seeds < FEW_SEEDS:
        what = "repetition" if runs.crossed else "run"
        several = paired and len(runs.settings) > 1 and bool(pairs["together"].isna().any())
        shared = ", and tests take settings for independent that share these seeds" if several else ""
        found.append(
            f"only {seeds} {what}{'' if seeds == 1 else 's'} of a level{' in a setting' * runs.crossed} "
            f"({FEW_SEEDS} or more are advised): intervals tend to be too narrow{shared}"
        )
    alone = [str(row["level"]) for row in levels.to_dict("records") if np.isnan(row["mean_low"]) and row["n"]]
    if alone:
        found.append(f"no interval for {', '.join(alone)}: a setting has one run only")
    elif seeds == 1 and len(runs.settings) > 1:
        found.append("with one repetition, intervals tell how results vary over settings, not over seeds")
    least = pairs.loc[pairs["p"].notna(), "n"].min() if paired else float("nan")
    smallest = 2.0 ** (1 - least) * int(pairs["p"].notna().sum())
    if smallest > 0.05:
        found.append(
            f"with {int(least)} pair{'' if least == 1 else 's'}, p_holm cannot fall below {min(1.0, smallest):.2g}, whatever the difference"
        )
    return found


def _unmatched(runs: Runs) -> str:
    found = runs.frame.groupby("setting")["level"].nunique()
    part = found[found < len(runs.levels)]
    if part.empty or not runs.crossed:
        return ""
    return (
        f"{len(part)} of {len(found)} settings lack a level: two levels are compared in the settings that both "
        "have, but each level's mean, IQM and profile are over all of its own"
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
    told = f"by a factor of {ratio:.3g}" if np.isfinite(ratio) else "(some have none)"
    return (
        f"values of {len(runs.settings)} settings are taken together as they are, though their spread within levels differs "
        f"{told}: where scales differ, the widest setting decides, unless values are normalised"
    )


def _together(pairs: pd.DataFrame) -> str:
    """Tell where a repetition is good or bad for a level in all settings, so that its pairs are not many."""
    found = pairs[pairs["together"] > 0]
    if found.empty:
        return ""
    told = [f"{row['a']} - {row['b']}" for row in found.to_dict("records")]
    which = f"for {', '.join(told[:_MOST_NAMED])}{', ...' if len(told) > _MOST_NAMED else ''}, "
    return (
        f"{which if len(found) < len(pairs) else ''}runs of one repetition do well or badly in all settings "
        f"together (intraclass correlation up to {found['together'].max():.2f}): these pairs are compared by the "
        "mean of each repetition over settings, which is what n counts; the intervals of levels take settings "
        "for independent and are too narrow"
    )


def _nothing_left(levels: pd.DataFrame) -> str:
    empty = [str(level) for level in levels.loc[levels["n"] == 0, "level"]]
    if not empty:
        return ""
    return (
        f"no run of {', '.join(empty)} is left: nothing can be said of {'it' if len(empty) == 1 else 'them'}"
    )

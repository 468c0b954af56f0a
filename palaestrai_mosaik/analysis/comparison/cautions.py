"""What a reader of a comparison must know, in sentences made from the data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .options import Options
from .pairs import pairs_of, units
from .runs import Runs

if TYPE_CHECKING:
    import pandas as pd

#: fewer seeds than this are told (Agarwal et al. 2021; Colas et al. 2018)
FEW_SEEDS = 10


def warnings(
    runs: Runs, levels: pd.DataFrame, pairs: pd.DataFrame, paired: bool, options: Options
) -> tuple[str, ...]:
    """Return what may mislead: losses, few seeds, mixed scales, runs that go together."""
    found = [_losses(levels), _losses_of_pairs(pairs, paired), *_few(levels, pairs, runs, paired)]
    found.append(_unmatched(runs))
    if len(runs.settings) > 1 and options.normalise == "none":
        found.append(_scales(runs))
    if paired and len(runs.settings) > 1:
        found.append(_together(runs))
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
    seeds = int(levels["seeds"].min())
    if seeds < FEW_SEEDS:
        what = "repetition" if runs.crossed else "run"
        several = paired and len(runs.settings) > 1
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
    spreads = runs.frame.groupby("setting")["value"].std().dropna().to_numpy(float)
    if not len(spreads) or spreads.max() == 0:
        return ""
    ratio = spreads.max() / spreads.min() if spreads.min() else np.inf
    told = f"by a factor of {ratio:.3g}" if np.isfinite(ratio) else "(some have none)"
    return (
        f"values of {len(runs.settings)} settings are taken together as they are, though their spread differs "
        f"{told}: where scales differ, the widest setting decides, unless values are normalised"
    )


def _together(runs: Runs) -> str:
    """Tell where a repetition is good or bad for a level in all settings, so that its pairs are not many.

    The differences of two levels by repetition and setting are looked at by a two-way analysis of
    variance without interaction; tested at 5 % over all pairs (Bonferroni).
    """
    from scipy.stats import f

    table, _ = units(runs)
    pairs = pairs_of(runs)
    worst = 0.0
    for level, against in pairs:
        difference = (table[level] - table[against]).where(np.isfinite(table[level] - table[against]))
        x = difference.unstack("setting").dropna().to_numpy(float)
        rows, columns = x.shape
        few = 3
        if rows < few or columns < 2:
            continue
        by_row = x.mean(axis=1, keepdims=True)
        rest = x - by_row - x.mean(axis=0, keepdims=True) + x.mean()
        noise = (rest**2).sum() / ((rows - 1) * (columns - 1))
        between = columns * ((by_row - x.mean()) ** 2).sum() / (rows - 1)
        if noise > 0 and f.sf(between / noise, rows - 1, (rows - 1) * (columns - 1)) < 0.05 / len(pairs):
            worst = max(worst, between / noise)
    if not worst:
        return ""
    return (
        f"runs of one repetition do well or badly in all settings together (variance up to {worst:.2g} times "
        "that of independent ones): p values and intervals over settings are too optimistic"
    )

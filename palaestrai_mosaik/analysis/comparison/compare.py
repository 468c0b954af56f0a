"""A table of runs becomes a comparison: aggregates, pairs, profiles, and what to be wary of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik import seeding

from . import cautions
from .aggregates import AGGREGATES, interval, spread
from .options import Options
from .pairs import compare_pairs, pooled
from .profiles import profile, scores
from .runs import Runs, collect

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Comparison:
    """How the levels of ``by`` (a factor, or a combination of several) compare in ``outcome``.

    ``levels``: one row per level: level, n (runs used), lost, seeds (repetitions per setting,
    at least), settings; mean, iqm and median, each with _low and _high; std (within settings).

    ``cells``: one row per level and setting: level, setting, n, lost, mean, median, std.

    ``pairs``: one row per pair of levels a and b (the baseline, if there is one): n, n_b (pairs if
    paired, else runs of each), lost; difference (of means, a less b) and shift (Hodges-Lehmann,
    paired only), each with _low and _high; improvement (probability that a run of a is better
    than one of b) with _low and _high; won, tied (pairs in which a is better, alike),
    settings_won (of settings, by their means); effect and rank_effect with their names; test,
    p, p_holm (corrected over the pairs of this outcome); favours: the level that is better
    where p_holm says so; together: how far the settings of one repetition go together (intraclass
    correlation), NaN where that is not seen: n, lost, won and tied then count repetitions, whose means
    over settings are what is compared.

    ``profiles``: level, score, share (of its runs better than the score), low, high.

    All differences are in the outcome's own unit and sign, unless normalised; NaN: cannot be
    told. ``warnings`` are what a reader must know, ``notes`` how it was done.
    """

    by: tuple[str, ...]
    outcome: str
    paired: bool
    options: Options
    levels: pd.DataFrame
    cells: pd.DataFrame
    pairs: pd.DataFrame
    profiles: pd.DataFrame
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        """What is compared by what: ``violations by algorithm``."""
        return f"{self.outcome} by {' and '.join(self.by)}"


def compare(
    frame: pd.DataFrame,
    by: str | Sequence[str],
    outcome: str,
    settings: Sequence[str] = (),
    options: Options | None = None,
) -> Comparison:
    """Compare the levels of ``by`` in the runs of ``frame``.

    ``frame``: one row per planned run with the columns ``by``, ``settings``, ``outcome`` (NaN
    where there is none) and, if they are there, ``row`` and ``repetition`` (whole numbers), ``run``
    (rows with the same one are one execution) and ``status`` (other than ``finished``: lost).
    ``settings`` are the other factors that vary; levels are compared where these are the same.
    A factor that a run does not have is missing (None, NaN). Levels keep the order of a
    categorical column, else that of their rows.

    Runs are paired by setting and repetition where the levels share settings and seeds are
    common; a pair lacking one run is lost. Nothing is imputed. Raises ``PalaestraiMosaikError``
    for names that are not there, fewer than two levels, and more than ``runs.MOST_LEVELS``.
    """
    import pandas as pd

    options = options or Options()
    by = (by,) if isinstance(by, str) else tuple(by)
    runs = collect(frame, by, outcome, settings, options)
    paired = options.common_seeds and runs.crossed
    pairs = compare_pairs(runs, outcome, paired, options)
    levels = pd.DataFrame([_level(runs, name, outcome, options) for name in runs.levels])
    return Comparison(
        by,
        outcome,
        paired,
        options,
        levels,
        _cells(runs),
        pairs,
        _profiles(runs, outcome, options),
        (*runs.warnings, *cautions.warnings(runs, levels, pairs, paired, options)),
        cautions.notes(paired, pairs, options),
    )


def _level(runs: Runs, name: str, outcome: str, options: Options) -> dict[str, Any]:
    strata = list(runs.strata(name).values())
    n = sum(map(len, strata))
    planned = runs.frame.loc[runs.frame["level"] == name, "run"].nunique()
    row = {"level": name, "n": n, "lost": planned - n, "seeds": runs.seeds(name), "settings": len(strata)}
    drawn = pooled(strata)
    for what, statistic in AGGREGATES.items():
        # the same name, so that all aggregates of a level see the same draws
        generator = seeding.generator(options.seed, "comparison", outcome, name)
        low, high = interval(statistic, drawn, options.confidence, options.resamples, generator)
        row[what] = float(statistic(*strata)) if strata else float("nan")
        row |= {f"{what}_low": low, f"{what}_high": high}
    return {**row, "std": spread(drawn)}


def _cells(runs: Runs) -> pd.DataFrame:
    grouped = runs.frame.groupby(["level", "setting"], sort=False)["value"]
    found = grouped.agg(["count", "size", "mean", "median", "std"]).reset_index()
    order = {name: i for i, name in enumerate(runs.levels)}
    found = found.sort_values("level", key=lambda column: column.map(order), kind="stable", ignore_index=True)
    found["lost"] = found.pop("size") - found["count"]
    found = found.rename(columns={"count": "n"})
    return found[["level", "setting", "n", "lost", "mean", "median", "std"]]


def _profiles(runs: Runs, outcome: str, options: Options) -> pd.DataFrame:
    import pandas as pd

    places = scores(runs.frame["value"].dropna().to_numpy(float))
    columns = ("level", "score", "share", "low", "high")
    parts = []
    for name in runs.levels:
        strata = pooled(list(runs.strata(name).values()))
        if not strata:
            continue
        generator = seeding.generator(options.seed, "comparison", outcome, name, "profile")
        found = profile(
            *(strata, places, options.better == "lower"), options.confidence, options.resamples, generator
        )
        arrays = (found.scores, found.share, found.low, found.high)
        part = pd.DataFrame(np.column_stack(arrays), columns=columns[1:])
        part.insert(0, "level", name)
        parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)

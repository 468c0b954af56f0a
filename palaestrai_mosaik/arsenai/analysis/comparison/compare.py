"""Compare the levels of factors in a table of runs: aggregates, pairs, performance profiles and warnings.

Source: Agarwal et al. 2021 (score distributions); Dolan & More 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis.results import Results, labels
from palaestrai_mosaik.arsenai.design.few import MOST_LEVELS
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, DesignSpec, Factor
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.types.arrays import FloatArray

from . import cautions
from .aggregates import AGGREGATES, WEIGHTED, Sample, distinct, intervals, spread, tail
from .pairs import compare_pairs, pairs_of
from .runs import ComparisonOptions, Normalise, Runs, collect
from .studentized import PERMUTATIONS

if TYPE_CHECKING:
    import pandas as pd

_SCORES = 51


@dataclass(frozen=True)
class Profile:
    """The ``share`` of runs better than each of ``scores``, ``low`` to ``high`` its band."""

    scores: FloatArray
    share: FloatArray
    low: FloatArray
    high: FloatArray


def scores(values: FloatArray) -> FloatArray:
    """Return evenly spaced scores from the smallest to the largest of ``values``."""
    if not len(values):
        return np.empty(0)
    low, high = float(values.min()), float(values.max())
    return np.linspace(low, high, _SCORES if low < high else 1)


def profile(
    sample: Sample,
    places: FloatArray,
    lower_is_better: bool,
    confidence: float,
    resamples: int,
    generator: np.random.Generator,
) -> Profile:
    """Return the profile of a level's runs at the scores ``places``, averaged over the strata.

    The band is a pointwise bootstrap interval. It is NaN if the sample is too small to show how runs vary, or if all
    runs are equal.
    """
    sign = -1 if lower_is_better else 1
    # Whether each run is better than each score, (runs, places).
    passed = (sign * sample.values[:, None] > sign * places).astype(float)
    share = (sample.weights() @ passed)[0]
    if not sample.known or distinct(sample.values) < 2:
        nothing = np.full(len(places), np.nan)
        return Profile(places, share, nothing, nothing)
    drawn = [sample.weights(counts) @ passed for counts in sample.draws(resamples, generator, len(places))]
    outside = tail(sample.blocks, confidence)
    low, high = np.quantile(np.concatenate(drawn), [outside, 1 - outside], axis=0)
    return Profile(places, share, low, high)


@dataclass(frozen=True)
class Comparison:
    """A comparison of the levels of ``by`` (a factor, or a combination of several) in ``outcome``.

    All differences are in the outcome's own unit and sign, unless normalised. NaN marks missing values, and
    intervals from values that are all equal.

    Attributes:
        by: the compared factors.
        outcome: name of the outcome.
        paired: whether runs are compared pair by pair.
        options: the options of the comparison.
        levels: one row per level: level, n (runs used), lost, seeds (repetitions per setting, at least),
            settings, distinct (number of different values); mean, iqm and median, each with _low and _high; std
            (within settings).
        cells: one row per level and setting: level, setting, n, lost, mean, median, std.
        pairs: one row per pair of levels a and b (the baseline, if there is one): n, n_b (pairs of runs if
            paired, else runs of each), lost, units (the units that tests count as independent: the seeds of the
            pairs if paired, else the runs of the smaller side, or its rows if levels share no setting),
            settings; difference (of means, a minus b) with _low, _high, test, p, p_least (the smallest p that this
            number of units allows, NaN if undefined) and p_holm (corrected over the pairs of this outcome);
            p_worst (p_holm with each lost run counted against the level that seems better, see
            :mod:`~palaestrai_mosaik.arsenai.analysis.lost_runs`; equal to p_holm without lost runs); favours (the better
            level, if p_worst is significant); improvement (probability that a run of a is better than one of b)
            with _low, _high, _test and _p; won, tied (pairs in which a is better, equal), distinct (number of
            different differences; unpaired: of values), settings_won (settings in which a has the better mean);
            cohens_dz (paired only: the mean difference over the standard deviation of seeds).
        profiles: level, score, share (of its runs better than the score), low, high.
        warnings: cautions for the reader.
        notes: the methods used.
        crossed: whether levels share settings; otherwise, each level has settings of its own.
    """

    by: tuple[str, ...]
    outcome: str
    paired: bool
    options: ComparisonOptions
    levels: pd.DataFrame
    cells: pd.DataFrame
    pairs: pd.DataFrame
    profiles: pd.DataFrame
    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    crossed: bool = True

    @property
    def title(self) -> str:
        """A title such as ``violations by algorithm``."""
        return f"{self.outcome} by {' and '.join(self.by)}"

    @property
    def constant(self) -> float | None:
        """The common value of all runs (at least two), so that nothing can be compared; None if they differ."""
        levels = self.levels[self.levels["n"] > 0]
        if levels["n"].sum() < 2 or (levels["distinct"] > 1).any():
            return None
        values = levels["mean"].to_numpy(float)
        return float(values[0]) if distinct(values) == 1 else None

    @property
    def shared_settings(self) -> list[str]:
        """The settings in which all levels with runs have runs."""
        return shared_settings(self.cells)

    @property
    def equal_settings(self) -> bool:
        """Whether all levels with runs have the same settings, so that their means are comparable."""
        with_runs = self.cells[self.cells["n"] > 0]
        return len(self.shared_settings) == with_runs["setting"].nunique()


def compare(
    frame: pd.DataFrame,
    by: str | Sequence[str],
    outcome: str,
    settings: Sequence[str] = (),
    options: ComparisonOptions | None = None,
    progress: ProgressCallback | None = None,
) -> Comparison:
    """Compare levels in a table of runs.

    Runs are paired by setting and repetition if the levels share settings and seeds are common; a pair without one
    of its runs is lost. Values are imputed only to see if lost runs could change which level is better
    (``p_worst``). Levels keep the order of a categorical column, or of their rows.

    Args:
        frame: one row per planned run with the columns ``by``, ``settings``, ``outcome`` (NaN if missing) and
            optionally ``row`` and ``repetition`` (whole numbers), ``run`` (rows with equal values share one
            execution) and ``status`` (other than ``finished``: lost). A factor that a run does not have is
            missing (None, NaN).
        by: the factor to compare, or several, to compare their combinations.
        outcome: the column with the values.
        settings: the other factors that vary; levels are compared within their combinations.
        options: the options of the comparison; ``None``: the defaults.
        progress: called with the number of resamples drawn and the total; ``None``: no reports.

    Returns:
        The comparison.

    Raises:
        PalaestraiMosaikError: a name does not exist, or there are fewer than two levels or more than
            ``runs.MOST_LEVELS``.
    """
    options = options or ComparisonOptions()
    by = (by,) if isinstance(by, str) else tuple(by)
    runs = collect(frame, by, outcome, settings, options)
    return _compare(runs, outcome, options, PartsProgress(progress, _resamples(runs, options)))


def _resamples(runs: Runs, options: ComparisonOptions) -> int:
    """Return the number of resamples: for each level's aggregates and profile, and for two tests of each pair."""
    return 2 * (len(runs.levels) * options.resamples + len(pairs_of(runs)) * PERMUTATIONS)


def _compare(runs: Runs, outcome: str, options: ComparisonOptions, counted: PartsProgress) -> Comparison:
    import pandas as pd

    paired = options.common_seeds and runs.crossed
    pairs = compare_pairs(runs, outcome, paired, options, counted)
    levels = pd.DataFrame([_level(runs, name, outcome, options, counted) for name in runs.levels])
    return Comparison(
        runs.by,
        outcome,
        paired,
        options,
        levels,
        _cells(runs),
        pairs,
        _profiles(runs, outcome, options, counted),
        (*runs.warnings, *cautions.warnings(runs, levels, pairs, paired, options)),
        cautions.notes(runs, pairs, paired, options),
        runs.crossed,
    )


def _level(
    runs: Runs, name: str, outcome: str, options: ComparisonOptions, counted: PartsProgress
) -> dict[str, Any]:
    strata = list(runs.strata(name).values())
    n = sum(map(len, strata))
    planned = runs.frame.loc[runs.frame["level"] == name, "run"].nunique()
    sample = runs.sample(name, options.common_seeds)
    row = {
        **{"level": name, "n": n, "lost": planned - n, "seeds": runs.seeds(name)},
        "settings": runs.settings_of(name),
        "distinct": distinct(sample.values),
    }
    generator = seeding.generator(options.seed, "comparison", outcome, name)
    bounds = intervals(sample, WEIGHTED, options.confidence, options.resamples, generator)
    counted.end(options.resamples)
    for what, statistic in AGGREGATES.items():
        row[what] = float(statistic(*strata)) if strata else float("nan")
        row |= dict(zip((f"{what}_low", f"{what}_high"), bounds[what], strict=True))
    drawn = [sample.values[sample.strata == i] for i in np.unique(sample.strata)]
    return {**row, "std": spread(drawn)}


def shared_settings(cells: pd.DataFrame) -> list[str]:
    """Return the settings in which all levels with runs have runs."""
    used = cells[cells["n"] > 0]
    counts = used.groupby("setting", sort=False)["level"].nunique()
    return [str(setting) for setting in counts.index[counts == used["level"].nunique()]]


def _cells(runs: Runs) -> pd.DataFrame:
    grouped = runs.frame.groupby(["level", "setting"], sort=False)["value"]
    cells = grouped.agg(["count", "size", "mean", "median", "std"]).reset_index()
    order = {name: i for i, name in enumerate(runs.levels)}
    cells = cells.sort_values("level", key=lambda column: column.map(order), kind="stable", ignore_index=True)
    cells["lost"] = cells.pop("size") - cells["count"]
    cells = cells.rename(columns={"count": "n"})
    return cells[["level", "setting", "n", "lost", "mean", "median", "std"]]


def _profiles(runs: Runs, outcome: str, options: ComparisonOptions, counted: PartsProgress) -> pd.DataFrame:
    import pandas as pd

    score_values = scores(runs.frame["value"].dropna().to_numpy(float))
    columns = ("level", "score", "share", "low", "high")
    parts = []
    for name in runs.levels:
        sample = runs.sample(name, options.common_seeds)
        if not len(sample.values):
            counted.end(options.resamples)
            continue
        generator = seeding.generator(options.seed, "comparison", outcome, name, "profile")
        curve = profile(
            *(sample, score_values, options.better == "lower"),
            options.confidence,
            options.resamples,
            generator,
        )
        counted.end(options.resamples)
        arrays = (curve.scores, curve.share, curve.low, curve.high)
        part = pd.DataFrame(np.column_stack(arrays), columns=columns[1:])
        part.insert(0, "level", name)
        parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


# Samplers for sensitivity analyses: none of their settings occurs with two levels.
_SENSITIVITY = ("sobol", "morris", "fast", "finite_differences")


def compare_design(
    results: Results,
    by: Sequence[str] = (),
    baseline: str | None = None,
    outcomes: Sequence[str] = (),
    normalise: Normalise = "none",
    progress: ProgressCallback | None = None,
) -> list[Comparison]:
    """Compare the levels of a design's factors.

    Args:
        results: the results of the design.
        by: factors whose combinations are compared; empty: those of the design's ``analysis.compare``;
            if that is empty too, every choice and nominal factor on its own (none for the sample of a
            sensitivity analysis).
        baseline: the label of the level that all others are compared with; if several factors are compared on
            their own, it applies to those with this label. ``None``: the design's.
        outcomes: names of outcomes; empty: all.
        normalise: how to make values of different settings comparable
            (:class:`~palaestrai_mosaik.arsenai.analysis.comparison.runs.ComparisonOptions`).
        progress: called with the number of resamples drawn and the total; ``None``: no reports.

    Returns:
        One comparison per outcome and family of factors.

    Raises:
        PalaestraiMosaikError: a name does not exist, or there is nothing to compare.
    """
    spec = results.spec
    families = choose_families(spec, by)
    specs = {outcome.name: outcome for outcome in results.outcome_specs}
    for name in outcomes:
        if name not in specs:
            raise PalaestraiMosaikError(
                f"no outcome {name!r}{did_you_mean(name, specs)}; there are {', '.join(specs)}"
            )
    baselines = _baselines(spec, families, spec.analysis.baseline if baseline is None else baseline)
    collected = []
    for name in outcomes or specs:
        for family, family_baseline in zip(families, baselines, strict=True):
            options = ComparisonOptions(
                better=specs[name].better,
                baseline=family_baseline,
                common_seeds=spec.seed_policy == "common",
                normalise=normalise,
                confidence=spec.analysis.confidence,
                resamples=spec.analysis.resamples,
                seed=spec.seed,
            )
            collected.append((runs_of(results, family, name, options), name, options))
    counted = PartsProgress(progress, sum(_resamples(runs, options) for runs, _, options in collected))
    comparisons = []
    for runs, name, options in collected:
        comparison = _compare(runs, name, options, counted)
        comparisons.append(replace(comparison, warnings=(*comparison.warnings, *zip_warnings(spec, runs.by))))
    return comparisons


def runs_of(results: Results, family: Sequence[str], outcome: str, options: ComparisonOptions) -> Runs:
    """Arrange the runs of a design by the levels of a family of factors, and by the settings of all others."""
    spec = results.spec
    frame = with_factors(results.outcomes(), spec, results.folder.values(), family)
    settings = [axis.factors[0].name for axis in _others(spec, family)]
    return collect(frame, family, outcome, settings, options)


def choose_families(spec: DesignSpec, by: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the families of factors to compare, each compared as a combination (see :func:`compare_design`)."""
    named = tuple(dict.fromkeys(by or spec.analysis.compare))
    names = [factor.name for factor in spec.factors]
    unknown = next((name for name in named if name not in names), None)
    if unknown is not None:
        raise PalaestraiMosaikError(
            f"no factor {unknown!r} in the design{did_you_mean(unknown, names)}; there are {', '.join(names)}"
        )
    if named:
        return [named]
    nominal: list[tuple[str, ...]] = [
        (f.name,) for f in spec.factors if f.nominal and 1 < len(f.levels) <= MOST_LEVELS
    ]
    if nominal and spec.sampler.name not in _SENSITIVITY:
        return nominal
    why = "no factor is a choice or has levels without order"
    if nominal:
        why = f"the sampler {spec.sampler.name!r} serves a sensitivity analysis (arsenai analyse)"
    raise PalaestraiMosaikError(
        f"nothing to compare by itself: {why}; name a factor under "
        "analysis.compare of the design, or on the command line: arsenai compare --by FACTOR"
    )


def _baselines(spec: DesignSpec, families: Sequence[Sequence[str]], baseline: str | None) -> list[str | None]:
    """Return ``baseline`` for each family with a factor that has this level, and None for the others."""
    labels = [[label for name in family for label in spec.factor(name).labels] for family in families]
    every = list(dict.fromkeys(label for of_family in labels for label in of_family))
    if baseline is not None and baseline not in every:
        raise PalaestraiMosaikError(
            f"baseline {baseline!r} is no level of what is compared{did_you_mean(baseline, every)}; "
            f"these are {', '.join(every)}"
        )
    return [baseline if baseline in of_family else None for of_family in labels]


def _others(spec: DesignSpec, family: Sequence[str]) -> list[Axis]:
    """Return the axes without a factor of the family."""
    return [axis for axis in spec.axes if not any(factor.name in family for factor in axis.factors)]


def zip_warnings(spec: DesignSpec, family: Sequence[str]) -> list[str]:
    """Return a warning if other factors are zipped with those of the family."""
    axes = [axis.factors for axis in spec.axes if any(factor.name in family for factor in axis.factors)]
    together = [factor.name for factors in axes for factor in factors if factor.name not in family]
    if not together:
        return []
    return [f"varies together with {', '.join(together)}: what differs may be due to either"]


def with_factors(
    outcomes: pd.DataFrame, spec: DesignSpec, values: Sequence[dict[str, Any]], family: Sequence[str]
) -> pd.DataFrame:
    """Return the runs with a column per factor of the family, and one per other axis.

    The latter is named after the axis's first factor: zipped factors are one setting.
    """
    import pandas as pd

    runs = outcomes.copy()
    for factor in map(spec.factor, family):
        by_row = labels((factor,), values)
        levels = factor.labels or _numbers(factor, values)
        runs[factor.name] = pd.Categorical([by_row[row] for row in runs["row"]], categories=list(levels))
    for axis in _others(spec, family):
        by_row = labels(axis.factors, values)
        runs[axis.factors[0].name] = [by_row[row] for row in runs["row"]]
    return runs


def _numbers(factor: Factor, values: Sequence[dict[str, Any]]) -> list[str]:
    """Return the values of a factor without levels as text, in ascending order."""
    return [str(value) for value in sorted({row[factor.name] for row in values} - {INACTIVE})]

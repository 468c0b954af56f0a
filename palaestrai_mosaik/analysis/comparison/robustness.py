"""Robustness of settings over scenarios: which level does well in all of them, not on average only.

The levels that are compared are decisions, what varies beside them are scenarios. Sources: McPhail et al. 2018,
"Robustness Metrics: How Are They Calculated, When Should They Be Used and Why Do They Give Different Results?", Earth's
Future 6; Herman et al. 2015, "How Should Robustness Be Defined for Water Systems Planning under Change?", Journal of
Water Resources Planning and Management 141; Hamarat et al. 2014 (mean-variance).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik import seeding
from palaestrai_mosaik.analysis.results import Results
from palaestrai_mosaik.design.expressions import Expression
from palaestrai_mosaik.design.outcomes import STATUS, read_condition
from palaestrai_mosaik.errors import DocumentError, PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.text import count
from palaestrai_mosaik.types.arrays import BoolMatrix, FloatArray, FloatMatrix, IntArray

from .compare import choose_families, with_factors, zip_warnings
from .runs import ComparisonOptions, Runs, collect

if TYPE_CHECKING:
    import pandas as pd

#: of the percentiles: the share of the scenarios that are at least as good
BETTER_SHARE = 0.9
#: the metrics of an outcome in their order, and whether less of it is better (``None``: as of the outcome)
METRICS: Mapping[str, bool | None] = {
    "mean": None,
    "worst": None,
    "percentile": None,
    "std": True,
    "mean_variance": None,
    "regret_max": True,
    "regret_percentile": True,
    "regret_mean": True,
}
SATISFICING = "satisficing"
#: what a picture shows -> the metrics in it, and what they are called there
DRAWN: Mapping[str, Mapping[str, str]] = {
    SATISFICING: {SATISFICING: "share"},
    "regret": {"regret_mean": "mean", "regret_percentile": "90 %", "regret_max": "worst"},
    "value": {"mean": "mean", "percentile": "90 % at least", "worst": "worst"},
}
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Robustness:
    """How robust the levels of ``by`` are over the scenarios of ``over``, in one outcome or by one condition.

    Attributes:
        what: the outcome, or the condition.
        by: the factors of the decision.
        over: the factors of the scenarios, of zipped ones their axis.
        better: which direction of the outcome is good; ``None`` for a condition.
        table: one row per level and metric: level, scenarios (used), lost (left out), metric, value, low, high (NaN
            where there is no value), best (whether no level is better).
        scenarios: one row per level and scenario: level, scenario, value (mean over seeds; of a condition, 1 where it
            holds), regret (distance to the best level there; NaN where levels share no scenarios).
        warnings: what a reader must know.
        confidence: that of the intervals.
    """

    what: str
    by: tuple[str, ...]
    over: tuple[str, ...]
    better: str | None
    table: pd.DataFrame = field(repr=False)
    scenarios: pd.DataFrame = field(repr=False)
    warnings: tuple[str, ...] = ()
    confidence: float = 0.95

    @property
    def title(self) -> str:
        """What is robust over what: ``violations by controller over load and delay``."""
        return f"{self.what} by {' and '.join(self.by)} over {' and '.join(self.over)}"

    @property
    def drawn(self) -> str:
        """What a picture shows (a key of :data:`DRAWN`): of a condition the share, of an outcome the regret or, where levels
        share no scenarios, the value.
        """
        if self.better is None:
            return SATISFICING
        return "regret" if self.scenarios["regret"].notna().any() else "value"


@dataclass(frozen=True)
class _Performance:
    """``values``: (levels, scenarios), finite where levels share scenarios; else NaN where a level was not run."""

    levels: tuple[str, ...]
    names: tuple[str, ...]
    values: FloatMatrix
    shared: bool
    lost: int
    warnings: tuple[str, ...]


def robustness(
    results: Results,
    by: Sequence[str] = (),
    over: Sequence[str] = (),
    outcomes: Sequence[str] = (),
    satisfice: Sequence[str] = (),
    progress: ProgressCallback | None = None,
) -> list[Robustness]:
    """Return how robust the levels of factors are over scenarios.

    The performance of a level in a scenario is the mean over its seeds, and over factors that are neither ``by`` nor
    ``over``. Scenarios in which a level has no finite value are left out for all levels. Intervals are percentiles of
    resampled scenarios.

    Args:
        results: the results of the design.
        by: factors whose levels, or combinations of levels, are decisions; empty: as of ``compare_design``.
        over: the factors that make scenarios; empty: all others.
        outcomes: names of outcomes; empty: all. Each must say which direction is better.
        satisfice: conditions on outcomes, such as ``violations <= 0.01``; the metric is the share of the scenarios
            in which one holds.
        progress: is called with the number of resamples drawn and of all; ``None``: nothing is.

    Returns:
        One entry per outcome and entry to compare by, then one per condition.

    Raises:
        PalaestraiMosaikError: a name does not exist, an outcome does not say which direction is better, or there is
            nothing to compare.
    """
    spec = results.spec
    specs = {outcome.name: outcome for outcome in results.outcome_specs}
    for name in outcomes:
        if name not in specs:
            raise PalaestraiMosaikError(
                f"no outcome {name!r}{did_you_mean(name, specs)}; there are {', '.join(specs)}"
            )
    conditions = [_condition(text, list(specs)) for text in satisfice]
    families = choose_families(spec, by)
    resamples = spec.analysis.resamples
    parts = (len(outcomes or specs) + len(conditions)) * len(families)
    counted = PartsProgress(progress, parts * resamples)
    found = []
    frame, values = results.outcomes(), results.folder.values()
    for family in families:
        factors, pooled = _over(results, family, over)
        scenarios = _axes(results, factors)
        own = with_factors(frame, spec, values, family)
        performances: dict[str, _Performance] = {}
        for name in specs:
            options = ComparisonOptions(common_seeds=spec.seed_policy == "common")
            runs = collect(own, family, name, factors, options)
            performances[name] = _performance(runs, _axes(results, pooled), zip_warnings(spec, family))
        draw = (spec.seed, spec.analysis.confidence, resamples)
        for name in outcomes or specs:
            better = specs[name].better
            if better is None:
                raise PalaestraiMosaikError(
                    f"robustness needs to know which direction of {name!r} is good: give the outcome 'better: higher' "
                    "or 'better: lower' in the design"
                )
            found.append(_of_outcome(name, (family, scenarios), performances[name], better, draw))
            counted.end(resamples)
        for condition in conditions:
            found.append(_of_condition(condition, (family, scenarios), performances, draw))
            counted.end(resamples)
    return found


def robustness_design(
    results: Results, progress: ProgressCallback | None = None
) -> tuple[list[Robustness], str]:
    """Return the robustness that the design asks for (``analysis.robustness``), and why there is none, if so.

    It is that of all outcomes that say which direction is better, and of its conditions. Nothing and no reason are
    returned where the design does not ask.
    """
    asked = results.spec.analysis.robustness
    if asked is None:
        return [], ""
    known = [outcome.name for outcome in results.outcome_specs if outcome.better is not None]
    try:
        return robustness(results, asked.by, asked.over, known, asked.satisfice, progress), ""
    except PalaestraiMosaikError as error:
        # (what has a type of its own is wrong elsewhere)
        if type(error) is not PalaestraiMosaikError:
            raise
        return [], str(error)


def metric_table(one: Robustness) -> pd.DataFrame:
    """Return the metrics side by side: a row per level, in the order of the design.

    Columns: ``level``, ``scenarios``, ``lost``, each metric with ``_low`` and ``_high``, and ``best`` (the metrics by which
    no level is better).
    """
    import pandas as pd

    rows: dict[str, dict[str, object]] = {}
    best: dict[str, list[str]] = {}
    for told in one.table.to_dict("records"):
        level = str(told["level"])
        row = rows.setdefault(level, {"level": level, "scenarios": told["scenarios"], "lost": told["lost"]})
        row[told["metric"]] = told["value"]
        row |= {f"{told['metric']}_{end}": told[end] for end in ("low", "high")}
        best.setdefault(level, []).extend([str(told["metric"])] * bool(told["best"]))
    return pd.DataFrame([{**row, "best": ", ".join(best[level])} for level, row in rows.items()])


def _condition(text: str, outcomes: Sequence[str]) -> Expression:
    try:
        condition = read_condition(text, outcomes)
    except DocumentError as error:
        raise PalaestraiMosaikError(error.problems[0].message) from None
    if STATUS in condition.names:
        raise PalaestraiMosaikError(
            f"the condition {text!r} names the status: scenarios have outcomes, no status"
        )
    return condition


def _over(results: Results, family: Sequence[str], over: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns that make scenarios, one for each axis, and those over which means are taken."""
    axes = results.spec.axes
    axis_of = {factor.name: axis for axis in axes for factor in axis.factors}
    axis_of |= {axis.name: axis for axis in axes}
    chosen = []
    for name in over:
        if name not in axis_of:
            raise PalaestraiMosaikError(
                f"no factor {name!r} in the design{did_you_mean(name, axis_of)}; there are {', '.join(axis_of)}"
            )
        if any(factor.name in family for factor in axis_of[name].factors):
            raise PalaestraiMosaikError(
                f"{name!r} cannot make scenarios: it is a factor that is compared, or zipped with one"
            )
        chosen.append(axis_of[name].factors[0].name)
    others = [axis.factors[0].name for axis in axes if not any(f.name in family for f in axis.factors)]
    if not others:
        raise PalaestraiMosaikError("nothing varies beside the compared factors: there are no scenarios")
    kept = list(dict.fromkeys(chosen or others))
    return kept, [name for name in others if name not in kept]


def _axes(results: Results, factors: Sequence[str]) -> tuple[str, ...]:
    """Return what the axes of these factors are called: those that are zipped have one name."""
    axis_of = {factor.name: axis.name for axis in results.spec.axes for factor in axis.factors}
    return tuple(axis_of[name] for name in factors)


def _performance(runs: Runs, pooled: Sequence[str], known: Sequence[str]) -> _Performance:
    """Return the performance of each level in each scenario; ``known``: warnings that concern all of them."""
    warnings = list(known)
    if pooled:
        warnings.append(f"performance in a scenario is the mean over {', '.join(pooled)}")
    frame = runs.frame
    levels = tuple(runs.levels)
    column = "setting" if runs.crossed else "place"
    scenarios = tuple(dict.fromkeys(frame[column]))
    means = frame.groupby(["level", column], sort=False)["value"].mean()
    table = means.unstack(column).reindex(index=list(levels), columns=list(scenarios))
    values = table.to_numpy(float)
    if not runs.crossed:
        warnings.append(
            "levels share no scenario, so there is no regret, and levels differ by their scenarios, too: cross the "
            "decision with the scenarios (sampler factorial or grid)"
        )
        planned = frame.groupby("level")[column].nunique()
        lost = int(planned.max() - np.isfinite(values).sum(axis=1).max())
        return _Performance(levels, tuple(map(str, scenarios)), values, False, lost, tuple(warnings))
    whole = np.isfinite(values).all(axis=0)
    lost = int((~whole).sum())
    if lost:
        warnings.append(
            f"{count(lost, 'scenario')} of {len(scenarios):,} left out, because a level has no finite value there; where "
            "runs fail for a reason, levels look more robust than they are"
        )
    names = tuple(str(name) for name, kept in zip(scenarios, whole, strict=True) if kept)
    return _Performance(levels, names, values[:, whole], True, lost, tuple(warnings))


_Place = tuple[tuple[str, ...], tuple[str, ...]]
_Draw = tuple[int, float, int]


def _of_outcome(name: str, place: _Place, found: _Performance, better: str, draw: _Draw) -> Robustness:
    import pandas as pd

    sign = 1.0 if better == "higher" else -1.0
    values = found.values
    _check(name, found)
    regret = _regret(values, sign) if found.shared else np.full(values.shape, np.nan)
    rows = []
    for i, level in enumerate(found.levels):
        known = np.isfinite(values[i])
        own, own_regret = values[i, known], regret[i, known]
        drawn = _draws(len(own), draw, name, level, shared=found.shared)
        point = _metrics(own[None], own_regret[None], sign)
        again = _metrics(own[drawn], own_regret[drawn], sign)
        for metric, value in point.items():
            low, high = _interval(again[metric], draw[1])
            rows.append((level, len(own), found.lost, metric, float(value[0]), low, high))
    table = pd.DataFrame(rows, columns=["level", "scenarios", "lost", "metric", "value", "low", "high"])
    warnings = list(found.warnings)
    if table.loc[table["metric"] == "mean_variance", "value"].isna().any():
        warnings.append("mean-variance is defined for outcomes that are not negative on average")
    less = {metric: fewer if fewer is not None else better == "lower" for metric, fewer in METRICS.items()}
    return Robustness(
        name,
        *place,
        better,
        _with_best(table, less),
        _scenarios(found, values, regret),
        tuple(warnings),
        draw[1],
    )


def _of_condition(
    condition: Expression, place: _Place, performances: Mapping[str, _Performance], draw: _Draw
) -> Robustness:
    import pandas as pd

    parts = [performances[name] for name in condition.names]
    # scenarios that all outcomes of the condition have
    names = [name for name in parts[0].names if all(name in one.names for one in parts)]
    at = [[one.names.index(name) for name in names] for one in parts]
    values = np.stack([one.values[:, places] for one, places in zip(parts, at, strict=True)])
    first = parts[0]
    total = len(first.names) + first.lost if first.shared else len(first.names)
    found = _Performance(
        first.levels,
        tuple(names),
        _holds(condition, values),
        first.shared,
        total - len(names) if first.shared else first.lost,
        tuple(dict.fromkeys(text for one in parts for text in one.warnings)),
    )
    _check(condition.text, found)
    rows = []
    for i, level in enumerate(found.levels):
        own = found.values[i][np.isfinite(found.values[i])]
        drawn = _draws(len(own), draw, condition.text, level, shared=found.shared)
        low, high = _interval(own[drawn].mean(axis=1), draw[1])
        rows.append((level, len(own), found.lost, SATISFICING, float(own.mean()), low, high))
    table = pd.DataFrame(rows, columns=["level", "scenarios", "lost", "metric", "value", "low", "high"])
    nothing = np.full(found.values.shape, np.nan)
    return Robustness(
        condition.text,
        *place,
        None,
        _with_best(table, {SATISFICING: False}),
        _scenarios(found, found.values, nothing),
        found.warnings,
        draw[1],
    )


def _holds(condition: Expression, values: FloatArray) -> FloatMatrix:
    """Return 1 where the condition holds and 0 where not, (levels, scenarios); ``values``: (outcomes, levels, scenarios)."""
    holds = np.full(values.shape[1:], np.nan)
    known = np.isfinite(values).all(axis=0)
    for i, j in zip(*np.nonzero(known), strict=True):
        told = dict(zip(condition.names, values[:, i, j].tolist(), strict=True))
        try:
            holds[i, j] = condition.evaluate(told)
        except DocumentError as error:
            raise PalaestraiMosaikError(error.problems[0].message) from None
    return holds


def _check(what: str, found: _Performance) -> None:
    if not np.isfinite(found.values).any(axis=1).all():
        raise PalaestraiMosaikError(
            f"{what}: no scenario is left in which every level has a finite value: each level needs runs with a "
            "value in each scenario (sampler factorial or grid)"
            if found.shared
            else f"{what}: a level has no finite value in any scenario"
        )


def _regret(values: FloatMatrix, sign: float) -> FloatMatrix:
    """Return the distance of each level to the best one in each scenario (Savage 1951), never negative."""
    best = (sign * values).max(axis=0)
    return np.asarray(best - sign * values)


def _draws(size: int, draw: _Draw, what: str, level: str, *, shared: bool) -> IntArray:
    """Return the scenarios of each resample, (resamples, scenarios); the same for all levels where they share these."""
    seed, _, resamples = draw
    generator = seeding.generator(seed, "robustness", what, *(() if shared else (level,)))
    return generator.integers(size, size=(resamples, size))


def _metrics(values: FloatMatrix, regret: FloatMatrix, sign: float) -> dict[str, FloatArray]:
    """Return each metric of each row of ``values``, (resamples, scenarios)."""
    good = sign * values
    mean, std = values.mean(axis=1), values.std(axis=1)
    spread = (mean + 1) / (std + 1) if sign > 0 else (mean + 1) * (std + 1)
    return {
        "mean": mean,
        # (adding zero makes a negative zero a positive one)
        "worst": sign * good.min(axis=1) + 0.0,
        "percentile": sign * np.quantile(good, 1 - BETTER_SHARE, axis=1) + 0.0,
        "std": std,
        "mean_variance": np.where(mean >= 0, spread, np.nan),
        "regret_max": regret.max(axis=1),
        "regret_percentile": np.quantile(regret, BETTER_SHARE, axis=1),
        "regret_mean": regret.mean(axis=1),
    }


def _interval(values: FloatArray, confidence: float) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)


def _with_best(table: pd.DataFrame, less: Mapping[str, bool]) -> pd.DataFrame:
    """Return the table with a column that tells which levels are the best by each metric."""
    best = np.zeros(len(table), dtype=bool)
    for metric, fewer in less.items():
        rows: BoolMatrix = (table["metric"] == metric).to_numpy()
        values = table["value"].to_numpy(float)
        known = values[rows & np.isfinite(values)]
        if len(known):
            top = known.min() if fewer else known.max()
            best |= rows & (np.abs(values - top) <= _ROUNDING * max(1.0, abs(top)))
    return table.assign(best=best)


def _scenarios(found: _Performance, values: FloatMatrix, regret: FloatMatrix) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (level, name, values[i, j], regret[i, j])
        for i, level in enumerate(found.levels)
        for j, name in enumerate(found.names)
        if np.isfinite(values[i, j])
    ]
    return pd.DataFrame(rows, columns=["level", "scenario", "value", "regret"])


def robustness_table(found: Sequence[Robustness], name: str) -> pd.DataFrame:
    """Return the frames ``table`` or ``scenarios`` of all entries as one, with what they are of."""
    import pandas as pd

    parts: list[pd.DataFrame] = []
    for one in found:
        frame: pd.DataFrame = getattr(one, name).copy()
        frame.insert(0, "what", one.what)
        frame.insert(1, "by", " and ".join(one.by))
        frame.insert(2, "over", " and ".join(one.over))
        parts.append(frame)
    whole: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return whole

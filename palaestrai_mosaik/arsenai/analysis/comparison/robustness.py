"""Compare how robust levels are over scenarios: which one does well in all of them, not only on average.

The compared levels are decisions; everything else that varies makes scenarios. Sources: McPhail et al. 2018,
"Robustness Metrics: How Are They Calculated, When Should They Be Used and Why Do They Give Different Results?", Earth's
Future 6; Herman et al. 2015, "How Should Robustness Be Defined for Water Systems Planning under Change?", Journal of
Water Resources Planning and Management 141; Hamarat et al. 2014 (mean-variance).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.arsenai.analysis.results import Results, or_reason
from palaestrai_mosaik.arsenai.design.expressions import Expression
from palaestrai_mosaik.arsenai.design.outcomes import STATUS, read_condition
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import DocumentError, PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.types.arrays import BoolMatrix, FloatArray, FloatMatrix, IntArray

from ..lost_runs import bounds
from .aggregates import percentiles
from .compare import choose_families, with_factors, zip_warnings
from .runs import ComparisonOptions, Runs, collect

if TYPE_CHECKING:
    import pandas as pd

#: the share of the scenarios that are at least as good as a percentile metric
BETTER_SHARE = 0.9
#: metric -> whether a lower value is better (``None``: as for the outcome), in the order of the table
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
#: quantity in a figure -> its metrics and their labels
DRAWN: Mapping[str, Mapping[str, str]] = {
    SATISFICING: {SATISFICING: "share"},
    "regret": {"regret_mean": "mean", "regret_percentile": "90 %", "regret_max": "worst"},
    "value": {"mean": "mean", "percentile": "90 % at least", "worst": "worst"},
}
#: titles of metrics in tables
METRIC_TITLES: Mapping[str, str] = {
    "percentile": "90 % at least",
    "mean_variance": "mean-variance",
    "regret_max": "max regret",
    "regret_percentile": "90 % regret",
    "regret_mean": "mean regret",
}
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Robustness:
    """The robustness of the levels of ``by`` over the scenarios of ``over``, for one outcome or condition.

    Attributes:
        what: the outcome or the condition.
        by: the factors of the decision.
        over: the factors of the scenarios; zipped factors appear as their axis.
        better: the good direction of the outcome; ``None`` for a condition.
        table: one row per level and metric: level, scenarios (used), lost (left out), metric, value, low, high (NaN
            without a value), best (no level is better, whatever the lost runs would have given).
        scenarios: one row per level and scenario: level, scenario, value (mean over seeds; for a condition, 1 if it
            holds), regret (distance to the best level there; NaN if levels share no scenarios).
        warnings: limits of the result.
        confidence: the confidence level of the intervals.
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
        """A title such as ``violations by controller over load and delay``."""
        return f"{self.what} by {' and '.join(self.by)} over {' and '.join(self.over)}"

    @property
    def drawn(self) -> str:
        """The quantity in a figure, a key of :data:`DRAWN`: regret, or the value if levels share no scenarios."""
        if self.better is None:
            return SATISFICING
        return "regret" if self.scenarios["regret"].notna().any() else "value"


@dataclass(frozen=True)
class _Bounds:
    """Bounds of the performance, (levels, scenarios), with each lost run counted as an extreme value.

    NaN marks a scenario that a level does not have, or that no level finished. ``lost`` marks lost runs.
    """

    lowest: FloatMatrix
    highest: FloatMatrix
    lost: BoolMatrix


@dataclass(frozen=True)
class _Performance:
    """The performance of each level in each scenario.

    ``values``: (levels, scenarios), all finite if levels share scenarios, else NaN for scenarios of other levels.
    ``lost``: the number of scenarios left out.
    """

    levels: tuple[str, ...]
    names: tuple[str, ...]
    values: FloatMatrix
    shared: bool
    lost: int
    bounds: _Bounds
    warnings: tuple[str, ...]


def robustness(
    results: Results,
    by: Sequence[str] = (),
    over: Sequence[str] = (),
    outcomes: Sequence[str] = (),
    satisfice: Sequence[str] = (),
    progress: ProgressCallback | None = None,
) -> list[Robustness]:
    """Compute how robust the levels of factors are over scenarios.

    The performance of a level in a scenario is the mean over its seeds, and over factors in neither ``by`` nor
    ``over``. If a level lost a common seed, or all runs of a scenario, these are left out for all levels. A level is
    marked as the best only if that holds for all values that the lost runs could have given, between the extremes
    observed in their scenario. Intervals are percentiles of resampled scenarios.

    Args:
        results: the results of the design.
        by: factors whose levels, or combinations of levels, are decisions; empty: as in ``compare_design``.
        over: the factors that make scenarios; empty: all others.
        outcomes: names of outcomes with a ``better`` direction; empty: all.
        satisfice: conditions on outcomes, such as ``violations <= 0.01``; their metric is the share of the scenarios
            in which they hold.
        progress: called with the number of resamples drawn and the total; ``None``: no reports.

    Returns:
        One entry per outcome and entry to compare by, then one per condition.

    Raises:
        PalaestraiMosaikError: a name does not exist, an outcome has no ``better``, or there is nothing to compare.
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
    entries = []
    frame, values = results.outcomes(), results.folder.values()
    for family in families:
        factors, pooled = _over(results, family, over)
        scenarios = _axes(results, factors)
        runs_with_factors = with_factors(frame, spec, values, family)
        performances: dict[str, _Performance] = {}
        for name in specs:
            options = ComparisonOptions(common_seeds=spec.seed_policy == "common")
            runs = collect(runs_with_factors, family, name, factors, options)
            warnings = zip_warnings(spec, family)
            performances[name] = _performance(runs, options.common_seeds, _axes(results, pooled), warnings)
        draw = (spec.seed, spec.analysis.confidence, resamples)
        for name in outcomes or specs:
            better = specs[name].better
            if better is None:
                raise PalaestraiMosaikError(
                    f"robustness needs to know which direction of {name!r} is good: give the outcome 'better: higher' "
                    "or 'better: lower' in the design"
                )
            entries.append(_of_outcome(name, (family, scenarios), performances[name], better, draw))
            counted.end(resamples)
        for condition in conditions:
            entries.append(_of_condition(condition, (family, scenarios), performances, draw))
            counted.end(resamples)
    return entries


def robustness_design(
    results: Results, progress: ProgressCallback | None = None
) -> tuple[list[Robustness], str]:
    """Compute the robustness requested by the design (``analysis.robustness``).

    Returns:
        The robustness of all outcomes with a ``better`` direction and of all conditions, and the reason if it cannot
        be computed. Both are empty if the design requests none.
    """
    request = results.spec.analysis.robustness
    if request is None:
        return [], ""
    outcomes = [outcome.name for outcome in results.outcome_specs if outcome.better is not None]
    return or_reason(
        lambda: robustness(results, request.by, request.over, outcomes, request.satisfice, progress)
    )


def metric_table(result: Robustness) -> pd.DataFrame:
    """Return the metrics side by side: a row per level, in the order of the design.

    Columns: ``level``, ``scenarios``, ``lost``, each metric with ``_low`` and ``_high``, and ``best`` (the metrics by
    which the level is best).
    """
    import pandas as pd

    rows: dict[str, dict[str, object]] = {}
    best: dict[str, list[str]] = {}
    for record in result.table.to_dict("records"):
        level = str(record["level"])
        row = rows.setdefault(
            level, {"level": level, "scenarios": record["scenarios"], "lost": record["lost"]}
        )
        row[record["metric"]] = record["value"]
        row |= {f"{record['metric']}_{end}": record[end] for end in ("low", "high")}
        best.setdefault(level, []).extend([str(record["metric"])] * bool(record["best"]))
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
    """Return the columns of scenarios, one for each axis, and the columns to average over."""
    axes = results.spec.axes
    axis_of = {factor.name: axis for axis in axes for factor in axis.factors} | {
        axis.name: axis for axis in axes
    }
    others = [axis.factors[0].name for axis in axes if not any(f.name in family for f in axis.factors)]
    chosen = []
    for name in over:
        if name not in axis_of:
            raise PalaestraiMosaikError(
                f"no factor {name!r} in the design{did_you_mean(name, axis_of)}; there are {', '.join(axis_of)}"
            )
        chosen.append(axis_of[name].factors[0].name)
        if chosen[-1] not in others:
            raise PalaestraiMosaikError(
                f"{name!r} cannot make scenarios: it is a factor that is compared, or zipped with one"
            )
    if not others:
        raise PalaestraiMosaikError("nothing varies beside the compared factors: there are no scenarios")
    kept = list(dict.fromkeys(chosen or others))
    return kept, [name for name in others if name not in kept]


def _axes(results: Results, factors: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the axes of these factors; zipped factors share one."""
    axis_of = {factor.name: axis.name for axis in results.spec.axes for factor in axis.factors}
    return tuple(axis_of[name] for name in factors)


def _performance(
    runs: Runs, common: bool, pooled: Sequence[str], shared_warnings: Sequence[str]
) -> _Performance:
    """Compute the performance of each level in each scenario.

    Args:
        runs: the runs of an outcome.
        common: whether levels share the seeds of their repetitions.
        pooled: the axes to average over.
        shared_warnings: warnings that apply to all outcomes.
    """
    warnings = list(shared_warnings)
    if pooled:
        warnings.append(f"performance in a scenario is the mean over {', '.join(pooled)}")
    frame, levels = runs.frame, tuple(runs.levels)
    column = "setting" if runs.crossed else "place"
    scenarios = tuple(dict.fromkeys(frame[column]))
    names = tuple(map(str, scenarios))

    def means(values: pd.Series[float]) -> FloatMatrix:
        of_cells = values.groupby([frame["level"], frame[column]], sort=False).mean().unstack()
        return of_cells.reindex(index=list(levels), columns=list(scenarios)).to_numpy(float)

    values = frame["value"]
    finished = values.notna()
    ends = bounds(frame, common)
    bounded = _Bounds(means(ends.lowest), means(ends.highest), means((~finished).astype(float)) > 0)
    lost_runs = int(frame.loc[~finished, "run"].nunique())
    if not runs.crossed:
        warnings.append(
            "levels share no scenario, so there is no regret, and levels differ by their scenarios, too: cross the "
            "decision with the scenarios (sampler factorial or grid)"
        )
        performance = means(values)
        planned = frame.groupby("level")[column].nunique()
        lost = int(planned.max() - np.isfinite(performance).sum(axis=1).max())
    else:
        if common:
            values = values.where(finished.groupby([frame["setting"], frame["repetition"]]).transform("all"))
        performance = means(values)
        whole = np.isfinite(performance).all(axis=0)
        lost, names, performance = (
            int((~whole).sum()),
            tuple(np.array(names, dtype=object)[whole]),
            performance[:, whole],
        )
    if lost_runs:
        left_out = (
            f"; {count(lost, 'scenario')} of {len(scenarios):,} left out, because a level has no run there"
        )
        warnings.append(
            f"{count(lost_runs, 'run')} without a finite value: a level is marked as the best only if it is whatever these "
            f"would have given{left_out * bool(lost)}"
        )
    elif lost:
        warnings.append(
            f"{count(lost, 'scenario')} of {len(scenarios):,} left out, because not all levels have it"
        )
    return _Performance(levels, names, performance, runs.crossed, lost, bounded, tuple(warnings))


_Place = tuple[tuple[str, ...], tuple[str, ...]]
_Draw = tuple[int, float, int]
_COLUMNS = ("level", "scenarios", "lost", "metric", "value", "low", "high")
# the columns, then the metric with lost runs at their worst and at their best for the level
_Row = tuple[str, int, int, str, float, float, float, float, float]


def _of_outcome(
    name: str, factors: _Place, performance: _Performance, better: str, draw: _Draw
) -> Robustness:
    sign = 1.0 if better == "higher" else -1.0
    values = performance.values
    _check(name, performance)
    regret = _regret(values, values, sign) if performance.shared else np.full(values.shape, np.nan)
    at_worst, at_best = _extremes(performance, sign)
    rows: list[_Row] = []
    for i, level in enumerate(performance.levels):
        finite = np.isfinite(values[i])
        performed, own_regret = values[i, finite], regret[i, finite]
        drawn = _draws(len(performed), draw, name, level, shared=performance.shared)
        point = _metrics(performed[None], own_regret[None], sign)
        again = _metrics(performed[drawn], own_regret[drawn], sign)
        for metric, value in point.items():
            low, high = percentiles(again[metric], draw[1])
            ends = (at_worst[i][metric], at_best[i][metric])
            rows.append((level, len(performed), performance.lost, metric, float(value[0]), low, high, *ends))
    warnings = list(performance.warnings)
    if any(row[3] == "mean_variance" and np.isnan(row[4]) for row in rows):
        warnings.append("mean-variance is defined for outcomes that are not negative on average")
    less = {metric: fewer if fewer is not None else better == "lower" for metric, fewer in METRICS.items()}
    return Robustness(
        name,
        *factors,
        better,
        _with_best(rows, less),
        _scenarios(performance, values, regret),
        tuple(warnings),
        draw[1],
    )


def _extremes(
    performance: _Performance, sign: float
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Bound the metrics of each level: lost runs at their worst for it and their best for the others, and the reverse.

    Nothing bounds the metrics of spread, which are NaN if any run is lost.
    """
    ends = performance.bounds
    worst, best = (ends.lowest, ends.highest) if sign > 0 else (ends.highest, ends.lowest)
    unbounded = dict.fromkeys(("std", "mean_variance"), np.nan) if ends.lost.any() else {}
    if performance.shared:
        used = np.isfinite(worst).all(axis=0)
        worst, best = worst[:, used], best[:, used]

    def metrics(values: FloatMatrix, others: FloatMatrix) -> list[dict[str, float]]:
        regret = _regret(values, others, sign) if performance.shared else np.full(values.shape, np.nan)
        by_level = []
        for of_level, regret_of_level in zip(values, regret, strict=True):
            finite = np.isfinite(of_level)
            numbers = _metrics(of_level[None, finite], regret_of_level[None, finite], sign)
            by_level.append({metric: float(number[0]) for metric, number in numbers.items()} | unbounded)
        return by_level

    return metrics(worst, best), metrics(best, worst)


def _of_condition(
    condition: Expression, factors: _Place, performances: Mapping[str, _Performance], draw: _Draw
) -> Robustness:
    parts = [performances[name] for name in condition.names]
    # scenarios with all outcomes of the condition
    names = [name for name in parts[0].names if all(name in part.names for part in parts)]
    at = [[part.names.index(name) for name in names] for part in parts]
    values = np.stack([part.values[:, places] for part, places in zip(parts, at, strict=True)])
    first = parts[0]
    total = len(first.names) + first.lost if first.shared else len(first.names)
    satisfied = replace(
        first,
        names=tuple(names),
        values=_holds(condition, values),
        lost=total - len(names) if first.shared else first.lost,
        warnings=tuple(dict.fromkeys(text for part in parts for text in part.warnings)),
    )
    _check(condition.text, satisfied)
    at_worst, at_best = _share_bounds(condition, parts)
    rows: list[_Row] = []
    for i, level in enumerate(satisfied.levels):
        holds = satisfied.values[i][np.isfinite(satisfied.values[i])]
        drawn = _draws(len(holds), draw, condition.text, level, shared=satisfied.shared)
        low, high = percentiles(holds[drawn].mean(axis=1), draw[1])
        ends = (float(at_worst[i]), float(at_best[i]))
        rows.append((level, len(holds), satisfied.lost, SATISFICING, float(holds.mean()), low, high, *ends))
    nothing = np.full(satisfied.values.shape, np.nan)
    return Robustness(
        condition.text,
        *factors,
        None,
        _with_best(rows, {SATISFICING: False}),
        _scenarios(satisfied, satisfied.values, nothing),
        satisfied.warnings,
        draw[1],
    )


def _share_bounds(condition: Expression, parts: Sequence[_Performance]) -> tuple[FloatArray, FloatArray]:
    """Bound the share of the scenarios of each level in which a condition holds: in no lost run, and in all of them."""
    lost = np.any([part.bounds.lost for part in parts], axis=0)
    planned = np.isfinite([part.bounds.lowest for part in parts]).all(axis=0)
    if parts[0].shared:
        planned &= planned.all(axis=0)
    certain = _holds(condition, np.stack([np.where(lost, np.nan, part.bounds.lowest) for part in parts]))
    at_worst, at_best = (
        np.nanmean(np.where(planned, np.where(lost, end, certain), np.nan), axis=1) for end in (0.0, 1.0)
    )
    return at_worst, at_best


def _holds(condition: Expression, values: FloatArray) -> FloatMatrix:
    """Evaluate the condition, 1 or 0, (levels, scenarios); ``values``: (outcomes, levels, scenarios)."""
    holds = np.full(values.shape[1:], np.nan)
    finite = np.isfinite(values).all(axis=0)
    for i, j in zip(*np.nonzero(finite), strict=True):
        outcomes = dict(zip(condition.names, values[:, i, j].tolist(), strict=True))
        try:
            holds[i, j] = condition.evaluate(outcomes)
        except DocumentError as error:
            raise PalaestraiMosaikError(error.problems[0].message) from None
    return holds


def _check(what: str, performance: _Performance) -> None:
    if not np.isfinite(performance.values).any(axis=1).all():
        raise PalaestraiMosaikError(
            f"{what}: no scenario is left in which every level has a finite value: each level needs runs with a "
            "value in each scenario (sampler factorial or grid)"
            if performance.shared
            else f"{what}: a level has no finite value in any scenario"
        )


def _regret(values: FloatMatrix, others: FloatMatrix, sign: float) -> FloatMatrix:
    """Compute the regret of each level in each scenario: the distance to the best level (Savage 1951), at least 0.

    Args:
        values: (levels, scenarios) the performance of each level as the one that was chosen.
        others: (levels, scenarios) its performance as an alternative.
        sign: 1 if higher is better, -1 if lower is.
    """
    regret = np.zeros(values.shape)
    for i in range(len(values)):
        best = (sign * np.delete(others, i, axis=0)).max(axis=0)
        regret[i] = np.maximum(best - sign * values[i], 0.0)
    return regret


def _draws(size: int, draw: _Draw, what: str, level: str, *, shared: bool) -> IntArray:
    """Draw the scenarios of each resample, (resamples, scenarios); shared scenarios are the same for all levels."""
    seed, _, resamples = draw
    generator = seeding.generator(seed, "robustness", what, *(() if shared else (level,)))
    return generator.integers(size, size=(resamples, size))


def _metrics(values: FloatMatrix, regret: FloatMatrix, sign: float) -> dict[str, FloatArray]:
    """Compute each metric of each row of ``values``, (resamples, scenarios)."""
    good = sign * values
    mean, std = values.mean(axis=1), values.std(axis=1)
    spread = (mean + 1) / (std + 1) if sign > 0 else (mean + 1) * (std + 1)
    return {
        "mean": mean,
        # adding 0.0 turns -0.0 into 0.0
        "worst": sign * good.min(axis=1) + 0.0,
        "percentile": sign * np.quantile(good, 1 - BETTER_SHARE, axis=1) + 0.0,
        "std": std,
        "mean_variance": np.where(mean >= 0, spread, np.nan),
        "regret_max": regret.max(axis=1),
        "regret_percentile": np.quantile(regret, BETTER_SHARE, axis=1),
        "regret_mean": regret.mean(axis=1),
    }


def _with_best(rows: Sequence[_Row], less: Mapping[str, bool]) -> pd.DataFrame:
    """Build the table and mark the best levels by each metric.

    Args:
        rows: the rows of the table, with bounds of the metric.
        less: whether a lower value of a metric is better.
    """
    import pandas as pd

    table = pd.DataFrame(rows, columns=[*_COLUMNS, "at_worst", "at_best"])
    best = np.zeros(len(table), dtype=bool)
    for metric, fewer in less.items():
        indices = np.flatnonzero(table["metric"] == metric)
        columns = table.iloc[indices][["value", "at_worst", "at_best"]].to_numpy(float).T
        value, at_worst, at_best = -columns if fewer else columns
        if not np.isfinite(value).any():
            continue
        tolerance = _ROUNDING * max(1.0, abs(np.nanmax(value)))
        for i, index in enumerate(indices):
            if value[i] >= np.nanmax(value) - tolerance and np.isfinite(at_worst[i]):
                best[index] = not (np.delete(at_best, i) > at_worst[i] + tolerance).any()
    return table[list(_COLUMNS)].assign(best=best)


def _scenarios(performance: _Performance, values: FloatMatrix, regret: FloatMatrix) -> pd.DataFrame:
    import pandas as pd

    rows = [
        (level, name, values[i, j], regret[i, j])
        for i, level in enumerate(performance.levels)
        for j, name in enumerate(performance.names)
        if np.isfinite(values[i, j])
    ]
    return pd.DataFrame(rows, columns=["level", "scenario", "value", "regret"])


def robustness_table(entries: Sequence[Robustness], name: str) -> pd.DataFrame:
    """Concatenate the frames ``table`` or ``scenarios`` of all entries; add columns ``what``, ``by``, ``over``."""
    import pandas as pd

    parts: list[pd.DataFrame] = []
    for entry in entries:
        frame: pd.DataFrame = getattr(entry, name).copy()
        frame.insert(0, "what", entry.what)
        frame.insert(1, "by", " and ".join(entry.by))
        frame.insert(2, "over", " and ".join(entry.over))
        parts.append(frame)
    whole: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return whole

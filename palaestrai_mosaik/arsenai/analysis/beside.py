"""Compare the importances of a search with Sobol' indices: factors that matter near the best, and everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.few import significance_level
from palaestrai_mosaik.arsenai.design.methods import METHODS
from palaestrai_mosaik.arsenai.design.model import Axis, DesignSpec, Factor, values_of
from palaestrai_mosaik.core.errors import PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.core.printing import count, joined
from palaestrai_mosaik.core.progress import ProgressCallback

from .results import Results
from .sensitivity import SensitivityResult, choose_methods, sensitivity

if TYPE_CHECKING:
    import pandas as pd

#: shares of the variance: of a factor alone, and with all its interactions
INDICES = ("S1", "ST")


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of a factor in a search: its share of 1, and its p value against chance, adjusted by maxT."""

    share: float
    p_adjusted: float


#: outcome -> factor -> importance, the largest first
Importances = Mapping[str, Mapping[str, Importance]]


def explained_by_chance(importances: Importances, confidence: float) -> Iterator[str]:
    """Yield a note for each outcome with importances that chance alone could explain."""
    level = significance_level(confidence)
    for outcome, shares in importances.items():
        factors = [factor for factor, importance in shares.items() if importance.p_adjusted > level]
        of_factors = (
            "all importances" if len(factors) == len(shares) else f"the importance of {joined(factors)}"
        )
        if factors:
            yield (
                f"chance alone could explain {of_factors} for {outcome} (p above {level:.2g}, corrected for the number "
                "of factors)"
            )


@dataclass(frozen=True)
class Beside:
    """The importances of a search beside the Sobol' indices of another design with the same factors.

    Attributes:
        search: uid of the design with the search.
        other: uid of the design with the indices.
        tables: for each outcome, a row per factor, the most important one of the search first. Columns: ``factor``;
            ``importance`` (a share, PED-ANOVA); ``S1`` and ``ST``, each with ``_low`` and ``_high`` (NaN without an
            interval); ``importance_rank``, ``S1_rank`` and ``ST_rank``, 1 for the largest.
        notes: cautions for the reader: different ranges, factors of one design only, lost runs.
        confidence: confidence level of the intervals.
    """

    search: str
    other: str
    tables: Mapping[str, pd.DataFrame] = field(repr=False)
    notes: tuple[str, ...] = ()
    confidence: float = 0.95

    def table(self) -> pd.DataFrame:
        """Concatenate the tables, with a column ``outcome``."""
        import pandas as pd

        whole: pd.DataFrame = pd.concat(
            [frame.assign(outcome=name) for name, frame in self.tables.items()], ignore_index=True
        )
        return whole[["outcome", *(name for name in whole if name != "outcome")]]


def indices_beside(
    search: DesignSpec,
    importances: Importances,
    other: Results,
    progress: ProgressCallback | None = None,
) -> Beside:
    """Combine the importances of a search with the Sobol' indices of another design.

    Factors (zipped ones by their axis) and outcomes are matched by name.

    Args:
        search: the design with the search.
        importances: its importances, by outcome and factor.
        other: the results of a design with Sobol' indices: its sampler is ``sobol`` or ``fast``.
        progress: called with the number of resamples drawn and the total; ``None``: no reports.

    Raises:
        PalaestraiMosaikError: the other design has no such indices; no factor or outcome is in both, or one with the
            same name differs in meaning; or the search has no importances yet.
    """
    spec = other.spec
    methods = [name for name in choose_methods(other, None) if set(INDICES) <= set(METHODS[name].indices)]
    if not methods:
        raise PalaestraiMosaikError(
            f"the design {spec.uid!r} has no Sobol' indices, which need the sampler sobol or fast; its sampler is "
            f"{spec.sampler.name}"
        )
    factors = _same_factors(search, spec)
    outcomes = _same_outcomes(search, other, importances)
    analyses = sensitivity(other, methods[:1], outcomes, progress)
    notes = [*_differences(search, spec, factors)]
    tables = {}
    for result in analyses:
        if result.refused:
            raise PalaestraiMosaikError(f"{result.outcome} of {spec.uid!r} has no indices: {result.refused}")
        notes += _notes(result, spec)
        tables[result.outcome] = _table(result, importances[result.outcome], factors)
    notes += explained_by_chance({name: importances[name] for name in tables}, search.analysis.confidence)
    return Beside(search.uid, spec.uid, tables, tuple(dict.fromkeys(notes)), spec.analysis.confidence)


def _same_factors(search: DesignSpec, other: DesignSpec) -> list[str]:
    """Return the names of the axes in both designs."""
    axes, other_axes = ({axis.name: axis for axis in spec.axes} for spec in (search, other))
    common = [name for name in axes if name in other_axes]
    if not common:
        first = next(iter(axes))
        raise PalaestraiMosaikError(
            f"no factor is in both designs: {search.uid!r} has {joined(list(axes))}, {other.uid!r} has "
            f"{joined(list(other_axes))}{did_you_mean(first, other_axes)}; factors are the same where their names are"
        )
    for name in common:
        targets = [sorted(map(_target, axis.factors)) for axis in (axes[name], other_axes[name])]
        if targets[0] != targets[1]:
            raise PalaestraiMosaikError(
                f"the factor {name!r} is not the same in both designs: in {search.uid!r} it sets "
                f"{joined(targets[0])}, in {other.uid!r} {joined(targets[1])}"
            )
        group = other_axes[name].group
        if group is not None:
            raise PalaestraiMosaikError(
                f"the indices of {other.uid!r} are of groups: {name!r} is in the group {group!r}, and has none of its own"
            )
    return common


def _target(factor: Factor) -> str:
    """Return the target of a factor as text."""
    if factor.path is not None:
        return factor.path
    assert factor.choice is not None
    choice = factor.choice
    return f"{choice.topic} of phase {choice.phase}" + (f" ({choice.agent})" if choice.agent else "")


def _same_outcomes(search: DesignSpec, other: Results, importances: Importances) -> list[str]:
    if not importances:
        raise PalaestraiMosaikError(
            f"the search {search.uid!r} has no importances: they need Optuna, ten complete settings, an outcome "
            "that varies, and factors without 'when'"
        )
    other_specs = {spec.name: spec for spec in other.outcome_specs}
    common = [name for name in importances if name in other_specs]
    if not common:
        names = joined(list(importances))
        raise PalaestraiMosaikError(
            f"no outcome is in both designs: the search {search.uid!r} has importances for {names}, {other.spec.uid!r} "
            f"has the outcomes {joined(list(other_specs))}{did_you_mean(next(iter(importances)), other_specs)}"
        )
    for name in common:
        # The better direction does not affect indices.
        keys = ("of", "phase", "agent", "step", "episode", "outside", "evaluation")
        outcome, same = search.outcome(name), other_specs[name]
        differing = [repr(key) for key in keys if getattr(outcome, key) != getattr(same, key)]
        if differing:
            raise PalaestraiMosaikError(
                f"the outcome {name!r} is not the same in both designs: {joined(differing)} "
                f"{'differs' if len(differing) == 1 else 'differ'}"
            )
    return common


def _differences(search: DesignSpec, other: DesignSpec, factors: Sequence[str]) -> Iterator[str]:
    """Yield the differences between the designs apart from the names of factors."""
    axes, other_axes = ({axis.name: axis for axis in spec.axes} for spec in (search, other))
    for name in factors:
        if _ranges(axes[name]) != _ranges(other_axes[name]):
            ours, theirs = (", ".join(map(values_of, of[name].factors)) for of in (axes, other_axes))
            yield f"{name} differs: {ours} in {search.uid}, {theirs} in {other.uid}"
    for spec, names in ((search, axes), (other, other_axes)):
        left = [name for name in names if name not in factors]
        if left:
            yield f"only in {spec.uid}: {joined(left)}"
    if any(getattr(search, name) != getattr(other, name) for name in ("base", "schedule", "definitions")):
        yield "the run documents that the designs vary are not the same"


def _ranges(axis: Axis) -> list[tuple[Any, ...]]:
    numbers = ("kind", "low", "high", "dist", "levels", "weights")
    return [(dict(factor.params), *(getattr(factor, name) for name in numbers)) for factor in axis.factors]


def _notes(result: SensitivityResult, spec: DesignSpec) -> Iterator[str]:
    yield from (f"{result.outcome} of {spec.uid}: {note}" for note in result.notes)
    if result.lost:
        yield f"{result.outcome} of {spec.uid}: {count(result.lost, 'run')} lost"


def _table(
    result: SensitivityResult, importances: Mapping[str, Importance], factors: Sequence[str]
) -> pd.DataFrame:
    import pandas as pd

    single = result.frame[result.frame["factor2"] == ""]
    columns = ("index", "factor", "value", "low", "high")
    intervals = {cells[:2]: cells[2:] for cells in zip(*(single[name] for name in columns), strict=True)}
    rows = []
    for name in factors:
        importance = importances.get(name, Importance(math.nan, math.nan))
        row: dict[str, Any] = {"factor": name, "importance": importance.share}
        for index in INDICES:
            value, low, high = intervals.get((index, name), (float("nan"),) * 3)
            row |= {index: value, f"{index}_low": low, f"{index}_high": high}
        rows.append(row)
    frame = pd.DataFrame(rows)
    for column in ("importance", *INDICES):
        ranks = frame[column].rank(ascending=False, method="min")
        whole_ranks = [None if math.isnan(rank) else int(rank) for rank in ranks]
        # After the value and the ends of its interval.
        cells = list(frame).index(column if column == "importance" else f"{column}_high")
        frame.insert(cells + 1, f"{column}_rank", pd.Series(whole_ranks, dtype=object))
    return frame.sort_values("importance", ascending=False, kind="stable", ignore_index=True)

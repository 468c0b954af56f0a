"""What a search says of its factors beside what Sobol' indices say: what matters among the best, and what matters everywhere."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.design.described import values_of
from palaestrai_mosaik.design.methods import METHODS
from palaestrai_mosaik.design.model import Axis, DesignSpec, Factor, OutcomeSpec
from palaestrai_mosaik.errors import PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.progress import ProgressCallback
from palaestrai_mosaik.text import joined

from .results import Results
from .sensitivity import SensitivityResult, choose_methods, sensitivity

if TYPE_CHECKING:
    import pandas as pd

#: shares of the variance: of a factor alone, and with all its interactions
INDICES = ("S1", "ST")


@dataclass(frozen=True)
class Beside:
    """The importances of a search beside the Sobol' indices of another design with the same factors.

    Attributes:
        search: uid of the design with the search.
        other: uid of the design with the indices.
        tables: for each outcome, a row per factor, the most important one of the search first. Columns: ``factor``;
            ``importance`` (a share, PED-ANOVA); ``S1`` and ``ST``, each with ``_low`` and ``_high`` (NaN without an
            interval); ``importance_rank``, ``S1_rank`` and ``ST_rank``, 1 for the largest.
        notes: what a reader must know: ranges that differ, factors of one design only, lost runs.
        confidence: of the intervals.
    """

    search: str
    other: str
    tables: Mapping[str, pd.DataFrame] = field(repr=False)
    notes: tuple[str, ...] = ()
    confidence: float = 0.95

    def table(self) -> pd.DataFrame:
        """Return the tables as one, with a column ``outcome``."""
        import pandas as pd

        whole: pd.DataFrame = pd.concat(
            [frame.assign(outcome=name) for name, frame in self.tables.items()], ignore_index=True
        )
        return whole[["outcome", *(name for name in whole if name != "outcome")]]


def indices_beside(
    search: DesignSpec,
    importances: Mapping[str, Mapping[str, float]],
    other: Results,
    progress: ProgressCallback | None = None,
) -> Beside:
    """Return what matters among the best settings of a search beside what matters everywhere.

    Factors (of zipped ones their axis) and outcomes are the same where their names are.

    Args:
        search: the design with the search.
        importances: its importances, by outcome and factor.
        other: the results of a design that has Sobol' indices: its sampler is ``sobol`` or ``fast``.
        progress: is called with the number of resamples drawn and of all; ``None``: nothing is.

    Raises:
        PalaestraiMosaikError: the other design has no such indices, no factor or no outcome of the same name, one that
            means something else, or the search has no importances yet.
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
    found = sensitivity(other, methods[:1], outcomes, progress)
    notes = [*_differences(search, spec, factors)]
    tables = {}
    for one in found:
        if one.refused:
            raise PalaestraiMosaikError(f"{one.outcome} of {spec.uid!r} has no indices: {one.refused}")
        notes += _notes(one, spec)
        tables[one.outcome] = _table(one, importances[one.outcome], factors)
    return Beside(search.uid, spec.uid, tables, tuple(dict.fromkeys(notes)), spec.analysis.confidence)


def _same_factors(search: DesignSpec, other: DesignSpec) -> list[str]:
    """Return the names of the axes that both designs have."""
    own, others = ({axis.name: axis for axis in spec.axes} for spec in (search, other))
    common = [name for name in own if name in others]
    if not common:
        first = next(iter(own))
        raise PalaestraiMosaikError(
            f"no factor is in both designs: {search.uid!r} has {joined(list(own))}, {other.uid!r} has "
            f"{joined(list(others))}{did_you_mean(first, others)}; factors are the same where their names are"
        )
    for name in common:
        targets = [sorted(map(_target, axis.factors)) for axis in (own[name], others[name])]
        if targets[0] != targets[1]:
            raise PalaestraiMosaikError(
                f"the factor {name!r} is not the same in both designs: in {search.uid!r} it sets "
                f"{joined(targets[0])}, in {other.uid!r} {joined(targets[1])}"
            )
        group = others[name].group
        if group is not None:
            raise PalaestraiMosaikError(
                f"the indices of {other.uid!r} are of groups: {name!r} is in the group {group!r}, and has none of its own"
            )
    return common


def _target(factor: Factor) -> str:
    """Return what a factor sets, as text."""
    if factor.path is not None:
        return factor.path
    assert factor.choice is not None
    choice = factor.choice
    return f"{choice.topic} of phase {choice.phase}" + (f" ({choice.agent})" if choice.agent else "")


def _same_outcomes(
    search: DesignSpec, other: Results, importances: Mapping[str, Mapping[str, float]]
) -> list[str]:
    if not importances:
        raise PalaestraiMosaikError(
            f"the search {search.uid!r} has no importances: they need Optuna, ten complete settings, and factors without "
            "'when'"
        )
    others = {one.name: one for one in other.outcome_specs}
    common = [name for name in importances if name in others]
    if not common:
        wanted = joined(list(importances))
        raise PalaestraiMosaikError(
            f"no outcome is in both designs: the search {search.uid!r} has importances for {wanted}, {other.spec.uid!r} "
            f"has the outcomes {joined(list(others))}{did_you_mean(next(iter(importances)), others)}"
        )
    for name in common:
        differing = _measured_otherwise(search.outcome(name), others[name])
        if differing:
            raise PalaestraiMosaikError(
                f"the outcome {name!r} is not the same in both designs: {joined(differing)} "
                f"{'differs' if len(differing) == 1 else 'differ'}"
            )
    return common


def _measured_otherwise(one: OutcomeSpec, other: OutcomeSpec) -> list[str]:
    """Return the keys in which outcomes differ; which direction is good makes no difference to indices."""
    keys = ("of", "phase", "agent", "step", "episode", "outside", "evaluation")
    return [repr(key) for key in keys if getattr(one, key) != getattr(other, key)]


def _differences(search: DesignSpec, other: DesignSpec, factors: Sequence[str]) -> Iterator[str]:
    """Tell in what the designs differ though their factors have the same names."""
    own, others = ({axis.name: axis for axis in spec.axes} for spec in (search, other))
    for name in factors:
        if _ranges(own[name]) != _ranges(others[name]):
            told = (", ".join(map(values_of, axis.factors)) for axis in (own[name], others[name]))
            yield "{} differs: {} in {}, {} in {}".format(
                name, *(part for pair in zip(told, (search.uid, other.uid), strict=True) for part in pair)
            )
    for spec, names in ((search, own), (other, others)):
        left = [name for name in names if name not in factors]
        if left:
            yield f"only in {spec.uid}: {joined(left)}"
    if (
        search.base != other.base
        or search.schedule != other.schedule
        or search.definitions != other.definitions
    ):
        yield "the run documents that the designs vary are not the same"


def _ranges(axis: Axis) -> list[tuple[Any, ...]]:
    return [
        (one.kind, one.low, one.high, one.dist, dict(one.params), one.levels, one.weights)
        for one in axis.factors
    ]


def _notes(one: SensitivityResult, spec: DesignSpec) -> Iterator[str]:
    yield from (f"{one.outcome} of {spec.uid}: {note}" for note in one.notes)
    if one.lost:
        yield f"{one.outcome} of {spec.uid}: {one.lost:,} runs are lost"


def _table(one: SensitivityResult, shares: Mapping[str, float], factors: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    single = one.frame[one.frame["factor2"] == ""]
    columns = ("index", "factor", "value", "low", "high")
    known = {place[:2]: place[2:] for place in zip(*(single[name] for name in columns), strict=True)}
    rows = []
    for name in factors:
        row: dict[str, Any] = {"factor": name, "importance": shares.get(name, float("nan"))}
        for index in INDICES:
            value, low, high = known.get((index, name), (float("nan"),) * 3)
            row |= {index: value, f"{index}_low": low, f"{index}_high": high}
        rows.append(row)
    frame = pd.DataFrame(rows)
    for column in ("importance", *INDICES):
        ranks = frame[column].rank(ascending=False, method="min")
        found = [None if math.isnan(rank) else int(rank) for rank in ranks]
        # behind the value and the ends of its interval
        place = list(frame).index(column if column == "importance" else f"{column}_high")
        frame.insert(place + 1, f"{column}_rank", pd.Series(found, dtype=object))
    return frame.sort_values("importance", ascending=False, kind="stable", ignore_index=True)

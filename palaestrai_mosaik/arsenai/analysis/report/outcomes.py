"""The axes of pictures: labels, units, limits and ends of outcomes and factors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis.results import labels, level_labels
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, Factor, OutcomeSpec, is_number
from palaestrai_mosaik.plot.columns import unit_of
from palaestrai_mosaik.plot.limits import limits_of
from palaestrai_mosaik.types.arrays import FloatArray

from .data import ReportData
from .factors import zipped_levels
from .indices import important
from .pictures.distributions import MOST_LEVELS, HorizontalAxis, VerticalAxis
from .pictures.parallel import Coordinate

if TYPE_CHECKING:
    import pandas as pd

#: reductions with a result within the limits of the single numbers
_WITHIN = ("mean", "median", "min", "max", "first", "last")


def outcome_spec(data: ReportData, outcome: str) -> OutcomeSpec | None:
    """Return the outcome's definition in the design, or None."""
    return next((spec for spec in data.spec.outcomes if spec.name == outcome), None)


def outcome_axis(data: ReportData, outcome: str) -> VerticalAxis:
    """Return the axis of an outcome, with the unit in the name of its column, and its limits."""
    spec = outcome_spec(data, outcome)
    unit = unit_of(spec.of) if spec is not None else None
    label = f"{outcome} ({unit})" if unit else outcome
    if spec is None or spec.outside is not None or not {spec.step, spec.episode} <= set(_WITHIN):
        return VerticalAxis(outcome, label)
    limits = limits_of([spec.of], {}, True, several=False)
    return VerticalAxis(outcome, label, tuple(limit.value for limit in limits))


def factor_axis(factor: Factor, values: Sequence[Mapping[str, Any]]) -> HorizontalAxis:
    """Return the x axis of ``factor``, NaN for rows in which it is inactive."""
    entries = [row.get(factor.name, INACTIVE) for row in values]
    unit = unit_of((factor.path or "").rpartition(".")[2])
    label = f"{factor.name} ({unit})" if unit else factor.name
    numbers: FloatArray = np.array([_number(value) for value in entries], dtype=float)
    if factor.kind == "levels":
        indices = np.array([_level(factor, value) for value in entries], dtype=float)
        if len(factor.levels) <= MOST_LEVELS:
            return HorizontalAxis(factor.name, label, indices, factor.labels)
        numbers = numbers if np.isfinite(numbers).any() else indices
    log = factor.dist in ("loguniform", "lognormal") and bool(np.all(numbers[np.isfinite(numbers)] > 0))
    return HorizontalAxis(factor.name, label, numbers, ends=(factor.low, factor.high), log=log)


def _number(value: Any) -> float:
    return float(value) if is_number(value) else math.nan


def factor_axes(data: ReportData, outcome: str) -> list[HorizontalAxis]:
    """Return the axes of all factors, by importance to an outcome, or in their order without an analysis.

    Zipped levels vary together, so they share an axis with the name of the zip.
    """
    ranks = important(data.spec, data.sensitivity[data.sensitivity["outcome"] == outcome])
    axes: list[HorizontalAxis] = []
    for axis in sorted(data.spec.axes, key=lambda axis: ranks.get(axis.factors[0].name, 0)):
        if zipped_levels(axis) and len(axis.factors[0].levels) <= MOST_LEVELS:
            axes.append(_zipped(axis, data.values))
        else:
            axes += [factor_axis(factor, data.values) for factor in axis.factors]
    return axes


def _zipped(axis: Axis, values: Sequence[Mapping[str, Any]]) -> HorizontalAxis:
    texts = labels(axis.factors, values)
    names = level_labels(axis.factors)
    indices = [math.nan if text is None else float(names.index(text)) for text in texts]
    return HorizontalAxis(axis.name, axis.name, np.array(indices), names)


def _level(factor: Factor, value: Any) -> float:
    """Return the index of a level from its value or label, NaN if there is no such level."""
    for i, (level, label) in enumerate(zip(factor.levels, factor.labels, strict=True)):
        if (type(value) is type(level) and value == level) or (isinstance(value, str) and value == label):
            return float(i)
    return math.nan


def coordinates(data: ReportData, outcome: str, runs: pd.DataFrame) -> list[Coordinate]:
    """Return the axes of parallel coordinates, with values of ``runs``: the varying factors, and the outcome."""
    rows = runs["row"].to_numpy(int)
    axes = []
    for axis in factor_axes(data, outcome):
        finite = axis.x[np.isfinite(axis.x)]
        if len(np.unique(finite)) < 2 and len(finite) == len(axis.x):
            continue
        axes.append(Coordinate(axis.label, axis.x[rows], _span(axis, finite), axis.levels, axis.log))
    values = runs[outcome].to_numpy(float)
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    label = outcome_axis(data, outcome).label
    return [*axes, Coordinate(label, values, (low, high) if low < high else (low - 0.5, high + 0.5))]


def _span(axis: HorizontalAxis, values: FloatArray) -> tuple[float, float]:
    """Return the ends of a factor's axis, wide enough for its range and values."""
    if axis.levels:
        return (0.0, len(axis.levels) - 1.0) if len(axis.levels) > 1 else (-0.5, 0.5)
    ends = [end for end in axis.ends if end is not None and (end > 0 or not axis.log)]
    all_ = [*ends, *values.tolist()] or [0.0, 1.0]
    low, high = float(min(all_)), float(max(all_))
    return (low, high) if low < high else (low - 0.5, high + 0.5)

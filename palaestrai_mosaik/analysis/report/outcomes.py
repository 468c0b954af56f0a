"""What an outcome's axes are called, and which limits they have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.design.model import INACTIVE, Factor, OutcomeSpec
from palaestrai_mosaik.types.arrays import FloatArray

from ..columns import unit_of
from ..limits import limits_of
from .data import ReportData
from .pictures.distributions import MOST_LEVELS, HorizontalAxis, VerticalAxis
from .pictures.parallel import Coordinate

#: ways to make one number of many that leave it within the limits of the single ones
_WITHIN = ("mean", "median", "min", "max", "first", "last")


def outcome_spec(data: ReportData, outcome: str) -> OutcomeSpec | None:
    """Return how the design defines an outcome; ``None`` where it names none."""
    return next((one for one in data.spec.outcomes if one.name == outcome), None)


def outcome_axis(data: ReportData, outcome: str) -> VerticalAxis:
    """Return the axis of an outcome, with the unit that the name of its column tells, and its limits."""
    spec = outcome_spec(data, outcome)
    unit = unit_of(spec.of) if spec is not None else None
    label = f"{outcome} ({unit})" if unit else outcome
    if spec is None or spec.outside is not None or not {spec.step, spec.episode} <= set(_WITHIN):
        return VerticalAxis(outcome, label)
    found = limits_of([spec.of], {}, True, several=False)
    return VerticalAxis(outcome, label, tuple(one.value for one in found))


def factor_axis(factor: Factor, values: Sequence[Mapping[str, Any]]) -> HorizontalAxis:
    """Return what lies on the x axis for ``factor``: NaN where a row leaves it inactive."""
    found = [row.get(factor.name, INACTIVE) for row in values]
    unit = unit_of((factor.path or "").rpartition(".")[2])
    label = f"{factor.name} ({unit})" if unit else factor.name
    if factor.kind == "levels" and len(factor.levels) <= MOST_LEVELS:
        places = [_level(factor, value) for value in found]
        return HorizontalAxis(factor.name, np.array(places, dtype=float), factor.labels, label=label)
    numbers: FloatArray = np.array(
        [float(v) if isinstance(v, int | float) and not isinstance(v, bool) else math.nan for v in found],
        dtype=float,
    )
    if factor.kind == "levels" and not np.isfinite(numbers).any():
        numbers = np.array([_level(factor, value) for value in found], dtype=float)
    log = factor.dist in ("loguniform", "lognormal") and bool(np.all(numbers[np.isfinite(numbers)] > 0))
    return HorizontalAxis(factor.name, numbers, log=log, label=label)


def _level(factor: Factor, value: Any) -> float:
    """Return the index of a level, given as such or by its label."""
    for i, (level, label) in enumerate(zip(factor.levels, factor.labels, strict=True)):
        if (type(value) is type(level) and value == level) or (isinstance(value, str) and value == label):
            return float(i)
    return math.nan


def coordinates(data: ReportData, outcome: str, factors: Sequence[Factor]) -> list[Coordinate]:
    """Return the axes of parallel coordinates, a value for each run: the factors that vary, and the outcome."""
    rows = data.runs["row"].to_numpy(int)
    found = []
    for factor in factors:
        axis = factor_axis(factor, data.values)
        known = axis.x[np.isfinite(axis.x)]
        if len(np.unique(known)) < 2 and len(known) == len(axis.x):
            continue
        span = _span(factor, axis, known)
        found.append(Coordinate(axis.label, axis.x[rows], span, axis.levels, axis.log))
    values = data.runs[outcome].to_numpy(float)
    known = values[np.isfinite(values)]
    low, high = float(known.min()), float(known.max())
    label = outcome_axis(data, outcome).label
    return [*found, Coordinate(label, values, (low, high) if low < high else (low - 0.5, high + 0.5))]


def _span(factor: Factor, axis: HorizontalAxis, known: FloatArray) -> tuple[float, float]:
    """Return the ends of a factor's axis: those of its range, where it has any."""
    if axis.levels:
        return (0.0, len(axis.levels) - 1.0) if len(axis.levels) > 1 else (-0.5, 0.5)
    low = factor.low if factor.low is not None else (float(known.min()) if len(known) else 0.0)
    high = factor.high if factor.high is not None else (float(known.max()) if len(known) else 1.0)
    low = min(low, float(known.min())) if len(known) else low
    high = max(high, float(known.max())) if len(known) else high
    if axis.log and low <= 0:
        low = float(known.min())
    return (low, high) if low < high else (low - 0.5, high + 0.5)

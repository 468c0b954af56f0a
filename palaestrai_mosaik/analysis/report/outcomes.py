"""The axes of pictures: what outcomes and factors are called, their units, limits and ends."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.analysis.results import labels
from palaestrai_mosaik.design.model import INACTIVE, Axis, Factor, OutcomeSpec
from palaestrai_mosaik.types.arrays import FloatArray

from ..columns import unit_of
from ..limits import limits_of
from .data import ReportData
from .factors import zipped_levels
from .indices import important
from .pictures.distributions import MOST_LEVELS, HorizontalAxis, VerticalAxis
from .pictures.parallel import Coordinate

if TYPE_CHECKING:
    import pandas as pd

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
        places = np.array([_level(factor, value) for value in found], dtype=float)
        return HorizontalAxis(factor.name, label, places, factor.labels)
    numbers: FloatArray = np.array(
        [float(v) if isinstance(v, int | float) and not isinstance(v, bool) else math.nan for v in found],
        dtype=float,
    )
    if factor.kind == "levels" and not np.isfinite(numbers).any():
        numbers = np.array([_level(factor, value) for value in found], dtype=float)
    log = factor.dist in ("loguniform", "lognormal") and bool(np.all(numbers[np.isfinite(numbers)] > 0))
    return HorizontalAxis(factor.name, label, numbers, ends=(factor.low, factor.high), log=log)


def factor_axes(data: ReportData, outcome: str) -> list[HorizontalAxis]:
    """Return the axes of all factors, those first that matter most to an outcome; without an analysis as they are written.

    Levels that are zipped vary as one: they are one axis, with the name of the zip.
    """
    places = important(data.spec, data.sensitivity[data.sensitivity["outcome"] == outcome])
    found: list[HorizontalAxis] = []
    for axis in sorted(data.spec.axes, key=lambda axis: places.get(axis.factors[0].name, 0)):
        if zipped_levels(axis) and len(axis.factors[0].levels) <= MOST_LEVELS:
            found.append(_zipped(axis, data.values))
        else:
            found += [factor_axis(factor, data.values) for factor in axis.factors]
    return found


def _zipped(axis: Axis, values: Sequence[Mapping[str, Any]]) -> HorizontalAxis:
    texts = labels(axis.factors, values)
    names = tuple(
        " + ".join(dict.fromkeys(one)) for one in zip(*(f.labels for f in axis.factors), strict=True)
    )
    places = [math.nan if text is None else float(names.index(text)) for text in texts]
    return HorizontalAxis(axis.name, axis.name, np.array(places), names)


def _level(factor: Factor, value: Any) -> float:
    """Return the index of a level, given as such or by its label."""
    for i, (level, label) in enumerate(zip(factor.levels, factor.labels, strict=True)):
        if (type(value) is type(level) and value == level) or (isinstance(value, str) and value == label):
            return float(i)
    return math.nan


def coordinates(data: ReportData, outcome: str, runs: pd.DataFrame) -> list[Coordinate]:
    """Return the axes of parallel coordinates, a value for each of the ``runs``: the factors that vary, and the outcome."""
    rows = runs["row"].to_numpy(int)
    found = []
    for axis in factor_axes(data, outcome):
        known = axis.x[np.isfinite(axis.x)]
        if len(np.unique(known)) < 2 and len(known) == len(axis.x):
            continue
        found.append(Coordinate(axis.label, axis.x[rows], _span(axis, known), axis.levels, axis.log))
    values = runs[outcome].to_numpy(float)
    known = values[np.isfinite(values)]
    low, high = float(known.min()), float(known.max())
    label = outcome_axis(data, outcome).label
    return [*found, Coordinate(label, values, (low, high) if low < high else (low - 0.5, high + 0.5))]


def _span(axis: HorizontalAxis, known: FloatArray) -> tuple[float, float]:
    """Return the ends of a factor's axis: those of its range, where it has any."""
    if axis.levels:
        return (0.0, len(axis.levels) - 1.0) if len(axis.levels) > 1 else (-0.5, 0.5)
    ends = [end for end in axis.ends if end is not None and (end > 0 or not axis.log)]
    all_ = [*ends, *known.tolist()] or [0.0, 1.0]
    low, high = float(min(all_)), float(max(all_))
    return (low, high) if low < high else (low - 0.5, high + 0.5)

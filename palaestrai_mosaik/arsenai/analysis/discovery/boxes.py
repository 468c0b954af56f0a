"""Boxes: limits on some of a design's axes, and their text.

The rows of a design are coded as numbers, one column per axis. Numbers are unchanged, levels are coded by their index,
zipped numbers by their common coordinate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestrai_mosaik.arsenai.design import distributions
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, DesignSpec
from palaestrai_mosaik.plot.columns import unit_of
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatVector

from ..results import level_labels

Side = Literal["lower", "upper", "levels"]
#: significant digits up to which a limit is rounded
_DIGITS = 17


@dataclass(frozen=True)
class Column:
    """One axis of the design, coded.

    Attributes:
        axis: the axis.
        codes: (rows,) the code of each row.
        kind: ``nominal`` codes have no order; ``whole`` ones are whole numbers, or places of ordered levels.
        labels: the names of the levels, by their code; empty for numbers.
        inactive: the code of rows in which the axis is inactive, ``None`` if there is no such row. It lies beyond
            all others, at the end at which rows are more similar to inactive ones.
    """

    axis: Axis
    codes: FloatVector
    kind: Literal["number", "whole", "nominal"]
    labels: tuple[str, ...] = ()
    inactive: float | None = None

    @property
    def name(self) -> str:
        """The name of the axis."""
        return self.axis.name

    @property
    def unit(self) -> str:
        """The unit in the path of the factor, or an empty string."""
        path = self.axis.factors[0].path or ""
        return unit_of(path.rpartition(".")[2]) or "" if len(self.axis.factors) == 1 else ""

    @property
    def active(self) -> BoolVector:
        """Whether the axis is active in each row, (rows,)."""
        return np.ones(len(self.codes), bool) if self.inactive is None else self.codes != self.inactive

    def label(self, code: float) -> str:
        """Return the name of a level, or of a whole number."""
        if code == self.inactive:
            return "inactive"
        return self.labels[int(code)] if self.labels else f"{int(code)}"


def code_rows(
    spec: DesignSpec, unit: FloatArray, values: Sequence[Mapping[str, Any]], share: FloatVector
) -> tuple[Column, ...]:
    """Code the axes of a design.

    Args:
        spec: the design.
        unit: (rows, axes) its sample.
        values: the values of the factors of each row.
        share: (rows,) the share of a row's runs in which the condition holds, NaN if unknown.
    """
    return tuple(_column(axis, unit[:, i], values, share) for i, axis in enumerate(spec.axes))


def _column(
    axis: Axis, coordinate: FloatVector, values: Sequence[Mapping[str, Any]], share: FloatVector
) -> Column:
    inactive = np.array([all(row[f.name] is INACTIVE for f in axis.factors) for row in values], dtype=bool)
    first = axis.factors[0]
    kind: Literal["number", "whole", "nominal"] = "number"
    labels: tuple[str, ...] = ()
    if axis.levels is not None:
        kind = "nominal" if axis.nominal else "whole"
        codes = distributions.levels(distributions.shares(axis), coordinate).astype(float)
        labels = level_labels(axis.factors)
    elif len(axis.factors) > 1:
        codes = coordinate.astype(float)
    else:
        kind = "whole" if first.kind == "int" else "number"
        codes = np.array(
            [math.nan if row[first.name] is INACTIVE else row[first.name] for row in values], float
        )
    if not inactive.any():
        return Column(axis, codes, kind, labels)
    code = float(len(labels)) if kind == "nominal" else _beyond(codes, inactive, share)
    return Column(axis, np.where(inactive, code, codes), kind, labels, code)


def _beyond(codes: FloatVector, inactive: BoolVector, share: FloatVector) -> float:
    """Return a code for inactive rows, beyond the end of the others at which rows are more similar to them."""
    active = codes[~inactive]
    if not len(active):
        return 0.0
    low, high = float(active.min()), float(active.max())
    middle = float(np.median(active))
    finite = np.isfinite(share)

    def mean(rows: BoolVector) -> float:
        return float(share[rows & finite].mean()) if (rows & finite).any() else 0.0

    inactive_share = mean(inactive)
    below, above = mean(~inactive & (codes <= middle)), mean(~inactive & (codes > middle))
    span = math.ceil(high - low) or 1.0
    return low - span if abs(below - inactive_share) <= abs(above - inactive_share) else high + span


@dataclass(frozen=True)
class Box:
    """Limits on some columns: the lowest and the highest code, both included, or the codes of nominal ones."""

    limits: Mapping[int, tuple[float, float] | frozenset[int]] = field(default_factory=dict)

    def contains(self, columns: Sequence[Column]) -> BoolVector:
        """Return whether each row lies in the box, (rows,)."""
        inside = np.ones(len(columns[0].codes), dtype=bool)
        for index, limit in self.limits.items():
            codes = columns[index].codes
            if isinstance(limit, frozenset):
                inside &= np.isin(codes, sorted(limit))
            else:
                inside &= (codes >= limit[0]) & (codes <= limit[1])
        return inside

    def sides(self) -> Iterator[tuple[int, Side]]:
        """Yield each restriction: its column and side."""
        for index, limit in self.limits.items():
            if isinstance(limit, frozenset):
                yield index, "levels"
                continue
            if math.isfinite(limit[0]):
                yield index, "lower"
            if math.isfinite(limit[1]):
                yield index, "upper"

    def without(self, axis: int, side: Side) -> Box:
        """Return the box without one restriction."""
        limits = dict(self.limits)
        limit = limits.pop(axis)
        if not isinstance(limit, frozenset):
            left = (-math.inf, limit[1]) if side == "lower" else (limit[0], math.inf)
            if any(map(math.isfinite, left)):
                limits[axis] = left
        return Box(dict(sorted(limits.items())))

    def only(self, axis: int, side: Side) -> Box:
        """Return the box with only this restriction."""
        limit = self.limits[axis]
        if not isinstance(limit, frozenset):
            limit = (limit[0], math.inf) if side == "lower" else (-math.inf, limit[1])
        return Box({axis: limit})

    def limit(self, axis: int, side: Side) -> float | frozenset[int]:
        """Return the limit at one side of a column."""
        limit = self.limits[axis]
        return limit if isinstance(limit, frozenset) else limit[0 if side == "lower" else 1]


def tidy(limits: Mapping[int, tuple[float, float] | frozenset[int]], columns: Sequence[Column]) -> Box:
    """Round the limits of a box without changing its rows, and drop limits that exclude no row."""
    rounded: dict[int, tuple[float, float] | frozenset[int]] = {}
    for index, limit in sorted(limits.items()):
        codes = columns[index].codes
        if isinstance(limit, frozenset):
            if not set(np.unique(codes).astype(int)) <= limit:
                rounded[index] = limit
            continue
        whole = columns[index].kind == "whole"
        low = _round_limit(codes[codes < limit[0]], codes[codes >= limit[0]], whole)
        high = -_round_limit(-codes[codes > limit[1]], -codes[codes <= limit[1]], whole)
        if math.isfinite(low) or math.isfinite(high):
            rounded[index] = (low, high)
    return Box(rounded)


def _round_limit(outside: FloatVector, inside: FloatVector, whole: bool) -> float:
    """Return the shortest number above all of ``outside`` that is not above any of ``inside``."""
    if not len(outside) or not len(inside):
        return -math.inf
    below, above = float(outside.max()), float(inside.min())
    if whole:
        return above
    middle = (below + above) / 2
    for digits in range(1, _DIGITS):
        rounded = float(f"{middle:.{digits}g}")
        if below < rounded <= above:
            return rounded
    return above


# --- as text ------------------------------------------------------------------------------


def rule(box: Box, columns: Sequence[Column]) -> str:
    """Format the box as a sentence: ``load >= 0.8 and controller = integrating``."""
    return " and ".join(rule_of(columns[index], limit) for index, limit in box.limits.items()) or "all runs"


def rule_of(column: Column, limit: tuple[float, float] | frozenset[int]) -> str:
    """Format the limits of one column."""
    if isinstance(limit, frozenset):
        names = [column.label(code) for code in sorted(limit)]
        return f"{column.name} is inactive" if names == ["inactive"] else _among(column, names)
    low, high = limit
    inside = column.inactive is not None and low <= column.inactive <= high
    active = column.codes[column.active]
    if not ((active >= low) & (active <= high)).any():
        return f"{column.name} is inactive"
    # A limit between the active codes and the inactive one does not restrict the former.
    low = low if (active < low).any() else -math.inf
    high = high if (active > high).any() else math.inf
    if not math.isfinite(low) and not math.isfinite(high):
        return f"{column.name} is active"
    factors = column.axis.factors
    if column.labels or len(factors) == 1:
        text = _between(column, low, high)
    else:
        each = (_between_numbers(f.name, _value(f, low), _value(f, high)) for f in factors)
        text = f"{column.name} ({', '.join(each)})"
    return f"({text} or {column.name} is inactive)" if inside else text


def _between(column: Column, low: float, high: float) -> str:
    if column.kind == "whole" and column.labels:
        return _among(column, [label for code, label in enumerate(column.labels) if low <= code <= high])
    if column.kind == "whole" and low == high:
        return f"{column.name} = {low:.0f}{_unit(column)}"
    return _between_numbers(column.name, low, high, _unit(column))


def _among(column: Column, names: Sequence[str]) -> str:
    """Format a restriction to some levels."""
    return f"{column.name} = {names[0]}" if len(names) == 1 else f"{column.name} in ({', '.join(names)})"


def _unit(column: Column) -> str:
    return f" {column.unit}" if column.unit else ""


def _between_numbers(name: str, low: float, high: float, unit: str = "") -> str:
    if math.isfinite(low) and math.isfinite(high):
        return f"{low:.10g} <= {name} <= {high:.10g}{unit}"
    return f"{name} >= {low:.10g}{unit}" if math.isfinite(low) else f"{name} <= {high:.10g}{unit}"


def _value(factor: Any, coordinate: float) -> float:
    """Return the value of a zipped number at a limit of the common coordinate, rounded to four digits."""
    if not math.isfinite(coordinate):
        return coordinate
    number = float(distributions.values(factor, np.array([min(max(coordinate, 0.0), 1.0)]))[0])
    return float(f"{number:.4g}")


def limit_text(column: Column, side: Side, limit: float | frozenset[int]) -> str:
    """Format one limit: a number, the label of an ordered level, or the labels of levels."""
    if isinstance(limit, frozenset):
        return ", ".join(column.label(code) for code in sorted(limit))
    active = column.codes[column.active]
    outside, inside = (
        (active < limit, active >= limit) if side == "lower" else (active > limit, active <= limit)
    )
    if not outside.any() or not inside.any():
        # The limit lies between the active codes and the inactive one.
        return "active" if inside.any() else "inactive"
    if column.labels:
        return column.label(limit)
    factors = column.axis.factors
    if len(factors) > 1:
        return ", ".join(f"{factor.name} {_value(factor, limit):.4g}" for factor in factors)
    return f"{limit:.10g}"

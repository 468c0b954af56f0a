"""Conversion of points of the unit cube to the values of the factors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from . import distributions
from .expressions import Expression
from .model import INACTIVE, Axis, DesignSpec, Factor

#: Number of digits of values, counted from the factor's largest value.
_DIGITS = 15


def decode(spec: DesignSpec, unit: FloatArray) -> list[dict[str, Any]]:
    """Compute the values of all factors.

    A choice has the label of its level, other factors with levels the level itself; numbers are Python's.
    A factor is `INACTIVE` if its ``when`` is false, or undecided because another factor is inactive.
    Floats are rounded to 15 digits of the factor's largest value (in logarithmic distributions to 14
    digits of their own), so that 0.3 is not written as 0.30000000000000004.

    Args:
        spec: the design.
        unit: (rows, axes) points of the unit cube.

    Returns:
        One mapping from names to values per row.
    """
    columns: dict[str, list[Any]] = {}
    for number, axis in enumerate(spec.axes):
        coordinate = np.ascontiguousarray(unit[:, number], dtype=np.float64)
        for factor in axis.factors:
            columns[factor.name] = _column(axis, factor, coordinate)
    names = tuple(columns)
    if not names:
        return [{} for _ in unit]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    _switch_off(spec, rows)
    return rows


def keep(spec: DesignSpec, values: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the indices of the rows in which every constraint holds.

    A constraint that is undecided because of inactive factors does not reject a row.
    """
    rules = [Expression.parse(text, spec.factors) for text in spec.constraints]
    return [i for i, row in enumerate(values) if all(rule.evaluate(row, inactive=True) for rule in rules)]


def _column(axis: Axis, factor: Factor, coordinate: FloatArray) -> list[Any]:
    if factor.kind == "levels":
        levels = factor.row_levels
        return [levels[index] for index in distributions.levels(distributions.shares(axis), coordinate)]
    if not distributions.bounded(factor):
        coordinate = np.clip(coordinate, distributions.INSIDE, 1 - distributions.INSIDE)
    decoded = distributions.values(factor, coordinate).tolist()
    if factor.kind == "int":
        return [int(value) for value in decoded]
    rounded = _rounding(factor)
    return [rounded(value) for value in decoded]


def resolution(factor: Factor) -> float:
    """Return the distance between values of a ``float`` factor after rounding (see `decode`).

    It is 0 for logarithmic distributions, because the precision of their values depends on their size.
    """
    if factor.dist in {"loguniform", "lognormal"}:
        return 0.0
    return 10.0 ** -_places(factor)


def _places(factor: Factor) -> int:
    sizes = [abs(end) for end in distributions.bounds(factor) if math.isfinite(end)]
    if factor.dist == "normal":
        sizes.append(abs(factor.params["mean"]) + factor.params["std"])
    return _DIGITS - math.ceil(math.log10(max(sizes)))


def _rounding(factor: Factor) -> Callable[[float], float]:
    low, high = distributions.bounds(factor)
    if factor.dist in {"loguniform", "lognormal"}:
        return lambda value: min(max(float(f"{value:.{_DIGITS - 1}g}"), low), high)
    places = _places(factor)
    return lambda value: min(max(round(value, places), low), high)


def _switch_off(spec: DesignSpec, rows: list[dict[str, Any]]) -> None:
    factors = spec.factors
    rules = {f.name: Expression.parse(f.when, factors) for f in factors if f.when is not None}
    for name in _in_order(rules):
        for row in rows:
            if not rules[name].evaluate(row):
                row[name] = INACTIVE


def _in_order(rules: Mapping[str, Expression]) -> list[str]:
    """Return the names in an order in which each follows those in its rule."""
    ordered: list[str] = []

    def visit(name: str) -> None:
        if name in rules and name not in ordered:
            for other in sorted(rules[name].names):
                visit(other)
            ordered.append(name)

    for name in rules:
        visit(name)
    return ordered

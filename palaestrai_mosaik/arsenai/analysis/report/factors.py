"""The factors of a design: their values in rows, and their description."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, Factor

from .data import ReportData
from .numbers import cell

if TYPE_CHECKING:
    import pandas as pd


def zipped_levels(axis: Axis) -> bool:
    """Whether an axis has several factors with levels, which pictures show once because they vary together."""
    return len(axis.factors) > 1 and all(factor.kind == "levels" for factor in axis.factors)


def value_of(factor: Factor, row: Mapping[str, Any]) -> Any:
    """Return the value of a factor in a row: a number, a label, or None if it is inactive."""
    value = row.get(factor.name, INACTIVE)
    if factor.kind == "levels":
        for level, label in zip(factor.levels, factor.labels, strict=True):
            if type(level) is type(value) and level == value:
                return label
    if value is INACTIVE:
        return None
    return value if isinstance(value, int | float | str) else cell(value)


def table(data: ReportData) -> pd.DataFrame:
    """Return a table of the factors: their kinds, ranges and paths."""
    import pandas as pd

    rows = [
        (
            factor.name,
            _kind(factor),
            _range(factor),
            axis.name if len(axis.factors) > 1 else "",
            axis.group or "",
            factor.path or "choice",
            factor.when or "",
        )
        for axis in data.spec.axes
        for factor in axis.factors
    ]
    frame = pd.DataFrame(rows, columns=["factor", "kind", "values", "zip", "group", "path", "when"])
    return frame.loc[:, [name for name in frame if (frame[name] != "").any()]]


def _kind(factor: Factor) -> str:
    if factor.kind == "levels":
        return "ordered levels" if factor.ordered else "levels"
    return f"{'whole number' if factor.kind == 'int' else 'number'}, {factor.dist}"


def _range(factor: Factor) -> str:
    if factor.kind == "levels":
        texts = list(factor.labels)
        if len(set(factor.weights)) > 1:
            texts = [f"{label} ({w:.3g})" for label, w in zip(texts, factor.weights, strict=True)]
        return ", ".join(texts)
    parts = [f"{name} {value:g}" for name, value in factor.params.items()]
    if factor.low is not None or factor.high is not None:
        ends = ("unbounded" if end is None else f"{end:g}" for end in (factor.low, factor.high))
        parts.insert(0, " to ".join(ends))
    return ", ".join(parts)

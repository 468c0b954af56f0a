"""Sensitivity indices in a report: names, meaning, and the choice of the leading one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palaestrai_mosaik.arsenai.design.few import significance_level
from palaestrai_mosaik.arsenai.design.methods import METHODS, MethodDisplay
from palaestrai_mosaik.arsenai.design.methods.significance import P_ADJUSTED
from palaestrai_mosaik.arsenai.design.model import DesignSpec

from .numbers import Mark

if TYPE_CHECKING:
    import pandas as pd

    from .data import ReportData


def method_of(name: str, rows: pd.DataFrame) -> MethodDisplay:
    """Return the display of a method; of an unknown one, built from its indices."""
    method = METHODS.get(name)
    display = None if method is None else method.display
    indices = list(dict.fromkeys(singles(rows)["index"])) or [""]
    if display is None:
        return MethodDisplay(name, tuple(indices[:2]), indices[0], False, "")
    if display.leading in indices:
        return display
    return MethodDisplay(
        display.title, tuple(indices[:2]), indices[0], display.share, display.says, display.pairs
    )


def index_in_words(display: MethodDisplay) -> str:
    """Return the leading index of a method as a noun phrase for a sentence."""
    name = display.leading.replace("mu_star", "mu*")
    if display.share:
        return f"share of the variance{', interactions included' * (name == 'ST')} ({name})"
    return display.measure or ("mean change across its range (mu*)" if name == "mu*" else name)


def players(spec: DesignSpec) -> set[str]:
    """Return the names of axes and groups; other rows of indices are for errors and the like."""
    return {axis.name for axis in spec.axes} | set(spec.groups)


def singles(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the indices of single factors."""
    return rows[rows["factor2"].fillna("") == ""]


def pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the indices of pairs of factors."""
    return rows[rows["factor2"].fillna("") != ""]


def marks(rows: pd.DataFrame, index: str) -> dict[str, Mark]:
    """Return the value of ``index`` of each factor, in the order of ``rows``."""
    selected = singles(rows)
    selected = selected[selected["index"] == index]
    columns = (selected[name].astype(float) for name in ("value", "low", "high"))
    return {f: Mark(*v) for f, *v in zip(selected["factor"], *columns, strict=True)}


def pair_marks(rows: pd.DataFrame, index: str) -> dict[tuple[str, str], Mark]:
    """Return the value of ``index`` of each pair of factors."""
    selected = pairs(rows)
    selected = selected[selected["index"] == index]
    columns = (selected[name].astype(float) for name in ("value", "low", "high"))
    return {
        (a, b): Mark(*v) for a, b, *v in zip(selected["factor"], selected["factor2"], *columns, strict=True)
    }


def ranked(values: dict[str, Mark]) -> list[str]:
    """Return the factors in descending order of their values, unknown values last."""
    return sorted(values, key=lambda name: (not values[name].known, -values[name].value, name))


def leading_method(rows: pd.DataFrame) -> str | None:
    """Return the leading method for the indices of one outcome; a method without any value comes last."""
    methods = list(dict.fromkeys(rows["method"]))
    order = [name for name in METHODS if name in methods] or methods
    answered = set(rows.loc[rows["value"].notna(), "method"])
    return next((name for name in order if name in answered), next(iter(order), None))


@dataclass(frozen=True)
class LeadingIndices:
    """The indices of one outcome by its leading method.

    Attributes:
        method: name of the method.
        display: how reports show it.
        rows: its indices.
        marks: the value of its leading index, by factor.
        order: the axes and groups with a known value of that index, the largest first.
    """

    method: str
    display: MethodDisplay
    rows: pd.DataFrame
    marks: Mapping[str, Mark]
    order: list[str]


def leading_indices(spec: DesignSpec, rows: pd.DataFrame) -> LeadingIndices | None:
    """Return the leading indices among the ``rows`` of one outcome; ``None`` without any."""
    name = leading_method(rows)
    if name is None:
        return None
    method_rows = rows[rows["method"] == name]
    display = method_of(name, method_rows)
    leading, real = marks(method_rows, display.leading), players(spec)
    order = [player for player in ranked(leading) if player in real and leading[player].known]
    return LeadingIndices(name, display, method_rows, leading, order)


def with_effect(data: ReportData, outcome: str) -> list[str]:
    """Return the axes and factors whose effect on an outcome is more than noise by its leading method."""
    leading = leading_indices(data.spec, data.sensitivity[data.sensitivity["outcome"] == outcome])
    if leading is None:
        return []
    level = significance_level(data.spec.analysis.confidence)
    players_ = {
        name for name, mark in marks(leading.rows, P_ADJUSTED).items() if mark.known and mark.value <= level
    }
    return [
        name
        for axis in data.spec.axes
        if {axis.name, axis.group} & players_
        for name in (axis.name, *(factor.name for factor in axis.factors))
    ]


def leading_factors(spec: DesignSpec, sensitivity: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Sort the factors ``names`` by their importance to the first analysed outcome.

    Zipped or grouped factors have the importance of their zip or group. Without an analysis, the order is unchanged.
    """
    for outcome in dict.fromkeys(sensitivity["outcome"]):
        ranks = important(spec, sensitivity[sensitivity["outcome"] == outcome])
        if ranks:
            return sorted(names, key=lambda name: ranks.get(name, len(ranks)))
    return list(names)


def important(spec: DesignSpec, rows: pd.DataFrame) -> dict[str, int]:
    """Return the rank of each factor by its importance to the outcome of ``rows``; empty without an analysis."""
    leading = leading_indices(spec, rows)
    if leading is None or not leading.order:
        return {}
    ranks = {player: rank for rank, player in enumerate(leading.order)}
    return {
        factor.name: min(
            ranks.get(player or "", len(ranks)) for player in (factor.name, axis.name, axis.group)
        )
        for axis in spec.axes
        for factor in axis.factors
    }

"""What sensitivity indices are called, what they mean, and which one answers the question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from palaestrai_mosaik.design.methods import METHODS, MethodDisplay
from palaestrai_mosaik.design.model import DesignSpec

from .numbers import Mark

if TYPE_CHECKING:
    import pandas as pd


#: what PAWN calls a factor without any influence
IRRELEVANT = "(irrelevant)"


def method_of(name: str, rows: pd.DataFrame) -> MethodDisplay:
    """Return how the method is shown; of an unknown one, by what it gave."""
    method = METHODS.get(name)
    found = None if method is None else method.display
    indices = list(dict.fromkeys(singles(rows)["index"])) or [""]
    if found is None:
        return MethodDisplay(name, tuple(indices[:2]), indices[0], False, "")
    if found.leading in indices:
        return found
    return MethodDisplay(found.title, tuple(indices[:2]), indices[0], found.share, found.says, found.pairs)


def players(spec: DesignSpec) -> set[str]:
    """Return what indices can be of: axes and groups; other rows are of errors and the like."""
    return {axis.name for axis in spec.axes} | set(spec.groups)


def singles(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the indices of single factors."""
    return rows[rows["factor2"].fillna("") == ""]


def pairs(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the indices of pairs of factors."""
    return rows[rows["factor2"].fillna("") != ""]


def marks(rows: pd.DataFrame, index: str) -> dict[str, Mark]:
    """Return the value of ``index`` of each factor, in the order of ``rows``."""
    own = singles(rows)
    own = own[own["index"] == index]
    columns = (own[name].astype(float) for name in ("value", "low", "high"))
    return {f: Mark(*v) for f, *v in zip(own["factor"], *columns, strict=True)}


def pair_marks(rows: pd.DataFrame, index: str) -> dict[tuple[str, str], Mark]:
    """Return the value of ``index`` of each pair of factors."""
    own = pairs(rows)
    own = own[own["index"] == index]
    columns = (own[name].astype(float) for name in ("value", "low", "high"))
    return {(a, b): Mark(*v) for a, b, *v in zip(own["factor"], own["factor2"], *columns, strict=True)}


def ranked(found: dict[str, Mark]) -> list[str]:
    """Return the factors, that of the largest value first, unknown values last."""
    return sorted(found, key=lambda name: (not found[name].known, -found[name].value, name))


def leading_method(rows: pd.DataFrame) -> str | None:
    """Return the method that answers first, of the indices of one outcome; one without any value answers last."""
    methods = list(dict.fromkeys(rows["method"]))
    order = [name for name in METHODS if name in methods] or methods
    answered = set(rows.loc[rows["value"].notna(), "method"])
    return next((name for name in order if name in answered), next(iter(order), None))


def leading_factors(spec: DesignSpec, sensitivity: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Return those factors of ``names`` first that matter most to the first outcome that was analysed.

    Factors that are zipped or of a group count as that does; without an analysis they keep their order.
    """
    for outcome in dict.fromkeys(sensitivity["outcome"]):
        found = important(spec, sensitivity[sensitivity["outcome"] == outcome])
        if found:
            return sorted(names, key=lambda name: found.get(name, len(found)))
    return list(names)


def important(spec: DesignSpec, rows: pd.DataFrame) -> dict[str, int]:
    """Return the place of each factor by its importance to the outcome of ``rows``; nothing without an analysis."""
    name = leading_method(rows)
    if name is None:
        return {}
    own = rows[rows["method"] == name]
    found = marks(own, method_of(name, own).leading)
    order = [one for one in ranked(found) if found[one].known]
    if not order:
        return {}
    places = {one: place for place, one in enumerate(order)}
    return {
        factor.name: min(places.get(one or "", len(order)) for one in (factor.name, axis.name, axis.group))
        for axis in spec.axes
        for factor in axis.factors
    }

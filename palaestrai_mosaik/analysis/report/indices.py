"""What sensitivity indices are called, what they mean, and which one answers the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from palaestrai_mosaik.design.model import DesignSpec

from .bars import Mark

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class MethodDisplay:
    """How a method is shown: ``bars`` are its indices that are drawn as bars, in this order;
    ``leading`` is the one by which factors are ranked; ``share``: it is a share of the variance.
    """

    title: str
    bars: tuple[str, ...]
    leading: str
    share: bool
    says: str
    pairs: str | None = None


#: what PAWN calls a factor without any influence
IRRELEVANT = "(irrelevant)"

#: in the order in which they are trusted for the first answer
METHODS = {
    "sobol": MethodDisplay(
        "Sobol indices",
        ("S1", "ST"),
        "ST",
        True,
        "S1 is the share of the variance that a factor explains on its own, ST the share with all of its "
        "interactions. Estimates carry sampling error: they can lie a little below 0 or above 1.",
        "S2",
    ),
    "anova": MethodDisplay(
        "Analysis of variance",
        ("eta2",),
        "eta2",
        True,
        "eta2 (eta squared) is the share of the sum of squares that a factor explains on its own; F and p "
        "test it against the spread of repetitions, without a correction for several factors.",
        "eta2",
    ),
    "fast": MethodDisplay(
        "Extended Fourier amplitude test (eFAST)",
        ("S1", "ST"),
        "ST",
        True,
        "S1 is the share of the variance that a factor explains on its own, ST the share with all of its "
        "interactions.",
    ),
    "shapley": MethodDisplay(
        "Shapley effects",
        ("Sh",),
        "Sh",
        True,
        "Each factor's share of the variance; what factors explain together is parted equally among them, "
        "so that the shares sum to 1.",
    ),
    "morris": MethodDisplay(
        "Morris screening",
        ("mu_star",),
        "mu_star",
        False,
        "mu* is the mean size of the effect of moving a factor across its range, sigma how much that effect "
        "varies: far below the line sigma = 0.1 mu* effects are almost linear, above sigma = mu* they change "
        "their sign or depend on other factors. It ranks factors; it parts no variance.",
    ),
    "rbd_fast": MethodDisplay(
        "Random balance designs (RBD-FAST)",
        ("S1",),
        "S1",
        True,
        "S1 is the share of the variance that a factor explains on its own; interactions are not seen.",
    ),
    "delta": MethodDisplay(
        "Moment-independent importance (DELTA)",
        ("delta",),
        "delta",
        False,
        "delta says how far the whole distribution of the outcome moves when a factor is fixed: 0 not at "
        "all, at most 1. Small samples give small values to factors without any effect, too.",
    ),
    "pawn": MethodDisplay(
        "PAWN",
        ("median",),
        "median",
        False,
        "The median of the Kolmogorov-Smirnov distances between the outcome's distribution and that where "
        "the factor is fixed: 0 no effect, at most 1. (irrelevant) is what a factor without any effect "
        "would seldom exceed in a sample of this size.",
    ),
    "dgsm": MethodDisplay(
        "Derivative-based measures (DGSM)",
        ("dgsm",),
        "dgsm",
        False,
        "An upper bound for ST from the mean square of the derivative: small values say that a factor does "
        "not matter, large ones do not say how much it does.",
    ),
}


def method_of(name: str, rows: pd.DataFrame) -> MethodDisplay:
    """Return how the method is shown; of an unknown one, by what it gave."""
    found = METHODS.get(name)
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


def leading_method(methods: Sequence[str]) -> str | None:
    """Return the method that answers first."""
    known = [name for name in METHODS if name in methods]
    return known[0] if known else next(iter(methods), None)

"""The methods of sensitivity analysis: what each can be used on, and why on nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .distributions import whole_numbers
from .model import DesignSpec, Factor
from .samplers import SAMPLERS, units

#: Shapley effects follow from a Saltelli sample with second order up to this number of axes: the
#: closed indices of all subsets are then among its pairs of rows.
SHAPLEY_AXES = 5
#: eFAST and RBD-FAST lose what lies beyond their harmonics. Measured on an additive model: with
#: two whole numbers first-order indices are 10 % too low, with ten 1 %.
FEWEST_WHOLE_NUMBERS = 10


@dataclass(frozen=True)
class Method:
    """A method of sensitivity analysis.

    ``samplers``: those whose samples it fits, ``why`` only those. ``factors``: which it holds for:
    ``"any"``; ``"smooth"``: numbers, whole ones if there are many; ``"ordered"``: no
    nominal levels; ``"float"``: numbers with a derivative. ``reason``: why on no others.
    ``groups``: gives indices of groups.
    """

    title: str
    samplers: tuple[str, ...]
    why: str
    factors: str = "any"
    reason: str = ""
    groups: bool = False

    def refuses(self, factor: Factor) -> bool:
        """Whether the method does not hold where ``factor`` varies."""
        if self.factors == "smooth":
            numbers = whole_numbers(factor)
            return factor.kind == "levels" or (numbers is not None and numbers < FEWEST_WHOLE_NUMBERS)
        if self.factors == "float":
            return factor.kind != "float"
        return self.factors == "ordered" and factor.nominal


_SALTELLI = "it needs the blocks of Saltelli's sample"
_GIVEN = "it needs rows that are drawn independently of each other"
_CURVE = (
    "its harmonics miss the jumps between levels, so that the indices are too low and change with their order"
)

#: Every method by its name.
METHODS: Mapping[str, Method] = {
    "sobol": Method("Sobol' indices", ("sobol",), _SALTELLI, groups=True),
    "shapley": Method("Shapley effects", ("sobol",), _SALTELLI, groups=True),
    "morris": Method(
        "Morris' elementary effects",
        ("morris",),
        "it needs trajectories in which one factor moves at a time",
        "ordered",
        "an elementary effect is a step along an order of the levels, so that its size would depend on "
        "the order in which they happen to stand",
        groups=True,
    ),
    "fast": Method("eFAST indices", ("fast",), "it needs the search curves of eFAST", "smooth", _CURVE),
    "rbd_fast": Method("RBD-FAST indices", ("lhs", "random", "points"), _GIVEN, "smooth", _CURVE),
    "delta": Method("DELTA moment-independent indices", ("lhs", "random", "points", "sobol"), _GIVEN),
    "pawn": Method("PAWN indices", ("lhs", "random", "points", "sobol"), _GIVEN),
    "dgsm": Method(
        "DGSM, derivative-based measures",
        ("finite_differences",),
        "it needs small steps from every point",
        "float",
        "there is no derivative by levels or whole numbers",
    ),
    "anova": Method(
        "factorial analysis of variance",
        ("factorial", "fractional_factorial", "plackett_burman"),
        "it needs every factor on a few levels, in balance with the others",
    ),
}

_DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "factorial": ("anova",),
    "fractional_factorial": ("anova",),
    "plackett_burman": ("anova",),
    "lhs": ("rbd_fast", "pawn", "delta"),
    "random": ("rbd_fast", "pawn", "delta"),
    "sobol": ("sobol", "shapley"),
    "morris": ("morris",),
    "fast": ("fast",),
    "finite_differences": ("dgsm",),
    "points": (),
}


def default_methods(spec: DesignSpec) -> tuple[str, ...]:
    """Return the methods that fit the sampler and the factors, where the design names none.

    Given points may stand for anything, so none is chosen for them.
    """
    if not spec.axes:
        return ()
    found = [
        name
        for name in _DEFAULTS[spec.sampler.name]
        if not any(METHODS[name].refuses(factor) for factor in spec.factors)
    ]
    if "shapley" in found and shapley_misses(spec) is not None:
        found.remove("shapley")
    return tuple(found)


def shapley_misses(spec: DesignSpec) -> str | None:
    """Return what a Saltelli sample lacks for Shapley effects, ``None`` where it has all."""
    if not SAMPLERS["sobol"].option(spec, "second_order"):
        return "it needs second_order: true"
    count = len(units(spec))
    if count > SHAPLEY_AXES:
        return f"a Saltelli sample holds them for up to {SHAPLEY_AXES} factors or groups, here are {count}"
    return None

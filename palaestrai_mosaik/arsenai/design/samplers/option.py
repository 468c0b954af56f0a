"""The description of a sampler: its name, options, and the properties that the rules check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestrai_mosaik.core.seeding import generator
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.types.arrays import FloatArray

from ..model import Axis, DesignSpec
from ..sample import Sample

#: Largest number of coordinates in a sample, rows times axes.
MAX_VALUES = 10_000_000

Size = Literal["required", "optional", "none"]
#: Path of a problem in the document, and the message.
Fault = tuple[Place, str]


@dataclass(frozen=True)
class Option:
    """One option of a sampler.

    Attributes:
        name: key in the design's ``sampler``.
        default: value if the design has none.
        check: returns a description of the allowed values (``"a whole number of at least 2"``), or None if the value is
            valid.
        meaning: one line of documentation.
    """

    name: str
    default: Any
    check: Callable[[Any], str | None]
    meaning: str


@dataclass(frozen=True)
class Sampler:
    """A method to choose the points of a design.

    Attributes:
        name: name in a design's ``sampler``.
        title: name for messages.
        draw: draws the sample.
        rows: returns the number of rows of the sample without drawing it.
        size: whether ``n`` is required, optional or not allowed.
        unit: what ``n`` counts.
        size_check: returns a message if a value of ``n`` is invalid, or None.
        options: the options beside ``n``.
        groups: whether the sampler supports groups of axes.
        allows_constraints: whether constraints may reject rows.
        includes_bounds: returns whether coordinates may be exactly 0 or 1.
        two_level: whether every axis has two levels, or is sampled at its two ends.
        uses_weights: whether levels are drawn by their weights.
        methods: sensitivity methods that support the sample. They are the defaults, if the design names none and the
            factors allow them.
        made_for: the one sensitivity method that the sample is designed for, if there is one.
        inner: sampler to suggest if an axis has no ends.
        alias: option that is another word for ``n``.
        scales_with: returns the option that the number of rows is proportional to, and its value; None without one.
        in_rounds: returns whether rows are added in rounds, after the earlier ones have been executed
            (:mod:`palaestrai_mosaik.arsenai.search.rounds`).
        check: returns problems beyond those of single options.
    """

    name: str
    title: str
    draw: Callable[[DesignSpec], Sample]
    rows: Callable[[DesignSpec], int]
    size: Size = "required"
    unit: str = "rows"
    size_check: Callable[[DesignSpec, int], str | None] = field(default=lambda spec, n: None)
    options: tuple[Option, ...] = ()
    groups: bool = False
    allows_constraints: bool = False
    includes_bounds: Callable[[DesignSpec], bool] = field(default=lambda spec: False)
    two_level: bool = False
    uses_weights: bool = True
    methods: tuple[str, ...] = ()
    made_for: str | None = None
    inner: str = "lhs"
    alias: str | None = None
    scales_with: Callable[[DesignSpec], tuple[str, int] | None] = field(
        default=lambda spec: ("n", size_of(spec))
    )
    in_rounds: Callable[[DesignSpec], bool] = field(default=lambda spec: False)
    check: Callable[[DesignSpec], list[Fault]] = field(default=lambda spec: [])

    def option(self, spec: DesignSpec, name: str) -> Any:
        """Return the design's value of the option ``name``, or its default."""
        default = next(option.default for option in self.options if option.name == name)
        return spec.sampler.options.get(name, default)


def whole(least: int, most: int | None = None, none: bool = False) -> Callable[[Any], str | None]:
    """Build a check for whole numbers of at least ``least`` (and at most ``most``); ``none`` allows null, too."""

    def check(value: Any) -> str | None:
        if none and value is None:
            return None
        sound = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if sound and (most is None or value <= most):
            return None
        return f"a whole number of at least {least}" + ("" if most is None else f" and at most {most}")

    return check


def flag(value: Any) -> str | None:
    """Check that a value is true or false."""
    return None if isinstance(value, bool) else "true or false"


def one_of(*words: str) -> Callable[[Any], str | None]:
    """Build a check for one of ``words``."""

    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and value in words else f"one of {', '.join(words)}"

    return check


def size_of(spec: DesignSpec) -> int:
    """Return the ``n`` of a sampler that requires it, under either of its names."""
    n = spec.sampler.n
    return n if n is not None else int(spec.sampler.options["trajectories"])


def random_of(spec: DesignSpec, *path: str | int) -> np.random.Generator:
    """Return the random generator of the design's sample; ``path`` names a stream of its own."""
    return generator(spec.seed, "sample", spec.sampler.name, *path)


def single_rows(unit: FloatArray, arguments: Mapping[str, Any], *warnings: str) -> Sample:
    """Build a sample in which every point is its own block.

    Args:
        unit: (rows, axes) the points.
        arguments: the sampler's arguments, for the manifest.
        warnings: messages for the user.
    """
    return Sample(unit, np.arange(len(unit), dtype=np.int64), arguments, warnings)


def unit_label(axis: Axis) -> str:
    """Return the axis's group, or its name if it is in no group."""
    return axis.group if axis.group is not None else axis.name


def units(spec: DesignSpec) -> tuple[str, ...]:
    """Return the groups, and the axes outside of groups: a grouped sample moves one of these at a time."""
    return tuple(dict.fromkeys(unit_label(axis) for axis in spec.axes))


def problem(spec: DesignSpec) -> dict[str, Any]:
    """Build a SALib problem on the unit cube, with the design's groups if it has any."""
    result: dict[str, Any] = {
        "num_vars": len(spec.axes),
        "names": [axis.name for axis in spec.axes],
        "bounds": [[0.0, 1.0] for _ in spec.axes],
    }
    if spec.groups:
        result["groups"] = [unit_label(axis) for axis in spec.axes]
    return result

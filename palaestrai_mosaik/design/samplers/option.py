"""What a sampler is: its name, what it may be told, and its properties that rules look at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.seeding import generator

from ..model import Axis, DesignSpec
from ..sample import FloatArray, Sample

#: A sample has at most so many numbers, rows times axes.
MAX_VALUES = 10_000_000

Size = Literal["required", "optional", "none"]
#: A place in the document, and what is wrong there.
Found = tuple[Place, str]


@dataclass(frozen=True)
class Option:
    """One option of a sampler.

    ``check`` returns what is allowed instead where a value is wrong (``"a whole number of at
    least 2"``), else ``None``.
    """

    name: str
    default: Any
    check: Callable[[Any], str | None]
    meaning: str


@dataclass(frozen=True)
class Sampler:
    """One way to choose the points of a design.

    ``draw`` makes the sample, ``rows`` tells how many rows it has without making it. ``size``:
    whether ``n`` must, may or must not be given; ``unit`` says what ``n`` counts, ``size_check``
    returns what is wrong with a value of it. ``groups``: knows groups. ``allows_constraints``: rows may be
    rejected by constraints. ``includes_bounds``: coordinates may be exactly 0 or 1. ``two_level``: every axis
    has two levels, or two ends. ``uses_weights``: levels come by their weights. ``methods`` of sensitivity analysis fit
    the sample, and are used where the design names none and its factors allow them. ``made_for``: the one
    method that the sample is made for, if it is made for one. ``inner``: a sampler to take where ends do not exist. ``alias``: an option that is another
    word for ``n``. ``scales_with``: the option that the number of rows is proportional to, and its value.
    ``in_rounds``: rows are added, in rounds, when those before have been executed (:mod:`palaestrai_mosaik.rounds`).
    ``check`` finds what is wrong beyond the options one by one.
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
    check: Callable[[DesignSpec], list[Found]] = field(default=lambda spec: [])

    def option(self, spec: DesignSpec, name: str) -> Any:
        """Return the value of the option ``name`` of the design, or its default."""
        default = next(option.default for option in self.options if option.name == name)
        return spec.sampler.options.get(name, default)


def whole(least: int, most: int | None = None, none: bool = False) -> Callable[[Any], str | None]:
    """Return the check for whole numbers from ``least``; ``none``: nothing (null) is allowed, too."""

    def check(value: Any) -> str | None:
        if none and value is None:
            return None
        sound = isinstance(value, int) and not isinstance(value, bool) and value >= least
        if sound and (most is None or value <= most):
            return None
        return f"a whole number of at least {least}" + ("" if most is None else f" and at most {most}")

    return check


def flag(value: Any) -> str | None:
    """Check for true and false."""
    return None if isinstance(value, bool) else "true or false"


def one_of(*words: str) -> Callable[[Any], str | None]:
    """Return the check for one of ``words``."""

    def check(value: Any) -> str | None:
        return None if isinstance(value, str) and value in words else f"one of {', '.join(words)}"

    return check


def size_of(spec: DesignSpec) -> int:
    """Return the ``n`` of a sampler that needs one, by whichever word it is given."""
    n = spec.sampler.n
    return n if n is not None else int(spec.sampler.options["trajectories"])


def random_of(spec: DesignSpec, *path: str) -> np.random.Generator:
    """Return the generator of the design's sample."""
    return generator(spec.seed, "sample", spec.sampler.name, *path)


def single_rows(unit: FloatArray, arguments: Mapping[str, Any], *warnings: str) -> Sample:
    """Return the sample of points of which each stands alone."""
    return Sample(unit, np.arange(len(unit), dtype=np.int64), arguments, warnings)


def unit_label(axis: Axis) -> str:
    """Return what an axis is counted as: its group, or itself where it is in none."""
    return axis.group if axis.group is not None else axis.name


def units(spec: DesignSpec) -> tuple[str, ...]:
    """Return the groups and the axes in none of them: what a grouped sample moves one at a time."""
    return tuple(dict.fromkeys(unit_label(axis) for axis in spec.axes))


def problem(spec: DesignSpec) -> dict[str, Any]:
    """Return a fresh SALib problem: the unit cube, with the groups of the design if it has some."""
    found: dict[str, Any] = {
        "num_vars": len(spec.axes),
        "names": [axis.name for axis in spec.axes],
        "bounds": [[0.0, 1.0] for _ in spec.axes],
    }
    if spec.groups:
        found["groups"] = [unit_label(axis) for axis in spec.axes]
    return found

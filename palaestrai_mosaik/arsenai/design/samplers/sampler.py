"""The contract of samplers: a sample, its sampler, the sampler's options, and the option ``until`` of those that work in rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.core.seeding import generator
from palaestrai_mosaik.experiment.fields import show
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from ..model import Axis, DesignSpec, is_number


@dataclass(frozen=True)
class Sample:
    """The points of a design.

    Attributes:
        unit: (rows, axes) coordinates in [0, 1], the X of every analysis. Levels are in the middle of their share.
        block: (rows,) whole numbers, non-decreasing. Rows that an analysis can only use together have the same number
            (a Saltelli block, a Morris trajectory, all of an eFAST curve). If every row stands alone, its index.
        arguments: arguments of the sampler, as plain data for the manifest.
        warnings: messages for the user.
    """

    unit: FloatArray
    block: IntArray
    arguments: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def pack(block: IntArray) -> int | list[int]:
    """Return the lengths of runs of equal numbers in ``block``, (rows,); a single number if all are equal."""
    starts = np.flatnonzero(np.diff(block, prepend=block[:1] - 1))
    lengths = [int(length) for length in np.diff(np.append(starts, len(block)))]
    return lengths[0] if lengths and len(set(lengths)) == 1 else lengths


def unpack(packed: int | list[int], rows: int) -> IntArray:
    """Return the block of each of ``rows`` rows, numbered from 0.

    Args:
        packed: the result of :func:`pack`.
        rows: number of rows.

    Raises:
        ValueError: the lengths do not add up to ``rows``.
    """
    lengths = [packed] * (rows // packed) if isinstance(packed, int) else packed
    if sum(lengths) != rows:
        raise ValueError(f"the blocks have {sum(lengths)} rows, the sample {rows}")
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


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
    groups = [unit_label(axis) for axis in spec.axes] if spec.groups else None
    return unit_problem([axis.name for axis in spec.axes], groups)


def unit_problem(names: Sequence[str], groups: Sequence[str] | None) -> dict[str, Any]:
    """Build a SALib problem on the unit cube.

    Args:
        names: names of the axes.
        groups: group of each axis, None without groups.
    """
    problem = {"num_vars": len(names), "names": [*names], "bounds": [[0.0, 1.0] for _ in names]}
    return problem if groups is None else {**problem, "groups": [*groups]}


#: key -> check that returns a description of the allowed values, or None if the value is valid
Keys = Mapping[str, Callable[[Any], str | None]]


def fraction(value: Any) -> str | None:
    """Check that a value is a number between 0 and 1."""
    return None if is_number(value) and 0 < value < 1 else "a number between 0 and 1"


def until_option(meaning: str) -> Option:
    """Build the option; its contents are checked by :func:`until_faults`."""
    return Option("until", None, lambda value: None if isinstance(value, dict) else "a mapping", meaning)


def until_faults(
    spec: DesignSpec, keys: Keys, first: int, rows: Callable[[int], int] = int
) -> Iterator[Fault]:
    """Yield the problems of a design's ``until``, and of settings that conflict with it.

    Args:
        spec: the design; its ``until`` is a mapping, or missing.
        keys: the allowed keys of ``until``, including ``max_n``.
        first: the n of the first round.
        rows: returns the number of rows of a sample of n.
    """
    path = ("sampler", "until")
    until = spec.sampler.options.get("until") or {}
    for key, value in until.items():
        if key not in keys:
            yield (
                (*path, str(key)),
                f"unknown key {key!r} of until{did_you_mean(str(key), keys)}; allowed: {', '.join(keys)}",
            )
            continue
        allowed = keys[key](value)
        if allowed is not None:
            yield (*path, key), f"{key} must be {allowed}, found {show(value)}"
    most = until.get("max_n")
    if isinstance(most, int) and not isinstance(most, bool):
        if most < first:
            yield (*path, "max_n"), f"max_n is {most:,}, and the first round has n = {first:,} already"
        elif rows(most) * len(spec.axes) > MAX_VALUES:
            yield (
                (*path, "max_n"),
                f"a sample has at most {MAX_VALUES:,} numbers, and n = {most:,} has {rows(most) * len(spec.axes):,}",
            )
    if spec.max_runs is not None:
        yield (
            ("max_runs",),
            "max_runs takes rows out of a sample that is drawn whole; a sampler that adds rows has until: {max_n: ...}",
        )


def last_n(spec: DesignSpec, default: int) -> int:
    """Return the largest n that a sample may grow to, or ``default`` if the design has no ``max_n``."""
    until = spec.sampler.options.get("until") or {}
    return int(until.get("max_n", default))

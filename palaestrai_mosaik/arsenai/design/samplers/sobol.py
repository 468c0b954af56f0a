"""Saltelli samples, from independently randomised Sobol' sequences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.types.arrays import FloatArray

from ..model import DesignSpec
from .sampler import (
    MAX_VALUES,
    Fault,
    Option,
    Sample,
    Sampler,
    flag,
    fraction,
    last_n,
    random_of,
    size_of,
    unit_label,
    units,
    until_faults,
    until_option,
    whole,
)

#: Number of randomisations. More of them reduce Student's t, but leave fewer points in each sequence.
RANDOMIZATIONS = 8
#: name of the number of randomisations in a sample's arguments
ARGUMENT = "randomizations"


def randomized(spec: DesignSpec, n: int, dimensions: int) -> tuple[FloatArray, dict[str, Any]]:
    """Draw n points in [0, 1) from independently randomised sequences.

    Point i belongs to randomisation i modulo 8, so a larger n continues each sequence and keeps the first points. With
    fewer than 8 points, each is a randomisation of its own.

    Returns:
        The points, (n, dimensions), and the number of randomisations as a sample's argument.
    """
    count = min(n, RANDOMIZATIONS)
    each = -(-n // count)
    sequences = [_points(dimensions, each, random_of(spec, "randomization", i)) for i in range(count)]
    return np.stack(sequences, axis=1).reshape(-1, dimensions)[:n], {ARGUMENT: count}


def plain(n: int, dimensions: int) -> tuple[FloatArray, dict[str, Any]]:
    """Return the first n points of the unscrambled sequence, (n, dimensions), and the sample's argument."""
    return _points(dimensions, n, None), {ARGUMENT: 1}


def _points(dimensions: int, n: int, generator: np.random.Generator | None) -> FloatArray:
    """Return the first n points of the sequence, scrambled if there is a generator."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, scramble=generator is not None, seed=generator)
    # scipy warns about numbers of points that are not powers of two
    points: FloatArray = sequence.random_base2((n - 1).bit_length())[:n]
    return points


#: largest n: scipy's sequence has 30 bits
_LARGEST = 2**30
#: default limit of a sample's size, as a multiple of the rows of its first round
_GROWTH = 64


def draw(spec: DesignSpec) -> Sample:
    """Draw blocks of D + 2 rows, or 2D + 2 with ``second_order`` (D: groups and single axes).

    The blocks of n = 64 are the first of those of n = 128. Without ``scramble`` nothing is random.
    """
    n = size_of(spec)
    second_order, scramble = SOBOL.option(spec, "second_order"), SOBOL.option(spec, "scramble")
    dimensions = 2 * len(spec.axes)
    base, arguments = randomized(spec, n, dimensions) if scramble else plain(n, dimensions)
    a, b = base[:, None, : len(spec.axes)], base[:, None, len(spec.axes) :]
    moved = np.array([[unit_label(axis) == name for axis in spec.axes] for name in units(spec)])
    parts = [a, np.where(moved, b, a), *([np.where(moved, a, b)] if second_order else []), b]
    unit = np.concatenate(parts, axis=1)
    block = np.repeat(np.arange(n, dtype=np.int64), unit.shape[1])
    arguments = {"n": n, "second_order": second_order, "scramble": scramble, **arguments}
    return Sample(unit.reshape(-1, len(spec.axes)), block, arguments)


def with_n(spec: DesignSpec, n: int) -> DesignSpec:
    """Return the design with a sample of another size."""
    return replace(spec, sampler=replace(spec.sampler, n=n))


def wanted_interval(spec: DesignSpec) -> float:
    """Return the largest half-width that the intervals of the indices may have."""
    return float(SOBOL.option(spec, "until")["interval"])


def wanted_outcomes(spec: DesignSpec) -> tuple[str, ...]:
    """Return the outcomes that need precise indices; empty means all."""
    outcomes = SOBOL.option(spec, "until").get("outcomes", ())
    return (outcomes,) if isinstance(outcomes, str) else tuple(outcomes)


def largest_n(spec: DesignSpec) -> int:
    """Return the largest n that the sample may grow to."""
    first = size_of(spec)
    fits = MAX_VALUES // (_rows(spec) // first * max(1, len(spec.axes)))
    times = max(1, min(last_n(spec, _GROWTH * first), fits) // first)
    # rounded down to a power of two, because n doubles
    return int(first << times.bit_length() - 1)


def _rows(spec: DesignSpec) -> int:
    count = len(units(spec))
    return size_of(spec) * (2 * count + 2 if SOBOL.option(spec, "second_order") else count + 2)


def _names(value: Any) -> str | None:
    listed = [value] if isinstance(value, str) else value
    sound = isinstance(listed, list) and listed and all(isinstance(name, str) for name in listed)
    return None if sound else "a list of outcomes' names"


def _check(spec: DesignSpec) -> list[Fault]:
    until = SOBOL.option(spec, "until")
    if until is None:
        return []
    keys = {"interval": fraction, "outcomes": _names, "max_n": whole(1)}
    problems = list(until_faults(spec, keys, size_of(spec), lambda n: _rows(with_n(spec, n))))
    return problems or list(_until(spec, until))


def _until(spec: DesignSpec, until: dict[str, Any]) -> Iterator[Fault]:
    if "interval" not in until:
        message = "until needs interval, the largest half-width that the intervals of S1 and ST may have, such as 0.05"
        yield ("sampler", "until"), message
        return
    if "max_n" in until and (wrong := _size(spec, until["max_n"])) is not None:
        yield ("sampler", "until", "max_n"), wrong.replace("n must", "max_n must", 1)
    outcomes = [outcome.name for outcome in spec.outcomes]
    for name in wanted_outcomes(spec):
        if outcomes and name not in outcomes:
            near = did_you_mean(name, outcomes)
            yield (
                ("sampler", "until", "outcomes"),
                f"until names {name!r}, which is no outcome{near}; outcomes: {', '.join(outcomes)}",
            )


def _size(spec: DesignSpec, n: int) -> str | None:
    lower = 1 << (max(n, 2).bit_length() - 1)
    if n == lower and n <= _LARGEST:
        return None
    return (
        f"n must be a power of two, or the Sobol' sequence loses its balance; found {n}, "
        f"the nearest are {lower} and {2 * lower}"
    )


SOBOL: Sampler = Sampler(
    "sobol",
    "Sobol' sample (Saltelli)",
    draw,
    _rows,
    unit="base points, a power of two",
    size_check=_size,
    options=(
        Option("second_order", True, flag, "rows for the interactions of pairs, too"),
        Option("scramble", True, flag, "scramble the sequences by the design's seed"),
        until_option("double n until interval (half-width of S1 and ST), for outcomes, up to max_n"),
    ),
    groups=True,
    made_for="sobol",
    inner="sobol with scramble: true",
    includes_bounds=lambda spec: SOBOL.option(spec, "scramble") is False,
    methods=("sobol", "shapley"),
    in_rounds=lambda spec: SOBOL.option(spec, "until") is not None,
    check=_check,
)

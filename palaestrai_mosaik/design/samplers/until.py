"""When a sampler adds no more rows: the option ``until`` of samplers that work in rounds.

How far a sample grows is no part of the design's identity: where ``until`` changes, the same folder goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from palaestrai_mosaik.errors import did_you_mean
from palaestrai_mosaik.experiment.located import show

from ..model import DesignSpec
from .option import MAX_VALUES, Found, Option

#: name of a key -> what is allowed instead of a value, or ``None`` where it is sound
Keys = Mapping[str, Callable[[Any], str | None]]


def fraction(value: Any) -> str | None:
    """Check for numbers between 0 and 1."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if number and 0 < value < 1 else "a number between 0 and 1"


def until_option(meaning: str) -> Option:
    """Return the option; what is in it is checked by :func:`until_faults`."""
    return Option("until", None, lambda value: None if isinstance(value, dict) else "a mapping", meaning)


def until_faults(
    spec: DesignSpec, keys: Keys, first: int, rows: Callable[[int], int] = int
) -> Iterator[Found]:
    """Yield what is wrong with ``until`` of a design, and with what does not go with it.

    Args:
        spec: the design; its ``until`` is a mapping, or not given.
        keys: what may stand in ``until``, ``max_n`` among it.
        first: the n of the first round.
        rows: returns how many rows a sample of n has.
    """
    place = ("sampler", "until")
    until = spec.sampler.options.get("until") or {}
    for key, value in until.items():
        if key not in keys:
            yield (
                (*place, str(key)),
                f"unknown key {key!r} of until{did_you_mean(str(key), keys)}; allowed: {', '.join(keys)}",
            )
            continue
        wanted = keys[key](value)
        if wanted is not None:
            yield (*place, key), f"{key} must be {wanted}, found {show(value)}"
    most = until.get("max_n")
    if isinstance(most, int) and not isinstance(most, bool):
        if most < first:
            yield (*place, "max_n"), f"max_n is {most:,}, and the first round has n = {first:,} already"
        elif rows(most) * len(spec.axes) > MAX_VALUES:
            yield (
                (*place, "max_n"),
                f"a sample has at most {MAX_VALUES:,} numbers, and n = {most:,} has {rows(most) * len(spec.axes):,}",
            )
    if spec.max_runs is not None:
        yield (
            ("max_runs",),
            "max_runs takes rows out of a sample that is drawn whole; a sampler that adds rows has until: {max_n: ...}",
        )


def last_n(spec: DesignSpec, default: int) -> int:
    """Return the largest n that a sample may grow to; ``default``: where the design does not say."""
    until = spec.sampler.options.get("until") or {}
    return int(until.get("max_n", default))

"""The option ``until`` of samplers that work in rounds: when to stop adding rows.

``until`` is no part of the design's identity: if it changes, the same folder is continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.experiment.fields import show

from ..model import DesignSpec
from .option import MAX_VALUES, Fault, Option

#: key -> check that returns a description of the allowed values, or None if the value is valid
Keys = Mapping[str, Callable[[Any], str | None]]


def fraction(value: Any) -> str | None:
    """Check that a value is a number between 0 and 1."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return None if number and 0 < value < 1 else "a number between 0 and 1"


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

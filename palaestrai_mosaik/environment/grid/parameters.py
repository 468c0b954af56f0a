"""Checks of the parameters that the environments of a grid share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestrai_mosaik.errors import Problem, did_you_mean


def parameter_problems(
    choices: Mapping[str, tuple[Any, Sequence[str]]], counts: Mapping[str, tuple[Any, int]], initial_soc: Any
) -> list[Problem]:
    """Return what is wrong: ``choices`` are given and allowed by name, ``counts`` given and least."""
    problems = []
    for name, (value, choice) in choices.items():
        if value not in choice:
            hint = did_you_mean(str(value), choice)
            problems.append(Problem(f"{value!r} is none of {', '.join(choice)}{hint}", name))
    for name, (number, least) in counts.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            problems.append(Problem(f"{number!r} is not a whole number of at least {least}", name))
    if not isinstance(initial_soc, int | float) or not 0.0 <= initial_soc <= 1.0:
        problems.append(Problem(f"{initial_soc!r} is not between 0 and 1", "initial_soc"))
    return problems

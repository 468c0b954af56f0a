"""Adaptive rows: a Latin hypercube, then rows near the boundary of a condition on outcomes.

Only the first rows are drawn here. :mod:`palaestrai_mosaik.arsenai.search.rounds` chooses the others after these have been executed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError

from ..model import DesignSpec
from ..outcomes import read_condition
from .sampler import (
    Fault,
    Option,
    Sample,
    Sampler,
    fraction,
    last_n,
    random_of,
    single_rows,
    size_of,
    until_faults,
    until_option,
    whole,
)

#: default stopping rule: boxes share at least 90 % of their points with those of the round before, twice in a row
_OVERLAP, _ROUNDS = 0.9, 2
#: default limit of a sample's size, as a multiple of its first round
_GROWTH = 10
#: fewest rows of the first round, so that the condition can hold in some and fail in others
_FEWEST = 10


def draw(spec: DesignSpec) -> Sample:
    """Draw the rows of the first round: a Latin hypercube."""
    from scipy.stats import qmc

    n = size_of(spec)
    unit = qmc.LatinHypercube(len(spec.axes), seed=random_of(spec)).random(n)
    return single_rows(unit, {"n": n})


def condition_of(spec: DesignSpec) -> str:
    """Return the condition that rows are added at the boundary of: the sampler's, or else that of the analysis."""
    condition: str | None = ADAPTIVE.option(spec, "condition")
    return condition if condition is not None else spec.analysis.discover[0]


def batch_of(spec: DesignSpec) -> int:
    """Return the number of rows that a round adds."""
    return int(ADAPTIVE.option(spec, "batch"))


def most_rows(spec: DesignSpec) -> int:
    """Return the largest number of rows."""
    return last_n(spec, _GROWTH * size_of(spec))


def stopping_rule(spec: DesignSpec) -> tuple[float, int]:
    """Return the share of points that consecutive boxes must have in common, and the number of rounds in a row."""
    until = ADAPTIVE.option(spec, "until") or {}
    return float(until.get("overlap", _OVERLAP)), int(until.get("rounds", _ROUNDS))


def _text(value: Any) -> str | None:
    return (
        None
        if isinstance(value, str) and value.strip()
        else "an expression over outcomes, such as 'violations > 0.01'"
    )


def _size(spec: DesignSpec, n: int) -> str | None:
    return None if n >= _FEWEST else f"n must be at least {_FEWEST}, found {n}"


def _check(spec: DesignSpec) -> list[Fault]:
    keys = {"overlap": fraction, "rounds": whole(1), "max_n": whole(_FEWEST)}
    return [*_condition_faults(spec), *until_faults(spec, keys, size_of(spec))]


def _condition_faults(spec: DesignSpec) -> Iterator[Fault]:
    condition, discover = ADAPTIVE.option(spec, "condition"), spec.analysis.discover
    if condition is None:
        if len(discover) != 1:
            number = "has none" if not discover else f"has {len(discover)}"
            yield (
                ("sampler",),
                "adaptive needs condition, an expression over outcomes such as 'violations > 0.01': rows are added near its boundary "
                f"(or else the one of analysis.discover, which {number})",
            )
        return
    try:
        # a design without named outcomes gets those of its runs, which are not known yet
        if spec.outcomes:
            read_condition(condition, [outcome.name for outcome in spec.outcomes])
    except DocumentError as error:
        yield ("sampler", "condition"), error.problems[0].message


ADAPTIVE: Sampler = Sampler(
    "adaptive",
    "Adaptive sample",
    draw,
    size_of,
    unit="rows of the first round",
    size_check=_size,
    options=(
        Option("condition", None, _text, "rows are added near the boundary of this condition"),
        Option("batch", 20, whole(1), "rows that a round adds"),
        until_option("when no more rows are added: overlap and rounds (boxes that hold still), max_n (rows)"),
    ),
    allows_constraints=True,
    in_rounds=lambda spec: True,
    check=_check,
)

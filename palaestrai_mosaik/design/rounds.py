"""The rounds of a design that grows: what its folder keeps of them.

The rows of such a design are those that its sampler draws, and then those that :mod:`palaestrai_mosaik.rounds` adds
when the former have been executed. Rows that are there stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from palaestrai_mosaik.text import count

from .model import DesignSpec
from .samplers import SAMPLERS

#: what is measured of a round -> the types that it may have
_KINDS: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("rows", "n", "runs", "holds", "lost"), int),
    **dict.fromkeys(("interval", "overlap"), int | float | None),
    **dict.fromkeys(("index", "factor", "outcome", "refused"), str),
}
#: the keys of the manifest
ROUNDS, ENDED = "rounds", "rounds_ended"


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a folder.

    Attributes:
        measured: of each round, in order: ``rows`` (of the design, with this round), and what was measured when they had
            been executed.
        ended: why no more rows are added; empty: they may be.
    """

    measured: tuple[Mapping[str, Any], ...]
    ended: str = ""

    @property
    def number(self) -> int:
        """How many rounds there are, with the one that is not measured yet."""
        return len(self.measured)

    def entries(self) -> dict[str, Any]:
        """Return them as entries of a manifest."""
        return {ROUNDS: [dict(one) for one in self.measured], ENDED: self.ended}

    def lines(self) -> list[str]:
        """Return a line for each round: how many rows it made, and what was measured then."""
        return [f"round {number}: {_description(one)}" for number, one in enumerate(self.measured, start=1)]


def _description(measured: Mapping[str, Any]) -> str:
    rows = count(int(measured["rows"]), "row")
    if "interval" in measured:
        if measured["interval"] is None:
            return f"{rows}, no indices of {measured['outcome']} yet: {measured['refused']}"
        of = (
            f" ({measured['index']} of {measured['factor']}, {measured['outcome']})"
            if "index" in measured
            else ""
        )
        return f"{rows}, widest interval ±{measured['interval']:.3g}{of}"
    if "holds" in measured:
        told = (
            f"{rows}, the condition holds in {measured['holds']:,} of {count(int(measured['runs']), 'run')}"
        )
        if measured.get("lost"):
            told += f" ({measured['lost']:,} more have no value)"
        if measured["overlap"] is not None:
            told += f", boxes have {100 * measured['overlap']:.0f} % in common with those of the round before"
        return told
    return f"{rows}, not all executed"


def in_rounds(spec: DesignSpec) -> bool:
    """Return whether rows are added to the design when those before have been executed."""
    return spec.search is None and SAMPLERS[spec.sampler.name].in_rounds(spec)


def first_round(spec: DesignSpec, rows: int) -> Rounds | None:
    """Return the rounds of a folder that is new; ``None`` where there is no other round to come."""
    return Rounds(({"rows": rows},)) if in_rounds(spec) else None


def rounds_in(manifest: Mapping[str, Any]) -> Rounds | None:
    """Return the rounds that a manifest has; ``None``: none, or it was edited."""
    measured, ended = manifest.get(ROUNDS), manifest.get(ENDED)
    if not isinstance(measured, list) or not isinstance(ended, str) or not measured:
        return None
    sound = all(isinstance(one, dict) and type(one.get("rows")) is int and _is_sound(one) for one in measured)
    return Rounds(tuple(measured), ended) if sound else None


def _is_sound(measured: Mapping[str, Any]) -> bool:
    """Whether a round has what :func:`_description` reads."""
    return all(isinstance(measured[key], _KINDS[key]) for key in _KINDS.keys() & measured.keys())

"""The rounds of a design that grows, as its folder records them.

The sampler of such a design draws the first rows; :mod:`palaestrai_mosaik.arsenai.search.rounds` adds rows
after all earlier rows have been executed. Existing rows never change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from palaestrai_mosaik.core.text import count

#: keys of a round's measurements -> their types
_KINDS: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("rows", "n", "runs", "holds", "lost"), int),
    **dict.fromkeys(("interval", "overlap"), int | float | None),
    **dict.fromkeys(("index", "factor", "outcome", "refused"), str),
}
#: keys in the manifest
ROUNDS, ENDED = "rounds", "rounds_ended"


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a folder.

    Attributes:
        measured: for each round, in order: ``rows`` (of the design, including this round), and the measurements after
            their execution.
        ended: reason for adding no more rows; empty if they may be added.
    """

    measured: tuple[Mapping[str, Any], ...]
    ended: str = ""

    @property
    def number(self) -> int:
        """The number of rounds, including the one that has not been measured yet."""
        return len(self.measured)

    def entries(self) -> dict[str, Any]:
        """Convert the rounds to entries of a manifest."""
        return {ROUNDS: [dict(measurements) for measurements in self.measured], ENDED: self.ended}

    def lines(self) -> list[str]:
        """Describe each round's rows and measurements in a line."""
        return [
            f"round {number}: {_description(measurements)}"
            for number, measurements in enumerate(self.measured, start=1)
        ]


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
        text = (
            f"{rows}, the condition holds in {measured['holds']:,} of {count(int(measured['runs']), 'run')}"
        )
        if measured.get("lost"):
            text += f" ({measured['lost']:,} more have no value)"
        if measured["overlap"] is not None:
            text += f", boxes have {100 * measured['overlap']:.0f} % in common with those of the round before"
        return text
    return f"{rows}, not all executed"


def rounds_in(manifest: Mapping[str, Any]) -> Rounds | None:
    """Read the rounds of a manifest; None if it has none, or was edited."""
    measured, ended = manifest.get(ROUNDS), manifest.get(ENDED)
    if not isinstance(measured, list) or not isinstance(ended, str) or not measured:
        return None
    sound = all(
        isinstance(measurements, dict) and type(measurements.get("rows")) is int and _is_sound(measurements)
        for measurements in measured
    )
    return Rounds(tuple(measured), ended) if sound else None


def _is_sound(measured: Mapping[str, Any]) -> bool:
    """Return whether a round's measurements have the types that :func:`_description` expects."""
    return all(isinstance(measured[key], _KINDS[key]) for key in _KINDS.keys() & measured.keys())

"""What follows from a round: more rows, or the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palaestrai_mosaik.design.sample import Sample


@dataclass(frozen=True)
class Decision:
    """What follows from a round.

    Attributes:
        measured: what the round gave, as plain data.
        ended: why no more rows are added; empty where they are.
        sample: the rows of the design with those of the next round; ``None`` where there is none.
        drawn: how many points were drawn for these, with those that constraints reject.
    """

    measured: Mapping[str, Any]
    ended: str = ""
    sample: Sample | None = None
    drawn: int = 0

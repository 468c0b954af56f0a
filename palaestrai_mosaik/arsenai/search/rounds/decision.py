"""The decision after a round: more rows, or the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palaestrai_mosaik.arsenai.design.sample import Sample


@dataclass(frozen=True)
class Decision:
    """The decision after a round.

    Attributes:
        measured: measurements of the round, as plain data.
        ended: reason for adding no more rows; empty if rows are added.
        sample: all rows of the design, including those of the next round; None if it has ended.
        drawn: number of points drawn for ``sample``, including those that constraints reject.
    """

    measured: Mapping[str, Any]
    ended: str = ""
    sample: Sample | None = None
    drawn: int = 0

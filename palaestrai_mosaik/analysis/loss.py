"""What is left out of an analysis because runs failed, are missing, or gave no finite number.

Nothing is imputed. Analysers are never shown what is not finite: SALib's Sobol indices, for
one, are all 0 then, without a word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pandas as pd

#: more than this lost is too much: what is left is no sample of the design any more
MOST_LOST = 0.5
#: more than this lost is told as a danger, because runs seldom fail by chance
_NOTABLE = 0.02


@dataclass(frozen=True)
class Kept:
    """Which rows are used: ``mask``, (rows,); ``notes`` tell what is lost; ``refused`` why all is."""

    mask: npt.NDArray[np.bool_]
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def used(self) -> int:
        """The number of rows that are used."""
        return int(self.mask.sum())

    @property
    def lost(self) -> int:
        """The number of rows that are left out."""
        return len(self.mask) - self.used


def keep(
    finite: npt.NDArray[np.bool_],
    block: npt.NDArray[np.int64],
    loses: Literal["row", "block", "nothing"],
) -> Kept:
    """Return which rows can be used, if ``finite``, (rows,), tells which have a finite outcome.

    ``loses``: what goes with a lost one: its ``row`` alone, the ``block`` of rows that have its
    number, or, for ``nothing``, all of the analysis.
    """
    lost = int((~finite).sum())
    if not lost:
        return Kept(finite.copy())
    rows = "1 row" if lost == 1 else f"{lost} rows"
    if loses == "nothing":
        reason = f"{rows} of {len(finite)} without a finite outcome, and the method needs all of them"
        return Kept(np.zeros_like(finite), (), reason)
    mask = finite.copy()
    if loses == "block":
        mask &= ~np.isin(block, block[~finite])
    gone = 1 - mask.mean()
    told = f"{gone:.1%} of the rows are left out ({int((~mask).sum())} of {len(mask)}): {rows} without a finite outcome"
    if loses == "block":
        told += ", and those that belong to the same blocks"
    if gone > MOST_LOST:
        return Kept(
            np.zeros_like(finite), (), f"{told}; with more than {MOST_LOST:.0%} lost nothing can be said"
        )
    notes = [told]
    if gone > _NOTABLE:
        notes.append("where runs fail for a reason, what is left is not like the rest of the design")
    return Kept(mask, tuple(notes))


def lost_runs(frame: pd.DataFrame, outcomes: Sequence[str]) -> dict[str, Any]:
    """Return how many runs of ``Results.outcomes()`` there are, and how many are lost in which way.

    Keys: ``runs``, ``failed``, ``missing``, and for each outcome how many finished runs have no finite one.
    """
    finished = frame["status"] == "finished"
    counts: dict[str, Any] = {"runs": len(frame)}
    counts |= {status: int((frame["status"] == status).sum()) for status in ("failed", "missing")}
    for name in outcomes:
        counts[name] = int((finished & ~np.isfinite(frame[name].to_numpy(dtype=float))).sum())
    return counts

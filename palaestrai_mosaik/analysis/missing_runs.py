"""What is left out of an analysis because runs failed, are missing, or gave no finite number.

Nothing is imputed. Analysers are never shown what is not finite: SALib's Sobol indices, for
one, are all 0 then, without a word.

Where repetitions share their seeds over all rows, a row that lost one of them differs from the
others by that seed alone: in the difference of two rows this looks like an effect of the factor
between them. So rows of one block are means of the repetitions that all of them have, and what
repetitions differ by on average is subtracted where blocks have different ones. That is the
least-squares fit of an additive model of rows and repetitions (Montgomery, "Design and Analysis of
Experiments", chapter 4, the intrablock analysis of incomplete blocks).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

Drops = Literal["run", "row", "block", "nothing"]

#: where so much is lost, or more, what is left is no sample of the design any more
MAX_MISSING_SHARE = 0.5
#: more than this lost is told as a danger, because runs seldom fail by chance
_NOTABLE = 0.02
# Sums of squares below that share of the largest belong to nothing.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class UsedRuns:
    """What is used: ``runs``, (rows, repetitions), tells which; ``y``, (rows,), the means of the rows.

    ``y`` is NaN where a row has no run left. ``notes`` tell what is lost; ``refused`` why all is.
    """

    runs: BoolVector
    y: FloatArray
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def rows(self) -> BoolVector:
        """Which rows are used, (rows,)."""
        return np.asarray(self.runs.any(axis=1))

    @property
    def used(self) -> int:
        """The number of runs that are used."""
        return int(self.runs.sum())

    @property
    def lost(self) -> int:
        """The number of runs that are left out."""
        return self.runs.size - self.used


def keep(y: FloatArray, block: IntArray, drops: Drops, common: bool = False) -> UsedRuns:
    """Return what can be used of the outcomes ``y``, (rows, repetitions), not finite where there is none.

    ``block``: (rows,). ``common``: the runs of one repetition share their seed in all rows.
    ``drops``: what goes with a lost run: this ``run`` alone, because single runs are analysed; else
    its row is the mean of the others, and where none is left, the ``row`` is lost, all of its
    ``block``, or, for ``nothing``, the analysis.
    """
    finite = np.isfinite(y)
    if finite.all():
        return UsedRuns(finite, y.mean(axis=1))
    if drops == "nothing":
        block = np.zeros_like(block)
    together = common and drops in ("block", "nothing") and y.shape[1] > 1
    runs = finite & _whole(finite, block) if together else finite.copy()
    empty = ~runs.any(axis=1)
    if drops in ("block", "nothing"):
        runs[np.isin(block, block[empty])] = False
    gone = 1 - runs.any(axis=1).mean()
    nothing = np.zeros_like(runs)
    if drops == "nothing" and gone:
        return UsedRuns(nothing, np.full(len(y), np.nan), (), _too_few(finite, together))
    notes = _describe_missing(finite, runs, int(empty.sum()), drops, together)
    if gone >= MAX_MISSING_SHARE:
        reason = f"{'; '.join(notes)}; with {MAX_MISSING_SHARE:.0%} or more lost nothing can be said"
        return UsedRuns(nothing, np.full(len(y), np.nan), (), reason)
    means, adjusted = _means(y, runs, common and drops != "run")
    if adjusted:
        notes.append(
            "rows have different repetitions left: what repetitions differ by on average is subtracted"
        )
    if runs.size - runs.sum() > _NOTABLE * runs.size:
        notes.append("where runs fail for a reason, what is left is not like the rest of the design")
    return UsedRuns(runs, means, tuple(notes))


def _whole(finite: BoolVector, block: IntArray) -> BoolVector:
    """Return, for each row and repetition, whether all rows of the block have this repetition."""
    numbers, place = np.unique(block, return_inverse=True)
    whole = np.ones((len(numbers), finite.shape[1]), dtype=bool)
    np.logical_and.at(whole, place, finite)
    return np.asarray(whole[place])


def _means(y: FloatArray, runs: BoolVector, common: bool) -> tuple[FloatArray, bool]:
    """Return the mean of each row's ``runs``, and whether it is adjusted for which ones these are."""
    count = runs.sum(axis=1)
    rows = count > 0
    means = np.full(len(y), np.nan)
    values, used = np.where(runs, y, 0.0)[rows], runs[rows].astype(float)
    share = used / count[rows, None]
    means[rows] = (values * share).sum(axis=1)
    if not common or (runs[rows] == runs[rows][:1]).all():
        return means, False
    left = used * (values - means[rows, None])
    normal = np.diag(used.sum(axis=0)) - used.T @ share
    effects = np.linalg.pinv(normal, rcond=_ROUNDING, hermitian=True) @ left.sum(axis=0)
    means[rows] -= share @ effects
    return means, True


def _too_few(finite: BoolVector, together: bool) -> str:
    if together:
        return (
            f"{_runs(finite)}: the method needs all rows, and no repetition, whose seed they share, is finite "
            "in all of them"
        )
    lost = int((~finite).all(axis=1).sum())
    return f"{_rows(lost)} of {len(finite)} without a finite outcome, and the method needs all of them"


def _describe_missing(
    finite: BoolVector, runs: BoolVector, empty: int, drops: Drops, together: bool
) -> list[str]:
    """Return what is lost: runs (where rows have several), then rows."""
    notes = list(_describe_missing_runs(finite, runs, drops, together)) if finite.shape[1] > 1 else []
    gone: BoolVector = ~np.asarray(runs.any(axis=1))
    if not gone.any():
        return notes
    why = f"{_rows(empty)} without a finite outcome"
    if together:
        why = f"{_rows(empty)} of blocks that have no repetition in full"
    elif drops == "block":
        why += ", and those that belong to the same blocks"
    share = f"{gone.mean():.1%} of the rows are left out ({int(gone.sum())} of {len(gone)})"
    return [*notes, f"{share}: {why}"]


def _describe_missing_runs(
    finite: BoolVector, runs: BoolVector, drops: Drops, together: bool
) -> Iterator[str]:
    note = _runs(finite)
    if together:
        unused = int((finite & ~runs).sum())
        note += (
            "; repetitions share their seeds, so the rows of a block are means of the repetitions that all of "
            f"them have, and {unused} finite runs are not used"
        )
    elif drops != "run":
        note += ": rows are means of the runs that they have left"
    yield note


def _runs(finite: BoolVector) -> str:
    return f"{int((~finite).sum())} of {finite.size} runs without a finite outcome"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def executed_text(runs: int, executed: int) -> str:
    """Return how many of ``runs`` of a design were executed, ``35 executed``; nothing where each one was."""
    return f"{executed:,} executed" if executed < runs else ""


def count_missing_runs(frame: pd.DataFrame, outcomes: Sequence[str]) -> dict[str, Any]:
    """Return how many runs of ``Results.outcomes()`` there are, and how many are lost in which way.

    Keys: ``runs``, ``executed`` (runs that are identical are executed once), ``failed``, ``missing``, and for each
    outcome how many finished runs have no finite one.
    """
    finished = frame["status"] == "finished"
    executed = int(frame.loc[frame["status"] != "missing", "run"].nunique())
    counts: dict[str, Any] = {"runs": len(frame), "executed": executed}
    counts |= {status: int((frame["status"] == status).sum()) for status in ("failed", "missing")}
    for name in outcomes:
        counts[name] = int((finished & ~np.isfinite(frame[name].to_numpy(dtype=float))).sum())
    return counts

"""Lost runs, which failed, are missing, or gave no finite number: which rows remain usable, and whether an order is certain.

Nothing is imputed. Values that are not finite must not reach the analysers: with them, SALib's Sobol' indices, for example,
are silently all 0. If repetitions share their seeds over all rows, a row that lost one of them differs from the others by that
seed alone, which looks like an effect. Rows of one block are therefore means of the repetitions that all of them have, and if
blocks have different ones, the average effects of repetitions are subtracted (Montgomery, "Design and Analysis of Experiments",
chapter 4, the intrablock analysis of incomplete blocks).

Runs seldom fail by chance, so the mean of finished runs flatters a setting that fails often. An order is certain if it stays the
same with each lost run counted against it. Sources: Horowitz & Manski 2000, "Nonparametric Analysis of Randomized Experiments
with Missing Covariate and Outcome Data", Journal of the American Statistical Association 95 (bounds); Lachin 1999, "Worst-Rank
Score Analysis with Informatively Missing Observations in Clinical Trials", Controlled Clinical Trials 20 (lost runs rank last).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatMatrix, IntArray

if TYPE_CHECKING:
    import pandas as pd


Drops = Literal["run", "row", "block", "nothing"]

#: with this share of losses or more, the remaining runs no longer represent the design
MAX_MISSING_SHARE = 0.5
#: larger shares of losses get a warning, because runs seldom fail by chance
_NOTABLE = 0.02
# Eigenvalues below this share of the largest are rounding errors.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class UsedRuns:
    """The runs that an analysis uses.

    Attributes:
        runs: (rows, repetitions) whether the run is used.
        y: (rows,) the means of the rows, NaN for rows without runs.
        notes: descriptions of the losses.
        refused: the reason if nothing can be used, else empty.
    """

    runs: BoolVector
    y: FloatArray
    notes: tuple[str, ...] = ()
    refused: str = ""

    @property
    def rows(self) -> BoolVector:
        """Whether each row is used, (rows,)."""
        return np.asarray(self.runs.any(axis=1))

    @property
    def used(self) -> int:
        """The number of used runs."""
        return int(self.runs.sum())

    @property
    def lost(self) -> int:
        """The number of runs left out."""
        return self.runs.size - self.used


def keep(y: FloatArray, block: IntArray, drops: Drops, common: bool = False) -> UsedRuns:
    """Select the usable outcomes.

    Args:
        y: (rows, repetitions) the outcomes, not finite if lost.
        block: (rows,) the block of each row.
        drops: what a loss affects: only the ``run``, if single runs are analysed. Otherwise its row is the mean of the
            others; if there are no others, the ``row``, its whole ``block`` or, for ``nothing``, the analysis is
            lost.
        common: whether the runs of one repetition share their seed in all rows.

    Returns:
        The used runs with the means of their rows.
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
    """Return whether all rows of the block have the repetition, (rows, repetitions)."""
    numbers, block_index = np.unique(block, return_inverse=True)
    whole = np.ones((len(numbers), finite.shape[1]), dtype=bool)
    np.logical_and.at(whole, block_index, finite)
    return np.asarray(whole[block_index])


def _means(y: FloatArray, runs: BoolVector, common: bool) -> tuple[FloatArray, bool]:
    """Return the mean of each row's ``runs``, and whether it is adjusted for the effects of repetitions."""
    sizes = runs.sum(axis=1)
    rows = sizes > 0
    means = np.full(len(y), np.nan)
    values, used = np.where(runs, y, 0.0)[rows], runs[rows].astype(float)
    share = used / sizes[rows, None]
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
    """Describe the losses: runs (if rows have several), then rows."""
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
    return f"{int((~finite).sum())} of {count(finite.size, 'run')} without a finite outcome"


def _rows(number: int) -> str:
    return "1 row" if number == 1 else f"{number} rows"


def executed_text(runs: int, executed: int) -> str:
    """Return the number of executed ``runs``, ``35 executed``; empty if each run was executed."""
    return f"{executed:,} executed" if executed < runs else ""


def used_text(used: int, executed: int, lost: int) -> str:
    """Return the numbers of used, executed and lost runs: ``48 runs used, 35 executed, 2 lost``."""
    parts = [f"{count(used, 'run')} used", executed_text(used, executed), f"{lost:,} lost" if lost else ""]
    return ", ".join(filter(None, parts))


def count_missing_runs(frame: pd.DataFrame, outcomes: Sequence[str]) -> dict[str, Any]:
    """Count the runs of ``Results.outcomes()`` and the different kinds of losses.

    Keys: ``runs``, ``executed`` (identical runs are executed once), ``failed``, ``missing``, and for each
    outcome the number of finished runs without a finite value.
    """
    finished = frame["status"] == "finished"
    executed = int(frame.loc[frame["status"] != "missing", "run"].nunique())
    counts: dict[str, Any] = {"runs": len(frame), "executed": executed}
    counts |= {status: int((frame["status"] == status).sum()) for status in ("failed", "missing")}
    for name in outcomes:
        counts[name] = int((finished & ~np.isfinite(frame[name].to_numpy(dtype=float))).sum())
    return counts


@dataclass(frozen=True)
class Bounds:
    """The values of runs with each lost one counted as the ``lowest``, and as the ``highest``, of its setting.

    If no level finished a seed, its runs are NaN in both.
    """

    lowest: pd.Series[float]
    highest: pd.Series[float]


def bounds(runs: pd.DataFrame, common: bool) -> Bounds:
    """Compute the bounds of runs by counting lost ones as extreme values.

    Args:
        runs: a row per planned run with ``setting``, ``repetition`` and ``value`` (NaN if lost). A setting without
            finished runs has the extremes of all settings.
        common: whether levels share the seeds of their repetitions.

    Returns:
        Both bounds of each run.
    """
    values, setting = runs["value"], runs["setting"]
    ends = values.groupby(setting).agg(["min", "max"])
    ends = ends.fillna({"min": values.min(), "max": values.max()})
    lowest, highest = (values.fillna(setting.map(ends[end])) for end in ("min", "max"))
    if common:
        finished = values.notna().groupby([setting, runs["repetition"]]).transform("any")
        lowest, highest = lowest.where(finished), highest.where(finished)
    return Bounds(lowest, highest)


@dataclass(frozen=True)
class Ranking:
    """The order of settings.

    Attributes:
        order: the indices of the settings, the best first.
        lost: (settings,) the number of lost runs.
        certain: whether the first setting is the best, whatever the values of lost runs.
    """

    order: IntArray
    lost: IntArray
    certain: bool

    @property
    def winner(self) -> int | None:
        """The index of the setting to recommend; None if lost runs could change which one is the first."""
        return int(self.order[0]) if self.certain else None


def rank(values: FloatMatrix, higher: bool, common: bool) -> Ranking:
    """Rank settings by their means; those that lost a run rank behind all that lost none.

    Settings that lost runs are ordered by their means with lost runs counted as the worst observed value. If all
    settings lost some, the first one is certain only if its mean is still the best with the lost runs of all others
    counted as the best.

    Args:
        values: (settings, runs) not finite if lost; at least one value is finite.
        higher: whether higher values are better.
        common: whether the columns are seeds that all settings share.

    Returns:
        The order of the settings.
    """
    import pandas as pd

    sign = 1 if higher else -1
    count, width = values.shape
    signed = np.where(np.isfinite(values), sign * values, np.nan)
    runs = pd.DataFrame(
        {"setting": "all", "repetition": np.tile(np.arange(width), count), "value": signed.ravel()}
    )
    extremes = bounds(runs, common)
    worst, best = (
        np.nanmean(series.to_numpy().reshape(values.shape), axis=1)
        for series in (extremes.lowest, extremes.highest)
    )
    counted = signed[:, np.isfinite(signed).any(axis=0)] if common else signed
    lost = np.isnan(counted).sum(axis=1)
    order = np.lexsort((np.arange(count), -worst, lost > 0))
    first, following = order[0], order[1:]
    return Ranking(order, np.asarray(lost), bool(not lost[first] or (worst[first] > best[following]).all()))

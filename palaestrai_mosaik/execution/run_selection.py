"""Which runs of a folder are executed: those that are missing, or those that are asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.errors import ExecutionError, SchedulerError

from .status import RunState, RunStatus, States

Which = Literal["missing", "unfinished", "failed"]
_FAILED = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.OUT_OF_MEMORY})
_MISSING = frozenset(
    {
        RunStatus.WAITING,
        RunStatus.INTERRUPTED,
        RunStatus.LOST,
        RunStatus.NODE_FAILED,
        RunStatus.CANCELLED,
    }
)
#: which states are executed
CHOSEN: Mapping[Which, frozenset[RunStatus]] = {
    "missing": _MISSING,
    "unfinished": _MISSING | _FAILED,
    "failed": _FAILED,
}


@dataclass(frozen=True, slots=True)
class RunSelection:
    """``chosen``: the runs to be executed; ``before``: how many others have each status."""

    chosen: tuple[RunState, ...]
    before: dict[RunStatus, int]

    @property
    def considered(self) -> int:
        """How many runs were asked about."""
        return len(self.chosen) + sum(self.before.values())


def choose(states: States, which: Which, considered: Collection[str]) -> RunSelection:
    """Choose among the runs with the uids ``considered``.

    Raises :class:`SchedulerError` where a scheduler did not say whether it still has some of them.
    """
    if states.problems:
        raise SchedulerError(
            f"it is not known which runs the cluster still has: {'; '.join(states.problems)} "
            "(--ignore-queue takes them for gone)"
        )
    asked = [state for state in states.runs if state.planned.uid in considered]
    chosen = tuple(state for state in asked if state.status in CHOSEN[which])
    kept = Counter(state.status for state in asked if state.status not in CHOSEN[which])
    return RunSelection(chosen, dict(kept))


def select_runs(folder: DesignFolder, rows: Collection[int] | None) -> set[str]:
    """Return the uids of the runs that are executed for ``rows`` (all of them if ``None``).

    Raises :class:`ExecutionError` for a row that the design does not have.
    """
    if rows is None:
        return {run.uid for run in folder.documents}
    known = {run.row for run in folder.runs}
    strange = sorted(set(rows) - known)
    if strange:
        have = f"rows 0 to {max(known)}" if known else "no rows"
        raise ExecutionError(f"the design has no row {strange[0]}: it has {have}")
    return {run.run for run in folder.runs if run.row in rows}


def row_values(folder: DesignFolder, uids: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """Return what the factors are in the row of each of these runs, by uid."""
    if not uids:
        return {}
    values = folder.values()
    return {run.uid: values[run.row] for run in folder.documents if run.uid in uids}

"""The budget of a search: its spent part, and the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from palaestrai_mosaik.arsenai.design.model import SearchSpec
from palaestrai_mosaik.arsenai.design.search_journal import RUNS
from palaestrai_mosaik.core.text import count

from .settings import first_of, spans_of

#: a span of time: its beginning and its end, in seconds since 1970
Span = tuple[float, float]


def spent(
    search: SearchSpec,
    trials: Sequence[Any],
    spans: Iterable[Span] = (),
    *,
    marked: Collection[int] = (),
    reserve: bool = True,
) -> str | None:
    """Return the limit of the budget that prevents another setting, or None.

    Args:
        search: the search of a design.
        trials: its settings in the journal.
        spans: periods of work that are not in the journal.
        marked: the numbers of settings marked for another execution, which do not count.
        reserve: whether an unsettled setting counts with all its runs, even if some may never be executed, or only
            with the runs that have ended.
    """
    budget = search.budget
    trials = [trial for trial in trials if trial.number not in marked] if marked else trials
    left = runs_left(search, trials, reserve=reserve)
    if budget.runs is not None and left is not None and left < search.seeds:
        return count(budget.runs, "run")
    if budget.steps is not None:
        steps = sum(run["steps"] for trial in trials for run in trial.user_attrs.get(RUNS, ()))
        if steps >= budget.steps:
            return count(budget.steps, "step")
    if budget.hours is not None and _hours(trials, spans) >= budget.hours:
        return f"{budget.hours:g} hour{'s' * (budget.hours != 1)}"
    return None


def runs_left(
    search: SearchSpec, trials: Sequence[Any], *, marked: Collection[int] = (), reserve: bool = True
) -> int | None:
    """Return the number of runs left in the budget, or None if it has no limit on runs. See :func:`spent`."""
    if search.budget.runs is None:
        return None
    counted = (trial for trial in trials if trial.number not in marked)
    return search.budget.runs - sum(
        search.seeds if reserve and not trial.state.is_finished() else _runs_counted(search, trial)
        for trial in counted
    )


def _runs_counted(search: SearchSpec, trial: Any) -> int:
    """Return the number of runs that a setting counts for: those executed, or all if it repeats an earlier one."""
    repeated = first_of(trial) not in (None, trial.number)
    return search.seeds if repeated else len(trial.user_attrs.get(RUNS, ()))


def _hours(trials: Sequence[Any], spans: Iterable[Span]) -> float:
    """Return the hours of work on settings, without counting overlaps twice."""
    every = [span for trial in trials for span in spans_of(trial)]
    total, end = 0.0, -float("inf")
    for started, ended in sorted([*every, *spans]):
        total += max(0.0, ended - max(started, end))
        end = max(end, ended)
    return total / 3600

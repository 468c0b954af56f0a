"""The budget of a search, and its end."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Any

from palaestrai_mosaik.arsenai.design.model import SearchSpec
from palaestrai_mosaik.arsenai.design.settings import RUNS
from palaestrai_mosaik.core.printing import count

from .settings import first_of, setting_of, spans_of, waiting, without


def spent(
    search: SearchSpec,
    trials: Sequence[Any],
    *,
    marked: Collection[int] = (),
    reserve: bool = True,
) -> str | None:
    """Return the limit of the budget that prevents another setting, or None.

    Args:
        search: the search of a design.
        trials: its settings in the journal.
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
    if budget.hours is not None and _hours(trials) >= budget.hours:
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


def _hours(trials: Sequence[Any]) -> float:
    """Return the hours of work on settings, without counting overlaps twice.

    Only the journal counts, so that every process comes to the same result.
    """
    total, end = 0.0, -float("inf")
    for started, ended in sorted(span for trial in trials for span in spans_of(trial)):
        total += max(0.0, ended - max(started, end))
        end = max(end, ended)
    return total / 3600


#: limits on repeated settings in a row, and on failed settings if none has succeeded, at which a search ends
_MOST_REPEATED, _MOST_FAILED = 100, 10


def search_over(search: SearchSpec, trials: Sequence[Any], marked: Collection[int]) -> str | None:
    """Return the reason why a search is over, or None if there are settings to execute or to propose.

    Args:
        search: the search of a design.
        trials: its settings in the journal.
        marked: the numbers of settings marked for another execution.
    """
    if any(not trial.state.is_finished() for trial in trials):
        return None
    return spent(search, trials, marked=marked) or hopeless(trials, marked, _repeated_last(trials))


def hopeless(trials: Sequence[Any], marked: Collection[int], repeated: int) -> str | None:
    """Return the reason why further settings would be useless, or None.

    Args:
        trials: the settings of the search.
        marked: the numbers of settings marked for another execution, which do not count.
        repeated: the number of the latest settings in a row that repeat earlier ones.
    """
    if waiting(trials, marked):
        return None
    if repeated >= _MOST_REPEATED:
        return f"{_MOST_REPEATED} settings in a row had been tried before"
    states = [trial.state.name for trial in without(trials, marked)]
    if states.count("FAIL") >= _MOST_FAILED and not {"COMPLETE", "PRUNED"} & set(states):
        return f"the first {states.count('FAIL')} settings failed"
    return None


def _repeated_last(trials: Sequence[Any]) -> int:
    """Count the latest settings in a row that repeat earlier ones."""
    settings = map(setting_of, reversed(trials))
    return sum(
        1
        for _ in takewhile(lambda setting: setting is not None and setting.first != setting.number, settings)
    )

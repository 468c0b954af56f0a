"""The budget of a search, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from palaestrai_mosaik.arsenai.design.model import SearchSpec
from palaestrai_mosaik.arsenai.design.settings import RUNS
from palaestrai_mosaik.core.printing import count

from .settings import Trials, first_of, setting_of, spans_of


def spent(search: SearchSpec, trials: Trials, *, reserve: bool = True) -> str | None:
    """Return the limit of the budget that prevents another setting, or None.

    Args:
        search: the search of a design.
        trials: its settings in the journal. Those marked for a retry do not count.
        reserve: whether an unsettled setting counts with all its runs, even if some may never be executed, or only
            with the runs that have ended.
    """
    budget, counted = search.budget, trials.counted
    left = runs_left(search, trials, reserve=reserve)
    if budget.runs is not None and left is not None and left < search.seeds:
        return count(budget.runs, "run")
    if budget.steps is not None:
        steps = sum(run["steps"] for trial in counted for run in trial.user_attrs.get(RUNS, ()))
        if steps >= budget.steps:
            return count(budget.steps, "step")
    if budget.hours is not None and _hours(counted) >= budget.hours:
        return f"{budget.hours:g} hour{'s' * (budget.hours != 1)}"
    return None


def runs_left(search: SearchSpec, trials: Trials, *, reserve: bool = True) -> int | None:
    """Return the number of runs left in the budget, or None if it has no limit on runs. See :func:`spent`."""
    if search.budget.runs is None:
        return None
    return search.budget.runs - sum(
        search.seeds if reserve and not trial.state.is_finished() else _runs_counted(search, trial)
        for trial in trials.counted
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


def search_over(search: SearchSpec, trials: Trials) -> str | None:
    """Return the reason why a search is over, or None if there are settings to execute or to propose."""
    if any(not trial.state.is_finished() for trial in trials.all):
        return None
    settings = map(setting_of, reversed(trials.all))
    repeated = takewhile(lambda setting: setting is not None and setting.first != setting.number, settings)
    return spent(search, trials) or hopeless(trials, len(list(repeated)))


def hopeless(trials: Trials, repeated: int) -> str | None:
    """Return the reason why further settings would be useless, or None.

    Args:
        trials: the settings of the search. Those marked for a retry, and repetitions of them, do not count.
        repeated: the number of the latest settings in a row that repeat earlier ones.
    """
    if trials.waiting:
        return None
    if repeated >= _MOST_REPEATED:
        return f"{_MOST_REPEATED} settings in a row had been tried before"
    states = [trial.state.name for trial in trials.all if first_of(trial) not in trials.marked]
    if states.count("FAIL") >= _MOST_FAILED and not {"COMPLETE", "PRUNED"} & set(states):
        return f"the first {states.count('FAIL')} settings failed"
    return None

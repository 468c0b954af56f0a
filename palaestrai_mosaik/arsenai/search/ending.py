"""The end of a search."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Any

from palaestrai_mosaik.arsenai.design.model import SearchSpec

from .budget import spent
from .retries import waiting, without
from .settings import setting_of

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

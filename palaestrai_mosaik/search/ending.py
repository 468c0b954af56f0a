"""Why a search is over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import takewhile
from typing import Any

from palaestrai_mosaik.design.model import SearchSpec
from palaestrai_mosaik.execution.journal import Journal

from .budget import spent
from .retries import marked_settings, waiting, without
from .settings import setting_of

#: a search ends that proposes so many settings in a row that it has proposed before, or where so many fail and none does not
_MOST_REPEATED, _MOST_FAILED = 100, 10


def search_over(search: SearchSpec, journal: Journal) -> str | None:
    """Return why a search is over; ``None``: there are settings to execute or to propose."""
    marked, trials = marked_settings(journal), journal.trials()
    if any(not trial.state.is_finished() for trial in trials):
        return None
    return spent(search, trials, marked=marked) or hopeless(trials, marked, _repeated_last(trials))


def hopeless(trials: Sequence[Any], marked: Collection[int], repeated: int) -> str | None:
    """Return why other settings would be of no use; ``repeated``: so many in a row had been proposed before.

    Those that are ``marked`` are executed again, and do not count.
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
    """Return how many of the newest settings in a row had been proposed before."""
    settings = map(setting_of, reversed(trials))
    return sum(1 for _ in takewhile(lambda one: one is not None and one.first != one.number, settings))

"""Settings that failed by themselves, and are executed again because the user asks for it.

The user mends what made them fail, and asks. Then the journal says which settings these are (an attribute of the
study, as Optuna changes no trial that has ended): one line for all of them, so a process that is killed has marked all
or none. Whoever proposes next takes their points first, each as a setting of its own with the seeds of the one that
failed. The failed one no longer counts for the budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.execution.job import now
from palaestrai_mosaik.execution.journal import Journal

from .settings import RETRIES, SETTING, first_of

#: the attribute of the study: the numbers of the settings to be executed again, and since when
_RETRY = "retry"


def marked_settings(journal: Journal) -> frozenset[int]:
    """Return the numbers of the failed settings that were executed again, or are to be."""
    return frozenset(map(int, _marks(journal)))


def mark(journal: Journal, numbers: Collection[int]) -> None:
    """Mark the settings ``numbers`` to be executed again. The caller has the turn to propose."""
    if numbers:
        marks = {**_marks(journal), **dict.fromkeys(map(str, numbers), now())}
        journal.storage.set_study_user_attr(journal.study._study_id, _RETRY, marks)


def _marks(journal: Journal) -> Mapping[str, str]:
    found: Mapping[str, str] = journal.storage.get_study_user_attrs(journal.study._study_id).get(_RETRY, {})
    return found


def failed_by_themselves(trials: Sequence[Any], marked: Collection[int]) -> list[int]:
    """Return the settings of which a run has failed, and which are not marked yet.

    Repeats of others are left out: they have no runs of their own.
    """
    failed = (trial for trial in trials if trial.state.name == "FAIL" and trial.number not in marked)
    return [trial.number for trial in failed if first_of(trial) == trial.number]


def waiting(trials: Sequence[Any], marked: Collection[int]) -> list[int]:
    """Return which of the settings that are ``marked`` have not been proposed again yet, in order."""
    if not marked:
        return []
    return sorted(set(marked) - {trial.user_attrs.get(RETRIES) for trial in trials})


def replaced(trials: Sequence[Any]) -> set[int]:
    """Return the settings that another one replaces by now."""
    return {trial.user_attrs[RETRIES] for trial in trials if {RETRIES, SETTING} <= trial.user_attrs.keys()}


def without(trials: Sequence[Any], marked: Collection[int]) -> Iterator[Any]:
    """Yield the trials that are neither ``marked`` nor repeats of one that is."""
    return (trial for trial in trials if first_of(trial) not in marked) if marked else iter(trials)

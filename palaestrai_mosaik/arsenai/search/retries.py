"""Failed settings that are executed again on request.

The user fixes the cause of the failures, and requests the retry. The journal then marks these settings in an attribute
of the study, because Optuna does not change finished trials. The attribute is one line, so a process that is killed has
marked all or none. The next proposals are their points, each as a new setting with the seeds of the failed one. The
failed one no longer counts for the budget.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.arsenai.design.search_journal import RETRIES, RETRY, SETTING
from palaestrai_mosaik.arsenai.execution.job import now
from palaestrai_mosaik.arsenai.execution.journal import Journal

from .settings import first_of


def marked_settings(journal: Journal) -> frozenset[int]:
    """Return the numbers of the marked settings, retried or not."""
    return frozenset(map(int, _marks(journal)))


def mark(journal: Journal, numbers: Collection[int]) -> None:
    """Mark the settings ``numbers`` for another execution. The caller must have the turn to propose."""
    if numbers:
        marks = {**_marks(journal), **dict.fromkeys(map(str, numbers), now())}
        journal.storage.set_study_user_attr(journal.study._study_id, RETRY, marks)


def _marks(journal: Journal) -> Mapping[str, str]:
    marks: Mapping[str, str] = journal.storage.get_study_user_attrs(journal.study._study_id).get(RETRY, {})
    return marks


def failed_by_themselves(trials: Sequence[Any], marked: Collection[int]) -> list[int]:
    """Return the settings with a failed run that are not marked yet.

    Settings that repeat others are left out, because they have no runs of their own.
    """
    failed = (trial for trial in trials if trial.state.name == "FAIL" and trial.number not in marked)
    return [trial.number for trial in failed if first_of(trial) == trial.number]


def waiting(trials: Sequence[Any], marked: Collection[int]) -> list[int]:
    """Return the ``marked`` settings that have not been proposed again yet, in order."""
    if not marked:
        return []
    return sorted(set(marked) - {trial.user_attrs.get(RETRIES) for trial in trials})


def replaced(trials: Sequence[Any]) -> set[int]:
    """Return the settings that have been proposed again."""
    return {trial.user_attrs[RETRIES] for trial in trials if {RETRIES, SETTING} <= trial.user_attrs.keys()}


def without(trials: Sequence[Any], marked: Collection[int]) -> Iterator[Any]:
    """Yield the trials that are neither ``marked`` nor repetitions of a marked one."""
    return (trial for trial in trials if first_of(trial) not in marked) if marked else iter(trials)

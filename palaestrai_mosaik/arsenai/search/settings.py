"""The settings of a search in its journal, and failed ones that are marked for a retry.

Optuna does not change finished trials, so marks are an attribute of the study. The next proposals are the points of marked
settings, each as a new setting with the seeds of the failed one, which no longer counts for the budget.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from palaestrai_mosaik.arsenai.design.folder import PlannedRun
from palaestrai_mosaik.arsenai.design.growing import Setting
from palaestrai_mosaik.arsenai.design.settings import (
    RETRIES,
    RETRY,
    RUNS,
    SETTING,
    EndedRun,
    SettingRecord,
    record_of,
)
from palaestrai_mosaik.arsenai.execution.job import now
from palaestrai_mosaik.arsenai.execution.journal import Journal

from .claims import Claim

#: attribute of a trial: the workers that took it over
TAKEN_OVER = "taken_over"


@dataclass
class Working:
    """A setting in progress in this process: its runs, the ended ones, and its claim."""

    setting: Setting
    runs: list[PlannedRun]
    claim: Claim
    ended: list[EndedRun] = field(default_factory=list)

    @property
    def number(self) -> int:
        """The number of the setting."""
        return self.setting.number


def setting_of(trial: Any) -> Setting | None:
    """Return the setting of a trial, or None while it is being proposed."""
    attributes = trial.user_attrs.get(SETTING)
    if attributes is None:
        return None
    return Setting(
        trial.number, tuple(attributes["unit"]), tuple(attributes["name"]), int(attributes["first"])
    )


def runs_of(trial: Any) -> list[EndedRun]:
    """Return the runs of a trial that have ended."""
    return [EndedRun(**plain) for plain in trial.user_attrs.get(RUNS, ())]


def first_of(trial: Any) -> int | None:
    """Return the number of the first setting that equals that of a trial, or None while it is being proposed."""
    # Called for all trials before each proposal, so it creates no objects.
    number: int | None = trial.user_attrs.get(SETTING, {}).get("first")
    return number


def spans_of(trial: Any) -> list[tuple[float, float]]:
    """Return the periods of work on a trial, in seconds: from its proposal to its end, or those of its runs.

    A trial that was taken over, or is not settled yet, may have been idle between its runs.
    """
    if trial.datetime_complete is not None and TAKEN_OVER not in trial.user_attrs:
        return [(trial.datetime_start.timestamp(), trial.datetime_complete.timestamp())]
    return [
        (datetime.fromisoformat(run.started).timestamp(), datetime.fromisoformat(run.ended).timestamp())
        for run in runs_of(trial)
    ]


@dataclass(frozen=True, slots=True)
class Trials:
    """The settings of a search in order (``all``), and the numbers of those ``marked`` for a retry, retried or not."""

    all: Sequence[Any]
    marked: frozenset[int] = frozenset()

    @classmethod
    def of(cls, journal: Journal) -> Trials:
        """Read the settings in a journal."""
        marked = marked_settings(journal)
        return cls(journal.trials(), marked)

    def records(self) -> list[SettingRecord]:
        """Return the records of the settings."""
        return [record_of(trial, self.marked) for trial in self.all]

    @property
    def counted(self) -> list[Any]:
        """The settings that count for the budget: all but the marked ones."""
        return [trial for trial in self.all if trial.number not in self.marked]

    @property
    def failed(self) -> list[int]:
        """The settings with a failed run that are not marked yet.

        Settings that repeat others are left out, because they have no runs of their own.
        """
        failed = (trial for trial in self.counted if trial.state.name == "FAIL")
        return [trial.number for trial in failed if first_of(trial) == trial.number]

    @property
    def waiting(self) -> list[int]:
        """The marked settings that have not been proposed again yet, in order."""
        if not self.marked:
            return []
        return sorted(self.marked - {trial.user_attrs.get(RETRIES) for trial in self.all})


def marked_settings(journal: Journal) -> frozenset[int]:
    """Return the numbers of the settings that are marked for a retry, retried or not."""
    return frozenset(map(int, _marks(journal)))


def retried(trials: Sequence[Any]) -> set[int]:
    """Return the numbers of the settings that have been proposed again."""
    return {trial.user_attrs[RETRIES] for trial in trials if {RETRIES, SETTING} <= trial.user_attrs.keys()}


def mark(journal: Journal, numbers: Collection[int]) -> None:
    """Mark the settings ``numbers`` for a retry. The caller must have the turn to propose."""
    if numbers:
        marks = {**_marks(journal), **dict.fromkeys(map(str, numbers), now())}
        journal.storage.set_study_user_attr(journal.study._study_id, RETRY, marks)


def _marks(journal: Journal) -> Mapping[str, str]:
    marks: Mapping[str, str] = journal.storage.get_study_user_attrs(journal.study._study_id).get(RETRY, {})
    return marks

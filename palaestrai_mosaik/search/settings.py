"""A setting of a search: what the journal has of it, and who is at work on it."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import PlannedRun
from palaestrai_mosaik.design.growing import Setting
from palaestrai_mosaik.design.settings_table import SettingRecord, SettingState
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.execution.claim import Heartbeat, claim
from palaestrai_mosaik.execution.early_stopping import STOPPED
from palaestrai_mosaik.execution.job import Job, Marker
from palaestrai_mosaik.execution.journal import FOLDER
from palaestrai_mosaik.runner import Interrupt
from palaestrai_mosaik.store.location import StoreLocation

#: the attributes of a trial: its point and who proposed it; its runs that have ended; why it failed; who took it over
SETTING, RUNS, REASON, TAKEN_OVER = "setting", "runs", "reason", "taken_over"
#: the attribute of a trial that executes a failed setting again: the number of the failed one
RETRIES = "retries"
#: the folder of the markers of workers
_MARKERS = "settings"
#: claims that are none to a setting: to propose one, and to write the tables
PROPOSING, TABLES = "proposing", "tables"


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run of a setting that has ended: as plain data, which the journal keeps.

    ``outcomes`` are those that are sought, by name; ``reports`` how many the setting has made until its end.
    """

    run: str
    instance: str
    status: str
    steps: int
    started: str
    ended: str
    outcomes: dict[str, float]
    reports: int

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> EndedRun:
        """Return what :meth:`plain` has made plain."""
        return cls(**plain)

    def plain(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


@dataclass
class Working:
    """A setting that this process is at work on: its runs, those of them that have ended, its claim."""

    setting: Setting
    runs: list[PlannedRun]
    claim: Claim
    ended: list[EndedRun] = field(default_factory=list)

    @property
    def number(self) -> int:
        """The number of the setting."""
        return self.setting.number


class Claim:
    """The right to do what one process of a search does at a time: a marker as runs have one, of that process."""

    def __init__(self, job: Job, marker: Marker):
        self._job, self._held = job, True
        self._beat = Heartbeat(job, marker, Interrupt())
        self._beat.__enter__()

    @classmethod
    def take(cls, folder: Path, study: str, name: str, task: str | None) -> Claim | None:
        """Take what is called ``name`` in the search in ``folder``; ``None`` where another process has it.

        ``task`` is what a scheduler calls the task of this process, if it belongs to one.
        """
        place = claims_folder(folder)
        try:
            files.make_folder(place)
        except OSError as error:
            raise ExecutionError(f"cannot write to {place}: {error.strerror}") from error
        job = Job(name, study, folder, place / name, StoreLocation(str(folder)), task=task)
        marker = claim(job)
        return None if marker is None else cls(job, marker)

    def release(self) -> None:
        """Give it back; a second time, nothing is done: another process may have it by then."""
        if not self._held:
            return
        self._held = False
        self._beat.__exit__()
        files.remove(self._job.marker, missing_ok=True)


def claims_folder(folder: Path) -> Path:
    """Return the folder of the markers of those who work on the search in the design folder ``folder``."""
    return folder / FOLDER / _MARKERS


def setting_claim(number: int) -> str:
    """Return what a :class:`Claim` to the setting ``number`` is called."""
    return f"setting-{number}"


def worker_name(task: str | None) -> str:
    """Return what the journal calls this process."""
    name = f"{socket.gethostname()}:{os.getpid()}"
    return name if task is None else f"{name} ({task})"


def setting_of(trial: Any) -> Setting | None:
    """Return the row of a trial; ``None`` while it is being proposed."""
    found = trial.user_attrs.get(SETTING)
    if found is None:
        return None
    return Setting(trial.number, tuple(found["unit"]), tuple(found["name"]), int(found["first"]))


def runs_of(trial: Any) -> list[EndedRun]:
    """Return the runs of a trial that have ended."""
    return [EndedRun.of(plain) for plain in trial.user_attrs.get(RUNS, ())]


def first_of(trial: Any) -> int | None:
    """Return the number of the first setting that is the same as that of a trial; ``None`` while it is being proposed."""
    # (it is asked of all of them before each proposal, so no object is made of any)
    found: int | None = trial.user_attrs.get(SETTING, {}).get("first")
    return found


def record_of(trial: Any, marked: Collection[int] = ()) -> SettingRecord:
    """Return what became of a trial; ``marked`` are the numbers of those that are executed again."""
    states: dict[str, SettingState] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    state = "retried" if trial.number in marked else states.get(trial.state.name, "running")
    found, runs = trial.user_attrs.get(SETTING, {}), runs_of(trial)
    values: tuple[float, ...] = ()
    if state == "complete":
        values = tuple(trial.values)
    elif state == "pruned" and trial.intermediate_values:
        values = (trial.intermediate_values[max(trial.intermediate_values)],)
    stopped = trial.user_attrs.get(STOPPED)
    why = str(trial.user_attrs.get(REASON, ""))
    if state == "pruned" and stopped is not None and not why:
        why = f"report {stopped['report'] + 1}"
    first = found.get("first")
    told = trial.datetime_complete
    return SettingRecord(
        trial.number,
        state,
        values,
        len(runs),
        sum(run.steps for run in runs),
        round(sum(seconds_between(run.started, run.ended) for run in runs), 3),
        None if first in (None, trial.number) else int(first),
        int(found.get("rejected", 0)),
        str(found.get("worker", "")),
        str(found.get("asked", "")),
        "" if told is None else told.astimezone(UTC).isoformat(timespec="milliseconds"),
        why,
        trial.user_attrs.get(RETRIES),
    )


def spans_of(trial: Any) -> list[tuple[float, float]]:
    """Return when a trial was worked on, in seconds: from its proposal to its end, or while its runs were executed.

    It lay idle in between where it was taken over, or is not told yet.
    """
    if trial.datetime_complete is not None and TAKEN_OVER not in trial.user_attrs:
        return [(trial.datetime_start.timestamp(), trial.datetime_complete.timestamp())]
    return [
        (datetime.fromisoformat(run.started).timestamp(), datetime.fromisoformat(run.ended).timestamp())
        for run in runs_of(trial)
    ]


def seconds_between(started: str, ended: str) -> float:
    """Return the seconds between two times in ISO 8601."""
    return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds())


def is_number(value: float) -> bool:
    """Whether an outcome can be compared."""
    return math.isfinite(value)

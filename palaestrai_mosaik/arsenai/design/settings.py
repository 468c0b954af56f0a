"""The settings of a search: read from its journal without Optuna, and written as a table.

``search/journal.log`` is Optuna's journal, a JSON object per line. ``search/settings.csv`` is written from it, so it may be
older or missing, and is read only if there is no journal.
"""

from __future__ import annotations

import csv
import io
import json
import math
import operator
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, get_args

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.core.printing import listed

#: path of the file, relative to the folder of the design
SETTINGS = "search/settings.csv"

SettingState = Literal["running", "complete", "pruned", "failed", "retried", "lost"]
#: largest number of settings named in a line of text
_NAMED = 10


@dataclass(frozen=True, slots=True)
class SettingRecord:
    """A setting: the row of the design with this number.

    Attributes:
        number: number of the row.
        state: state of the setting. A failed one becomes ``"retried"`` as soon as a user asks to execute it again.
            If results of its runs are lost, it is ``"lost"`` and counts as not executed; the table never has this.
        values: means of the objectives over its seeds; empty if it is not complete. The last reported value if it was
            pruned.
        runs: number of its executed runs.
        steps: number of steps of environments in them.
        seconds: their duration.
        first: number of the earlier setting with identical documents, if there is one.
        rejected: number of proposals that constraints rejected before this one.
        worker: worker that executed it.
        asked: time of its proposal, UTC in ISO 8601.
        told: time of its result, UTC in ISO 8601.
        why: message of the pruner or the failure.
        retries: number of the failed setting that this one executes again.
    """

    number: int
    state: SettingState
    values: tuple[float, ...] = ()
    runs: int = 0
    steps: int = 0
    seconds: float = 0.0
    first: int | None = None
    rejected: int = 0
    worker: str = ""
    asked: str = ""
    told: str = ""
    why: str = ""
    retries: int | None = None

    def has_result(self, repetition: int) -> bool:
        """Whether a run of the setting has ended, and the search uses its result."""
        # The runs of a setting are executed in order.
        return self.state in ("complete", "pruned", "running") and repetition < self.runs


_NAMES = tuple(field.name for field in fields(SettingRecord))
_VALUES, _VALUE = "values", "values_{}"


def write_settings(path: Path, settings: Sequence[SettingRecord], objectives: Sequence[str]) -> None:
    """Write the table of a search into a design folder, replacing the former one.

    Args:
        path: the design folder.
        settings: all settings, in order.
        objectives: names of the objectives, in order.

    Raises:
        ExecutionError: the table cannot be written.
    """
    columns = [_VALUE.format(name) for name in objectives] if len(objectives) > 1 else [_VALUES]
    index = _NAMES.index(_VALUES)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_NAMES[:index], *columns, *_NAMES[index + 1 :]])
    for setting in settings:
        cells = ["" if (cell := getattr(setting, name)) is None else cell for name in _NAMES]
        # a setting that is not complete has no values
        values = [*map(repr, setting.values), *[""] * len(columns)][: len(columns)]
        writer.writerow([*cells[:index], *values, *cells[index + 1 :]])
    try:
        files.make_folder((path / SETTINGS).parent)
        files.write_text(path / SETTINGS, text.getvalue(), durable=False)
    except OSError as error:
        raise ExecutionError(f"cannot write {path / SETTINGS}: {error.strerror}") from error


def read_table(path: Path) -> list[SettingRecord]:
    """Read the table of the search in the design folder ``path``, which may be older than the journal.

    Returns:
        The settings, in order; an empty list if the table does not exist yet.

    Raises:
        ExecutionError: the table was edited.
    """
    try:
        with files.open_text(path / SETTINGS, newline="") as stream:
            return list(_records(csv.DictReader(stream)))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExecutionError(f"{path / SETTINGS} is not the table of a search: {error}") from error


def _records(lines: Iterator[dict[str, str]] | csv.DictReader[str]) -> Iterator[SettingRecord]:
    for line in lines:
        if line["state"] not in get_args(SettingState):
            raise ValueError(f"unknown state {json.dumps(line['state'])}")
        cells = {name: convert(line[name]) for name, convert in _CONVERTERS.items()}
        yield SettingRecord(values=_values(line), **cells)


def _maybe_int(cell: str) -> int | None:
    return int(cell) if cell else None


#: conversions of the cells of a setting, except for its values
_CONVERTERS: Mapping[str, Callable[[str], Any]] = {
    **dict.fromkeys((name for name in _NAMES if name != _VALUES), str),
    **dict.fromkeys(("number", "runs", "steps", "rejected"), int),
    **dict.fromkeys(("first", "retries"), _maybe_int),
    "seconds": float,
}


def _values(line: dict[str, str]) -> tuple[float, ...]:
    cells = [cell for name, cell in line.items() if name == _VALUES or name.startswith(_VALUE.format(""))]
    if not cells:
        raise KeyError(_VALUES)
    return tuple(float(cell) for cell in cells if cell)


def count_failed(settings: Sequence[SettingRecord]) -> int:
    """Return how many settings have failed and will not be executed again, without duplicates of others."""
    return sum(setting.state == "failed" and setting.first is None for setting in settings)


def failure_reasons(settings: Sequence[SettingRecord]) -> dict[int, str]:
    """Return the failure messages of settings, by number."""
    return {setting.number: setting.why for setting in settings if setting.state == "failed"}


def retries_of(settings: Sequence[SettingRecord]) -> dict[int, int | None]:
    """Map each failed setting that is retried to the setting that executes it again, or to None until there is one."""
    retries: dict[int, int | None] = {
        setting.number: None for setting in settings if setting.state == "retried"
    }
    return retries | {setting.retries: setting.number for setting in settings if setting.retries is not None}


def retries_text(settings: Sequence[SettingRecord]) -> str:
    """Describe which failed settings are executed again, and as which settings; empty without any."""
    retries = retries_of(settings).items()
    words = [f"{failed} (not yet)" if by is None else f"{failed} as {by}" for failed, by in retries]
    return f"tried again: setting {listed(words, most=_NAMED)}" if words else ""


#: the folder of a search in its design folder, and its journal
FOLDER, JOURNAL = "search", "journal.log"
#: attributes of a trial: its point and proposer; its ended runs; the reason for its failure
SETTING, RUNS, REASON = "setting", "runs", "reason"
#: attributes of a trial: the failed setting that it retries; the report at which the pruner stopped it
RETRIES, STOPPED = "retries", "stopped"
#: attribute of the study: the numbers of the settings marked for another execution, with the times of their requests
RETRY = "retry"
#: the advice for a damaged line
DAMAGED = (
    "this line of the search's journal is damaged; put back a copy of the file, or delete the lines from there on: the "
    "search then continues with what stands before"
)

# Optuna's numbers of the operations
_STUDY, _STUDY_ATTRIBUTE, _NEW_TRIAL, _STATE, _REPORT, _ATTRIBUTE = 0, 2, 4, 6, 7, 8
#: the operations that a search writes: it deletes no study (1), and discards no trials (10)
_OPERATIONS = (0, *range(2, 10))
#: the errors of a malformed line
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
#: seconds before a damaged line is read again: over NFS, a reader may see the new size of a file before its content
_PAUSES = (0.1, 0.5)
#: largest whole number that is exact in all tables and in JavaScript
_LARGEST = 2**53


class TrialState(IntEnum):
    """The state of a trial, with Optuna's numbers and names."""

    RUNNING = 0
    COMPLETE = 1
    PRUNED = 2
    FAIL = 3
    WAITING = 4

    def is_finished(self) -> bool:
        """Whether the trial has a result."""
        return self not in (TrialState.RUNNING, TrialState.WAITING)


@dataclass
class Trial:
    """A setting in the journal, with the attributes of Optuna's trials."""

    number: int
    datetime_start: datetime
    state: TrialState = TrialState.RUNNING
    values: list[float] = field(default_factory=list)
    user_attrs: dict[str, Any] = field(default_factory=dict)
    intermediate_values: dict[int, float] = field(default_factory=dict)
    datetime_complete: datetime | None = None


@dataclass(frozen=True, slots=True)
class EndedRun:
    """An ended run of a setting, as the journal stores it.

    Attributes:
        run: uid of the run.
        instance: its uid in the store, or empty.
        status: the status of its record.
        steps: number of steps.
        started: time of its start, in ISO 8601.
        ended: time of its end, in ISO 8601.
        outcomes: the objectives, by name.
        reports: number of reports of the setting up to the end of the run.
    """

    run: str
    instance: str
    status: str
    steps: int
    started: str
    ended: str
    outcomes: dict[str, float]
    reports: int


@dataclass(frozen=True, slots=True)
class SearchJournal:
    """The content of a search's journal at one moment.

    Attributes:
        settings: the settings, in order.
        trials: the trial of each setting; empty if there is only the table of settings.
        marked: the numbers of settings marked for another execution.
    """

    settings: tuple[SettingRecord, ...] = ()
    trials: tuple[Trial, ...] = ()
    marked: frozenset[int] = frozenset()


def read_journal(path: Path) -> SearchJournal:
    """Read the journal of the search in the design folder ``path``; without one, the table of settings.

    An unfinished last line is ignored: it is being written, or was left by a killed process.

    Raises:
        ExecutionError: the journal is damaged, or cannot be read.
    """
    file = path / FOLDER / JOURNAL
    try:
        for pause in _PAUSES:
            with suppress(_DamagedLine):
                return _read(file)
            time.sleep(pause)
        return _read(file)
    except FileNotFoundError:
        return SearchJournal(tuple(read_table(path)))
    except OSError as error:
        raise ExecutionError(f"cannot read {file}: {error.strerror}") from error


class _DamagedLine(ExecutionError):
    """A line is malformed."""


def _read(file: Path) -> SearchJournal:
    replay = _Replay()
    with files.open_read(file) as stream:
        for number, line in enumerate(stream, 1):
            if not line.endswith(b"\n"):
                break
            try:
                replay.apply(json.loads(line))
            except _MALFORMED as error:
                raise _DamagedLine(f"{file}:{number}: {DAMAGED}") from error
    settings = tuple(record_of(trial, replay.marked) for trial in replay.trials)
    return SearchJournal(settings, tuple(replay.trials), replay.marked)


def parse(line: bytes) -> dict[str, Any] | None:
    """Return the entry of a line; ``None`` if it is damaged."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) and entry.get("op_code") in _OPERATIONS else None


class _Replay:
    """Applies the entries of a journal as Optuna does, and checks their values."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.marked: frozenset[int] = frozenset()
        self._objectives: int | None = None

    def apply(self, entry: Mapping[str, Any]) -> None:
        """Apply one entry; raise one of the errors :data:`_MALFORMED`."""
        operation = entry["op_code"]
        if operation not in _OPERATIONS:
            raise ValueError(f"unknown operation {operation}")
        if operation == _STUDY:
            # Each process that opens the journal appends this entry again.
            self._objectives = self._objectives or len(entry["directions"])
            if not self._objectives:
                raise ValueError("no objectives")
        elif operation == _STUDY_ATTRIBUTE and RETRY in entry["user_attr"]:
            self.marked = frozenset(map(int, entry["user_attr"][RETRY]))
        elif operation == _NEW_TRIAL:
            self.trials.append(Trial(len(self.trials), _utc(entry["datetime_start"])))
        elif operation in (_STATE, _REPORT, _ATTRIBUTE):
            trial = self.trials[_integer(entry["trial_id"])]
            # Ended trials no longer change.
            if not trial.state.is_finished():
                self._change(trial, operation, entry)

    def _change(self, trial: Trial, operation: int, entry: Mapping[str, Any]) -> None:
        if operation == _REPORT:
            trial.intermediate_values[_integer(entry["step"])] = _finite(entry["intermediate_value"])
        elif operation == _ATTRIBUTE:
            for name, value in entry["user_attr"].items():
                check = _CHECKS.get(name)
                trial.user_attrs[name] = value if check is None else check(value)
        else:
            trial.state = TrialState(entry["state"])
            trial.values = list(map(_finite, entry["values"] or ()))
            if trial.state is TrialState.COMPLETE and len(trial.values) != self._objectives:
                raise ValueError(f"{len(trial.values)} values of {self._objectives} objectives")
            if trial.state.is_finished():
                trial.datetime_complete = _utc(entry["datetime_complete"])


def _integer(value: Any) -> int:
    number = operator.index(value)
    if not 0 <= number <= _LARGEST:
        raise ValueError(f"{number} is negative or too large")
    return number


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a string")
    return value


def _utc(value: str) -> datetime:
    return datetime.fromisoformat(value).astimezone(UTC)


def _setting(value: Mapping[str, Any]) -> Mapping[str, Any]:
    unit = list(map(_finite, value["unit"]))
    if not all(0 <= coordinate <= 1 for coordinate in unit):
        raise ValueError("not a point of the unit cube")
    return {
        **value,
        "unit": unit,
        "name": list(value["name"]),
        "hash": _string(value["hash"]),
        "values": _string(value["values"]),
        "first": _integer(value["first"]),
        "rejected": _integer(value["rejected"]),
    }


def _run(value: Mapping[str, Any]) -> Mapping[str, Any]:
    run = EndedRun(**value)
    seconds_between(run.started, run.ended)
    for text in (run.run, run.instance, run.status):
        _string(text)
    # An outcome that is not finite is the reason for a failure.
    outcomes = {name: float(outcome) for name, outcome in run.outcomes.items()}
    return {
        **value,
        "steps": _integer(run.steps),
        "reports": _integer(run.reports),
        "outcomes": outcomes,
    }


#: checks and converts the attributes of a trial
_CHECKS: Mapping[str, Callable[[Any], Any]] = {
    SETTING: _setting,
    RUNS: lambda runs: list(map(_run, runs)),
    REASON: str,
    RETRIES: _integer,
    STOPPED: lambda stopped: {"report": _integer(stopped["report"]), "value": _finite(stopped["value"])},
}


#: states of settings by Optuna's names; trials in other states are running
_STATES: Mapping[str, SettingState] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}


def record_of(trial: Any, marked: Collection[int] = ()) -> SettingRecord:
    """Return the record of a trial.

    Args:
        trial: the trial, from here or from Optuna.
        marked: the numbers of trials marked for another execution.
    """
    attributes, runs = trial.user_attrs.get(SETTING, {}), trial.user_attrs.get(RUNS, ())
    state: SettingState = "retried" if trial.number in marked else _STATES.get(trial.state.name, "running")
    first, completed = attributes.get("first"), trial.datetime_complete
    return SettingRecord(
        trial.number,
        state,
        _values_of(trial, state),
        len(runs),
        sum(run["steps"] for run in runs),
        round(sum(seconds_between(run["started"], run["ended"]) for run in runs), 3),
        None if first in (None, trial.number) else int(first),
        int(attributes.get("rejected", 0)),
        str(attributes.get("worker", "")),
        str(attributes.get("asked", "")),
        "" if completed is None else completed.astimezone(UTC).isoformat(timespec="milliseconds"),
        _reason(trial, state),
        trial.user_attrs.get(RETRIES),
    )


def _values_of(trial: Any, state: SettingState) -> tuple[float, ...]:
    """Return the means of the objectives, or the last report of a pruned trial."""
    if state == "complete":
        return tuple(trial.values)
    reports = trial.intermediate_values if state == "pruned" else {}
    return (reports[max(reports)],) if reports else ()


def _reason(trial: Any, state: SettingState) -> str:
    """Return the message of the failure or the pruner."""
    why, stopped = str(trial.user_attrs.get(REASON, "")), trial.user_attrs.get(STOPPED)
    return f"report {stopped['report'] + 1}" if state == "pruned" and stopped is not None and not why else why


def seconds_between(started: str, ended: str) -> float:
    """Return the seconds between two times in ISO 8601."""
    return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds())

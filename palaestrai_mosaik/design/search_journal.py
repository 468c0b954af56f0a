"""The settings of a search, read from its journal without Optuna.

``search/journal.log`` is Optuna's journal, a JSON object per line (:mod:`palaestrai_mosaik.execution.journal_file` writes it).
It is all that a search knows. ``search/settings.csv`` is made from it, and may be older or missing, so nothing here trusts
that table as long as there is a journal.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import ExecutionError

from .settings_table import SettingRecord, SettingState, read_table

#: the folder of a search in its design's folder, and its journal
FOLDER, JOURNAL = "search", "journal.log"
#: attributes of a trial: its point and proposer; its ended runs; the reason for its failure
SETTING, RUNS, REASON = "setting", "runs", "reason"
#: attributes of a trial: the failed setting that it executes again; where the pruner has stopped it
RETRIES, STOPPED = "retries", "stopped"
#: attribute of the study: the numbers of the settings to be executed again, with the times of their requests
RETRY = "retry"

# Optuna's numbers of the entries of a journal.
_STUDY_ATTRIBUTE, _NEW_TRIAL, _STATE, _REPORT, _ATTRIBUTE = 2, 4, 6, 7, 8


class _State(IntEnum):
    """The states of a trial, with Optuna's numbers and names."""

    RUNNING = 0
    COMPLETE = 1
    PRUNED = 2
    FAIL = 3
    WAITING = 4


@dataclass
class _Trial:
    """What a journal says of a setting, under the names that Optuna's trials have."""

    number: int
    state: _State = _State.RUNNING
    values: list[float] = field(default_factory=list)
    user_attrs: dict[str, Any] = field(default_factory=dict)
    intermediate_values: dict[int, float] = field(default_factory=dict)
    datetime_complete: datetime | None = None


def read_settings(path: Path) -> list[SettingRecord]:
    """Read the settings of the search in the design folder ``path``, in order.

    Without a journal, those of the table, which may be older.

    Returns:
        The settings; an empty list if there is no search yet.

    Raises:
        ExecutionError: the journal is damaged, or cannot be read.
    """
    file = path / FOLDER / JOURNAL
    try:
        with files.open_read(file) as stream:
            lines = stream.read().split(b"\n")
    except FileNotFoundError:
        return read_table(path)
    except OSError as error:
        raise ExecutionError(f"cannot read {file}: {error.strerror}") from error
    trials: list[_Trial] = []
    marked: Mapping[str, str] = {}
    # What follows the last end of a line is being written, or was left by a killed process.
    for number, line in enumerate(lines[:-1], 1):
        try:
            entry = json.loads(line)
            if entry["op_code"] == _STUDY_ATTRIBUTE:
                marked = entry["user_attr"].get(RETRY, marked)
            else:
                _apply(entry, trials)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ExecutionError(f"{file}:{number}: {DAMAGED}") from error
    numbers = frozenset(map(int, marked))
    return [record_of(trial, numbers) for trial in trials]


#: the message for a damaged line
DAMAGED = (
    "this line of the search's journal is damaged; put back a copy of the file, or delete the lines from there on: the "
    "search then continues with what stands before"
)


def _apply(entry: Mapping[str, Any], trials: list[_Trial]) -> None:
    """Apply an entry of a journal to the trials, as Optuna does. Trials that have ended do not change any more."""
    operation = entry["op_code"]
    if operation == _NEW_TRIAL:
        trials.append(_Trial(len(trials)))
        return
    if operation not in (_STATE, _REPORT, _ATTRIBUTE):
        return
    trial = trials[entry["trial_id"]]
    if trial.state not in (_State.RUNNING, _State.WAITING):
        return
    if operation == _REPORT:
        trial.intermediate_values[entry["step"]] = entry["intermediate_value"]
    elif operation == _ATTRIBUTE:
        trial.user_attrs |= entry["user_attr"]
    else:
        trial.state = _State(entry["state"])
        trial.values = entry["values"] or trial.values
        if entry.get("datetime_complete"):
            trial.datetime_complete = datetime.fromisoformat(entry["datetime_complete"])


def record_of(trial: Any, marked: Collection[int] = ()) -> SettingRecord:
    """Return the record of a trial; ``marked``: the numbers of trials marked for another execution."""
    states: dict[str, SettingState] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    state = "retried" if trial.number in marked else states.get(trial.state.name, "running")
    attributes, runs = trial.user_attrs.get(SETTING, {}), trial.user_attrs.get(RUNS, ())
    values: tuple[float, ...] = ()
    if state == "complete":
        values = tuple(trial.values)
    elif state == "pruned" and trial.intermediate_values:
        values = (trial.intermediate_values[max(trial.intermediate_values)],)
    stopped = trial.user_attrs.get(STOPPED)
    why = str(trial.user_attrs.get(REASON, ""))
    if state == "pruned" and stopped is not None and not why:
        why = f"report {stopped['report'] + 1}"
    first = attributes.get("first")
    completed = trial.datetime_complete
    return SettingRecord(
        trial.number,
        state,
        values,
        len(runs),
        sum(run["steps"] for run in runs),
        round(sum(seconds_between(run["started"], run["ended"]) for run in runs), 3),
        None if first in (None, trial.number) else int(first),
        int(attributes.get("rejected", 0)),
        str(attributes.get("worker", "")),
        str(attributes.get("asked", "")),
        "" if completed is None else completed.astimezone(UTC).isoformat(timespec="milliseconds"),
        why,
        trial.user_attrs.get(RETRIES),
    )


def seconds_between(started: str, ended: str) -> float:
    """Return the seconds between two times in ISO 8601."""
    return max(0.0, (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds())

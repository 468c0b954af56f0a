"""``search/settings.csv``: every setting of a search and its result, readable without Optuna.

The table is made from the journal, and follows it within seconds during the search. Its columns are the fields of
`SettingRecord`. With several objectives, each has a column ``values_NAME``, as in the tables of Optuna.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.core.text import listed

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
            One whose runs have lost their results is ``"lost"`` and counts as not executed; the table never has this.
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
    before, after = _NAMES[:index], _NAMES[index + 1 :]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*before, *columns, *after])
    for setting in settings:
        # a setting that is not complete has no values
        values = [*map(repr, setting.values), *[""] * len(columns)][: len(columns)]
        cells = (
            [getattr(setting, name) for name in before] + values + [getattr(setting, name) for name in after]
        )
        writer.writerow(["" if cell is None else cell for cell in cells])
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
        state = line["state"]
        if state not in get_args(SettingState):
            raise ValueError(f"unknown state {json.dumps(state)}")
        yield SettingRecord(
            int(line["number"]),
            state,  # type: ignore[arg-type]
            _values(line),
            int(line["runs"]),
            int(line["steps"]),
            float(line["seconds"]),
            int(line["first"]) if line["first"] else None,
            int(line["rejected"]),
            line["worker"],
            line["asked"],
            line["told"],
            line["why"],
            int(line["retries"]) if line["retries"] else None,
        )


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

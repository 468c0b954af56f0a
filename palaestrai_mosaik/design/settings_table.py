"""``search/settings.csv``: every setting of a search and what became of it, for people, and for all that needs no Optuna.

It is made of the journal, and follows it within seconds while the search goes on.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, get_args

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import ExecutionError
from palaestrai_mosaik.text import listed

#: the file, relative to the folder of the design
SETTINGS = "search/settings.csv"

SettingState = Literal["running", "complete", "pruned", "failed", "retried"]
#: settings that are named on a line
_NAMED = 10


@dataclass(frozen=True, slots=True)
class SettingRecord:
    """A setting: the row of the design with this number.

    ``values`` are the means of the objectives over its seeds, none where it is not complete; for a pruned one, the last
    that it had reported. ``runs`` says how many of its runs were executed, ``steps`` how many steps of environments they
    took, ``seconds`` how long. ``first`` is the number of the setting with identical documents, if there is an earlier
    one. ``rejected``: proposals in its place that constraints rejected. ``worker`` executed it; ``asked`` and ``told``
    are times, UTC in ISO 8601. ``why`` says what a pruner or a failure said.

    A setting that failed is ``retried`` once somebody wants it executed once more. Another one does that: its ``retries``
    is the number of the one that failed.
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


_NAMES = tuple(field.name for field in fields(SettingRecord))


def write_settings(path: Path, settings: Sequence[SettingRecord]) -> None:
    """Put the table of a search in place in the design folder ``path``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_NAMES)
    for one in settings:
        cells = {name: getattr(one, name) for name in _NAMES}
        cells["values"] = " ".join(map(repr, one.values))
        writer.writerow(["" if cell is None else cell for cell in cells.values()])
    try:
        files.make_folder((path / SETTINGS).parent)
        files.write_text(path / SETTINGS, text.getvalue(), durable=False)
    except OSError as error:
        raise ExecutionError(f"cannot write {path / SETTINGS}: {error.strerror}") from error


def read_settings(path: Path) -> list[SettingRecord]:
    """Return the settings of the search in the design folder ``path``, in order; none where there are none yet.

    Raises :class:`~palaestrai_mosaik.errors.ExecutionError` where the table was edited.
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
            tuple(map(float, line["values"].split())),
            int(line["runs"]),
            int(line["steps"]),
            float(line["seconds"]),
            int(line["first"]) if line["first"] else None,
            int(line["rejected"]),
            line["worker"],
            line["asked"],
            line["told"],
            line["why"],
            # (an older table has no such column)
            int(line["retries"]) if line.get("retries") else None,
        )


def count_failed(settings: Sequence[SettingRecord]) -> int:
    """Return how many settings have failed, and are not to be executed again; repeats of others are left out."""
    return sum(one.state == "failed" and one.first is None for one in settings)


def failure_reasons(settings: Sequence[SettingRecord]) -> dict[int, str]:
    """Return why settings have failed, by their numbers."""
    return {one.number: one.why for one in settings if one.state == "failed"}


def retries_of(settings: Sequence[SettingRecord]) -> dict[int, int | None]:
    """Return the setting that executes a failed one again, by the number of the failed one; ``None``: none does yet."""
    found: dict[int, int | None] = {one.number: None for one in settings if one.state == "retried"}
    return found | {one.retries: one.number for one in settings if one.retries is not None}


def retries_text(settings: Sequence[SettingRecord]) -> str:
    """Return which failed settings are executed again, and as which others; empty where there are none."""
    found = retries_of(settings).items()
    words = [f"{failed} (not yet)" if by is None else f"{failed} as {by}" for failed, by in found]
    return f"tried again: setting {listed(words, most=_NAMED)}" if words else ""

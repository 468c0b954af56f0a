"""Shared parameters of the grid environments: start rows of episodes, and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean

from .network import Grid
from .profiles import Profiles

_PERIOD = ("from", "to", "every")

#: one start: an ISO date or a row
Start = str | int | date


def start_rows(start: Start | Sequence[Start | Mapping[str, Any]], profiles: Profiles) -> list[int]:
    """Return the rows of ``profiles`` for ``start``, in its order, at least one.

    Args:
        start: a date (midnight, if it has no time) or a row, or a list of them and of periods
            ``{from: 2016-05-01, to: 2016-08-31, every: 2}``: every second day (default: 1) from ``from``
            to ``to`` inclusive, at the time of day of ``from``.
        profiles: the profiles.

    Raises:
        DocumentError: lists all problems, such as a date outside the profiles.
    """
    if isinstance(start, Mapping):
        raise DocumentError([Problem(f"a period stands in a list: [{dict(start)}]", "start")])
    entries: dict[str, Any] = {"start": start}
    if isinstance(start, Sequence) and not isinstance(start, str):
        entries = {f"start.{i}": entry for i, entry in enumerate(start)}
    rows: list[int] = []
    problems: list[Problem] = []
    if not entries:
        problems.append(Problem("an empty list leaves no row to start from", "start"))
    for path, entry in entries.items():
        try:
            period = isinstance(entry, Mapping)
            rows += _rows_of_period(entry, profiles) if period else [_row(entry, profiles)]
        except (ValueError, TypeError) as error:
            problems.append(Problem(str(error), path))
    if problems:
        raise DocumentError(problems)
    return rows


def _row(start: Any, profiles: Profiles) -> int:
    row = _date(start) if isinstance(start, str | date) else start
    if isinstance(row, datetime):
        return profiles.step_of(row)
    if isinstance(row, bool) or not isinstance(row, int):
        raise TypeError(f"{start!r} is neither a date nor a row")
    if row < 0 or (profiles.steps is not None and row >= profiles.steps):
        last = "no end" if profiles.steps is None else profiles.steps - 1
        raise ValueError(f"no episode starts from row {row}: the profiles have rows 0 to {last}")
    return row


def _date(start: str | date) -> datetime:
    if isinstance(start, str):
        return datetime.fromisoformat(start)
    return start if isinstance(start, datetime) else datetime(start.year, start.month, start.day)


def _rows_of_period(period: Mapping[str, Any], profiles: Profiles) -> list[int]:
    for key in period:
        if key not in _PERIOD:
            raise ValueError(
                f"unknown key {key!r}{did_you_mean(str(key), _PERIOD)}; allowed are from, to, every"
            )
    for key in ("from", "to"):
        if not isinstance(period.get(key), str | date):
            raise TypeError(f"a period needs a date {key!r}, not {period.get(key)!r}")
    every = period.get("every", 1)
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise ValueError(f"every: {every!r} is not a whole number of days, at least 1")
    first, last = _date(period["from"]), _date(period["to"])
    days = (last.date() - first.date()).days
    if days < 0:
        raise ValueError(f"the period ends on {last}, before it begins on {first}")
    return [profiles.step_of(first + timedelta(days=day)) for day in range(0, days + 1, every)]


def stride_of(step: int, profiles: Profiles) -> int:
    """Return the number of rows in ``step`` seconds. Raises :class:`DocumentError` for a fraction of a row."""
    stride, rest = divmod(step, profiles.resolution)
    if rest:
        message = f"{step} s is not a multiple of the profiles' resolution of {profiles.resolution} s"
        raise DocumentError([Problem(message, "step")])
    return stride


def require_room(grid: Grid, row: int, steps: int, step: int) -> None:
    """Raise :class:`DocumentError` if fewer than ``steps`` states, ``step`` s apart, remain from ``row`` on."""
    profiles = grid.profiles
    if profiles.steps is None:
        return
    needed, room = (steps - 1) * stride_of(step, profiles) + 1, profiles.steps - row
    if needed > room:
        message = (
            f"{steps} steps of {step} s from row {row} need {needed} rows; the profiles of {grid.name} "
            f"leave {max(room, 0)} of {profiles.steps}"
        )
        raise DocumentError([Problem(message, "steps")])


def parameter_problems(
    choices: Mapping[str, tuple[Any, Sequence[str]]], counts: Mapping[str, tuple[Any, int]], initial_soc: Any
) -> list[Problem]:
    """Check ``choices``, (value, allowed) by name, ``counts``, (value, minimum), and ``initial_soc``."""
    problems = []
    for name, (value, choice) in choices.items():
        if value not in choice:
            hint = did_you_mean(str(value), choice)
            problems.append(Problem(f"{value!r} is none of {', '.join(choice)}{hint}", name))
    for name, (number, least) in counts.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < least:
            problems.append(Problem(f"{number!r} is not a whole number of at least {least}", name))
    if not isinstance(initial_soc, int | float) or not 0.0 <= initial_soc <= 1.0:
        problems.append(Problem(f"{initial_soc!r} is not between 0 and 1", "initial_soc"))
    return problems

"""Plain, aligned text for people: tables, runs and their factors, numbers, durations, dates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.model import INACTIVE
from palaestrai_mosaik.execution import RunStatus
from palaestrai_mosaik.text import count, harmless, shorten

from .common import say

if TYPE_CHECKING:
    import pandas as pd

#: what stands where there is nothing to say
NOTHING = "-"


def table(headers: Sequence[str], rows: Iterable[Sequence[Any]], indent: str = "") -> str:
    """Return rows below their headers, columns aligned: numbers to the right, text to the left.

    Cells are formatted by :func:`text`. A column without any value is left out.
    """
    shown = [list(row) for row in rows]
    used = [i for i in range(len(headers)) if any(not _missing(row[i]) for row in shown)]
    columns = []
    for i in used:
        right = all(isinstance(row[i], Real) or _missing(row[i]) or row[i] == "" for row in shown)
        cells = [text(headers[i]), *(text(row[i]) for row in shown)]
        width = max(map(len, cells))
        columns.append([cell.rjust(width) if right else cell.ljust(width) for cell in cells])
    return "\n".join((indent + "  ".join(line)).rstrip() for line in zip(*columns, strict=True))


def text(value: Any) -> str:
    """Return ``value`` as a cell: sensible digits, local times, ``-`` for nothing."""
    if _missing(value):
        return NOTHING
    if isinstance(value, bool | str):
        # a cell is one line
        return harmless(str(value)).replace("\n", "\\n").replace("\t", "\\t")
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}" if value.tzinfo else f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real):
        return number(float(value))
    return str(value)


def number(value: float) -> str:
    """Return ``value`` with five significant digits, without a tail of zeros."""
    if math.isnan(value):
        return NOTHING
    if value and math.isfinite(value) and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.4g}"
    digits = max(0, 4 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 0
    shown = f"{value:,.{digits}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown


def duration(seconds: float | None) -> str:
    """Return a duration with two units at most: ``0.41 s``, ``3 min 12 s``, ``2 h 05 min``."""
    if seconds is None or math.isnan(seconds):
        return NOTHING
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02d} h"


def byte_size(size: float) -> str:
    """Return a size: ``512 bytes``, ``12 MB``, ``1.25 GB``."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{number(size) if size < 10 else round(size)} {unit}"
        size /= 1000
    return f"{number(size)} GB"


def first_line(value: str, width: int) -> str:
    """Return the first line of ``value``, cut to ``width`` characters."""
    return shorten(value.strip().split("\n")[0], width)


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows as named tuples, whose cells are of any type (pandas' stubs say: of all)."""
    yield from frame.itertuples(index=False)


def _missing(value: Any) -> bool:
    # NaN, NaT and pandas' NA are the values that do not equal themselves (NA: not even that)
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


_LISTED = 20
_WIDTH = 60
#: what is said of runs that are not executed
_LEFT_OUT = {
    RunStatus.FINISHED: "finished before",
    RunStatus.FAILED: "failed before (arsenai resume executes them again)",
    RunStatus.TIMED_OUT: "reached the time limit of their task (arsenai resume executes them again)",
    RunStatus.OUT_OF_MEMORY: "ran out of memory (arsenai resume executes them again)",
    RunStatus.QUEUED: "the cluster has queued",
    RunStatus.RUNNING: "another process executes",
    RunStatus.WAITING: "nobody has begun",
    RunStatus.INTERRUPTED: "were interrupted",
    RunStatus.NODE_FAILED: "were on a node that failed",
    RunStatus.CANCELLED: "were cancelled",
    RunStatus.LOST: "were lost",
}


def print_left_out(before: Mapping[RunStatus, int]) -> None:
    """Print how many runs are left as they are, and why."""
    for status, which in _LEFT_OUT.items():
        if before.get(status):
            say(f"left out: {count(before[status], 'run')} that {which}")


def list_runs(items: Iterable[Mapping[str, Any]]) -> None:
    """Print a table of runs, a column for each key; of many, the first ones."""
    shown = list(items)
    rows = [[_cell(value) for value in item.values()] for item in shown[:_LISTED]]
    say(table(list(shown[0]), rows, indent="  "))
    if len(shown) > _LISTED:
        say(f"  and {len(shown) - _LISTED:,} more: see arsenai status")


def _cell(value: Any) -> Any:
    return first_line(value, _WIDTH) if isinstance(value, str) and "\n" in value else value


def factors_of(folder: DesignFolder, values: Mapping[str, Any]) -> str:
    """Return the factors of a row on one line, levels by their labels."""
    told = []
    for factor in folder.spec.factors:
        value = values[factor.name]
        if value is INACTIVE:
            continue
        if factor.choice is None and factor.levels:
            levels = zip(factor.levels, factor.labels, strict=True)
            # (True equals 1, but is another level)
            value = next(label for level, label in levels if type(level) is type(value) and level == value)
        told.append(f"{factor.name}={number(value) if isinstance(value, float) else value}")
    return first_line(" ".join(told), _WIDTH)


def short_path(path: Path) -> str:
    """Return ``path`` from the working directory, where it lies below it."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)

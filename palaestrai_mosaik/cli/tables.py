"""Plain, aligned text for people: tables, numbers, durations, dates. Every command needs it, so it imports little."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.text import escape_control_characters, shorten

from .output import Printable, status

if TYPE_CHECKING:
    import pandas as pd

#: what stands where there is nothing to say
NOTHING = "-"


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    indent: str = "",
    *,
    statuses: str | None = None,
    error: bool = False,
) -> Printable:
    """Return rows below their headers, columns aligned: numbers to the right, text to the left.

    Cells are formatted by :func:`text`. A column without any value is left out. The cells of the column ``statuses``
    have colours where the table is printed on a terminal (with ``error``, on standard error).
    """
    shown = [list(row) for row in rows]
    used = [i for i in range(len(headers)) if any(not missing(row[i]) for row in shown)]
    columns = []
    for i in used:
        right = all(isinstance(row[i], Real) or missing(row[i]) or row[i] == "" for row in shown)
        cells = [text(headers[i]), *(text(row[i]) for row in shown)]
        width = max(map(len, cells))
        filled = [cell.rjust(width) if right else cell.ljust(width) for cell in cells]
        if headers[i] == statuses:
            filled[1:] = [status(one, cell, error=error) for one, cell in zip(filled, cells, strict=True)][1:]
        columns.append(filled)
    return Printable("\n".join((indent + "  ".join(line)).rstrip() for line in zip(*columns, strict=True)))


def text(value: Any) -> str:
    """Return ``value`` as a cell: sensible digits, local times, ``-`` for nothing."""
    if missing(value):
        return NOTHING
    if isinstance(value, bool | str):
        # a cell is one line
        return escape_control_characters(str(value)).replace("\n", "\\n").replace("\t", "\\t")
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


def missing(value: Any) -> bool:
    """Whether ``value`` stands for nothing: ``None``, NaN, or what pandas has for it."""
    # NaN, NaT and pandas' NA are the values that do not equal themselves (NA: not even that)
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)

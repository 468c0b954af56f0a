"""Plain text for users: tables, numbers, durations, dates. All commands use this module, so it imports little."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core.printing import Printable
from palaestrai_mosaik.core.text import one_line, shorten

from .output import status

if TYPE_CHECKING:
    import pandas as pd

#: printed for missing values
NOTHING = "-"


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    indent: str = "",
    *,
    statuses: str | None = None,
    error: bool = False,
) -> Printable:
    """Format rows as aligned columns below their headers, with numbers to the right and text to the left.

    Cells are formatted by :func:`text`. Columns without values are omitted. Cells of the column ``statuses`` are
    coloured if the table goes to a terminal, on standard error with ``error``.
    """
    lines = [list(row) for row in rows]
    columns = []
    for i, header in enumerate(headers):
        values = [row[i] for row in lines]
        if all(map(missing, values)):
            continue
        cells = [text(header), *map(text, values)]
        right = all(isinstance(value, Real) or missing(value) or value == "" for value in values)
        width = max(map(len, cells))
        filled = [cell.rjust(width) if right else cell.ljust(width) for cell in cells]
        if header == statuses:
            coloured = (status(*pair, error=error) for pair in zip(filled[1:], cells[1:], strict=True))
            filled = [filled[0], *coloured]
        columns.append(filled)
    return Printable("\n".join((indent + "  ".join(line)).rstrip() for line in zip(*columns, strict=True)))


def text(value: Any) -> str:
    """Format ``value`` as a cell, with few digits, local times, and ``-`` for missing values."""
    if missing(value):
        return NOTHING
    if isinstance(value, bool | str):
        # cells must not contain line breaks
        return one_line(str(value))
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}" if value.tzinfo else f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, Integral):
        return f"{int(value):,}"
    if isinstance(value, Real):
        return number(float(value))
    return str(value)


def number(value: float) -> str:
    """Format ``value`` with five significant digits, without trailing zeros."""
    if math.isnan(value):
        return NOTHING
    if value and math.isfinite(value) and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.4g}"
    digits = max(0, 4 - math.floor(math.log10(abs(value)))) if value and math.isfinite(value) else 0
    digits_text = f"{value:,.{digits}f}"
    return digits_text.rstrip("0").rstrip(".") if "." in digits_text else digits_text


def interval(low: float, high: float) -> str | None:
    """Format an interval: ``[0.1, 0.25]``, or return ``None`` if a limit is NaN."""
    limits = number(low), number(high)
    return None if NOTHING in limits else f"[{', '.join(limits)}]"


def duration(seconds: float | None) -> str:
    """Format a duration with at most two units: ``0.41 s``, ``3 min 12 s``, ``2 h 05 min``."""
    if seconds is None or math.isnan(seconds):
        return NOTHING
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    minutes, remainder = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {remainder:02d} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours:02d} h"


def byte_size(size: float) -> str:
    """Format a size: ``512 bytes``, ``12 MB``, ``1.25 GB``."""
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{number(size) if size < 10 else round(size)} {unit}"
        size /= 1000
    return f"{number(size)} GB"


def first_line(value: str, width: int) -> str:
    """Return the first line of ``value``, truncated to ``width`` characters."""
    return shorten(value.strip().split("\n")[0], width)


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows as named tuples with cells of type ``Any``, more precise than in pandas' stubs."""
    yield from frame.itertuples(index=False)


def missing(value: Any) -> bool:
    """Return whether ``value`` is missing: ``None``, NaN, or pandas' NA and NaT."""
    # pandas' NA is detected by type, because its comparison with itself is NA
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)

"""Output of commands: results on standard output as text, tables or JSON; warnings, errors and progress on standard error.

The common options are handled here. ``--quiet`` suppresses summaries and progress, ``--json`` suppresses progress, and
``--verbose`` prints the package's log and tracebacks on standard error. On a terminal, statuses, errors and warnings
are coloured, and tables fit its width unless ``--wide`` is given.
"""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, datetime
from numbers import Integral, Real
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core.errors import Problem
from palaestrai_mosaik.core.printing import (
    LogPrinter,
    Printable,
    display_width,
    one_line,
    output_width,
    printable,
    shorten,
    shorten_word,
    unclaimed_log_printed,
    write,
)
from palaestrai_mosaik.core.progress import CountProgress, ProgressCallback

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store.labels import Labels

_PACKAGE = "palaestrai_mosaik"
#: ANSI colour codes
_RED, _YELLOW, _GREEN = "31", "33", "32"
#: by status of runs and documents, its colour
_COLOURS = {
    **dict.fromkeys(("failed", "timed out", "out of memory", "node failed", "damaged", "error"), _RED),
    **dict.fromkeys(("interrupted", "lost", "cancelled", "warning"), _YELLOW),
    **dict.fromkeys(("finished", "sound"), _GREEN),
}


@dataclass(frozen=True)
class Options:
    """The output options of a command."""

    quiet: bool = False
    verbose: int = 0
    as_json: bool = False
    wide: bool = False


_DEFAULT = Options()
_OPTIONS: ContextVar[Options] = ContextVar("options of output")
#: the titles of columns that had no room on the terminal, in the order in which they left
_LEFT_OUT: ContextVar[dict[str, None]] = ContextVar("columns left out")


@contextmanager
def using(options: Options) -> Iterator[None]:
    """Apply ``options`` to the output inside the block."""
    token, left_out = _OPTIONS.set(options), _LEFT_OUT.set({})
    try:
        with unclaimed_log_printed(), _logging(options.verbose) if options.verbose else nullcontext():
            yield
        titles = shorten(", ".join(filter(None, _LEFT_OUT.get())), _TITLES)
        say_unless_quiet(*[f"no room for {titles} (--wide shows all)"] * bool(titles), error=True)
    finally:
        _LEFT_OUT.reset(left_out)
        _OPTIONS.reset(token)


def quiet() -> bool:
    """Return whether summaries are suppressed."""
    return _OPTIONS.get(_DEFAULT).quiet


def without_progress() -> bool:
    """Return whether progress is suppressed."""
    return quiet() or wants_json()


def verbose() -> bool:
    """Return whether the log and tracebacks are printed."""
    return _OPTIONS.get(_DEFAULT).verbose > 0


def wide() -> bool:
    """Return whether tables and lists are printed whole, however narrow the terminal is."""
    return _OPTIONS.get(_DEFAULT).wide


def wants_json() -> bool:
    """Return whether standard output is a single JSON document."""
    return _OPTIONS.get(_DEFAULT).as_json


def say(*lines: object, error: bool = False, end: str = "\n") -> None:
    """Print lines that may contain names from users, with terminal control characters escaped.

    They go to standard output, unless that is reserved for JSON, or with ``error`` to standard error. Raises
    ``OSError`` if standard output cannot be written.
    """
    for line in lines:
        if error:
            write(line, sys.stderr, end=end)
        elif not wants_json():
            write(line, sys.stdout, end=end, needed=True)


def say_unless_quiet(*lines: object, error: bool = False, end: str = "\n") -> None:
    """Print a part of a summary or a hint, which ``--quiet`` suppresses."""
    if not quiet() and (error or not wants_json()):
        for line in lines:
            write(line, sys.stderr if error else sys.stdout, end=end)


def warn(*warnings: object) -> None:
    """Print warnings on standard error."""
    for warning in warnings:
        say(compose(status("warning:", "warning", error=True), " ", warning), error=True)


def note(*notes: object) -> None:
    """Print notes that need no action, on standard error with ``--verbose``."""
    if verbose():
        say(*(compose("note: ", text) for text in notes), error=True)


def fail(title: str, text: object) -> None:
    """Print an error on standard error, after ``title`` and a colon."""
    say(compose(status(f"{title}:", "error", error=True), " ", text), error=True)


def compose(*parts: object) -> Printable:
    """Concatenate the parts, escaping those that are not :class:`Printable`."""
    return Printable("".join(map(printable, parts)))


def status(text: str, name: str | None = None, *, error: bool = False) -> Printable:
    """Colour ``text`` for the status ``name`` (default: ``text``); ``error`` if it goes to standard error."""
    colour = _COLOURS.get(text if name is None else name)
    escaped = printable(text)
    return Printable(
        f"\x1b[{colour}m{escaped}\x1b[0m" if colour is not None and _has_colours(error) else escaped
    )


def _has_colours(error: bool) -> bool:
    """Return whether to use colours: on a terminal, unless environment variables specify otherwise.

    See https://no-color.org and https://bixense.com/clicolors.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    # the Windows console needs to be configured for colours; Windows Terminal does not
    obeys = os.environ.get("TERM") != "dumb" and (sys.platform != "win32" or "WT_SESSION" in os.environ)
    return obeys and (sys.stderr if error else sys.stdout).isatty()


def print_traceback() -> None:
    """Print the traceback of the current exception with ``--verbose``."""
    if verbose():
        say(traceback.format_exc(), error=True, end="")


def wrapped(text: str, indent: int) -> str:
    """Break a line at spaces for a terminal of standard output; all but its first part are indented.

    A line with a word that does not fit, such as a path, is not broken.
    """
    width = None if wide() else output_width()
    if width is None or len(text) <= width or max(map(len, text.split())) > width - indent:
        return text
    options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return "\n".join(wrap(text, width, subsequent_indent=" " * indent, **options))


def count_progress(
    name: str, done: str, unit: str = "run"
) -> AbstractContextManager[ProgressCallback | None]:
    """Create the progress display of a count on standard error, or a null context without progress."""
    return nullcontext() if without_progress() else CountProgress(sys.stderr, name, done, unit)


def log_on_standard_error() -> AbstractContextManager[None]:
    """Print warnings and errors of the package's log inside the block, for commands that serve others."""
    return nullcontext() if verbose() else _logging(0)


@contextmanager
def _logging(level: int) -> Iterator[None]:
    """Print the package's log inside the block: warnings for ``level`` 0, also INFO for 1, everything for 2."""
    logger, handler = logging.getLogger(_PACKAGE), LogPrinter()
    handler.setFormatter(
        logging.Formatter("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    )
    before = logger.level
    logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(level, 2)])
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


#: printed for missing values
NOTHING = "-"
#: the width to which a long cell is shortened before a column leaves, and that of the last columns
_CELL, _SHORT_CELL = 20, 8
#: the width of the list of columns that have left
_TITLES = 46
#: the space between columns
_GAP = "  "


def table(
    headers: Sequence[str],
    rows: Iterable[Sequence[Any]],
    indent: str = "",
    *,
    statuses: str | None = None,
    leaving: Sequence[str | int] = (),
    whole: Sequence[str] = (),
    error: bool = False,
) -> Printable:
    """Format rows as aligned columns below their headers, with numbers to the right and text to the left.

    Cells are formatted by :func:`text`. Columns without values are omitted. On a terminal, a table that is too wide is
    fitted, unless ``--wide`` is given: long names and texts are shortened, then columns leave. In a pipe or a file it
    is whole.

    Args:
        headers: the titles of the columns.
        rows: the cells of each row.
        indent: the beginning of each line.
        statuses: the column whose cells are coloured on a terminal.
        leaving: the columns that leave first, by title or index; the others follow, from the right. The first column
            and those in ``whole`` stay.
        whole: the columns whose cells are never shortened.
        error: whether the table goes to standard error.
    """
    columns = [
        _Column(index, header, values, header in whole)
        # without rows, there are no columns
        for index, (header, *values) in enumerate(zip(headers, *rows, strict=True))
        if not all(map(missing, values))
    ]
    width = None if wide() or wants_json() else output_width(error=error)
    if width is not None and columns:
        columns = _fitted(columns, width - len(indent), leaving)
    filled = [_align(column, statuses, error=error) for column in columns]
    return Printable("\n".join((indent + _GAP.join(line)).rstrip() for line in zip(*filled, strict=True)))


class _Column:
    """A column of a table: its title and its cells as text, with the width that they need."""

    def __init__(self, index: int, header: str, values: Sequence[Any], whole: bool):
        self.index, self.header, self.whole = index, header, whole
        self.values, self.cells = values, [text(header), *map(text, values)]
        self.numeric = all(isinstance(value, Real) or missing(value) or value == "" for value in values)

    @property
    def width(self) -> int:
        """The width of the longest cell."""
        return max(map(display_width, self.cells))

    def least(self, cell: int) -> int:
        """Return the width when long cells are shortened to ``cell`` characters."""
        return self.width if self.numeric or self.whole else min(self.width, cell)

    def shorten(self, width: int) -> None:
        """Shorten the cells: names in the middle to a pattern, other text at the end, first by its parentheses."""
        for index, cell in enumerate(self.cells):
            if display_width(cell) <= width:
                continue
            begin = cell.partition(" (")[0]
            if begin != cell and display_width(begin) <= width:
                self.cells[index] = begin
                continue
            cut = shorten if " " in cell else shorten_word
            # a wide character takes two columns
            for characters in range(width, width // 2 - 1, -1):
                self.cells[index] = cut(cell, characters)
                if display_width(self.cells[index]) <= width:
                    break


def _fitted(columns: list[_Column], width: int, leaving: Sequence[str | int]) -> list[_Column]:
    """Return the columns that fit into ``width``, with shortened cells; note those that have left."""
    named = [column for name in leaving for column in columns if name in (column.header, column.index)]
    first = list(dict.fromkeys(named))
    others = [column for column in reversed(columns) if column not in first]
    order = [column for column in (*first, *others) if not column.whole and column is not columns[0]]
    left = list(columns)
    # where the least important columns are named, the others are shortened more before they leave
    while order and _width_of(left, _SHORT_CELL if leaving and order[0] not in first else _CELL) > width:
        column = order.pop(0)
        left.remove(column)
        _LEFT_OUT.get({})[column.header] = None
    for cell in (_CELL, _SHORT_CELL):
        while (excess := _width_of(left, None) - width) > 0:
            longest = max(left, key=lambda column: column.width - column.least(cell))
            least = max(longest.width - excess, longest.least(cell))
            if longest.width == least:
                break
            longest.shorten(least)
    return left


def _width_of(columns: Sequence[_Column], cell: int | None) -> int:
    """Return the width of a line, with long cells shortened to ``cell`` characters."""
    widths = (column.width if cell is None else column.least(cell) for column in columns)
    return sum(widths) + len(_GAP) * (len(columns) - 1)


def _align(column: _Column, statuses: str | None, *, error: bool) -> list[str]:
    """Return the cells of a column in equal width, with colours if it has statuses."""
    width = column.width
    cells = []
    for cell in column.cells:
        space = " " * (width - display_width(cell))
        cells.append(space + cell if column.numeric else cell + space)
    if column.header == statuses:
        cells[1:] = (
            status(cell, text(value), error=error)
            for cell, value in zip(cells[1:], column.values, strict=True)
        )
    return cells


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


def label_lines(labels: Labels) -> Iterator[tuple[str, str]]:
    """Yield the titles and texts of a run's labels, a note's further lines without a title."""
    if labels.name is not None:
        yield "name", one_line(labels.name)
    if labels.tags:
        yield "tags", one_line(", ".join(labels.tags))
    if labels.note is not None:
        first, *more = labels.note.split("\n")
        yield "note", first
        yield from (("", line) for line in more)


def rows_of(frame: pd.DataFrame) -> Iterator[Any]:
    """Yield the rows as named tuples with cells of type ``Any``, more precise than in pandas' stubs."""
    yield from frame.itertuples(index=False)


def missing(value: Any) -> bool:
    """Return whether ``value`` is missing: ``None``, NaN, or pandas' NA and NaT."""
    # pandas' NA is detected by type, because its comparison with itself is NA
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(value, float) and math.isnan(value)


def answer(data: Any) -> None:
    """Print ``data`` as JSON, with ``--json`` only. Frames become lists of rows, and non-finite numbers ``null``."""
    if not wants_json():
        return
    text = json.dumps(_plain(data), indent=2, allow_nan=False)
    # json escapes all terminal control characters except this one
    write(Printable(text.replace("\x7f", "\\u007f")), sys.stdout, needed=True)


def select(item: object, *names: str) -> dict[str, Any]:
    """Return the attributes of ``item`` with these names, for :func:`answer`."""
    return {name: getattr(item, name) for name in names}


def problems_data(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return distinct problems as mappings: ``file``, ``line`` and ``column`` (from 1), ``path``, ``message``."""
    from palaestrai_mosaik.experiment.yaml_text import columns_of

    each = list(dict.fromkeys(problems))
    return [
        {
            "file": problem.file or None,
            "line": problem.line,
            "column": column,
            "path": problem.path or None,
            "message": problem.message,
        }
        for problem, column in zip(each, columns_of(each), strict=True)
    ]


def _plain(value: Any) -> Any:
    """Convert ``value`` to types that JSON supports."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "to_json"):
        # a data frame
        return json.loads(value.to_json(orient="records", date_format="iso", double_precision=15))
    if hasattr(value, "tolist"):
        # a NumPy number or array
        return _plain(value.tolist())
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return _plain_scalar(value)


def _plain_scalar(value: Any) -> Any:
    if missing(value) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, date):
        return value.isoformat()
    return os.fspath(value) if isinstance(value, os.PathLike) else value

"""Text for people, and how it is printed: only this module writes to standard output and standard error.

Names, messages and tracebacks come from documents, stores and other people's code. A terminal must not obey them:
:func:`write` escapes control characters, and abridges long texts. Nor does a run fail
because its output cannot be printed: a stream that is closed or full is reported once, and not used again.
"""

from __future__ import annotations

import io
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, TextIO
from unicodedata import combining, east_asian_width

# Characters that a terminal obeys, hides, or reorders: control characters but tabs and line ends, format
# characters (Unicode's category Cf: directions, joiners, spaces without width), separators of lines and paragraphs,
# single surrogates. A test compares the list with Python's tables, which take a second to search.
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]"
)

#: numbers in names; its split alternates between texts and numbers
_NUMBERS = re.compile(r"(\d+)")

#: numbers in messages, with the space around them
_FIGURES = re.compile(r"\s+|[-+]?\d[\d.]*(?:e[-+]?\d+)?")

#: the maximum length of a message, which may quote any text of a document
LONGEST_MESSAGE = 2000
#: the maximum length of a message that is printed again, with how often it came
LONGEST_REMINDER = 100


def count(number: int, noun: str, plural: str = "") -> str:
    """Format ``1 run``, ``2,000 runs``; ``plural`` if it is not ``noun`` with an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[object], most: int) -> str:
    """Join at most ``most`` names to ``"a, b, c"``, followed by ``", ..."`` if there are more."""
    return ", ".join(map(str, names[:most])) + (", ..." if len(names) > most else "")


def joined(names: Sequence[str]) -> str:
    """Join names to ``"a"``, ``"a and b"``, ``"a, b and c"``."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def shorten(text: str, width: int) -> str:
    """Cut ``text`` to ``width`` characters; the last three of a shortened text are dots."""
    return text if len(text) <= width else text[: width - 3].rstrip() + "..."


def display_width(text: str) -> int:
    """Return the number of columns that ``text`` takes on a terminal; Chinese characters and most emoji take two."""
    if text.isascii():
        return len(text)
    return sum((east_asian_width(letter) in "WF") + (not combining(letter)) for letter in text)


def shorten_word(text: str, width: int) -> str:
    """Cut the middle of a name to ``width`` characters: ``rural_*_0012`` is a shell pattern that matches it."""
    if len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}*{text[len(text) - tail :]}"


def by_pattern(names: Iterable[str]) -> dict[str, list[str]]:
    """Group names that differ only in numbers by their pattern, in order of first appearance.

    The numbers that differ within a group are replaced: ``bus-1.vm_pu`` and ``bus-2.vm_pu`` are ``bus-*.vm_pu``, which
    a shell pattern of a document matches.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        groups.setdefault(tuple(_NUMBERS.split(name)[::2]), []).append(name)
    patterns: dict[str, list[str]] = {}
    for texts, members in groups.items():
        columns = [
            set(numbers) for numbers in zip(*(_NUMBERS.split(name)[1::2] for name in members), strict=True)
        ]
        numbers = [values.pop() if len(values) == 1 else "*" for values in columns]
        pattern = "".join(part for pair in zip(texts, [*numbers, ""], strict=True) for part in pair)
        patterns.setdefault(pattern, []).extend(members)
    return patterns


def counted_by_pattern(names: Iterable[str], most: int | None = None) -> str:
    """Format names, those that differ only in numbers with their count: ``sgen-*.vm_pu: 9, trafo-0.loading``.

    ``most`` is the maximum number of patterns.
    """
    groups = by_pattern(names)
    texts = [
        pattern if len(members) == 1 else f"{pattern}: {len(members):,}"
        for pattern, members in groups.items()
    ]
    return listed(texts, most or len(texts))


def abridge(text: str) -> str:
    """Cut the middle of ``text`` if it is too long for a message; beginning and end have the gist."""
    left_out = len(text) - LONGEST_MESSAGE
    if left_out <= 0:
        return text
    head = LONGEST_MESSAGE * 2 // 3
    return f"{text[:head]} [... {left_out:,} characters ...] {text[head + left_out :]}"


def one_line(text: str) -> str:
    """Abridge and escape ``text`` for one line, including line ends and tabs."""
    return escape_control_characters(abridge(text)).replace("\n", "\\n").replace("\t", "\\t")


def escape_control_characters(text: str) -> str:
    """Escape all characters in ``text`` that a terminal would obey (``\\x1b``)."""
    return _OBEYED.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


#: the bars that are hidden during other output
_giving_way: list[Bar] = []
#: the form of a bar that has no room for the bar itself
_NARROW = "{desc} {n_fmt}/{total_fmt}{postfix}"
#: the width of the shortest bar, with room for numbers that grow
_SHORTEST_BAR = 4
#: the width of a terminal that does not know its own
_WIDTH = 80


def terminal_width(stream: TextIO) -> int | None:
    """Return the number of columns of a terminal, or ``None`` if ``stream`` is not one."""
    try:
        return (os.get_terminal_size(stream.fileno()).columns or _WIDTH) if stream.isatty() else None
    except (OSError, ValueError):
        return None


def output_width(*, error: bool = False) -> int | None:
    """Return the columns of the terminal of standard output, or of standard error; ``None`` in a pipe or a file."""
    return terminal_width(sys.stderr if error else sys.stdout)


class Printable(str):
    """Text that is printed unchanged: it is escaped already, apart from our colours."""


def printable(text: object) -> str:
    """Escape ``text`` for a terminal; each line of a long text is abridged."""
    if isinstance(text, Printable):
        return text
    string = str(text)
    if len(string) > LONGEST_MESSAGE:
        string = "\n".join(map(abridge, string.split("\n")))
    return escape_control_characters(string)


def write(text: object, stream: TextIO, *, end: str = "\n", needed: bool = False) -> None:
    """Print ``text`` at once.

    Args:
        text: the text; all but :class:`Printable` is made printable.
        stream: standard output or standard error.
        end: appended to the text.
        needed: the user has asked for this text. Otherwise a failure is reported once and has no other effect.

    Raises:
        OSError: the stream is closed or full, and the text is needed; its ``filename`` is the stream's name.
    """
    with _bars_hidden():
        try:
            stream.write(printable(text) + end)
            stream.flush()
        except (OSError, ValueError) as error:
            _give_up(stream)
            name = "standard output" if stream is sys.stdout else "standard error"
            if needed and isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, name) from error
            if stream is sys.stdout and not isinstance(error, BrokenPipeError):
                why = error.strerror if isinstance(error, OSError) else error
                write(f"warning: {name} cannot be written: {why}", sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Redirect ``stream`` to the null device: its buffer would fail again, at the latest when Python exits."""
    with suppress(OSError, ValueError):
        use_null_device(stream.fileno())
        stream.flush()


def use_null_device(descriptor: int) -> None:
    """Redirect the descriptor of a standard stream to the null device."""
    null = os.open(os.devnull, os.O_WRONLY if descriptor else os.O_RDONLY)
    os.dup2(null, descriptor)
    os.close(null)


def use_standard_streams() -> None:
    """Make sure that the standard streams exist and take any text; for processes of this package, at their start.

    The next opened file, such as a database, would get the descriptor of a closed stream, and all
    printed text. Characters that the encoding of a stream lacks are escaped. Tracebacks that
    Python prints by itself go through :func:`write`.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            handle = os.open(os.devnull, os.O_RDWR)
            if handle != number and _is_closed(number):
                os.dup2(handle, number)
                os.close(handle)
                handle = number
            os.set_inheritable(handle, True)
            mode = "w" if number else "r"
            setattr(sys, name, os.fdopen(handle, mode, encoding="utf-8", errors="replace", closefd=False))
        elif number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.excepthook = _print_exception


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def _print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    write("".join(traceback.format_exception(kind, error, trace)), sys.stderr, end="")


class LogPrinter(logging.Handler):
    """Prints a log on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print ``record``."""
        try:
            write(self.format(record), sys.stderr)
        except Exception:
            # for example, a message that does not fit its arguments
            self.handleError(record)


class _Once(LogPrinter):
    """Prints messages that differ only in numbers once, and at the end how often they came."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        #: by the text without numbers, the first message and how often it came
        self._messages: dict[str, tuple[str, int]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Print ``record``, unless a similar one was printed."""
        try:
            text = self.format(record)
            key = _FIGURES.sub("", text)
        except Exception:
            self.handleError(record)
            return
        first, before = self._messages.get(key, (text, 0))
        self._messages[key] = first, before + 1
        if not before:
            write(text, sys.stderr)

    def print_counts(self) -> None:
        """Print how often each message came that came several times."""
        for text, times in self._messages.values():
            if times > 1:
                line = shorten(text.strip().split("\n")[0], LONGEST_REMINDER)
                write(f"{line} ({times:,} times)", sys.stderr)


class _WarningLog:
    """Passes Python's warnings on to the log ``py.warnings``; each instance is used once."""

    def __init__(self) -> None:
        self._before = warnings.showwarning

    def __call__(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if file is not None:
            self._before(message, category, filename, lineno, file, line)
            return
        logging.getLogger("py.warnings").warning(
            "%s (%s, %s:%d)", message, category.__name__, filename, lineno
        )

    def __enter__(self) -> None:
        warnings.showwarning = self

    def __exit__(self, *error: object) -> None:
        if warnings.showwarning is self:
            warnings.showwarning = self._before


def print_warnings(texts: Iterable[str]) -> None:
    """Print warnings of another process like unclaimed ones of this process."""
    for text in texts:
        if logging.lastResort is not None:
            logging.lastResort.handle(logging.LogRecord("", logging.WARNING, "", 0, "%s", (text,), None))


@contextmanager
def unclaimed_log_printed(handler: logging.Handler | None = None) -> Iterator[None]:
    """Print warnings without a handler, and those of Python, once by :func:`write`; Python would print each.

    Args:
        handler: takes them instead.
    """
    before, once = logging.lastResort, _Once()
    logging.lastResort = handler or once
    try:
        with _WarningLog():
            yield
    finally:
        logging.lastResort = before
        once.print_counts()


class Bar:
    """A progress bar on a terminal, which follows its width.

    Args:
        stream: the terminal.
        total: the number of units at the end; ``None``: unknown.
        name: the text before the bar.
        unit: the name of a unit.
        gives_way: hide the bar during other output.
        options: further options of tqdm.
    """

    def __init__(
        self,
        stream: TextIO,
        total: int | None,
        name: str,
        unit: str,
        *,
        gives_way: bool = False,
        **options: Any,
    ):
        from tqdm import tqdm

        name = shorten_word(one_line(name), max(8, (terminal_width(stream) or _WIDTH) // 3))
        self._form = options.get("bar_format")
        self.tqdm: tqdm[Any] = tqdm(
            total=total, desc=name, unit=unit, file=_Guarded(stream), dynamic_ncols=True, **options
        )
        if gives_way:
            _giving_way.append(self)

    def update(self, number: int | bool = 1, total: int | None = None) -> None:
        """Count ``number`` more units; ``total`` is the new total."""
        if total is not None:
            self.tqdm.total = total
        self.tqdm.update(int(number))

    @property
    def count(self) -> int:
        """The number of units counted so far."""
        return int(self.tqdm.n)

    def say(self, *texts: str, needed: int = 1, refresh: bool = True) -> None:
        """Show ``texts`` behind the bar, the most important one first.

        On a narrow terminal, those at the end are left out, then the bar and what surrounds it, then further texts.
        The first one is cut only if it does not fit beside the number of units.

        Args:
            texts: the texts.
            needed: the number of texts that are more important than the bar.
            refresh: show them at once, not at the next update.
        """
        parts = [one_line(text) for text in texts if text]
        columns = self.tqdm.format_dict["ncols"]
        shown = [(self._form, number) for number in range(len(parts), needed - 1, -1)]
        shown += [(_NARROW, number) for number in range(len(parts), 0, -1)]
        for form, number in shown:
            self.tqdm.bar_format = form
            self.tqdm.set_postfix_str(", ".join(parts[:number]), refresh=False)
            if not columns or self._least() <= columns:
                break
        else:
            if parts:
                room = len(parts[0]) - (self._least() - columns)
                self.tqdm.set_postfix_str(shorten(parts[0], max(room, 4)), refresh=False)
        if refresh:
            self.tqdm.refresh()

    def _least(self) -> int:
        """Return the width of the line with the shortest bar and some growth of the numbers."""
        figures = {**self.tqdm.format_dict, "ncols": None}
        if figures["bar_format"]:
            figures["bar_format"] = figures["bar_format"].replace("{bar}", "")
        return len(self.tqdm.format_meter(**figures)) + _SHORTEST_BAR

    def close(self) -> None:
        """End the bar."""
        self.tqdm.close()
        if self in _giving_way:
            _giving_way.remove(self)


class _Guarded:
    """A terminal for tqdm that ignores errors: the work continues without its bar once the terminal is gone."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> None:
        """Write ``text``, which has the control characters of the bar."""
        try:
            self._stream.write(text)
        except (OSError, ValueError):
            _give_up(self._stream)

    def flush(self) -> None:
        """Flush the stream."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            _give_up(self._stream)


@contextmanager
def _bars_hidden() -> Iterator[None]:
    """Hide bars during other output."""
    for bar in _giving_way:
        bar.tqdm.clear()
    try:
        yield
    finally:
        for bar in _giving_way:
            bar.tqdm.refresh()

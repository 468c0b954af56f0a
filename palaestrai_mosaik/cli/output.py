"""What commands print: listings and summaries on standard output; warnings, errors and progress on standard error.

The options that all commands have decide here: ``--quiet`` leaves out summaries and progress, ``--json``
leaves out progress; with ``--verbose``, the package's log and tracebacks are printed on standard error. On a
terminal, statuses, errors and warnings have a colour.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TextIO

from palaestrai_mosaik.progress import CountProgress, ProgressCallback, bars_hidden
from palaestrai_mosaik.text import escape_control_characters

_PACKAGE = "palaestrai_mosaik"
#: the colours, as a terminal takes them
_RED, _YELLOW, _GREEN = "31", "33", "32"
#: of the statuses of runs and documents; others have none
_COLOURS = {
    **dict.fromkeys(("failed", "timed out", "out of memory", "node failed", "damaged", "error"), _RED),
    **dict.fromkeys(("interrupted", "lost", "cancelled", "warning"), _YELLOW),
    **dict.fromkeys(("finished", "sound"), _GREEN),
}


@dataclass(frozen=True)
class Options:
    """The options of output that a command was called with."""

    quiet: bool = False
    verbose: int = 0
    as_json: bool = False


_DEFAULT = Options()
_OPTIONS: ContextVar[Options] = ContextVar("options of output")


@contextmanager
def using(options: Options) -> Iterator[None]:
    """Print as ``options`` say, as long as the block goes on."""
    token = _OPTIONS.set(options)
    try:
        with _logging(options.verbose) if options.verbose else nullcontext():
            yield
    finally:
        _OPTIONS.reset(token)


def quiet() -> bool:
    """Whether summaries are left out."""
    return _OPTIONS.get(_DEFAULT).quiet


def without_progress() -> bool:
    """Whether no progress is shown."""
    return quiet() or wants_json()


def verbose() -> bool:
    """Whether the user wants to see how things came about."""
    return _OPTIONS.get(_DEFAULT).verbose > 0


def wants_json() -> bool:
    """Whether the answer is one JSON document, and nothing else goes to standard output."""
    return _OPTIONS.get(_DEFAULT).as_json


def say(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print what users have named or recorded, so that a terminal obeys none of it.

    On standard output (unless that is for JSON), or with ``error`` on standard error, after what is on standard output.
    """
    if error:
        sys.stdout.flush()
    elif wants_json():
        return
    with bars_hidden():
        print(_escaped(text), file=sys.stderr if error else sys.stdout, end=end)


def say_unless_quiet(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print a part of a summary, or a hint: what ``--quiet`` leaves out."""
    if not quiet():
        say(text, error=error, end=end)


def warn(text: object) -> None:
    """Print a warning on standard error."""
    say(compose(status("warning:", "warning", error=True), " ", text), error=True)


def fail(title: str, text: object) -> None:
    """Print an error on standard error; ``title`` stands before it, with a colon."""
    say(compose(status(f"{title}:", "error", error=True), " ", text), error=True)


class Printable(str):
    """Text that is printed as it is: what a terminal would obey is written out, but for our colours."""


def compose(*parts: object) -> Printable:
    """Return the parts one after the other; what is not :class:`Printable` is escaped."""
    return Printable("".join(map(_escaped, parts)))


def status(text: str, name: str | None = None, *, error: bool = False) -> Printable:
    """Return ``text`` in the colour of the status ``name`` (default: the text itself); ``error``: on standard error."""
    colour = _COLOURS.get(text if name is None else name)
    shown = _escaped(text)
    return Printable(f"\x1b[{colour}m{shown}\x1b[0m" if colour is not None and _has_colours(error) else shown)


def _escaped(text: object) -> str:
    return text if isinstance(text, Printable) else escape_control_characters(str(text))


def _has_colours(error: bool) -> bool:
    """Whether what is printed may have colours: on a terminal, unless the environment says otherwise.

    See https://no-color.org and https://bixense.com/clicolors.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if any(os.environ.get(name, "0") not in ("", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")):
        return True
    # (a console of Windows obeys only if it is told to; the newer terminal always does)
    obeys = os.environ.get("TERM") != "dumb" and (sys.platform != "win32" or "WT_SESSION" in os.environ)
    return obeys and (sys.stderr if error else sys.stdout).isatty()


def print_traceback() -> None:
    """Print the traceback of the exception that is being handled, where the user wants to see more."""
    if verbose():
        say(traceback.format_exc(), error=True, end="")


def count_progress(
    name: str, done: str, unit: str = "run"
) -> AbstractContextManager[ProgressCallback | None]:
    """Return the progress of a count on standard error, nothing where none is shown."""
    return nullcontext() if without_progress() else CountProgress(sys.stderr, name, done, unit)


class _Handler(logging.StreamHandler[TextIO]):
    """Prints a log beside bars."""

    def emit(self, record: logging.LogRecord) -> None:
        with bars_hidden():
            super().emit(record)


class _Printable(logging.Formatter):
    """Lines of a log that a terminal obeys nothing of."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_control_characters(super().format(record))


def log_on_standard_error() -> AbstractContextManager[None]:
    """Print warnings and errors of the package's log as long as the block goes on, of a command that serves others."""
    return nullcontext() if verbose() else _logging(0)


@contextmanager
def _logging(level: int) -> Iterator[None]:
    """Print the log of this package: with ``level`` 0 warnings, with 1 what it does, with 2 all that it says."""
    logger, handler = logging.getLogger(_PACKAGE), _Handler(sys.stderr)
    handler.setFormatter(
        _Printable("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    )
    before = logger.level
    logger.setLevel((logging.WARNING, logging.INFO, logging.DEBUG)[min(level, 2)])
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)

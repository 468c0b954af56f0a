"""Output of commands: results and summaries on standard output; warnings, errors and progress on standard error.

The common options are handled here. ``--quiet`` suppresses summaries and progress, ``--json`` suppresses progress, and
``--verbose`` prints the package's log and tracebacks on standard error. On a terminal, statuses, errors and warnings
are coloured.
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

from palaestrai_mosaik.core.printing import LogPrinter, Printable, printable, unclaimed_log_printed, write
from palaestrai_mosaik.core.progress import CountProgress, ProgressCallback

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


_DEFAULT = Options()
_OPTIONS: ContextVar[Options] = ContextVar("options of output")


@contextmanager
def using(options: Options) -> Iterator[None]:
    """Apply ``options`` to the output inside the block."""
    token = _OPTIONS.set(options)
    try:
        with unclaimed_log_printed(), _logging(options.verbose) if options.verbose else nullcontext():
            yield
    finally:
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


def wants_json() -> bool:
    """Return whether standard output is a single JSON document."""
    return _OPTIONS.get(_DEFAULT).as_json


def say(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print text that may contain names from users, with terminal control characters escaped.

    The text goes to standard output, unless that is reserved for JSON, or with ``error`` to standard error. Raises
    ``OSError`` if standard output cannot be written.
    """
    if error:
        write(text, sys.stderr, end=end)
    elif not wants_json():
        write(text, sys.stdout, end=end, needed=True)


def say_unless_quiet(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print a part of a summary or a hint, which ``--quiet`` suppresses."""
    if not quiet() and (error or not wants_json()):
        write(text, sys.stderr if error else sys.stdout, end=end)


def warn(text: object) -> None:
    """Print a warning on standard error."""
    say(compose(status("warning:", "warning", error=True), " ", text), error=True)


def note(text: object) -> None:
    """Print a note on standard error that needs no action."""
    say(compose("note: ", text), error=True)


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

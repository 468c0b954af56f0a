"""What commands print: listings and summaries on standard output; warnings, errors and progress on standard error.

The options that all commands have decide here: with ``--quiet``, summaries and progress are left out; with
``--verbose``, the package's log and tracebacks are printed on standard error.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass

from palaestrai_mosaik.progress import CountProgress
from palaestrai_mosaik.text import escape_control_characters

_PACKAGE = "palaestrai_mosaik"


@dataclass(frozen=True)
class Options:
    """The options of output that a command was called with."""

    quiet: bool = False
    verbose: int = 0


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
    """Whether summaries and progress are left out."""
    return _OPTIONS.get(_DEFAULT).quiet


def verbose() -> bool:
    """Whether the user wants to see how things came about."""
    return _OPTIONS.get(_DEFAULT).verbose > 0


def say(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print what users have named or recorded, so that a terminal obeys none of it.

    On standard output, or with ``error`` on standard error, after what is on standard output.
    """
    if error:
        sys.stdout.flush()
    print(escape_control_characters(str(text)), file=sys.stderr if error else sys.stdout, end=end)


def tell(text: object = "", *, error: bool = False, end: str = "\n") -> None:
    """Print a part of a summary, or a hint: what ``--quiet`` leaves out."""
    if not quiet():
        say(text, error=error, end=end)


def warn(text: object) -> None:
    """Print a warning on standard error."""
    say(f"warning: {text}", error=True)


def print_traceback() -> None:
    """Print the traceback of the exception that is being handled, where the user wants to see more."""
    if verbose():
        say(traceback.format_exc(), error=True, end="")


def count_progress(
    name: str, done: str, unit: str = "run"
) -> AbstractContextManager[Callable[[int, int], None]]:
    """Return the progress of a count on standard error, which is silent with ``--quiet``."""
    return nullcontext(_show_nothing) if quiet() else CountProgress(sys.stderr, name, done, unit)


def _show_nothing(done: int, total: int) -> None:
    pass


class _Printable(logging.Formatter):
    """Lines of a log that a terminal obeys nothing of."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_control_characters(super().format(record))


@contextmanager
def _logging(level: int) -> Iterator[None]:
    """Print the log of this package: with ``level`` 1 what it does, with 2 all that it says."""
    logger, handler = logging.getLogger(_PACKAGE), logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        _Printable("%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    )
    before = logger.level
    logger.setLevel(logging.DEBUG if level > 1 else logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)

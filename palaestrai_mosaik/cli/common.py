"""Common parts of all commands: argument types, design folders, errors."""

from __future__ import annotations

import argparse
import logging
import math
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from palaestrai_mosaik import __version__
from palaestrai_mosaik.core import collector
from palaestrai_mosaik.core.errors import (
    FINISHED,
    INTERRUPTED,
    UNSOUND,
    DocumentError,
    NameResolutionError,
    PalaestraiMosaikError,
    Problem,
)
from palaestrai_mosaik.core.importing import COMMANDS, CONNECTIONS, check_modules, only_modules
from palaestrai_mosaik.core.installation import neighbours
from palaestrai_mosaik.core.printing import Printable, abridge, listed, printable, use_standard_streams, write

from .output import Options, answer, fail, print_traceback, problems_data, say, using, wants_json, warn

if TYPE_CHECKING:
    from palaestrai_mosaik.arsenai.design.folder import DesignFolder
    from palaestrai_mosaik.store import Store

#: help text of --store
STORE_HELP = "folder of the results, or database: its URL, @FILE (holds the URL) or env:NAME"

logger = logging.getLogger(__name__)

Command = Callable[..., argparse.ArgumentParser]
_LISTED = 20


class _Parser(argparse.ArgumentParser):
    """A parser that prints like the commands."""

    def _print_message(self, message: str, file: Any = None) -> None:
        # our own text, and colours from newer Python releases, need no escaping
        if message:
            write(Printable(message), file or sys.stderr, end="", needed=file is sys.stdout)

    def error(self, message: str) -> NoReturn:
        super().error(printable(message))


def top_parser(prog: str, description: str, epilog: str) -> tuple[argparse.ArgumentParser, Command]:
    """Create a parser and a function that adds a command: ``(name, function, help text, alias)``."""
    top = _Parser(
        prog=prog,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"{prog} {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(
        name: str, function: Callable[..., int], text: str, alias: str | None = None
    ) -> argparse.ArgumentParser:
        same = "" if alias is None else f" {prog} {alias} is the same."
        sub: argparse.ArgumentParser = commands.add_parser(
            name,
            aliases=[] if alias is None else [alias],
            help=text,
            description=f"{text[0].upper()}{text[1:]}.{same}",
            allow_abbrev=False,
        )
        sub.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary")
        sub.add_argument(
            "-v",
            "--verbose",
            action="count",
            default=0,
            help="also print what the program does and how long it takes, and tracebacks of errors; -vv: all",
        )
        sub.add_argument(
            "--wide", action="store_true", help="print tables and lists whole, however narrow the terminal is"
        )
        sub.set_defaults(function=function)
        return sub

    return top, command


def lazy(module: str, name: str, *, one_thread: bool = False, limited: bool = False) -> Callable[..., int]:
    """Create a function that imports ``module`` of this package and calls its function ``name``.

    Thus, a program's parser and its ``--help`` do not import any command.

    Args:
        module: the name of the module in this package.
        name: the name of the function.
        one_thread: whether to limit numeric libraries to one thread, which is faster for the small systems solved
            here.
        limited: whether documents may only name the modules in the option ``allow_modules``.
    """

    def function(**options: Any) -> int:
        if one_thread:
            # NumPy reads these variables on import
            for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
                os.environ.setdefault(variable, "1")
        whole = f"{__package__}.{module}"
        began = time.perf_counter()
        with nullcontext() if whole in sys.modules else collector.importing():
            imported = import_module(whole)
        logger.info("imported %s in %.2f s", whole, time.perf_counter() - began)
        with only_modules(options.pop("allow_modules")) if limited else nullcontext():
            code: int = getattr(imported, name)(**options)
        return code

    return function


def warn_of_neighbours() -> None:
    """Warn if other packages have replaced parts of this one. Call at the start of a program."""
    warn(*neighbours())


def call(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    complete: Callable[[dict[str, Any]], None] = lambda options: None,
) -> int:
    """Run the command in ``argv`` (default: the process's arguments); return the exit code.

    ``complete`` may fill in missing options.
    """
    try:
        options = vars(parser.parse_args(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else UNSOUND
    as_json, is_wide = options.pop("as_json", False), options.pop("wide")
    with using(Options(options.pop("quiet"), options.pop("verbose"), as_json, is_wide)):
        return _execute(parser.prog, options, complete)


def answering(prog: str, command: Callable[[], int]) -> int:
    """Run a command and handle errors of its output, such as a closed pipe or full disk; return the exit code."""
    use_standard_streams()
    try:
        code = command()
        # flush output of user code
        write("", sys.stdout, end="")
    except BrokenPipeError:
        # the reader, such as head or less, has closed the pipe
        return FINISHED
    except OSError as error:
        fail(prog, f"{error.filename}: {error.strerror}")
        return UNSOUND
    return code


def _execute(prog: str, options: dict[str, Any], complete: Callable[[dict[str, Any]], None]) -> int:
    """Call the command with its options; print its errors."""
    try:
        _refuse_deleted_directory()
        _warn_of_password(options.get("store"), "--store ")
        # the source database of 'import'
        _warn_of_password(options.get("source"))
        function = options.pop("function")
        complete(options)
        code: int = function(**options)
    except DocumentError as error:
        print_traceback()
        print_problems(error.problems)
        _answer_error("a document is not sound", error.problems)
        return UNSOUND
    except BrokenPipeError:
        raise
    except (PalaestraiMosaikError, OSError, UnicodeEncodeError) as error:
        print_traceback()
        fail(prog, _describe(error))
        _answer_error(_describe(error))
        return UNSOUND
    except KeyboardInterrupt:
        fail(prog, "interrupted")
        _answer_error("interrupted")
        return INTERRUPTED
    return code


def _describe(error: Exception) -> str:
    """Return the message about an error that has ended a command."""
    if isinstance(error, OSError):
        # a file or folder is missing, of the wrong kind, or inaccessible
        prefix = f"{error.filename}: " if error.filename is not None else ""
        return f"{prefix}{error.strerror or error}"
    if isinstance(error, UnicodeEncodeError):
        # a path with undecodable bytes, which databases and tables cannot store
        return f"{abridge(str(error.object))!r} is not UTF-8; give the file or folder another name"
    return str(error)


def _refuse_deleted_directory() -> None:
    """Raise an error if the working directory was deleted, because relative paths would be invalid."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise PalaestraiMosaikError("the working directory was deleted; go to another one (cd)") from None


def _answer_error(error: object, problems: Sequence[Problem] = ()) -> None:
    """Print the error as JSON with ``--json``."""
    if wants_json():
        answer({"error": str(error), "problems": problems_data(problems)})


def store_option(store: str | None) -> str:
    """Return ``" --store LOCATION"`` for a suggested command, or ``""`` without a store.

    A password in a URL is masked.
    """
    if store is None:
        return ""
    from palaestrai_mosaik.store.urls import shown

    return f" --store {shlex.quote(shown(store))}"


def _warn_of_password(store: object, option: str = "") -> None:
    """Warn of a password on the command line, which all users of the machine can read."""
    if not isinstance(store, str) or "://" not in store:
        return
    from palaestrai_mosaik.store.urls import holds_password, shown

    if holds_password(store):
        warn(
            f"the password in {option}{shown(store)} can be seen by all users of this machine in the list of "
            f"processes; better: {option}@FILE (its first line is the URL), {option}env:NAME, or a URL without "
            "password and ~/.pgpass"
        )


def print_problems(problems: Iterable[Problem]) -> int:
    """Print each distinct problem on a line; return their number.

    An error in one line that several phases inherit is printed once.
    """
    lines = list(dict.fromkeys(map(str, problems)))
    say(*lines, error=True)
    return len(lines)


def read_note(note: str | None) -> str | None:
    """Return the text of ``--note``: standard input for ``-``."""
    return sys.stdin.read() if note == "-" else note


def seconds(text: str) -> float:
    """Parse a non-negative number of seconds."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 or a number of seconds, not {text}")
    return number


#: units of past times, by their shortest unambiguous abbreviations
_UNITS = {"s": "seconds", "mi": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str) -> datetime:
    """Parse a date, optionally with time (``2026-01-31``, ``2026-01-31 12:00``), or an age (``2 days``)."""
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?:\s+ago)?", text.strip().lower())
    unit = "" if ago is None else next((u for u in _UNITS.values() if u.startswith(ago[2])), "")
    try:
        if ago is not None and any(ago[2].startswith(first) for first in _UNITS) and unit:
            return datetime.now(UTC) - timedelta(**{unit: float(ago[1])})
        # local time unless a zone is specified
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write a date (2026-01-31 or '2026-01-31 12:00') or how long ago "
            f"(a number of {', '.join(_UNITS.values())}, such as '2 days')"
        ) from None


def _whole(least: int, title: str) -> Callable[[str], int]:
    """Create the type of integers of at least ``least``; argparse uses ``title`` in messages."""

    def parse(text: str) -> int:
        number = int(text)
        if number < least:
            raise ValueError
        return number

    parse.__name__ = title
    return parse


positive = _whole(1, "positive number")
index = _whole(0, "episode number")


def add_labels(sub: argparse.ArgumentParser) -> None:
    """Add the options that set name, tags and note of runs."""
    sub.add_argument("--name", metavar="TEXT", help="the name of the run, by which other commands select it")
    sub.add_argument(
        "--tag", dest="tags", nargs="+", action="extend", default=[], metavar="TAG", help="tags to add"
    )
    sub.add_argument("--note", metavar="TEXT", help="a note of any number of lines; -: read standard input")


def add_completion(command: Command) -> None:
    """Add the command that prints shell scripts for completion."""
    sub = command(
        "completion", lazy("completion", "completion"), "print the script that completes commands in a shell"
    )
    sub.add_argument("shell", choices=("bash", "zsh", "fish"))


def add_json(sub: argparse.ArgumentParser) -> None:
    """Add the option for JSON output."""
    sub.add_argument(
        "--json", dest="as_json", action="store_true", help="print one JSON document, for programs"
    )


def add_allow_modules(sub: argparse.ArgumentParser) -> None:
    """Add the option that limits the classes that documents may name."""
    sub.add_argument(
        "--allow-modules",
        type=_modules,
        metavar="MODULE[,MODULE...]",
        help="let documents name classes of these modules (with all that is inside of them) and of this package "
        f"only; {COMMANDS} allows simulators that are started by a command line, and environments in other "
        f"interpreters, {CONNECTIONS} simulators that are reached over the network",
    )


def add_serving(sub: argparse.ArgumentParser) -> None:
    """Add the options of commands that serve the page."""
    sub.add_argument(
        "--port",
        type=int,
        default=8765,
        metavar="N",
        help="default: 8765, or the next one that is free; 0: any",
    )
    sub.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="the address to listen on (default: 127.0.0.1, which only this machine reaches)",
    )
    sub.add_argument(
        "--read-only", action="store_true", help="only show: start, cancel, check and label nothing"
    )
    sub.add_argument("--open", dest="open_page", action="store_true", help="open the page in your browser")
    add_allow_modules(sub)


def _modules(text: str) -> tuple[str, ...]:
    """Parse names of modules separated by commas; an empty text allows none."""
    try:
        return check_modules(part.strip() for part in text.split(",") if part.strip())
    except NameResolutionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def limit_pair(text: str) -> tuple[float | None, float | None]:
    """Parse a lower and an upper limit; one of them may be empty: ``0.9,1.1``, ``,80``."""
    parts = [part.strip() for part in text.split(",")]
    try:
        low, high = (float(part) if part else None for part in parts)
        bounds = [bound for bound in (low, high) if bound is not None]
        if not bounds or not all(map(math.isfinite, bounds)) or bounds != sorted(bounds):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be LOW,HIGH such as 0.9,1.1, or one of the two such as ,80, not {text!r}"
        ) from None
    return low, high


def named_after(store: Store, run: str, ending: str) -> str:
    """Return a file name for a run: its document, its start time, and ``ending``."""
    uid = store.find_run(run)
    document = store.runs(uid)["document"].iloc[0]
    return re.sub(r"[^\w.-]+", "_", f"{document}-{uid[:15]}").strip("_.") + ending


def episode_choice(text: str) -> int | str:
    """Parse the number of an episode, ``newest`` or ``worst``."""
    if text in ("newest", "worst"):
        return text
    return index(text)


def names_list(text: str) -> tuple[str, ...]:
    """Parse names separated by commas: ``best,worst``."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name: expected names such as best,worst")
    return names


def index_ranges(text: str) -> tuple[range, ...]:
    """Parse numbers and inclusive ranges: ``0-9,15``."""
    ranges = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = [first, last] if dash else [first, first]
        if not all(end.isdecimal() for end in ends) or int(ends[0]) > int(ends[1]):
            raise argparse.ArgumentTypeError(f"{part.strip()!r} is no number and no range such as 0-9")
        ranges.append(range(int(ends[0]), int(ends[1]) + 1))
    return tuple(ranges)


episode_choice.__name__ = index.__name__


def find_folder(folder: str | None) -> DesignFolder:
    """Open a design folder.

    Args:
        folder: its path; ``None`` for the working directory if it is a design folder, otherwise the only one in it and
            in ``_outputs``.

    Raises:
        PalaestraiMosaikError: if no design folder exists, or several.
    """
    # imported here so that --version and --help stay fast
    from palaestrai_mosaik.arsenai.design.folder import DESIGN, MANIFEST, OUTPUTS, DesignFolder

    def is_design(path: Path) -> bool:
        return (path / MANIFEST).is_file() and (path / DESIGN).is_file()

    if folder is not None:
        return DesignFolder.open(folder)
    if is_design(Path()):
        return DesignFolder.open(Path())
    folders = (Path(OUTPUTS), Path())
    designs = sorted(
        path
        for folder_path in folders
        if folder_path.is_dir()
        for path in folder_path.iterdir()
        if not path.name.startswith(".") and is_design(path)
    )
    if len(designs) == 1:
        return DesignFolder.open(designs[0])
    if designs:
        raise PalaestraiMosaikError(f"there are several design folders, name one: {listed(designs, _LISTED)}")
    raise PalaestraiMosaikError(
        f"there is no design folder here or in {OUTPUTS}: name one, or make it with arsenai generate DESIGN.yml"
    )

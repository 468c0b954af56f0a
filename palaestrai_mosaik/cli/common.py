"""What all commands have in common: argument types, design folders, errors."""

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
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik import __version__, collector
from palaestrai_mosaik.errors import (
    FINISHED,
    INTERRUPTED,
    UNSOUND,
    DocumentError,
    NameResolutionError,
    PalaestraiMosaikError,
    Problem,
)
from palaestrai_mosaik.importing import COMMANDS, CONNECTIONS, check_modules, only_modules
from palaestrai_mosaik.installation import neighbours
from palaestrai_mosaik.text import listed

from .output import Options, fail, print_traceback, say, using, wants_json, warn

if TYPE_CHECKING:
    from palaestrai_mosaik.design.folder import DesignFolder
    from palaestrai_mosaik.store import Store

#: what --store takes
STORE_HELP = "folder of the results, or database: its URL, @FILE (holds the URL) or env:NAME"

logger = logging.getLogger(__name__)

Command = Callable[..., argparse.ArgumentParser]
_LISTED = 20


def top_parser(prog: str, description: str, epilog: str) -> tuple[argparse.ArgumentParser, Command]:
    """Return a parser, and the function that adds a command: ``(name, function, help text, another name)``."""
    top = argparse.ArgumentParser(
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
        sub.set_defaults(function=function)
        return sub

    return top, command


def lazy(module: str, name: str, *, one_thread: bool = False, limited: bool = False) -> Callable[..., int]:
    """Return a function that imports ``module`` of this package and calls ``name`` in it.

    So the parser of a program, and its ``--help``, import none of the commands. ``one_thread``: numeric
    libraries get one thread; several cost more than they save for the small systems solved here. ``limited``:
    documents may name only the modules of the option ``allow_modules``.
    """

    def function(**options: Any) -> int:
        if one_thread:
            # numpy reads them when it is imported
            for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
                os.environ.setdefault(variable, "1")
        whole = f"{__package__}.{module}"
        began = time.perf_counter()
        with nullcontext() if whole in sys.modules else collector.importing():
            found = import_module(whole)
        logger.info("imported %s in %.2f s", whole, time.perf_counter() - began)
        with only_modules(options.pop("allow_modules")) if limited else nullcontext():
            code: int = getattr(found, name)(**options)
        return code

    return function


def warn_of_neighbours() -> None:
    """Report on standard error what other packages have replaced of this one (where a command starts)."""
    for neighbour in neighbours():
        warn(neighbour)


def call(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    complete: Callable[[dict[str, Any]], None] = lambda options: None,
) -> int:
    """Call the command that ``argv`` (default: the process's) asks for; return the exit code.

    ``complete`` may fill in options that are not given.
    """
    try:
        code = _call(parser, argv, complete)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # whoever read our output (head, less) has seen enough; Python must not try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINISHED


def _call(
    parser: argparse.ArgumentParser,
    argv: Sequence[str] | None,
    complete: Callable[[dict[str, Any]], None],
) -> int:
    try:
        options = vars(parser.parse_args(argv))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else UNSOUND
    with using(Options(options.pop("quiet"), options.pop("verbose"), options.pop("as_json", False))):
        return _execute(parser.prog, options, complete)


def _execute(prog: str, options: dict[str, Any], complete: Callable[[dict[str, Any]], None]) -> int:
    """Call the command with its options; print what it raises."""
    try:
        _warn_of_password(options.get("store"), "--store ")
        # the database that results are imported from
        _warn_of_password(options.get("source"))
        function = options.pop("function")
        complete(options)
        code: int = function(**options)
    except DocumentError as error:
        print_traceback()
        print_problems(error.problems)
        _answer_error("a document is not sound", error.problems)
        return UNSOUND
    except PalaestraiMosaikError as error:
        print_traceback()
        fail(prog, error)
        _answer_error(error)
        return UNSOUND
    except BrokenPipeError:
        raise
    except OSError as error:
        # of a file or folder that is not what it should be, or must not be read or written
        print_traceback()
        place = f"{error.filename}: " if error.filename is not None else ""
        fail(prog, f"{place}{error.strerror or error}")
        _answer_error(f"{place}{error.strerror or error}")
        return UNSOUND
    except KeyboardInterrupt:
        fail(prog, "interrupted")
        _answer_error("interrupted")
        return INTERRUPTED
    return code


def _answer_error(error: object, problems: Sequence[Problem] = ()) -> None:
    """Print what went wrong as the answer in JSON, if one was asked for."""
    if wants_json():
        from .answers import answer, problems_data

        answer({"error": str(error), "problems": problems_data(problems)})


def store_option(store: str | None) -> str:
    """Return ``" --store LOCATION"`` for a command that is suggested, ``""`` where none was given.

    A password in a URL is not shown.
    """
    if store is None:
        return ""
    from palaestrai_mosaik.store.urls import shown

    return f" --store {shlex.quote(shown(store))}"


def _warn_of_password(store: object, option: str = "") -> None:
    """Say so where a password stands on the command line, for all users of the machine to read."""
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
    """Print each problem once, one a line; return how many there are.

    A fault that several phases inherit from one line is one problem to the user.
    """
    lines = list(dict.fromkeys(map(str, problems)))
    for line in lines:
        say(line, error=True)
    return len(lines)


def seconds(text: str) -> float:
    """Read a number of seconds, or 0."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 or a number of seconds, not {text}")
    return number


#: units of a time that is over, by the first letters that are enough
_UNITS = {"s": "seconds", "mi": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def moment(text: str) -> datetime:
    """Read a date, with or without a time (``2026-01-31``, ``2026-01-31 12:00``), or how long ago (``2 days``)."""
    ago = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?(?:\s+ago)?", text.strip().lower())
    unit = "" if ago is None else next((u for u in _UNITS.values() if u.startswith(ago[2])), "")
    try:
        if ago is not None and any(ago[2].startswith(first) for first in _UNITS) and unit:
            return datetime.now(UTC) - timedelta(**{unit: float(ago[1])})
        # (of the clock on the wall here, where no zone is given)
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write a date (2026-01-31 or '2026-01-31 12:00') or how long ago "
            f"(a number of {', '.join(_UNITS.values())}, such as '2 days')"
        ) from None


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def index(text: str) -> int:
    """Read a whole number of at least 0."""
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def add_completion(command: Command) -> None:
    """Add the command that prints scripts for shells."""
    sub = command(
        "completion", lazy("completion", "completion"), "print the script that completes commands in a shell"
    )
    sub.add_argument("shell", choices=("bash", "zsh", "fish"))


def add_json(sub: argparse.ArgumentParser) -> None:
    """Add the option to answer in JSON."""
    sub.add_argument(
        "--json", dest="as_json", action="store_true", help="print one JSON document, for programs"
    )


def add_allow_modules(sub: argparse.ArgumentParser) -> None:
    """Add the option that limits what documents may name."""
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
    sub.add_argument("--read-only", action="store_true", help="only show: start, cancel and check nothing")
    sub.add_argument("--open", dest="open_page", action="store_true", help="open the page in your browser")
    add_allow_modules(sub)


def _modules(text: str) -> tuple[str, ...]:
    """Read modules' names, separated by commas; no text: none."""
    try:
        return check_modules(part.strip() for part in text.split(",") if part.strip())
    except NameResolutionError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def limit_pair(text: str) -> tuple[float | None, float | None]:
    """Read a lower and an upper limit, one of which may be left out: ``0.9,1.1``, ``,80``."""
    parts = [part.strip() for part in text.split(",")]
    try:
        low, high = (float(part) if part else None for part in parts)
        known = [one for one in (low, high) if one is not None]
        if not known or not all(map(math.isfinite, known)) or known != sorted(known):
            raise ValueError
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be LOW,HIGH such as 0.9,1.1, or one of the two such as ,80, not {text!r}"
        ) from None
    return low, high


def named_after(store: Store, run: str, ending: str) -> str:
    """Return the name of a file about a run: its document, when it began, and ``ending``."""
    uid = store.find_run(run)
    document = store.runs(uid)["document"].iloc[0]
    return re.sub(r"[^\w.-]+", "_", f"{document}-{uid[:15]}").strip("_.") + ending


def episode_choice(text: str) -> int | str:
    """Read the number of an episode, ``newest`` or ``worst``."""
    if text in ("newest", "worst"):
        return text
    return index(text)


def names_list(text: str) -> tuple[str, ...]:
    """Read names that commas separate: ``best,worst``."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} has an empty name: expected names such as best,worst")
    return names


def index_ranges(text: str) -> tuple[range, ...]:
    """Read numbers and ranges, both ends included: ``0-9,15``."""
    found = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = [first, last] if dash else [first, first]
        if not all(end.isdecimal() for end in ends) or int(ends[0]) > int(ends[1]):
            raise argparse.ArgumentTypeError(f"{part.strip()!r} is no number and no range such as 0-9")
        found.append(range(int(ends[0]), int(ends[1]) + 1))
    return tuple(found)


# the type's name stands in argparse's message: "invalid whole number value: 'x'"
positive.__name__ = "positive number"
index.__name__ = episode_choice.__name__ = "episode number"


def find_folder(folder: str | None) -> DesignFolder:
    """Open the design folder ``folder``, or the only one that there is here.

    Without a name it is the working directory, else the only one in it or in ``_outputs``.
    Raises :class:`PalaestraiMosaikError` where that is none, or several.
    """
    # (not at the top: --version and --help import nothing heavy)
    from palaestrai_mosaik.design.folder import DESIGN, MANIFEST, OUTPUTS, DesignFolder

    def is_design(path: Path) -> bool:
        return (path / MANIFEST).is_file() and (path / DESIGN).is_file()

    if folder is not None:
        return DesignFolder.open(folder)
    if is_design(Path()):
        return DesignFolder.open(Path())
    places = (Path(OUTPUTS), Path())
    found = sorted(
        path
        for place in places
        if place.is_dir()
        for path in place.iterdir()
        if not path.name.startswith(".") and is_design(path)
    )
    if len(found) == 1:
        return DesignFolder.open(found[0])
    if found:
        raise PalaestraiMosaikError(f"there are several design folders, name one: {listed(found, _LISTED)}")
    raise PalaestraiMosaikError(
        f"there is no design folder here or in {OUTPUTS}: name one, or make it with arsenai generate DESIGN.yml"
    )

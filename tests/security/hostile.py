"""Folders as somebody would make them who wants our commands to do harm outside of them.

A *workplace* is one folder: ``theirs`` is what came from somebody else, made by the commands themselves; ``mine``
holds all that must stay as it is: a home, and whatever the names in ``theirs`` lead to by now.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import signal
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from arsenai.execution.folders import make_folder
from runner.test_resume import wandering
from support.waiting import HANG

from palaestrai_mosaik.arsenai.execution.cluster.submission import Submission, Submissions, TaskRun
from palaestrai_mosaik.arsenai.execution.executor import InlineExecutor
from palaestrai_mosaik.arsenai.execution.job import now
from palaestrai_mosaik.cli import arsenai, main
from palaestrai_mosaik.core import files
from palaestrai_mosaik.runner import checkpoint, execute
from palaestrai_mosaik.store import Store

#: seconds within which all commands over one folder must have ended
LIMIT = HANG
_PALAESTRAI = Path(__file__).parents[1] / "data" / "palaestrai-3.5" / "results.db.gz"
_ARSENAI, _MAIN = arsenai.main, main.main

#: what is done to a folder: the program and its arguments. {f} is the design's folder, {s} a store, {o} a folder of
#: mine for what is written
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("arsenai", "plan", "{f}/design.yml"),
    ("arsenai", "status", "{f}"),
    ("arsenai", "submit", "{f}", "--dry-run", "--again"),
    ("arsenai", "cancel", "{f}"),
    ("arsenai", "run", "{f}", "--executor", "inline", "--quiet"),
    ("arsenai", "run", "{f}", "--executor", "inline", "--quiet", "--failed"),
    ("arsenai", "collect", "{f}", "--quiet"),
    ("arsenai", "collect", "{f}", "--quiet", "--remove"),
    ("arsenai", "analyse", "{f}"),
    ("arsenai", "compare", "{f}", "--output", "{f}/analysis"),
    ("arsenai", "report", "{f}"),
    ("arsenai", "resume", "{f}", "--executor", "inline", "--quiet", "--ignore-queue"),
    ("arsenai", "generate", "{d}", "--output", "{f}", "--quiet"),
    ("arsenai", "generate", "{d}", "--output", "{f}", "--quiet", "--force"),
    ("arsenai", "generate", "{e}", "--output", "{f}", "--quiet", "--force"),
    ("palaestrai-mosaik", "check", "{f}/runs/doing-0-r0.yml"),
    ("palaestrai-mosaik", "graph", "{f}/runs/doing-0-r0.yml", "--output", "{f}/graph.txt"),
    ("palaestrai-mosaik", "start", "{f}/runs/doing-0-r0.yml", "--store", "{s}", "--quiet"),
    (
        "palaestrai-mosaik",
        "start",
        "{w}",
        "--store",
        "{s}",
        "--quiet",
        "--resume",
        "--checkpoint-every",
        "0.001",
    ),
    ("palaestrai-mosaik", "list", "--store", "{s}"),
    ("palaestrai-mosaik", "show", "latest", "--store", "{s}"),
    ("palaestrai-mosaik", "show", "latest", "--store", "{s}", "--steps", "2"),
    ("palaestrai-mosaik", "plot", "latest", "--store", "{s}", "--output", "{f}/plot.svg"),
    ("palaestrai-mosaik", "export", "latest", "{o}/exported-{n}", "--store", "{s}"),
    ("palaestrai-mosaik", "import", "{p}", "--store", "{s}"),
    ("palaestrai-mosaik", "verify", "--all", "--mark-failed", "--store", "{s}"),
    ("palaestrai-mosaik", "list", "--store", "{f}/results"),
    ("palaestrai-mosaik", "verify", "--all", "--store", "{f}/results"),
)
_CODES = {0, 1, 2, 130}


# ----- what the commands make, and the names in it


def make(place: Path) -> Path:
    """Make a workplace at ``place`` in which all commands have done their work; return it."""
    theirs = place / "theirs"
    folder = make_folder(theirs / "f", ["well", "well", "well"], repetitions=2)
    shutil.copy(folder.path / "design.yml", place / "design.yml")
    text = (folder.path / "design.yml").read_text(encoding="utf-8")
    (place / "other.yml").write_text(text.replace("seed: 5", "seed: 6"), encoding="utf-8")
    home = place / "mine" / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".bashrc").write_text("# mine\n")
    (home / ".ssh" / "config").write_text("# mine\n")
    (place / "mine" / "written").mkdir()
    with gzip.open(_PALAESTRAI) as packed:
        (theirs / "palaestrai.db").write_bytes(packed.read())
    first, *others = folder.documents
    submissions = Submissions(folder.path)
    tasks = [[TaskRun(run.uid, run.hash, run.file)] for run in (first, others[0])]
    submission = Submission(1, "slurm", "x-1", now(), 2, 2)
    submissions.begin(submission, tasks)
    for part in ("jobs", "stores"):
        (folder.path / part).mkdir(exist_ok=True)
    jobs = [submissions.job(submission, run, None) for task in tasks for run in task]
    assert [record.status for record in InlineExecutor().run(jobs)] == ["finished"] * 2
    with Store(theirs / "s", create=True) as store, suppress(Exception):
        share, checkpoint._SHARE = checkpoint._SHARE, 1e9
        (place / "broken").touch()
        document = wandering(place, fails=(1, 2, 3))
        (place / "wandering.yml").write_text(document.text, encoding="utf-8")
        try:
            execute(document, store=store, checkpoint_every=1e-9)
        finally:
            checkpoint._SHARE = share
            (place / "broken").unlink()
    for command in COMMANDS[1:13]:
        if "--remove" not in command:
            told = call(place, command, "made")
            # (there may be no Slurm)
            assert told.code in ((0, 1, 2) if command[1] in ("submit", "cancel") else (0, 1)), (command, told)
    return place


@dataclass(frozen=True)
class Told:
    """How a command ended: its exit code, what it printed on standard error, the traceback of what it raised."""

    code: int
    error: str
    trace: str


def call(place: Path, command: Sequence[str], number: object) -> Told:
    """Call one of :data:`COMMANDS` in this process, over the workplace ``place``."""
    program, *arguments = command
    theirs = place / "theirs"
    given = {
        **{"f": theirs / "f", "s": theirs / "s", "p": theirs / "palaestrai.db", "d": place / "design.yml"},
        **{
            "e": place / "other.yml",
            "w": place / "wandering.yml",
            "o": place / "mine" / "written",
            "n": number,
        },
    }
    filled = [argument.format(**given) for argument in arguments]
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = (_ARSENAI if program == "arsenai" else _MAIN)(filled)
    except BaseException:
        return Told(-1, err.getvalue(), traceback.format_exc())
    return Told(code, err.getvalue(), "")


def names(place: Path) -> list[str]:
    """Return the names that there are in ``theirs``, and those that commands use there for a moment.

    Of names that differ in numbers only, one stands for all.
    """
    theirs = place / "theirs"
    there = [path.relative_to(theirs).as_posix() for path in sorted(theirs.rglob("*"))]
    found = {_kind(name): name for name in reversed([*there, *_for_a_moment(place)])}
    # (what the user names may be a link)
    return sorted(name for name in found.values() if "/" in name)


def concerning(name: str) -> list[tuple[str, ...]]:
    """Return the commands that look at the folder in which the name is."""
    sign = "{" + name[0] + "}"
    return [command for command in COMMANDS if any(sign in one for one in command)]


def _kind(name: str) -> str:
    return re.sub(r"[0-9a-f]{8,}|[0-9]+", "0", name)


def _for_a_moment(place: Path) -> list[str]:
    """Return the names that the one home of files is asked for by commands, but those that nobody can guess."""
    asked: set[str] = set()
    split, theirs = files._split, place / "theirs"

    def listening(path: str | Path) -> tuple[Path, tuple[str, ...]]:
        with suppress(ValueError):
            asked.add(Path(path).absolute().relative_to(theirs).as_posix())
        return split(path)

    files._split = listening
    try:
        for number, command in enumerate(COMMANDS):
            wrong = _wrong(call(place, command, f"listening-{number}"))
            assert not wrong, (command, wrong)
    finally:
        files._split = split
    guessed = re.compile(r"(^|/)(\.[0-9a-f]{16}\.tmp|\..*\.[0-9a-f]{8}\.generating|\.import-.*)(/|$)")
    return sorted(name for name in asked if name != "." and not guessed.search(name))


# ----- what somebody may put in the place of a name


def _away(place: Path, name: str) -> tuple[Path, Path]:
    """Return the path of a name in ``theirs``, with the folder that it needs, and a new one in ``mine``."""
    path = place / "theirs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path, place / "mine" / "led-to"


def _clear(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def link_to_same(place: Path, name: str) -> None:
    """A link to something of mine that is as what was there: files, and whole folders."""
    path, target = _away(place, name)
    if path.exists():
        shutil.move(path, target)
    else:
        target.mkdir()
        for mine in (".ssh", "runs", "x.json", "precious"):
            (target / mine).mkdir()
            (target / mine / "file").write_text("# mine\n")
    path.symlink_to(target)


def link_to_file(place: Path, name: str) -> None:
    """A link to a file of mine."""
    path, _ = _away(place, name)
    _clear(path)
    path.symlink_to(place / "mine" / "home" / ".bashrc")


def link_to_nothing(place: Path, name: str) -> None:
    """A link to where nothing is yet."""
    path, _ = _away(place, name)
    _clear(path)
    path.symlink_to(place / "mine" / "home" / ".profile")


def second_name(place: Path, name: str) -> None:
    """A second name of a file of mine that is as what was there, or a file of mine."""
    path, target = _away(place, name)
    if path.is_file() and not path.is_symlink():
        shutil.move(path, target)
    else:
        _clear(path)
        target.write_text("# mine\n")
    os.link(target, path)


def pipe(place: Path, name: str) -> None:
    """A pipe, of which nobody has the other end."""
    path, _ = _away(place, name)
    _clear(path)
    os.mkfifo(path)


def endless(place: Path, name: str) -> None:
    """A link to a device from which zeros come for ever."""
    path, _ = _away(place, name)
    _clear(path)
    path.symlink_to("/dev/zero")


def folder(place: Path, name: str) -> None:
    """A folder in the place of a file, a file in the place of a folder."""
    path, _ = _away(place, name)
    if path.is_dir():
        _clear(path)
        path.write_text("no folder\n")
    else:
        _clear(path)
        (path / "x").mkdir(parents=True)


ATTACKS: tuple[Callable[[Path, str], None], ...] = (
    *(link_to_same, link_to_file, link_to_nothing, second_name, pipe, endless, folder),
)


# ----- what somebody may write into a file: names and numbers

VALUES: tuple[object, ...] = (
    *(
        "../../../mine/home/.bashrc",
        "..",
        "/dev/zero",
        "",
        "x" * 5000,
        "\x1b]0;planted\x07\r\n",
        "nul\0l",
        "\ud800",
    ),
    *(-1, 10**30, 1e308, float("nan"), None, [], {}, True),
)


def values_of(place: Path, value: object) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield each place of a value in files of JSON, tables and databases, and what puts ``value`` there."""
    theirs = place / "theirs"
    seen = set()
    mine = place / "mine" / "home" / ".bashrc"
    value = str(mine) if value == "/mine" else value
    for path in sorted(theirs.rglob("*")):
        name = path.relative_to(theirs).as_posix()
        if not path.is_file() or _kind(name) in seen:
            continue
        seen.add(_kind(name))
        if path.suffix == ".json":
            yield from _in_json(name, path, value)
        elif path.suffix in (".csv", "") and path.name in ("design.csv", "unit_sample.csv", "SHA256SUMS"):
            yield from _in_table(name, path, value)
        elif path.suffix == ".tasks":
            yield from _in_lines(name, path, value)
        elif path.suffix == ".db":
            yield from _in_database(name, path, value)


def _leaves(data: object, way: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    if isinstance(data, dict) and data:
        for key in list(data):
            yield from _leaves(data[key], (*way, key))
    elif isinstance(data, list) and data:
        yield from _leaves(data[0], (*way, 0))
    else:
        yield way


def _put(data: object, way: Sequence[object], value: object) -> object:
    if not way:
        return value
    data[way[0]] = _put(data[way[0]], way[1:], value)  # type: ignore[index]
    return data


def _in_json(name: str, path: Path, value: object) -> Iterator[tuple[str, Callable[[], None]]]:
    text = path.read_text(encoding="utf-8")
    if path.parts[-3] == "checkpoints":  # its first line is a signature of all the rest
        return
    kinds = set()
    for way in _leaves(json.loads(text)):
        kind = _kind("/".join(map(str, way)))
        if kind not in kinds:
            kinds.add(kind)
            changed = json.dumps(_put(json.loads(text), way, value))
            yield f"{name}:{kind}", lambda changed=changed: path.write_text(changed)  # type: ignore[misc]


def _in_lines(name: str, path: Path, value: object) -> Iterator[tuple[str, Callable[[], None]]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    for way in _leaves(json.loads(lines[0])):
        first = json.dumps(_put(json.loads(lines[0]), way, value))
        text = "\n".join([first, *lines[1:], ""])
        yield f"{name}:{way}", lambda text=text: path.write_text(text)  # type: ignore[misc]


def _in_table(name: str, path: Path, value: object) -> Iterator[tuple[str, Callable[[], None]]]:
    apart = "  " if path.name == "SHA256SUMS" else ","
    lines = path.read_text(encoding="utf-8").splitlines()
    if not isinstance(value, str | int | float):
        return
    for column in range(len(lines[1].split(apart))):
        cells = lines[1].split(apart)
        cells[column] = str(value)
        text = "\n".join([lines[0], apart.join(cells), *lines[2:], ""])
        raw = text.encode("utf-8", "surrogatepass")
        yield f"{name}:{column}", lambda raw=raw: path.write_bytes(raw)  # type: ignore[misc]


def _in_database(name: str, path: Path, value: object) -> Iterator[tuple[str, Callable[[], None]]]:
    if value == "\ud800" or isinstance(value, list | dict):
        return
    with closing(sqlite3.connect(path)) as database:
        tables = [row[0] for row in database.execute("select name from sqlite_master where type = 'table'")]
        columns = {
            table: [row[1] for row in database.execute(f'pragma table_info("{table}")')] for table in tables
        }
        filled = [
            table for table in tables if database.execute(f'select count(*) from "{table}"').fetchone()[0]
        ]
    bound = float(value) if isinstance(value, int) and abs(value) > 2**63 else value
    for table in filled:
        for column in columns[table]:

            def act(table: str = table, column: str = column) -> None:
                with closing(sqlite3.connect(path)) as database, suppress(sqlite3.Error):
                    database.execute(f'update or ignore "{table}" set "{column}" = ?', (bound,))
                    database.commit()

            yield f"{name}:{table}.{column}", act


# ----- the watcher


def copy_of(made: Path, place: Path) -> Path:
    """Return a copy of a workplace, in which all is as it was there."""
    shutil.copytree(made, place, symlinks=True)
    return place


def seen(place: Path) -> dict[str, tuple[object, ...]]:
    """Return what can be seen of all that is mine: kinds, rights, times, contents; but of what commands were told to write."""
    found: dict[str, tuple[object, ...]] = {}
    for top, folders, inside in os.walk(place / "mine"):
        if Path(top) == place / "mine":
            folders.remove("written")
        for name in (*folders, *inside):
            path = Path(top, name)
            status = path.lstat()
            digest = b""
            if path.is_symlink():
                digest = os.fsencode(os.readlink(path))
            elif path.is_file():
                digest = hashlib.sha256(path.read_bytes()).digest()
            # (a folder's number of links is that of its folders, a file's may become less)
            found[str(path)] = (status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns, digest)
    return found


def faults(place: Path, commands: Sequence[Sequence[str]] = COMMANDS) -> list[str]:
    """Call commands over a workplace, in a process of their own; return what they have done wrong.

    Wrong is: to change anything of mine, to raise, to print a traceback, to end with no exit code of ours, not to end.
    """
    before = seen(place)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        with suppress(BaseException):
            # (what else it says belongs to nobody)
            null = os.open(os.devnull, os.O_RDWR)
            for descriptor in (0, 1, 2):
                os.dup2(null, descriptor)
            cache = str(place / "cache")
            home = str(place / "mine" / "home")
            os.environ.update(HOME=home, PALAESTRAI_MOSAIK_CACHE=cache, MPLCONFIGDIR=cache)
            os.chdir(place)
            for number, command in enumerate(commands):
                os.write(writing, f"> {' '.join(command)}\n".encode())
                told = call(place, command, number)
                if wrong := _wrong(told):
                    os.write(writing, f"{wrong}\n".encode())
        os._exit(0)
    os.close(writing)
    text, ended = _read(reading, child)
    blocks = [block.partition("\n") for block in text.split("> ")[1:]]
    found = [f"{command}: {said.strip()}" for command, _, said in blocks if said.strip()]
    if not ended:
        found.append(f"{blocks[-1][0] if blocks else 'nothing'}: has not ended within {LIMIT:g} s")
    after = seen(place)
    changed = sorted({path for path, _ in set(before.items()) ^ set(after.items())})
    return found + [f"changed, made or deleted: {path}" for path in changed]


def _wrong(told: Told) -> str:
    if told.trace:
        return "raised " + " ".join(told.trace.strip().splitlines()[-1:]) + told.trace[-2500:]
    if told.code not in _CODES:
        return f"exit code {told.code}"
    # (what runs raise is shown, after a line that says so)
    own = re.sub(r"run '[^\n]*' failed:\nTraceback", "", told.error)
    return f"printed a traceback: {own[-2500:]}" if "Traceback (most recent call last)" in own else ""


def _read(pipe: int, child: int) -> tuple[str, bool]:
    until, text = time.monotonic() + LIMIT, b""
    os.set_blocking(pipe, False)
    while True:
        try:
            some = os.read(pipe, 1 << 16)
        except BlockingIOError:
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                os.close(pipe)
                return text.decode("utf-8", "replace"), False
            time.sleep(0.01)
            continue
        if not some:
            os.waitpid(child, 0)
            os.close(pipe)
            return text.decode("utf-8", "replace"), True
        text += some


if sys.platform == "win32":
    raise ImportError("links, pipes and forks are POSIX's")

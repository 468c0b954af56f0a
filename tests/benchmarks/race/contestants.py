"""The two sides: their virtual environments, their commands, and what their stores hold."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
REQUIREMENTS = HERE / "requirements-peer.txt"
#: the document's file in the folder of a run
DOCUMENT = "run.yml"
CLOCK = "clock.jsonl"
#: our store, in the folder of a run
_STORE = "results"


@dataclass(frozen=True)
class Results:
    """What a store holds of its newest run; ``rows`` of all agents, ``digest`` of their values."""

    status: str
    rows: int
    digest: str
    size: int


class Contestant(ABC):
    """One side of the race; ``python`` is the interpreter of its virtual environment."""

    name: str
    parts: str
    packages: tuple[str, ...]

    def __init__(self, python: Path):
        self.python = python

    def command(self, name: str) -> Path:
        """Return the path of a console script."""
        return self.python.parent / name

    def environment(self, folder: Path) -> dict[str, str]:
        """Return the environment variables of a run in ``folder``: no configuration of the user counts."""
        kept = {key: os.environ[key] for key in ("LANG", "LC_ALL", "TMPDIR", "USER") if key in os.environ}
        parts = (HERE / "parts" / "shared", HERE / "parts" / self.parts)
        return {
            **kept,
            "HOME": str(folder),
            "PATH": os.pathsep.join((str(self.python.parent), os.environ.get("PATH", os.defpath))),
            "PYTHONPATH": os.pathsep.join(map(str, parts)),
            "RACE_CLOCK": str(folder / CLOCK),
            **{f"{library}_NUM_THREADS": "1" for library in ("OMP", "OPENBLAS", "MKL")},
        }

    def ask(self, *arguments: str | Path, folder: Path) -> str:
        """Run this side's interpreter and return what it prints; raises ``CalledProcessError``."""
        return subprocess.run(
            [str(self.python), *map(str, arguments)],
            cwd=folder,
            env=self.environment(folder),
            check=True,
            capture_output=True,
            text=True,
        ).stdout

    def versions(self, folder: Path) -> dict[str, str]:
        """Return the installed versions of :attr:`packages`, of mosaik and of Python."""
        code = (
            "import importlib.metadata as m, json, platform, sys\n"
            "print(json.dumps({'python': platform.python_version(), **{n: m.version(n) for n in sys.argv[1:]}}))"
        )
        found: dict[str, str] = json.loads(
            self.ask("-c", code, *self.packages, "mosaik", "numpy", folder=folder)
        )
        return found

    @abstractmethod
    def prepare(self, folder: Path, stored: bool) -> None:
        """Make what a run in ``folder`` needs; not timed."""

    @abstractmethod
    def start(self, stored: bool) -> list[str | Path]:
        """Return the command that executes the document."""

    @abstractmethod
    def generate(self, design: str) -> list[str | Path]:
        """Return the command that makes the run documents of a design."""

    @abstractmethod
    def results(self, folder: Path) -> Results:
        """Look into the store of a run that was prepared with ``stored``."""


class PalaestrAI(Contestant):
    """palaestrAI with arsenAI and palaestrai-mosaik, results in SQLite."""

    name = "palaestrAI"
    parts = "theirs"
    packages = ("palaestrai", "palaestrai-arsenai", "palaestrai-mosaik")
    _database = "palaestrai.db"

    def prepare(self, folder: Path, stored: bool) -> None:
        # an empty text is what switches its store off
        uri = f"sqlite:///{self._database}" if stored else ""
        (folder / "runtime.yml").write_text(f'store_uri: "{uri}"\n', encoding="utf-8")
        if stored:
            create = [str(self.command("palaestrai")), "-c", "runtime.yml", "database-create"]
            subprocess.run(
                create, cwd=folder, env=self.environment(folder), check=True, capture_output=True, text=True
            )

    def start(self, stored: bool) -> list[str | Path]:
        return [self.command("palaestrai"), "-c", "runtime.yml", "experiment-start", DOCUMENT]

    def generate(self, design: str) -> list[str | Path]:
        return [self.command("arsenai"), "generate", design]

    def results(self, folder: Path) -> Results:
        return read_database(folder / self._database)


class Ours(Contestant):
    """This package, results in SQLite and Parquet."""

    name = "palaestrai_mosaik"
    parts = "ours"
    packages = ("palaestrai-mosaik",)

    def prepare(self, folder: Path, stored: bool) -> None:
        if stored:
            self._read(folder)

    def start(self, stored: bool) -> list[str | Path]:
        return [self.command("palaestrai-mosaik"), "start", "--quiet", DOCUMENT, *self.place(stored)]

    @staticmethod
    def place(stored: bool) -> list[str]:
        """Return the option that says where the results go."""
        return ["--store", _STORE] if stored else ["--no-store"]

    def generate(self, design: str) -> list[str | Path]:
        return [self.command("arsenai"), "generate", "--quiet", design]

    def results(self, folder: Path) -> Results:
        return Results(**self._read(folder), size=size_of([folder / _STORE]))

    def _read(self, folder: Path) -> dict[str, Any]:
        script = HERE / "parts" / self.parts / "read_results.py"
        found: dict[str, Any] = json.loads(self.ask(script, _STORE, folder=folder))
        return found


def read_database(file: Path) -> Results:
    """Look into a results database of palaestrAI (SQLite)."""
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        runs = database.execute("SELECT status FROM experiment_run_instances ORDER BY id").fetchall()
        # the agents' own ids are new in every run: told apart by their names
        rows = database.execute(
            "SELECT agents.name, muscle_actions.id, simtimes, sensor_readings, actuator_setpoints, rewards,"
            " objective FROM muscle_actions JOIN agents ON agents.id = muscle_actions.agent_id"
            " ORDER BY agents.name, muscle_actions.id"
        ).fetchall()
    digest = hashlib.sha256()
    for name, _, *values in rows:
        digest.update(repr((name, *values)).encode())
    status = str(runs[-1][0]) if runs else "none"
    return Results(status, len(rows), digest.hexdigest() if rows else "", size_of(file.parent.glob("*.db*")))


def size_of(paths: Iterable[Path]) -> int:
    """Return the bytes of files, and of all that lies in folders."""
    total = 0
    for path in paths:
        files = path.rglob("*") if path.is_dir() else [path]
        total += sum(file.stat().st_size for file in files if file.is_file())
    return total


def install(cache: Path, base: Path, say: Callable[[str], None]) -> tuple[Path, Path]:
    """Return the interpreters of both sides' virtual environments in ``cache``; those missing are made.

    The requirements of palaestrAI are installed when they have changed, this checkout every time (its own
    requirements only where they are not met). pip is what needs a network.
    """
    theirs, ours = (_environment(cache / name, base, say) for name in ("palaestrai", "palaestrai_mosaik"))
    stamp, wanted = cache / "palaestrai" / "installed.txt", REQUIREMENTS.read_text(encoding="utf-8")
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        say("installing palaestrAI")
        _pip(theirs, "--requirement", REQUIREMENTS)
        stamp.write_text(wanted, encoding="utf-8")
    say("installing this checkout")
    with_grid = f"{ROOT}[grid]"
    _pip(ours, with_grid)
    _pip(ours, "--force-reinstall", "--no-deps", with_grid)
    return theirs, ours


def _environment(folder: Path, base: Path, say: Callable[[str], None]) -> Path:
    python = folder / "bin" / "python"
    if not python.is_file():
        say(f"making {folder}")
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([str(base), "-m", "venv", str(folder)], check=True)
    return python


def _pip(python: Path, *arguments: str | Path) -> None:
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*command, *map(str, arguments)], check=True, stdout=sys.stderr)


def last_words(output: str) -> str:
    """Return the last line of an output that names an exception or an error, else its last line, shortened."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for telling in (r"^(\w+\.)*\w*(Error|Exception)\b", r"error|fail|exception"):
        if found := [line for line in lines if re.search(telling, line, 0 if "^" in telling else re.I)]:
            lines = found
            break
    last = lines[-1] if lines else ""
    return last if len(last) <= 160 else last[:157] + "..."

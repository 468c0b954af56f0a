"""A terminal obeys no name of a document, and no run fails because its output cannot be printed."""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import yaml
from support.documents import WALK
from support.terminals import terminal

from palaestrai_mosaik.cli import arsenai, main
from palaestrai_mosaik.core import progress
from palaestrai_mosaik.core.errors import FINISHED, UNSOUND, PalaestraiMosaikError, Problem, format_traceback
from palaestrai_mosaik.core.printing import LONGEST_MESSAGE, escape_control_characters, one_line, printable
from palaestrai_mosaik.web import server

ROOT = Path(__file__).parents[2]
#: title and colour, C1, backspace, return, direction, joiner, separators
EVIL = "p\x1b]0;PWNED\x07\x1b[31m\x9b2J\b\r\u202e\u200b\u200d\u2028\u2066\ufeff"
#: what we send ourselves: colours, ends of lines, and the bar's own
OURS = re.compile(r"\x1b\[(?:0|3[123])m|\x1b\[A|\r+\n?|\n")


def hostile_run() -> dict[str, object]:
    phase = {
        "environments": [{"environment": {"name": "dummy", "uid": EVIL}}],
        "agents": [{"name": EVIL, "muscle": "random"}],
        "phase_config": {"mode": "train", "episodes": 2},
    }
    return {"uid": EVIL, "seed": 1, "schedule": [{EVIL: phase}]}


def hostile_design() -> dict[str, object]:
    base = hostile_run() | {"uid": "base"}
    phase = base["schedule"][0][EVIL]  # type: ignore[index]
    phase["agents"][0]["muscle"] = {"name": "random", "params": {"hold": 1}}
    path = f"schedule.{json.dumps(EVIL)}.agents.{json.dumps(EVIL)}.muscle.params.hold"
    return {
        "uid": "study",
        "seed": 1,
        "base": {"schedule": base["schedule"]},
        "factors": {"hold": {"path": path, "levels": [1, 2]}},
        "outcomes": {"steps": {"of": "steps", "episode": "mean"}},
    }


def hostile_search() -> dict[str, object]:
    search = {"sampler": "random", "budget": {"runs": 2}, "confirm": 1}
    outcomes = {"steps": {"of": "steps", "episode": "mean", "better": "lower"}}
    return hostile_design() | {"uid": "search", "search": search, "outcomes": outcomes}


def hostile_database(path: Path) -> None:
    """Write the results of palaestrAI with other names."""
    path.write_bytes(gzip.decompress((ROOT / "tests/data/palaestrai-3.5/results.db.gz").read_bytes()))
    with closing(sqlite3.connect(path)) as database, database:
        for table, column in (
            ("experiment_runs", "uid"),
            ("agents", "name"),
            ("experiment_run_phases", "uid"),
        ):
            database.execute(f"UPDATE {table} SET {column} = {column} || ?", (EVIL,))


PROGRAMS = {"arsenai": arsenai, "palaestrai-mosaik": main}


def call(line: str) -> int:
    program, *arguments = (word.format(evil=EVIL) for word in line.split())
    return PROGRAMS[program].main(arguments)


#: commands after each other
COMMANDS = (
    "palaestrai-mosaik schema",
    "palaestrai-mosaik completion bash",
    "palaestrai-mosaik new run {evil}",
    "palaestrai-mosaik new agent learner",
    "palaestrai-mosaik check run.yml",
    "palaestrai-mosaik graph run.yml",
    "palaestrai-mosaik start run.yml -v",
    "palaestrai-mosaik start broken.yml",
    "palaestrai-mosaik resume run.yml",
    "palaestrai-mosaik label latest --name {evil}",
    "palaestrai-mosaik label latest --tag draft",
    "palaestrai-mosaik list",
    "palaestrai-mosaik list --columns *",
    "palaestrai-mosaik show latest --steps",
    "palaestrai-mosaik verify --all -vv",
    "palaestrai-mosaik plot latest -o plot.svg",
    "palaestrai-mosaik export latest there",
    "palaestrai-mosaik theatre latest -o page.html",
    "palaestrai-mosaik list --json",
    "palaestrai-mosaik serve {evil} --port 0",
    "palaestrai-mosaik import palaestrai.db --store {evil}",
    "palaestrai-mosaik list --store {evil}",
    "arsenai schema",
    "arsenai completion zsh",
    "arsenai plan design.yml",
    "arsenai generate design.yml -o study",
    "arsenai submit study --dry-run",
    "arsenai cancel study",
    "arsenai run study --executor inline -v",
    "arsenai resume study --executor inline",
    "arsenai collect study",
    "arsenai status study",
    "arsenai analyse study",
    "arsenai compare study --by hold",
    "arsenai report study",
    "arsenai theatre study -o study.html",
    "arsenai serve study --port 0",
    "arsenai tune search.yml -o search --executor inline -v",
    "palaestrai-mosaik delete latest --yes",
)
#: those that must be refused
REFUSED = (
    "palaestrai-mosaik start broken.yml",
    "palaestrai-mosaik new run {evil}",
    "palaestrai-mosaik label latest --name {evil}",
)


def test_the_commands_are_complete() -> None:
    """Each command is in the list, by one of its names."""
    tried = {tuple(line.split()[:2]) for line in COMMANDS}
    for program, module in PROGRAMS.items():
        (action,) = (a for a in module.parser()._actions if isinstance(a, argparse._SubParsersAction))
        for command in set(action.choices.values()):
            names = {name for name, parser in action.choices.items() if parser is command}
            assert any((program, name) in tried for name in names), (program, names)


@pytest.mark.parametrize("bars", [True, False])
def test_a_terminal_obeys_no_name(
    bars: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """With bars, and with the plain lines of a log, each of them as often as it can be shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "LINES", 0.0)
    monkeypatch.setattr(progress, "_BAR", 0.0)
    broken = hostile_run()
    broken["schedule"][0][EVIL]["agents"][0]["muscle"] = EVIL  # type: ignore[index]
    documents = {
        "run": hostile_run(),
        "broken": broken,
        "design": hostile_design(),
        "search": hostile_search(),
    }
    for name, document in documents.items():
        Path(f"{name}.yml").write_text(yaml.safe_dump(document))
    hostile_database(Path("palaestrai.db"))
    serve = server.serve
    monkeypatch.setattr(server, "serve", lambda *page: serve(*page[:2], lambda: interrupted(page[2])))
    for line in COMMANDS:
        with terminal(monkeypatch) if bars else plain(capfd) as got:
            code = call(line)
        shown = got()
        left = OURS.sub("", shown)
        assert left == escape_control_characters(left).replace("\n", ""), (line, left)
        # (an outcome that is the same in all runs cannot be analysed)
        assert (code == UNSOUND) == (line in REFUSED), (line, shown)


def interrupted(ready: Callable[[], None]) -> None:
    """Print the address of the page, and end the page as Ctrl-C does."""
    ready()
    signal.raise_signal(signal.SIGINT)


@contextmanager
def plain(capfd: pytest.CaptureFixture[str]) -> Iterator[Callable[[], str]]:
    capfd.readouterr()
    told: list[str] = []
    yield lambda: "".join(told)
    told += capfd.readouterr()


def test_what_unicode_says_is_invisible_is_escaped() -> None:
    every = map(chr, range(sys.maxunicode + 1))
    control = {one for one in every if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {
        "\t",
        "\n",
    }
    kept = {one for one in control if escape_control_characters(one) == one}
    assert kept == set()
    assert escape_control_characters("a\tb\nä漢 😀") == "a\tb\nä漢 😀"
    assert one_line("a\tb\nc") == "a\\tb\\nc"


def test_a_message_is_abridged_whatever_value_it_names() -> None:
    """40 MB of a document made a message of 40 MB, and a store of 200 MB."""
    long = "begin " + "x" * 100_000 + " end"
    for text in (
        str(PalaestraiMosaikError(long)),
        str(Problem(long)),
        format_traceback(ValueError(long)),
        printable(f"a\n{long}\nb"),
        one_line(long),
    ):
        assert len(text) < 2 * LONGEST_MESSAGE
        assert "begin" in text and "end" in text and re.search(r"\[\.\.\. \d{2},\d{3} characters", text)


def command(program: str) -> list[str]:
    name = {"palaestrai-mosaik": "main", "arsenai": "arsenai"}[program]
    code = f"import sys, mosaik_agents; sys.exit(mosaik_agents.{name}())"
    return [sys.executable, "-c", code]


def shell(line: str, **environment: str) -> tuple[int, str]:
    """Execute a line of a shell, in which ``$mosaik`` and ``$arsenai`` are the programs; return code and output."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "code_of_mosaik": command("palaestrai-mosaik")[-1],
        "code_of_arsenai": command("arsenai")[-1],
        **environment,
    }
    functions = "".join(
        f'{name}() {{ "{sys.executable}" -c "$code_of_{name}" "$@"; }}\n' for name in ("mosaik", "arsenai")
    )
    done = subprocess.run(["bash", "-c", functions + line], env=variables, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "backslashreplace")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("walk.yml").write_text(WALK)
    return tmp_path


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        # a run that has finished has finished
        ("mosaik start walk.yml >&-", FINISHED, ""),
        ("mosaik start walk.yml <&- >&- 2>&-", FINISHED, ""),
        ("mosaik start walk.yml 2>/dev/full", FINISHED, "finished in"),
        (
            "mosaik start walk.yml >/dev/full",
            FINISHED,
            "warning: standard output cannot be written: No space left",
        ),
        # an answer that is not there is an error
        ("mosaik schema >/dev/full", UNSOUND, "palaestrai-mosaik: standard output: No space left on device"),
        ("mosaik start walk.yml --json >/dev/full", UNSOUND, "standard output: No space left on device"),
        ("arsenai --help >/dev/full", UNSOUND, "arsenai: standard output: No space left on device"),
        ("arsenai plan nothing.yml --json >/dev/full", UNSOUND, "standard output: No space left on device"),
        # the reader of the progress may end
        ("set -o pipefail; mosaik start walk.yml 2>&1 | true", FINISHED, ""),
        ("mkdir gone; cd gone; rmdir ../gone; mosaik list", UNSOUND, "the working directory was deleted"),
        (
            "mkdir gone; cd gone; rmdir ../gone; arsenai plan x.yml",
            UNSOUND,
            "the working directory was deleted",
        ),
    ],
)
def test_what_cannot_be_printed_is_a_line_and_the_right_exit_code(
    line: str, code: int, said: str, here: Path
) -> None:
    found, told = shell(line)
    assert "Traceback" not in told and "Exception ignored" not in told, told
    assert found == code, told
    assert said in told
    assert told.count("No space left") <= 1
    if "start" in line and Path("palaestrai-results").exists():
        assert shell("mosaik list")[1].count("finished") == 1


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_terminals_and_paths_may_be_other_than_utf_8(encoding: str, here: Path) -> None:
    """Print names that the encoding lacks, and use files whose names are not text."""
    name = os.fsdecode(b"w\xffalk-\xe4.yml")
    Path(name).write_text(WALK.replace("uid: walk", 'uid: "wälk → 漢"'), encoding="utf-8")
    for line, code, said in (
        ("mosaik check w*.yml", FINISHED, "sound"),
        ("mosaik start w*lk-*.yml --store s", FINISHED, "finished in"),
        ("mosaik list --store s", FINISHED, "\\u2192"),
        ("mosaik list --store s --json", FINISHED, '"document"'),
        ("mosaik start w*lk-*.yml --store $'r\\xff'", UNSOUND, "the name of the store's folder is not UTF-8"),
        ("arsenai plan $'nothing\\xff'", UNSOUND, "cannot be read"),
    ):
        found, told = shell(line, PYTHONIOENCODING=encoding)
        assert "Traceback" not in told and found == code, (line, told)
        assert said in told, (line, told)

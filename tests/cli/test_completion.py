"""Completion in shells: what is offered, and the scripts in the shells that are installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from palaestrai_mosaik.cli import arsenai, main
from palaestrai_mosaik.cli.completion import SHELLS, candidates
from palaestrai_mosaik.errors import FINISHED

RUNS = ["20260131T120000000000-aaaaaaaa", "20260201T120000000000-bbbbbbbb"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("walk.yml", "other.yaml", "notes.txt", ".hidden.yml"):
        Path(name).touch()
    for run in RUNS:
        Path("palaestrai-results/instances", run).mkdir(parents=True)
    Path("elsewhere/instances/only").mkdir(parents=True)
    return tmp_path


def offered(line: str) -> list[str]:
    """Return what is offered for the last word of a line, ``_`` for an empty one."""
    program, *words = line.split()
    parser = {"arsenai": arsenai, "palaestrai-mosaik": main}[program].parser()
    return [word for word, _ in candidates(parser, ["" if word == "_" else word for word in words])]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("palaestrai-mosaik sta", ["start"]),
        ("palaestrai-mosaik ru", ["run"]),
        ("palaestrai-mosaik nothing _", "commands"),
        ("arsenai re", ["resume", "report"]),
        ("palaestrai-mosaik --v", ["--version"]),
        ("palaestrai-mosaik list --sta", ["--status"]),
        ("palaestrai-mosaik list --status f", ["finished", "failed"]),
        ("palaestrai-mosaik list --status finished i", ["interrupted"]),
        ("palaestrai-mosaik list --status finished --do", ["--document"]),
        ("palaestrai-mosaik export latest there --format _", ["parquet", "csv"]),
        ("palaestrai-mosaik export latest there --format=c", ["--format=csv"]),
        # as bash splits it
        ("palaestrai-mosaik export latest there --format = c", ["csv"]),
        ("palaestrai-mosaik export latest there --format =", ["parquet", "csv"]),
        ("palaestrai-mosaik show _", ["latest", *reversed(RUNS)]),
        ("palaestrai-mosaik show 202602", RUNS[1:]),
        ("palaestrai-mosaik show --store elsewhere _", ["latest", "only"]),
        ("palaestrai-mosaik show --store=elsewhere _", ["latest", "only"]),
        ("palaestrai-mosaik show latest _", []),
        ("palaestrai-mosaik show --phase _", []),
        ("palaestrai-mosaik delete latest 202601", RUNS[:1]),
        ("palaestrai-mosaik start -q _", ["elsewhere/", "other.yaml", "palaestrai-results/", "walk.yml"]),
        ("palaestrai-mosaik start walk.yml .h", [".hidden.yml"]),
        ("palaestrai-mosaik start walk.yml --store e", ["elsewhere/"]),
        ("palaestrai-mosaik start ./w", ["./walk.yml"]),
        ("palaestrai-mosaik graph walk.yml -o n", ["notes.txt"]),
        ("palaestrai-mosaik show latest --steps --ag", ["--agent"]),
        ("palaestrai-mosaik show --steps lat", ["latest"]),
        ("palaestrai-mosaik completion z", ["zsh"]),
        ("palaestrai-mosaik new ag", ["agent"]),
        ("arsenai run --executor in", ["inline"]),
        ("arsenai status elsewh", ["elsewhere/"]),
        ("arsenai plan --check _", ["levels", "all", "none"]),
    ],
)
def test_what_is_offered(line: str, expected: list[str] | str) -> None:
    if expected == "commands":
        expected = offered("palaestrai-mosaik _")
        assert {"start", "run", "check", "list", "completion"} <= set(expected)
    assert offered(line) == expected


def test_the_programs_answer_with_words_and_what_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["__complete", "ver"]) == FINISHED
    assert capsys.readouterr().out == "verify\tcheck recorded runs for damage\n"
    for call in ((main.main, ["__complete", "arsenai", "can"]), (arsenai.main, ["__complete", "can"])):
        assert call[0](call[1]) == FINISHED
        assert capsys.readouterr().out.startswith("cancel\tcancel the queued")
    # what is typed may be anything
    for words in (["--"], ["-"], [""], ["start", "--"], ["start", "--set", "="], []):
        assert main.main(["__complete", *words]) == FINISHED
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_by_both_programs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    for module in (main, arsenai):
        assert module.main(["completion", shell]) == FINISHED
        assert capsys.readouterr().out == SHELLS[shell]


#: what asks the function of the script for the words that end with the last of ``$@``, one a line
ASK = {
    "bash": """
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
        _mosaik_agents "$1"; printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        words=("$@"); CURRENT=$#
        compadd() { eval "print -l -- \\"\\${(@)${@[-1]}}\\""; }
        _mosaik_agents
    """,
    "fish": "complete -C (string join ' ' -- $argv) | string split -f1 \\t",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_completes_in_its_shell(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, module in (("palaestrai-mosaik", "main"), ("arsenai", "arsenai")):
        python = f"import sys; from palaestrai_mosaik.cli.{module} import main; sys.exit(main())"
        (commands / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{python}" "$@"\n')
        (commands / name).chmod(0o755)
    Path("a b.yml").touch()
    (tmp_path / "script").write_text({"zsh": "compdef() { : }\n"}.get(shell, "") + SHELLS[shell] + ASK[shell])
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    for words, expected in (
        (["palaestrai-mosaik", "sta"], ["start"]),
        (["palaestrai-mosaik", "list", "--status", "fi"], ["finished"]),
        (["arsenai", "run", "--exec"], ["--executor"]),
        (["palaestrai-mosaik", "start", "a"], ["a b.yml"]),
        (["palaestrai-mosaik", "arsenai", "coll"], ["collect"]),
        (["palaestrai-mosaik", "show", "lat"], ["latest"]),
    ):
        done = subprocess.run(
            [program, str(tmp_path / "script"), *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.splitlines() == expected, done.stderr
        assert done.stderr == ""

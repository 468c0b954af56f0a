"""Completion in shells: what is offered, and the scripts in the shells that are installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import argcomplete
import pytest

from palaestrai_mosaik.cli import arsenai, main
from palaestrai_mosaik.core.errors import FINISHED
from palaestrai_mosaik.store import Store

SHELLS = ("bash", "zsh", "fish")
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


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """Return a function that completes the last word of a line, ``_`` for an empty one."""
    # it would open the descriptor 9
    monkeypatch.setattr(argcomplete.CompletionFinder, "_init_debug_stream", lambda self: None)

    def complete(line: str) -> list[str]:
        typed = line.removesuffix("_")
        answer = tmp_path / "answer"
        for name, value in {
            "_ARGCOMPLETE": "1",
            "_ARGCOMPLETE_IFS": "\n",
            "_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><=;|&(:",
            "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
            "_ARGCOMPLETE_STDOUT_FILENAME": str(answer),
            "COMP_LINE": typed,
            "COMP_POINT": str(len(typed)),
        }.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as end:
            {"arsenai": arsenai, "palaestrai-mosaik": main}[line.split(maxsplit=1)[0]].main([])
        assert end.value.code == 0
        return answer.read_text().splitlines()

    return complete


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
        ("palaestrai-mosaik export latest there --format=c", ["csv"]),
        ("palaestrai-mosaik export latest there --format=", ["parquet", "csv"]),
        ("palaestrai-mosaik arsenai coll", ["collect"]),
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
def test_what_is_offered(line: str, expected: list[str] | str, offered: Callable[[str], list[str]]) -> None:
    if expected == "commands":
        expected = offered("palaestrai-mosaik _")
        assert {"start", "run", "check", "list", "completion"} <= set(expected)
    assert offered(line) == expected


def test_names_and_tags_are_offered(offered: Callable[[str], list[str]]) -> None:
    with Store("labelled", create=True) as store:
        run = store.begin_run(uid="u", document={}, text="", hash="h", seed=1, version="3.5")
        run.finish("finished")
        store.label(run.uid, name="baseline", tags=["good", "great", "old"])
    assert offered("palaestrai-mosaik show --store labelled _") == ["latest", "baseline", run.uid]
    assert offered("palaestrai-mosaik show --store labelled b") == ["baseline"]
    assert offered("palaestrai-mosaik list --store labelled --tag g") == ["good", "great"]
    assert offered("palaestrai-mosaik list --tag _") == []


@pytest.mark.parametrize("words", ["--", "-", "", "start --", "start --set =", "'", "start \\"])
def test_any_line_is_answered(
    words: str, offered: Callable[[str], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    offered(f"palaestrai-mosaik {words}")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_by_both_programs(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    for module in (main, arsenai):
        assert module.main(["completion", shell]) == FINISHED
        out = capsys.readouterr().out
        assert "palaestrai-mosaik" in out and "arsenai" in out


#: calls the function of the script for the command line ``$@``, and prints a word per line
ASK = {
    "bash": """
        compopt() { :; }
        COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}
        _python_argcomplete "$1"; printf '%s\\n' "${COMPREPLY[@]}"
    """,
    "zsh": """
        words=("$@"); BUFFER="$*"; CURSOR=${#BUFFER}
        _describe() { eval "print -l -- \\"\\${(@)$2%%:*}\\""; }
        _python_argcomplete
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
    script = argcomplete.shellcode(["palaestrai-mosaik", "arsenai"], use_defaults=False, shell=shell)
    (tmp_path / "script").write_text({"zsh": "compdef() { : }\n"}.get(shell, "") + script + ASK[shell])
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    for words, expected in (
        (["palaestrai-mosaik", "sta"], ["start"]),
        (["palaestrai-mosaik", "list", "--status", "fi"], ["finished"]),
        (["arsenai", "run", "--exec"], ["--executor"]),
        (["palaestrai-mosaik", "start", "a"], ["a\\ b.yml" if shell == "bash" else "a b.yml"]),
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

"""What commands print: with ``--quiet``, with ``--verbose``, and the options that all commands have."""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
from pathlib import Path

import pytest
from support.documents import WALK

from palaestrai_mosaik.cli import arsenai, main, output
from palaestrai_mosaik.cli.output import table
from palaestrai_mosaik.core.errors import FAILED, FINISHED, UNSOUND

DESIGN = """
uid: study
seed: 1
base: walk.yml
factors:
  slip: {path: schedule.train.environments.slippery_grid.environment.params.slip, levels: [0.0, 0.5], create: true}
outcomes:
  steps: {of: steps, episode: mean}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("walk.yml").write_text(WALK)
    Path("study.yml").write_text(DESIGN)
    return tmp_path


def call(program: str, *arguments: str) -> int:
    return {"arsenai": arsenai, "palaestrai-mosaik": main}[program].main(arguments)


def commands() -> list[tuple[str, argparse.ArgumentParser]]:
    """Return the parsers of all commands of both programs."""
    found = []
    for module in (main, arsenai):
        parser = module.parser()
        (commands,) = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
        found += [(f"{parser.prog} {name}", sub) for name, sub in commands.choices.items()]
    return found


@pytest.mark.parametrize(("name", "parser"), commands(), ids=lambda one: one if isinstance(one, str) else "")
def test_options_have_one_spelling_in_all_commands(name: str, parser: argparse.ArgumentParser) -> None:
    options = {option: action for action in parser._actions for option in action.option_strings}
    for short, long in (("-q", "--quiet"), ("-v", "--verbose")):
        assert options[short] is options[long]
    if "--output" in options:
        assert options["-o"] is options["--output"]


def command_warns(text: str) -> bool:
    return all(line.startswith("warning: ") for line in text.splitlines())


def test_quiet_commands_print_what_was_asked_for_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    silent = (
        "palaestrai-mosaik check walk.yml",
        "palaestrai-mosaik start walk.yml",
        "palaestrai-mosaik graph walk.yml -o world.txt",
        "palaestrai-mosaik plot latest -o picture.svg",
        "palaestrai-mosaik export latest there",
        "palaestrai-mosaik verify --all",
        "palaestrai-mosaik new run mine",
        "palaestrai-mosaik delete latest --yes",
        "arsenai generate study.yml -o study",
        "arsenai run study --executor inline",
        "arsenai resume study --executor inline",
        "arsenai collect study",
        "arsenai report study -o page",
    )
    for line in silent:
        assert call(*line.split(), "-q") == FINISHED, line
        assert capsys.readouterr() == ("", ""), line
    assert all(Path(name).exists() for name in ("world.txt", "picture.svg", "there", "page", "mine.yml"))
    asked = (
        ("palaestrai-mosaik graph walk.yml", "world of phase"),
        ("palaestrai-mosaik list --store study/results", "study-0-r0"),
        ("palaestrai-mosaik show latest --store study/results", "episodes of phase"),
        ("arsenai plan study.yml", "documents  2 documents"),
        ("arsenai status study", "finished"),
        ("arsenai analyse study", "outcome"),
        ("arsenai compare study --by slip", "level"),
    )
    for line, expected in asked:
        assert call(*line.split(), "--quiet") == FINISHED, line
        out, err = capsys.readouterr()
        assert expected in out, line
        assert "next: arsenai" not in out and "outcomes.csv" not in out, line
        # (a comparison of two runs has warnings)
        assert err == "" or command_warns(err), line


def test_quiet_commands_print_errors_and_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    Path("walk.yml").write_text(WALK.replace("seed: 7", 'seed: 7\nversion: "3.4"'))
    assert main.main(["check", "-q", "walk.yml"]) == FINISHED
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("warning: ")
    Path("walk.yml").write_text(WALK.replace("muscle: random", "muscle: randm"))
    assert main.main(["check", "-q", "walk.yml"]) == UNSOUND
    out, err = capsys.readouterr()
    assert out == "" and "did you mean 'random'?" in err and err.endswith("1 problem\n")


def test_a_failed_run_of_a_quiet_design_is_an_error(
    capsys: pytest.CaptureFixture[str], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(here))
    Path("quiet_raiser.py").write_text(
        "from palaestrai_mosaik.agent import Muscle\n"
        "class Raising(Muscle):\n"
        "    def propose_actions(self, sensors, actuators_available):\n        raise ValueError('no idea')\n"
    )
    Path("walk.yml").write_text(WALK.replace("muscle: random", "muscle: quiet_raiser:Raising"))
    assert call("arsenai", "generate", "study.yml", "-q", "-o", "study") == FINISHED
    assert call("arsenai", "run", "study", "-q", "--executor", "inline") == FAILED
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"^failed:\n.*\n  study-0-r0 .*ValueError: no idea  study/jobs", err, re.MULTILINE)


def test_verbose_says_what_takes_how_long(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["start", "walk.yml", "-v"]) == FINISHED
    out, err = capsys.readouterr()
    assert out.startswith("run 'walk': finished")
    for said in (
        r"environment 'slippery_grid' set up in \d+\.\d\d s",
        r"document walk.yml checked in \d+\.\d\d s",
        r"phase 'train' ended \(.*\): 2 episodes and \d+ steps in \d+\.\d\d s",
    ):
        assert re.search(
            rf"^\d\d:\d\d:\d\d\.\d\d\d INFO palaestrai_mosaik\.\S+: {said}$", err, re.MULTILINE
        ), said
    assert "DEBUG" not in err
    assert main.main(["list", "-vv"]) == FINISHED
    assert re.search(r"DEBUG .*: store .* opened", capsys.readouterr().err)
    # and only while the command works
    assert not logging.getLogger("palaestrai_mosaik").handlers
    assert main.main(["list"]) == FINISHED
    assert capsys.readouterr().err == ""


def test_verbose_prints_the_traceback_of_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["show", "nothing"]) == UNSOUND
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert main.main(["show", "nothing", "--verbose"]) == UNSOUND
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err and err.endswith(line)


def test_export_takes_its_folder_with_or_without_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["start", "walk.yml", "-q"]) == FINISHED
    assert main.main(["export", "latest", "-o", "one"]) == FINISHED
    assert main.main(["export", "latest", "two"]) == FINISHED
    names = [sorted(path.name for path in Path(folder).rglob("*")) for folder in ("one", "two")]
    assert names[0] == names[1] != []
    for wrong in (["export", "latest"], ["export", "latest", "three", "-o", "four"]):
        assert main.main(wrong) == UNSOUND
        assert "name the folder to export to, once: DIRECTORY or --output" in capsys.readouterr().err


def colours(monkeypatch: pytest.MonkeyPatch, terminal: bool, **environment: str) -> None:
    """Set the variables that programs with colours look at, and whether the streams are a terminal."""
    for name in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: terminal)


@pytest.mark.parametrize(
    ("terminal", "environment", "expected"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"NO_COLOR": ""}, True),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"CLICOLOR_FORCE": "1"}, True),
        (False, {"FORCE_COLOR": "0"}, False),
        (True, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_are_for_terminals_unless_the_environment_says_otherwise(
    terminal: bool,
    environment: dict[str, str],
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main.main(["start", "walk.yml", "-q"]) == FINISHED
    colours(monkeypatch, terminal, **environment)
    assert main.main(["list"]) == FINISHED
    assert ("\x1b[32mfinished\x1b[0m" in capsys.readouterr().out) == expected
    assert main.main(["show", "nothing"]) == UNSOUND
    err = capsys.readouterr().err
    assert err.startswith("\x1b[31mpalaestrai-mosaik:\x1b[0m " if expected else "palaestrai-mosaik: ")


def test_json_has_no_colours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["start", "walk.yml", "-q"]) == FINISHED
    colours(monkeypatch, True, FORCE_COLOR="1")
    assert main.main(["list", "--json"]) == FINISHED
    assert json.loads(capsys.readouterr().out)[0]["status"] == "finished"


def test_the_colour_is_that_of_the_status(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    colours(monkeypatch, True)
    shown = table(
        ("run", "status", "n"),
        [("failed", "failed", 1), ("b", "lost", 2), ("c", "waiting", 3)],
        statuses="status",
    )
    output.say(shown)
    assert capsys.readouterr().out.splitlines() == [
        "run     status   n",
        # a run that is called so has no colour, and the colour does not change where columns begin
        "failed  \x1b[31mfailed \x1b[0m  1",
        "b       \x1b[33mlost   \x1b[0m  2",
        "c       waiting  3",
    ]
    output.warn("a\x1b[31mb")
    assert capsys.readouterr().err == "\x1b[33mwarning:\x1b[0m a\\x1b[31mb\n"
    # what a user has written cannot pretend to be a colour
    output.say(output.compose("\x1b[1m", output.status("\x1b[2m", "failed")))
    assert capsys.readouterr().out == "\\x1b[1m\x1b[31m\\x1b[2m\x1b[0m\n"


@pytest.mark.parametrize(
    ("program", "name", "other"),
    [
        ("palaestrai-mosaik", "start", "run"),
        ("palaestrai-mosaik", "check", "plan"),
        ("arsenai", "run", "start"),
        ("arsenai", "plan", "check"),
    ],
)
def test_the_same_words_work_in_both_programs(
    program: str, name: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(program, other, "--help") == FINISHED
    of_alias = capsys.readouterr().out
    assert call(program, name, "--help") == FINISHED
    assert of_alias == capsys.readouterr().out
    assert f"{program} {other} is the same." in " ".join(of_alias.split()).replace("- ", "-")
    assert call(program, "--help") == FINISHED
    assert re.search(rf"^ +{name} \({other}\)\s", capsys.readouterr().out, re.MULTILINE)


def test_resume_is_a_command_and_an_option_of_both_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("palaestrai-mosaik", "resume", "walk.yml") == FINISHED
    assert "nothing to resume, starting from the beginning" in capsys.readouterr().err
    for command in (["resume", "walk.yml"], ["run", "walk.yml", "--resume"]):
        assert call("palaestrai-mosaik", *command) == FINISHED
        assert "has finished already" in capsys.readouterr().err
    assert call("arsenai", "generate", "study.yml", "-q", "-o", "study") == FINISHED
    for command in ("start study --resume", "resume study"):
        assert call("arsenai", *command.split(), "--executor", "inline") == FINISHED
        assert "2 of 2 runs finished" in capsys.readouterr().out

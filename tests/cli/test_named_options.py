"""Options that messages, notes and comments of scripts name: each is one of the command that it is said of."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import palaestrai_mosaik
from palaestrai_mosaik.cli import arsenai, main

PACKAGE = Path(palaestrai_mosaik.__file__).parent
# an option, and not a part of a word, of a line or of another option's value
_OPTION = re.compile(r"(?<![\w=-])--[a-z][a-z-]+")
_COMMAND = re.compile(r"(arsenai|palaestrai-mosaik) ([a-z]+)")
_PARSERS = {"arsenai": arsenai.parser, "palaestrai-mosaik": main.parser}


def options() -> dict[tuple[str, str], set[str]]:
    """Return the options of each command of both programs."""
    found = {}
    for program, make in _PARSERS.items():
        actions = make()._actions
        found[program, ""] = {text for action in actions for text in action.option_strings}
        subs = next(action for action in actions if isinstance(action, argparse._SubParsersAction))
        for name, sub in subs.choices.items():
            found[program, name] = {text for action in sub._actions for text in action.option_strings}
    return found


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a module with their lines; of a text with values in it, what is written. No docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if id(node) in inside or id(node) in bare:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(p.value if isinstance(p, ast.Constant) else "\0" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def named() -> Iterator[tuple[str, str, tuple[str, str] | None, str]]:
    """Yield where an option is named, the option, the command that stands before it, and the text."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for line, text in texts(path):
            for option in _OPTION.finditer(text):
                commands = list(_COMMAND.finditer(text, 0, option.start()))
                before = (commands[-1][1], commands[-1][2]) if commands else None
                yield f"{path.relative_to(PACKAGE)}:{line}", option[0], before, text


#: programs that are not ours, whose options we pass on or name
_OTHERS = ("arsenai/analysis/report/paper.py", "arsenai/execution/cluster/", "core/installation.py")
_SERVE = [("palaestrai-mosaik", "serve"), ("arsenai", "serve")]
#: modules outside of the commands whose messages name options: of these commands, which alone lead there
_OF_COMMANDS = {
    "arsenai/analysis/report/page.py": [("arsenai", "report")],
    "arsenai/design/writer.py": [("arsenai", "generate")],
    "environment/gymnasium.py": [("palaestrai-mosaik", "start"), ("arsenai", "run")],
    "arsenai/execution/status.py": [("arsenai", name) for name in ("status", "resume", "collect")],
    "arsenai/execution/runs.py": [
        ("arsenai", "run"),
        ("arsenai", "resume"),
        ("arsenai", "submit"),
        ("arsenai", "status"),
    ],
    "experiment/paths.py": [("palaestrai-mosaik", name) for name in ("start", "check", "graph")],
    "arsenai/execution/settings.py": [("arsenai", "run"), ("arsenai", "resume")],
    "core/importing.py": [("palaestrai-mosaik", "start"), ("palaestrai-mosaik", "check"), ("arsenai", "run")],
    "store/store.py": [("palaestrai-mosaik", name) for name in ("start", "show", "serve")],
    "store/urls.py": [("palaestrai-mosaik", "start"), ("palaestrai-mosaik", "check"), ("arsenai", "run")],
    "runner/scalars.py": [("palaestrai-mosaik", "start")],
    "web/resources.py": _SERVE,
    "web/server.py": _SERVE,
    "web/workplace.py": [("palaestrai-mosaik", "start")],
    "web/actions/designs.py": [("arsenai", "resume")],
    "web/actions/documents.py": [("palaestrai-mosaik", "start")],
    "web/actions/runs.py": [("palaestrai-mosaik", "start")],
    "web/data/record.py": [("palaestrai-mosaik", "export"), ("palaestrai-mosaik", "start")],
}


def test_each_option_that_is_named_is_one_of_its_command() -> None:
    """``--by`` stood in the notes of ``arsenai report``, which has no such option."""
    known = options()
    wrong = []
    seen = set()
    for where, option, before, text in named():
        module = where.partition(":")[0]
        if module.startswith(_OTHERS) or "of sbatch" in text:
            continue
        if before in known:
            commands = [before]
        elif module.startswith("cli/"):
            # what a command says of itself
            commands = [name for name in known if option in known[name]] or [("no", "command")]
        else:
            seen.add(module)
            commands = _OF_COMMANDS.get(module, [("no", "command")])
        for command in commands:
            if option not in known.get(command, ()):
                wrong.append(f"{where}: {option} of {' '.join(command)}: {text[:90]!r}")
    assert not wrong
    assert seen == set(_OF_COMMANDS), "modules that name options no more"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name a factor with --by", [("--by", None)]),
        ("arsenai compare --by X", [("--by", ("arsenai", "compare"))]),
        ("such as --constraint=fast", [("--constraint", None)]),
        ("a--b, ---c", []),
    ],
)
def test_options_are_found(text: str, expected: list[object]) -> None:
    found = []
    for option in _OPTION.finditer(text):
        commands = list(_COMMAND.finditer(text, 0, option.start()))
        found.append((option[0], (commands[-1][1], commands[-1][2]) if commands else None))
    assert found == expected

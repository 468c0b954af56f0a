"""Who prints: ``palaestrai_mosaik.core.printing`` alone, so that a terminal obeys no name of a document."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import palaestrai_mosaik

ROOT = Path(palaestrai_mosaik.__file__).parent
HOME = "core/printing.py"

#: file -> what it prints by itself, and why that is no harm
JUDGED = {
    "arsenai/execution/progress.py": {"os.write": "a fixed text, from the handler of a signal"},
    "arsenai/execution/task.py": {"sys.stdout": "led to the log", "sys.stderr": "led to the log"},
    "core/progress.py": {"sys.stderr": "the stream that progress is written to"},
    "runner/worker_main.py": {"sys.stdout": "buffered by lines"},
    "simulation/environment_host.py": {"sys.stdout": "buffered by lines"},
    "arsenai/execution/processes.py": {
        "sys.stdout": "flushed before a fork",
        "sys.stderr": "flushed before a fork",
    },
    "simulation/scheduler/versions.py": {"tqdm": "mosaik's own bar, for scripts that ask for it"},
}
#: calls that are given a stream, and print nothing to it but by :func:`printing.write`
GIVEN = {"write", "isatty", "make_progress", "CountProgress"}


def prints_in(text: str) -> set[str]:
    """Return what in a module's text prints by itself, or takes hold of a standard stream for it."""
    tree, found = ast.parse(text), set()
    given = {
        id(part)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in GIVEN
        for one in (call.func, *call.args, *(word.value for word in call.keywords))
        if not ast.unparse(one).endswith(".write")
        for part in ast.walk(one)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in {"print", "tqdm", "traceback.print_exc", "logging.StreamHandler"}:
                found.add(name)
            if name == "os.write" and node.args and ast.unparse(node.args[0]) in "12":
                found.add(name)
        elif isinstance(node, ast.Attribute) and id(node) not in given:
            name = ast.unparse(node)
            if name in {"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"}:
                found.add(name)
    return found


def test_nobody_else_prints() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): prints_in(path.read_text(encoding="utf-8"))
        for path in ROOT.rglob("*.py")
    }
    judged = {name: set(uses) for name, uses in JUDGED.items()}
    assert {name: uses for name, uses in found.items() if uses and name != HOME} == judged


@pytest.mark.parametrize(
    "text",
    [
        "print('x')",
        "print('x', file=sys.stderr)",
        "sys.stdout.write('x')",
        "out = sys.stderr",
        "os.write(2, b'x')",
        "tqdm(total=3)",
        "traceback.print_exc()",
        "logging.StreamHandler()",
    ],
)
def test_a_new_way_to_print_would_be_found(text: str) -> None:
    assert prints_in(text)


@pytest.mark.parametrize(
    "text", ["write(text, sys.stderr)", "sys.stdout.isatty()", "'print(1)'", "os.write(handle, b'')"]
)
def test_what_prints_nothing_is_none(text: str) -> None:
    assert not prints_in(text)

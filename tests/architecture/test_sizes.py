"""A soft ceiling, held: 7 parameters a function. A file may be as long as its one idea."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

import palaestrai_mosaik

ROOT = Path(palaestrai_mosaik.__file__).parent
PARAMETERS = 7

#: an exception says why, in brackets behind the rule's number
EXCUSED = re.compile(r"#\s*noqa:\s*PLR0913\s*\(\s*\w[^)]{3,}\)")


def wide_functions(root: Path) -> list[str]:
    """Return the functions with more than ``PARAMETERS`` parameters and no excuse.

    ``self``, ``cls``, ``*args`` and ``**kwargs`` do not count.
    """
    found = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for node in ast.walk(ast.parse(text)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            arguments = node.args
            names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
            count = len([name for name in names if name not in ("self", "cls")])
            head = "\n".join(lines[node.lineno - 1 : node.body[0].lineno])
            if count > PARAMETERS and not EXCUSED.search(head):
                found.append(f"{path.relative_to(root)}:{node.lineno} {node.name} has {count} parameters")
    return found


def test_functions_have_few_parameters() -> None:
    assert wide_functions(ROOT) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(a, b, c, d, e, f, g): pass", []),
        ("def f(a, b, c, d, e, f, g, h): pass", ["m.py:1 f has 8 parameters"]),
        ("async def f(a, b, c, d, /, e, *, f, g, h): pass", ["m.py:1 f has 8 parameters"]),
        ("class C:\n    def f(self, a, b, c, d, e, f, g, *args, **kwargs): pass", []),
        ("class C:\n    def f(self, a, b, c, d, e, f, g, h): pass", ["m.py:2 f has 8 parameters"]),
        ("def f(  # noqa: PLR0913 (one argument per column)\n    a, b, c, d, e, f, g, h\n): pass", []),
        ("def f(  # noqa: PLR0913\n    a, b, c, d, e, f, g, h\n): pass", ["m.py:1 f has 8 parameters"]),
    ],
)
def test_a_wide_function_is_found(tmp_path: Path, text: str, found: list[str]) -> None:
    (tmp_path / "m.py").write_text(textwrap.dedent(text))
    assert wide_functions(tmp_path) == found

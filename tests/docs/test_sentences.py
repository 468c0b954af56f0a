"""Every file and test that the table of sentences names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "sentences.md"
_ROW = re.compile(r"^\| (?P<said>.+) \| `(?P<where>[^`|]+)` \| (?P<tests>`[^`|]+`(?:, `[^`|]+`)*) \|$")
_HEADS = ("| sentence |", "|---|")


def rows_of(text: str) -> list[tuple[str, str, str]]:
    """Return the rows of all tables: what is said, where it is, which test; a row for each test."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith(_HEADS):
            match = _ROW.match(line)
            assert match, f"no row of (sentence, file, test): {line}"
            rows += [
                (match["said"], match["where"], test) for test in re.findall(r"`([^`]+)`", match["tests"])
            ]
    return rows


def missing(where: str, test: str) -> str | None:
    """Return what is missing of a place in the package and of a test, if anything is."""
    if not (ROOT / "palaestrai_mosaik" / where).is_file():
        return where
    file, _, name = test.partition("::")
    path = ROOT / "tests" / file
    if not path.is_file():
        return file
    functions = {
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef)
    }
    return None if name.startswith("test_") and name in functions else test


def test_what_the_sentences_name_is_there() -> None:
    rows = rows_of(PAGE.read_text(encoding="utf-8"))
    assert len(rows) > 45
    assert [row for row in rows if missing(*row[1:])] == []


@pytest.mark.parametrize(
    ("where", "test"),
    [
        ("simulation/no_such.py", "docs/test_sentences.py::test_what_the_sentences_name_is_there"),
        ("simulation/body.py", "docs/no_such.py::test_it"),
        ("simulation/body.py", "docs/test_sentences.py::test_it"),
        ("simulation/body.py", "docs/test_sentences.py::rows_of"),
    ],
)
def test_what_is_not_there_is_found(where: str, test: str) -> None:
    assert missing(where, test) is not None


def test_what_is_no_row_is_found() -> None:
    with pytest.raises(AssertionError, match="no row of"):
        rows_of("| something is said | nowhere |")

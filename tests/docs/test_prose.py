"""The wording of pages and code (:mod:`tests.support.prose`), which ``make lint`` checks, too."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.prose import ROOT, findings, marked, pages


@pytest.mark.parametrize("page", sorted(pages()))
def test_a_page_has_none_of_the_phrases(page: str) -> None:
    assert not list(map(str, findings(page, pages()[page])))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("One.\nA muscle that is told.", 2),
        ("A run whose\nend.", 1),
        ("It begins\nagain.", 1),
        ("```text\nalike\n```\nNot alike.", 4),
        ("64 Alike ones", 1),
    ],
)
def test_a_phrase_is_found_at_its_line(text: str, line: int) -> None:
    (found,) = findings("page", text)
    assert (found.line, str(found)) == (line, f"page:{line}: {found.phrase!r}; instead: {found.instead}")


@pytest.mark.parametrize(
    "text", ["`alike`", "```text\nwhose\n```", "**`No run has told a value`**", "unlike", "retold"]
)
def test_code_and_quoted_messages_are_left_alone(text: str) -> None:
    assert not list(findings("page", text))


def test_lint_checks_the_wording() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "-m tests.support.prose" in makefile.partition("\nlint:")[2].partition("\n\n")[0]


def test_docstrings_and_comments_with_a_marker_are_counted(tmp_path: Path) -> None:
    lines = [
        '"""Tell what is there."""',
        "# (a reason)",
        "# fine",
        "def f():",
        '    """Return the sum."""',
        '    return "whose"  # as it is',
    ]
    (tmp_path / "module.py").write_text("\n".join(lines) + "\n")
    expected = [f"{tmp_path.name}/module.py:{line}" for line in (1, 2, 6)]
    found, share = marked(tmp_path)
    assert [line.rpartition(":")[0] for line in found] == expected
    assert share == 3 / 5

"""The table of docs/from-palaestrai.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_row_names_a_test_that_there_is():
    text = (ROOT / "docs" / "from-palaestrai.md").read_text()
    section = text.partition("\n## Where each part is\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line[:1] == "|"]
    assert len(rows) > 40
    for row in rows[2:]:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
        assert named, row
        for path, function in named:
            text = (ROOT / path).read_text()
            assert f"def {function or 'test_'}" in text, f"{path} has no {function}"

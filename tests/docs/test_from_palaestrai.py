"""The table of docs/from-palaestrai.md names tests that there are."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_row_names_a_test_that_there_is():
    rows = [
        line for line in (ROOT / "docs" / "from-palaestrai.md").read_text().splitlines() if line[:1] == "|"
    ]
    assert len(rows) > 15
    for row in rows[2:]:
        named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", row)
        assert named, row
        for path, function in named:
            text = (ROOT / path).read_text()
            assert f"def {function or 'test_'}" in text, f"{path} has no {function}"

"""The mutations of the tables that only tests beside palaestrAI find (see ``tests/docs/test_mutations.py``)."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("palaestrai")

from tests.support import mutations

GROUPS = mutations.by_test_file(mutations.read("from-palaestrai.md"))


@pytest.mark.slow
@pytest.mark.parametrize("file", [file for file in GROUPS if file.startswith("tests/peer/")])
def test_every_mutation_is_found(file: str, tmp_path: Path) -> None:
    wrong, skipped = mutations.survivors(mutations.copy_checkout(tmp_path), GROUPS[file])
    assert wrong == []
    if skipped:
        pytest.skip(f"{', '.join(skipped)}: skipped here")

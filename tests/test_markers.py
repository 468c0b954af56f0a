"""Markers: what a test needs is what it is marked with; ``make test-fast`` and CONTRIBUTING.md agree."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import pytest_collection_modifyitems
from support.markers import FAST, LONG, MARKERS, TESTS, may_be_fast, needs_of

ROOT = TESTS.parent


#: prints the markers of each test that is collected
COLLECT = """
import json, sys, pytest

class Printing:
    def pytest_collection_finish(self, session):
        print(json.dumps({item.nodeid: [mark.name for mark in item.iter_markers()] for item in session.items}))

sys.exit(pytest.main(["-qq", "--collect-only", "-p", "no:cacheprovider", *sys.argv[1:]], plugins=[Printing()]))
"""


def marked(*files: str) -> dict[str, set[str]]:
    """Return the markers of the tests in ``files``."""
    done = subprocess.run(
        [sys.executable, "-c", COLLECT, *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return {test: set(markers) for test, markers in json.loads(line).items()}


def test_make_test_fast_runs_what_is_marked_fast() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^test-fast: .*\n\t.*-m pytest .*-m fast$", makefile, flags=re.M)


def test_the_table_of_markers_is_that_of_the_tests() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.split("| marker | tests |\n|---|---|\n")[1].split("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, flags=re.M)) == MARKERS


def test_tests_have_the_markers_of_what_they_need() -> None:
    # of the first file all but the grid's are fast, of the second some are slow, of the third none is fast
    store = "tests/store/test_store_schema.py"
    files = ("tests/testing/test_check_environments.py", "tests/scheduler/test_differential.py", store)
    found = marked(*files)
    assert any("postgresql" in markers for test, markers in found.items() if test.startswith(store))
    fast = [test for test, markers in found.items() if "fast" in markers]
    assert fast and not any(found[test] & {"slow", "grid", "postgresql"} for test in fast)
    assert any("slow" in markers for test, markers in found.items() if test.startswith(files[1]))
    assert found[f"{files[0]}::test_the_rewards_of_the_grid_pass"] >= {"grid"}


def test_files_with_long_tests_come_first() -> None:
    def item(path: str, *markers: str) -> Any:
        return SimpleNamespace(
            path=TESTS / path, get_closest_marker=markers.__contains__, add_marker=lambda mark: None
        )

    def ordered(*, slow: bool) -> list[str]:
        quick, long, mixed = (
            item("cli/test_a.py"),
            item(f"{LONG[0]}/test_b.py"),
            item("cli/test_c.py", "slow"),
        )
        items = [quick, mixed, item("cli/test_c.py"), long]
        config = SimpleNamespace(getoption={"slow": slow, "unrun": False}.__getitem__)
        pytest_collection_modifyitems(cast(Any, config), items)
        return [item.path.stem for item in items]

    assert ordered(slow=False) == ["test_b", "test_a", "test_c", "test_c"]
    assert ordered(slow=True) == ["test_c", "test_c", "test_b", "test_a"]
    assert all((TESTS / path).exists() for path in LONG)


def test_folders_of_fast_tests_exist() -> None:
    assert all((TESTS / folder).is_dir() for folder in FAST)
    assert may_be_fast(TESTS / FAST[0] / "test_x.py") and may_be_fast(TESTS)
    assert not may_be_fast(TESTS / "grid") and not may_be_fast(TESTS / "test_seeding.py")


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("import pytest\nx = pytest.importorskip('numba')", {"": {"numba"}}),
        ("import pytest\ndef test(): pytest.importorskip('torch.cuda')", {"": set(), "test": {"torch"}}),
        ("def test(): pass", {"": set(), "test": set()}),
    ],
)
def test_what_a_file_needs_is_read(tmp_path: Path, text: str, needs: dict[str, set[str]]) -> None:
    (tmp_path / "test_x.py").write_text(text, encoding="utf-8")
    assert needs_of(tmp_path / "test_x.py") == needs

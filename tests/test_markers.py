"""Markers: what a test needs, and how long it takes, is what it is marked with."""

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
from support.markers import MARKERS, TESTS, needs_of
from support.slow import slow_among, slow_tests

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


def test_the_table_of_markers_is_that_of_the_tests() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = page.split("| marker | tests |\n|---|---|\n")[1].split("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, flags=re.M)) == MARKERS


def test_tests_have_the_markers_of_what_they_need() -> None:
    store, scheduler = "tests/store/test_store_schema.py", "tests/simulation/scheduler/test_differential.py"
    files = ("tests/testing/test_check_environments.py", scheduler, store)
    found = marked(*files)
    assert any("postgresql" in markers for test, markers in found.items() if test.startswith(store))
    slow = {test.partition("[")[0] for test, markers in found.items() if "slow" in markers}
    assert slow == {name for name in slow_tests() if name.partition("::")[0] in files}
    assert any(name.startswith(scheduler) for name in slow)
    assert found[f"{files[0]}::test_the_rewards_of_the_grid_pass"] >= {"grid"}


def test_files_with_the_longest_tests_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"a.py::test_long": 20.0, "b.py::test_longest": 30.0}
    # (there are several modules with this name)
    monkeypatch.setitem(pytest_collection_modifyitems.__globals__, "slow_tests", lambda: seconds)

    def item(name: str) -> Any:
        skips: list[Any] = []
        return SimpleNamespace(
            nodeid=name,
            path=Path(name.partition("::")[0]),
            get_closest_marker=lambda marker: name in seconds,
            add_marker=skips.append,
            skips=skips,
        )

    def ordered(*, slow: bool) -> list[tuple[str, bool]]:
        items = [item(name) for name in ("c.py::test", "a.py::test", "a.py::test_long", "b.py::test_longest")]
        config = SimpleNamespace(getoption={"slow": slow, "unrun": False}.__getitem__)
        pytest_collection_modifyitems(cast(Any, config), items)
        return [(item.nodeid, bool(item.skips)) for item in items]

    assert ordered(slow=True) == [
        ("b.py::test_longest", False),
        ("a.py::test", False),
        ("a.py::test_long", False),
        ("c.py::test", False),
    ]
    assert [name for name, skipped in ordered(slow=False) if skipped] == list(seconds)


def test_slow_is_what_takes_long_and_something_of_each_file_is_not() -> None:
    seconds = {
        "a.py::test_quick[1]": 0.4,
        "a.py::test_quick[2]": 1.5,
        "a.py::test_long[1]": 0.4,
        "a.py::test_long[2]": 1.7,
        **{f"b.py::test_many[{number}]": 0.5 for number in range(30)},
        "b.py::test_quick": 0.1,
        "c.py::test_long": 3.0,
        "c.py::test_longer": 4.0,
        "d.py::test_too_long": 11.0,
    }
    assert list(slow_among(seconds).items()) == [
        ("b.py::test_many", 15.0),
        ("d.py::test_too_long", 11.0),
        ("c.py::test_longer", 4.0),
        ("a.py::test_long", pytest.approx(2.1)),
    ]


def test_each_slow_test_is_there() -> None:
    """A list with names of tests that are gone has to be written again."""
    names = [name.split("::")[:2] for name in slow_tests()]
    here = {
        file: re.findall(
            r"^(?:def |class )?([Tt]est\w+)", (ROOT / file).read_text(encoding="utf-8"), flags=re.M
        )
        for file in {file for file, _ in names}
    }
    assert [f"{file}::{name}" for file, name in names if name not in here[file]] == []


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

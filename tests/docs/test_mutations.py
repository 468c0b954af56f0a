"""Every row of the tables has mutations, and names the tests that find them.

The mutations are in ``mutations/``. ``make mutation`` runs them with :mod:`tests.support.mutations`, those of tests that
need palaestrAI in its environment.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import mutants, mutations
from tests.support.mutations import PACKAGE, ROOT, Mutation

PAGES = ("sentences.md", "from-palaestrai.md")
KEPT = {page: mutations.read(page) for page in PAGES}


def rows_of(page: str) -> dict[str, list[str]]:
    """Return the tests that each row of the page names, by its first cell; none where no column has tests."""
    rows = {}
    for first, *others in mutations.rows_of_tables((ROOT / "docs" / page).read_text(encoding="utf-8")):
        assert first not in rows, (
            f"{page}: two rows begin with {first!r}, so that nobody knows which is meant"
        )
        named = re.findall(r"`((?:tests/)?\w+/[\w/]+\.py(?:::\w+)?)`", others[-1])
        rows[first] = [name if name.startswith("tests/") else f"tests/{name}" for name in named]
    return rows


@pytest.mark.parametrize("page", PAGES)
def test_every_row_has_a_mutation_and_no_mutation_is_of_another_row(page: str) -> None:
    rows, kept = rows_of(page), {one.row for one in KEPT[page]}
    assert [row for row in rows if row not in kept] == []
    assert sorted(kept - rows.keys()) == []


@pytest.mark.parametrize("page", PAGES)
def test_a_mutation_is_found_by_the_test_that_its_row_names(page: str) -> None:
    rows = rows_of(page)
    for one in KEPT[page]:
        named = rows.get(one.row, [])
        assert not named or one.test in named or one.test_file in named, (
            f"{one}: {one.test} is none of {named}"
        )
    # and each test that is named finds one
    tried = {one.test for one in KEPT[page]} | {one.test_file for one in KEPT[page]}
    assert [test for named in rows.values() for test in named if test not in tried] == []


def test_the_text_of_every_mutation_is_there_once() -> None:
    for one in (one for page in PAGES for one in KEPT[page]):
        file, _, function = one.test.partition("::")
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), (
            f"{one}: there is no {one.test}"
        )
        text = (ROOT / PACKAGE / one.file).read_text(encoding="utf-8")
        mutated = one.applied(text)
        assert mutated != text, f"{one} changes nothing"
        compile(mutated, one.file, "exec")


#: a project in small, with a test that sees one of its two lines
PROJECT = {
    f"{PACKAGE}/__init__.py": "",
    f"{PACKAGE}/sums.py": "def add(a, b):\n    return a + b\n\n\ndef less(a, b):\n    return a - b\n",
    "tests/test_sums.py": (
        f"from {PACKAGE}.sums import add, less\n\n\ndef test_add():\n    assert add(2, 1) == 3\n\n\n"
        "def test_wrong():\n    assert less(2, 1) == 0\n\n\ndef test_hangs():\n    while add(2, 1) != 3:\n        pass\n"
    ),
    "pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['.']\n",
    "conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--slow', action='store_true')\n",
}


def test_what_is_no_proof_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that stays green, one that fails anyway, and programs that cannot be loaded prove nothing."""
    monkeypatch.setenv("PALAESTRAI_MOSAIK_MUTATION_SECONDS", "30")
    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    program = tmp_path / "tests" / "support" / "mutations.py"
    program.parent.mkdir()
    program.write_text((ROOT / "tests" / "support" / "mutations.py").read_text(encoding="utf-8"))
    mutations.compile_package(tmp_path)
    cases = [
        ("test_add", "a + b", "a * b", None),
        ("test_add", "a - b", "a * b", "test_add passed"),
        ("test_add", "a + b", "a + unknown", "test_add broken: .*NameError"),
        ("test_add", "return a + b", "return return", "test_add broken: invalid syntax"),
        ("test_add", "def add(", "def plus(", "test_add broken: .*ImportError"),
        ("test_add", "def sub(", "def minus(", "its old text is there 0 times"),
        ("test_hangs", "a + b", "a * b", "test_hangs timeout"),
        ("test_wrong", "a - b", "a * b", "test_wrong: failed without any mutation"),
        ("test_missing", "a + b", "a * b", "test_missing: broken without any mutation: no test was found"),
    ]
    tried = [Mutation("a row", f"tests/test_sums.py::{test}", "sums.py", *texts) for test, *texts, _ in cases]
    wrong, skipped = mutations.survivors(tmp_path, tried)
    expected = [said for *_, said in cases if said is not None]
    assert skipped == [] and len(wrong) == len(expected)
    for said in expected:
        assert any(re.search(said, found, re.DOTALL) for found in wrong), (said, wrong)
    assert (tmp_path / PACKAGE / "sums.py").read_text() == PROJECT[f"{PACKAGE}/sums.py"]


def test_what_mutation_testing_looks_at_is_there() -> None:
    for file, tests in mutants.COVERED.items():
        assert (ROOT / PACKAGE / file).is_file(), file
        assert [test for test in tests if not (ROOT / test).is_file()] == []
    replay = {
        f"environment/replay/{one.name}" for one in (ROOT / PACKAGE / "environment/replay").glob("*.py")
    }
    assert replay - mutants.COVERED.keys() == {"environment/replay/__init__.py"}


def test_a_mutant_differs_in_more_than_annotations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cosmic_ray", reason="the extra 'mutation' is not installed")
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    (tmp_path / PACKAGE).mkdir()
    text = "def half(x: int | None, *rest: int) -> int | None:\n    y: int | None = x\n    return y / 2\n"
    (tmp_path / PACKAGE / "half.py").write_text(text)
    found = [text for _, text in mutants.sample(["half.py"], 1000, seed=1)]
    assert found == [text for _, text in mutants.sample(["half.py"], 1000, seed=1)]
    assert found[:3] == [text for _, text in mutants.sample(["half.py"], 3, seed=1)]
    assert text.replace("/", "*") in found
    assert all(one.startswith(text[: text.index("return")]) for one in found)

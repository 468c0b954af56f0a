"""The architecture page is true: its table of imports, its paths, and its walks, under a profiler."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from architecture.test_hops import ways
from architecture.test_imports import ALLOWED, BASE
from support.documents import agent, document, environment, phase

import palaestrai_mosaik
from palaestrai_mosaik.cli import arsenai, main
from palaestrai_mosaik.experiment import dumps
from palaestrai_mosaik.store import Store

ROOT = Path(__file__).parents[2]
PACKAGE = Path(palaestrai_mosaik.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

Hop = tuple[str, str]


def section(title: str) -> str:
    """Return the text below the heading ``title``, up to the next heading."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ )", PAGE, flags=re.M | re.S)
    assert found, f"the page has no section {title!r}"
    return found[1]


def walk(title: str) -> list[Hop]:
    """Return the numbered hops of a walk: file and qualified name."""
    hops = re.findall(r"^\d+\. `([\w/]+\.py)::([\w.]+)`", section(title), flags=re.M)
    numbered = re.findall(r"^\d+\. ", section(title), flags=re.M)
    assert len(hops) == len(numbered) > 5
    return hops


def first_missing(hops: Iterable[Hop], calls: Iterable[Hop]) -> Hop | None:
    """Return the first of ``hops`` that ``calls`` do not have after those before it."""
    rest = iter(calls)
    return next((hop for hop in hops if not any(call == hop for call in rest)), None)


def calls_of(run: Callable[[], Any], hops: Iterable[Hop]) -> list[Hop]:
    """Return which functions of ``hops`` are called while ``run`` runs, in order."""
    wanted, found = set(hops), []
    root = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(root):
            hop = (code.co_filename.removeprefix(root), code.co_qualname)
            if hop in wanted:
                found.append(hop)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def functions_of(path: Path) -> set[str]:
    """Return the qualified names of the functions and classes of a module."""
    found: set[str] = set()

    def visit(node: ast.AST, above: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(above + child.name)
                visit(child, f"{above}{child.name}.")

    visit(ast.parse(path.read_text(encoding="utf-8")), "")
    return found


def table() -> dict[str, set[str]]:
    """Return the page's table of packages and what they may import."""
    found = {}
    for name, allowed in re.findall(
        r"^\| `([\w.]+)` \| .* \| ([\w., ]+) \|$", section("The packages"), flags=re.M
    ):
        words = set() if allowed == "nothing" else set(allowed.split(", "))
        found[name] = words - {"leaves"} | (BASE if "leaves" in words else set())
    return found


def cell(allowed: set[str]) -> str:
    """Return what the table says of a package that may import ``allowed``."""
    words = [
        *(["leaves"] if allowed >= BASE else []),
        *sorted(allowed - (BASE if allowed >= BASE else set())),
    ]
    return ", ".join(words) or "nothing"


def test_the_table_of_packages_is_that_of_the_import_test() -> None:
    rules = {name: allowed for name, allowed in ALLOWED.items() if name not in ("", "__main__")}
    found = table()
    assert set(found) == set(rules)
    wrong = {name: cell(allowed) for name, allowed in rules.items() if found[name] != allowed}
    assert not wrong, "the table must say so"


def test_the_leaves_are_listed() -> None:
    listed = re.search(r"^((?:`\w+`(?:, | and ))+`\w+`) are the leaves:", section("The packages"), flags=re.M)
    assert listed and set(re.findall(r"\w+", listed[1])) - {"and"} == BASE


def test_the_drawing_has_every_package() -> None:
    (drawing,) = re.findall(r"^```text\n(.*?)^```", section("The packages"), flags=re.M | re.S)
    drawn = set(re.findall(r"\w+", drawing))
    rooms = {part for name in ALLOWED for part in name.split(".")} - {"", "__main__", "simulators"}
    assert rooms <= drawn


def test_the_paths_of_the_page_exist() -> None:
    paths = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE) + re.findall(r"`(tests/[\w/]+)`", PAGE)
    assert len(paths) > 12
    for path in paths:
        assert (PACKAGE / path).exists() or (ROOT / path).exists(), path


@pytest.mark.parametrize(
    "title", ["From the command to the first step", "A reading", "A row", "A factor's level", "A failure"]
)
def test_the_functions_of_a_walk_exist(title: str) -> None:
    for file, name in walk(title):
        assert name in functions_of(PACKAGE / file), f"{file} has no {name}"


def test_a_reading_goes_this_way() -> None:
    hops = [(file, name.rpartition(".")[2]) for file, name in walk("A reading")]
    assert (hops[0][1], hops[-1][1]) == ("step", "propose_actions")
    for way in ways(1):
        assert first_missing(hops[1:-1], way.calls) is None, way


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def write_document(folder: Path) -> None:
    data = document(phase([environment(max_iter=10)], [agent("a")])).canonical
    (folder / "run.yml").write_text(dumps(data), encoding="utf-8")


def test_the_command_goes_this_way(folder: Path) -> None:
    write_document(folder)
    hops = walk("From the command to the first step")
    calls = calls_of(lambda: main.main(["start", "run.yml", "--store", "results", "--quiet"]), hops)
    assert first_missing(hops, calls) is None


def test_a_row_goes_this_way(folder: Path) -> None:
    write_document(folder)

    def run() -> None:
        assert main.main(["start", "run.yml", "--store", "results", "--quiet"]) == 0
        with Store("results", create=True) as store:
            assert len(store.steps("latest", agent="a"))

    hops = walk("A row")
    assert first_missing(hops, calls_of(run, hops)) is None


def test_a_level_goes_this_way(folder: Path) -> None:
    write_document(folder)
    path = "schedule.phase_0.environments.myenv.environment.params.max_iter"
    (folder / "design.yml").write_text(
        "uid: d\nseed: 1\nbase: run.yml\n"
        f"factors:\n  length: {{path: {path}, levels: [5, 10], ordered: true}}\n"
        "outcomes:\n  reward: {of: objective, agent: a}\n",
        encoding="utf-8",
    )

    def run() -> None:
        for command in (["generate", "design.yml"], ["run", "--executor", "inline"], ["analyse"]):
            assert arsenai.main(command) == 0

    hops = walk("A factor's level")
    assert first_missing(hops, calls_of(run, hops)) is None


def test_a_failure_goes_this_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_document(folder)
    (folder / "a_muscle_that_fails.py").write_text(
        "from palaestrai_mosaik.agent.library.dummy import DummyMuscle\n\n\n"
        "class BrokenMuscle(DummyMuscle):\n"
        "    def propose_actions(self, sensors, actuators):\n"
        "        raise ValueError('planted')\n",
        encoding="utf-8",
    )
    text = (folder / "run.yml").read_text(encoding="utf-8")
    name = "palaestrai_mosaik.agent.library.dummy:DummyMuscle"
    assert name in text
    (folder / "run.yml").write_text(text.replace(name, "a_muscle_that_fails:BrokenMuscle"), encoding="utf-8")
    codes: list[int] = []
    hops = walk("A failure")
    calls = calls_of(
        lambda: codes.append(main.main(["start", "run.yml", "--store", "results", "--quiet"])), hops
    )
    assert codes == [1] and "planted" in capsys.readouterr().err
    assert first_missing(hops, calls) is None


def test_a_wrong_walk_is_found() -> None:
    calls = [("a.py", "f"), ("b.py", "g"), ("c.py", "h")]
    assert first_missing([("a.py", "f"), ("c.py", "h")], calls) is None
    assert first_missing([("c.py", "h"), ("a.py", "f")], calls) == ("a.py", "f")
    assert first_missing([("a.py", "g")], calls) == ("a.py", "g")

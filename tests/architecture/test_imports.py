"""Who may import whom: the flow of the package goes one way.

design -> experiment (document) -> execution -> run -> simulation -> mosaik -> agent and
environment -> store -> analysis. Imports point only towards ``types``, ``errors``,
``seeding`` and the documents. ``palaestrai`` stands beside: it adapts what is written for
palaestrAI to the contracts, and puts palaestrAI's results into a store; neither knows it.
Modules do not import each other in circles either, also not in functions or for type checking.
"""

from __future__ import annotations

import ast
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

import palaestrai_mosaik

NAME = "palaestrai_mosaik"
ROOT = Path(palaestrai_mosaik.__file__).parent

LEAVES = {
    "collector",
    "errors",
    "files",
    "importing",
    "installation",
    "locations",
    "pages",
    "printing",
    "progress",
    "types",
    "seeding",
    "text",
}

#: package (or module) of the top level -> what it may import of the others. "" is
#: ``palaestrai_mosaik/__init__.py``: everybody may import its version, and it knows where names are.
ALLOWED: dict[str, set[str]] = {
    "": {"api", "pages", "palaestrai", "rl", "scenario", "simulation", "store"},
    "__main__": {"cli"},
    "api": LEAVES | {"experiment", "runner", "store", "design", "analysis", "web"},
    "collector": set(),
    "errors": {"text"},
    "files": set(),
    "importing": {"errors"},
    "installation": set(),
    "locations": set(),
    "pages": {"files"},
    "printing": {"text"},
    "progress": {"printing", "text"},
    "seeding": set(),
    "text": set(),
    "types": {"errors", "text"},
    "experiment": {"collector", "errors", "files", "importing", "text", "types"},
    "environment": LEAVES,
    "agent": LEAVES,
    "simulation": LEAVES | {"experiment", "environment", "agent"},
    "store": LEAVES | {"experiment"},
    "palaestrai": LEAVES | {"experiment", "environment", "agent", "simulation", "store"},
    "runner": LEAVES | {"experiment", "environment", "agent", "simulation", "store", "palaestrai"},
    "rl": LEAVES | {"experiment", "environment", "agent", "simulation", "runner", "store"},
    "simulators": LEAVES | {"environment"},
    "scenario": LEAVES | {"experiment", "environment", "agent", "simulation", "runner", "store"},
    "design": LEAVES | {"experiment"},
    "execution": LEAVES | {"experiment", "design", "environment", "runner", "store"},
    "analysis": LEAVES | {"experiment", "design", "store"},
    "search": LEAVES | {"experiment", "design", "execution", "analysis", "runner", "store"},
    "rounds": LEAVES | {"experiment", "design", "execution", "analysis", "store"},
    "testing": LEAVES | {"environment", "agent", "simulation"},
    "web": LEAVES | {"experiment", "runner", "store", "design", "execution", "analysis", "search"},
    "cli": LEAVES
    | {"experiment", "simulation", "palaestrai", "runner", "store", "design", "execution", "analysis", "web"}
    | {"search", "rounds"},
}

#: what is not of this package: only these may import it (what extras bring: tests/architecture/test_extras.py)
ONLY = {
    "mosaik": {"simulation"},
    "mosaik_api_v3": {"simulation", "environment", "simulators"},
    **{key: {"environment"} for key in ("lightsim2grid", "numba", "shapely", "simbench")},
    "pandapower": {"environment", "simulators"},
    **{key: {"execution"} for key in ("optuna", "parsl", "zmq")},
    "gymnasium": {"agent", "environment", "palaestrai", "rl"},
    "pettingzoo": {"environment", "rl"},
    "stable_baselines3": {"agent"},
    "torch": {"agent", "palaestrai"},
    **{key: {"runner"} for key in ("tensorboardX", "wandb")},
}

#: packages of documents: beside the standard library they use only these
PLAIN = {"experiment": {"yaml", "numpy"}}


@dataclass(frozen=True)
class Import:
    """``file`` (relative to the package) imports the module ``target`` in ``line``."""

    file: str
    line: int
    target: str

    @property
    def source(self) -> str:
        """The package or module of the top level that imports."""
        return _part(Path(self.file).with_suffix("").parts)

    @property
    def ours(self) -> str | None:
        """The package or module of the top level that is imported, ``None`` if it is not ours."""
        first, *rest = self.target.split(".")
        return (rest[0] if rest else "") if first == NAME else None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def _part(parts: tuple[str, ...]) -> str:
    return "" if parts == ("__init__",) else parts[0]


@cache
def imports_of(root: Path) -> tuple[Import, ...]:
    """Return all imports below ``root``, also those in functions and for type checking."""
    return tuple(one for path in sorted(root.rglob("*.py")) for one in _imports_in(path, root))


def _imports_in(path: Path, root: Path) -> Iterator[Import]:
    file = str(path.relative_to(root))
    package = [NAME, *Path(file).parent.parts]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *(node.module or "").split(".")]).strip(".")
            for alias in node.names:
                # ``from palaestrai_mosaik import seeding`` imports a module
                yield Import(file, node.lineno, _module(root, module, alias.name))


def _module(root: Path, module: str, name: str) -> str:
    first, *way = module.split(".")
    if first != NAME:
        return module
    place = root.joinpath(*way, name)
    return f"{module}.{name}" if place.is_dir() or place.with_suffix(".py").is_file() else module


def violations(root: Path) -> list[str]:
    """Return what breaks the rules, one line each."""
    found = []
    for one in imports_of(root):
        source, target = one.source, one.ours
        outside = one.target.split(".")[0]
        if source not in ALLOWED:
            found.append(f"{one.file}: {source!r} has no rule, add it to this test")
        elif target is not None:
            if target not in {source, "", *ALLOWED[source]}:
                found.append(f"{one}: {source or NAME} may import {', '.join(sorted(ALLOWED[source]))}")
        elif source not in ONLY.get(outside, {source}):
            found.append(f"{one}: only {', '.join(sorted(ONLY[outside]))} may")
        elif source in PLAIN and outside not in {*PLAIN[source], *sys.stdlib_module_names}:
            found.append(f"{one}: {source} uses the standard library and {', '.join(sorted(PLAIN[source]))}")
    return found


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Return the nodes of a cycle of ``graph``, first and last the same; nothing if there is none."""
    done: set[str] = set()

    def visit(node: str, way: list[str]) -> list[str]:
        if node in way:
            return [*way[way.index(node) :], node]
        if node in done:
            return []
        for following in sorted(graph.get(node, ())):
            found = visit(following, [*way, node])
            if found:
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


def graph_of(root: Path) -> dict[str, set[str]]:
    """Return which package imports which others, with the modules of the top level as packages."""
    graph: dict[str, set[str]] = {}
    for one in imports_of(root):
        others = graph.setdefault(one.source, set())
        if one.ours not in {None, "", one.source}:
            others.add(str(one.ours))
    return graph


def module_graph(root: Path) -> nx.DiGraph:
    """Return which module imports which, but for the package's own ``__init__``, which imports lazily."""
    graph = nx.DiGraph()
    for one in imports_of(root):
        source = one.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        target = one.target.removeprefix(f"{NAME}.")
        if target != one.target and source not in {"__init__", target}:
            graph.add_edge(source, target)
    return graph


def module_circles(root: Path) -> set[frozenset[str]]:
    """Return the groups of modules that import each other in circles."""
    return {
        frozenset(group) for group in nx.strongly_connected_components(module_graph(root)) if len(group) > 1
    }


def test_the_scheduler_knows_mosaik_and_nothing_else_of_this_package() -> None:
    """It could be offered to mosaik as it is."""
    files = sorted((ROOT / "simulation" / "scheduler").glob("*.py"))
    assert len(files) > 4
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert node.level < 2 and NAME not in (node.module or ""), f"{file}:{node.lineno}"
            elif isinstance(node, ast.Import):
                assert all(not alias.name.startswith(NAME) for alias in node.names), f"{file}:{node.lineno}"


def test_imports_follow_the_rules() -> None:
    found = violations(ROOT)
    assert not found, "\n".join(found)


def test_packages_do_not_import_each_other_in_circles() -> None:
    assert cycle(graph_of(ROOT)) == []


def test_modules_do_not_import_each_other_in_circles() -> None:
    assert module_circles(ROOT) == set()


def test_the_rules_themselves_have_no_circle() -> None:
    assert cycle(ALLOWED) == []


def test_the_walk_sees_the_package() -> None:
    """Were nothing found, the tests above could not fail."""
    graph = graph_of(ROOT)
    assert {"agent", "environment", "errors", "types", "seeding"} <= graph["simulation"]
    assert {"experiment", "simulation"} <= graph["runner"]
    assert any(one.target.startswith("mosaik.") for one in imports_of(ROOT) if one.source == "simulation")
    assert len({one.file for one in imports_of(ROOT)}) > 50


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write a small package that keeps the rules, and the given ``files``."""
    sound = {
        "__init__.py": "__version__ = '1'",
        "errors.py": "import enum",
        "types/__init__.py": "from palaestrai_mosaik.errors import Error",
        "agent/__init__.py": "from .muscle import Muscle",
        "agent/muscle.py": "from palaestrai_mosaik import __version__, seeding\nimport numpy as np",
        "seeding.py": "import numpy as np",
        "simulation/world.py": "from mosaik.async_scenario import AsyncWorld\nfrom ..agent import Muscle",
        "cli/main.py": "def main():\n    from palaestrai_mosaik import runner",
        "runner/__init__.py": "",
    }
    for name, text in {**sound, **files}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return root


def test_a_sound_package_has_no_violation(tmp_path: Path) -> None:
    root = plant(tmp_path, {})
    assert violations(root) == []
    assert cycle(graph_of(root)) == []


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("agent/bad.py", "from palaestrai_mosaik.simulation.world import Episode", "agent may import"),
        (
            "agent/bad.py",
            "from ..simulation import world",
            "bad.py:1 imports palaestrai_mosaik.simulation.world",
        ),
        ("agent/library/bad.py", "from ...runner import execute", "imports palaestrai_mosaik.runner"),
        ("environment/bad.py", "import palaestrai_mosaik.store.query.runs", "environment may import"),
        (
            "experiment/bad.py",
            "from palaestrai_mosaik import runner",
            "experiment may import collector, errors, files, importing, text, types",
        ),
        ("experiment/bad.py", "def f():\n    import networkx", "bad.py:2 imports networkx: experiment uses"),
        ("simulation/bad.py", "from palaestrai_mosaik.cli.main import main", "simulation may import"),
        ("store/bad.py", "from palaestrai_mosaik.runner import records", "store may import"),
        ("types/bad.py", "from palaestrai_mosaik.seeding import generator", "types may import errors, text"),
        ("runner/bad.py", "import mosaik", "only simulation may"),
        ("environment/bad.py", "from mosaik import World", "only simulation may"),
        ("store/bad.py", "def f():\n    from pandapower import io_utils", "only environment, simulators may"),
        ("runner/bad.py", "import mosaik_api_v3", "only environment, simulation, simulators may"),
        ("__init__.py", "from .run import execute", "palaestrai_mosaik may import"),
        (
            "agent/bad.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from palaestrai_mosaik.store import Store",
            "bad.py:3 imports palaestrai_mosaik.store",
        ),
        ("novelty/new.py", "import os", "'novelty' has no rule"),
    ],
)
def test_a_planted_violation_is_found(tmp_path: Path, file: str, text: str, message: str) -> None:
    found = violations(plant(tmp_path, {file: text}))
    assert len(found) == 1
    assert message in found[0]


def test_a_planted_circle_of_modules_is_found(tmp_path: Path) -> None:
    root = plant(
        tmp_path,
        {
            "runner/a.py": "def f():\n    from . import b",
            "runner/b.py": "from .parts.c import C",
            "runner/parts/c.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ..a import f",
        },
    )
    assert cycle(graph_of(root)) == []
    assert module_circles(root) == {frozenset({"runner.a", "runner.b", "runner.parts.c"})}


def test_a_planted_circle_is_found(tmp_path: Path) -> None:
    root = plant(tmp_path, {"runner/a.py": "from ..store import b", "store/b.py": "from ..runner import a"})
    assert cycle(graph_of(root)) == ["runner", "store", "runner"]

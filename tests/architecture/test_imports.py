"""Who may import whom: imports point one way, towards ``core``.

The rooms of the first half, one run: ``experiment`` (the document) -> ``environment``, ``agent`` -> ``simulation`` ->
``store`` -> ``runner``. Those of the second, many runs: ``arsenai.design`` -> ``arsenai.execution`` ->
``arsenai.analysis`` -> ``arsenai.search``. ``interop`` stands beside: it adapts what others wrote, and offers runs to them.
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

#: rooms that every other may import
BASE = {"core", "types"}
#: packages whose folders are rooms of their own
HOUSES = ("arsenai", "interop")

#: room, or module of the top level -> what it may import of the others. "" is
#: ``palaestrai_mosaik/__init__.py``: everybody may import its version, and it knows where names are.
ALLOWED: dict[str, set[str]] = {
    "": {"api", "core", "interop.mosaik", "interop.palaestrai", "interop.rl", "simulation", "store"},
    "__main__": {"cli"},
    "core": set(),
    "types": {"core"},
    "experiment": BASE,
    "environment": BASE,
    "agent": BASE,
    "simulation": BASE | {"experiment", "environment", "agent"},
    "store": BASE | {"experiment"},
    "runner": BASE | {"experiment", "environment", "agent", "simulation", "store"},
    "plot": BASE | {"experiment", "store"},
    "arsenai": BASE | {f"arsenai.{name}" for name in ("design", "execution", "analysis", "search")},
    "arsenai.design": BASE | {"experiment"},
    "arsenai.execution": BASE | {"experiment", "environment", "arsenai.design", "runner", "store"},
    "arsenai.analysis": BASE | {"experiment", "arsenai.design", "plot", "store"},
    "arsenai.search": BASE
    | {"experiment", "plot", "runner", "store"}
    | {"arsenai.design", "arsenai.execution", "arsenai.analysis"},
    "interop": set(),
    "interop.palaestrai": BASE | {"experiment", "environment", "agent", "simulation", "store"},
    "interop.rl": BASE | {"experiment", "environment", "agent", "simulation", "runner", "store"},
    "interop.mosaik": BASE | {"experiment", "environment", "agent", "simulation", "runner", "store"},
    "simulators": {"core", "interop.mosaik"},
    "testing": BASE | {"environment", "agent", "simulation"},
    "web": BASE
    | {"experiment", "plot", "runner", "store"}
    | {"arsenai.design", "arsenai.execution", "arsenai.analysis", "arsenai.search"},
    "api": BASE | {"experiment", "plot", "runner", "store", "arsenai.design", "arsenai.analysis", "web"},
    "cli": BASE
    | {"experiment", "simulation", "interop.palaestrai", "plot", "runner", "store", "web"}
    | {"arsenai.design", "arsenai.execution", "arsenai.analysis", "arsenai.search"},
}

#: what is not of this package: only these may import it (what extras bring: tests/architecture/test_extras.py)
ONLY = {
    "mosaik": {"simulation"},
    "mosaik_api_v3": {"simulation", "simulators", "environment", "interop.mosaik"},
    **{key: {"environment"} for key in ("lightsim2grid", "numba", "shapely", "simbench")},
    "pandapower": {"environment", "interop.mosaik"},
    **{key: {"arsenai.execution"} for key in ("optuna", "parsl", "zmq")},
    "gymnasium": {"agent", "environment", "interop.palaestrai", "interop.rl"},
    "pettingzoo": {"environment", "interop.rl"},
    "stable_baselines3": {"agent"},
    "torch": {"agent", "interop.palaestrai"},
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
        """The room that imports."""
        return _room(Path(self.file).with_suffix("").parts)

    @property
    def ours(self) -> str | None:
        """The room that is imported, ``None`` if it is not ours."""
        first, *rest = self.target.split(".")
        return _room(tuple(rest)) if first == NAME else None

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def _room(parts: tuple[str, ...]) -> str:
    parts = tuple(part for part in parts if part != "__init__")
    return ".".join(parts[: 2 if parts[:1] and parts[0] in HOUSES else 1])


@cache
def imports_of(root: Path) -> tuple[Import, ...]:
    """Return all imports below ``root``, also those in functions and for type checking."""
    return tuple(line for path in sorted(root.rglob("*.py")) for line in _imports_in(path, root))


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
    lines = []
    for line in imports_of(root):
        source, target = line.source, line.ours
        outside = line.target.split(".")[0]
        if source not in ALLOWED:
            lines.append(f"{line.file}: {source!r} has no rule, add it to this test")
        elif target is not None:
            if target not in {source, "", *ALLOWED[source]}:
                lines.append(
                    f"{line}: {source or NAME} may import {', '.join(sorted(ALLOWED[source])) or 'nothing'}"
                )
        elif source not in ONLY.get(outside, {source}):
            lines.append(f"{line}: only {', '.join(sorted(ONLY[outside]))} may")
        elif source in PLAIN and outside not in {*PLAIN[source], *sys.stdlib_module_names}:
            lines.append(f"{line}: {source} uses the standard library and {', '.join(sorted(PLAIN[source]))}")
    return lines


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
    """Return which room imports which others."""
    graph: dict[str, set[str]] = {}
    for line in imports_of(root):
        others = graph.setdefault(line.source, set())
        if line.ours not in {None, "", line.source}:
            others.add(str(line.ours))
    return graph


def module_graph(root: Path) -> nx.DiGraph:
    """Return which module imports which, but for the package's own ``__init__``, which imports lazily."""
    graph = nx.DiGraph()
    for line in imports_of(root):
        source = line.file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        target = line.target.removeprefix(f"{NAME}.")
        if target != line.target and source not in {"__init__", target}:
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
    assert {"agent", "environment", "core", "types"} <= graph["simulation"]
    assert {"experiment", "simulation"} <= graph["runner"]
    assert any(line.target.startswith("mosaik.") for line in imports_of(ROOT) if line.source == "simulation")
    assert len({line.file for line in imports_of(ROOT)}) > 50


def plant(root: Path, files: dict[str, str]) -> Path:
    """Write a small package that keeps the rules, and the given ``files``."""
    sound = {
        "__init__.py": "__version__ = '1'",
        "core/errors.py": "import enum",
        "types/__init__.py": "from palaestrai_mosaik.core.errors import Error",
        "agent/__init__.py": "from .muscle import Muscle",
        "agent/muscle.py": "from palaestrai_mosaik import __version__\nfrom palaestrai_mosaik.core import seeding\nimport numpy as np",
        "core/seeding.py": "import numpy as np",
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
            "experiment may import core, types",
        ),
        ("experiment/bad.py", "def f():\n    import networkx", "bad.py:2 imports networkx: experiment uses"),
        ("simulation/bad.py", "from palaestrai_mosaik.cli.main import main", "simulation may import"),
        ("store/bad.py", "from palaestrai_mosaik.runner import records", "store may import"),
        ("core/bad.py", "from palaestrai_mosaik.types import Box", "core may import nothing"),
        (
            "arsenai/design/bad.py",
            "from palaestrai_mosaik.arsenai.execution import run_folder",
            "arsenai.design may import core, experiment, types",
        ),
        ("runner/bad.py", "import mosaik", "only simulation may"),
        ("runner/bad.py", "from palaestrai_mosaik.interop.palaestrai import adapted", "runner may import"),
        ("environment/bad.py", "from mosaik import World", "only simulation may"),
        (
            "store/bad.py",
            "def f():\n    from pandapower import io_utils",
            "only environment, interop.mosaik may",
        ),
        (
            "runner/bad.py",
            "import mosaik_api_v3",
            "only environment, interop.mosaik, simulation, simulators may",
        ),
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

"""The markers of tests: found from what a test needs, so that nobody has to write them.

A test is marked by its folder, by the reasons of its ``skipif`` marks, by its fixtures, and by what it or its module
passes to ``pytest.importorskip``; ``slow``, by how long it took (:mod:`tests.support.slow`).
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
from support.slow import slow_tests

TESTS = Path(__file__).parents[1]

#: marker -> which tests have it (``pytest --markers`` and CONTRIBUTING.md)
MARKERS = {
    "slow": "that take longer than a second, most of them (`tests/slow.txt`); only `--slow` runs them",
    "grid": "of the power grid: they need pandapower",
    "rl": "of learners, Gymnasium and PettingZoo",
    "palaestrai": "beside palaestrAI and MIDAS",
    "postgresql": "on a real PostgreSQL, `PALAESTRAI_MOSAIK_TEST_POSTGRESQL`",
    "slurm": "on a real Slurm, `PALAESTRAI_MOSAIK_TEST_SLURM`",
    "browser": "with a real browser",
    "container": "with a builder of container images, `PALAESTRAI_MOSAIK_TEST_CONTAINERS`",
}
_FOLDERS = {"grid": "grid", "rl": "rl", "peer": "palaestrai"}
_MODULES = {
    **dict.fromkeys(("lightsim2grid", "numba", "pandapower", "simbench"), "grid"),
    **dict.fromkeys(("gymnasium", "pettingzoo", "stable_baselines3", "torch"), "rl"),
    **dict.fromkeys(("midas_palaestrai", "palaestrai"), "palaestrai"),
    "selenium": "browser",
}
_REASONS = ("postgresql", "slurm", "browser", "container")
_FIXTURES = {"slurm_jobs": "slurm"}


def _imported(node: ast.AST) -> set[str]:
    """Return the modules that calls of ``importorskip`` within ``node`` name."""
    return {
        str(call.args[0].value).partition(".")[0]
        for call in ast.walk(node)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "importorskip"
        and call.args
        and isinstance(call.args[0], ast.Constant)
    }


@cache
def needs_of(path: Path) -> dict[str, set[str]]:
    """Return the modules that each function of a file needs; "" for those that the whole file needs."""
    needs: dict[str, set[str]] = {"": set()}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            needs[node.name] = _imported(node)
        else:
            needs[""] |= _imported(node)
    return needs


def marks_of(item: pytest.Item) -> set[str]:
    """Return the markers that ``item`` is to have beside those that it has."""
    if not item.path.is_relative_to(TESTS):
        return set()
    folder = item.path.relative_to(TESTS).parts[0]
    needs = needs_of(item.path)
    modules = needs[""] | needs.get(getattr(item, "originalname", None) or item.name, set())
    reasons = [str(mark.kwargs.get("reason", "")) for mark in item.iter_markers("skipif")]
    found = {_FOLDERS[folder]} if folder in _FOLDERS else set()
    found |= {_MODULES[name] for name in modules if name in _MODULES}
    found |= {mark for mark in _REASONS if any(mark in reason.lower() for reason in reasons)}
    found |= {mark for name, mark in _FIXTURES.items() if name in getattr(item, "fixturenames", ())}
    return found | {"slow"} if item.nodeid.partition("[")[0] in slow_tests() else found

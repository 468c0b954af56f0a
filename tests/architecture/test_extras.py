"""Without any extra, all modules but known ones are imported, and the others say what is missing.

Tests that touch no extra therefore need not run once more where there is none. What extras bring is hidden from a
process here; ``make test-bare`` runs this, and all that runs worlds, where nothing of it is installed.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from support.documents import extras_of

from palaestrai_mosaik.experiment import load

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yml"))

#: what the packages of an extra bring with them, and packages that no extra has
MORE = {"palaestrai", "shapely", "sklearn", "wandb", "zmq"}
#: module or package -> what the message must name, the extra where there is a message of ours
NEED = {
    "agent.library.sb3": "[rl]",
    "environment.farama": "[rl]",
    "environment.grid": "[grid]",
    "environment.gymnasium": "[rl]",
    "environment.pettingzoo": "[rl]",
    "arsenai.execution.cluster.pilots": "parsl",  # asked for before it is imported (tests/arsenai/execution/test_parsl.py)
    "interop.palaestrai.base": "palaestrai",
    "interop.palaestrai.brain": "palaestrai",
    "interop.palaestrai.condition": "palaestrai",
    "interop.palaestrai.environment": "palaestrai",
    "interop.palaestrai.filter": "palaestrai",
    "interop.palaestrai.memory": "palaestrai",
    "interop.palaestrai.muscle": "palaestrai",
    "interop.palaestrai.translate": "gymnasium",
    "interop.rl": "[rl]",
    "interop.mosaik.simulators.power_flow": "pandapower",
    "interop.mosaik.simulators.profiles": "[grid]",
    "web.server": "starlette",
}

HIDE = """
import importlib, json, pkgutil, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None  # neither imported nor found
"""

IMPORT_ALL = """
import palaestrai_mosaik
errors = {}
for module in pkgutil.walk_packages(palaestrai_mosaik.__path__, "palaestrai_mosaik.", onerror=lambda name: None):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ImportError as error:
            errors[module.name.partition(".")[2]] = str(error)
print(json.dumps(errors))
"""

CHECK_ALL = """
import contextlib, io
from palaestrai_mosaik.cli.main import main
found = {}
for path in sys.argv[2:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        code = main(["check", path])
    found[path] = code, out.getvalue()
print(json.dumps(found))
"""


def brought_by_extras() -> set[str]:
    """Return the modules that extras bring."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {requirement for extra in project["optional-dependencies"].values() for requirement in extra}
    names = {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in extras}
    return names | MORE


def without_extras(code: str, *arguments: str) -> Any:
    """Run ``code`` in a process that finds nothing that extras bring; return what it prints."""
    hidden = json.dumps(sorted(brought_by_extras()))
    done = subprocess.run(
        [sys.executable, "-c", HIDE + code, hidden, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_extras_bring_what_they_are_known_for() -> None:
    assert {"pandapower", "psycopg", "stable_baselines3", "torch", "mosaik_csv"} <= brought_by_extras()


def test_without_extras_all_other_modules_are_imported() -> None:
    errors = without_extras(IMPORT_ALL)
    assert set(errors) == set(NEED)
    assert {module: message for module, message in errors.items() if NEED[module] not in message} == {}


def test_check_names_the_extra_that_a_scenario_needs() -> None:
    found = without_extras(CHECK_ALL, *map(str, SCENARIOS))
    sound = []
    for path in SCENARIOS:
        needs = extras_of(load(path))
        code, printed = found[str(path)]
        if needs:
            assert code != 0
            # what depends on a part that cannot be made is not looked at
            assert set(re.findall(r'pip install -e "[^"]*\[(\w+)\]"', printed)) & needs, printed
        else:
            assert code == 0 and "sound" in printed, printed
            sound.append(path.stem)
    assert "dummy" in sound and len(sound) < len(SCENARIOS)

"""The recipes of CONTRIBUTING.md: each is followed literally in a copy of the package, and its part used.

Three forms are understood before a block: ``New file `PATH`:``, ``Append to `PATH` ...:`` and
``After the line `LINE` in `PATH`:``. The block below ``Use it:`` goes into a document.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.documents import agent, document, environment, phase
from support.waiting import HANG

from palaestrai_mosaik.experiment import dumps

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

_BLOCK = re.compile(
    r"(?P<before>[^\n]+(?:\n[^\n]+)*)\n\n```(?P<language>\w+)\n(?P<text>.*?)^```$", re.M | re.S
)
_NEW = re.compile(r"New file `(?P<path>[^`]+)`:$")
_APPEND = re.compile(r"Append to `(?P<path>[^`]+)`.*:$", re.S)
_AFTER = re.compile(r"After the line `(?P<line>[^`]+)` in\s`(?P<path>[^`]+)`:$")


def recipe(title: str) -> str:
    """Return the text of the recipe ``title``."""
    found = re.search(rf"^### {title}\n(.*?)(?=^###? |\Z)", PAGE, flags=re.M | re.S)
    assert found, title
    return found[1]


class Copy:
    """A copy of the package in which a recipe is followed."""

    def __init__(self, folder: Path, title: str):
        self.folder, self.tests, self.use = folder, list[str](), {}
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "palaestrai_mosaik", folder / "palaestrai_mosaik", ignore=ignored)
        for block in _BLOCK.finditer(recipe(title)):
            self.follow(block["before"], block["text"])
        assert self.use, "the recipe does not use what it adds"

    def follow(self, before: str, text: str) -> None:
        if before == "Use it:":
            self.use = yaml.safe_load(text)
        elif found := _NEW.search(before):
            path = self.folder / found["path"]
            assert not path.exists()
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            if found["path"].startswith("tests/"):
                self.tests.append(found["path"])
        elif found := _APPEND.search(before):
            path = self.folder / found["path"]
            path.write_text(path.read_text(encoding="utf-8") + text, encoding="utf-8")
        else:
            found = _AFTER.search(before)
            assert found, f"no step of a recipe: {before}"
            path = self.folder / found["path"]
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            (at,) = [i for i, line in enumerate(lines) if line.strip() == found["line"]]
            path.write_text("".join([*lines[: at + 1], text, *lines[at + 1 :]]), encoding="utf-8")

    def run(self, *command: str, code: int = 0) -> str:
        """Run a command of the copied package: ``start``, or one of ``arsenai``."""
        main = "main" if command[0] in ("start", "show") else "arsenai"
        call = f"import sys; from palaestrai_mosaik.cli.{main} import main; sys.exit(main(sys.argv[1:]))"
        return self._python("-c", call, *command, code=code)

    def test(self) -> None:
        """Run the tests that the recipe has added."""
        assert self.tests
        self._python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *self.tests)

    def _python(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.folder,
            # (options of the tests that run are not for these)
            env={**os.environ, "PYTHONPATH": str(self.folder), "PYTEST_ADDOPTS": ""},
            capture_output=True,
            text=True,
            timeout=HANG,  # ends a hang
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def write(self, name: str, data: Any) -> None:
        (self.folder / name).write_text(dumps(data), encoding="utf-8")

    def start(self, one: dict[str, Any]) -> str:
        self.write("run.yml", document(one).canonical)
        return self.run("start", "run.yml")

    def design(self, **keys: Any) -> None:
        """Write a design over two parameters of a known function."""
        function = environment(
            "myenv",
            "palaestrai_mosaik.environment.functions:FunctionEnvironment",
            function="linear",
            x1=0.0,
            x2=0.0,
        )
        player = agent("a", sensors=["myenv.y"], actuators=["myenv.idle"])
        self.write("run.yml", document(phase([function], [player])).canonical)
        path = "schedule.phase_0.environments.myenv.environment.params."
        factors = {name: {"path": path + name, "low": 0.0, "high": 1.0} for name in ("x1", "x2")}
        outcomes = {"y": {"of": "reward.y", "agent": "a"}}
        self.write(
            "design.yml",
            {"uid": "d", "seed": 1, "base": "run.yml", "factors": factors, "outcomes": outcomes, **keys},
        )


def test_add_a_filter(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "Add a filter")
    assert "finished" in copy.start(phase(agents=[agent("a", **copy.use)]))
    copy.test()


def test_add_an_environment(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "Add an environment")
    player = agent("a", sensors=["coin.toss"], actuators=["coin.guess"])
    assert "finished" in copy.start(phase(copy.use["environments"], [player]))
    copy.test()


def test_add_a_sampler(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "Add a sampler")
    copy.design(**copy.use)
    copy.run("generate", "design.yml")
    samples = list(tmp_path.glob("_outputs/d/unit_sample.csv"))
    rows = [line.split(",")[-2:] for line in samples[0].read_text(encoding="utf-8").splitlines()[1:]]
    assert rows == [["0.125", "0.125"], ["0.375", "0.375"], ["0.625", "0.625"], ["0.875", "0.875"]]


def test_add_a_sensitivity_method(tmp_path: Path) -> None:
    copy = Copy(tmp_path, "Add a sensitivity method")
    copy.design(sampler={"name": "lhs", "n": 6}, **copy.use)
    for command in (("generate", "design.yml"), ("run", "--executor", "inline")):
        copy.run(*command)
    assert "rho" in copy.run("analyse")


def test_every_recipe_has_a_test() -> None:
    titles = re.findall(r"^### (Add .+)$", PAGE, flags=re.M)
    assert {f"test_{title.lower().replace(' ', '_')}" for title in titles} <= set(globals())
    assert len(titles) == 4


@pytest.mark.parametrize(
    "before", ["Somewhere:", "After the line `no such line` in `palaestrai_mosaik/core/errors.py`:"]
)
def test_a_step_that_cannot_be_followed_is_found(tmp_path: Path, before: str) -> None:
    copy = Copy(tmp_path, "Add a filter")
    with pytest.raises((AssertionError, ValueError)):
        copy.follow(before, "x = 1\n")

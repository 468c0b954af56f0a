"""Continuous integration: the jobs of the workflow are the scripts of ``.ci``, and ``.ci/run`` runs all of them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
SCRIPTS = {path.name for path in (ROOT / ".ci").iterdir()} - {"run", "common.sh"}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def commands_of(workflow: Path) -> Iterator[str]:
    """Yield what the steps of all jobs run, for each value of their matrices."""
    jobs: dict[str, Any] = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    for job in jobs.values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for values in product(*matrix.values()):
            for step in job["steps"]:
                command: str = step.get("run", "")
                for name, value in zip(matrix, values, strict=True):
                    command = command.replace(f"${{{{ matrix.{name} }}}}", str(value))
                yield command


def test_the_jobs_are_the_scripts() -> None:
    assert len(WORKFLOWS) == 2
    for workflow in WORKFLOWS:
        called = {name for command in commands_of(workflow) for name in re.findall(r"^\.ci/(\w+)", command)}
        assert called == (SCRIPTS if workflow.stem == "ci" else {"package"})


def test_run_runs_each_script() -> None:
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert set(re.findall(r"^run (\w+)$", text, flags=re.M)) == SCRIPTS - {"services"}
    assert ".ci/services >" in text and ".ci/services down" in text


@pytest.mark.parametrize("name", sorted(SCRIPTS | {"run"}))
def test_a_script_can_be_executed_and_says_what_it_does(name: str) -> None:
    script = ROOT / ".ci" / name
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert re.match(r"#!/usr/bin/env bash\n# [A-Z]", script.read_text(encoding="utf-8"))


def test_the_matrix_has_each_python_that_the_package_names() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r"Python :: (3\.\d+)", project)
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    # and the one that comes next
    assert len(named) > 2 and jobs["tests"]["strategy"]["matrix"]["python"][:-1] == named


def test_modules_that_make_runs_find_what_they_import() -> None:
    """Unlike in tests, only the root of the checkout is on the path."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    modules = {"tests.support.writers", *re.findall(r"-m (tests\.support\.\w+)", makefile)}
    assert len(modules) > 5
    # (mutants needs the extra mutation)
    program = f"import {', '.join(sorted(modules - {'tests.support.mutants'}))}"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)

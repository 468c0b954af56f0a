"""Mutations: what breaks in the package when one row of a table of the documentation no longer holds.

A mutation replaces one text of one file by another; the test that its row names must then fail. They are kept
in ``tests/docs/mutations/``, one file for each page, and applied to a copy of the checkout: nothing here
writes to the checkout itself. To try some of them by hand, from the root::

    python -m tests.support.mutations "sample_session_batch" "agent_name"

runs those in which one of the words occurs (without words, all).
"""

from __future__ import annotations

import compileall
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGE = "palaestrai_mosaik"
FOLDER = ROOT / "tests" / "docs" / "mutations"
#: what tests read, beside the package
_COPIED = (PACKAGE, "tests", "docs", "scenarios", "designs", "pyproject.toml", "README.md", "Makefile")
#: loaded once, before the process forks for each mutation; none is of this package
_LIBRARIES = (
    "numpy",
    "scipy.stats",
    "pandas",
    "sqlalchemy.orm",
    "pyarrow.parquet",
    "mosaik",
    "networkx",
    "yaml",
    "hypothesis",
    "_pytest.pytester",
)
#: a program that cannot be loaded, or misses a name, says nothing about a row
_NO_BEHAVIOUR = (ImportError, SyntaxError, NameError)
#: after so many seconds a test counts as one that hangs
_SECONDS = float(os.environ.get("PALAESTRAI_MOSAIK_MUTATION_SECONDS", "300"))


@dataclass(frozen=True)
class Mutation:
    """``old`` in ``file`` (below the package) becomes ``new``; then ``test`` must fail."""

    row: str
    test: str
    file: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.row!r} ({self.file}: {self.old.strip().splitlines()[0].strip()!r})"

    @property
    def test_file(self) -> str:
        return self.test.partition("::")[0]

    def applied(self, text: str) -> str:
        """Return ``text`` with the mutation. Raises ``ValueError`` unless it has exactly one place."""
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self}: its old text is there {found} times, expected is once")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Verdict:
    """What a test did: ``passed``, ``failed``, ``skipped``, ``timeout``, or ``broken``.

    ``broken``: it could not be collected, or the program could not be loaded.
    """

    outcome: str
    why: str = ""


def read(page: str) -> list[Mutation]:
    """Return the mutations that are kept for a page of the documentation (``sentences.md``)."""
    with open(FOLDER / Path(page).with_suffix(".toml").name, "rb") as file:
        return [Mutation(**entry) for entry in tomllib.load(file)["mutation"]]


def by_test_file(mutations: Iterable[Mutation]) -> dict[str, list[Mutation]]:
    """Return the mutations by the file of their tests: each can be run in one process."""
    groups = defaultdict(list)
    for mutation in mutations:
        groups[mutation.test_file].append(mutation)
    return dict(sorted(groups.items()))


def copy_checkout(folder: Path) -> Path:
    """Return a copy of what tests need in ``folder``, compiled."""
    tree = folder / "tree"
    ignored = shutil.ignore_patterns("__pycache__", "_build", ".*")
    tree.mkdir()
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=ignored)
        else:
            shutil.copy(source, tree / name)
    compile_package(tree)
    return tree


def compile_package(tree: Path) -> None:
    """Let Python notice changed files by their content: two of one second and one size are the same to it otherwise."""
    compileall.compile_dir(tree / PACKAGE, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)


def survivors(tree: Path, mutations: Sequence[Mutation]) -> tuple[list[str], list[str]]:
    """Run ``mutations`` in ``tree``; return what is wrong, and which tests were skipped.

    Wrong is a test that fails without its mutation, or does not fail with it.
    """
    tests = sorted({mutation.test for mutation in mutations})
    server = Server(tree)
    with server:
        # to begin a process for each would take longer than most tests
        sound = dict(zip(tests, server.ask([[test] for test in tests]), strict=True))
        for test in [test for test, verdict in sound.items() if verdict.outcome != "passed"]:
            sound[test] = server.run([test])
        wrong = [
            f"{test}: {verdict.outcome} without any mutation: {verdict.why}"
            for test, verdict in sound.items()
            if verdict.outcome not in ("passed", "skipped")
        ]
        for mutation in mutations:
            if sound[mutation.test].outcome == "passed":
                verdict = server.run([mutation.test], mutation)
                if verdict.outcome != "failed":
                    wrong.append(f"{mutation}: {mutation.test} {verdict.outcome}: {verdict.why}")
    return wrong, [test for test, verdict in sound.items() if verdict.outcome == "skipped"]


class Server:
    """A process that has loaded what is not ours, and forks for each run of tests."""

    def __init__(self, tree: Path):
        self.tree = tree

    def __enter__(self) -> Server:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        environment.pop("PALAESTRAI_MOSAIK_REQUIRE", None)
        # what is compiled is kept: the tests do not change, and changes of the package are noticed by their content
        environment |= {"PYTHONPATH": str(self.tree), "PYTHONDONTWRITEBYTECODE": ""}
        environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(self.tree / "tests" / "support" / "mutations.py"), "--serve"],
            cwd=self.tree,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=_SECONDS)
        self._process.stdout.close()

    def run(self, tests: Sequence[str], mutation: Mutation | None = None) -> Verdict:
        """Run ``tests`` while the mutation is in the tree."""
        if mutation is None:
            return self.ask([tests])[0]
        try:
            mutated = mutation.applied((self.tree / PACKAGE / mutation.file).read_text(encoding="utf-8"))
            compile(mutated, mutation.file, "exec")
        except (ValueError, SyntaxError) as error:
            return Verdict("broken", str(error))
        return self.run_with(mutation.file, mutated, tests)

    def run_with(self, file: str, mutated: str, tests: Sequence[str]) -> Verdict:
        """Run ``tests`` while a file of the package has another text."""
        place = self.tree / PACKAGE / file
        sound = place.read_text(encoding="utf-8")
        try:
            place.write_text(mutated, encoding="utf-8")
            return self.ask([tests])[0]
        finally:
            place.write_text(sound, encoding="utf-8")

    def ask(self, groups: Sequence[Sequence[str]]) -> list[Verdict]:
        """Run groups of tests in one process; return a verdict for each group."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(groups) + "\n")
        self._process.stdin.flush()
        return [Verdict(*one) for one in json.loads(self._process.stdout.readline())]


def _serve() -> None:
    for name in _LIBRARIES:
        __import__(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(_forked(json.loads(line))) + "\n")
        answers.flush()


def _forked(groups: list[list[str]]) -> list[list[str]]:
    """Run groups of tests in a process of their own, with a limit of time; return their verdicts."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "verdict"
        pid = os.fork()
        if not pid:
            os.setsid()
            with open(Path(folder) / "log", "w") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            try:
                place.write_text(json.dumps(_tested(groups, folder)))
            finally:
                os._exit(0)
        until = time.monotonic() + _SECONDS
        while os.waitpid(pid, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return [["timeout", f"after {_SECONDS:g} s"]] * len(groups)
            time.sleep(0.02)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what the test has left behind
        if place.exists():
            return json.loads(place.read_text())
        return [["broken", "the process ended: " + (Path(folder) / "log").read_text()[-2000:]]] * len(groups)


def _tested(groups: list[list[str]], folder: str) -> list[list[str]]:
    import pytest

    watches = [_Watch(group) for group in groups]
    options = ["-q", "--slow", "-p", "no:cacheprovider", f"--basetemp={folder}/tests"]
    options += ["-x"] if len(groups) == 1 else []
    tests = [test for group in groups for test in group]
    pytest.main([*options, *tests], plugins=watches)
    return [[watch.outcome, watch.why] for watch in watches]


class _Watch:
    """A plugin of pytest: notes the first failure of ``tests``, which are functions or files."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.tests = set(tests)
        self.outcome, self.why = "broken", "no test was found"

    def _watches(self, nodeid: str) -> bool:
        return not self.tests.isdisjoint({nodeid.partition("[")[0], nodeid.partition("::")[0]})

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.outcome, self.why = "broken", str(report.longrepr)[-2000:]
        elif report.skipped and self.outcome == "broken":
            self.outcome, self.why = "skipped", str(report.longrepr)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if not self._watches(item.nodeid):
            return
        if call.excinfo is not None and call.excinfo.errisinstance(_NO_BEHAVIOUR):
            self.outcome, self.why = "broken", str(call.excinfo.getrepr(style="native"))[-2000:]

    def pytest_runtest_logreport(self, report: Any) -> None:
        if not self._watches(report.nodeid):
            return
        if report.when == "call" and report.passed and self.outcome in ("broken", "skipped"):
            self.outcome, self.why = "passed", ""
        elif report.skipped and self.why == "no test was found":
            self.outcome, self.why = "skipped", str(report.longrepr)
        elif report.failed and (self.outcome != "broken" or self.why == "no test was found"):
            self.outcome, self.why = "failed", str(report.longrepr)[-300:]


def rows_of_tables(text: str) -> Iterator[list[str]]:
    """Return the cells of every row of every table of a page, without the heads of the tables."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if line.startswith("|") and not re.match(r"\|[-|: ]+\|$", line):
            if i + 1 < len(lines) and re.match(r"\|[-|: ]+\|$", lines[i + 1]):
                continue
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def main(words: Sequence[str]) -> int:
    chosen = [
        one
        for page in sorted(FOLDER.glob("*.toml"))
        for one in read(page.name)
        if not words or any(word in f"{one.row} {one.test} {one.file}" for word in words)
    ]
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        tree = copy_checkout(Path(folder))
        for file, group in by_test_file(chosen).items():
            begun = time.monotonic()
            found, skipped = survivors(tree, group)
            wrong += found
            print(f"{file}: {len(group)} mutations, {len(found)} wrong, {time.monotonic() - begun:.0f} s")
            print(
                "".join(f"  {line}\n" for line in [*found, *(f"skipped: {one}" for one in skipped)]), end=""
            )
            sys.stdout.flush()
    print(f"{len(chosen)} mutations, {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        _serve()
    else:
        sys.exit(main(sys.argv[1:]))

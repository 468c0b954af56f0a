"""What holds for all tests: parts that must not be skipped, and services that tests share.

``PALAESTRAI_MOSAIK_REQUIRE=postgresql,grid`` says that these parts have been set up: a
test that is skipped for the lack of one of them then fails. Continuous integration sets
it, so that a part that is missing by accident cannot go unnoticed.

Tests marked ``slow`` run with ``--slow`` only; ``make test-slow`` runs just them.
"""

from __future__ import annotations

import os
import re
import signal
import tempfile
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "PALAESTRAI_MOSAIK_REQUIRE"
#: holds the URL of a PostgreSQL that tests may empty
POSTGRESQL = "PALAESTRAI_MOSAIK_TEST_POSTGRESQL"
#: part -> words of which one stands in the reason of a skip for the lack of it
PARTS = {
    "postgresql": ("postgresql", "psycopg"),
    "grid": ("pandapower", "simbench", "lightsim2grid", "numba", "grid"),
    "rl": ("stable-baselines3", "stable_baselines3", "gymnasium", "'rl'"),
    "browser": ("browser", "selenium"),
    "parsl": ("parsl",),
    "palaestrai": ("'palaestrai",),
    "midas": ("'midas",),
    "components": ("'mosaik_", "'pysimmods"),
    "slurm": ("slurm",),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests that are marked slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("slow"):
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes long: --slow runs it, or make test-slow"))


def _required() -> list[str]:
    return [part.strip() for part in os.environ.get(VARIABLE, "").split(",") if part.strip()]


def pytest_configure(config: pytest.Config) -> None:
    # a job in the background of a shell ignores Ctrl-C, which tests send to themselves
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # what is in the developer's own configuration file is no part of any test
    os.environ["PALAESTRAI_MOSAIK_CONFIG"] = ""
    # and tests leave nothing in the home (one key for all processes, which inherit this)
    if "PALAESTRAI_MOSAIK_KEY" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-tests-")
        os.environ["PALAESTRAI_MOSAIK_KEY"] = os.path.join(folder.name, "checkpoint.key")
        config.add_cleanup(folder.cleanup)
    unknown = sorted(set(_required()) - set(PARTS))
    if unknown:
        raise pytest.UsageError(f"{VARIABLE}: unknown part {unknown[0]!r}; allowed are {', '.join(PARTS)}")


def _refuse_skip(report: Any) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    for part in _required():
        # (mosaik_pandapower is no pandapower)
        if any(re.search(rf"(?<!\w){re.escape(word)}", reason.lower()) for word in PARTS[part]):
            report.outcome = "failed"
            report.longrepr = f"{report.nodeid}: {VARIABLE} asks for {part}, but: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    report = yield
    _refuse_skip(report)
    return report


def _shares_postgresql(item: pytest.Item) -> bool:
    reasons = (str(mark.kwargs.get("reason", "")) for mark in item.iter_markers("skipif"))
    return any(POSTGRESQL in reason for reason in reasons)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let one process at a time use the one PostgreSQL: each test begins by emptying it.

    (xdist's groups would do, but its 3.8 does not find them with pytest 9.)
    """
    url = os.environ.get(POSTGRESQL)
    if not url or not _shares_postgresql(item):
        return (yield)
    import fcntl

    name = f"palaestrai-mosaik-tests-{sha256(url.encode()).hexdigest()[:16]}.lock"
    with open(Path(tempfile.gettempdir()) / name, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return (yield)

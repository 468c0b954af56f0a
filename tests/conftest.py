"""What holds for all tests: options, and services that tests share.

Tests marked ``slow`` run with ``--slow`` only. All markers are found, from what a test needs
(:mod:`tests.support.markers`) and how long it takes (:mod:`tests.support.slow`).

A test whose part (PostgreSQL, Slurm, a browser, an extra) is missing is skipped with the reason.
``--outcomes`` and ``--unrun`` (:mod:`tests.support.outcomes`) see to it that continuous integration runs
each of them somewhere.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Generator
from hashlib import sha256
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from mosaik.async_scenario import base_config
from support.markers import MARKERS, marks_of
from support.outcomes import Outcomes
from support.slow import slow_tests
from support.waiting import HANG

#: holds the URL of a PostgreSQL that tests may empty
POSTGRESQL = "PALAESTRAI_MOSAIK_TEST_POSTGRESQL"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run tests that are marked slow")
    parser.addoption("--outcomes", type=Path, metavar="FILE", help="append to FILE which tests ran")
    parser.addoption(
        "--unrun", action="store_true", help="leave out the tests that ran before, by the FILE of --outcomes"
    )


def pytest_itemcollected(item: pytest.Item) -> None:
    for name in marks_of(item):
        item.add_marker(name)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # options of this run, such as --unrun, are not meant for the runs that tests start (workers of xdist have read them)
    os.environ.pop("PYTEST_ADDOPTS", None)
    if config.getoption("unrun"):
        ran = Outcomes.read(config.getoption("outcomes")).ran
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in ran])
        items[:] = [item for item in items if item.nodeid not in ran]
    # one process must not have a long test left when the other has none
    longest: dict[Path, float] = {}
    for item in items:
        seconds = slow_tests().get(item.nodeid.partition("[")[0], 0.0)
        longest[item.path] = max(longest.get(item.path, 0.0), seconds)
    if config.getoption("slow"):
        items.sort(key=lambda item: -longest[item.path])
    else:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason="takes long: make test-all runs it, or --slow"))


class OutcomesWriter:
    """Writes :class:`Outcomes` when all tests are done, in the process that hears of all of them."""

    def __init__(self, path: Path):
        self.path, self.outcomes = path, Outcomes()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.outcomes.add(report)
        if report.failed:  # at once: a job that is stopped prints no summary
            print(f"\n{report.when} of {report.nodeid} failed:\n{report.longreprtext}", flush=True)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.outcomes.add(report)

    def pytest_sessionfinish(self) -> None:
        self.outcomes.append_to(self.path)


def pytest_configure(config: pytest.Config) -> None:
    for name, which in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: tests {which}")
    # of worlds that tests and the documentation build themselves; mosaik's 10 s are not enough for a busy machine
    base_config["start_timeout"] = HANG
    # an example may take any time: the machine may be busy (lists of health checks in tests replace this one)
    hypothesis.settings.register_profile(
        "tests", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("tests")
    # a job in the background of a shell ignores Ctrl-C, one of nohup a lost connection; tests send both to processes
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # what is in the developer's own configuration file is no part of any test
    os.environ["PALAESTRAI_MOSAIK_CONFIG"] = ""
    # and tests leave nothing in the home (one key for all processes, which inherit this)
    if "PALAESTRAI_MOSAIK_KEY" not in os.environ:
        folder = tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-tests-")
        os.environ["PALAESTRAI_MOSAIK_KEY"] = os.path.join(folder.name, "checkpoint.key")
        config.add_cleanup(folder.cleanup)
    if config.getoption("unrun") and not config.getoption("outcomes"):
        raise pytest.UsageError("--unrun needs --outcomes FILE")
    # (workers of xdist report to the process that started them)
    if config.getoption("outcomes") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(OutcomesWriter(config.getoption("outcomes").absolute()))


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

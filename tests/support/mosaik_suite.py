"""mosaik's own tests, run with either scheduler: a plugin for pytest, and what calls it.

mosaik's repository has tests in its folder ``tests`` (neither its wheels nor its source distributions do).
:func:`outcomes` copies that folder, runs the tests in a process of their own and returns what became of each.
By hand, in a checkout of mosaik:

    PYTHONPATH=<this checkout>:<this checkout>/tests pytest -p support.mosaik_suite \\
        --scheduler direct --simulators remote tests/scenarios

``--scheduler direct`` and ``general`` put ours in the place of ``mosaik.scheduler.run``, and make mosaik's own
fail, so that nothing passes because ours has handed over to it (real time excepted). Ours has two forms: the
scenarios are watched by mosaik (``debug=True``), which only the general one takes part in; for ``direct``, the
plugin watches in mosaik's stead. ``--simulators remote`` starts every simulator that a test would have in its
own process in another one.

The tests need not be those of the installed mosaik. So what counts is the difference: a test that passes with
mosaik's scheduler passes with ours.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from support.waiting import HANG

#: holds the folder of a checkout of mosaik
CHECKOUT = "PALAESTRAI_MOSAIK_TEST_MOSAIK"
needs_checkout = pytest.mark.skipif(
    not os.environ.get(CHECKOUT), reason=f"{CHECKOUT} names no checkout of mosaik"
)

_HERE = Path(__file__).resolve()


def outcomes(
    checkout: Path, *tests: str, scheduler: str = "direct", simulators: str = "local"
) -> dict[str, str]:
    """Run tests of a checkout of mosaik; return the outcome of each, by its id.

    An outcome is "passed", "skipped" or the first and last line of the error. ``tests`` are paths in the checkout.
    """
    with tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-suite-") as name:
        folder = Path(name)
        # the tests alone: beside the package of the checkout they would import that one
        shutil.copytree(checkout / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        written = folder / "outcomes.json"
        done = subprocess.run(
            [
                *(
                    sys.executable,
                    "-m",
                    "pytest",
                    "-q",
                    "-p",
                    "support.mosaik_suite",
                    "-p",
                    "no:cacheprovider",
                ),
                *("--scheduler", scheduler, "--simulators", simulators, "--written", str(written)),
                *("--continue-on-collection-errors", "--rootdir", name, *tests),
            ],
            cwd=folder,
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=HANG,
        )
        if done.returncode not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}")
        found: dict[str, str] = json.loads(written.read_text(encoding="utf-8"))
        return found


def _environment() -> dict[str, str]:
    ours = os.pathsep.join(map(str, (_HERE.parents[2], _HERE.parents[1])))
    environment = {**os.environ, "PYTHONPATH": ours}
    environment.pop("PYTEST_ADDOPTS", None)
    return environment


# --- the plugin ---


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mosaik's own tests")
    group.addoption(
        "--scheduler", choices=["direct", "general", "mosaik"], default="direct", help="who steps"
    )
    group.addoption(
        "--simulators",
        choices=["local", "remote"],
        default="local",
        help="remote: each in a process of its own",
    )
    group.addoption("--written", type=Path, help="write the outcome of each test to this file")


def pytest_configure(config: pytest.Config) -> None:
    _name_as_before()
    if config.getoption("scheduler") != "mosaik":
        _replace_scheduler(watched=config.getoption("scheduler") == "direct")
    if config.getoption("simulators") == "remote":
        _replace_starters()
    if config.getoption("written"):
        config.pluginmanager.register(_Writer(config.getoption("written")))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Run tests that are coroutines, as pytest-asyncio does."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def _name_as_before() -> None:
    """Let tests that were written before mosaik 3.4 import a class by its name of that time."""
    from mosaik import tiered_time

    if not hasattr(tiered_time, "TieredInterval"):
        tiered_time.TieredInterval = tiered_time.TieredDuration


def _replace_scheduler(*, watched: bool) -> None:
    from mosaik import scheduler

    from palaestrai_mosaik.simulation.scheduler import run

    theirs = scheduler.sim_process

    async def only_in_real_time(world: Any, *arguments: Any) -> Any:
        if not getattr(world, "rt_factor", None):
            raise AssertionError("mosaik's own scheduler has run")
        return await theirs(world, *arguments)

    scheduler.run = _run_watched if watched else run
    scheduler.sim_process = only_in_real_time


async def _run_watched(
    world: Any,
    until: int,
    rt_factor: float | None = None,
    rt_strict: bool = False,
    lazy_stepping: bool = True,
) -> None:
    """Run a world; if all of its simulators are in this process, without an event loop's help."""
    from palaestrai_mosaik.simulation.scheduler import Schedule, run, versions
    from palaestrai_mosaik.simulation.scheduler.runner import remote_simulators

    if rt_factor is not None or not world._debug or remote_simulators(versions.runners(world)):
        await run(world, until, rt_factor, rt_strict, lazy_stepping)
        return
    world.until, world.rt_factor = until, None
    schedule = Schedule(world, until)
    for runner in schedule.runners:
        _Watched(schedule, runner)
    await schedule.run(among_others=True)


class _Watched:
    """A simulator whose steps become nodes of mosaik's execution graph, which its debugging makes otherwise."""

    def __init__(self, schedule: Any, runner: Any):
        self.schedule, self.runner, self.simulator = schedule, runner, runner.simulator
        self.inputs = runner.inputs
        runner.simulator, runner.inputs = self, self.get_inputs
        if runner.step_is_generator:
            self.step = self.asking_step  # type: ignore[method-assign]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.simulator, name)

    def get_inputs(self, time: int) -> Any:
        from mosaik import _debug

        inputs = self.inputs(time)
        for runner in self.schedule.runners:
            self.schedule._show(runner)
        _debug.pre_step(self.schedule.world, self.runner.origin, inputs)
        return inputs

    def step(self, *arguments: Any) -> Any:
        return self.stepped(self.simulator.step(*arguments))

    def asking_step(self, *arguments: Any) -> Any:
        return self.stepped((yield from self.simulator.step(*arguments)))

    def stepped(self, following: int | None) -> int | None:
        from mosaik import _debug
        from mosaik.tiered_time import TieredTime

        origin, schedule = self.runner.origin, self.schedule
        if following is not None and following < schedule.until:
            origin.next_self_step = TieredTime(following) + origin.from_world_time
        _debug.post_step(schedule.world, origin)
        return following


def _replace_starters() -> None:
    """Start ``{"python": ...}`` as ``{"cmd": ...}``."""
    from mosaik.async_scenario import AsyncWorld

    begin = AsyncWorld.__init__

    def remote(entry: Any) -> Any:
        if not isinstance(entry, dict) or "python" not in entry:
            return entry
        command = f'"%(python)s" "{_HERE}" {entry["python"]} %(addr)s'
        return {
            **{key: value for key, value in entry.items() if key != "python"},
            "cmd": command,
            "posix": True,
        }

    def begin_remote(world: Any, sim_config: Any = None, *arguments: Any, **more: Any) -> None:
        begin(world, {name: remote(entry) for name, entry in (sim_config or {}).items()}, *arguments, **more)

    AsyncWorld.__init__ = begin_remote


class _Writer:
    def __init__(self, path: Path):
        self.path = path
        self.found: dict[str, str] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.found[report.nodeid] = f"not collected: {_essence(report)}"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # a test that passes can still fail in its teardown
        if self.found.get(report.nodeid, "passed") == "passed":
            self.found[report.nodeid] = report.outcome if not report.failed else _essence(report)

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(json.dumps(self.found), encoding="utf-8")


def _essence(report: Any) -> str:
    """Return the first line of what is wrong, and the last one if there are more."""
    crash = getattr(report.longrepr, "reprcrash", None)
    first, *more = str(crash.message if crash else report.longrepr).strip().splitlines()
    return " ... ".join([first, *more[-1:]])


def _serve(name: str, address: str) -> int:
    """Be the simulator ``module:Class`` in this process."""
    import importlib

    import mosaik_api_v3

    module, _, factory = name.partition(":")
    sys.path.insert(0, os.getcwd())
    sys.argv = [sys.argv[0], address]
    return mosaik_api_v3.start_simulation(getattr(importlib.import_module(module), factory)())


if __name__ == "__main__":
    sys.exit(_serve(*sys.argv[1:]))

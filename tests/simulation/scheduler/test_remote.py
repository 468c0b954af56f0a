"""Simulators in other processes under both schedulers: several at once, failures, requests of theirs.

What mosaik's own scheduler does is the measure, so every test runs with it, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mosaik
import mosaik.exceptions
import psutil
import pytest
from loguru import logger
from mosaik.exceptions import ScenarioError, SimulationError
from mosaik_api_v3.connection import RemoteException
from support.processes import Program, children
from support.simulators import SIMULATORS
from support.waiting import HANG, meanwhile, until

from palaestrai_mosaik.simulation.scheduler import run_world, stepwise

PROGRAM = SIMULATORS / "remote_part.py"
REMOTE = {"cmd": f'%(python)s "{PROGRAM}" %(addr)s', "posix": True}
LOCAL = {"python": "remote_part:Part"}

VERSION = tuple(map(int, version("mosaik").split(".")[:2]))

both = pytest.mark.parametrize("scheduler", ["direct", "mosaik"])

pytestmark = [
    pytest.mark.filterwarnings("ignore:Connections using async_requests:DeprecationWarning"),
    # mosaik leaves tasks behind when one of its simulators fails
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    yield
    logger.disable("mosaik")
    # (tasks that mosaik has left behind complain when they are collected)
    gc.collect()


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = children()
    yield
    left = children() - before
    _, alive = psutil.wait_procs(left, timeout=HANG)
    assert alive == []


class Scenario:
    """A world of simulators of which each logs what it is called with."""

    def __init__(self, folder: Path, **start: dict[str, Any]):
        self.folder, self.file = folder, folder / "log"
        sim_config = {"remote": REMOTE, "local": LOCAL, **start}
        self.world = mosaik.World(sim_config, skip_greetings=True, configure_logging=False)  # type: ignore[arg-type]

    def start(self, sid: str, where: str = "remote", **params: Any) -> Any:
        """Start a simulator; return its entity."""
        params = {"log": str(self.file), "folder": str(self.folder), **params}
        return self.world.start(where, sim_id=sid, **params).E()

    def connect(self, source: Any, target: Any, **how: Any) -> None:
        self.world.connect(source, target, ("out", "in"), **how)

    def run(self, scheduler: str, until: int = 4, **how: Any) -> None:
        try:
            run_world(self.world, until=until, scheduler=scheduler, print_progress=False, **how)
        finally:
            shut_down(self.world)

    @property
    def lines(self) -> list[Any]:
        """What was logged, in the order of time."""
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def calls(self, sid: str) -> list[Any]:
        return [line[1:] for line in self.lines if line[0] == sid]

    def times(self, sid: str) -> list[int]:
        return [line[1] for line in self.calls(sid) if line[0] == "step"]


def shut_down(world: Any) -> None:
    """Shut a world down, unless it has come to its end."""
    # mosaik may still read from a simulator that has closed its connection
    with contextlib.suppress(ConnectionResetError):
        if not world.loop.is_closed():
            world.shutdown()


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Callable[..., Scenario]]:
    made: list[Scenario] = []

    def make(**start: dict[str, Any]) -> Scenario:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(Scenario(folder, **start))
        return made[-1]

    yield make
    for one in made:
        shut_down(one.world)


# --- at the same time ---


@both
def test_remote_simulators_step_at_the_same_time(scenario, scheduler: str) -> None:
    """Each step of one waits until the other one is in its step of the same time."""
    one = scenario()
    one.start("R1", meets=["R2"])
    one.start("R2", meets=["R1"])
    one.run(scheduler)
    assert one.times("R1") == one.times("R2") == [0, 1, 2, 3]


@both
def test_those_behind_another_step_at_the_same_time(scenario, scheduler: str) -> None:
    one = scenario()
    source, sink = one.start("L", "local"), one.start("sink", "local")
    for name, other in (("R1", "R2"), ("R2", "R1")):
        remote = one.start(name, meets=[other])
        one.connect(source, remote)
        one.connect(remote, sink)
    one.run(scheduler)
    assert one.calls("sink")[:4] == [
        ["step", t, {"e0": {"in": {"R1.e0": t, "R2.e0": t}}}, 4] for t in range(4)
    ]


@both
def test_those_in_this_process_step_meanwhile(scenario, scheduler: str) -> None:
    """The first step of the remote one ends when one in this process has come to its last step."""
    one = scenario()
    one.start("R", awaits=("L", 3))
    one.start("L", "local")
    one.run(scheduler)
    assert one.times("R") == one.times("L") == [0, 1, 2, 3]


@both
def test_those_that_read_a_remote_one_wait_for_it(scenario, scheduler: str) -> None:
    one = scenario()
    remote = one.start("R", meets=["L"])
    one.start("L", "local")
    reader = one.start("reader", "local")
    one.connect(remote, reader)
    one.run(scheduler)
    for t in range(4):
        steps = [line[:3] for line in one.lines]
        assert steps.index(["R", "step", t]) < steps.index(["reader", "step", t])


@both
def test_without_lazy_stepping_a_source_goes_on_while_it_is_read(scenario, scheduler: str) -> None:
    one = scenario()
    source, reader = one.start("R1"), one.start("R2", awaits=("R1", 1))
    one.connect(source, reader)
    one.run(scheduler, lazy_stepping=False)
    assert one.times("R1") == one.times("R2") == [0, 1, 2, 3]


@both
def test_an_event_of_a_remote_step_comes_before_later_steps(scenario, scheduler: str) -> None:
    """While a remote one is in its step, nobody knows yet whom it triggers.

    ``C`` has a step of its own at 3. Meanwhile ``R``, whose step of time 0 takes until ``L`` is at 3, triggers
    it at 0. (mosaik before 3.7 fails here: it has let ``C`` go on, and cannot go back.)
    """
    one = scenario()
    remote = one.start("R", awaits=("L", 3), kind="event-based", step_size=0)
    one.start("L", awaits=("R", 0))
    reader = one.start("C", "local", kind="event-based", step_size=3)
    one.connect(remote, reader)
    one.world.set_initial_event("R", 0)
    one.world.set_initial_event("C", 3)
    if scheduler == "mosaik" and VERSION < (3, 7):
        with pytest.raises(AssertionError, match="cannot progress backwards"):
            one.run(scheduler)
        return
    one.run(scheduler)
    assert one.calls("C")[:2] == [["step", 0, {"e0": {"in": {"R.e0": 0}}}, 2], ["step", 3, {}, 4]]


@both
@pytest.mark.parametrize("where", ["local", "remote"])
def test_a_world_that_ends_at_once_makes_no_step(scenario, scheduler: str, where: str) -> None:
    one = scenario()
    one.start("P", where)
    one.run(scheduler, until=0)
    assert one.calls("P") == [["finalize"]]
    assert one.world._async_world.sim_progress == 0


# --- values ---


def cycle(one: Scenario, where: str) -> None:
    """Three simulators: L -> R -> M -> (one step later) L."""
    second, first, third = one.start("R", where, factor=10), one.start("L", "local"), one.start("M", "local")
    one.connect(first, second)
    one.connect(second, third)
    one.connect(third, first, time_shifted=1, initial_data={"out": -1})


def served(port: int) -> Program:
    return Program([sys.executable, str(PROGRAM), "--remote", f"127.0.0.1:{port}"])


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@both
@pytest.mark.parametrize("how", ["cmd", "connect"])
def test_a_remote_simulator_gets_and_gives_what_one_in_this_process_does(
    scenario, scheduler: str, how: str
) -> None:
    here = scenario()
    cycle(here, "local")
    here.run("mosaik")

    port = free_port()
    there = scenario(remote=REMOTE if how == "cmd" else {"connect": f"127.0.0.1:{port}"})
    with contextlib.ExitStack() as stack:
        if how == "connect":
            process = stack.enter_context(served(port))
            stack.callback(process.kill)
            retry_until_it_listens(lambda: cycle(there, "remote"), there)
        else:
            cycle(there, "remote")
        there.run(scheduler)
        if how == "connect":
            assert process.wait(HANG) == 0
    for sid in ("L", "R", "M"):
        assert there.calls(sid) == here.calls(sid)
    assert len(here.calls("R")) == 5


def retry_until_it_listens(build: Callable[[], None], one: Scenario) -> None:
    given_up = time.monotonic() + HANG
    while True:
        try:
            return build()
        except (SimulationError, ScenarioError) as error:
            if "connect" not in str(error) or time.monotonic() > given_up:
                raise
            time.sleep(0.05)


# --- failures ---


@both
def test_what_a_remote_simulator_raises_is_raised(scenario, scheduler: str) -> None:
    one = scenario()
    one.connect(one.start("R", at=2, how="raises"), one.start("L", "local"))
    with pytest.raises(RemoteException) as caught:
        one.run(scheduler)
    # (mosaik 3.5 has the name of the starter)
    assert caught.value.source == ("R" if VERSION > (3, 5) else "remote")
    assert caught.value.remote_type == "ValueError"
    assert caught.value.remote_msg == "R raises at 2"
    assert one.times("R") == [0, 1, 2]
    assert one.times("L") == [0, 1]
    assert one.calls("L")[-1] == one.calls("R")[-1] == ["finalize"]


#: what mosaik raises where the other end of a connection is gone
LOST = getattr(mosaik.exceptions, "ConnectionClosedError", asyncio.IncompleteReadError)


@both
def test_a_remote_simulator_that_dies_is_an_error(scenario, scheduler: str) -> None:
    one = scenario()
    one.connect(one.start("R", at=2, how="exits"), one.start("L", "local"))
    with pytest.raises(LOST):
        one.run(scheduler)
    assert one.times("L") == [0, 1]
    assert one.calls("L")[-1] == ["finalize"]


@both
def test_one_in_this_process_that_raises_ends_those_in_others(scenario, scheduler: str) -> None:
    one = scenario()
    one.connect(one.start("R"), one.start("L", "local", at=2, how="raises"))
    one.start("beside")
    with pytest.raises(ValueError, match="L raises at 2"):
        one.run(scheduler)
    assert one.calls("R")[-1] == one.calls("beside")[-1] == ["finalize"]
    assert one.times("R")[:3] == [0, 1, 2]


@both
def test_ctrl_c_ends_a_world_whose_remote_simulator_hangs(
    scenario, scheduler: str, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()  # what mosaik has left behind in other tests
    caplog.clear()
    one = scenario()
    one.connect(one.start("R", at=2, how="hangs"), one.start("L", "local"))

    def interrupt() -> None:
        until((one.folder / "hangs").exists)
        os.kill(os.getpid(), signal.SIGINT)

    started = time.monotonic()
    with meanwhile(interrupt), pytest.raises(KeyboardInterrupt):
        one.run(scheduler)
    assert time.monotonic() - started < HANG
    assert one.times("L") == [0, 1]
    # nothing is left that asyncio would complain of
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@both
@pytest.mark.parametrize("how", ["hangs", "raises", "exits"])
def test_a_remote_simulator_that_fails_in_its_stop_holds_nobody_up(
    scenario, scheduler: str, how: str
) -> None:
    one = scenario()
    one.connect(one.start("R", at="finalize", how=how), one.start("L", "local"))
    one.run(scheduler)
    assert one.times("R") == one.times("L") == [0, 1, 2, 3]
    assert one.calls("L")[-1] == one.calls("R")[-1] == ["finalize"]


# --- requests ---


def asking(one: Scenario, asker: str, asked: str) -> None:
    """``A`` asks for data of ``S`` and sets its input; ``B`` is not asked."""
    sensor = one.start("S", asked, factor=3)
    agent = one.start("A", asker, of="S.e0")
    one.world.connect(sensor, agent, async_requests=True)
    one.connect(sensor, one.start("B", "local"))


def without_progress(calls: list[Any]) -> list[Any]:
    return [line for line in calls if line[0] != "progress"]


@both
@pytest.mark.parametrize("asker", ["local", "remote"])
@pytest.mark.parametrize("asked", ["local", "remote"])
def test_requests_are_answered_as_by_mosaik(scenario, scheduler: str, asker: str, asked: str) -> None:
    start = {
        "asking-local": {"python": "remote_part:Asking"},
        "asking-remote": {**REMOTE, "cmd": REMOTE["cmd"].replace("%(addr)s", "--asking %(addr)s")},
    }
    here, there = scenario(**start), scenario(**start)
    asking(here, "asking-local", "local")
    here.run("mosaik")
    asking(there, f"asking-{asker}", asked)
    there.run(scheduler)
    for sid in ("S", "A", "B"):
        assert without_progress(there.calls(sid)) == without_progress(here.calls(sid))
    # (how far others are while A is in its step, nothing defines)
    progress = [line[1] for line in there.calls("A") if line[0] == "progress"]
    assert progress == sorted(progress) and 0 <= progress[0] < progress[-1] < 100
    assert here.times("S") == here.times("A") == [0, 1, 2, 3]
    # what A sets in a step is what S has in its next one
    assert [line[2] for line in here.calls("S")[:4]] == [
        {},
        *({"e0": {"in": {"A.e0": 100 * t}}} for t in range(3)),
    ]
    # mosaik answers with what S had given at the last step of A
    assert [line[1] for line in here.calls("A") if line[0] == "data"] == [
        {"S.e0": {"out": out}} for out in (0, 0, 3, 6)
    ]


@both
@pytest.mark.parametrize("asker", ["local", "remote"])
def test_a_request_that_is_not_allowed_is_mosaiks_error(scenario, scheduler: str, asker: str) -> None:
    one = scenario(
        asker={"python": "remote_part:Asking"}
        if asker == "local"
        else {**REMOTE, "cmd": REMOTE["cmd"].replace("%(addr)s", "--asking %(addr)s")}
    )
    one.connect(one.start("S", "local"), one.start("A", "asker", of="S.e0"))
    if asker == "local":
        with pytest.raises(
            ScenarioError, match=r"Async\. requests not enabled for the connection from S to A"
        ):
            one.run(scheduler)
    else:
        with pytest.raises(
            RemoteException, match=r"Async\. requests not enabled for the connection from S to A"
        ):
            one.run(scheduler)
    assert one.times("A") == [0]


# --- what cannot be stepped from outside ---


def test_a_world_with_a_remote_simulator_is_not_stepped_from_outside(scenario) -> None:
    one = scenario()
    one.start("L", "local")
    one.start("R")
    try:
        with pytest.raises(RuntimeError, match=r"^R: in another process; only a world whose simulators"):
            stepwise(one.world, until=4)
    finally:
        one.world.shutdown()


def test_a_world_is_stepped_from_outside_once(scenario) -> None:
    one = scenario()
    one.start("L", "local")
    try:
        assert stepwise(one.world, until=4).advance() is None
        assert one.times("L") == [0, 1, 2, 3]
        with pytest.raises(RuntimeError, match="has already been run"):
            stepwise(one.world, until=4)
    finally:
        one.world.shutdown()

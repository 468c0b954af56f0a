"""What simulators have done when an episode ends: all that mosaik does until then, and nothing beyond."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import mosaik
import pytest
from support.documents import agent, document, environment, phase
from support.simulators import SIMULATORS
from support.waiting import HANG, meanwhile, until

from palaestrai_mosaik import attach_agents
from palaestrai_mosaik.agent.library.dummy import DummyMuscle
from palaestrai_mosaik.core.errors import RunInterrupted, SimulatorError
from palaestrai_mosaik.interop.mosaik import Agent
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.interrupt import Interrupt
from palaestrai_mosaik.simulation import episode
from palaestrai_mosaik.types import Box

DESCRIBED = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
#: the last time, at which the episode is over
END = 40
#: uid: class, params; who feeds whom
WORLD: dict[str, tuple[str, dict[str, Any]]] = {
    "gauge": ("Gauge", {"step_size": 10}),
    "free": ("Counter", {}),
    "relay": ("Relay", {}),
    "events": ("Recorder", {}),
    "samples": ("Recorder", {"step_size": 3}),
    "follower": ("Recorder", {"step_size": 4}),
}
FLOWS = [("free", "relay"), ("relay", "events"), ("gauge", "follower")]
RECORDERS = [uid for uid, (name, _) in WORLD.items() if name == "Recorder"]


def start(name: str, remote: bool) -> dict[str, Any]:
    if remote:
        return {"cmd": f"{sys.executable} {SIMULATORS / 'counting_sim.py'} {name} %(addr)s"}
    return {"python": f"counting_sim:{name}"}


def folders(path: Path) -> dict[str, Path]:
    """Return a new folder for each recorder."""
    found = {uid: path / uid for uid in RECORDERS}
    for folder in found.values():
        folder.mkdir(parents=True)
    return found


def written(folder: Path) -> list[Any]:
    """Return what was written in ``folder``, oldest first."""
    return [json.loads(file.read_text()) for file in sorted(folder.iterdir())]


def fill(world: mosaik.World, into: dict[str, Path]) -> dict[str, Any]:
    """Start the simulators in ``world`` and connect them; return their entities."""
    entities = {}
    for uid, (name, params) in WORLD.items():
        keep = {"folder": str(into[uid])} if uid in into else {}
        entities[uid] = getattr(world.start(uid, **params, **keep), name)()
    for source, target in FLOWS:
        world.connect(entities[source], entities[target], ("out", "in"))
    return entities


def native(path: Path) -> dict[str, Any]:
    """Return what each recorder writes where mosaik runs the world until ``END``, included."""
    into = folders(path)
    world = mosaik.World(
        {uid: start(name, False) for uid, (name, _) in WORLD.items()},
        skip_greetings=True,
        configure_logging=False,
    )
    fill(world, into)
    world.run(until=END + 1, print_progress=False)
    return {uid: written(folder)[0] for uid, folder in into.items()}


def described(into: dict[str, Path], remote: tuple[str, ...] = (), **more: dict[str, Any]) -> dict[str, Any]:
    simulators = {}
    for uid, (name, params) in WORLD.items():
        keep = {"folder": str(into[uid])} if uid in into else {}
        simulators[uid] = {
            **start(name, uid in remote),
            "params": {**params, **keep, **more.get(uid, {})},
        }
    return environment(
        "co",
        DESCRIBED,
        step_size=10,
        end=END,
        simulators=simulators,
        entities=[{"uid": uid, "simulator": uid, "model": name} for uid, (name, _) in WORLD.items()],
        connections=[{"from": a, "to": b, "attributes": [["out", "in"]]} for a, b in FLOWS],
        sensors=[{"uid": "level", "entity": "gauge", "attribute": "out", "space": "Box(0, 99, ())"}],
    )


def watching(name: str = "w") -> dict[str, Any]:
    return agent(name, sensors=["co.level"], actuators=[], brain=None)


@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
@pytest.mark.parametrize(
    "remote", [(), ("events",), ("free", "events", "samples")], ids=["here", "one", "three"]
)
def test_every_simulator_makes_the_steps_that_mosaik_makes_until_the_end(tmp_path, scheduler, remote):
    """Also those that no agent waits for, and those that wait for no agent; in all episodes."""
    expected = native(tmp_path / "native")
    assert [len(rows) for rows in expected.values()] == [END + 1, 14, 11]
    into = folders(tmp_path / "ours")
    episodes = 3 if remote else 10
    doc = document(phase([described(into, remote)], [watching()], scheduler=scheduler, episodes=episodes))
    execute(doc)
    for uid, folder in into.items():
        assert written(folder) == [expected[uid]] * episodes


def test_with_turns_and_workers_the_steps_are_the_same(tmp_path):
    expected = native(tmp_path / "native")
    into = folders(tmp_path / "ours")
    turns = phase(
        [described(into)], [watching("w"), watching("v")], controller="taking_turns", episodes=2, workers=2
    )
    execute(document(turns))
    for uid, folder in into.items():
        assert written(folder) == [expected[uid]] * 4


def test_two_processes_at_once_do_not_make_mosaik_forget_whom_they_feed(tmp_path):
    """mosaik takes who waits for a step in progress to be done, wherever another simulator ends its step."""
    expected = native(tmp_path / "native")
    into = folders(tmp_path / "ours")
    slow = described(into, ("free", "gauge"), free={"delay": 0.005})
    execute(document(phase([slow], [watching()])))
    assert written(into["events"]) == [expected["events"]]


def test_a_simulator_in_another_process_has_the_time_to_finalize(tmp_path):
    expected = native(tmp_path / "native")
    into = folders(tmp_path / "ours")
    slow = described(into, ("events",), events={"writing": 1.0})
    execute(document(phase([slow], [watching()])))
    assert written(into["events"]) == [expected["events"]]


def test_a_finalize_that_fails_in_another_process_fails_the_run(tmp_path):
    into = folders(tmp_path)
    full = described(into, ("events",), events={"writing": -1.0})
    with pytest.raises(
        SimulatorError, match=r"'0-co-events' ended with exit status 1 .*did its finalize fail"
    ):
        execute(document(phase([full], [watching()], episodes=2)))
    assert len(written(into["samples"])) == 1


@pytest.mark.parametrize("remote", [(), ("free",)])
def test_a_finalize_that_fails_in_this_process_fails_the_run_and_the_others_finalize(tmp_path, remote):
    into = folders(tmp_path)
    full = described(into, remote, events={"writing": -1.0})
    with pytest.raises(OSError, match="no space left") as caught:
        execute(document(phase([full], [watching()], episodes=2)))
    assert "'0-co-events'" in caught.value.__notes__[0]
    assert [len(written(into[uid])) for uid in ("samples", "follower")] == [1, 1]


def test_a_simulator_that_never_ends_by_itself_is_ended_with_a_warning(tmp_path, monkeypatch, caplog):
    """As mosaik does, after its time, which is not that of another simulator."""
    expected = native(tmp_path / "native")
    into = folders(tmp_path / "ours")
    serving = described(into, ("free", "events"), free={"serves": 3600.0})
    serving["environment"]["params"]["simulators"]["free"]["timeout"] = HANG

    def hasty(*what, limits, **options):
        """Shut a world down in a second, which is too short for a start, instead of that simulator's time."""
        hurry = {sid: 1.0 if limit == HANG else limit for sid, limit in limits.items()}
        return shut_down(*what, limits=hurry, **options)

    shut_down = episode.shut_down
    monkeypatch.setattr(episode, "shut_down", hasty)
    started = time.monotonic()
    with pytest.warns(UserWarning, match="'0-co-free' has not ended by itself within 1 s") as warned:
        result = execute(document(phase([serving], [watching()], episodes=2)))
    assert [phase.episodes for phase in result.phases] == [2] and warned
    assert written(into["events"]) == [expected["events"]] * 2
    assert time.monotonic() - started < HANG
    # asyncio complains where somebody else was first to see the end of a process of its own (since mosaik 3.7)
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


def test_nobody_waits_for_a_finalize_after_ctrl_c(tmp_path):
    into = folders(tmp_path)
    slow = described(into, ("events",), events={"writing": 3600.0})
    interrupt = Interrupt()

    def press() -> None:
        until(lambda: any(into["samples"].iterdir()))
        interrupt.request()

    started = time.monotonic()
    with meanwhile(press), pytest.raises(RunInterrupted):
        execute(document(phase([slow], [watching()], episodes=2)), interrupt=interrupt)
    assert time.monotonic() - started < HANG


@pytest.mark.parametrize("remote", [False, True])
def test_a_world_of_a_script_that_ends_early_is_complete_until_then(tmp_path, remote):
    expected = native(tmp_path / "native")
    into = folders(tmp_path / "ours")
    config = {uid: start(name, remote and uid == "events") for uid, (name, _) in WORLD.items()}
    world = mosaik.World(config, skip_greetings=True, configure_logging=False)
    gauge = fill(world, into)["gauge"]
    watcher = Agent("w", DummyMuscle(), sensors={gauge: {"out": Box(0.0, 99.0)}})
    with attach_agents(
        world, watcher, step_size=10, ends=lambda seen: seen[gauge, "out"] > END / 10
    ) as agents:
        world.run(until=1000, print_progress=False)
        assert agents.result.ended_by == "ends"
    assert {uid: written(folder)[0] for uid, folder in into.items()} == expected

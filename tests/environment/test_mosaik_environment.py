"""Worlds made for palaestrai-mosaik become part of ours: what they see of it, and what is refused.

The trace to compare with is that of palaestrai-mosaik itself (``tests/peer/make_golden_mosaik.py``).
"""

from __future__ import annotations

import gc
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import mosaik
import numpy as np
import pytest
from support import documents, mosaik_worlds
from support.engine import Counter, make_coordinator, run_episodes
from support.mosaik_worlds import META_PARAMS, STEPS

from palaestrai_mosaik import MosaikEnvironment
from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.core.errors import ContractError, NameResolutionError, SimulatorError
from palaestrai_mosaik.core.importing import only_modules
from palaestrai_mosaik.interop.palaestrai import mosaik_environment
from palaestrai_mosaik.simulation.world_graph import world_graph
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation

GOLDEN = json.loads((Path(__file__).parents[1] / "peer" / "golden_mosaik.json").read_text(encoding="utf-8"))
sys.path.insert(0, str(Path(__file__).parents[1] / "peer"))

from make_golden_mosaik import valve  # noqa: E402  (the same policy as in the golden trace)

MODULE = "support.mosaik_worlds"
FUNCTIONS = {"description_func": "describe", "instance_func": "get_world"}


@pytest.fixture(autouse=True)
def _fresh():
    for log in (STEPS, META_PARAMS, mosaik_worlds.ENDED):
        log.clear()


class Policy(Muscle):
    """Sets the valve as the golden trace has it; ``seen`` and ``sent`` are what it saw and set."""

    def __init__(self) -> None:
        self.seen: list[dict[str, list[float]]] = []
        self.sent: list[float] = []

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        read = {s.uid.partition(".")[2]: np.asarray(s.value, float).reshape(-1).tolist() for s in sensors}
        self.seen.append(read)
        (level,), (rain,) = read["Tank-0.e.level"], read["Rain-0.e.rain"]
        self.sent.append(valve(len(self.sent), level, rain))
        actuators_available[0].value = [self.sent[-1]]
        return actuators_available, None


class Valves(Muscle):
    """Sets its only actuator to each of the values in turn; ``seen`` are the vectors that it saw."""

    def __init__(self, *values: Any) -> None:
        self.values, self.seen = list(values), []

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.seen.append(sensors.vector.tolist())
        actuators_available[0].value = self.values.pop(0) if self.values else [0.0]
        return actuators_available, None


def world(uid: str = "w", **params: Any) -> MosaikEnvironment:
    found = MosaikEnvironment(**{"module": MODULE, "arl_sync_freq": 1, "end": 4, **FUNCTIONS, **params})
    found.uid = uid
    return found


def coordinator_of(environment: MosaikEnvironment, muscle: Muscle, *others: Any) -> Any:
    """A coordinator with one agent that reads and sets all there is in ``environment``."""
    baseline = environment.setup()
    sensors = [f"{environment.uid}.{s.uid}" for s in baseline.sensors]
    actuators = [f"{environment.uid}.{a.uid}" for a in baseline.actuators]
    return make_coordinator([environment, *others], [("a", muscle, None, sensors, actuators)])


@pytest.mark.parametrize("case", GOLDEN)
@pytest.mark.parametrize("scheduler", ["direct", "mosaik"])
def test_the_trace_is_that_of_palaestrai_mosaik(case: str, scheduler: str) -> None:
    golden = GOLDEN[case]
    muscle, environment = Policy(), world(**golden["params"])
    coordinator = coordinator_of(environment, muscle)
    run_episodes(coordinator, 1, scheduler)
    assert muscle.seen == [row["seen"] for row in golden["rows"]]
    assert muscle.sent == [row["set"] for row in golden["rows"]]
    port = coordinator.handles[0]
    last = dict(zip(port.sensors.uids, port.vector[: port.n_readings], strict=True))
    assert {uid.partition(".")[2]: [value] for uid, value in last.items()} == golden["last"]
    assert (coordinator.ended["w"], coordinator.steps) == ((False, True), len(golden["rows"]))
    # here the world ends with the last reading; palaestrai-mosaik goes on to `end`, and nobody looks
    end = coordinator.time
    assert [s for s in STEPS if s[0] <= end] == [tuple(s) for s in golden["tank"] if s[0] <= end]
    (given,) = META_PARAMS
    assert golden["meta"] == {key: given[key] for key in ("end", "arl_sync_freq")} | {"silent": True}


def test_simulators_are_scheduled_with_other_environments_and_other_worlds() -> None:
    """Two worlds of one module and an environment of one class; one agent in all of them."""
    log: list[str] = []
    worlds = [world("v", end=4), world("w", end=4, arl_sync_freq=2, params={"level": 50.0, "alarm": True})]
    other = Counter("c", log, steps=9, actuators=1)
    muscle = Valves([1.0], [2.0], [3.0], [4.0])
    sensors = ["v.Tank-0.e.level", "w.Tank-0.e.level", "w.Alarm-0.e.count", "c.x"]
    coordinator = make_coordinator([*worlds, other], [("a", muscle, None, sensors, ["v.Tank-0.e.valve"])])
    run_episodes(coordinator)
    # by hand: rain 0 0 1 1 .75 from t=0; v: +rain/4 + set/2 (of the tick before)
    assert [row[0] for row in muscle.seen] == [0.0, 0.5, 1.75, 3.5]
    # w has a new state every two ticks, and who acts in between sees this one
    assert [row[1] for row in muscle.seen] == [50.0, 50.0, 50.25, 50.25]
    assert [row[2] for row in muscle.seen] == [500.0, 500.0, 500.0, 500.0]
    assert [row[3] for row in muscle.seen] == [0.0, 1.0, 2.0, 3.0]
    # of equal times, the tanks of v and of w
    assert [valve for time, valve in STEPS if time == 2] in ([[2.0], None], [None, [2.0]])
    assert sorted(mosaik_worlds.ENDED) == ["Alarm-0", "Rain-0", "Rain-0", "Tank-0", "Tank-0"]


def test_every_episode_has_a_world_and_a_seed_of_its_own() -> None:
    levels, seeds = [], []
    for _ in range(2):
        META_PARAMS.clear()
        muscle = Policy()
        coordinator = coordinator_of(world(module=f"{MODULE}:Descriptor", end="2+1"), muscle)
        run_episodes(coordinator, 3)
        levels.append([row["Tank-0.e.level"] for row in muscle.seen])
        seeds.append([meta["seed"] for meta in META_PARAMS])
    assert levels[0] == levels[1]
    assert levels[0][:3] == [[0.0], [0.0], [0.75]]
    assert levels[0][3] == levels[0][6] == [0.0]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3


def test_a_plain_function_with_a_world_works_too() -> None:
    ours, theirs = Policy(), Policy()
    run_episodes(coordinator_of(world(), ours), 2)
    run_episodes(coordinator_of(world(instance_func="get_world_in_a_thread"), theirs), 2)
    assert theirs.seen == ours.seen
    assert len(ours.seen) == 8


@pytest.mark.parametrize("cache", [True, False])
def test_an_attribute_that_comes_with_events_stays_until_the_next_one(cache: bool) -> None:
    muscle = Valves()
    environment = world(end=6, params={"alarm": True, "cache": cache, "level": 0.5})
    run_episodes(coordinator_of(environment, muscle))
    # level .5 .5 .75 1. 1.1875: it tells at t=0 and t=4
    assert [row[3] for row in muscle.seen] == [5.0, 5.0, 5.0, 5.0, 11.0, 11.0]


def test_what_was_never_told_is_missing() -> None:
    read = mosaik_environment.readable(Box(0, 1, (), np.float32), "a.b.c")
    assert np.isnan(read(None))
    assert (read(True), read(0.1)) == (1.0, np.float32(0.1))
    assert mosaik_environment.readable(Box(0, 9, (), np.int64), "a.b.c")(3.7) == 3
    with pytest.raises(ContractError, match=r"'x' is no reading of sensor 'a\.b\.c'"):
        read("x")
    assert mosaik_environment.settable(np.array([0.5])) == [0.5]
    assert mosaik_environment.settable(np.float64("nan")) is None


def test_an_error_of_a_simulator_ends_the_episode() -> None:
    with pytest.raises(ValueError, match="the valve is stuck"):
        run_episodes(coordinator_of(world(), Valves([13.0])))
    assert sorted(mosaik_worlds.ENDED) == ["Rain-0", "Tank-0"]


def test_a_simulator_in_another_process_is_watched_and_ended(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "remote_world.py").write_text(
        """
import mosaik
from support.mosaik_worlds import SIMULATORS, describe

SLOW = '''
import sys, time, mosaik_api_v3
from support.mosaik_worlds import Tank
class Slow(Tank):
    def step(self, time_, inputs, max_advance):
        if time_ == 2:
            time.sleep(3600)
        return super().step(time_, inputs, max_advance)
mosaik_api_v3.start_simulation(Slow())
'''

async def get_world(params):
    open(params["script"], "w").write(SLOW)
    world = mosaik.AsyncWorld({**SIMULATORS, "Tank": {"cmd": f"%(python)s {params['script']} %(addr)s", "posix": True}})
    sky = await (await world.start("Rain")).Sky()
    tank = await (await world.start("Tank")).Tank()
    world.connect(sky, tank, "rain")
    return world, {e.full_id: e for e in (sky, tank)}
""",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    script = str(tmp_path / "slow.py")
    muscle = Policy()
    run_episodes(coordinator_of(world(module="remote_world", end=1, params={"script": script}), muscle))
    assert muscle.seen == [{"Tank-0.e.level": [0.0], "Tank-0.e.full": [0.0], "Rain-0.e.rain": [0.0]}]
    environment = world(module="remote_world", simulation_timeout=4, params={"script": script})
    with pytest.raises(SimulatorError, match="'Tank-0' has not answered for 4 s, in its step at time 2"):
        run_episodes(coordinator_of(environment, Policy()))


def test_the_descriptions_are_all_that_a_check_asks_for(monkeypatch: Any) -> None:
    async def never(params: Any) -> Any:
        raise AssertionError

    monkeypatch.setattr(mosaik_worlds, "get_world", never)
    baseline = world(start_date="2020-01-31 12:00:00+0100").setup()
    assert [s.uid for s in baseline.sensors] == ["Tank-0.e.level", "Tank-0.e.full", "Rain-0.e.rain"]
    assert baseline.start is not None
    assert baseline.start.isoformat() == "2020-01-31T12:00:00+01:00"


def test_the_date_may_come_from_the_world_or_by_chance() -> None:
    told = {"world_state": {"start_date": "2019-06-01 00:00:00+0000"}}
    with pytest.raises(ContractError, match="needs a start_date"):
        world(params=told).setup()
    baseline = world(params=told, infer_start_date=True).setup()
    assert baseline.start is not None
    assert baseline.start.year == 2019
    run_episodes(coordinator_of(world(start_date="2017-03_random"), Policy()), 3)
    dates = [meta["start_date"] for meta in META_PARAMS]
    assert all(date.startswith("2017-03-") and date.endswith(":00:00+0100") for date in dates)
    assert len(set(dates)) == 3


@pytest.mark.parametrize(
    ("answer", "flags"),
    [
        ((None, None), (False, True)),
        ((True, None), (True, False)),
        ((True, True), (True, True)),
        ((False, False), (False, True)),
    ],
)
def test_the_end_is_what_terminal_condition_says(answer: Any, flags: Any) -> None:
    asked = []

    def ended(sensors: Any) -> Any:
        asked.append([s.value for s in sensors])
        return answer

    coordinator = coordinator_of(world(terminal_condition=ended), Valves())
    run_episodes(coordinator)
    assert coordinator.ended["w"] == flags
    assert asked == [[0.6875, 0, 0.75]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"description_func": "descripe"},
            r"support\.mosaik_worlds has no function 'descripe' \(did you mean 'describe'",
        ),
        ({"module": "support.mosaik_world"}, r"did you mean 'support\.mosaik_worlds'"),
        ({"end": "15*x"}, r"end must be .* such as '15\*60\*96', found '15\*x'"),
        ({"end": "9**9**9"}, "end must be"),
        ({"arl_sync_freq": 5}, r"arl_sync_freq \(5\) must be at least 1 and less than the end \(5\)"),
        ({"arl_sync_freq": 0}, r"arl_sync_freq \(0\) must be at least 1"),
        ({"silnt": True}, r"no parameter 'silnt' \(did you mean 'silent'"),
        ({"start_date": "tomorrow"}, r"start_date must be a date such as .* found 'tomorrow'"),
        ({"start_date": "2020-13_random"}, "found '2020-13-"),
    ],
)
def test_parameters_that_do_not_fit(change: dict[str, Any], message: str) -> None:
    with pytest.raises((ContractError, NameResolutionError), match=message):
        world(**change).setup()


@pytest.mark.parametrize(
    ("sensors", "message"),
    [
        ([{"uid": "a.b.c", "spce": "Discrete(2)"}], r"sensor 0: unknown key 'spce' \(did you mean 'space'"),
        ([{"uid": "a.b.c", "space": "Bx(0, 1, ())"}], r"sensor 'a\.b\.c': .*did you mean 'Box'"),
        ([{"uid": "a.b", "space": "Discrete(2)"}], r"'simulator\.entity\.attribute' .*found 'a\.b'"),
        ([3], "sensor 0 is neither sensor information nor a dictionary: 3"),
        ({}, "must give a list of sensors"),
        ([], "describes no sensors"),
        (
            [{"uid": "Tank-0.f.level", "space": "Discrete(2)"}],
            r"no entity 'Tank-0\.f' \(did you mean 'Tank-0\.e'",
        ),
        (
            [{"uid": "Tank-0.e.lvl", "space": "Discrete(2)"}],
            r"Tank has no attribute 'lvl' \(did you mean 'level'",
        ),
    ],
)
def test_descriptions_that_do_not_fit(sensors: Any, message: str, monkeypatch: Any) -> None:
    actuators = [ActuatorInformation(None, Box(0, 20, ()), "Tank-0.e.valve")]
    monkeypatch.setattr(mosaik_worlds, "describe", lambda params: (sensors, actuators))
    with pytest.raises(ContractError, match=message):
        run_episodes(coordinator_of(world(), Valves()))


def test_objects_of_ours_describe_as_well_and_their_values_hold(monkeypatch: Any) -> None:
    sensors = [SensorInformation(0.0, Box(0, 100, ()), "Tank-0.e.level")]
    actuators = [ActuatorInformation(4.0, Box(0, 20, ()), "Tank-0.e.valve")]
    monkeypatch.setattr(mosaik_worlds, "describe", lambda params: (sensors, actuators))
    muscle = Valves(2.0, 2.0, 2.0)
    run_episodes(coordinator_of(world(end=2), muscle))
    # in force before anybody acts: 4
    assert muscle.seen == [[2.0], [3.0]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("has_run", "has run its world"),
        ("entities_only", r"must return \(world, entities\)"),
        ("no_world", "must return a mosaik.AsyncWorld, found dict"),
        ("leaves", r"the instance function of environment 'w' raised SystemExit\(3\)"),
    ],
)
def test_instance_functions_that_do_not_fit(name: str, message: str, monkeypatch: Any) -> None:
    async def has_run(params: Any) -> Any:
        made = mosaik.AsyncWorld(mosaik_worlds.SIMULATORS)
        await made.start("Rain")
        await made.run(1)
        return made, {}

    async def entities_only(params: Any) -> Any:
        return {}

    async def no_world(params: Any) -> Any:
        return {}, {}

    def leaves(params: Any) -> Any:
        sys.exit(3)

    monkeypatch.setattr(mosaik_worlds, "get_world", locals()[name])
    with pytest.raises(Exception, match=message), warnings.catch_warnings():
        warnings.simplefilter("error")
        run_episodes(coordinator_of(world(), Valves()))
    gc.collect()


def test_worlds_of_other_resolutions_do_not_share_ticks() -> None:
    muscle = Valves()
    environments = [world("v"), world("w", params={"resolution": 60.0})]
    coordinator = make_coordinator(
        environments, [("a", muscle, None, ["v.Tank-0.e.level"], ["v.Tank-0.e.valve"])]
    )
    with pytest.raises(
        ContractError, match=r"'w' has a world with a time_resolution of 60 s, another .* of 1 s"
    ):
        run_episodes(coordinator)


def test_only_allowed_modules_are_imported() -> None:
    with only_modules(["somewhere"]), pytest.raises(NameResolutionError, match="--allow-modules"):
        world().setup()
    with only_modules(["support"]):
        assert world().setup().sensors
        with pytest.raises(NameResolutionError, match="--allow-modules"):
            world(terminal_condition="os:getcwd")


def test_the_drawn_world_has_all_its_simulators() -> None:
    entry = documents.environment(
        "w", "palaestrai_mosaik:MosaikEnvironment", module=MODULE, **FUNCTIONS, arl_sync_freq=1, end=4
    )
    agent = documents.agent(uid="w", sensors=["w.Tank-0.e.level"], actuators=["w.Tank-0.e.valve"])
    graph = world_graph(documents.document(documents.phase([entry], [agent])))
    assert graph.graph["simulators"] == {
        "Rain-0": f"simulator 'Rain-0' of environment 'w', {MODULE}",
        "Tank-0": f"simulator 'Tank-0' of environment 'w', {MODULE}",
        "coordinator": "the agents' coordinator",
        "agent-0": "agent 'a', palaestrai_mosaik.agent.library.dummy:DummyMuscle",
    }
    assert {("Tank-0.e", "coordinator.@coordinator"), ("agent-0.a", "Tank-0.e")} <= set(graph.edges())

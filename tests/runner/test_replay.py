"""Stored trajectories come back into a memory as they were lived through."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import Brain, Filter, Memory
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.runner.preflight import Inspection, inspect
from palaestrai_mosaik.runner.recorded_sessions import ReplayContext, replay
from palaestrai_mosaik.simulation.body_placement import place_bodies
from palaestrai_mosaik.store import ChannelRecord, Store
from palaestrai_mosaik.types import ActuatorInformation, Box, RewardInformation, SensorInformation
from tests.support.documents import agent, document, environment, named, phase
from tests.support.records import one_body

FILTER = "palaestrai_mosaik.agent.filters:MergeStepsFilter"
#: what the dummy environment shows in an episode of five steps, and gives for each
SHOWN, REWARDS = [0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0, 0.0]


class Wide(Environment):
    """One sensor of three numbers, which count on, and one actuator of two."""

    def setup(self) -> EnvironmentBaseline:
        wide, narrow = Box(-np.inf, np.inf, shape=(3,)), Box(0.0, 1.0, shape=(2,))
        return EnvironmentBaseline(
            [SensorInformation(np.zeros(3), wide, "wide")],
            [ActuatorInformation(np.zeros(2), narrow, "narrow")],
            [RewardInformation(0.0, Box(-np.inf, np.inf, shape=()), "sum")],
        )

    def reset(self) -> EnvironmentState:
        self.count = 0
        return self._state(np.zeros(2))

    def step(self, setpoints: Any) -> EnvironmentState:
        self.count += 1
        return self._state(setpoints)

    def _state(self, setpoints: Any) -> EnvironmentState:
        readings = 10.0 * self.count + np.arange(3)
        return EnvironmentState(readings, (float(np.sum(setpoints)),), truncated=self.count == 2)


def a_run(uid: str = "recorded", **phase_config: Any) -> Any:
    """Two agents, phases ``phase_0`` (train, two workers, two episodes) and ``phase_1`` (test)."""
    agents = [agent("a", 0, 2), agent("b", 5, 2)]
    train = phase([environment(max_iter=5)], agents, **{"workers": 2, "episodes": 2, **phase_config})
    return document(train, phase([environment(max_iter=5)], agents, mode="test"), uid=uid)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("store"), create=True) as store:
        execute(a_run(), store=store)
        yield store


def into_memory(
    store: Store | None, spec: Any, memory: Memory | None = None, instance: str | None = None
) -> Memory:
    """Replay what the only agent of the last phase of ``spec`` says."""
    memory = Memory() if memory is None else memory
    inspection = Inspection(spec)
    inspection.raise_problems()
    try:
        here = spec.phases[-1]
        (one,) = here.agents
        handles = [inspection.environments.handle(entry) for entry in here.environments]
        count = replay(memory, one, place_bodies(one, handles)[0], ReplayContext(spec, here, instance), store)
    finally:
        inspection.environments.close()
    assert len(memory) == min(count, memory.size_limit)
    return memory


def replayed(
    store: Store | None,
    *sources: dict[str, Any],
    memory: Memory | None = None,
    uid: str = "pupil",
    instance: str | None = None,
    at: int = 0,
    **keys: Any,
) -> Memory:
    """Replay ``sources`` for an agent like ``a`` of the recorded run, in phase ``at`` of a run."""
    pupil = agent("a", 0, 2, replay=list(sources), **keys)
    phases = [phase([environment(max_iter=5)], [pupil])] * (at + 1)
    return into_memory(store, document(*phases, uid=uid), memory, instance)


def test_what_was_recorded_is_what_is_remembered(store: Store) -> None:
    memory = replayed(store, {"experiment_run": "recorded", "phase": 0})
    shard = memory.tail(100)
    # two workers, two episodes of five steps each
    assert shard.muscles == ["replay-0.0"] * 10 + ["replay-0.1"] * 10
    assert shard.sensor_readings.tolist() == [[r, r] for r in SHOWN * 4]
    assert shard.rewards.tolist() == [[r] for r in REWARDS * 4]
    assert shard.objective.tolist() == REWARDS * 4
    assert shard.terminated.tolist() == ([False] * 4 + [True]) * 4
    assert not shard.truncated.any()
    frame = store.steps("recorded", 0, "a").sort_values(["worker", "episode", "step"])
    setpoints = frame[["setpoint.myenv.0", "setpoint.myenv.1"]].to_numpy()
    np.testing.assert_array_equal(shard.actuator_setpoints, setpoints)
    # 40 draws of 100 numbers
    assert len(np.unique(setpoints)) > 20


def test_no_successor_crosses_an_episode_a_worker_or_a_source(store: Store) -> None:
    source = {"experiment_run": "recorded", "phase": "phase_0", "repeat": 2}
    memory = replayed(store, source, {"experiment_run": "recorded", "phase": 1})
    shard = memory.tail(100)
    assert len(shard) == 20 * 2 + 5
    assert shard.muscles[-5:] == ["replay-1.0"] * 5
    following = shard.next_observations[:, 0]
    np.testing.assert_array_equal(following, [1.0, 2.0, 3.0, 4.0, np.nan] * 9)


def test_all_phases_or_those_of_a_mode_are_taken(store: Store) -> None:
    run = {"experiment_run": "recorded"}
    assert len(replayed(store, run)) == 25
    assert len(replayed(store, {**run, "mode": "train"})) == 20
    assert len(replayed(store, {**run, "mode": "test"})) == 5
    with pytest.raises(StoreError, match=r"no such phase .* is in test mode, only \['train'\]"):
        replayed(store, {**run, "phase": 0, "mode": "test"})


def test_the_channels_of_another_agent_stand_for_the_own_ones(store: Store) -> None:
    source = {"experiment_run": "recorded", "agent": "b", "phase": 0}
    sensors, actuators = ["myenv.6", "myenv.5"], ["myenv.6", "myenv.6"]
    memory = replayed(store, {**source, "sensors": sensors, "actuators": ["myenv.6", "myenv.5"]})
    assert len(memory) == 20
    with pytest.raises(
        StoreError, match=r"no sensor 'myenv\.0' was recorded .*there are: myenv\.5, myenv\.6"
    ):
        replayed(store, source)
    with pytest.raises(StoreError, match=r"replay names 1 sensors, but the agent has 2"):
        replayed(store, {**source, "sensors": ["myenv.6"], "actuators": actuators[:1]})


def test_a_projection_keeps_its_order(tmp_path: Path) -> None:
    """Only random readings tell channels apart; the dummy environment shows all the same else."""
    with Store(tmp_path, create=True) as store:
        random = environment(max_iter=5, discrete=False)
        execute(document(phase([random], [agent("a", 0, 2), agent("b", 5, 3)]), uid="recorded"), store=store)
        frame = store.steps("recorded", 0, "b")
        source = {
            "experiment_run": "recorded",
            "agent": "b",
            "sensors": ["myenv.7", "myenv.5"],
            "actuators": ["myenv.5", "myenv.7"],
        }
        shard = into_memory(store, document(phase([random], [agent("a", 0, 2, replay=[source])]))).tail(9)
    assert len(shard) == 5
    for values, names in [
        (shard.sensor_readings, ["reading.myenv.7", "reading.myenv.5"]),
        (shard.actuator_setpoints, ["setpoint.myenv.5", "setpoint.myenv.7"]),
    ]:
        np.testing.assert_array_equal(values, frame[names].to_numpy())
        assert not np.array_equal(values[:, 0], values[:, 1])


def test_values_of_several_numbers_come_back_whole(tmp_path: Path) -> None:
    wide = environment("w", f"{__name__}:Wide")
    keys: dict[str, Any] = {"sensors": ["w.wide"], "actuators": ["w.narrow"]}
    with Store(tmp_path, create=True) as store:
        execute(document(phase([wide], [agent("a", **keys)]), uid="recorded"), store=store)
        source = {"experiment_run": "recorded"}
        shard = into_memory(store, document(phase([wide], [agent("a", **keys, replay=[source])]))).tail(9)
        # a sensor of one number cannot stand for one of three
        source = {"experiment_run": "recorded", "sensors": ["w.wide"]}
        narrow = agent("a", 0, 1, "w", replay=[source])
        with pytest.raises(
            StoreError, match=r"sensor 'w\.wide' was recorded with 3 numbers, but 'w\.0' has 1"
        ):
            into_memory(store, document(phase([environment("w", max_iter=5)], [narrow])))
    assert shard.sensor_readings.tolist() == [[0.0, 1.0, 2.0], [10.0, 11.0, 12.0]]
    assert shard.rewards[:, 0].tolist() == shard.actuator_setpoints.sum(axis=1).tolist()
    assert shard.truncated.tolist() == [False, True]


def test_earlier_phases_of_the_same_execution_come_first(tmp_path: Path) -> None:
    with Store(tmp_path, create=True) as store:
        old = execute(a_run(workers=1, episodes=1), store=store).instance
        new = execute(a_run(workers=1, episodes=3), store=store).instance
        assert (old, new) != (None, None)
        # as the second phase of the older execution: its first phase only
        assert len(replayed(store, {}, uid="recorded", instance=old, at=1)) == 5
        assert len(replayed(store, {"phase": 0}, uid="recorded", instance=old, at=1)) == 5
        # as its first phase there is nothing earlier: the newest that finished
        assert len(replayed(store, {}, uid="recorded", instance=old)) == 3 * 5 + 5
        assert len(replayed(store, {"phase": 0}, uid="recorded", instance=old)) == 3 * 5
        # and whatever is named is taken
        assert len(replayed(store, {"instance": old}, uid="recorded", instance=new, at=1)) == 5 + 5
        run = {"experiment_run": "recorded", "phase": 0}
        assert len(replayed(store, run, uid="recorded", instance=old, at=1)) == 3 * 5
        with pytest.raises(StoreError, match=f"instance {old} is one of 'recorded', not of 'other'"):
            replayed(store, {"instance": old, "experiment_run": "other"})


def test_an_execution_that_failed_is_taken_only_by_its_own_name(tmp_path: Path) -> None:
    """Its last episode breaks off: the last row is its end, though it was not recorded as one."""
    with Store(tmp_path, create=True) as store:
        run = store.begin_run(uid="recorded", document={}, text="", hash="h", seed=1, version="3.5")
        channels = [ChannelRecord(f"myenv.{i}", "", 1) for i in range(2)]
        record = one_body(
            "a", muscle="M", sensors=channels, actuators=channels, rewards=["myenv.Dummy Reward"]
        )
        begun = run.begin_phase(
            0,
            "p",
            mode="train",
            workers=1,
            episodes=2,
            controller="vanilla",
            environments=[],
            agents=[record],
        )
        for episode, step, ends in [(0, 0, False), (0, 1, True), (1, 0, False), (1, 1, False)]:
            values = np.full(2, float(step))
            begun.agent("a").append(0, episode, step, step, values, values, values[:1], 0.5, ends, False, 0.0)
        begun.finish("failed")
        run.finish("failed", ValueError("no"))
        message = (
            f"no instance of the experiment run 'recorded' has finished: the newest one, {run.uid}, is failed"
        )
        with pytest.raises(StoreError, match=message):
            replayed(store, {"experiment_run": "recorded"})
        shard = replayed(store, {"instance": run.uid}).tail(9)
    assert shard.sensor_readings[:, 0].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert shard.terminated.tolist() == [False, True, False, False]
    assert shard.truncated.tolist() == [False, False, False, True]
    np.testing.assert_array_equal(shard.next_observations[:, 0], [1.0, np.nan, 1.0, np.nan])


def test_the_memory_keeps_its_limit(store: Store) -> None:
    memory = replayed(store, {"experiment_run": "recorded", "phase": 0}, memory=Memory(size_limit=7))
    assert memory.tail(9).sensor_readings[:, 0].tolist() == [3.0, 4.0, *SHOWN]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"experiment_run": "recoded"}, r"no experiment run 'recoded' \(did you mean 'recorded'\?\)"),
        ({"experiment_run": "recorded", "phase": 7}, r"has no phase 7; it has: 0 'phase_0', 1 'phase_1'"),
        ({"experiment_run": "recorded", "phase": "phase_9"}, r"no phase 'phase_9' \(did you mean 'phase_"),
        ({"experiment_run": "recorded", "agent": "aa"}, "no agent 'aa' in phases 0, 1 of .*there are: a, b"),
        ({"instance": "nowhere"}, "no run 'nowhere'"),
    ],
)
def test_what_is_missing_is_said_with_its_place(store: Store, source: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=message) as caught:
        replayed(store, source)
    assert "agents.0.replay.0" in str(caught.value)


def test_without_a_store_there_is_nothing_to_replay() -> None:
    with pytest.raises(StoreError, match="a run without a store has no trajectories"):
        replayed(None, {"experiment_run": "recorded"})


def test_rows_are_those_before_the_filters(store: Store) -> None:
    source = {"experiment_run": "recorded", "phase": 1}
    shard = replayed(store, source, filters=[named(FILTER, steps=2)]).tail(9)
    assert shard.observations.tolist() == shard.sensor_readings.tolist() == [[r, r] for r in SHOWN]


FILTERS = "palaestrai_mosaik.agent.filters"


class Seeing(Brain):
    """Keeps what it is shown before the first episode, and with its first row."""

    before: Any = None
    first: Any = None

    def pretrain(self) -> None:
        Seeing.before, Seeing.first = self.memory.tail(1000), None

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> None:
        if Seeing.first is None:
            Seeing.first = self.memory.tail(1)


class Turned(Filter):
    """Turns set-points around."""

    def muscle_post_process(self, setpoints: Any) -> Any:
        return 99.0 - setpoints


def pupil(*filters: Any, mode: str = "train") -> Any:
    """Return a run in which an agent with these filters replays the recorded one."""
    source = {"experiment_run": "recorded", "phase": 0}
    one = agent("a", 0, 2, brain=named(f"{__name__}:Seeing"), filters=list(filters), replay=[source])
    return document(phase([environment(max_iter=5)], [one], mode=mode), uid="pupil")


def pretrained(store: Store, *filters: Any) -> Any:
    """Return what the brain of :func:`pupil` is shown of the recorded run before its first episode."""
    execute(pupil(*filters), store=store)
    return Seeing.before


def test_a_normaliser_knows_all_readings_before_it_shows_the_first(store: Store) -> None:
    """0 1 2 3 4, four times: mean 2, variance 2."""
    seen = pretrained(store, named(f"{FILTERS}:NormFilter", normalise_objective=False))
    expected = (np.array(SHOWN * 4) - 2.0) / np.sqrt(2.0 + 1e-8)
    np.testing.assert_allclose(seen.observations, np.column_stack([expected, expected]))
    assert seen.sensor_readings[:, 0].tolist() == SHOWN * 4
    assert seen.objective.tolist() == REWARDS * 4
    # what is learned goes on: the first reading of the first episode is 0
    np.testing.assert_allclose(Seeing.first.observations, [[-2.0 / np.sqrt(2.0 + 1e-8)] * 2])


def test_objectives_of_replay_are_scaled_by_the_returns_so_far(store: Store) -> None:
    seen = pretrained(store, named(f"{FILTERS}:NormFilter", gamma=0.5))
    returns: list[float] = []
    expected = []
    for reward in REWARDS * 4:
        before = returns[-1] if len(returns) % 5 else 0.0
        returns.append(0.5 * before + reward)
        variance = np.var(returns) if len(returns) > 1 else 1.0
        expected.append(reward / np.sqrt(variance + 1e-8))
    np.testing.assert_allclose(seen.objective, np.minimum(expected, 10.0))


def test_actions_are_those_of_the_muscle_as_far_as_filters_can_be_undone(store: Store) -> None:
    """A set-point k of the numbers 0 .. 99 is the middle of the share k of [-1, 1]."""
    scale = named(f"{FILTERS}:ScaleFilter", sensors=False, discrete=True)
    seen = pretrained(store, scale, named(f"{FILTERS}:ActionTimeShiftFilter"))
    setpoints = seen.actuator_setpoints
    assert len(np.unique(setpoints)) > 20
    np.testing.assert_allclose(seen.actions, (setpoints + 0.5) / 100.0 * 2.0 - 1.0)
    # the action before is the third and the fourth reading, and 0 in the first step of an episode
    for start in (0, 5, 10, 15):
        assert seen.observations[start, 2:].tolist() == [0.0, 0.0]
        np.testing.assert_array_equal(
            seen.observations[start + 1 : start + 5, 2:], seen.actions[start : start + 4]
        )


def test_a_filter_that_cannot_be_undone_is_found_before_anything_runs() -> None:
    turned = named(f"{__name__}:Turned")
    (problem,) = inspect(pupil(turned, named(f"{FILTERS}:ActionTimeShiftFilter")))
    assert "agent 'a' cannot replay through Turned: the store has what the environment got" in problem.message
    assert problem.path == "schedule.0.phase_0.agents.0.filters"
    assert inspect(pupil(turned, mode="test")) == []
    assert inspect(pupil(named(f"{FILTERS}:MergeStepsFilter"))) == []

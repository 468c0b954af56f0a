"""One muscle for many bodies does what one muscle for each of them does: to the byte, and draw by draw."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import BatchMuscle, BatchObjective, BatchReadings, BatchRows, Memory, Muscle
from palaestrai_mosaik.agent.library.aggregate import AggregateRewardsObjective
from palaestrai_mosaik.agent.library.constant import ConstantMuscle
from palaestrai_mosaik.agent.library.cross_entropy import CrossEntropyMuscle, SearchDistribution
from palaestrai_mosaik.agent.library.dummy import DummyMuscle, DummyObjective
from palaestrai_mosaik.agent.library.idle import IdleMuscle
from palaestrai_mosaik.agent.library.random_agent import RandomMuscle
from palaestrai_mosaik.agent.library.scripted import ScriptedMuscle
from palaestrai_mosaik.agent.library.voltage_attack import GreedyVoltageAttacker, OscillatingVoltageAttacker
from palaestrai_mosaik.agent.library.voltage_control import DroopController, IntegratingVoltageController
from palaestrai_mosaik.types import Box, Discrete, Mode, MultiDiscrete
from palaestrai_mosaik.types.vectors import Layout
from tests.support.acting import ask

ANY = Box(-np.inf, np.inf, shape=())
#: as a batched environment offers them to the body that stands in the text's place
PLAIN = [Box(-2.0, 2.0, shape=(2,), dtype=np.float32), Box(0.1, 0.7, shape=()), Discrete(5, start=-1)]
MIXED = [*PLAIN, MultiDiscrete([3, 4]), Box(-1, np.inf, shape=())]
GRID = [Box(-0.5, 0.5, shape=()), Box(-1.5, 1.5, shape=()), Box(-0.1, 0.1, shape=())]


def layouts(actuators: list[Any], body: int = 0) -> tuple[Layout, Layout]:
    sensors = [f"grid.{body}.sgen-{i}.vm_pu" for i in range(3)]
    return (
        Layout(sensors, [ANY] * 3),
        Layout([f"grid.{body}.sgen-{i}.q_mvar" for i in range(len(actuators))], actuators),
    )


class Alone:
    """A body with a muscle of its own."""

    def __init__(self, muscle: Muscle, body: int, spaces: list[Any], mode: Mode):
        self.muscle, self.body = muscle, body
        muscle.uid, muscle.mode = f"a.0.{body}", mode
        self.sensors, self.actuators = layouts(spaces, body)
        muscle.setup()

    def begin(self, episode: int) -> None:
        self.muscle.rng = np.random.default_rng([episode, self.body])
        self.offered = self.actuators.bound(self.muscle.rng)

    def act(self, readings: Any) -> tuple[Any, Any]:
        return ask(self.muscle, self.sensors, self.offered, readings)


def both(
    make: Callable[[], Any], spaces: list[Any], bodies: int, mode: Mode, update: Any = None
) -> list[tuple[Any, ...]]:
    """Return (set-points, those of single muscles, data, theirs) of ticks in two episodes."""
    together: BatchMuscle = make()
    together.uid, together.mode = "a.0.0", mode
    together.setup()
    sensors, actuators = layouts(spaces)
    singles = [Alone(make(), body, spaces, mode) for body in range(bodies)]
    rng, found = np.random.default_rng(1), []
    for episode in range(2):
        if episode:
            for muscle in (together, *(one.muscle for one in singles)):
                muscle.reset()
                if update is not None:
                    muscle.update(update)
        together.rngs = [np.random.default_rng([episode, body]) for body in range(bodies)]
        together.rng = together.rngs[0]
        for one in singles:
            one.begin(episode)
        ended = np.zeros(bodies, dtype=bool)
        for tick in range(12):
            begun = ended
            ended = rng.random(bodies) < 0.2 if tick else ended
            if begun.any():
                together.reset_bodies(np.flatnonzero(begun))
                for body in np.flatnonzero(begun):
                    singles[body].muscle.reset()
            acting = np.flatnonzero(~ended)
            if not len(acting):
                continue
            readings = 1.0 + 0.05 * rng.standard_normal((len(acting), 3))
            readings.flags.writeable = False
            answer, data = together.propose_batch(BatchReadings(readings, acting, sensors, actuators))
            alone = [singles[body].act(readings[i]) for i, body in enumerate(acting)]
            data = [None] * len(acting) if data is None else data
            found.append((np.array(answer), np.array([a for a, _ in alone]), data, [d for _, d in alone]))
    return found


SCRIPT = "step,grid.{body}.sgen-0.q_mvar,grid.{body}.sgen-1.q_mvar,grid.{body}.sgen-2.q_mvar\n1,0.5,,-0.1\n3,,1.5,0\n"
MUSCLES: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "random": (RandomMuscle, PLAIN),
    "random, held": (lambda: RandomMuscle(hold=3), PLAIN),
    "random, mixed": (RandomMuscle, MIXED),
    "idle": (IdleMuscle, GRID),
    "constant": (lambda: ConstantMuscle({"*": 0.1, "grid.*.sgen-1.*": -1.5}), GRID),
    "dummy": (DummyMuscle, MIXED),
    "dummy, counting": (lambda: DummyMuscle(count_upwards=True), PLAIN),
    "script": (lambda: ScriptedMuscle("script.csv"), GRID),
    "script, again": (lambda: ScriptedMuscle("script.csv", at_end="repeat"), GRID),
    "integrating": (IntegratingVoltageController, GRID),
    "droop": (DroopController, GRID),
    "greedy": (GreedyVoltageAttacker, GRID),
    "oscillating": (lambda: OscillatingVoltageAttacker(half_period=2), GRID),
    "search": (lambda: CrossEntropyMuscle(hidden=[7, 5], feedback=True, increments=True), PLAIN),
    "search, shared": (
        lambda: CrossEntropyMuscle("shared", hidden=[4], feedback=True, context=["grid.*"]),
        GRID,
    ),
}


@pytest.fixture(autouse=True)
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("script.csv").write_text(SCRIPT)


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.TEST])
@pytest.mark.parametrize("name", MUSCLES)
@pytest.mark.parametrize("bodies", [1, 7])
def test_the_same_bytes_as_alone(name: str, bodies: int, mode: Mode) -> None:
    make, spaces = MUSCLES[name]
    found = both(make, spaces, bodies, mode, 3 if name.startswith("dummy") else None)
    assert found
    for ours, theirs, data, wanted in found:
        assert ours.tobytes() == theirs.tobytes()
        for mine, other in zip(data, wanted, strict=True):
            assert mine == other or mine.weights.tobytes() == other.weights.tobytes()


def test_bodies_hear_of_a_search_with_their_next_episode() -> None:
    make, spaces = MUSCLES["search"]
    first = both(make, spaces, 2, Mode.TEST)
    signature = first[0][2][0].drawn_from.policy
    size = len(first[0][2][0].weights)
    moved = SearchDistribution(1, np.full(size, 0.3), np.ones(size), signature)
    found = both(make, spaces, 2, Mode.TEST, moved)
    generations = [{one.drawn_from.generation for one in data} for _, _, data, _ in found]
    assert generations[0] == {0} and generations[-1] == {1}
    assert all(ours.tobytes() == theirs.tobytes() for ours, theirs, _, _ in found)


OBJECTIVES: dict[str, Callable[[], BatchObjective]] = {
    "dummy": DummyObjective,
    "one": lambda: AggregateRewardsObjective("r3", factor=-0.7),
    **{
        how: lambda how=how: AggregateRewardsObjective([f"r{i}" for i in (0, 9, 3, 17, 4, 8)], how, 0.3)
        for how in ("sum", "mean", "min", "max")
    },
    "many": lambda: AggregateRewardsObjective([f"r{i}" for i in range(20)], "mean"),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_of_many_rows_is_that_of_each(name: str) -> None:
    objective = OBJECTIVES[name]()
    objective.setup([f"e.r{i}" for i in range(20)])
    rng = np.random.default_rng(4)
    rewards = rng.standard_normal((9, 20)) * 10.0 ** rng.integers(-6, 6, (9, 20))
    none = np.empty((9, 0))
    together = np.asarray(objective.internal_rewards(BatchRows(none, none, rewards, np.arange(9))))
    alone = []
    for row in rewards:
        memory = Memory()
        memory.append(none[0], none[0], row)
        alone.append(objective.internal_reward(memory))
    assert together.tobytes() == np.array(alone).tobytes()

"""The cross-entropy method: a generation by hand, and tasks whose optimum is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.agent.dumper import FileBrainDumper, dump_arrays
from palaestrai_mosaik.agent.library.cross_entropy import (
    Candidate,
    CrossEntropyBrain,
    CrossEntropyMuscle,
    SearchDistribution,
    read_searches,
)
from palaestrai_mosaik.core.errors import BrainDumpError, ContractError
from palaestrai_mosaik.environment.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.testing import check_brain, check_muscle
from palaestrai_mosaik.types import ActuatorInformation, Box, Mode, RewardInformation, SensorInformation
from palaestrai_mosaik.types.vectors import Layout
from tests.support.acting import ask
from tests.support.documents import agent, document, environment, named, phase

LIBRARY = "palaestrai_mosaik.agent.library.cross_entropy"
ANY, UNIT = Box(-np.inf, np.inf, shape=()), Box(-1.0, 1.0, shape=())
SENSORS, ACTUATORS = [SensorInformation(0.0, ANY, "x")], [ActuatorInformation(None, UNIT, "u")]


# --- one generation by hand ----------------------------------------------------------------


class Stage:
    """Lets a brain think about rows; ``episode`` plays a whole episode of one muscle."""

    def __init__(self, **params: Any):
        self.brain = CrossEntropyBrain(**params)
        self.brain.name = "a"
        self.brain._memory = Memory()
        self.brain.setup()
        self.search = SearchDistribution(0, np.zeros(2), np.full(2, 0.5), "p")

    def candidate(self, *weights: float) -> Candidate:
        return Candidate(np.array(weights), self.search)

    def row(self, candidate: Candidate, objective: float, muscle: str = "a.0", end: str = "") -> Any:
        memory = self.brain.memory
        memory.append(np.zeros(1), np.zeros(1), np.zeros(1), candidate, objective)
        if end:
            memory.mark_end(terminated=end == "terminated", truncated=end == "truncated")
        return self.brain.thinking(muscle, candidate)

    def episode(self, weights: tuple[float, float], *objectives: float, end: str = "truncated") -> Any:
        candidate = self.candidate(*weights)
        for objective in objectives[:-1]:
            assert self.row(candidate, objective) is None
        return self.row(candidate, objectives[-1], end=end)


def test_a_generation_by_hand() -> None:
    stage = Stage(population=4, elites=2, smoothing=0.5, noise=0.08, noise_generations=2)
    assert stage.episode((1.0, 0.0), 1.0, 2.0) is None
    assert stage.episode((9.0, 9.0), 9.0, -9.0, -1.0) is None
    assert stage.episode((3.0, 4.0), 5.0, 0.0, -1.0, end="terminated") is None
    update = stage.episode((7.0, 7.0), 2.5)
    # the best are (3, 4) with 4 and (1, 0) with 3: mean (2, 2), standard deviation (1, 2)
    assert update.generation == 1 and update.policy == "p"
    assert update.mean == pytest.approx([1.0, 1.0])
    assert update.std == pytest.approx(np.sqrt(np.array([0.75, 1.25]) ** 2 + 0.08))
    assert stage.brain.pop_statistics() == {
        "generation": 1.0,
        "best": 4.0,
        "elite_mean": 3.5,
        "population_mean": pytest.approx((3 - 1 + 4 + 2.5) / 4),
        "std": pytest.approx(update.std.mean()),
    }
    for _ in range(4):
        update = stage.episode((1.0, 1.0), 0.0)
    # from generation 1 on half of the noise; the elites do not differ
    assert update.std == pytest.approx(np.sqrt(0.25 * (np.array([0.75, 1.25]) ** 2 + 0.08) + 0.04))


def test_of_equal_scores_the_first_ones_are_the_elites_and_the_std_has_a_floor() -> None:
    stage = Stage(population=4, elites=2, min_std=0.1)
    for weights in ((1.0, 1.0), (1.0, 2.0), (5.0, 5.0)):
        assert stage.episode(weights, 1.0) is None
    update = stage.episode((6.0, 6.0), 1.0)
    assert update.mean.tolist() == [1.0, 1.5]
    assert update.std.tolist() == [0.1, 0.5]


def test_rows_of_several_muscles_come_interleaved() -> None:
    stage = Stage(population=2, elites=2)
    a, b = stage.candidate(0.0, 0.0), stage.candidate(2.0, 4.0)
    assert stage.row(a, 1.0, "a.0") is None
    assert stage.row(b, 10.0, "a.1") is None
    # what comes from another process is equal, but not the same object
    assert stage.row(stage.candidate(0.0, 0.0), 1.0, "a.0", "truncated") is None
    update = stage.row(b, 10.0, "a.1", "truncated")
    assert update.mean.tolist() == [1.0, 2.0]
    assert stage.brain.pop_statistics()["population_mean"] == 11.0


def test_an_episode_that_was_ended_from_outside_counts() -> None:
    """A condition may end an episode after the brain has thought about its last row."""
    stage = Stage(population=2, elites=2)
    stage.row(stage.candidate(0.0, 0.0), 3.0)
    assert stage.row(stage.candidate(2.0, 0.0), 1.0) is None
    assert stage.row(stage.candidate(2.0, 0.0), 1.0, end="truncated") is not None
    assert stage.brain.pop_statistics()["population_mean"] == 2.5


@pytest.mark.parametrize(("objective", "found"), [(np.nan, "no value"), (-np.inf, "the value -inf")])
def test_a_row_without_an_objective_is_refused(objective: float, found: str) -> None:
    with pytest.raises(ContractError, match=f"objective of agent 'a' gave {found} for a row"):
        Stage().episode((0.0, 0.0), 1.0, objective)


def test_another_kind_of_muscle_is_named() -> None:
    brain = Stage().brain
    with pytest.raises(ContractError, match=r"brain 'a' needs a CrossEntropyMuscle; 'a\.0' sent None"):
        brain.thinking("a.0", None)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"population": 4, "elites": 5}, "1 < elites <= population does not hold: 5, 4"),
        ({"elites": 1}, "1 < elites"),
        ({"smoothing": 0.0}, "smoothing must be above 0"),
        ({"noise": -1.0}, "noise must not be negative"),
        ({"min_std": float("nan")}, "min_std must not be negative"),
        ({"min_std": float("inf")}, "min_std must not be negative, and finite"),
        ({"elites": 2.5}, "elites must be a whole number, not 2.5"),
        ({"population": True}, "population must be a whole number"),
        ({"noise_generations": 1.0}, "noise_generations must be a whole number"),
        ({"noise_generations": 0}, "noise_generations must be at least 1"),
    ],
)
def test_parameters_of_the_brain(params: dict[str, Any], text: str) -> None:
    with pytest.raises(ContractError, match=text):
        CrossEntropyBrain(**params)


# --- the muscle ----------------------------------------------------------------------------


def muscle(mode: Mode = Mode.TRAIN, seed: int = 0, **params: Any) -> CrossEntropyMuscle:
    made = CrossEntropyMuscle(**params)
    made.uid, made.mode, made.rng = "a.0", mode, np.random.default_rng(seed)
    return made


def act(acting: CrossEntropyMuscle, reading: float = 0.5) -> tuple[float, Candidate]:
    setpoints, data = ask(acting, Layout(["x"], [ANY]), Layout(["u"], [UNIT]), [reading])
    return float(setpoints[0]), data


def test_a_muscle_keeps_its_candidate_for_an_episode() -> None:
    acting = muscle(std=0.3)
    value, candidate = act(acting)
    assert candidate.weights.tolist() == (0.3 * np.random.default_rng(0).standard_normal(2)).tolist()
    assert value == pytest.approx(0.5 * candidate.weights[0] + candidate.weights[1])
    search = SearchDistribution(1, np.array([9.0, 9.0]), np.array([0.0, 0.0]), candidate.drawn_from.policy)
    acting.update(search)
    assert act(acting)[1] is candidate
    acting.reset()
    assert act(acting)[1].weights.tolist() == [9.0, 9.0]


def test_in_test_mode_a_muscle_acts_with_the_mean() -> None:
    signature = act(muscle())[1].drawn_from.policy
    acting = muscle(Mode.TEST)
    assert act(acting)[0] == 0.0
    acting.reset()
    acting.update(SearchDistribution(4, np.array([0.5, -0.1]), np.array([1.0, 1.0]), signature))
    assert act(acting)[0] == pytest.approx(0.15)
    acting.reset()
    acting.mode = Mode.TRAIN
    assert act(acting)[0] != pytest.approx(0.15)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"policy": "shraed"}, "did you mean 'shared'"),
        ({"std": 0.0}, "std must be positive"),
        ({"std": float("inf")}, "std must be positive and finite"),
    ],
)
def test_parameters_of_the_muscle(params: dict[str, Any], text: str) -> None:
    with pytest.raises(ContractError, match=text):
        CrossEntropyMuscle(**params)


def test_they_keep_the_contract() -> None:
    check_muscle(lambda: CrossEntropyMuscle(hidden=[2], feedback=True), SENSORS, ACTUATORS)
    check_brain(lambda: CrossEntropyBrain(2, 2), CrossEntropyMuscle, SENSORS, ACTUATORS)


# --- dumps ---------------------------------------------------------------------------------


def test_what_is_stored_comes_back_exactly(tmp_path: Path) -> None:
    stage = Stage(population=2, elites=2, noise=0.3)
    dumpers = [FileBrainDumper(tmp_path, "run", "phase", "a")]
    stage.brain._dumpers = dumpers
    stage.brain.store()
    # nothing has been learned, so there is nothing to be found
    with pytest.raises(BrainDumpError, match="no brain dump"):
        read_searches(dumpers, "a")
    stage.episode((1 / 3, 2.0), 1.0)
    update = stage.episode((1e-300, -7.0), 2.0)
    stage.brain.store()
    other = Stage(population=2, elites=2).brain
    acting = muscle()
    other._dumpers = acting._dumpers = dumpers
    other.load()
    acting.prepare_model()
    for searches in (other._searches, acting._searches):
        (found,) = searches.values()
        assert (found.generation, found.policy) == (1, "p")
        assert np.array_equal([found.mean, found.std], [update.mean, update.std])
    with pytest.raises(ContractError, match=r"'a.0' has the policy .*dense.* but was given weights of p"):
        act(acting)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"mean": [1.0], "std": [1.0], "generation": 1},
        {"mean": [1.0], "std": [1.0, 2.0], "generation": 1, "policy": "p"},
        {"mean": [np.nan], "std": [1.0], "generation": 1, "policy": "p"},
        {"mean": ["x"], "std": [1.0], "generation": 1, "policy": "p"},
    ],
)
def test_the_dump_of_something_else_is_named(arrays: dict[str, Any], tmp_path: Path) -> None:
    dumpers = [FileBrainDumper(tmp_path, "run", "phase", "a")]
    dump_arrays(arrays, dumpers)
    with pytest.raises(BrainDumpError, match=r"the dump for 'a\.0'"):
        read_searches(dumpers, "a.0")


# --- tasks with a known optimum --------------------------------------------------------------


class Sphere(Environment):
    """One step; the reward is minus the squared distance of the set-points from ``TARGET``."""

    TARGET = np.array([0.3, -0.6, 0.8])

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, ANY, "x")],
            [ActuatorInformation(None, UNIT, f"u{i}") for i in range(3)],
            [RewardInformation(0.0, ANY, "r")],
        )

    def reset(self) -> EnvironmentState:
        return EnvironmentState(np.zeros(1), (0.0,))

    def step(self, setpoints: Any) -> EnvironmentState:
        return EnvironmentState(
            np.zeros(1), (-float(((setpoints - self.TARGET) ** 2).sum()),), terminated=True
        )


class Regulator(Environment):
    """x' = x + 4 u from a random x; minus the sum of x² + (4 u)² over twenty steps."""

    def setup(self) -> EnvironmentBaseline:
        return EnvironmentBaseline(
            [SensorInformation(0.0, ANY, "x")],
            [ActuatorInformation(None, UNIT, "u")],
            [RewardInformation(0.0, ANY, "r")],
        )

    def reset(self) -> EnvironmentState:
        self.x, self.time = float(self.rng.choice([-1.0, 1.0])), 0
        return EnvironmentState(np.array([self.x]), (0.0,))

    def step(self, setpoints: Any) -> EnvironmentState:
        u = 4.0 * float(setpoints[0])
        cost = self.x**2 + u**2
        self.x, self.time = self.x + u, self.time + 1
        return EnvironmentState(np.array([self.x]), (-cost,), truncated=self.time == 20)


def learning(
    task: type,
    channels: tuple[list[str], list[str]],
    episodes: int,
    muscle: dict[str, Any],
    workers: int = 1,
    **brain: Any,
) -> Any:
    """A document that trains on ``task``, and tests what was learned."""
    learner = agent(
        "a",
        brain=named(f"{LIBRARY}:CrossEntropyBrain", **brain),
        muscle=named(f"{LIBRARY}:CrossEntropyMuscle", **muscle),
        sensors=[f"e.{uid}" for uid in channels[0]],
        actuators=[f"e.{uid}" for uid in channels[1]],
    )
    world = [environment("e", f"{__name__}:{task.__name__}")]
    return document(
        phase(world, [learner], workers=workers, episodes=episodes),
        phase(world, [{**learner, "load": {"phase": 0}}], mode="test", episodes=1),
    )


def test_the_sphere_is_solved(tmp_path: Path) -> None:
    channels = ["x"], ["u0", "u1", "u2"]
    found = learning(Sphere, channels, 400, {"std": 0.5}, population=20, elites=5, smoothing=0.8)
    with Store(tmp_path, create=True) as store:
        result = execute(found, store=store)
        assert not result.warnings
        episodes = store.episodes("latest")
        steps = store.steps("latest", phase="phase_1", agent="a")
    setpoints = steps[[c for c in steps if c.startswith("setpoint.")]].to_numpy()
    assert np.abs(setpoints[0] - Sphere.TARGET).max() < 0.02
    assert episodes[episodes["name"] == "phase_1"]["objective_mean"].item() > -1e-3


def test_the_regulator_finds_the_gain_of_riccati(tmp_path: Path) -> None:
    # p = 1 + p - p² / (1 + p), so p is the golden ratio, and u = -p / (1 + p) x
    p = (1.0 + np.sqrt(5.0)) / 2.0
    found = learning(Regulator, (["x"], ["u"]), 300, {"std": 0.3}, population=15, elites=4)
    with Store(tmp_path, create=True) as store:
        result = execute(found, store=store)
        episodes = store.episodes("latest")
    assert result.directory is not None
    dumper = FileBrainDumper(result.directory / "brains", "test", "phase_0", "a")
    (dump,) = read_searches([dumper], "a").values()
    assert 4.0 * dump.mean == pytest.approx([-p / (1.0 + p), 0.0], abs=0.05)
    # the cost from x = 1 on is p, over twenty rewards of which none is left out
    assert 20 * episodes[episodes["name"] == "phase_1"]["objective_mean"].item() == pytest.approx(
        -p, rel=0.01
    )


def test_two_workers_make_one_generation(tmp_path: Path) -> None:
    digests = []
    for i in range(2):
        found = learning(Regulator, (["x"], ["u"]), 8, {}, workers=2, population=8, elites=2)
        with Store(tmp_path / str(i), create=True) as store:
            result = execute(found, store=store)
        assert result.directory is not None
        path = FileBrainDumper(result.directory / "brains", "test", "phase_0", "a")
        (dump,) = read_searches([path], "a").values()
        # 2 workers with 8 episodes each
        assert dump.generation == 2
        digests.append(dump.mean.tobytes())
    assert digests[0] == digests[1]

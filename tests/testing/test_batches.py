"""The check of batched environments: sound ones pass, each broken one is found for what is wrong."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.environment import EnvironmentBaseline
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.cartpole import BatchCartPole
from palaestrai_mosaik.environment.copies import Copies
from palaestrai_mosaik.environment.pendulum import BatchPendulum
from palaestrai_mosaik.environment.reasoning import BooleanReasoning
from palaestrai_mosaik.environment.replay import SessionPool, SessionPoolEnvironment
from palaestrai_mosaik.environment.tabular import SlipperyGrid
from palaestrai_mosaik.testing import ConformanceError, check_batch_environment
from palaestrai_mosaik.types import Box, Discrete

DUMMY = "palaestrai_mosaik.environment.dummy:DummyEnvironment"


class Tanks(BatchEnvironment):
    """Two levels each that follow the set-points with noise; sound. Subclasses break one thing each."""

    state_shapes = ((2,), ())
    state_dtypes = (np.float64, np.int32)
    observation_shapes = ((2,), ())
    observation_dtypes = (np.float32, np.int32)
    action_shapes = ((2,),)
    action_dtypes = (np.float64,)

    def __init__(self, batch: int = 1, first: int = 0, length: int = 9):
        super().__init__(batch=batch, first=first)
        self.length = length

    def get_observation_spaces(self) -> Any:
        return [Box(-50.0, 50.0, shape=(2,), dtype=np.float32), Discrete(1000)]

    def get_action_spaces(self) -> Any:
        return [Box(-1.0, 1.0, shape=(2,))]

    def draw(self, k: int) -> Any:
        return self.rngs[k].normal(size=2)

    def get_first_states(self, incarnations: Any) -> Any:
        levels = np.array([self.draw(k) for k in incarnations.tolist()])
        return self.observed([levels, np.zeros(len(incarnations), dtype=np.int32)])

    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        levels, count = last_states
        noise = np.array([self.draw(k) for k in range(self.batch)])
        return self.observed([0.5 * levels + actions[0] + 0.1 * noise, count + np.int32(1)])

    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        return -np.abs(new_states[0]).max(axis=1)

    def get_ends(self, new_states: Any) -> Any:
        over = new_states[1] >= self.length
        return over & (new_states[0][:, 0] > 0), over & (new_states[0][:, 0] <= 0)

    def observed(self, states: Any) -> Any:
        return states, [states[0].astype(np.float32), states[1]]


class Replaying(Tanks):
    """Says that the pumps were set by the levels."""

    replays = True

    def get_recorded_actions(self, states: Any) -> Any:
        return [np.tanh(states[0])]


class Numbered(Tanks):
    """What differs from incarnation to incarnation goes by their numbers."""

    def get_first_states(self, incarnations: Any) -> Any:
        levels = np.tile((self.first + incarnations)[:, np.newaxis] / 10, 2)
        return self.observed([levels, np.zeros(len(incarnations), dtype=np.int32)])


def recorded() -> SessionPool:
    pool, rng = SessionPool(2, 1), np.random.default_rng(0)
    pool.load_sessions(
        rng.normal(size=(10, 6, 2)), rng.integers(0, 3, size=(10, 6)), rng.normal(size=(10, 6))
    )
    return pool


@pytest.mark.parametrize(
    "factory",
    [
        Tanks,
        Replaying,
        Numbered,
        partial(Numbered, first=4),
        partial(SessionPoolEnvironment, source=recorded()),
        partial(SessionPoolEnvironment, source=recorded(), sample="with_replacement"),
        partial(Tanks, length=2),
        BatchPendulum,
        partial(BatchCartPole, sutton_barto_reward=True),
        BooleanReasoning,
        SlipperyGrid,
        partial(Copies, DUMMY, {"discrete": False}),
    ],
)
def test_sound_environments_pass(factory: Any) -> None:
    check_batch_environment(factory, batch=3, steps=24)


# --- each of these breaks one rule -----------------------------------------------------------


class OneSize(Tanks):
    def __init__(self, batch: int = 1):
        super().__init__(batch=5)


class NoBaseline(Tanks):
    def setup(self) -> Any:
        return None


class StepSize(Tanks):
    step_size = 0


class TwiceTheSame(Tanks):
    observation_names = ("a", "a")


class OtherSpaces(Tanks):
    def setup(self) -> EnvironmentBaseline:
        baseline = super().setup()
        baseline.sensors[0].uid = f"levels of {self.batch}"
        return baseline


class WrongKinds(Tanks):
    state_dtypes = (np.float64,)


class WrongShape(Tanks):
    def observed(self, states: Any) -> Any:
        states, (levels, count) = super().observed(states)
        return states, [levels[:, :1], count]


class WrongDtype(Tanks):
    def observed(self, states: Any) -> Any:
        return states, [states[0], states[1]]


class WordyEnds(Tanks):
    def get_ends(self, new_states: Any) -> Any:
        terminated, truncated = super().get_ends(new_states)
        return terminated.astype(int), truncated


class NoPair(Tanks):
    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        return super().get_action_results(last_states, actions)[0]


class Outside(Tanks):
    def get_observation_spaces(self) -> Any:
        return [Box(-0.1, 0.1, shape=(2,), dtype=np.float32), Discrete(1000)]


class Uncountable(Tanks):
    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        return np.full(self.batch, np.nan)


class WritesStates(Tanks):
    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        answer = super().get_action_results(last_states, actions)
        last_states[1][:] = 0
        return answer


class WritesActions(Tanks):
    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        np.clip(actions[0], 0.0, 0.5, out=actions[0])
        return super().get_rewards(last_states, actions, new_states)


class WritesRecorded(Replaying):
    def get_recorded_actions(self, states: Any) -> Any:
        return [np.tanh(states[0], out=states[0])]


class MeanRecorded(Replaying):
    def get_recorded_actions(self, states: Any) -> Any:
        return [np.tanh(states[0] - states[0].mean())]


class ByTheMean(Tanks):
    """Every incarnation's reward depends on what the others do."""

    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        return super().get_rewards(last_states, actions, new_states) - new_states[0].mean()


class FirstGenerator(Tanks):
    """All draw from the generator of the first one."""

    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        self.draw = lambda k: self.rngs[0].normal(size=2)  # type: ignore[method-assign]
        answer = super().get_action_results(last_states, actions)
        del self.draw
        return answer


class ResetsOthers(Tanks):
    """Keeps the levels itself, and lets all of them begin anew where one does."""

    def get_first_states(self, incarnations: Any) -> Any:
        levels = np.array([self.draw(k) for k in range(self.batch)])
        return self.observed([levels[incarnations], np.zeros(len(incarnations), dtype=np.int32)])


class Forgets(Tanks):
    """Keeps something outside its states, which a reset of one takes from all."""

    def get_first_states(self, incarnations: Any) -> Any:
        self.age = 0.0
        return super().get_first_states(incarnations)

    def get_action_results(self, last_states: Any, actions: Any) -> Any:
        self.age += 1.0
        return super().get_action_results(last_states, actions)

    def get_rewards(self, last_states: Any, actions: Any, new_states: Any) -> Any:
        return np.full(self.batch, self.age)


class OwnGenerator(Tanks):
    def draw(self, k: int) -> Any:
        return np.random.default_rng().normal(size=2)


class GlobalGenerator(Tanks):
    def draw(self, k: int) -> Any:
        random.random()
        return super().draw(k)


class NoIdle(Tanks):
    """Says that nothing is done until an agent acts, and cannot do without."""

    def get_idle_actions(self) -> Any:
        return [np.full(2, np.nan)]


class SingleGenerator(Tanks):
    def draw(self, k: int) -> Any:
        return self.rng.normal(size=2)


class Leftover(Tanks):
    """Does not go back to the beginning."""

    def get_first_states(self, incarnations: Any) -> Any:
        states, observations = super().get_first_states(incarnations)
        self.begun = getattr(self, "begun", 0) + (len(incarnations) == self.batch)
        return states, [observations[0] + np.float32(self.begun // 3), observations[1]]


class Endless(Tanks):
    ends = False

    def __init__(self, batch: int = 1):
        super().__init__(batch, length=3)


BROKEN = [
    (OneSize, "is not of the size it was made with: batch=1 gave 5"),
    (NoBaseline, "returns no EnvironmentBaseline: setup"),
    (StepSize, "step_size is not a whole number"),
    (TwiceTheSame, "several sensors have the same uid: setup: 'a'"),
    (OtherSpaces, "two instances differ: their baselines are not the same"),
    (WrongKinds, "WrongKinds declares 2 state_shapes, but 1 state_dtypes"),
    (WrongShape, r"observation 0 has shape (5, 1), declared is (5, 2)"),
    (WrongDtype, "observation 0 has dtype float64, declared is float32"),
    (WordyEnds, "does not give what it declares: episode 0, step 1: "),
    (NoPair, "get_action_results: states must be a list of 2 arrays, found ndarray"),
    (Outside, "a reading lies outside its space: episode 0, reset, incarnation 0"),
    (Uncountable, "a reward is not finite: episode 0, step 1, incarnation 0"),
    (WritesStates, "raises an exception: episode 0, step 1: ValueError: assignment destination is read-only"),
    (WritesActions, "changes the arguments that it is given: get_rewards"),
    (WritesRecorded, "raises an exception: episode 0, reset: ValueError: output array is read-only"),
    (MeanRecorded, "an incarnation differs from a batch of 1: episode 0, reset, incarnation 0"),
    (ByTheMean, "an incarnation differs from a batch of 1: episode 0, step 1, incarnation 0"),
    (FirstGenerator, "an incarnation differs from a batch of 1: episode 0, step 1, incarnation 1"),
    (ResetsOthers, "the reset of some draws from generators of others: get_first_states([0, 2, 4])"),
    (Forgets, "an incarnation differs from a batch of 1"),
    (OwnGenerator, "two instances differ, given the same generators and set-points: episode 0, reset"),
    (GlobalGenerator, "uses a global random generator"),
    (SingleGenerator, "an incarnation differs from a batch of 1: episode 0, reset, incarnation 1"),
    (NoIdle, "a reading is not finite: episode 0, step 1, incarnation 0"),
    (Leftover, "a reset does not lead back to the same first state"),
    (Endless, "ends an episode although its attribute 'ends' is false"),
    (dict, "is no BatchEnvironment: it is a dict"),
]
#: what else is found as a consequence
ALSO = {
    ResetsOthers: ["an incarnation differs from a batch of 1: episode 0, step 5, incarnation 1"],
    NoIdle: ["a reward is not finite"],
    OwnGenerator: ["an incarnation differs from a batch of 1", "a reset does not lead back"],
    Leftover: ["an incarnation differs from a batch of 1: episode 1, reset"],
}


@pytest.mark.parametrize(("broken", "text"), BROKEN, ids=[b.__name__ for b, _ in BROKEN])
def test_what_is_wrong_with_a_batched_environment_is_found(broken: Any, text: str) -> None:
    with pytest.raises(ConformanceError) as error:
        check_batch_environment(broken, steps=12, episodes=2)
    texts = [text, *ALSO.get(broken, [])]
    found = error.value.findings
    assert len(found) == len(texts) and all(any(t in f for f in found) for t in texts), error.value


class Seen(Tanks):
    """Sound: its frames are of one colour."""

    def get_frame(self, state: Any) -> Any:
        return np.full((2, 3, 3), 7, np.uint8)


class SeenFlat(Seen):
    def get_frame(self, state: Any) -> Any:
        return np.full((2, 3), 7, np.uint8)


class SeenByChance(Seen):
    def get_frame(self, state: Any) -> Any:
        self.rngs[0].random()
        return super().get_frame(state)


def test_frames_of_a_batch_are_checked() -> None:
    check_batch_environment(Seen)
    with pytest.raises(
        ConformanceError, match=r"renders something else than a frame: .* uint8 of shape \(2, 3\)"
    ):
        check_batch_environment(SeenFlat)
    with pytest.raises(ConformanceError, match="two instances differ"):
        check_batch_environment(SeenByChance)

"""The checks of muscles and objectives for many bodies: sound ones pass, broken ones do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import BatchMuscle, BatchObjective, Memory
from palaestrai_mosaik.agent.library.aggregate import AggregateRewardsObjective
from palaestrai_mosaik.agent.library.random_agent import RandomMuscle
from palaestrai_mosaik.agent.library.voltage_control import IntegratingVoltageController
from palaestrai_mosaik.testing import ConformanceError, check_muscle, check_objective
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation

SENSORS = [SensorInformation(1.0, Box(0.8, 1.2, shape=()), f"grid.0.sgen-{i}.vm_pu") for i in range(2)]
ACTUATORS = [ActuatorInformation(None, Box(-1.0, 1.0, shape=()), f"grid.0.sgen-{i}.q_mvar") for i in range(2)]
REWARDS = ["w.0.a", "w.0.b"]


class Leaning(BatchMuscle):
    """Leans a little further with each step, by what it reads and a draw."""

    def setup(self) -> None:
        self.steps: dict[int, int] = {}
        self.count = 0

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        self.count += 1
        actuators_available.vector = self._answer(sensors.vector, self.count, self.rng.random())
        return actuators_available, self.count

    def propose_batch(self, batch: Any) -> Any:
        answers, data = [], []
        for row, body in zip(batch.observations, batch.bodies.tolist(), strict=True):
            self.steps[body] = self.steps.get(body, 0) + 1
            answers.append(self._answer(row, self.steps[body], self.rngs[body].random()))
            data.append(self.steps[body])
        return np.array(answers), data

    @staticmethod
    def _answer(readings: Any, count: int, draw: float) -> Any:
        return np.clip(0.01 * count + 0.1 * draw + readings - 1.0, -1.0, 1.0)

    def reset(self) -> None:
        self.steps, self.count = {}, 0

    def reset_bodies(self, bodies: Any) -> None:
        for body in bodies.tolist():
            self.steps[body] = 0


class Forgetless(Leaning):
    def reset_bodies(self, bodies: Any) -> None:
        pass


class Forgetful(Leaning):
    def reset_bodies(self, bodies: Any) -> None:
        self.steps = {}


class OneDraw(Leaning):
    def propose_batch(self, batch: Any) -> Any:
        self.rngs = [self.rngs[0]] * len(self.rngs)
        return super().propose_batch(batch)


class Neighbourly(Leaning):
    def propose_batch(self, batch: Any) -> Any:
        batch.observations = batch.observations - batch.observations.mean(axis=0) + 1.0
        return super().propose_batch(batch)


class Flat(Leaning):
    def propose_batch(self, batch: Any) -> Any:
        answers, data = super().propose_batch(batch)
        return answers.reshape(-1), data


class FewData(Leaning):
    def propose_batch(self, batch: Any) -> Any:
        answers, data = super().propose_batch(batch)
        return answers, data[1:]


class OtherData(Leaning):
    def propose_batch(self, batch: Any) -> Any:
        answers, data = super().propose_batch(batch)
        return answers, [-1] * len(data)


class Scribbling(Leaning):
    def propose_batch(self, batch: Any) -> Any:
        answer = super().propose_batch(batch)
        batch.observations[0] = 0.0
        return answer


@pytest.mark.parametrize("muscle", [Leaning, RandomMuscle, IntegratingVoltageController])
def test_sound_muscles_pass(muscle: Any) -> None:
    check_muscle(muscle, SENSORS, ACTUATORS, steps=12)


@pytest.mark.parametrize(
    ("muscle", "rule"),
    [
        (Forgetless, "other set-points"),
        (Forgetful, "other set-points"),
        (OneDraw, "other set-points"),
        (Neighbourly, "other set-points"),
        (Flat, "another shape"),
        (FewData, "data for each body"),
        (OtherData, "other data"),
        (Scribbling, "changes the readings"),
    ],
)
def test_broken_muscles_do_not(muscle: Any, rule: str) -> None:
    with pytest.raises(ConformanceError, match=rule):
        check_muscle(muscle, SENSORS, ACTUATORS, steps=12)


def test_rounding_may_be_allowed() -> None:
    class Rounded(Leaning):
        def propose_batch(self, batch: Any) -> Any:
            answers, data = super().propose_batch(batch)
            return answers.astype(np.float32), data

    with pytest.raises(ConformanceError, match="other set-points"):
        check_muscle(Rounded, SENSORS, ACTUATORS, steps=5)
    check_muscle(Rounded, SENSORS, ACTUATORS, steps=5, rounding=1e-6)


class Weighted(BatchObjective):
    def internal_reward(self, memory: Memory, **kwargs: Any) -> float:
        rewards = memory.tail(1).rewards[0]
        return float(rewards[0] - 2.0 * rewards[1])

    def internal_rewards(self, rows: Any) -> Any:
        return rows.rewards[:, 0] - 2.0 * rows.rewards[:, 1]


class Mistaken(Weighted):
    def internal_rewards(self, rows: Any) -> Any:
        return rows.rewards[:, 0] - 2.0 * rows.rewards[0, 1]


class Column(Weighted):
    def internal_rewards(self, rows: Any) -> Any:
        return super().internal_rewards(rows)[:, None]


def test_objectives() -> None:
    check_objective(Weighted, REWARDS)
    check_objective(lambda: AggregateRewardsObjective(["a", "b"], "mean", -0.5), REWARDS)
    with pytest.raises(ConformanceError, match="another value than internal_reward"):
        check_objective(Mistaken, REWARDS)
    with pytest.raises(ConformanceError, match="a value for each row"):
        check_objective(Column, REWARDS)

"""Many carts with poles that step together: Gymnasium's ``CartPole-v1`` as arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types import Box, Discrete, Space
from palaestrai_mosaik.types.arrays import BoolVector, FloatVector, IndexVector

from .batch import Arrays, BatchEnvironment


class BatchCartPole(BatchEnvironment):
    """Balance a pole on a cart, with the equations and numbers of ``CartPole-v1``.

    Sensor ``observation`` (4,), float32: position (m) and velocity (m/s) of the cart, angle (rad) and angular
    velocity (rad/s) of the pole. Actuator ``action``: push to the left (0) or to the right (1). An episode
    terminates if the cart leaves 2.4 m or the pole 12 degrees. The first state is uniform: each number within
    0.05.

    Sources: Barto, Sutton and Anderson 1983, "Neuronlike adaptive elements that can solve difficult learning
    control problems"; Florian 2007, "Correct equations for the dynamics of the cart-pole system"; Gymnasium's
    documentation of the environment.

    Args:
        batch: number of incarnations.
        first: the seed number of the first incarnation.
        max_steps: number of steps after which an incarnation is truncated; ``None``: no limit.
        sutton_barto_reward: the reward is -1 on termination and otherwise 0, instead of 1 for every step.
    """

    rewards_accumulate = True
    #: position (m), velocity (m/s), angle (rad), angular velocity (rad/s)
    state_shapes = ((), (), (), ())
    observation_shapes = ((4,),)
    observation_dtypes = (np.float32,)
    action_shapes = ((),)

    #: m/s**2, kg, kg, m (half the pole's length), N, s
    GRAVITY, CART, POLE, LENGTH, FORCE, STEP = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
    TOTAL, MOMENT = CART + POLE, POLE * LENGTH
    #: m, rad
    FARTHEST, STEEPEST = 2.4, 12 * 2 * math.pi / 360

    def __init__(
        self,
        batch: int = 1,
        first: int = 0,
        max_steps: int | None = 500,
        sutton_barto_reward: bool = False,
    ):
        super().__init__(batch=batch, first=first, max_steps=max_steps)
        self.sutton_barto_reward = bool(sutton_barto_reward)

    def get_observation_spaces(self) -> Sequence[Space]:
        highest = np.array([2 * self.FARTHEST, np.inf, 2 * self.STEEPEST, np.inf])
        return [Box(-highest, highest, dtype=np.float32)]

    def get_action_spaces(self) -> Sequence[Space]:
        return [Discrete(2)]

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        drawn = 0.1 * np.array([self.rngs[k].random(4) for k in incarnations.tolist()]) - 0.05
        states = [drawn[:, i].copy() for i in range(4)]
        return states, _observed(states)

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        position, speed, angle, turn = last_states
        force = np.where(actions[0] == 1, self.FORCE, -self.FORCE)
        cosine, sine = np.cos(angle), np.sin(angle)
        push = (force + self.MOMENT * turn**2 * sine) / self.TOTAL
        turning = (self.GRAVITY * sine - cosine * push) / (
            self.LENGTH * (4.0 / 3.0 - self.POLE * cosine**2 / self.TOTAL)
        )
        moving = push - self.MOMENT * turning * cosine / self.TOTAL
        # Euler: the old velocities move cart and pole
        states = [
            position + self.STEP * speed,
            speed + self.STEP * moving,
            angle + self.STEP * turn,
            turn + self.STEP * turning,
        ]
        return states, _observed(states)

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> FloatVector:
        if self.sutton_barto_reward:
            return -self._fallen(new_states).astype(np.float64)
        return np.ones(self.batch)

    def get_ends(self, new_states: Arrays) -> tuple[BoolVector, BoolVector]:
        return self._fallen(new_states), np.zeros(self.batch, dtype=bool)

    def get_frame(self, state: Arrays) -> npt.NDArray[np.uint8]:
        from PIL import Image, ImageDraw

        position, _, angle, _ = (float(value) for value in state)
        # pixels; the limits of the cart are at the borders
        width, height, ground = 300, 200, 150
        scale = width / (2 * self.FARTHEST)
        x, y = width / 2 + position * scale, ground - 10
        image = Image.new("RGB", (width, height), "white")
        draw = ImageDraw.Draw(image)
        draw.line((0, ground, width, ground), "black")
        draw.rectangle((x - 15, ground - 20, x + 15, ground), "black")
        length = 2 * self.LENGTH * scale
        draw.line((x, y, x + length * math.sin(angle), y - length * math.cos(angle)), (202, 152, 101), 6)
        return np.asarray(image)

    def _fallen(self, states: Arrays) -> BoolVector:
        position, _, angle, _ = states
        fallen: BoolVector = (np.abs(position) > self.FARTHEST) | (np.abs(angle) > self.STEEPEST)
        return fallen


def _observed(states: Arrays) -> Arrays:
    observations = np.empty((len(states[0]), 4), dtype=np.float32)
    for i, state in enumerate(states):
        observations[:, i] = state
    return [observations]

"""Many pendulums that step together: Gymnasium's ``Pendulum-v1`` as arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types import Box, Space
from palaestrai_mosaik.types.arrays import FloatVector, IndexVector

from .batch import Arrays, BatchEnvironment

#: bounds of the first state: angle (rad), angular velocity (rad/s)
_FIRST = np.array([np.pi, 1.0])
_HIGHEST = np.array([1.0, 1.0, 8.0], dtype=np.float32)


class BatchPendulum(BatchEnvironment):
    """Swing a pendulum up and keep it there, with the equations and numbers of ``Pendulum-v1``.

    Sensor ``observation`` (3,), float32: cosine and sine of the angle (0: upright), angular velocity (rad/s,
    within 8). Actuator ``action`` (1,), float32: torque (N m, within 2). Reward: ``-(angle**2 + 0.1 *
    velocity**2 + 0.001 * torque**2)`` of the state before the step, the angle within pi. It never terminates.
    The first state is uniform: angle within pi, velocity within 1.

    Source: Gymnasium's documentation of the environment.

    Args:
        batch: number of incarnations.
        first: the seed number of the first incarnation.
        max_steps: number of steps after which an incarnation is truncated; ``None``: no limit.
        g: gravity in m/s**2.
    """

    rewards_accumulate = True
    #: angle (rad, not wrapped), angular velocity (rad/s)
    state_shapes = ((), ())
    observation_shapes = ((3,),)
    observation_dtypes = (np.float32,)
    action_shapes = ((1,),)
    action_dtypes = (np.float32,)

    #: kg, m, s, rad/s, N m
    MASS, LENGTH, STEP, FASTEST, STRONGEST = 1.0, 1.0, 0.05, 8.0, 2.0

    def __init__(self, batch: int = 1, first: int = 0, max_steps: int | None = 200, g: float = 10.0):
        super().__init__(batch=batch, first=first, max_steps=max_steps)
        self.g = float(g)
        self._by_gravity = 3 * self.g / (2 * self.LENGTH)
        # float32, like the torque, because Gymnasium rounds their product to 32 bits
        self._by_torque = np.float32(3.0 / (self.MASS * self.LENGTH**2))

    def get_observation_spaces(self) -> Sequence[Space]:
        return [Box(-_HIGHEST, _HIGHEST, dtype=np.float32)]

    def get_action_spaces(self) -> Sequence[Space]:
        return [Box(-self.STRONGEST, self.STRONGEST, shape=(1,), dtype=np.float32)]

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        drawn = (2 * np.array([self.rngs[k].random(2) for k in incarnations.tolist()]) - 1) * _FIRST
        states = [drawn[:, 0].copy(), drawn[:, 1].copy()]
        return states, self._observed(*states)

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        angle, speed = last_states
        pull = self._by_gravity * np.sin(angle) + self._by_torque * self._torque(actions)
        speed = np.minimum(np.maximum(speed + pull * self.STEP, -self.FASTEST), self.FASTEST)
        states = [angle + speed * self.STEP, speed]
        return states, self._observed(*states)

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> FloatVector:
        angle, speed = last_states
        wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
        reward: FloatVector = -(wrapped**2 + 0.1 * speed**2 + 0.001 * self._torque(actions) ** 2)
        return reward

    def get_frame(self, state: Arrays) -> npt.NDArray[np.uint8]:
        from PIL import Image, ImageDraw

        angle = float(state[0])
        # pixels
        side, middle, length = 200, 100, 80
        image = Image.new("RGB", (side, side), "white")
        draw = ImageDraw.Draw(image)
        # a positive angle is to the left, as in Gymnasium
        end = middle - length * np.sin(angle), middle - length * np.cos(angle)
        draw.line((middle, middle, *end), (204, 77, 77), 16)
        draw.ellipse((middle - 3, middle - 3, middle + 3, middle + 3), "black")
        return np.asarray(image)

    def _torque(self, actions: Arrays) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        return np.minimum(np.maximum(actions[0][:, 0], -self.STRONGEST), self.STRONGEST)

    @staticmethod
    def _observed(angle: FloatVector, speed: FloatVector) -> Arrays:
        observations = np.empty((len(angle), 3), dtype=np.float32)
        observations[:, 0] = np.cos(angle)
        observations[:, 1] = np.sin(angle)
        observations[:, 2] = speed
        return [observations]

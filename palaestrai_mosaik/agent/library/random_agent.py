"""A muscle with random actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.muscle import BatchMuscle, BatchReadings
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import ActuatorInformation, Box, Discrete, SensorInformation
from palaestrai_mosaik.types.arrays import FloatMatrix, IndexVector
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout

#: number of future actions that a body draws at a time
_BLOCK = 64


class RandomMuscle(BatchMuscle):
    """Draws every set-point from its actuator's space, and holds it for some actions.

    Args:
        hold: number of actions, at least 1 (1: a new set-point each time).
    """

    def __init__(self, hold: int = 1):
        if hold < 1:
            raise ContractError(f"hold must be at least 1, not {hold}")
        self.hold = int(hold)
        self._actions = 0
        self._draws: _Draws | None = None

    def reset(self) -> None:
        self._actions = 0
        if self._draws is not None:
            self._draws.actions[:] = 0

    def reset_bodies(self, bodies: IndexVector) -> None:
        if self._draws is not None:
            self._draws.actions[bodies] = 0

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        assert isinstance(actuators_available, ActuatorSetpoints)
        if self._actions % self.hold == 0:
            self._drawn = actuators_available._layout.sample(self.rng)
        self._actions += 1
        actuators_available.vector = self._drawn
        return actuators_available, None

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, None]:
        draws = self._draws
        if draws is None or draws.rngs is not self.rngs:
            draws = self._draws = _Draws(self.rngs, batch.actuators)
        bodies = batch.bodies
        new = bodies if self.hold == 1 else bodies[draws.actions[bodies] % self.hold == 0]
        draws.actions[bodies] += 1
        if len(new):
            draws.values[new] = draws.next(new)
        return draws.values[bodies], None


class _Draws:
    """The draws of the bodies in an episode, equal to action-by-action draws from each generator."""

    def __init__(self, rngs: Sequence[np.random.Generator], actuators: Layout):
        self.rngs = rngs
        self.actions = np.zeros(len(rngs), dtype=np.int64)
        self.values = np.empty((len(rngs), actuators.size))
        self._actuators = actuators
        #: uniform numbers in [0, 1), if all set-points can be made from them; below, the number of used ones
        self._block: npt.NDArray[np.float64] | None = None
        if all(map(_is_uniform, actuators.spaces)):
            self._block = np.empty((len(rngs), _BLOCK, actuators.size))
            self._used = np.full(len(rngs), _BLOCK)

    def next(self, bodies: IndexVector) -> FloatMatrix:
        """Return new set-points of ``bodies``: (n, set-points)."""
        layout, block = self._actuators, self._block
        if block is None:
            return np.array([layout.sample(self.rngs[body]) for body in bodies.tolist()])
        used = self._used
        for body in bodies[used[bodies] == _BLOCK].tolist():
            self.rngs[body].random(out=block[body])
            used[body] = 0
        shares: FloatMatrix = block[bodies, used[bodies]]
        used[bodies] += 1
        for space, part in zip(layout.spaces, layout.slices, strict=True):
            shares[:, part] = _of_shares(space, shares[:, part])
        return shares


def _is_uniform(space: Any) -> bool:
    """Return whether a sample of the space is made from one uniform number for each element."""
    if isinstance(space, Discrete):
        return space.n < 2**32
    bounded = np.isfinite(space.flat_low).all() and np.isfinite(space.flat_high).all()
    return isinstance(space, Box) and space.dtype.kind == "f" and bool(bounded)


def _of_shares(space: Any, shares: FloatMatrix) -> FloatMatrix:
    """Convert uniform numbers to samples, with the arithmetic of ``Space.sample``."""
    if isinstance(space, Discrete):
        return space.start + np.floor(shares * space.n)
    low, high = space.flat_low, space.flat_high
    values = np.clip((low / 2 + (high / 2 - low / 2) * shares) * 2, low, high)
    with np.errstate(over="ignore"):
        samples: FloatMatrix = values.astype(space.dtype)
        return samples

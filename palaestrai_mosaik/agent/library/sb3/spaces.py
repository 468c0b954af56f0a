"""The sensors and actuators of an agent as one observation space and one action space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces as gym

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import Box, Discrete, MultiBinary, MultiDiscrete, Space
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector


@dataclass(frozen=True)
class ObservationSpace:
    """The readings of several sensors as one observation in the learner's ``space``."""

    space: gym.Space[Any]
    start: float
    size: int

    def encode(self, readings: FloatVector) -> npt.NDArray[Any]:
        """Return a batch of observations: shape ``(n, size)``, or ``(n,)`` for a ``Discrete``.

        ``readings``: (n, size), or (size,) for a batch of one.
        """
        if self.start:
            readings = readings - self.start
        batch = readings.astype(self.space.dtype)
        return batch.reshape(-1) if isinstance(self.space, gym.Discrete) else batch.reshape(-1, self.size)


def observation_space(spaces: Sequence[Space]) -> ObservationSpace:
    """Build the observation space of sensors with these ``spaces``.

    A single sensor in a finite space keeps it (Stable-Baselines3 then encodes it one-hot);
    all others become one float32 vector, with one number for a discrete reading.
    """
    if not spaces:
        raise ContractError("an agent without sensors has nothing to learn from")
    size = sum(space.size for space in spaces)
    first = spaces[0]
    space: gym.Space[Any]
    if len(spaces) == 1 and isinstance(first, Discrete | MultiDiscrete | MultiBinary):
        start = first.start if isinstance(first, Discrete) else 0
        if isinstance(first, Discrete):
            space = gym.Discrete(first.n)
        elif isinstance(first, MultiDiscrete):
            space = gym.MultiDiscrete(first.nvec.reshape(-1))
        else:
            space = gym.MultiBinary(size)
        return ObservationSpace(space, float(start), size)
    with np.errstate(over="ignore"):
        low, high = (
            np.concatenate([getattr(s, bound) for s in spaces]).astype(np.float32)
            for bound in ("flat_low", "flat_high")
        )
    return ObservationSpace(gym.Box(low, high, dtype=np.float32), 0.0, size)


@dataclass(frozen=True)
class ActionSpace:
    """The set-points of several actuators as one action.

    ``space`` is the learner's; a set-point is its number plus ``start``, within ``low`` and
    ``high``. All have shape ``(n_setpoints,)``.
    """

    space: gym.Space[Any]
    start: FloatVector
    low: FloatVector
    high: FloatVector

    @property
    def continuous(self) -> bool:
        """Whether actions are real numbers."""
        return isinstance(self.space, gym.Box)

    def setpoints(self, actions: npt.NDArray[Any]) -> FloatMatrix:
        """Return the set-points of ``n`` actions: (n, set-points)."""
        flat = np.asarray(actions, dtype=np.float64).reshape(len(actions), -1)
        # float32 may round a bound outwards
        return np.clip(flat, self.low, self.high) if self.continuous else flat + self.start

    def action(self, setpoints: FloatVector) -> npt.NDArray[Any]:
        """Return the learner's action for ``setpoints``, shape ``(1, n_setpoints)``."""
        return (setpoints - self.start).astype(self.space.dtype)[np.newaxis]


def action_space(spaces: Sequence[Space], uids: Sequence[str]) -> ActionSpace:
    """Build the action space of actuators with these ``spaces``.

    A single actuator keeps its space, several boxes become one box, several discrete spaces a
    ``MultiDiscrete``, several binary ones a ``MultiBinary``. Raises :class:`ContractError` for
    mixtures, and for boxes of integers, without finite bounds, or without any width.
    """
    if not spaces:
        raise ContractError("an agent without actuators has nothing to do")
    kinds = {_kind(space, uid) for space, uid in zip(spaces, uids, strict=True)}
    if len(kinds) > 1:
        raise ContractError(
            "Stable-Baselines3 needs actuators of one kind, but found "
            + ", ".join(f"{uid!r} in {space}" for space, uid in zip(spaces, uids, strict=True))
        )
    low = np.concatenate([s.flat_low for s in spaces])
    high = np.concatenate([s.flat_high for s in spaces])
    counts = (high - low + 1).astype(np.int64)
    (kind,) = kinds
    space: gym.Space[Any]
    if kind == "Box":
        space = gym.Box(low.astype(np.float32), high.astype(np.float32), dtype=np.float32)
        return ActionSpace(space, np.zeros(len(low)), low, high)
    if kind == "MultiBinary":
        space = gym.MultiBinary(len(low))
    elif len(spaces) == 1 and isinstance(spaces[0], Discrete):
        space = gym.Discrete(int(counts[0]))
    else:
        space = gym.MultiDiscrete(counts)
    return ActionSpace(space, low, low, high)


def _kind(space: Space, uid: str) -> str:
    if isinstance(space, Discrete | MultiDiscrete):
        return "Discrete"
    if isinstance(space, MultiBinary):
        return "MultiBinary"
    if not isinstance(space, Box) or space.flat_integral.any():
        raise ContractError(
            f"actuator {uid!r}: Stable-Baselines3 has no actions in {space}; allowed are Box of floats, "
            "Discrete, MultiDiscrete and MultiBinary"
        )
    if not (np.isfinite(space.flat_low).all() and np.isfinite(space.flat_high).all()):
        raise ContractError(f"actuator {uid!r}: actions need finite bounds, but its space is {space}")
    if not (space.flat_low.astype(np.float32) < space.flat_high.astype(np.float32)).all():
        raise ContractError(
            f"actuator {uid!r}: actions need low < high (in float32), but its space is {space}"
        )
    return "Box"

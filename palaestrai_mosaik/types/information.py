"""Readings, set-points and rewards, the values that environments and agents exchange.

The names are palaestrAI's. ``value``, ``space`` and ``uid`` are the current spellings;
the older ones (``sensor_value``, ``observation_space``, ``setpoint``, ...) remain as
read/write aliases, because published agents use them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import ActionError

from .spaces import Space


def _alias(name: str) -> Any:
    return property(lambda self: getattr(self, name), lambda self, value: setattr(self, name, value))


class _Value:
    """The common part of readings and rewards."""

    __slots__ = ("may_be_missing", "space", "uid", "value")

    def __init__(self, value: Any, space: Space, uid: str, may_be_missing: bool = False):
        self.value = value
        self.space = space
        self.uid = uid
        self.may_be_missing = may_be_missing

    observation_space = _alias("space")

    def __call__(self) -> Any:
        return self.value

    def __repr__(self) -> str:
        return f"{type(self).__name__}(value={self.value!r}, space={self.space}, uid={self.uid!r})"


class SensorInformation(_Value):
    """A reading (``value``) of the sensor ``uid``, which lies in ``space``.

    Attributes:
        value: the reading.
        space: the space of the readings.
        uid: the id of the sensor.
        may_be_missing: whether a state may lack this reading. It matters in the declaration of an environment
            (:class:`~palaestrai_mosaik.environment.EnvironmentBaseline`): if true, NaN stands for a
            missing value there; if false, NaN is an error. Infinity is always an error.
        unit: the unit of the readings, such as ``"degC"``, for figures; ``None``: it follows from the end of the uid
            (``vm_pu``, ``p_mw``), if that has one.
    """

    __slots__ = ("unit",)

    def __init__(
        self, value: Any, space: Space, uid: str, may_be_missing: bool = False, unit: str | None = None
    ):
        super().__init__(value, space, uid, may_be_missing)
        self.unit = unit

    sensor_value = _alias("value")
    sensor_id = _alias("uid")
    id = _alias("uid")

    def __len__(self) -> int:
        return self.space.size

    def __repr__(self) -> str:
        text = super().__repr__()[:-1]
        text += ", may_be_missing=True" if self.may_be_missing else ""
        return f"{text})" if self.unit is None else f"{text}, unit={self.unit!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SensorInformation)
            and self.uid == other.uid
            and self.space == other.space
            and self.may_be_missing == other.may_be_missing
            and self.unit == other.unit
            and bool(np.array_equal(self.value, other.value))
        )

    __hash__ = None  # type: ignore[assignment]


class ActuatorInformation:
    """A set-point (``value``) of the actuator ``uid``, which must lie in ``space``.

    Args:
        value: the set-point; ``None`` for none.
        space: the space of the set-points.
        uid: the id of the actuator.

    Raises:
        ActionError: there is no space, or a value outside of it is passed, or assigned later.
    """

    __slots__ = ("_space", "_value", "uid")

    def __init__(self, value: Any = None, space: Space | None = None, uid: str = ""):
        if space is None:
            raise ActionError(f"actuator {uid!r} has no space")
        self._space = space
        self.uid = uid
        self._value: Any = None
        if value is not None:
            try:
                self.value = value
            except (AttributeError, TypeError):
                if isinstance(space, Space):
                    raise
                raise ActionError(
                    f"actuator {uid!r} has no space, but {space!r}; write ActuatorInformation(value, space, uid) with a "
                    "space such as Box(0.0, 1.0, shape=())"
                ) from None

    @property
    def space(self) -> Space:
        """The space of the set-points; read-only, because values are checked against it."""
        return self._space

    @property
    def value(self) -> Any:
        """The set-point, ``None`` before one is set."""
        return self._value

    @value.setter
    def value(self, value: Any) -> None:
        if value is not None and not self._space.contains(value):
            raise ActionError(f"set-point {value!r} of actuator {self.uid!r} is not in {self._space}")
        self._value = value

    setpoint = _alias("value")
    action_space = space
    actuator_id = _alias("uid")
    id = _alias("uid")

    def __call__(self, setpoint: Any) -> None:
        self.value = setpoint

    def __len__(self) -> int:
        return self.space.size

    def __repr__(self) -> str:
        return f"ActuatorInformation(value={self._value!r}, space={self.space}, uid={self.uid!r})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, ActuatorInformation)
            and self.uid == other.uid
            and self.space == other.space
            and bool(np.array_equal(self._value, other._value))
        )

    __hash__ = None  # type: ignore[assignment]


class RewardInformation(_Value):
    """A reward (``value``) named ``uid``, which lies in ``space``.

    Attributes:
        value: the reward, a number.
        space: the space of the rewards.
        uid: the name of the reward.
        may_be_missing: whether a step may lack this reward, which is NaN then. It is declared only by adapters of
            libraries in which an environment may leave rewards out; everywhere else, a reward of NaN is an error.
    """

    __slots__ = ()

    reward_value = _alias("value")
    reward_id = _alias("uid")

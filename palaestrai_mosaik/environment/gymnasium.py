"""Environments of Gymnasium, unchanged.

Needs the extra ``rl`` (or Gymnasium alone): ``pip install palaestrai-mosaik[rl]``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ActionError, ContractError, NameResolutionError, did_you_mean
from palaestrai_mosaik.importing import import_module, limit, refusal
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    RewardInformation,
    SensorInformation,
    Space,
)

from .environment import Environment, EnvironmentBaseline, EnvironmentState, FloatVector

try:
    import gymnasium
    from gymnasium import spaces
except ImportError as error:
    raise ImportError(f"this environment needs {error.name}: pip install palaestrai-mosaik[rl]") from error


@dataclass(frozen=True)
class Part:
    """One sensor or actuator: a part of an observation or action.

    ``way``: keys and indices that lead to it through ``Dict`` and ``Tuple`` spaces. A reading
    is the value minus ``start`` (only a ``MultiDiscrete`` that does not start at 0 has one).
    """

    uid: str
    way: tuple[str | int, ...]
    theirs: spaces.Space[Any]
    ours: Space
    start: npt.NDArray[Any] | int = 0

    def read(self, value: Any) -> FloatVector:
        """Return this part of ``value`` as a flat vector."""
        for key in self.way:
            value = value[key]
        return np.asarray(value, dtype=np.float64).reshape(-1) - np.reshape(self.start, -1)

    def write(self, vector: FloatVector) -> Any:
        """Return this part's value for its flat vector."""
        if isinstance(self.theirs, spaces.Discrete):
            return self.theirs.dtype.type(vector[0])
        value = vector.astype(self.theirs.dtype).reshape(self.ours.shape)
        return value + self.start if np.any(self.start) else value


class GymnasiumEnvironment(Environment):
    """The environment that ``gymnasium.make(id, **kwargs)`` makes; ``module:Name-v0`` imports the module.

    An observation is the sensor ``observation``, an action the actuator ``action``; an entry of a
    ``Dict`` or ``Tuple`` is one of its own (``observation.<key>``, ``observation.<index>``). The
    reward is ``reward``. One tick is one step. Every episode begins with a reset that is seeded from
    :attr:`rng`. Until an agent sets an actuator, it is 0 or whatever of its space is nearest to it.
    """

    def __init__(self, id: str, kwargs: Mapping[str, Any] | None = None):
        if not isinstance(id, str) or not id:
            raise ContractError(f"id must be a name such as CartPole-v1, not {id!r}")
        self.id = id
        self.kwargs = dict(kwargs or {})
        self._world: gymnasium.Env[Any, Any] | None = None

    def setup(self) -> EnvironmentBaseline:
        """Make the environment. Raises :class:`ContractError` for unknown ids and strange spaces."""
        world = self._world = _make(self.id, self.kwargs)
        self._observed = list(_parts("observation", world.observation_space))
        self._acted = list(_parts("action", world.action_space))
        self._slices = []
        end = 0
        for part in self._acted:
            self._slices.append(slice(end, end + part.ours.size))
            end += part.ours.size
        return EnvironmentBaseline(
            sensors=[SensorInformation(_nearest_to_zero(p.ours), p.ours, p.uid) for p in self._observed],
            actuators=[ActuatorInformation(_nearest_to_zero(p.ours), p.ours, p.uid) for p in self._acted],
            rewards=[RewardInformation(0.0, Box(-np.inf, np.inf, shape=()), "reward")],
        )

    def reset(self) -> EnvironmentState:
        assert self._world is not None
        observation, _ = self._world.reset(seed=int(self.rng.integers(2**31)))
        return EnvironmentState(self._readings(observation), (0.0,))

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        assert self._world is not None
        action: Any = None
        for part, where in zip(self._acted, self._slices, strict=True):
            if np.isnan(setpoints[where]).any():
                raise ActionError(f"environment {self.uid!r}: actuator {part.uid!r} has no set-point")
            action = _put(action, part.way, part.write(setpoints[where]))
        action = _with_tuples(action, self._world.action_space)
        observation, reward, terminated, truncated, _ = self._world.step(action)
        return EnvironmentState(
            self._readings(observation),
            (float(reward),),
            terminated=bool(terminated),
            # both at once are possible; a world that has ended is not cut off
            truncated=bool(truncated and not terminated),
        )

    def shutdown(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None

    def _readings(self, observation: Any) -> FloatVector:
        parts = [part.read(observation) for part in self._observed]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _make(id: str, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    if limit() is not None:
        _check_allowed(id)
    try:
        return gymnasium.make(id, **kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        hint = did_you_mean(id, gymnasium.registry)
        raise ContractError(f"Gymnasium has no environment {id!r}{hint}: {error}") from error
    except ModuleNotFoundError as error:
        raise ContractError(f"environment {id!r} cannot be imported: {error}") from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise ContractError(f"environment {id!r} needs what is not installed: {error}") from error
    except TypeError as error:
        raise ContractError(f"environment {id!r} does not take these kwargs: {error}") from error
    except (gymnasium.error.Error, ValueError) as error:
        raise ContractError(f"environment {id!r} cannot be made: {error}") from error


def _check_allowed(id: str) -> None:
    """Raise :class:`NameResolutionError` if a module that ``id`` leads to may not be named."""
    module, colon, name = id.rpartition(":")
    if colon:
        import_module(module)
    spec = gymnasium.registry.get(name)
    if spec is None:
        # also a name without its version: Gymnasium would choose one
        raise NameResolutionError(
            f"{id!r} must be the full name of an environment{did_you_mean(name, gymnasium.registry)}, as the "
            "document's modules are limited (--allow-modules)"
        )
    makers: list[Any] = [spec, *spec.additional_wrappers]
    for made in makers:
        origin = made.entry_point
        home = origin.partition(":")[0] if isinstance(origin, str) else getattr(origin, "__module__", "")
        fault = None if home.partition(".")[0] == "gymnasium" else refusal(str(home))
        if fault is not None:
            raise NameResolutionError(f"{id!r} is made by {origin}: {fault}")


def _parts(uid: str, space: spaces.Space[Any], way: tuple[str | int, ...] = ()) -> Iterator[Part]:
    entries: Any = ()
    if isinstance(space, spaces.Dict):
        entries = space.spaces.items()
    elif isinstance(space, spaces.Tuple):
        entries = enumerate(space.spaces)
    else:
        yield _part(uid, space, way)
    for key, entry in entries:
        yield from _parts(f"{uid}.{key}", entry, (*way, key))


def _part(uid: str, space: spaces.Space[Any], way: tuple[str | int, ...]) -> Part:
    if isinstance(space, spaces.Box):
        if space.dtype.kind == "b":
            return Part(uid, way, space, MultiBinary(space.shape))
        return Part(uid, way, space, Box(space.low, space.high, space.shape, space.dtype))
    if isinstance(space, spaces.Discrete):
        return Part(uid, way, space, Discrete(int(space.n), int(space.start)))
    if isinstance(space, spaces.MultiDiscrete):
        return Part(uid, way, space, MultiDiscrete(space.nvec), space.start)
    if isinstance(space, spaces.MultiBinary):
        return Part(uid, way, space, MultiBinary(space.n))
    raise ContractError(
        f"{uid!r} is in {space}, which has no vector form; allowed are Box, Discrete, MultiDiscrete, MultiBinary, "
        "and Dict and Tuple of them"
    )


def _nearest_to_zero(space: Space) -> Any:
    return space.unflatten(np.clip(0.0, space.flat_low, space.flat_high))


def _put(action: Any, way: tuple[str | int, ...], value: Any) -> Any:
    """Put ``value`` at its place in ``action``, whose ``Dict`` and ``Tuple`` spaces are dicts."""
    if not way:
        return value
    action = {} if action is None else action
    action[way[0]] = _put(action.get(way[0]), way[1:], value)
    return action


def _with_tuples(action: Any, space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Dict):
        return {key: _with_tuples(action[key], entry) for key, entry in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_with_tuples(action[i], entry) for i, entry in enumerate(space.spaces))
    return action

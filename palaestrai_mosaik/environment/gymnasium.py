"""Environments of Gymnasium, unchanged.

Needs the extra ``rl`` (or Gymnasium alone).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import ContractError, NameResolutionError, did_you_mean
from palaestrai_mosaik.core.importing import (
    class_name,
    import_module,
    limit,
    load,
    misfit,
    needed,
    note_module,
)
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

from .environment import Environment, EnvironmentBaseline, EnvironmentState, Rows, Together
from .farama import (
    Action,
    actuators_of,
    check_maker,
    failed_make,
    gained,
    parts_of,
    plain_info,
    rewards_of,
    sensors_of,
    try_to_render,
    with_render_mode,
)

try:
    import gymnasium
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: {install_extra('rl')}") from error


#: keywords of ``gymnasium.make`` itself
_OF_MAKE = ("max_episode_steps", "disable_env_checker", "vector_kwargs")


class GymnasiumEnvironment(Environment):
    """The environment made by ``gymnasium.make(id, **kwargs)``.

    An observation is the sensor ``observation``, an action the actuator ``action``; each entry of a ``Dict``
    or ``Tuple`` has its own (``observation.<key>``, ``observation.<index>``). The reward is ``reward``; with a
    ``reward_space`` of several numbers, the rewards are ``reward.0``, ``reward.1`` and so on. Text, numbers
    and arrays of its ``info`` are stored in the ``world_state`` under ``info``, and are part of the info of
    :func:`~palaestrai_mosaik.make`. One tick is one step. Every episode starts with a reset that is seeded
    from :attr:`rng`. Until an agent sets an actuator, it holds the value of its space nearest to 0.

    Args:
        id: Gymnasium's id; ``module:Name-v0`` imports the module. ``module:name`` is the function or class
            ``name`` of the module, unless an environment is registered under the name: it is called with
            ``kwargs`` and returns a ``gymnasium.Env``.
        kwargs: keywords of the environment; ``None``: none.
    """

    rewards_accumulate = True
    missing_remedy = ""
    #: whether frames are requested
    _frames = False
    #: the environment from its setup to its shutdown
    _env: gymnasium.Env[Any, Any]

    def __init__(self, id: str, kwargs: Mapping[str, Any] | None = None):
        if not isinstance(id, str) or not id:
            raise ContractError(f"id must be a name such as CartPole-v1, not {id!r}")
        self.id = id
        self.kwargs = dict(kwargs or {})

    def enable_frames(self) -> None:
        """Request the render mode ``rgb_array``. Raises :class:`RenderError` if ``kwargs`` request another."""
        self.kwargs = with_render_mode(self.kwargs, self.uid)
        self._frames = True

    def setup(self) -> EnvironmentBaseline:
        """Make the environment.

        Raises :class:`ContractError` for unknown ids and unsupported spaces, :class:`NameResolutionError` for a
        function that does not exist, and :class:`RenderError` if frames are requested and cannot be rendered.
        """
        if self._frames:
            try_to_render(partial(_make, self.id), self.kwargs, f"environment {self.uid!r} ({self.id})")
        env = self._env = _make(self.id, self.kwargs)
        self._observed = list(parts_of("observation", env.observation_space))
        self._action = Action("action", env.action_space)
        self._rewards = rewards_of("reward", _reward_space(env))
        return EnvironmentBaseline(
            sensors=sensors_of(self._observed),
            actuators=actuators_of(self._action.parts),
            rewards=self._rewards,
        )

    def source_of(self, sensor: str | None) -> str:
        return f"Gymnasium's {self.id}"

    def reset(self) -> EnvironmentState:
        observation, info = self._env.reset(seed=int(self.rng.integers(2**31)))
        return EnvironmentState(
            self._readings(observation), (0.0,) * len(self._rewards), world_state=_world_state(info)
        )

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        action = self._action.compose(setpoints, self.uid)
        observation, gain, terminated, truncated, info = self._env.step(action)
        return EnvironmentState(
            self._readings(observation),
            self.gains_of(gain),
            terminated=bool(terminated),
            truncated=bool(truncated),
            world_state=_world_state(info),
        )

    @classmethod
    def together(cls, copies: Sequence[GymnasiumEnvironment]) -> Together | None:
        inherited = (cls.step, cls._readings) == (GymnasiumEnvironment.step, GymnasiumEnvironment._readings)
        return _Together(copies) if inherited else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata of the environment, such as its render modes. Requires :meth:`setup`."""
        metadata: Mapping[str, Any] = self._env.metadata
        return metadata

    def render(self) -> Any:
        """Render the state with the ``render_mode`` of ``kwargs``."""
        return self._env.render()

    def shutdown(self) -> None:
        env = vars(self).pop("_env", None)
        if env is not None:
            env.close()

    def gains_of(self, gain: Any) -> tuple[float, ...]:
        """Return the rewards of a step. Raises :class:`ContractError` if they differ from the declared ones."""
        return gained(gain, self._rewards, self._describe_step)

    def _describe_step(self) -> str:
        """Describe the step for error messages."""
        return f"environment {self.uid!r} ({class_name(type(self._env.unwrapped))}), step"

    def _readings(self, observation: Any) -> FloatVector:
        parts = [part.read(observation) for part in self._observed]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])


class _Together(Together):
    """Steps copies one after the other, with their actions and readings as rows of arrays."""

    def __init__(self, copies: Sequence[GymnasiumEnvironment]):
        self._copies = copies
        self._steps = [copy._env.step for copy in copies]
        self._observed, self._action = copies[0]._observed, copies[0]._action
        self.at = 0

    def step(
        self, places: Sequence[int], setpoints: FloatMatrix
    ) -> tuple[Rows, Rows, Sequence[bool], Sequence[bool]]:
        steps = self._steps
        observations, rewards, terminations, truncations = [], [], [], []
        actions = self._action.compose_all(setpoints)
        if actions is None:
            actions = self._one_by_one(places, setpoints)
        for k, action in zip(places, actions, strict=True):
            self.at = k
            observation, gain, terminated, truncated, _ = steps[k](action)
            observations.append(observation)
            rewards.append(self._copies[k].gains_of(gain))
            terminations.append(bool(terminated))
            truncations.append(bool(truncated))
        return self._readings(places, observations), np.array(rewards), terminations, truncations

    def _one_by_one(self, places: Sequence[int], setpoints: FloatMatrix) -> Iterator[Any]:
        for k, row in zip(places, setpoints, strict=True):
            self.at = k
            yield self._action.compose(row, self._copies[k].uid)

    def _readings(self, places: Sequence[int], observations: Sequence[Any]) -> Rows:
        parts = [part.read_all(observations) for part in self._observed]
        columns = [part for part in parts if part is not None]
        if len(columns) < len(parts):
            return list(self._each(places, observations))
        return (
            columns[0]
            if len(columns) == 1
            else np.concatenate([np.empty((len(places), 0)), *columns], axis=1)
        )

    def _each(self, places: Sequence[int], observations: Sequence[Any]) -> Iterator[FloatVector]:
        for k, observation in zip(places, observations, strict=True):
            self.at = k
            yield self._copies[k]._readings(observation)


def _layers(env: Any) -> Iterator[Any]:
    """Yield an environment and all that it wraps."""
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env
    yield env


def _reward_space(env: Any) -> Any:
    """Return the ``reward_space`` of the outermost layer that has one."""
    spaces = (getattr(layer, "reward_space", None) for layer in _layers(env))
    return next((space for space in spaces if space is not None), None)


def _world_state(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the storable part of an info, or ``None`` if it is empty."""
    plain = plain_info(info) if info else None
    return {"info": plain} if plain else None


def _make(id: str, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    module, _, name = id.partition(":")
    if name.isidentifier():
        # before the lookup, since importing the module may register the name
        import_module(module, ours=False)
        if not _is_registered(name):
            return _call(id, kwargs)
    if limit() is not None:
        _check_allowed(id)
    try:
        env = gymnasium.make(id, **kwargs)
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv) as error:
        hint = did_you_mean(id, gymnasium.registry)
        raise ContractError(f"Gymnasium has no environment {id!r}{hint}: {error}") from error
    except ModuleNotFoundError as error:
        raise ContractError(f"environment {id!r} cannot be imported: {error}") from error
    except gymnasium.error.DependencyNotInstalled as error:
        raise ContractError(f"environment {id!r} needs what is not installed: {error}") from error
    except gymnasium.error.Error as error:
        raise ContractError(f"environment {id!r} cannot be made: {error}") from error
    except Exception as error:
        raise failed_make(error, f"environment {id!r}", partial(_misfit, id, kwargs)) from error
    # record the modules that Gymnasium imported to make it
    note_module(id.rpartition(":")[0] or "gymnasium", library="gymnasium")
    for layer in _layers(env):
        note_module(type(layer).__module__, library="gymnasium")
    return env


def _is_registered(name: str) -> bool:
    """Return whether Gymnasium has an environment ``name``, with a version or without one."""
    return any(name in (key, spec.name) for key, spec in gymnasium.registry.items())


def _call(id: str, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Call the function or class ``id`` (``module:name``) and return its environment."""
    # its keywords come from the document, so functions of this package are refused as well
    maker = load(id, ours=False, kind="function or class")
    if not callable(maker):
        raise ContractError(
            f"{id!r} is a {type(maker).__name__}, and no function or class that makes an environment"
        )
    try:
        env = maker(**kwargs)
    except Exception as error:
        raise failed_make(error, f"environment {id!r}", partial(misfit, maker, kwargs)) from error
    if not isinstance(env, gymnasium.Env):
        raise ContractError(f"{id!r} returns a {type(env).__name__}, which is no gymnasium.Env")
    return env


def _misfit(id: str, kwargs: Mapping[str, Any]) -> str | None:
    """Return why the environment's factory does not accept ``kwargs``, or ``None`` if it does."""
    spec = gymnasium.spec(id)
    origin = spec.entry_point
    maker: Any = gymnasium.envs.registration.load_env_creator(origin) if isinstance(origin, str) else origin
    factory_kwargs = {key: value for key, value in kwargs.items() if key not in _OF_MAKE}
    return None if maker is None else misfit(maker, {**spec.kwargs, **factory_kwargs})


def _check_allowed(id: str) -> None:
    """Raise :class:`NameResolutionError` if ``id`` leads to a module that is not allowed."""
    module, colon, name = id.rpartition(":")
    if colon:
        import_module(module)
    spec = gymnasium.registry.get(name)
    if spec is None:
        # this includes a name without a version, for which Gymnasium would choose one
        raise NameResolutionError(
            f"{id!r} must be the full name of an environment{did_you_mean(name, gymnasium.registry)}, as the "
            "document's modules are limited (--allow-modules)"
        )
    makers: list[Any] = [spec, *spec.additional_wrappers]
    for maker in makers:
        check_maker(id, maker.entry_point, "gymnasium")

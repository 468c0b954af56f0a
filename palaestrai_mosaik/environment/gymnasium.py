"""Environments of Gymnasium, unchanged.

Needs the extra ``rl`` (or Gymnasium alone).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from palaestrai_mosaik.errors import ContractError, NameResolutionError, did_you_mean
from palaestrai_mosaik.importing import (
    import_module,
    limit,
    load,
    misfit,
    needed,
    note_module,
    raised_at,
    refusal,
)
from palaestrai_mosaik.installation import install_extra
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

from .environment import Environment, EnvironmentBaseline, EnvironmentState, Rows, Together
from .farama_frames import try_to_render, with_render_mode
from .farama_spaces import Action, actuators_of, parts_of, plain_info, reward, sensors_of

try:
    import gymnasium
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: {install_extra('rl')}") from error


#: keywords that ``gymnasium.make`` takes itself
_OF_MAKE = ("max_episode_steps", "disable_env_checker", "vector_kwargs")


class GymnasiumEnvironment(Environment):
    """The environment that ``gymnasium.make(id, **kwargs)`` makes.

    An observation is the sensor ``observation``, an action the actuator ``action``; an entry of a ``Dict`` or
    ``Tuple`` is one of its own (``observation.<key>``, ``observation.<index>``). The reward is ``reward``.
    What of its ``info`` are words, numbers and arrays is in the world's state as ``info``, and in that of
    :func:`~palaestrai_mosaik.make`. One tick is one step. Every episode begins with a reset that is seeded
    from :attr:`rng`. Until an agent sets an actuator, it is 0 or whatever of its space is nearest to it.

    Args:
        id: Gymnasium's id; ``module:Name-v0`` imports the module. ``module:name`` is the function or class
            ``name`` of the module, unless an environment is registered under the name: it is called with
            ``kwargs`` and returns a ``gymnasium.Env``.
        kwargs: keywords of the environment; ``None``: none.
    """

    #: whether frames are requested
    _frames = False

    def __init__(self, id: str, kwargs: Mapping[str, Any] | None = None):
        if not isinstance(id, str) or not id:
            raise ContractError(f"id must be a name such as CartPole-v1, not {id!r}")
        self.id = id
        self.kwargs = dict(kwargs or {})
        self._world: gymnasium.Env[Any, Any] | None = None

    def enable_frames(self) -> None:
        """Ask for the render mode ``rgb_array``. Raises :class:`RenderError` where the ``kwargs`` ask for another."""
        self.kwargs = with_render_mode(self.kwargs, self.uid)
        self._frames = True

    def setup(self) -> EnvironmentBaseline:
        """Make the environment.

        Raises :class:`ContractError` for unknown ids and strange spaces, :class:`NameResolutionError` for a function
        that does not exist, and :class:`RenderError` where frames are requested and cannot be rendered.
        """
        if self._frames:
            try_to_render(partial(_make, self.id), self.kwargs, f"environment {self.uid!r} ({self.id})")
        world = self._world = _make(self.id, self.kwargs)
        self._observed = list(parts_of("observation", world.observation_space))
        self._action = Action("action", world.action_space)
        return EnvironmentBaseline(
            sensors=sensors_of(self._observed),
            actuators=actuators_of(self._action.parts),
            rewards=[reward("reward")],
        )

    def reset(self) -> EnvironmentState:
        assert self._world is not None
        observation, info = self._world.reset(seed=int(self.rng.integers(2**31)))
        return EnvironmentState(self._readings(observation), (0.0,), world_state=_world_state(info))

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        assert self._world is not None
        action = self._action.compose(setpoints, self.uid)
        observation, gain, terminated, truncated, info = self._world.step(action)
        return EnvironmentState(
            self._readings(observation),
            (float(gain),),
            terminated=bool(terminated),
            # both at once are possible; a world that has ended is not cut off
            truncated=bool(truncated and not terminated),
            world_state=_world_state(info),
        )

    @classmethod
    def together(cls, copies: Sequence[GymnasiumEnvironment]) -> Together | None:
        own = (cls.step, cls._readings) == (GymnasiumEnvironment.step, GymnasiumEnvironment._readings)
        return _Together(copies) if own else None

    @property
    def metadata(self) -> Mapping[str, Any]:
        """What the environment says of itself: how it can be shown, above all. It must have been set up."""
        assert self._world is not None
        metadata: Mapping[str, Any] = self._world.metadata
        return metadata

    def render(self) -> Any:
        """Show the state, in the way that ``render_mode`` among the ``kwargs`` says."""
        assert self._world is not None
        return self._world.render()

    def shutdown(self) -> None:
        if self._world is not None:
            self._world.close()
            self._world = None

    def _readings(self, observation: Any) -> FloatVector:
        parts = [part.read(observation) for part in self._observed]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])


class _Together(Together):
    """Steps copies one after the other; their actions and readings are rows of arrays."""

    def __init__(self, copies: Sequence[GymnasiumEnvironment]):
        self._copies = copies
        self._steps = [copy._world.step for copy in copies if copy._world is not None]
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
            rewards.append(float(gain))
            terminations.append(bool(terminated))
            # both at once are possible; a world that has ended is not cut off
            truncations.append(bool(truncated and not terminated))
        gained = np.array(rewards).reshape(-1, 1)
        return self._readings(places, observations), gained, terminations, truncations

    def _one_by_one(self, places: Sequence[int], setpoints: FloatMatrix) -> Iterator[Any]:
        for k, mine in zip(places, setpoints, strict=True):
            self.at = k
            yield self._action.compose(mine, self._copies[k].uid)

    def _readings(self, places: Sequence[int], observations: Sequence[Any]) -> Rows:
        parts = [part.read_all(observations) for part in self._observed]
        found = [part for part in parts if part is not None]
        if len(found) < len(parts):
            return list(self._each(places, observations))
        return found[0] if len(found) == 1 else np.concatenate([np.empty((len(places), 0)), *found], axis=1)

    def _each(self, places: Sequence[int], observations: Sequence[Any]) -> Iterator[FloatVector]:
        for k, observation in zip(places, observations, strict=True):
            self.at = k
            yield self._copies[k]._readings(observation)


def _world_state(info: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what is stored of an info, ``None`` where it says nothing."""
    plain = plain_info(info) if info else None
    return {"info": plain} if plain else None


def _make(id: str, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    module, _, name = id.partition(":")
    if name.isidentifier():
        # also where it is an id: what the module registers is known when it has been imported
        import_module(module, ours=False)
        if not _is_registered(name):
            return _call(id, kwargs)
    if limit() is not None:
        _check_allowed(id)
    try:
        world = gymnasium.make(id, **kwargs)
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
        misfits = _misfit(id, kwargs) if isinstance(error, TypeError) else None
        if misfits is not None:
            raise ContractError(f"environment {id!r} does not take these kwargs: {misfits}") from error
        raise ContractError(f"environment {id!r} cannot be made: {raised_at(error)}") from error
    # Gymnasium has imported by itself what the id leads to
    note_module(id.rpartition(":")[0] or "gymnasium", known="gymnasium")
    layer: Any = world
    while layer is not None:
        note_module(type(layer).__module__, known="gymnasium")
        layer = layer.env if isinstance(layer, gymnasium.Wrapper) else None
    return world


def _is_registered(name: str) -> bool:
    """Whether Gymnasium knows an environment ``name``, with a version or without one."""
    return any(name in (known, spec.name) for known, spec in gymnasium.registry.items())


def _call(id: str, kwargs: Mapping[str, Any]) -> gymnasium.Env[Any, Any]:
    """Return the environment that the function or class ``id`` (``module:name``) makes."""
    # it is called with keywords of the document, so that those of this package are no exception
    maker = load(id, ours=False, kind="function or class")
    if not callable(maker):
        raise ContractError(
            f"{id!r} is a {type(maker).__name__}, and no function or class that makes an environment"
        )
    try:
        world = maker(**kwargs)
    except Exception as error:
        misfits = misfit(maker, kwargs) if isinstance(error, TypeError) else None
        if misfits is not None:
            raise ContractError(f"environment {id!r} does not take these kwargs: {misfits}") from error
        raise ContractError(f"environment {id!r} cannot be made: {raised_at(error)}") from error
    if not isinstance(world, gymnasium.Env):
        raise ContractError(f"{id!r} returns a {type(world).__name__}, which is no gymnasium.Env")
    return world


def _misfit(id: str, kwargs: Mapping[str, Any]) -> str | None:
    """Return why what makes the environment does not take ``kwargs``, if that is so."""
    spec = gymnasium.spec(id)
    origin = spec.entry_point
    maker: Any = gymnasium.envs.registration.load_env_creator(origin) if isinstance(origin, str) else origin
    own = {key: value for key, value in kwargs.items() if key not in _OF_MAKE}
    return None if maker is None else misfit(maker, {**spec.kwargs, **own})


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

"""Spaces, rewards and frames of Gymnasium and PettingZoo."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ActionError, ContractError, NameResolutionError, RenderError
from palaestrai_mosaik.core.importing import needed, raised_at
from palaestrai_mosaik.core.importing import refusal as not_allowed
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.core.printing import count
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
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

from .batch import slices_of
from .faults import Fault, refusal, reward_faults, shown

try:
    from gymnasium import spaces
except ImportError as error:
    raise ImportError(f"this environment needs {needed(error)}: {install_extra('rl')}") from error


@dataclass(frozen=True)
class Part:
    """One sensor or actuator: a part of an observation or action.

    ``way``: keys and indices that lead to it through ``Dict`` and ``Tuple`` spaces. A reading
    is the value minus ``start``, which differs from 0 only for some ``MultiDiscrete`` spaces.
    """

    uid: str
    way: tuple[str | int, ...]
    original: spaces.Space[Any]
    ours: Space
    start: npt.NDArray[Any] | int = 0

    @cached_property
    def shifted(self) -> bool:
        """Whether ``start`` is not 0."""
        return bool(np.any(self.start))

    def read(self, value: Any) -> FloatVector:
        """Read this part of ``value`` as a flat vector."""
        for key in self.way:
            value = value[key]
        vector = np.array(value, dtype=np.float64).reshape(-1)
        return vector - np.reshape(self.start, -1) if self.shifted else vector

    def write(self, vector: FloatVector) -> Any:
        """Convert a flat vector to this part's value."""
        if isinstance(self.original, spaces.Discrete):
            return self.original.dtype.type(vector[0])
        value = vector.astype(self.original.dtype).reshape(self.ours.shape)
        return value + self.start if self.shifted else value

    def read_all(self, values: Sequence[Any]) -> FloatMatrix | None:
        """Read this part of several values as rows, or return ``None`` if :meth:`read` must do so one by one."""
        try:
            for key in self.way:
                values = [value[key] for value in values]
            rows = np.array(values, dtype=np.float64)
        except (ValueError, TypeError, LookupError):
            return None
        # an entry of another shape with as many numbers is the same vector
        rows = rows.reshape(len(values), -1)
        return rows - np.reshape(self.start, -1) if self.shifted else rows

    def write_all(self, vectors: FloatMatrix) -> Any:
        """Convert several flat vectors to an array of this part's values; its shape must not be ()."""
        if isinstance(self.original, spaces.Discrete):
            return vectors[:, 0].astype(self.original.dtype)
        assert self.ours.shape is not None
        values = vectors.astype(self.original.dtype).reshape(len(vectors), *self.ours.shape)
        return values + self.start if self.shifted else values


class Action:
    """Composes an action of ``space`` from the set-points of its actuators.

    ``parts``: the actuators ``<uid>...`` in order; ``size``: the length of their set-points.
    """

    def __init__(self, uid: str, space: spaces.Space[Any]):
        self.space = space
        self.parts = list(parts_of(uid, space))
        sizes = [part.ours.size for part in self.parts]
        self.slices, self.size = slices_of([(size,) for size in sizes]), sum(sizes)
        #: the only part, if it is the whole action and actions can be rows of an array
        self._only: Part | None = None
        for part in self.parts:
            if part.original is space and (isinstance(space, spaces.Discrete) or part.ours.shape):
                self._only = part

    def compose_all(self, setpoints: FloatMatrix) -> Any:
        """Compose the actions of several rows of ``setpoints`` at once.

        Returns ``None`` if each must be composed separately, because a set-point is missing (NaN) or the
        actions cannot be rows of an array.
        """
        if self._only is None or np.count_nonzero(np.isnan(setpoints)):
            return None
        return self._only.write_all(setpoints)

    def compose(self, setpoints: FloatVector, owner: str) -> Any:
        """Compose the action of environment ``owner`` from ``setpoints`` (size,).

        Raises :class:`ActionError` naming the first actuator without a set-point (NaN).
        """
        only = self._only
        if only is not None and not np.count_nonzero(np.isnan(setpoints)):
            return only.write(setpoints)
        action: Any = None
        for part, numbers in zip(self.parts, self.slices, strict=True):
            if np.isnan(setpoints[numbers]).any():
                raise ActionError(f"environment {owner!r}: actuator {part.uid!r} has no set-point")
            action = _put(action, part.way, part.write(setpoints[numbers]))
        return _with_tuples(action, self.space)


def sensors_of(parts: Sequence[Part]) -> list[SensorInformation]:
    """Return a sensor for each part, with the value nearest to 0 as its first reading."""
    return [SensorInformation(nearest_to_zero(part.ours), part.ours, part.uid) for part in parts]


def actuators_of(parts: Sequence[Part]) -> list[ActuatorInformation]:
    """Return an actuator for each part, with the value nearest to 0 until an agent sets it."""
    return [ActuatorInformation(nearest_to_zero(part.ours), part.ours, part.uid) for part in parts]


def rewards_of(uid: str, space: Any = None) -> list[RewardInformation]:
    """Return the rewards of a ``reward_space``: ``uid``, or ``uid.0``, ``uid.1`` and so on for a vector.

    Without a space, there is one unbounded reward.
    """
    if not isinstance(space, spaces.Box) or space.shape in ((), (1,)):
        return [RewardInformation(0.0, Box(-np.inf, np.inf, shape=()), uid)]
    bounds = zip(space.low.reshape(-1).tolist(), space.high.reshape(-1).tolist(), strict=True)
    return [
        RewardInformation(float(np.clip(0.0, *pair)), Box(*pair, shape=()), f"{uid}.{i}")
        for i, pair in enumerate(bounds)
    ]


def gained(rewards: Any, declared: Sequence[RewardInformation], who: Callable[[], str]) -> tuple[float, ...]:
    """Return the rewards of a step as one number for each ``declared`` reward.

    Raises :class:`ContractError` for other numbers of rewards; ``who`` returns the words for their source.
    """
    if len(declared) == 1 and isinstance(rewards, int | float | np.number):
        return (float(rewards),)
    try:
        values = np.asarray(rewards, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise refusal(who(), reward_faults(rewards, declared)) from None
    if len(values) == len(declared):
        return tuple(values.tolist())
    uid = declared[0].uid.removesuffix(".0")
    if len(values) > 1:
        remedy = (
            f"write `reward_space = gymnasium.spaces.Box(-numpy.inf, numpy.inf, ({len(values)},))` in the environment, "
            f"which gives the rewards '{uid}.0' to '{uid}.{len(values) - 1}', or return one number"
        )
    else:
        remedy = (
            f"a wrapper that makes one reward of several has the attribute `reward_space = gymnasium.spaces.Box("
            f"-numpy.inf, numpy.inf, ())`, which gives the reward {uid!r}"
        )
    rule = f"{count(len(declared), 'reward')} declared, others given"
    raise refusal(who(), [Fault(rule, f"found {shown(rewards)}; {remedy}")])


def parts_of(uid: str, space: spaces.Space[Any], way: tuple[str | int, ...] = ()) -> Iterator[Part]:
    """Yield the parts of ``space``, one for each entry of ``Dict`` and ``Tuple`` spaces.

    Raises :class:`ContractError` for a space that has no vector form.
    """
    entries = _entries(space)
    if entries is None:
        yield _part(uid, space, way)
        return
    for key, entry in entries.items():
        yield from parts_of(f"{uid}.{key}", entry, (*way, key))


def _entries(space: spaces.Space[Any]) -> dict[Any, spaces.Space[Any]] | None:
    """Return the entries of a ``Dict`` or ``Tuple`` by key or index, ``None`` for any other space."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    return dict(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else None


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


def nearest_to_zero(space: Space) -> Any:
    """Return the value of ``space`` nearest to 0 in every number."""
    return space.unflatten(np.clip(0.0, space.flat_low, space.flat_high))


def failed_make(
    error: Exception, what: str, misfit: Callable[[], str | None], detail: str = ""
) -> ContractError:
    """Build the error for ``what``, which could not be made.

    ``misfit`` returns why its kwargs are not accepted, if so.
    """
    fault = misfit() if isinstance(error, TypeError) else None
    if fault is not None:
        return ContractError(f"{what} does not take these kwargs: {fault}")
    return ContractError(f"{what} cannot be made{detail}: {raised_at(error)}")


def check_maker(id: str, entry_point: Any, library: str) -> None:
    """Raise :class:`NameResolutionError` if the maker registered for ``id`` is in a module that is not allowed."""
    named = isinstance(entry_point, str)
    home = entry_point.partition(":")[0] if named else str(getattr(entry_point, "__module__", ""))
    fault = None if home.partition(".")[0] == library else not_allowed(home)
    if fault is not None:
        raise NameResolutionError(f"{id!r} is made by {entry_point}: {fault}")


def plain_info(info: Mapping[str, Any], without: str | None = None) -> dict[str, Any]:
    """Return the storable entries of an info: text, numbers, arrays and lists of them, and mappings of these.

    The entry ``without`` is left out.
    """
    entries: dict[str, Any] = {}
    for key, value in info.items():
        if key == without:
            continue
        if isinstance(value, Mapping):
            inner = plain_info(value)
            if inner:
                entries[str(key)] = inner
        elif isinstance(value, (bool, int, float, str, np.ndarray, np.number, np.bool_, list, tuple)):
            try:
                array = np.asarray(value)
            except ValueError:  # a list of lists of different lengths
                continue
            if array.dtype.kind in "biufU":
                entries[str(key)] = array.tolist()
    return entries


def _put(action: Any, way: tuple[str | int, ...], value: Any) -> Any:
    """Insert ``value`` at ``way`` in ``action``, where dicts stand for ``Dict`` and ``Tuple`` spaces."""
    if not way:
        return value
    action = {} if action is None else action
    action[way[0]] = _put(action.get(way[0]), way[1:], value)
    return action


def _with_tuples(action: Any, space: spaces.Space[Any]) -> Any:
    entries = _entries(space)
    if entries is None:
        return action
    # an empty Dict or Tuple has no actuator and so no value
    parts = {} if action is None else action
    values = {key: _with_tuples(parts.get(key), entry) for key, entry in entries.items()}
    return tuple(values.values()) if isinstance(space, spaces.Tuple) else values


#: the render mode in which ``render`` returns a uint8 array (height, width, 3)
RGB_ARRAY = "rgb_array"


def with_render_mode(kwargs: Mapping[str, Any], uid: str) -> dict[str, Any]:
    """Return ``kwargs`` of the environment ``uid`` with the render mode ``rgb_array``.

    Raises:
        RenderError: ``kwargs`` request another render mode.
    """
    mode = kwargs.get("render_mode", RGB_ARRAY)
    if mode != RGB_ARRAY:
        raise RenderError(
            f"environment {uid!r} cannot render frames with render_mode {mode!r}: leave render_mode out of its kwargs, "
            f"or make it {RGB_ARRAY!r}"
        )
    return {**kwargs, "render_mode": RGB_ARRAY}


def try_to_render(make: Callable[[Mapping[str, Any]], Any], kwargs: Mapping[str, Any], who: str) -> None:
    """Render one frame of a separate environment, so that the one in use does not change.

    Args:
        make: makes the environment with keywords.
        kwargs: keywords with the render mode ``rgb_array``.
        who: names the environment in messages.

    Raises:
        RenderError: the environment cannot render frames.
        ContractError: the environment cannot be made, even without a render mode.
    """
    what = f"{who} cannot render frames"
    try:
        environment = make(kwargs)
    except ContractError as error:
        # without the render mode, this raises any error that has nothing to do with frames
        make({key: value for key, value in kwargs.items() if key != "render_mode"}).close()
        raise RenderError(f"{what}: with render_mode {RGB_ARRAY!r}, {error}") from error
    try:
        modes = list((environment.metadata or {}).get("render_modes") or ())
        if RGB_ARRAY not in modes:
            raise RenderError(
                f"{what}: it does not have the render mode {RGB_ARRAY!r}, only: {', '.join(map(str, modes)) or 'none'}. "
                "Remove 'frames' from its entry, or choose another environment"
            )
        environment.reset(seed=0)
        frame = environment.render()
    except RenderError:
        raise
    except Exception as error:
        raise RenderError(f"{what}: {raised_at(error)}") from error
    finally:
        environment.close()
    if not isinstance(frame, np.ndarray):
        raise RenderError(f"{what}: its render() returned {type(frame).__name__}, and no array")

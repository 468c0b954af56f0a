"""The contract of a batched environment: many incarnations that step together as arrays.

Source: AgentNet's ``BaseEnvironment`` (the seed "Environment"), in numpy: an environment is
described by the shapes of its states, observations and actions, and by one function from
``(last_states, actions)`` to ``(new_states, observations)``, all with a leading ``batch_id``
axis. This module adds rewards, ends, and the reset of some of the incarnations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ActionError, ContractError, RenderError
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    RewardInformation,
    SensorInformation,
    Space,
)
from palaestrai_mosaik.types.arrays import Array, BoolVector, FloatMatrix, IndexVector

from .environment import EnvironmentBaseline, World

#: shape (without the batch's axis) and dtype of each declared array
Kinds = Sequence[tuple[tuple[int, ...], np.dtype[Any]]]


def slices_of(shapes: Sequence[tuple[int, ...]]) -> list[slice]:
    """Return the slice that each array occupies in a row of all arrays, flattened and joined.

    Args:
        shapes: the shapes of the arrays without the batch's axis.
    """
    ends = accumulate(map(prod, shapes), initial=0)
    return [slice(start, end) for start, end in pairwise(ends)]


def flat(arrays: Sequence[Array], count: int) -> FloatMatrix:
    """Join arrays as a float64 matrix, each row flattened.

    Args:
        arrays: arrays (count, \\*shape).
        count: the number of rows.

    Returns:
        A matrix (count, n). A single array that already is such a matrix is returned without a copy.
    """
    if not arrays:
        return np.empty((count, 0))
    if len(arrays) == 1 and arrays[0].ndim == 2 and arrays[0].dtype == np.float64:
        return arrays[0]
    return np.concatenate([array.reshape(count, -1) for array in arrays], axis=1, dtype=np.float64)


def checked_arrays(arrays: Any, kinds: Kinds, count: int, what: str) -> list[Array]:
    """Check the shapes and dtypes of arrays.

    Args:
        arrays: the arrays, (count, \\*shape) each.
        kinds: the expected shapes and dtypes.
        count: the number of incarnations.
        what: the name of an array in messages.

    Returns:
        The arrays as a list.

    Raises:
        ContractError: an array has another shape or dtype, or their number differs.
    """
    # list first: it is the quick check, an abstract Sequence takes a look into a registry
    if not isinstance(arrays, (list, Sequence)) or len(arrays) != len(kinds):
        actual = f"{len(arrays)}" if isinstance(arrays, Sequence) else type(arrays).__name__
        raise ContractError(f"{what}s must be a list of {len(kinds)} arrays, found {actual}")
    checked = []
    for i, (value, (shape, dtype)) in enumerate(zip(arrays, kinds, strict=True)):
        array = np.asarray(value)
        if array.shape != (count, *shape):
            raise ContractError(
                f"{what} {i} has shape {array.shape}, declared is {(count, *shape)}: a batch of {count}, each {shape}"
            )
        if array.dtype != dtype:
            raise ContractError(f"{what} {i} has dtype {array.dtype}, declared is {dtype}")
        checked.append(array)
    return checked


def checked_rewards(values: npt.ArrayLike, count: int, names: Sequence[str], who: str) -> FloatMatrix:
    """Check and copy rewards.

    Args:
        values: the rewards, (count, names); a single reward may have the shape (count,).
        count: the number of incarnations.
        names: the names of the rewards.
        who: the name of the environment in messages.

    Returns:
        A new float64 array (count, names).

    Raises:
        ContractError: the rewards have another shape, or are not numbers.
    """
    rewards = np.asarray(values)
    if rewards.shape == (count,) and len(names) == 1:
        rewards = rewards[:, None]
    if rewards.shape != (count, len(names)) or rewards.dtype.kind not in "fiub":
        raise ContractError(
            f"{who}: get_rewards returned {rewards.dtype} of shape {rewards.shape}, expected are numbers "
            f"of shape {(count, len(names))} for {', '.join(names)}"
        )
    return rewards.astype(np.float64)


def checked_ends(answer: Any, count: int, who: str) -> tuple[BoolVector, BoolVector]:
    """Check and copy the flags of ended episodes.

    Args:
        answer: the pair (terminated, truncated), both (count,) of booleans.
        count: the number of incarnations.
        who: the name of the environment in messages.

    Returns:
        New arrays (terminated, truncated), both (count,).

    Raises:
        ContractError: the flags have another shape, or are not booleans.
    """
    try:
        terminated, truncated = (np.array(end) for end in answer)
    except (TypeError, ValueError):
        raise ContractError(f"{who}: get_ends must return (terminated, truncated), not {answer!r}") from None
    for what, flags in (("terminated", terminated), ("truncated", truncated)):
        if flags.shape != (count,) or flags.dtype != np.bool_:
            raise ContractError(
                f"{who}: {what} is {flags.dtype} of shape {flags.shape}, expected are booleans of shape {(count,)}"
            )
    return terminated, truncated


def actions_of(
    setpoints: FloatMatrix, kinds: Kinds, parts: Sequence[slice], active: BoolVector, who: str
) -> list[Array]:
    """Cut set-points into actions.

    Args:
        setpoints: (count, n), all set-points of each incarnation.
        kinds: the shapes and dtypes of the actions.
        parts: the slice of each action in a row (:func:`slices_of`).
        active: (count,), whether an incarnation acts.
        who: the name of the environment in messages.

    Returns:
        New arrays (count, \\*shape), one for each action.

    Raises:
        ActionError: an active incarnation has no set-point (NaN) for an action of an integer or boolean dtype.
    """
    actions = []
    for i, (part, (shape, dtype)) in enumerate(zip(parts, kinds, strict=True)):
        values = setpoints[:, part]
        if dtype.kind != "f":
            missing: BoolVector = np.asarray(np.isnan(values).any(axis=1))
            if missing.any() and not active.all():
                values = np.where(missing[:, None] & ~active[:, None], 0.0, values)
                missing &= active
            if missing.any():
                raise ActionError(f"{who}: action {i} of incarnation {missing.argmax()} has no set-point")
        actions.append(values.reshape(len(setpoints), *shape).astype(dtype))
    return actions


Arrays = Sequence[Array]
Shapes = Sequence[tuple[int, ...]]

#: the dtypes of arrays that an environment does not declare
_DTYPES: dict[str, npt.DTypeLike] = {"state": np.float64, "observation": np.float64, "action": np.int32}


def _declare(
    environment: BatchEnvironment, kind: str, shapes: Shapes | None, dtypes: Sequence[npt.DTypeLike] | None
) -> None:
    """Set the instance's shapes and dtypes, which take precedence over those of the class."""
    if shapes is not None:
        setattr(environment, f"{kind}_shapes", _checked_shapes(f"{kind}_shapes", shapes))
    if dtypes is not None:
        if isinstance(dtypes, str) or not isinstance(dtypes, Sequence):
            raise ContractError(f"{kind}_dtypes must be a list of dtypes, one for each shape, not {dtypes!r}")
        setattr(environment, f"{kind}_dtypes", tuple(dtypes))


def _checked_shapes(name: str, declared: Any) -> Shapes:
    """Return the shapes as tuples. Raises :class:`ContractError` for anything else, such as one bare shape."""
    shapes: Sequence[Any] = (
        declared if isinstance(declared, Sequence) and not isinstance(declared, str) else [None]
    )
    if not all(
        isinstance(shape, Sequence) and all(type(size) is int and size > 0 for size in shape)
        for shape in shapes
    ):
        raise ContractError(f"{name} must be a list of shapes, such as [(2,), ()], not {declared!r}")
    return tuple(tuple(shape) for shape in shapes)


@dataclass(slots=True)
class BatchState:
    """One state of all ``B`` incarnations. Its arrays are new and never written to again.

    Attributes:
        readings: (B, n): all observations of an incarnation, flattened, in the declared order.
        rewards: (B, r).
        terminated: (B,).
        truncated: (B,).
        recorded: (B, m): the set-points recorded for these readings, in environments that replay.
    """

    readings: FloatMatrix
    rewards: FloatMatrix
    terminated: BoolVector
    truncated: BoolVector
    recorded: FloatMatrix | None = None


class BatchEnvironment(World):
    """``batch`` incarnations of one environment that step together as arrays.

    To define one, declare its shapes and, if the defaults do not fit, its dtypes, names and spaces, in
    the class or as arguments of ``super().__init__``. Then implement :meth:`get_action_results` and
    :meth:`get_first_states`; rewards and ends have defaults. A subclass with other parameters passes
    ``batch``, ``first`` and ``max_steps`` on to ``super().__init__``. Shapes are those of one
    incarnation, without the leading ``batch_id`` axis. The default dtypes are float64 for states and
    observations and int32 for actions. Every method below depends only on its arguments and
    :attr:`rngs`: the framework holds the states.

    In the document, incarnation ``k`` has the sensors ``<uid>.<k>.<observation name>`` and the
    actuators ``<uid>.<k>.<action name>``, each one channel of the observation's (action's)
    shape. Every incarnation ends and restarts independently: see ``docs/timing.md``.
    """

    state_shapes: Shapes = ((),)
    observation_shapes: Shapes = ((),)
    action_shapes: Shapes = ((),)
    #: ``None``: float64 for all
    state_dtypes: Sequence[npt.DTypeLike] | None = None
    #: ``None``: float64 for all
    observation_dtypes: Sequence[npt.DTypeLike] | None = None
    #: ``None``: int32 for all
    action_dtypes: Sequence[npt.DTypeLike] | None = None
    #: ``None``: ``observation``, ``observation_1``, ...
    observation_names: Sequence[str] | None = None
    #: the names of the observations that may be missing (NaN), an error in all others
    missing_observations: Sequence[str] = ()
    #: ``None``: ``action``, ``action_1``, ...
    action_names: Sequence[str] | None = None
    reward_names: Sequence[str] = ("reward",)
    #: every list of observations holds one float64 array (batch, numbers) that joins all declared
    #: observations, whatever their dtypes. Faster with many small observations.
    flat_observations: ClassVar[bool] = False
    #: the same for every list of actions, both arguments and results
    flat_actions: ClassVar[bool] = False
    #: the environment replays: its states come with the recorded set-points
    #: (:meth:`get_recorded_actions`), and an agent's choice has no effect
    replays: ClassVar[bool] = False
    missing_remedy = "name its observation in missing_observations"
    #: one generator for each incarnation, new for every episode of the phase
    rngs: Sequence[np.random.Generator]
    #: mask (batch,) of the incarnations that have not ended; only their results are used
    active: BoolVector
    #: holds the states
    _stepper: BatchStepper

    def __init__(  # noqa: PLR0913 (AgentNet's arguments, and ours)
        self,
        state_shapes: Shapes | None = None,
        observation_shapes: Shapes | None = None,
        action_shapes: Shapes | None = None,
        state_dtypes: Sequence[npt.DTypeLike] | None = None,
        observation_dtypes: Sequence[npt.DTypeLike] | None = None,
        action_dtypes: Sequence[npt.DTypeLike] | None = None,
        *,
        batch: int = 1,
        first: int = 0,
        max_steps: int | None = None,
    ):
        """Create the incarnations.

        Args:
            state_shapes: the shape of each state of one incarnation; ``None``: the class attribute.
            observation_shapes: the shape of each observation; ``None``: the class attribute.
            action_shapes: the shape of each action; ``None``: the class attribute.
            state_dtypes: one for each shape; ``None``: the class attribute (float64).
            observation_dtypes: one for each shape; ``None``: the class attribute (float64).
            action_dtypes: one for each shape; ``None``: the class attribute (int32).
            batch: number of incarnations, at least 1.
            first: the seed number of the first incarnation.
            max_steps: number of steps after which an incarnation is truncated; ``None``: no limit.

        Raises:
            ContractError: an argument has the wrong type or is too small.
        """
        for name, value, least in (("batch", batch, 1), ("first", first, 0), ("max_steps", max_steps, 1)):
            if value is not None or name != "max_steps":
                check_whole(name, value, least)
        _declare(self, "state", state_shapes, state_dtypes)
        _declare(self, "observation", observation_shapes, observation_dtypes)
        _declare(self, "action", action_shapes, action_dtypes)
        self.batch = batch
        self.first = first
        self.max_steps = max_steps
        # a class may set ends = False, which overrides the rest
        self.ends = self.ends and (
            max_steps is not None or type(self).get_ends is not BatchEnvironment.get_ends
        )

    def enable_frames(self) -> None:
        if type(self).get_frame is BatchEnvironment.get_frame:
            raise RenderError(
                f"environment {self.uid!r} cannot render frames: its class {type(self).__name__} is batched and has no "
                "method 'get_frame'. Give it one that returns a uint8 array (height, width, 3) for the state of one "
                "incarnation, or remove 'frames' from its entry"
            )

    def render(self) -> Any:
        """Render the first incarnation.

        Returns:
            The result of :meth:`get_frame`.
        """
        return self.get_frame([array[0] for array in self._stepper.states])

    def get_frame(self, state: Arrays) -> Any:
        """Render one incarnation.

        Needed only if a document requests frames: those of the first incarnation are stored.

        Args:
            state: one array for each declared shape of a state.

        Returns:
            A uint8 array (height, width, 3), or ``None`` if this state has no picture.
        """
        return None

    @abstractmethod
    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        """Compute the new states and the observations of a step.

        Called with all incarnations at once; :attr:`active` marks those that count.

        Args:
            last_states: one array ``(batch, *shape)`` for each declared shape of a state.
            actions: one array ``(batch, *shape)`` for each declared shape of an action.

        Returns:
            The new states and the observations, each a list of arrays ``(batch, *shape)``, one for each
            declared shape. They are kept, so they must not be written to again.
        """

    @abstractmethod
    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        """Return the first states and observations of some incarnations.

        A first state is never the last one of an episode, and has no rewards.

        Args:
            incarnations: (n,), indices in the batch: ``self.rngs[k]`` is the generator of ``k``.

        Returns:
            The states and the observations, each a list of arrays ``(n, *shape)``.
        """

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> npt.ArrayLike:
        """Return the rewards of a step.

        Args:
            last_states: the states before the step, ``(batch, *shape)`` each.
            actions: the actions, ``(batch, *shape)`` each.
            new_states: the states after the step, ``(batch, *shape)`` each.

        Returns:
            Numbers (batch, rewards), or (batch,) if there is only one reward. By default, all are 0.
        """
        return np.zeros((self.batch, len(self.reward_names)))

    def get_ends(self, new_states: Arrays) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return whether episodes have ended. The framework applies :attr:`max_steps` itself.

        Args:
            new_states: the states after the step, ``(batch, *shape)`` each.

        Returns:
            ``(terminated, truncated)``, both (batch,) of booleans. By default, no episode ends.
        """
        never = np.zeros(self.batch, dtype=bool)
        return never, never

    def get_recorded_actions(self, states: Arrays) -> Arrays:
        """Return the actions recorded in ``states``. Only called for environments that replay.

        Args:
            states: the states, ``(batch, *shape)`` each.

        Returns:
            An array ``(batch, *shape)`` for each declared shape of an action.
        """
        raise NotImplementedError(f"{type(self).__name__} replays, but has no get_recorded_actions")

    def get_observation_spaces(self) -> Sequence[Space]:
        """Return the spaces of the observations.

        Returns:
            A space of the declared shape for each observation; unbounded by default.
        """
        return self._unbounded_spaces("observation")

    def get_action_spaces(self) -> Sequence[Space]:
        """Return the spaces of the actions.

        Returns:
            A space of the declared shape for each action; by default the full range of its dtype.
        """
        return self._unbounded_spaces("action")

    def get_idle_actions(self) -> Arrays:
        """Return the actions of one incarnation that hold until an agent acts.

        Returns:
            An array for each declared shape of an action, by default of zeros or the bounds nearest to 0. NaN means
            that no action holds.
        """
        nearest = [np.clip(0.0, space.flat_low, space.flat_high) for space in self.get_action_spaces()]
        if self.flat_actions:
            return [np.concatenate([np.empty(0), *nearest])]
        return [
            value.reshape(shape).astype(dtype)
            for value, shape, dtype in zip(nearest, self.action_shapes, self._dtypes("action"), strict=True)
        ]

    def setup(self) -> EnvironmentBaseline:
        """Declare the sensors, actuators and rewards.

        Returns:
            The baseline of one incarnation; its uids lack the incarnation's number.

        Raises:
            ContractError: names, dtypes or spaces do not fit the declared shapes.
        """
        observations, actions = self.get_observation_spaces(), self.get_action_spaces()
        self._check_spaces("observation", observations)
        self._check_spaces("action", actions)
        sensors = [
            SensorInformation(
                *(space.unflatten(np.clip(0.0, space.flat_low, space.flat_high)), space, name),
                may_be_missing=name in self.missing_observations,
            )
            for name, space in zip(self._names("observation"), observations, strict=True)
        ]
        idle = flat([np.asarray(value) for value in self.get_idle_actions()], 1)[0]
        parts = [idle[part] for part in slices_of(self.action_shapes)]
        actuators = [
            ActuatorInformation(None if np.isnan(value).any() else space.unflatten(value), space, name)
            for name, space, value in zip(self._names("action"), actions, parts, strict=True)
        ]
        anything = Box(-np.inf, np.inf, shape=())
        rewards = [RewardInformation(0.0, anything, name) for name in self.reward_names]
        return EnvironmentBaseline(sensors, actuators, rewards)

    def _check_spaces(self, kind: str, spaces: Sequence[Space]) -> None:
        shapes = getattr(self, f"{kind}_shapes")
        sizes = [space.size for space in spaces]
        if sizes != [prod(shape) for shape in shapes]:
            raise ContractError(
                f"{type(self).__name__}.get_{kind}_spaces: spaces of {sizes} numbers do not go "
                f"with {kind}_shapes {list(shapes)}"
            )

    def _unbounded_spaces(self, kind: str) -> list[Space]:
        shapes = getattr(self, f"{kind}_shapes")
        return [_unbounded(shape, dtype) for shape, dtype in zip(shapes, self._dtypes(kind), strict=True)]

    def _names(self, kind: str) -> list[str]:
        return self._declared(kind, "names", lambda i: f"{kind}_{i}" if i else kind)

    def _dtypes(self, kind: str) -> list[np.dtype[Any]]:
        return [np.dtype(dtype) for dtype in self._declared(kind, "dtypes", lambda i: _DTYPES[kind])]

    def _declared(self, kind: str, what: str, default: Callable[[int], Any]) -> list[Any]:
        """Return the declared names or dtypes of a kind of arrays, one for each shape."""
        count, declared = len(getattr(self, f"{kind}_shapes")), getattr(self, f"{kind}_{what}")
        if declared is None:
            return list(map(default, range(count)))
        if len(declared) != count:
            raise ContractError(
                f"{type(self).__name__} declares {count} {kind}_shapes, but {len(declared)} {kind}_{what}"
            )
        return list(declared)

    def _kinds(self, kind: str) -> Kinds:
        """Return the shape and dtype of each array of a kind, or of the one that joins them."""
        shapes = getattr(self, f"{kind}_shapes")
        if getattr(self, f"flat_{kind}s", False):
            return [((sum(map(prod, shapes)),), np.dtype(np.float64))]
        return list(zip(map(tuple, shapes), self._dtypes(kind), strict=True))


class BatchStepper:
    """Steps a batched environment from state to state, as its mosaik simulator does.

    It holds the states, checks every shape and dtype, counts the steps of every incarnation, and
    restarts those that have ended. It also drives an environment without a world::

        stepper = BatchStepper(environment)  # after setup, with rngs
        state = stepper.reset()
        state = stepper.step(setpoints, resets=True)

    Args:
        environment: the environment, after :meth:`BatchEnvironment.setup`.
    """

    def __init__(self, environment: BatchEnvironment):
        self.environment = environment
        environment._stepper = self
        environment.active = np.ones(environment.batch, dtype=bool)
        self._who = f"{type(environment).__name__} (environment {environment.uid!r})"
        self._state_kinds = environment._kinds("state")
        self._observation_kinds = environment._kinds("observation")
        self._action_kinds = environment._kinds("action")
        self._parts = slices_of([shape for shape, _ in self._action_kinds])
        self._all = np.arange(environment.batch)

    @property
    def states(self) -> Arrays:
        """The states of all incarnations, in the declared order. Read-only."""
        return self._states

    def reset(self) -> BatchState:
        """Start an episode in all incarnations.

        Returns:
            Their first state.
        """
        environment, count = self.environment, self.environment.batch
        environment.active = np.ones(count, dtype=bool)
        self._ended = np.zeros(count, dtype=bool)
        self._ticks = np.zeros(count, dtype=np.int64)
        states, observations = self._first(self._all)
        self._states = _held(states)
        self._last = BatchState(
            flat(observations, count),
            np.zeros((count, len(environment.reward_names))),
            np.zeros(count, dtype=bool),
            np.zeros(count, dtype=bool),
            self._recorded(),
        )
        return self._last

    def step(self, setpoints: FloatMatrix, *, resets: bool = False) -> BatchState:
        """Step all incarnations that have not ended.

        Args:
            setpoints: (batch, n_setpoints).
            resets: whether incarnations that have ended start another episode, with its first state in the
                result. Otherwise they stay in their last state, with a reward of 0.

        Returns:
            The new state.

        Raises:
            ActionError: a set-point is missing.
            ContractError: the environment returns arrays that it has not declared.
        """
        environment, count, ended = self.environment, self.environment.batch, self._ended
        some = np.count_nonzero(ended) > 0
        environment.active = ~ended
        actions = actions_of(setpoints, self._action_kinds, self._parts, environment.active, self._who)
        new, observations = self._pair(
            environment.get_action_results(self._states, actions), "get_action_results", count
        )
        values = environment.get_rewards(self._states, actions, new)
        rewards = checked_rewards(values, count, environment.reward_names, self._who)
        terminated, truncated = checked_ends(environment.get_ends(new), count, self._who)
        readings = flat(observations, count)
        if some:
            # the rows of ended incarnations are overwritten below, and these may be the environment's own arrays
            new, readings = [array.copy() for array in new], readings.copy()
        self._ticks += 1
        if environment.max_steps is not None:
            truncated |= self._ticks >= environment.max_steps
        if some:
            rewards[ended] = 0.0
            terminated[ended] = truncated[ended] = False
            if resets:
                indices = np.flatnonzero(ended)
                first, observations = self._first(indices)
                for array, first_array in zip(new, first, strict=True):
                    array[indices] = first_array
                readings[indices] = flat(observations, len(indices))
                self._ticks[indices] = 0
            else:
                for array, last in zip(new, self._states, strict=True):
                    array[ended] = last[ended]
                readings[ended] = self._last.readings[ended]
                terminated[ended] = self._last.terminated[ended]
                truncated[ended] = self._last.truncated[ended]
        self._states = _held(new)
        self._ended = terminated | truncated
        self._last = BatchState(readings, rewards, terminated, truncated, self._recorded())
        return self._last

    def end(self, incarnations: IndexVector) -> None:
        """Cut running episodes short; the next step with ``resets`` starts new ones.

        Args:
            incarnations: (n,), indices in the batch.
        """
        self._ended = self._ended.copy()
        self._ended[incarnations] = True

    def _first(self, indices: IndexVector) -> tuple[list[Array], list[Array]]:
        return self._pair(self.environment.get_first_states(indices), "get_first_states", len(indices))

    def _recorded(self) -> FloatMatrix | None:
        environment = self.environment
        if not environment.replays:
            return None
        actions = environment.get_recorded_actions(self._states)
        what, count = f"{self._who}: get_recorded_actions: action", environment.batch
        return flat(checked_arrays(actions, self._action_kinds, count, what), count)

    def _pair(self, answer: Any, what: str, count: int) -> tuple[list[Array], list[Array]]:
        what = f"{self._who}: {what}"
        try:
            states, observations = answer
        except (TypeError, ValueError):
            raise ContractError(f"{what} must return (states, observations), not {answer!r}") from None
        return (
            checked_arrays(states, self._state_kinds, count, f"{what}: state"),
            checked_arrays(observations, self._observation_kinds, count, f"{what}: observation"),
        )


def _held(states: Sequence[Array]) -> list[Array]:
    """Return read-only views of ``states``: an environment that wrote to them would falsify the step."""
    views = [state.view() for state in states]
    for view in views:
        view.flags.writeable = False
    return views


def _unbounded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Space:
    if dtype.kind == "b":
        return Box(0, 1, shape=shape, dtype=np.int8)
    return Box(-np.inf, np.inf, shape=shape, dtype=dtype)

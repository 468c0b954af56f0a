"""The contract of a batched environment: many incarnations that step together as arrays.

Source: AgentNet's ``BaseEnvironment`` (the seed "Environment"), in numpy: an environment is
described by the shapes of its states, observations and actions, and by one function from
``(last_states, actions)`` to ``(new_states, observations)``, all with a leading ``batch_id``
axis. Rewards, ends, and a reset of some incarnations are added to it here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ActionError, ContractError, RenderError
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


def kinds_of(shapes: Sequence[tuple[int, ...]], dtypes: Sequence[np.dtype[Any]], flat: bool = False) -> Kinds:
    """Return the declared kinds; ``flat``: of one float64 array with all of them side by side."""
    if flat:
        return [((sum(int(np.prod(shape)) for shape in shapes),), np.dtype(np.float64))]
    return [(tuple(shape), dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def slices_of(shapes: Sequence[tuple[int, ...]]) -> list[slice]:
    """Return where each array lies in a row of all of them."""
    ends = np.cumsum([0, *(int(np.prod(shape)) for shape in shapes)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


def flat(arrays: Sequence[Array], count: int) -> FloatMatrix:
    """Return the arrays side by side, each row flattened: a (count, n) float64 matrix.

    One array that is such a matrix already is returned as it is.
    """
    if not arrays:
        return np.empty((count, 0))
    if len(arrays) == 1 and arrays[0].ndim == 2 and arrays[0].dtype == np.float64:
        return arrays[0]
    return np.concatenate([array.reshape(count, -1) for array in arrays], axis=1, dtype=np.float64)


def checked_arrays(given: Any, kinds: Kinds, count: int, what: str) -> list[Array]:
    """Return ``given``, one array (count, \\*shape) for each of ``kinds``.

    Raises :class:`ContractError` where they are not what was declared; ``what`` names them in errors.
    """
    # a list is found at once, and other sequences by what they are registered as
    if not isinstance(given, (list, Sequence)) or len(given) != len(kinds):
        found = f"{len(given)}" if isinstance(given, Sequence) else type(given).__name__
        raise ContractError(f"{what}s must be a list of {len(kinds)} arrays, found {found}")
    arrays = []
    for i, (value, (shape, dtype)) in enumerate(zip(given, kinds, strict=True)):
        array = np.asarray(value)
        if array.shape != (count, *shape):
            raise ContractError(
                f"{what} {i} has shape {array.shape}, declared is {(count, *shape)}: a batch of {count}, each {shape}"
            )
        if array.dtype != dtype:
            raise ContractError(f"{what} {i} has dtype {array.dtype}, declared is {dtype}")
        arrays.append(array)
    return arrays


def checked_rewards(given: npt.ArrayLike, count: int, names: Sequence[str], who: str) -> FloatMatrix:
    """Return new rewards (count, names); where there is one, (count,) will do.

    Raises :class:`ContractError` for another shape, and for what is no number.
    """
    rewards = np.asarray(given)
    if rewards.shape == (count,) and len(names) == 1:
        rewards = rewards[:, None]
    if rewards.shape != (count, len(names)) or rewards.dtype.kind not in "fiub":
        raise ContractError(
            f"{who}: get_rewards returned {rewards.dtype} of shape {rewards.shape}, expected are numbers "
            f"of shape {(count, len(names))} for {', '.join(names)}"
        )
    return rewards.astype(np.float64)


def checked_ends(answer: Any, count: int, who: str) -> tuple[BoolVector, BoolVector]:
    """Return new vectors (terminated, truncated), both (count,).

    Raises :class:`ContractError` for another shape, and for what is no boolean.
    """
    try:
        terminated, truncated = (np.array(one) for one in answer)
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
    """Return new actions (count, \\*shape) of set-points (count, n); ``parts``: :func:`slices_of`.

    ``active`` (count,): those whose action matters. Raises :class:`ActionError` where one of them
    wants a whole number and has no set-point (NaN).
    """
    actions = []
    for i, (part, (shape, dtype)) in enumerate(zip(parts, kinds, strict=True)):
        given = setpoints[:, part]
        if dtype.kind != "f":
            missing: BoolVector = np.asarray(np.isnan(given).any(axis=1))
            if missing.any() and not active.all():
                given = np.where(missing[:, None] & ~active[:, None], 0.0, given)
                missing &= active
            if missing.any():
                raise ActionError(f"{who}: action {i} of incarnation {missing.argmax()} has no set-point")
        actions.append(given.reshape(len(setpoints), *shape).astype(dtype))
    return actions


Arrays = Sequence[Array]
Shapes = Sequence[tuple[int, ...]]


@dataclass(slots=True)
class BatchState:
    """One state of all ``B`` incarnations. All arrays are new and not written to again.

    Attributes:
        readings: (B, n): all observations of an incarnation, flattened, in the order of the declared ones.
        rewards: (B, r).
        terminated: (B,).
        truncated: (B,).
        recorded: (B, m), only in environments that replay: the set-points that were in truth given on these
            readings.
    """

    readings: FloatMatrix
    rewards: FloatMatrix
    terminated: BoolVector
    truncated: BoolVector
    recorded: FloatMatrix | None = None


class BatchEnvironment(World):
    """``batch`` incarnations of one environment that step together as arrays.

    To define one, say its shapes (and, where the defaults do not hold, dtypes, names and
    spaces) and implement :meth:`get_action_results` and :meth:`get_first_states`; rewards and
    ends have defaults. A subclass with parameters of its own passes ``batch``, ``first`` and
    ``max_steps`` on to ``super().__init__``. Shapes are those of one incarnation, without the
    leading ``batch_id`` axis. The default dtypes are float64 for states and observations and
    int32 for actions. Every function below is one of its arguments and :attr:`rngs` alone: the
    framework holds the states.

    In the document, incarnation ``k`` has the sensors ``<uid>.<k>.<observation name>`` and the
    actuators ``<uid>.<k>.<action name>``, each one channel of the observation's (action's)
    shape. Every incarnation ends, and starts anew, on its own: see ``docs/timing.md``.
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
    #: ``None``: ``action``, ``action_1``, ...
    action_names: Sequence[str] | None = None
    reward_names: Sequence[str] = ("reward",)
    #: wherever a list of observations is returned, it holds one float64 array (batch, numbers): all
    #: declared ones side by side, whatever their dtypes. Faster where there are many small ones.
    flat_observations: ClassVar[bool] = False
    #: the same for actions, where they are given and where they are returned
    flat_actions: ClassVar[bool] = False
    #: the environment replays: its states bring the set-points that were in truth given
    #: (:meth:`get_recorded_actions`), and what an agent chooses has no effect
    replays: ClassVar[bool] = False
    #: one generator for each incarnation, new for every episode of the phase
    rngs: Sequence[np.random.Generator]
    #: (batch,): the incarnations whose results will be used; the others have ended
    active: BoolVector
    #: who holds its states
    _stepper: BatchStepper

    def __init__(self, batch: int = 1, first: int = 0, max_steps: int | None = None):
        """Make the incarnations.

        Args:
            batch: number of incarnations, at least 1.
            first: the first of them draws the seeds of this number.
            max_steps: an incarnation that has made so many steps is truncated; ``None``: never.

        Raises:
            ContractError: one of them is something else.
        """
        for name, value, least in (("batch", batch, 1), ("first", first, 0), ("max_steps", max_steps, 1)):
            if value is None and name == "max_steps":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ContractError(f"{name} must be a whole number of at least {least}, not {value!r}")
        self.batch = batch
        self.first = first
        self.max_steps = max_steps
        # unless the class says that it never does
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
        """Return the picture of the first incarnation."""
        return self.get_frame([array[0] for array in self._stepper.states])

    def get_frame(self, state: Arrays) -> Any:
        """Return the picture of an incarnation in a state, a uint8 array (height, width, 3).

        Needed only where a document requests frames: those of the first incarnation are stored.

        Args:
            state: one array for each declared shape of a state.
        """
        return None

    @abstractmethod
    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        """Return the new states and the observations of a step.

        Called with all incarnations at once; :attr:`active` says which results will be used.

        Args:
            last_states: one array ``(batch, *shape)`` for each declared shape of a state.
            actions: likewise, for each declared shape of an action.

        Returns:
            The new states, and the observations, each as a list of arrays ``(batch, *shape)``, one for each
            declared shape. They are kept, so they must not be written to again.
        """

    @abstractmethod
    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        """Return ``(states, observations)`` with which ``incarnations`` (n,) begin: ``(n, *shape)``.

        A first state is never the last one, and has no rewards.

        ``incarnations`` are their places in the batch: ``self.rngs[k]`` is the generator of ``k``.
        """

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> npt.ArrayLike:
        """Return the rewards of a step: (batch, rewards), or (batch,) where there is one."""
        return np.zeros((self.batch, len(self.reward_names)))

    def get_ends(self, new_states: Arrays) -> tuple[npt.ArrayLike, npt.ArrayLike]:
        """Return ``(terminated, truncated)``, both (batch,) of booleans.

        :attr:`max_steps` is looked after by the framework.
        """
        never = np.zeros(self.batch, dtype=bool)
        return never, never

    def get_recorded_actions(self, states: Arrays) -> Arrays:
        """Return the actions that were in truth taken in ``states``: ``(batch, *shape)`` each.

        Only asked of environments that replay.
        """
        raise NotImplementedError(f"{type(self).__name__} replays, but has no get_recorded_actions")

    def get_observation_spaces(self) -> Sequence[Space]:
        """Return one space for each observation, of its shape; the default is unbounded."""
        return [_unbounded(s, t) for s, t in zip(self.observation_shapes, self._observations(), strict=True)]

    def get_action_spaces(self) -> Sequence[Space]:
        """Return one space for each action, of its shape; the default is all that its dtype holds."""
        return [_unbounded(s, t) for s, t in zip(self.action_shapes, self._actions(), strict=True)]

    def get_idle_actions(self) -> Arrays:
        """Return the actions (of one incarnation) that hold until an agent acts.

        The default is 0, or the bound that is nearest to it. NaN: none holds.
        """
        nearest = [np.clip(0.0, space.flat_low, space.flat_high) for space in self.get_action_spaces()]
        if self.flat_actions:
            return [np.concatenate([np.empty(0), *nearest])]
        return [
            value.reshape(shape).astype(dtype)
            for value, shape, dtype in zip(nearest, self.action_shapes, self._actions(), strict=True)
        ]

    def setup(self) -> EnvironmentBaseline:
        """Tell what one incarnation offers, with uids that lack its number."""
        observations, actions = self.get_observation_spaces(), self.get_action_spaces()
        self._fits("observation", self.observation_shapes, observations)
        self._fits("action", self.action_shapes, actions)
        sensors = [
            SensorInformation(space.unflatten(np.clip(0.0, space.flat_low, space.flat_high)), space, name)
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

    def _names(self, kind: str) -> list[str]:
        shapes = self.observation_shapes if kind == "observation" else self.action_shapes
        given = self.observation_names if kind == "observation" else self.action_names
        names = [kind if not i else f"{kind}_{i}" for i in range(len(shapes))] if given is None else given
        if len(names) != len(shapes):
            raise ContractError(
                f"{type(self).__name__} declares {len(shapes)} {kind}_shapes, but {len(names)} {kind}_names"
            )
        return list(names)

    def _fits(self, kind: str, shapes: Shapes, spaces: Sequence[Space]) -> None:
        sizes = [int(np.prod(shape)) for shape in shapes]
        if [space.size for space in spaces] != sizes:
            raise ContractError(
                f"{type(self).__name__}.get_{kind}_spaces: spaces of {[s.size for s in spaces]} numbers do not go "
                f"with {kind}_shapes {list(shapes)}"
            )

    def _dtypes(self, kind: str, default: npt.DTypeLike) -> list[np.dtype[Any]]:
        shapes, given = getattr(self, f"{kind}_shapes"), getattr(self, f"{kind}_dtypes")
        dtypes = [default] * len(shapes) if given is None else given
        if len(dtypes) != len(shapes):
            raise ContractError(
                f"{type(self).__name__} declares {len(shapes)} {kind}_shapes, but {len(dtypes)} {kind}_dtypes"
            )
        return [np.dtype(one) for one in dtypes]

    def _states(self) -> list[np.dtype[Any]]:
        return self._dtypes("state", np.float64)

    def _observations(self) -> list[np.dtype[Any]]:
        return self._dtypes("observation", np.float64)

    def _actions(self) -> list[np.dtype[Any]]:
        return self._dtypes("action", np.int32)


class BatchStepper:
    """Steps a batched environment from state to state: what its mosaik simulator does.

    Holds the states, checks every shape and dtype, counts the steps of every incarnation, and
    lets those that have ended begin again. Also the way to drive one without a world::

        stepper = BatchStepper(environment)  # after setup, with rngs
        state = stepper.reset()
        state = stepper.step(setpoints, resets=True)
    """

    def __init__(self, environment: BatchEnvironment):
        self.environment = environment
        environment._stepper = self
        environment.active = np.ones(environment.batch, dtype=bool)
        self._who = f"{type(environment).__name__} (environment {environment.uid!r})"
        self._state_kinds = kinds_of(environment.state_shapes, environment._states())
        self._observation_kinds = kinds_of(
            environment.observation_shapes, environment._observations(), environment.flat_observations
        )
        self._action_kinds = kinds_of(
            environment.action_shapes, environment._actions(), environment.flat_actions
        )
        self._parts = slices_of([shape for shape, _ in self._action_kinds])
        self._all = np.arange(environment.batch)

    @property
    def states(self) -> Arrays:
        """The states of all incarnations, as the environment declares them; not to be written to."""
        return self._states

    def reset(self) -> BatchState:
        """Let all incarnations begin; return their first state."""
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
            resets: incarnations that have ended restart, so that this is the first state of another episode
                of theirs; without, they stay in their last state and give no reward.
        """
        environment, count, ended = self.environment, self.environment.batch, self._ended
        some = np.count_nonzero(ended) > 0
        environment.active = ~ended
        actions = actions_of(setpoints, self._action_kinds, self._parts, environment.active, self._who)
        new, observations = self._pair(
            environment.get_action_results(self._states, actions), "get_action_results", count
        )
        given = environment.get_rewards(self._states, actions, new)
        rewards = checked_rewards(given, count, environment.reward_names, self._who)
        terminated, truncated = checked_ends(environment.get_ends(new), count, self._who)
        readings = flat(observations, count)
        if some:
            # what ended before is written over, and these may be the environment's own arrays
            new, readings = [one.copy() for one in new], readings.copy()
        self._ticks += 1
        if environment.max_steps is not None:
            truncated |= (self._ticks >= environment.max_steps) & ~terminated
        truncated &= ~terminated
        if some:
            rewards[ended] = 0.0
            terminated[ended] = truncated[ended] = False
            if resets:
                self._begin_again(np.flatnonzero(ended), new, readings)
            else:
                for one, before in zip(new, self._states, strict=True):
                    one[ended] = before[ended]
                readings[ended] = self._last.readings[ended]
                terminated[ended] = self._last.terminated[ended]
                truncated[ended] = self._last.truncated[ended]
        self._states = _held(new)
        self._ended = terminated | truncated
        self._last = BatchState(readings, rewards, terminated, truncated, self._recorded())
        return self._last

    def end(self, places: IndexVector) -> None:
        """Cut the running episodes of ``places`` short: the next step that resets begins others."""
        self._ended = self._ended.copy()
        self._ended[places] = True

    def _begin_again(self, places: IndexVector, states: list[Array], readings: FloatMatrix) -> None:
        first, observations = self._first(places)
        for one, begun in zip(states, first, strict=True):
            one[places] = begun
        readings[places] = flat(observations, len(places))
        self._ticks[places] = 0

    def _first(self, places: IndexVector) -> tuple[list[Array], list[Array]]:
        return self._pair(self.environment.get_first_states(places), "get_first_states", len(places))

    def _recorded(self) -> FloatMatrix | None:
        environment = self.environment
        if not environment.replays:
            return None
        given = environment.get_recorded_actions(self._states)
        what, count = f"{self._who}: get_recorded_actions: action", environment.batch
        return flat(checked_arrays(given, self._action_kinds, count, what), count)

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
    """Return ``states`` for the environment to look at: who writes to them would falsify the step."""
    views = [one.view() for one in states]
    for view in views:
        view.flags.writeable = False
    return views


def _unbounded(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Space:
    if dtype.kind == "b":
        return Box(0, 1, shape=shape, dtype=np.int8)
    return Box(-np.inf, np.inf, shape=shape, dtype=dtype)

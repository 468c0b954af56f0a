"""Copies of an ordinary environment behind the contract of a batched one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import ContractError, NameResolutionError, did_you_mean
from palaestrai_mosaik.core.importing import broken_overrides, load
from palaestrai_mosaik.types.arrays import BoolVector, FloatMatrix, IndexVector
from palaestrai_mosaik.types.vectors import Layout

from .batch import Arrays, BatchEnvironment
from .environment import Environment, EnvironmentBaseline, EnvironmentState, Rows, Together, World
from .faults import baseline_faults, refusal, reward_faults, state_faults


class Copies(BatchEnvironment):
    """Several environments of one class, side by side.

    For environments that are not written with arrays, such as Gymnasium's: their agents act as one batch,
    but the copies are stepped one after the other. Sensors, actuators, rewards and step size are those of a
    copy; copy ``k`` draws from ``rngs[k]``. Its ``world_state`` is not kept.

    The copies hold their states themselves, so the state of this environment is only the number
    of the copy and its last result; a copy cannot be set back to an earlier state. An exception of a
    copy carries a note with the copy's number.

    Args:
        name: ``package.module:Class``, or the class itself.
        params: the parameters of each copy; ``None``: none.
        batch: number of copies.
        first: the seed number of the first copy.
        max_steps: number of steps after which a copy is truncated; ``None``: no limit.

    Raises:
        NameResolutionError: there is no such class.
        ContractError: it is no ``Environment``, or its copies have different baselines.
    """

    #: number of the copy; its last rewards; whether it has terminated, or was truncated
    state_dtypes = (np.int64, np.float64, np.bool_, np.bool_)
    flat_observations = True
    flat_actions = True
    _together: Together

    def __init__(
        self,
        name: str | Callable[..., Environment],
        params: Mapping[str, Any] | None = None,
        batch: int = 1,
        first: int = 0,
        max_steps: int | None = None,
    ):
        super().__init__(batch=batch, first=first, max_steps=max_steps)
        make = _named(name) if isinstance(name, str) else name
        self.copies: list[Environment] = []
        for k in range(self.batch):
            with self._noted(k):
                copy = make(**deepcopy(dict(params or {})))
            if not isinstance(copy, Environment):
                raise ContractError(f"{name!r} makes a {type(copy).__name__}, which is no Environment")
            if not copy.hold_setpoints:
                raise ContractError(
                    f"{name!r} wants to know which set-points are new (hold_setpoints is false): in a batch they hold"
                )
            self.copies.append(copy)
        self.missing_remedy = self.copies[0].missing_remedy
        self.step_size = self.copies[0].step_size
        self.ends = self.copies[0].ends or max_steps is not None
        self.rewards_accumulate = self.copies[0].rewards_accumulate

    def setup(self) -> EnvironmentBaseline:
        """Set all copies up and return the baseline of the first one, which all must share."""
        baselines = [self._setup_copy(k) for k in range(self.batch)]
        offers = [
            [[(item.uid, item.space) for item in kind] for kind in (b.sensors, b.actuators, b.rewards)]
            for b in baselines
        ]
        for k, offer in enumerate(offers):
            if offer != offers[0]:
                raise ContractError(f"{self._where(k)} does not offer the same as the first one")
        baseline = baselines[0]
        self.observation_shapes = [(sensor.space.size,) for sensor in baseline.sensors]
        self.observation_names = [sensor.uid for sensor in baseline.sensors]
        self.actuators = Layout.of(baseline.actuators)
        self.action_shapes = [(actuator.space.size,) for actuator in baseline.actuators]
        self.action_names = [actuator.uid for actuator in baseline.actuators]
        self.action_dtypes = [np.float64] * len(self.action_shapes)
        self.reward_names = [reward.uid for reward in baseline.rewards]
        self.state_shapes = ((), (len(self.reward_names),), (), ())
        self._widths = sum(sensor.space.size for sensor in baseline.sensors), len(self.reward_names)
        kinds = {type(copy) for copy in self.copies}
        faster = kinds.pop().together(self.copies) if len(kinds) == 1 else None
        self._together = _OneByOne(self) if faster is None else faster
        self._places = list(range(self.batch))
        self._numbers = np.arange(self.batch, dtype=np.int64)
        return baseline

    def _setup_copy(self, k: int) -> EnvironmentBaseline:
        copy = self.copies[k]
        copy.uid, copy.step_size = f"{self.uid}.{k}", self.step_size
        with self._noted(k):
            baseline = copy.baseline = copy.setup()
        faults = list(baseline_faults(baseline))
        if faults:
            raise refusal(f"{self._where(k)}, setup", faults)
        return baseline

    def source_of(self, sensor: str | None) -> str:
        return self.copies[0].source_of(sensor)

    def enable_frames(self) -> None:
        with self._noted(0):
            self.copies[0].uid = self.uid
            self.copies[0].enable_frames()

    def render(self) -> Any:
        """Render the first copy."""
        return self.copies[0].render()

    def shutdown(self) -> None:
        """Shut all copies down, even if one fails; then raise the first exception."""
        failed: Exception | None = None
        for k, copy in enumerate(self.copies):
            try:
                with self._noted(k):
                    copy.shutdown()
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        indices: list[int] = incarnations.tolist()
        results = []
        for k in indices:
            copy = self.copies[k]
            copy.rng, copy.worker, copy.episode = self.rngs[k], self.worker, self.episode
            with self._noted(k):
                state = copy.reset()
            self.check_state(k, state)
            if state.terminated or state.truncated:
                raise ContractError(
                    f"{self._where(k)} ended with the first state of an episode, which in a batch is never the last"
                )
            results.append(state)
        readings, rewards, *ends = self._rows(indices, *columns_of(results))
        return [incarnations.astype(np.int64), rewards, *ends], [readings]

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        places, setpoints, together = self._places, actions[0].view(), self._together
        everyone = np.count_nonzero(self.active) == self.batch
        if not everyone:
            places = np.flatnonzero(self.active).tolist()
            setpoints = setpoints[places]
        setpoints.flags.writeable = False
        if not places:
            readings, rewards = (np.zeros((self.batch, width)) for width in self._widths)
            never = np.zeros(self.batch, dtype=bool)
            return [self._numbers, rewards, never, never], [readings]
        try:
            results = together.step(places, setpoints)
        except Exception as error:
            self._note(error, together.at)
            raise
        rows: list[Any] = list(self._rows(places, *results))
        if not everyone:
            for i, values in enumerate(rows):
                rows[i] = np.zeros((self.batch, *values.shape[1:]), values.dtype)
                rows[i][places] = values
        readings, *states = rows
        return [self._numbers, *states], [readings]

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> FloatMatrix:
        rewards: FloatMatrix = new_states[1]
        return rewards

    def get_ends(self, new_states: Arrays) -> tuple[BoolVector, BoolVector]:
        _, _, terminated, truncated = new_states
        return terminated, truncated

    def _rows(
        self, places: Sequence[int], readings: Any, rewards: Any, terminated: Any, truncated: Any
    ) -> tuple[FloatMatrix, FloatMatrix, BoolVector, BoolVector]:
        """Return the results of the copies at ``places`` as arrays with one row for each."""
        expected = tuple((len(places), width) for width in self._widths)
        try:
            rows = np.asarray(readings, np.float64), np.asarray(rewards, np.float64)
            fits = (rows[0].shape, rows[1].shape) == expected
        except ValueError:
            # ragged lists
            fits = False
        if not fits:
            for k, values, gained in zip(places, readings, rewards, strict=True):
                self._check(k, EnvironmentState(values, gained))
            # a copy's single reward may be a scalar
            rows = rows_of(readings, expected[0]), rows_of(rewards, expected[1])
        flags = np.asarray(terminated), np.asarray(truncated)
        if not all(flag.dtype == np.bool_ for flag in flags):
            for k, *values in zip(places, readings, rewards, terminated, truncated, strict=True):
                self._check(k, EnvironmentState(*values))
        return *rows, flags[0].astype(bool), flags[1].astype(bool)

    def check_state(self, k: int, state: Any) -> None:
        """Raise :class:`ContractError` if the result of copy ``k`` is not a state."""
        if not isinstance(state, EnvironmentState):
            self._check(k, state)

    def _check(self, k: int, state: Any) -> None:
        baseline = self.copies[k].baseline
        assert baseline is not None
        faults = list(state_faults(state, baseline.sensors))
        if isinstance(state, EnvironmentState):
            faults += reward_faults(state.rewards, baseline.rewards)
        if faults:
            raise refusal(self._where(k), faults)

    def _where(self, k: int) -> str:
        return f"copy {k} of environment {self.uid!r} ({self.copies[k].source_of(None)})"

    @contextmanager
    def _noted(self, k: int) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._note(error, k)
            raise

    def _note(self, error: Exception, k: int) -> None:
        # copies are made before the uid is set
        error.add_note(f"in copy {k}" + (f" of environment {self.uid!r}" if self.uid else ""))


class _OneByOne(Together):
    """Steps copies of any environment one after the other."""

    def __init__(self, batch: Copies):
        self.batch = batch
        self.at = 0

    def step(
        self, places: Sequence[int], setpoints: FloatMatrix
    ) -> tuple[Rows, Rows, Sequence[bool], Sequence[bool]]:
        copies, states, actuators = self.batch.copies, [], self.batch.actuators
        for k, mine in zip(places, setpoints, strict=True):
            self.at = k
            states.append(copies[k].step(actuators.as_integers(mine)))
        for k, state in zip(places, states, strict=True):
            if type(state) is not EnvironmentState:
                self.batch.check_state(k, state)
        return columns_of(states)


def columns_of(
    states: Sequence[EnvironmentState],
) -> tuple[list[Any], list[Any], list[bool], list[bool]]:
    """Split states into lists of readings, rewards, terminated and truncated."""
    return (
        [state.readings for state in states],
        [state.rewards for state in states],
        [state.terminated for state in states],
        [state.truncated for state in states],
    )


def rows_of(rows: Sequence[Any], shape: tuple[int, int]) -> FloatMatrix:
    """Copy ``rows``, sequences or scalars, into an array of this ``shape``."""
    array = np.empty(shape)
    for row, values in zip(array, rows, strict=True):
        row[:] = values
    return array


def _named(name: str) -> Callable[..., Environment]:
    """Import ``package.module:Class``, an environment."""
    module_name, _, class_name = name.partition(":")
    if not module_name or not class_name:
        raise NameResolutionError(f"{name!r} is not a class name of the form 'package.module:Class'")
    try:
        loaded = load(name)
    except NameResolutionError as error:
        raise NameResolutionError(f"{name!r}: {error}") from error.__cause__
    if not isinstance(loaded, type):
        near = did_you_mean(
            class_name, [k for k, v in vars(sys.modules[module_name]).items() if isinstance(v, type)]
        )
        raise NameResolutionError(
            f"{name!r}: the module {module_name!r} has a {type(loaded).__name__} and no class {class_name!r}{near}"
        )
    if not issubclass(loaded, Environment):
        # refuse it before it is called with the document's params
        raise ContractError(f"{name!r} makes a {class_name}, which is no Environment")
    for fault in broken_overrides(loaded, World):
        raise ContractError(f"{name!r}: {fault}")
    return loaded

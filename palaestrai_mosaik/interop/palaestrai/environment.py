"""Environments, rewards and state transformers written for palaestrAI."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import palaestrai.agent
import palaestrai.environment
import palaestrai.types
from palaestrai.core.protocol import EnvironmentResetRequest

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.core.importing import class_name
from palaestrai_mosaik.environment.environment import (
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
    World,
)
from palaestrai_mosaik.types import ActuatorInformation, RewardInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout, initial_values

from .base import Adapted, GlobalGenerators
from .translate import (
    PalaestraiChannels,
    checked,
    our_actuator,
    our_sensor,
    our_space,
    their_actuator,
    their_sensor,
)

T = TypeVar("T")


@dataclass(slots=True)
class PalaestraiState(EnvironmentState):
    """A state from a palaestrAI environment; ``original`` is palaestrAI's state object."""

    original: Any = None


class PalaestraiReadings:
    """Extracts readings from palaestrAI's information objects.

    The uids in ``layout`` lack the environment's uid. palaestrAI prefixes them with ``uid``, and so may environments.
    """

    def __init__(self, layout: Layout, uid: str):
        self.layout = layout
        self._places: dict[Any, int] = {}
        for index, name in enumerate(layout.uids):
            self._places.update({name: index, f"{uid}.{name}": index})
            if name.isdecimal():
                self._places[int(name)] = index

    def read(self, infos: Iterable[Any], before: FloatVector) -> FloatVector:
        """Return the readings of ``infos``; missing ones are taken from ``before``.

        A reading of ``None`` becomes NaN. Sensors not in the baseline are ignored, because no agent can be connected to
        them.
        """
        layout = self.layout
        readings = before.copy()
        for info in infos:
            index = self._places.get(info.uid)
            if index is not None:
                value = info.value
                part = layout.slices[index]
                readings[part] = np.nan if value is None else layout.spaces[index].flatten(value)
        return readings


class PalaestraiStates:
    """Converts our states to palaestrAI's, for rewards and transformers.

    ``baseline`` has the sensors and rewards, with uids inside the environment.
    """

    def __init__(self, baseline: EnvironmentBaseline):
        self.layout = Layout.of(baseline.sensors)
        self._sensors = PalaestraiChannels(self.layout, palaestrai.agent.SensorInformation, gaps=True)
        rewards = Layout.of(baseline.rewards)
        self._rewards = PalaestraiChannels(rewards, palaestrai.agent.RewardInformation, gaps=True)

    def __call__(self, state: EnvironmentState) -> Any:
        """Return palaestrAI's state for ``state``; if it came from palaestrAI, return the original."""
        if isinstance(state, PalaestraiState):
            return state.original
        return palaestrai.environment.EnvironmentState(
            self._sensors(state.readings),
            self._rewards(np.asarray(state.rewards, dtype=np.float64)),
            bool(state.terminated or state.truncated),
            state.world_state,
            None,
            bool(state.terminated),
            bool(state.truncated),
        )


def plain(value: Any) -> Any:
    """Convert palaestrAI's objects in ``value`` to plain data that can be stored.

    An information object becomes its uid and value, a time its ticks and date.
    """
    agent = palaestrai.agent
    if isinstance(value, agent.SensorInformation | agent.ActuatorInformation | agent.RewardInformation):
        return {"uid": value.uid, "value": plain(value.value)}
    if isinstance(value, palaestrai.types.SimTime):
        date = value.simtime_timestamp
        return {"ticks": value.simtime_ticks, "date": None if date is None else date.isoformat()}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value


class Coroutines:
    """An event loop in its own thread, started with the first coroutine.

    The caller waits for each coroutine, so nothing runs concurrently. Objects bound to the loop, such as connections,
    may persist between calls.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` and return its result, or raise its exception."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """Cancel the remaining tasks and stop the loop."""
        if self._loop is None or self._thread is None:
            return
        self.run(_cancel_the_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None


async def _cancel_the_others() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


#: the seed of the object used by setup
_PROBE_SEED = 0


class AdaptedEnvironment(Environment):
    """Runs a palaestrAI environment; subclasses have its class in :attr:`wrapped_class`.

    The rewards of such a class are unknown before its first update. Therefore, :meth:`setup` creates a temporary
    object, starts it, makes one step with set-points sampled from the actuators' spaces, and shuts it down. The actual
    object is created when the first episode begins, and kept for all episodes: :meth:`reset` calls its ``reset``, by
    default ``shutdown`` and ``start_environment``. It gets a seed from the run's seed tree, and separate global
    generators (:class:`GlobalGenerators`), which are reseeded for every episode.

    ``update`` gets the actuators that agents have set in the current step, in the environment's order. Methods may be
    coroutines.
    """

    wrapped_class: ClassVar[type]
    #: parameters of the constructor that the adapter passes
    injected: ClassVar[tuple[str, ...]] = ("uid", "broker_uri", "seed")
    hold_setpoints = False

    def __init__(self, **params: Any):
        self.params = params
        #: the object of palaestrAI's class, or None
        self.part: Any = None
        self._reward: AdaptedReward | None = None
        self._generators = GlobalGenerators(_PROBE_SEED)
        self._coroutines = Coroutines()

    def takes_reward(self, reward: Reward) -> bool:
        """Keep a palaestrAI reward, because palaestrAI environments call it themselves."""
        if not isinstance(reward, AdaptedReward):
            return False
        self._reward = reward
        return True

    def source_of(self, sensor: str | None) -> str:
        return class_name(self.wrapped_class)

    def setup(self) -> EnvironmentBaseline:
        probe = self._make(_PROBE_SEED)
        baseline = self._baseline(self._call(probe.start_environment))
        try:
            sensors = [our_sensor(info) for info in baseline.sensors_available]
            actuators = [our_actuator(info) for info in baseline.actuators_available]
            for sensor in sensors:
                sensor.uid = sensor.uid.removeprefix(f"{self.uid}.")
                # palaestrAI allows readings of None
                sensor.may_be_missing = True
            for actuator in actuators:
                actuator.uid = actuator.uid.removeprefix(f"{self.uid}.")
            self._lay_out(sensors, actuators)
            state = self._update(probe, self._actuators.sample(seeding.generator(_PROBE_SEED, "set-points")))
        except Exception as error:
            error.add_note(f"raised when environment {self.uid!r} was looked at, with its first step")
            raise
        finally:
            self._call(probe.shutdown)
            # leave no thread, because this process may be forked
            self._coroutines.close()
        rewards = declared(state.rewards)
        self._rewards = [reward.uid for reward in rewards]
        start = baseline.simtime.simtime_timestamp if baseline.simtime is not None else None
        return EnvironmentBaseline(sensors, actuators, rewards, start, plain(baseline.static_world_model))

    def reset(self) -> EnvironmentState:
        self._generators.reseed(int(self.rng.integers(2**31)))
        if self.part is None:
            self.part = self._make(int(self.rng.integers(2**31)))
            baseline = self._baseline(self._call(self.part.start_environment))
            infos = baseline.sensors_available
        else:
            request = EnvironmentResetRequest(f"worker-{self.worker}", self.part.uid, "", "", 0)
            self.part._tick, self.part._done = 0, False
            infos = self._call(self.part.reset, request).sensors
        self._readings = np.full(self._sensors.layout.size, np.nan)
        # no rewards before the first step
        state = palaestrai.environment.EnvironmentState(list(infos), [], False)
        return self._ours(state, np.full(len(self._rewards), np.nan))

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        state = self._update(self.part, setpoints)
        rewards = reward_values(state.rewards, self._rewards, f"environment {self.uid!r}")
        self.part._done = bool(state.done)
        return self._ours(state, rewards)

    def state(self) -> Any:
        """Return palaestrAI's object and its generators, or ``None`` if it cannot be pickled.

        In the latter case, a resumed run creates a new object.
        """
        try:
            pickle.dumps(self.part)
        except (pickle.PicklingError, TypeError, AttributeError):
            return None
        return {"part": self.part, "streams": self._generators}

    def restore(self, state: Any) -> None:
        if state is not None:
            self.part, self._generators = state["part"], state["streams"]

    def shutdown(self) -> None:
        try:
            if self.part is not None:
                self._call(self.part.shutdown)
        finally:
            self.part = None
            self._coroutines.close()

    def _make(self, seed: int) -> Any:
        """Create an object of palaestrAI's class."""
        uid = f"{self.uid}.{self.worker}"
        params = {**deepcopy(self.params), "uid": uid, "broker_uri": "", "seed": seed}
        with self._generators, warnings.catch_warnings():
            # the base class warns about an argument that it requires itself
            warnings.filterwarnings("ignore", "broker_uri is deprecated", DeprecationWarning)
            part = self.wrapped_class(**params)
            if self._reward is not None:
                part.reward = self._reward.make()
        part._uid, part._name = uid, self.uid
        if self.baseline is not None:
            # set by palaestrAI from the baseline
            part._sensor_ids = [f"{self.uid}.{name}" for name in self._sensors.layout.uids]
            part._actuator_ids = [f"{self.uid}.{name}" for name in self._actuators.uids]
        return part

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        with self._generators:
            if inspect.iscoroutinefunction(method):
                return self._coroutines.run(method(*arguments))
            return method(*arguments)

    def _baseline(self, baseline: Any) -> Any:
        """Return the result of ``start_environment`` as palaestrAI's baseline; it may be a pair."""
        agent, source = palaestrai.agent, f"environment {self.uid!r}: start_environment"
        baseline = _formed(
            baseline, palaestrai.environment.EnvironmentBaseline, source, ("sensors", "actuators")
        )
        checked(baseline.sensors_available, agent.SensorInformation, f"{source}, for sensors,")
        checked(baseline.actuators_available, agent.ActuatorInformation, f"{source}, for actuators,")
        return baseline

    def _lay_out(
        self, sensors: Sequence[SensorInformation], actuators: Sequence[ActuatorInformation]
    ) -> None:
        layout = Layout.of(sensors)
        self._sensors = PalaestraiReadings(layout, self.uid)
        self._actuators = Layout.of(actuators)
        self._channels = PalaestraiChannels(self._actuators, palaestrai.agent.ActuatorInformation, gaps=True)

    def _update(self, part: Any, setpoints: FloatVector) -> Any:
        """Step ``part`` without the actuators that are not set; return palaestrAI's state."""
        infos = self._channels(setpoints)
        unset = np.isnan(setpoints)
        if unset.any():
            slices = self._actuators.slices
            infos = [info for info, indices in zip(infos, slices, strict=True) if not unset[indices].any()]
        part._tick += 1
        agent, source = palaestrai.agent, f"environment {self.uid!r}: update"
        state = _formed(
            self._call(part.update, infos),
            palaestrai.environment.EnvironmentState,
            source,
            ("sensors", "rewards", "done"),
        )
        checked(state.sensor_information, agent.SensorInformation, f"{source}, for sensors,")
        checked(state.rewards, agent.RewardInformation, f"{source}, for rewards,")
        return state

    def _ours(self, state: Any, rewards: FloatVector) -> PalaestraiState:
        """Convert palaestrAI's state to ours; missing sensors keep their readings."""
        readings = self._readings = self._sensors.read(state.sensor_information, self._readings)
        done, truncated = bool(state.done), bool(state.truncated)
        terminated = done and (bool(state.terminated) or not truncated)
        return PalaestraiState(readings, rewards, terminated, truncated, plain(state.world_state), state)


def _formed(result: Any, expected: type, source: str, parts: tuple[str, ...]) -> Any:
    """Return a method's result as an object of ``expected``; it may be a tuple of its ``parts``."""
    if isinstance(result, tuple) and len(result) == len(parts):
        result = expected(*result)
    if not isinstance(result, expected):
        raise ContractError(
            f"{source} returned {result!r}; allowed are palaestrAI's {expected.__name__} and ({', '.join(parts)})"
        )
    return result


class AdaptedReward(Adapted, Reward):
    """Runs a palaestrAI reward; subclasses have its class in :attr:`wrapped_class`.

    A palaestrAI environment gets the reward object and calls it itself. For any other environment, the reward is called
    with palaestrAI's state, and its global generators are reseeded for every episode.
    """

    def __init__(self, **params: Any):
        super().__init__(**params)
        self._environment: World | None = None
        self._make(0)
        self._channels: dict[Layout, PalaestraiChannels] = {}

    def _join(self, environment: World) -> None:
        """Store the environment, which has the generator of the episode."""
        self._environment = environment

    def make(self) -> Any:
        """Create an object of palaestrAI's class."""
        with self.generators:
            return self.wrapped_class(**deepcopy(self.params))

    def ask(self, *what: Any) -> list[Any]:
        """Call the reward with the arguments ``what``; return palaestrAI's reward objects in a list."""
        # the environment has no generator during setup
        rng = getattr(self._environment, "rng", None)
        if rng is not None:
            self.generators.renew(rng, "reward")
        with self.generators:
            result = self.part(*what)
        is_single = isinstance(result, palaestrai.agent.RewardInformation)
        return checked(
            [result] if is_single else result,
            palaestrai.agent.RewardInformation,
            f"reward {type(self).__name__}",
        )

    def setup(self, baseline: EnvironmentBaseline) -> Sequence[RewardInformation]:
        self._states = PalaestraiStates(baseline)
        # the reward's names are unknown before its first call
        first = EnvironmentState(initial_values(baseline.sensors), [0.0 for _ in baseline.rewards])
        return self._declare(self.ask(self._states(first)))

    def __call__(self, state: EnvironmentState) -> FloatVector:
        return self._values(self.ask(self._states(state)))

    def declare(
        self, sensors: Sequence[SensorInformation], actuators: Sequence[ActuatorInformation]
    ) -> Sequence[RewardInformation]:
        """Declare the rewards for an environment that calls them as palaestrai-mosaik does.

        ``sensors`` and ``actuators`` have the first readings and set-points.
        """
        return self._declare(
            self.ask([their_sensor(s) for s in sensors], [their_actuator(a) for a in actuators])
        )

    def compute(
        self, sensors: Layout, readings: FloatVector, actuators: Layout, setpoints: FloatVector
    ) -> FloatVector:
        """Return the declared rewards for readings and set-points as vectors."""
        for layout, make in (
            (sensors, palaestrai.agent.SensorInformation),
            (actuators, palaestrai.agent.ActuatorInformation),
        ):
            if layout not in self._channels:
                self._channels[layout] = PalaestraiChannels(layout, make, gaps=True)
        arguments = self._channels[sensors](readings), self._channels[actuators](setpoints)
        return self._values(self.ask(*arguments))

    def _declare(self, infos: Sequence[Any]) -> list[RewardInformation]:
        rewards = declared(infos)
        self._names = [reward.uid for reward in rewards]
        # start the run with a fresh object, without the state from the first call
        self.part = self.make()
        return rewards

    def _values(self, infos: Sequence[Any]) -> FloatVector:
        return reward_values(infos, self._names, f"reward {type(self).__name__}")


def declared(infos: Sequence[Any]) -> list[RewardInformation]:
    """Convert palaestrAI's reward objects to ours; an array becomes one reward per element."""
    rewards = []
    for info in infos:
        space = our_space(info.space)
        # a palaestrAI environment may omit a reward in a step
        if space.size == 1:
            rewards.append(RewardInformation(0.0, space, str(info.uid), may_be_missing=True))
        else:
            names = [f"{info.uid}.{i}" for i in range(space.size)]
            rewards += [RewardInformation(0.0, space, name, may_be_missing=True) for name in names]
    return rewards


def reward_values(infos: Sequence[Any], names: Sequence[str], what: str) -> FloatVector:
    """Return a vector of the rewards ``names``, with NaN for those missing in palaestrAI's objects ``infos``.

    ``what`` names the source in messages. Raises :class:`ContractError` if a reward is unknown or its value is NaN.
    """
    vector = np.full(len(names), np.nan)
    for info in infos:
        values = np.asarray(info.value, dtype=np.float64).reshape(-1)
        for i, value in enumerate(values):
            name = str(info.uid) if len(values) == 1 else f"{info.uid}.{i}"
            if name not in names:
                raise ContractError(
                    f"{what} gave the reward {name!r}{did_you_mean(name, names)}, which was not among those of its "
                    f"first step: {', '.join(names) or 'none'}"
                )
            if np.isnan(value):
                raise ContractError(
                    f"{what} gave NaN as the reward {name!r}; a reward must be a finite number"
                )
            vector[names.index(name)] = value
    return vector


class AdaptedStateTransformer(Adapted, EnvironmentStateTransformer):
    """Runs a palaestrAI state transformer; subclasses have its class in :attr:`wrapped_class`.

    As documented by palaestrAI, it changes the stored world state and readings. (In palaestrAI's implementation, agents
    also get its readings and rewards.) Its global generators are reseeded for every episode.
    """

    def __init__(self, **params: Any):
        super().__init__(**params)
        self._make(0)

    def _join(self, environment: World) -> None:
        """Store the environment, which has the generator of the episode."""
        self._environment = environment

    def setup(self, baseline: EnvironmentBaseline) -> None:
        self._states = PalaestraiStates(baseline)
        self._readings = PalaestraiReadings(self._states.layout, "")

    def __call__(self, environment_state: EnvironmentState) -> EnvironmentState:
        state = copy(self._states(environment_state))
        # copies, because the transformer may modify its argument
        state.sensor_information = [_twin(info) for info in state.sensor_information]
        state.rewards = [_twin(info) for info in state.rewards]
        state.world_state = deepcopy(state.world_state)
        self.generators.renew(self._environment.rng, "state_transformer")
        with self.generators:
            result = self.part(state)
        return replace(
            environment_state,
            readings=self._readings.read(result.sensor_information, environment_state.readings),
            world_state=plain(result.world_state),
        )


def _twin(info: Any) -> Any:
    """Return a shallow copy of a palaestrAI object, faster than :func:`copy.copy`."""
    twin = object.__new__(type(info))
    twin.__dict__.update(info.__dict__)
    return twin

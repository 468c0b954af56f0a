"""Environments, rewards and state transformers that are written for palaestrAI."""

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

from palaestrai_mosaik import seeding
from palaestrai_mosaik.environment.environment import (
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
    World,
)
from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.types import ActuatorInformation, RewardInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout, initial_values

from .base import GlobalGenerators
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
    """A state of one of palaestrAI's environments; ``original`` is the state that it gave."""

    original: Any = None


class PalaestraiReadings:
    """Takes readings from palaestrAI's objects.

    ``layout`` has the ids within the environment ``uid``. palaestrAI puts ``uid`` before them, and
    environments may do so.
    """

    def __init__(self, layout: Layout, uid: str):
        self.layout = layout
        self._places: dict[Any, int] = {}
        for place, name in enumerate(layout.uids):
            self._places.update({name: place, f"{uid}.{name}": place})
            if name.isdecimal():
                self._places[int(name)] = place

    def read(self, infos: Iterable[Any], before: FloatVector) -> FloatVector:
        """Return the readings of ``infos``; what they leave out is as ``before``.

        A reading of ``None`` is NaN. Sensors that the baseline has not are passed over: no agent
        can be connected to them.
        """
        layout = self.layout
        readings = before.copy()
        for info in infos:
            place = self._places.get(info.uid)
            if place is not None:
                value = info.value
                part = layout.slices[place]
                readings[part] = np.nan if value is None else layout.spaces[place].flatten(value)
        return readings


class PalaestraiStates:
    """Makes palaestrAI's states of ours, for rewards and transformers.

    ``baseline`` has the sensors and rewards; their ids are those within the environment.
    """

    def __init__(self, baseline: EnvironmentBaseline):
        self.layout = Layout.of(baseline.sensors)
        self._sensors = PalaestraiChannels(self.layout, palaestrai.agent.SensorInformation, gaps=True)
        rewards = Layout.of(baseline.rewards)
        self._rewards = PalaestraiChannels(rewards, palaestrai.agent.RewardInformation, gaps=True)

    def __call__(self, state: EnvironmentState) -> Any:
        """Return palaestrAI's state for ``state``: the one that it was made from, if there is one."""
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
    """Return ``value`` with palaestrAI's objects in it as plain data, so that it can be stored.

    An information object becomes its id and value, a time its ticks and date.
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
    """One event loop in a thread of its own, started with the first coroutine.

    The world waits meanwhile, so that nothing runs at once. What belongs to the loop (a
    connection, say) may live from call to call.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return what ``coroutine`` returns, or raise what it raises."""
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        """End the loop, with the tasks that are left in it."""
        if self._loop is None or self._thread is None:
            return
        self.run(_cancel_the_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._loop = self._thread = None


async def _cancel_the_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


#: the seed of the object that is only looked at
_PROBE_SEED = 0


class AdaptedEnvironment(Environment):
    """Runs an environment of palaestrAI; subclasses have its class in :attr:`wrapped_class`.

    Such a class names its rewards with its first update only. So :meth:`setup` makes
    an object for looking at it, starts it, makes one step with set-points drawn from the actuators'
    spaces, and shuts it down. The object of the run is made when the first episode begins, and
    lives on from episode to episode: :meth:`reset` calls its ``reset``, by default ``shutdown``
    and ``start_environment``. It is given a seed of the run's tree, and global generators of
    its own (:class:`GlobalGenerators`), seeded anew for every episode.

    ``update`` gets the actuators that agents have set at this step, in the environment's order.
    Methods may be coroutines.
    """

    wrapped_class: ClassVar[type]
    #: parameters of the constructor that do not come from the document
    given: ClassVar[tuple[str, ...]] = ("uid", "broker_uri", "seed")
    hold_setpoints = False

    def __init__(self, **params: Any):
        self.params = params
        #: the object of palaestrAI's class, while there is one
        self.part: Any = None
        self._reward: AdaptedReward | None = None
        self._generators = GlobalGenerators(_PROBE_SEED)
        self._coroutines = Coroutines()

    def takes_reward(self, reward: Reward) -> bool:
        """Take a reward of palaestrAI: there, environments ask for it themselves."""
        if not isinstance(reward, AdaptedReward):
            return False
        self._reward = reward
        return True

    def setup(self) -> EnvironmentBaseline:
        looked_at = self._make(_PROBE_SEED)
        baseline = self._baseline(self._call(looked_at.start_environment))
        try:
            sensors = [our_sensor(one) for one in baseline.sensors_available]
            actuators = [our_actuator(one) for one in baseline.actuators_available]
            for sensor in sensors:
                sensor.uid = sensor.uid.removeprefix(f"{self.uid}.")
            for actuator in actuators:
                actuator.uid = actuator.uid.removeprefix(f"{self.uid}.")
            self._lay_out(sensors, actuators)
            state = self._update(looked_at, self._drawn(actuators))
        except Exception as error:
            error.add_note(f"raised when environment {self.uid!r} was looked at, with its first step")
            raise
        finally:
            self._call(looked_at.shutdown)
            # processes may be forked from this one: it leaves no thread
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
        # nothing was rewarded yet
        state = palaestrai.environment.EnvironmentState(list(infos), [], False)
        return self._ours(state, np.full(len(self._rewards), np.nan))

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        state = self._update(self.part, setpoints)
        rewards = reward_values(state.rewards, self._rewards, f"environment {self.uid!r}")
        self.part._done = bool(state.done)
        return self._ours(state, rewards)

    def state(self) -> Any:
        """Return the object of palaestrAI's class and its generators, ``None`` if it cannot be pickled.

        A run that is resumed then has a new object.
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
        """Return a new object of their class."""
        uid = f"{self.uid}.{self.worker}"
        params = {**deepcopy(self.params), "uid": uid, "broker_uri": "", "seed": seed}
        with self._generators, warnings.catch_warnings():
            # their base class warns of what it is given there, too
            warnings.filterwarnings("ignore", "broker_uri is deprecated", DeprecationWarning)
            part = self.wrapped_class(**params)
            if self._reward is not None:
                part.reward = self._reward.make()
        part._uid, part._name = uid, self.uid
        if self.baseline is not None:
            # what palaestrAI notes of the baseline
            part._sensor_ids = [f"{self.uid}.{name}" for name in self._sensors.layout.uids]
            part._actuator_ids = [f"{self.uid}.{name}" for name in self._actuators.uids]
        return part

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        with self._generators:
            if inspect.iscoroutinefunction(method):
                return self._coroutines.run(method(*arguments))
            return method(*arguments)

    def _baseline(self, found: Any) -> Any:
        """Return what ``start_environment`` gave as palaestrAI's baseline; it may be a pair."""
        agent, source = palaestrai.agent, f"environment {self.uid!r}: start_environment"
        found = _formed(found, palaestrai.environment.EnvironmentBaseline, source, ("sensors", "actuators"))
        checked(found.sensors_available, agent.SensorInformation, f"{source}, for sensors,")
        checked(found.actuators_available, agent.ActuatorInformation, f"{source}, for actuators,")
        return found

    def _lay_out(
        self, sensors: Sequence[SensorInformation], actuators: Sequence[ActuatorInformation]
    ) -> None:
        layout = Layout.of(sensors)
        self._sensors = PalaestraiReadings(layout, self.uid)
        self._actuators = Layout.of(actuators)
        self._channels = PalaestraiChannels(self._actuators, palaestrai.agent.ActuatorInformation, gaps=True)

    def _drawn(self, actuators: Sequence[ActuatorInformation]) -> FloatVector:
        """Return set-points from the actuators' spaces; the same for the same actuators."""
        rng = seeding.generator(_PROBE_SEED, "set-points")
        drawn = [actuator.space.flatten(actuator.space.sample(rng)) for actuator in actuators]
        return np.concatenate(drawn) if drawn else np.empty(0)

    def _update(self, part: Any, setpoints: FloatVector) -> Any:
        """Step ``part``; return palaestrAI's state. What nobody has set is left out."""
        infos = self._channels(setpoints)
        unset = np.isnan(setpoints)
        if unset.any():
            places = self._actuators.slices
            infos = [info for info, place in zip(infos, places, strict=True) if not unset[place].any()]
        part._tick += 1
        agent, source = palaestrai.agent, f"environment {self.uid!r}: update"
        found = _formed(
            self._call(part.update, infos),
            palaestrai.environment.EnvironmentState,
            source,
            ("sensors", "rewards", "done"),
        )
        checked(found.sensor_information, agent.SensorInformation, f"{source}, for sensors,")
        checked(found.rewards, agent.RewardInformation, f"{source}, for rewards,")
        return found

    def _ours(self, state: Any, rewards: FloatVector) -> PalaestraiState:
        """Return our state for theirs; sensors that it leaves out keep their readings."""
        readings = self._readings = self._sensors.read(state.sensor_information, self._readings)
        done, truncated = bool(state.done), bool(state.truncated)
        return PalaestraiState(
            readings, rewards, done and not truncated, truncated, plain(state.world_state), state
        )


def _formed(found: Any, expected: type, source: str, parts: tuple[str, ...]) -> Any:
    """Return what a method of theirs gave as an object of ``expected``; it may be a tuple of its ``parts``."""
    if isinstance(found, tuple) and len(found) == len(parts):
        found = expected(*found)
    if not isinstance(found, expected):
        raise ContractError(
            f"{source} returned {found!r}; allowed are palaestrAI's {expected.__name__} and ({', '.join(parts)})"
        )
    return found


class AdaptedReward(Reward):
    """Asks a reward of palaestrAI; subclasses have its class in :attr:`wrapped_class`.

    One of palaestrAI's environments is given the reward and asks it in its own way. With any other
    environment, the reward is called with palaestrAI's state of the environment; its global generators
    are seeded anew for every episode then.
    """

    wrapped_class: ClassVar[type]

    def __init__(self, **params: Any):
        self.params = params
        self._environment: World | None = None
        self._generators = GlobalGenerators(0)
        #: the object of palaestrAI's class
        self.part = self.make()
        self._channels: dict[Layout, PalaestraiChannels] = {}

    def _join(self, environment: World) -> None:
        """Take note of the environment, which knows the generator of the episode."""
        self._environment = environment

    def make(self) -> Any:
        """Return a new object of palaestrAI's class."""
        with self._generators:
            return self.wrapped_class(**deepcopy(self.params))

    def ask(self, *what: Any) -> list[Any]:
        """Call the reward with ``what``; return palaestrAI's reward objects, in a list."""
        # there is none while the environment is set up
        rng = getattr(self._environment, "rng", None)
        if rng is not None:
            self._generators.renew(rng, "reward")
        with self._generators:
            found = self.part(*what)
        one = isinstance(found, palaestrai.agent.RewardInformation)
        return checked(
            [found] if one else found, palaestrai.agent.RewardInformation, f"reward {type(self).__name__}"
        )

    def setup(self, baseline: EnvironmentBaseline) -> Sequence[RewardInformation]:
        self._states = PalaestraiStates(baseline)
        # which rewards there are, nobody knows before the first call
        first = EnvironmentState(initial_values(baseline.sensors), [0.0 for _ in baseline.rewards])
        return self._declare(self.ask(self._states(first)))

    def __call__(self, state: EnvironmentState) -> FloatVector:
        return self._values(self.ask(self._states(state)))

    def declare(
        self, sensors: Sequence[SensorInformation], actuators: Sequence[ActuatorInformation]
    ) -> Sequence[RewardInformation]:
        """Declare the rewards for an environment that calls it as palaestrai-mosaik does.

        ``sensors`` and ``actuators`` carry the first readings and set-points.
        """
        return self._declare(
            self.ask([their_sensor(s) for s in sensors], [their_actuator(a) for a in actuators])
        )

    def compute(
        self, sensors: Layout, readings: FloatVector, actuators: Layout, setpoints: FloatVector
    ) -> FloatVector:
        """Return the rewards that :meth:`declare` returned, for readings and set-points as vectors."""
        for layout, make in (
            (sensors, palaestrai.agent.SensorInformation),
            (actuators, palaestrai.agent.ActuatorInformation),
        ):
            if layout not in self._channels:
                self._channels[layout] = PalaestraiChannels(layout, make, gaps=True)
        asked = self._channels[sensors](readings), self._channels[actuators](setpoints)
        return self._values(self.ask(*asked))

    def _declare(self, infos: Sequence[Any]) -> list[RewardInformation]:
        rewards = declared(infos)
        self._names = [reward.uid for reward in rewards]
        # what it remembers of that call is not part of the run
        self.part = self.make()
        return rewards

    def _values(self, infos: Sequence[Any]) -> FloatVector:
        return reward_values(infos, self._names, f"reward {type(self).__name__}")


def declared(infos: Sequence[Any]) -> list[RewardInformation]:
    """Return our rewards for palaestrAI's reward objects; one of several numbers is several rewards."""
    found = []
    for info in infos:
        space = our_space(info.space)
        if space.size == 1:
            found.append(RewardInformation(0.0, space, str(info.uid)))
        else:
            found += [RewardInformation(0.0, space, f"{info.uid}.{i}") for i in range(space.size)]
    return found


def reward_values(infos: Sequence[Any], names: Sequence[str], what: str) -> FloatVector:
    """Return the rewards called ``names``, NaN where ``infos`` (palaestrAI's objects) leave one out.

    Raises :class:`ContractError` for one that is not among them; ``what`` says who gave it.
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
            vector[names.index(name)] = value
    return vector


class AdaptedStateTransformer(EnvironmentStateTransformer):
    """Asks a state transformer of palaestrAI; subclasses have its class in :attr:`wrapped_class`.

    As its documentation says, it changes what is stored: the world's state and the readings. (In
    palaestrAI, agents get what it has made of readings and rewards, too.) Its global generators are
    seeded anew for every episode.
    """

    wrapped_class: ClassVar[type]

    def __init__(self, **params: Any):
        self._generators = GlobalGenerators(0)
        with self._generators:
            #: the object of palaestrAI's class
            self.part = self.wrapped_class(**params)

    def _join(self, environment: World) -> None:
        """Take note of the environment, which knows the generator of the episode."""
        self._environment = environment

    def setup(self, baseline: EnvironmentBaseline) -> None:
        self._states = PalaestraiStates(baseline)
        self._readings = PalaestraiReadings(self._states.layout, "")

    def __call__(self, environment_state: EnvironmentState) -> EnvironmentState:
        state = copy(self._states(environment_state))
        # it may write to what it is given
        state.sensor_information = [_twin(info) for info in state.sensor_information]
        state.rewards = [_twin(info) for info in state.rewards]
        state.world_state = deepcopy(state.world_state)
        self._generators.renew(self._environment.rng, "state_transformer")
        with self._generators:
            found = self.part(state)
        return replace(
            environment_state,
            readings=self._readings.read(found.sensor_information, environment_state.readings),
            world_state=plain(found.world_state),
        )


def _twin(info: Any) -> Any:
    """Return a copy of one of palaestrAI's objects; copying them by the usual way takes long."""
    twin = object.__new__(type(info))
    twin.__dict__.update(info.__dict__)
    return twin

"""Environments that are written for palaestrAI: classes that derive from its ``Environment``."""

from __future__ import annotations

import asyncio
import inspect
import pickle
import threading
import warnings
from collections.abc import Callable, Coroutine, Sequence
from copy import deepcopy
from typing import Any, ClassVar, TypeVar

import numpy as np
import palaestrai.agent
import palaestrai.environment
from palaestrai.core.protocol import EnvironmentResetRequest

from palaestrai_mosaik import seeding
from palaestrai_mosaik.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.environment.environment import FloatVector, Reward
from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation
from palaestrai_mosaik.types.vectors import Layout

from .random_streams import Streams
from .reward import AdaptedReward, declared, reward_values
from .state import PalaestraiReadings, PalaestraiState, plain
from .translate import PalaestraiChannels, checked, our_actuator, our_sensor

T = TypeVar("T")


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
_LOOK = 0


class AdaptedEnvironment(Environment):
    """Runs an environment of palaestrAI; subclasses have its class in :attr:`theirs`.

    Which rewards there are, such a class tells with its first update only. So :meth:`setup` makes
    an object for looking at it, starts it, makes one step with set-points drawn from the actuators'
    spaces, and shuts it down. The object of the run is made when the first episode begins, and
    lives on from episode to episode: :meth:`reset` calls its ``reset``, whose default is ``shutdown``
    and ``start_environment``. It is given a seed of the run's tree, and global generators of
    its own (:class:`Streams`), seeded anew for every episode.

    ``update`` gets the actuators that agents have set at this step, in the environment's order.
    Methods may be coroutines.
    """

    theirs: ClassVar[type]
    #: parameters of the constructor that do not come from the document
    given: ClassVar[tuple[str, ...]] = ("uid", "broker_uri", "seed")
    hold_setpoints = False

    def __init__(self, **params: Any):
        self.params = params
        #: the object of palaestrAI's class, while there is one
        self.part: Any = None
        self._reward: AdaptedReward | None = None
        self._streams = Streams(_LOOK)
        self._coroutines = Coroutines()

    def takes_reward(self, reward: Reward) -> bool:
        """Take a reward of palaestrAI: there, environments ask for it themselves."""
        if not isinstance(reward, AdaptedReward):
            return False
        self._reward = reward
        return True

    def setup(self) -> EnvironmentBaseline:
        looked_at = self._make(_LOOK)
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
        self._streams.reseed(int(self.rng.integers(2**31)))
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
        return {"part": self.part, "streams": self._streams}

    def restore(self, state: Any) -> None:
        if state is not None:
            self.part, self._streams = state["part"], state["streams"]

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
        with self._streams, warnings.catch_warnings():
            # their base class warns of what it is given there, too
            warnings.filterwarnings("ignore", "broker_uri is deprecated", DeprecationWarning)
            part = self.theirs(**params)
            if self._reward is not None:
                part.reward = self._reward.make()
        part._uid, part._name = uid, self.uid
        if self.baseline is not None:
            # what palaestrAI notes of the baseline
            part._sensor_ids = [f"{self.uid}.{name}" for name in self._sensors.layout.uids]
            part._actuator_ids = [f"{self.uid}.{name}" for name in self._actuators.uids]
        return part

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        with self._streams:
            if inspect.iscoroutinefunction(method):
                return self._coroutines.run(method(*arguments))
            return method(*arguments)

    def _baseline(self, found: Any) -> Any:
        """Return what ``start_environment`` gave as palaestrAI's baseline; it may be a pair."""
        agent, whose = palaestrai.agent, f"environment {self.uid!r}: start_environment"
        found = _formed(found, palaestrai.environment.EnvironmentBaseline, whose, ("sensors", "actuators"))
        checked(found.sensors_available, agent.SensorInformation, f"{whose}, for sensors,")
        checked(found.actuators_available, agent.ActuatorInformation, f"{whose}, for actuators,")
        return found

    def _lay_out(
        self, sensors: Sequence[SensorInformation], actuators: Sequence[ActuatorInformation]
    ) -> None:
        layout = Layout([s.uid for s in sensors], [s.space for s in sensors])
        self._sensors = PalaestraiReadings(layout, self.uid)
        self._actuators = Layout([a.uid for a in actuators], [a.space for a in actuators])
        self._channels = PalaestraiChannels(self._actuators, palaestrai.agent.ActuatorInformation, gaps=True)

    def _drawn(self, actuators: Sequence[ActuatorInformation]) -> FloatVector:
        """Return set-points from the actuators' spaces; the same for the same actuators."""
        rng = seeding.generator(_LOOK, "set-points")
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
        agent, whose = palaestrai.agent, f"environment {self.uid!r}: update"
        found = _formed(
            self._call(part.update, infos),
            palaestrai.environment.EnvironmentState,
            whose,
            ("sensors", "rewards", "done"),
        )
        checked(found.sensor_information, agent.SensorInformation, f"{whose}, for sensors,")
        checked(found.rewards, agent.RewardInformation, f"{whose}, for rewards,")
        return found

    def _ours(self, state: Any, rewards: FloatVector) -> PalaestraiState:
        """Return our state for theirs; sensors that it leaves out keep their readings."""
        readings = self._readings = self._sensors.read(state.sensor_information, self._readings)
        done, truncated = bool(state.done), bool(state.truncated)
        return PalaestraiState(
            readings, rewards, done and not truncated, truncated, plain(state.world_state), state
        )


def _formed(found: Any, theirs: type, whose: str, parts: tuple[str, ...]) -> Any:
    """Return what a method of theirs gave as an object of ``theirs``; it may be a tuple of its ``parts``."""
    if isinstance(found, tuple) and len(found) == len(parts):
        found = theirs(*found)
    if not isinstance(found, theirs):
        raise ContractError(
            f"{whose} returned {found!r}; allowed are palaestrAI's {theirs.__name__} and ({', '.join(parts)})"
        )
    return found

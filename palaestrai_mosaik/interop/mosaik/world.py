"""The user's mosaik world as an environment, and its run with our agents in it.

The agents' simulators are started when the script runs its world, so the script may extend the world until then.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core.errors import ContractError, SimulationError, SpaceError, did_you_mean
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.environment.cosimulation import (
    ActuatorPort,
    CoSimulation,
    CoSimulationPlan,
    SensorPort,
)
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState, Reward
from palaestrai_mosaik.simulation import mosaik_internals as internals
from palaestrai_mosaik.simulation.bridge import BridgeSimulator, guarded
from palaestrai_mosaik.simulation.connections import MosaikConnection
from palaestrai_mosaik.simulation.episode import Episode
from palaestrai_mosaik.simulation.mosaik_internals import new_sid
from palaestrai_mosaik.simulation.scheduler.versions import runners
from palaestrai_mosaik.simulation.world_builder import WorldBuilder
from palaestrai_mosaik.simulation.world_run import explain
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    RewardInformation,
    SensorInformation,
    Space,
)
from palaestrai_mosaik.types.arrays import FloatVector

if TYPE_CHECKING:
    from .agent import Agent, Sensors


def whole(what: str, value: Any, least: int | None = None) -> int:
    """Return ``value`` as an integer. Raises :class:`ContractError` for other types, and below ``least``."""
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not integer or (least is not None and value < least):
        bound = "" if least is None else f", at least {least}"
        raise ContractError(f"{what} must be a whole number{bound}, found {value!r}")
    return int(value)


def missing_in(space: Space) -> Any:
    """Return the reading of a missing value: NaN, or ``None`` if ``space`` has integers."""
    return None if space.flat_integral.any() else space.unflatten(np.full(space.size, np.nan))


def reading_of(space: Space, sensor: str) -> Callable[[Any], Any]:
    """Create a function that converts an entity's values to readings; ``sensor`` is the name for messages.

    A missing value (``None``) becomes NaN, a boolean a number. The function raises :class:`ContractError` for NaN, and
    for values that do not fit ``space``, except for its bounds.
    """
    missing = missing_in(space)
    plain = space.size == 1 and missing is not None

    def reading(value: Any) -> Any:
        if plain and type(value) is float and value == value:  # noqa: PLR0124 (NaN)
            return value
        if value is None:
            if missing is None:
                raise ContractError(
                    f"sensor {sensor!r} has no value yet, which whole numbers cannot say: give it a Box in place of {space}"
                )
            return missing
        elements = np.asarray(value, dtype=object)
        if all(isinstance(element, bool | np.bool_) for element in elements.flat):
            value = elements.astype(np.float64)
        try:
            # unflatten checks for integers
            flat = space.flatten(value)
            space.unflatten(flat)
            if np.isnan(flat).any():
                raise SpaceError("it is NaN; an entity without a value gives None")
        except SpaceError as error:
            raise ContractError(f"what sensor {sensor!r} gave is no reading: {value!r} ({error})") from None
        return value

    return reading


#: the uid of the environment, with which the ids of sensors, actuators and rewards begin
WORLD = "world"
_ANY = Box(-np.inf, np.inf, shape=())

#: a function that computes a reward from the readings
RewardFunction = Callable[["Readings"], float]
Rewards = Reward | RewardFunction | Mapping[str, RewardFunction]


class Readings(Mapping[Any, Any]):
    """The readings at one time: ``readings["Grid-0.bus_1.vm_pu"]``, or ``readings[bus, "vm_pu"]``.

    Values are plain numbers, or arrays if a sensor has several elements.

    Args:
        sensors: for each sensor (``entity.attribute``), its indices in ``vector`` and its space.
        vector: the readings of all sensors, (readings,).
        time: mosaik's time, in ticks.
    """

    def __init__(self, sensors: Mapping[str, tuple[slice, Space]], vector: FloatVector, time: int):
        self._sensors = sensors
        self._vector = vector
        #: mosaik's time, in ticks
        self.time = time

    def __getitem__(self, key: Any) -> Any:
        uid = key if isinstance(key, str) else f"{full_id(key[0])}.{key[1]}"
        if uid not in self._sensors:
            raise KeyError(
                f"{uid!r} is no sensor{did_you_mean(uid, self._sensors)}; those are {listed(list(self._sensors), 8)}"
            )
        indices, space = self._sensors[uid]
        return space.unflatten(self._vector[indices])

    def __iter__(self) -> Iterator[str]:
        return iter(self._sensors)

    def __len__(self) -> int:
        return len(self._sensors)


class Scenario(CoSimulation):
    """The world of a script. An episode ends at the script's ``until``, or if ``ends`` returns true.

    ``observed`` are additional sensors for rewards and ``ends``, which no agent observes.
    """

    def __init__(
        self,
        agents: Sequence[Agent],
        observed: Sensors,
        step_size: int,
        rewards: Mapping[str, RewardFunction],
        ends: Callable[[Readings], bool] | None,
    ):
        self.uid = WORLD
        self.step_size = whole("step_size (in ticks)", step_size, 1)
        if ends is not None and not callable(ends):
            raise ContractError(f"ends is no function of the readings, but {ends!r}")
        self._rewards, self._ends = rewards, ends
        #: the end of mosaik's run (exclusive)
        self.until = 0
        self._sensors: dict[str, SensorPort] = {}
        self._actuators: dict[str, ActuatorPort] = {}
        #: for each agent, the ids of its sensors and actuators
        self.owned: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        #: entities that the script passed as objects, by full id
        self.entities: dict[str, Any] = {}
        for agent in agents:
            where = f"agent {agent.name!r}"
            sensors = tuple(
                self._sensor(where, *channel) for channel in _attributes(where, "sensors", agent.sensors)
            )
            actuators = tuple(
                self._actuator(where, *channel)
                for channel in _attributes(where, "actuators", agent.actuators)
            )
            self.owned[agent.name] = sensors, actuators
        for channel in _attributes("attach_agents", "sensors", observed):
            self._sensor("attach_agents", *channel)

    def setup(self) -> EnvironmentBaseline:
        sensors = [port.information for port in self._sensors.values()]
        ends = np.cumsum([0, *(sensor.space.size for sensor in sensors)])
        self._places = {
            sensor.uid: (slice(int(ends[i]), int(ends[i + 1])), sensor.space)
            for i, sensor in enumerate(sensors)
        }
        return EnvironmentBaseline(
            sensors,
            [port.information for port in self._actuators.values()],
            [RewardInformation(0.0, _ANY, name) for name in self._rewards],
        )

    def plan(self) -> CoSimulationPlan:
        return CoSimulationPlan([], [], [], list(self._sensors.values()), list(self._actuators.values()))

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Compute the rewards; terminate if ``ends`` returns true, truncate at the last state before ``until``."""
        readings_by_name = Readings(self._places, readings, time)
        rewards = [_reward(name, function(readings_by_name)) for name, function in self._rewards.items()]
        terminated = self._ends is not None and bool(self._ends(readings_by_name))
        truncated = time + self.step_size >= self.until
        return EnvironmentState(readings, rewards, terminated, truncated)

    def begins(self, until: Any) -> None:
        """Set the end of mosaik's run. Raises :class:`ContractError` if agents would never act."""
        self.until = whole("until", until, 1)
        if self.step_size >= self.until:
            raise ContractError(
                f"the world is run until {self.until}, and agents act every {self.step_size} ticks (step_size): "
                "nobody would ever act"
            )

    @property
    def can_end(self) -> bool:
        """Whether the world may end before ``until``."""
        return self._ends is not None

    @property
    def readings(self) -> Mapping[tuple[str, str], tuple[Any, Callable[[Any], Any]]]:
        """By full id of an entity and attribute: the reading of a missing value, and the conversion to readings."""
        sensors = [(port, port.information) for port in self._sensors.values()]
        return {
            (port.entity, port.attribute): (missing_in(sensor.space), reading_of(sensor.space, sensor.uid))
            for port, sensor in sensors
        }

    @property
    def wanted(self) -> list[tuple[str, str, bool]]:
        """The required attributes: full id of the entity, attribute, whether it is set."""
        read = [(port.entity, port.attribute, False) for port in self._sensors.values()]
        return read + [(port.entity, port.attribute, True) for port in self._actuators.values()]

    def _sensor(self, where: str, entity: Any, attribute: str, requested: Any) -> str:
        space = _ANY if requested is None else _space(where, attribute, requested)
        name = self._name(entity)
        uid = f"{name}.{attribute}"
        port = self._sensors.get(uid)
        if port is None:
            self._sensors[uid] = SensorPort(
                SensorInformation(None, space, uid, may_be_missing=True), name, attribute
            )
        elif requested is not None and port.information.space != space:
            raise ContractError(
                f"{where}: sensor {uid!r} has the space {space}, but {port.information.space} elsewhere; it has one"
            )
        return f"{WORLD}.{uid}"

    def _actuator(self, where: str, entity: Any, attribute: str, requested: Any) -> str:
        name = self._name(entity)
        uid = f"{name}.{attribute}"
        if requested is None:
            raise ContractError(
                f"{where}: actuator {uid!r} needs a space, as in {{{attribute!r}: Box(-1, 1)}}"
            )
        if uid in self._actuators:
            raise ContractError(f"{where}: actuator {uid!r} is set twice; it belongs to one agent")
        first: Any = None
        if isinstance(requested, tuple):
            if len(requested) != 2:
                raise ContractError(
                    f"{where}: actuator {uid!r} has a space, or (space, value), found {requested!r}"
                )
            requested, first = requested
        space = _space(where, attribute, requested)
        zeros = np.zeros(space.size)
        try:
            value = space.unflatten(zeros) if first is None else first
            information = ActuatorInformation(value, space, uid)
        except (SpaceError, ContractError, ValueError) as error:
            raise ContractError(
                f"{where}: what {uid!r} gets before the agent acts must lie in {space}, and is "
                f"{0.0 if first is None else first!r}; give (space, value)"
            ) from error
        self._actuators[uid] = ActuatorPort(information, name, attribute)
        return f"{WORLD}.{uid}"

    def _name(self, entity: Any) -> str:
        name = full_id(entity)
        if not isinstance(entity, str):
            self.entities[name] = entity
        return name


def full_id(entity: Any) -> str:
    """Return the full id of a mosaik entity; a text is returned unchanged."""
    name = entity if isinstance(entity, str) else getattr(entity, "full_id", None)
    if not isinstance(name, str):
        raise ContractError(f"an entity of mosaik or its full id is needed, not {entity!r}")
    return name


def found_in(entities: Any) -> dict[str, Any]:
    """Return one or many entities and all their descendants, by full id."""
    by_id: dict[str, Any] = {}
    roots = entities if isinstance(entities, Iterable) and not isinstance(entities, str) else [entities]
    for entity in roots:
        if not hasattr(entity, "model_mock"):
            raise ContractError(
                f"entities are what models of mosaik have made (not their ids), found {entity!r}"
            )
        by_id[full_id(entity)] = entity
        by_id |= found_in(entity.children)
    return by_id


def check_wanted(wanted: Iterable[tuple[str, str, bool]], entities: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` if ``entities`` (by full id) lack required attributes."""
    for name, attribute, is_set in wanted:
        entity = entities.get(name)
        if entity is None:
            raise ContractError(
                f"there is no entity {name!r}{did_you_mean(name, entities)}: give it to attach, or one whose child "
                f"it is; given are {listed(list(entities), 8) or 'none'}"
            )
        model = entity.model_mock
        attributes = model.input_attrs if is_set else model.output_attrs
        if attribute not in attributes:
            names = _names(attributes)
            kind = "input" if is_set else "output"
            raise ContractError(
                f"{name} ({entity.type}) has no {kind} {attribute!r}{did_you_mean(attribute, names)}"
                + (f"; it has {listed(names, 12)}" if names else "")
            )
        if not is_set and attribute in model.event_outputs:
            raise ContractError(
                f"{name}.{attribute} is an event: it has a value only at times when it happens, so it cannot be a "
                "sensor; connect it to a simulator that keeps the last value"
            )


def _reward(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ContractError(f"reward {name!r} must be a number, found {value!r}") from None


def _names(attributes: Any) -> list[str]:
    try:
        return sorted(attributes)
    except TypeError:
        return []  # mosaik's set of all attributes


def _attributes(where: str, kind: str, channels: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield entity, attribute, and its space or ``None``."""
    if not isinstance(channels, Mapping):
        raise ContractError(f"{where}: {kind} is a mapping of entities to attributes, found {channels!r}")
    for entity, attributes in channels.items():
        if isinstance(attributes, str):
            attributes = [attributes]
        if not isinstance(attributes, Iterable) or not all(isinstance(name, str) for name in attributes):
            raise ContractError(
                f"{where}: {kind} of {full_id(entity)!r} are names of attributes, or a mapping of them to spaces, "
                f"found {attributes!r}"
            )
        for attribute in attributes:
            yield entity, attribute, attributes[attribute] if isinstance(attributes, Mapping) else None


def _space(where: str, attribute: str, space: Any) -> Space:
    if isinstance(space, str):
        space = Space.from_string(space)
    if not isinstance(space, Space):
        raise ContractError(f"{where}: {attribute!r} needs a space such as Box(0, 1), found {space!r}")
    if isinstance(space, Box) and space.shape == (1,):
        # mosaik attributes are usually plain numbers, not lists of one
        return Box(space.low[0], space.high[0], shape=(), dtype=space.dtype)
    return space


#: the name of our simulator in ``sim_config``
_STARTER = "palaestrai-mosaik"
#: seconds to wait for simulators that are stepping: at the regular end of the world, and after a failure or Ctrl-C
_PATIENCE, _HURRIED = 30.0, 2.0
_POLL = 0.05

#: runs the world: mosaik's ``AsyncWorld.run`` with all its arguments
Run = Callable[[], Awaitable[Any]]


class ScenarioWorldBuilder(WorldBuilder):
    """Adds the agents to a world built by the user."""

    def __init__(self, episode: Episode, world: Any, entities: Mapping[str, Any]):
        super().__init__(episode)
        self.world = world
        (handle,) = self.handles
        assert isinstance(handle.domain, Scenario)
        self.scenario = handle.domain
        self.readings = handle.domain.readings
        self.entities = {(0, name): entity for name, entity in entities.items()}
        # any simulator may be in another process, so values sent to it must be plain data
        self.timeouts = {entity.sid: math.inf for entity in entities.values()}
        self.ended_early = False

    async def build(self) -> None:
        """Start the simulators of the agents and the coordinator, and connect them to the entities."""
        links, watching = guarded(self._prepare, "a muscle")
        config: dict[str, Any] = {**(self.world.sim_config or {}), _STARTER: internals.HANDED_OVER}
        self.world.sim_config = config
        await self._build_agents(links, watching)
        if self.scenario.can_end:
            internals.keep_in_step(self.world, self.coordinator_sid, self.agents)

    def _own_sid(self, name: str) -> str:
        # avoid names of the user's simulators
        return new_sid(name, "", [runner.sid for runner in runners(self.world)])

    async def _start_ours(self, sid: str, simulator: BridgeSimulator) -> Any:
        simulator.failures = self.failures
        internals.hand_over(simulator)
        factory = self.factories[sid] = await self.world.start(_STARTER, sim_id=sid)
        return factory

    def _plug(self, link: MosaikConnection, agent: Any, outward: bool = False) -> None:
        if outward:
            super()._plug(link, agent, outward)
            return
        entity = self.entities[link.environment, link.entity]
        missing, convert = self.readings[link.entity, link.source]
        # without mosaik's cache, a missing value would reach the agent as an unconverted None
        initial = None if self.world.use_cache else missing
        self._connect(entity, agent, (link.source, link.target), 0, initial, convert)

    def _stop(self, time: int) -> None:
        """Stop the world at ``time`` if it ends early; otherwise, let other simulators finish."""
        if self.handles[0].terminated:
            self.ended_early = True
            internals.stop(self.world, time)


async def run_episode(episode: Episode, world: Any, entities: Mapping[str, Any], run: Run) -> None:
    """Add the agents to mosaik's asynchronous ``world``, and run it to its end.

    Raises exceptions of user code, and :class:`SimulationError` if a simulator failed but mosaik ignores it. No task of
    the world is left running.
    """
    builder = ScenarioWorldBuilder(episode, world, entities)
    await builder.build()
    internals.mend_progress(world)
    main = asyncio.ensure_future(run())
    patience = _HURRIED
    try:
        await asyncio.wait([main])
        if builder.failures:
            raise builder.failures[0]
        if not builder.ended_early:
            _raise_failure(main)
        patience = _PATIENCE
    finally:
        await _end_tasks(main, world, patience)
    if not episode.coordinator.over:
        raise _cause(world)


def _raise_failure(main: asyncio.Future[Any]) -> None:
    error = main.exception()
    if error is not None:
        # an error in a remote simulator, which mosaik's run would only log
        sid = getattr(error, "source", None)
        raise error if sid is None else explain(sid, error, remote=True)


async def _end_tasks(main: asyncio.Future[Any], world: Any, patience: float) -> None:
    """Let simulators finish their current step, then cancel all tasks."""
    tasks = [runner.task for runner in runners(world) if runner.task is not None]
    waited = 0.0
    while not all(task.done() for task in tasks) and waited < patience:
        internals.cancel_idle(world)
        await asyncio.wait(tasks, timeout=_POLL)
        waited += _POLL
    for task in (*tasks, main):
        task.cancel()
    await asyncio.gather(*tasks, main, return_exceptions=True)


def _cause(world: Any) -> BaseException:
    """Return the error that ended the world early, including errors that mosaik did not raise."""
    for runner in runners(world):
        task = runner.task
        error = task.exception() if task is not None and task.done() and not task.cancelled() else None
        if error is not None:
            return explain(runner.sid, error, remote=True)
    return SimulationError("the world ended before its end was reached; was it interrupted?")

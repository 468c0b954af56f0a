"""A user's mosaik world as an environment: which attributes of which entities are sensors and actuators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.environment.cosimulation import (
    ActuatorPort,
    CoSimulation,
    CoSimulationPlan,
    SensorPort,
)
from palaestrai_mosaik.environment.environment import EnvironmentBaseline, EnvironmentState, Reward
from palaestrai_mosaik.errors import ContractError, SpaceError, did_you_mean
from palaestrai_mosaik.text import listed
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Box,
    RewardInformation,
    SensorInformation,
    Space,
)
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.spaces import parse_space

if TYPE_CHECKING:
    from .agent import Agent, Sensors


def whole(what: str, given: Any, least: int | None = None) -> int:
    """Return ``given`` as a whole number; ``what`` it is, for the message. Raises :class:`ContractError`."""
    integer = isinstance(given, int | np.integer) and not isinstance(given, bool)
    if not integer or (least is not None and given < least):
        bound = "" if least is None else f", at least {least}"
        raise ContractError(f"{what} must be a whole number{bound}, found {given!r}")
    return int(given)


def missing_in(space: Space) -> Any:
    """Return the reading of what is not there yet: NaN; ``None`` where ``space`` is of whole numbers."""
    return None if space.flat_integral.any() else space.unflatten(np.full(space.size, np.nan))


def reading_of(space: Space, sensor: str) -> Callable[[Any], Any]:
    """Return what makes a reading of the values that an entity gives; ``sensor``: for the message.

    What is not there yet (``None``) is NaN, a truth value a number. Raises :class:`ContractError` for
    what is no value of ``space`` (its bounds are not asked).
    """
    missing = missing_in(space)
    plain = space.size == 1 and missing is not None

    def reading(value: Any) -> Any:
        if plain and type(value) is float:
            return value
        if value is None:
            if missing is None:
                raise ContractError(
                    f"sensor {sensor!r} has no value yet, which whole numbers cannot say: give it a Box in place of {space}"
                )
            return missing
        known = np.asarray(value, dtype=object)
        if all(isinstance(one, bool | np.bool_) for one in known.flat):
            value = known.astype(np.float64)
        try:
            # whole numbers, where there must be
            space.unflatten(space.flatten(value))
        except SpaceError as error:
            raise ContractError(f"what sensor {sensor!r} gave is no reading: {value!r} ({error})") from None
        return value

    return reading


#: its uid: ids of sensors, actuators and rewards begin with it
WORLD = "world"
_ANY = Box(-np.inf, np.inf, shape=())

#: a reward, by its function of the readings
RewardFunction = Callable[["Readings"], float]
Rewards = Reward | RewardFunction | Mapping[str, RewardFunction]


class Readings(Mapping[Any, Any]):
    """The readings of one time: ``readings["Grid-0.bus_1.vm_pu"]``, or ``readings[bus, "vm_pu"]``.

    Values are plain numbers, or arrays where a sensor has several places.
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
        place, space = self._sensors[uid]
        return space.unflatten(self._vector[place])

    def __iter__(self) -> Iterator[str]:
        return iter(self._sensors)

    def __len__(self) -> int:
        return len(self._sensors)


class Scenario(CoSimulation):
    """The world of a script. It ends with the script's ``until``, or where ``ends`` says so.

    ``observed`` are sensors that no agent has, for rewards and ``ends``.
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
        #: mosaik's end of the run (exclusive)
        self.until = 0
        self._sensors: dict[str, SensorPort] = {}
        self._actuators: dict[str, ActuatorPort] = {}
        #: for each agent, the ids of its sensors and actuators
        self.owned: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
        #: the entities that the script named by themselves, by full id
        self.entities: dict[str, Any] = {}
        for agent in agents:
            where = f"agent {agent.name!r}"
            seen = tuple(self._sensor(where, *one) for one in _attributes(where, "sensors", agent.sensors))
            acted = tuple(
                self._actuator(where, *one) for one in _attributes(where, "actuators", agent.actuators)
            )
            self.owned[agent.name] = seen, acted
        for one in _attributes("attach_agents", "sensors", observed):
            self._sensor("attach_agents", *one)

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
        """Compute the rewards; truncated with the last state before ``until``, terminated where ``ends`` says so."""
        seen = Readings(self._places, readings, time)
        rewards = [_reward(name, function(seen)) for name, function in self._rewards.items()]
        terminated = self._ends is not None and bool(self._ends(seen))
        truncated = not terminated and time + self.step_size >= self.until
        return EnvironmentState(readings, rewards, terminated, truncated)

    def begins(self, until: Any) -> None:
        """Take note that mosaik runs the world until ``until``. Raises :class:`ContractError`, if nobody acts."""
        self.until = whole("until", until, 1)
        if self.step_size >= self.until:
            raise ContractError(
                f"the world is run until {self.until}, and agents act every {self.step_size} ticks (step_size): "
                "nobody would ever act"
            )

    @property
    def can_end(self) -> bool:
        """Whether it may end before ``until``."""
        return self._ends is not None

    @property
    def readings(self) -> Mapping[tuple[str, str], tuple[Any, Callable[[Any], Any]]]:
        """The reading of what is not there yet, and what makes readings, by full id of an entity and attribute."""
        sensors = [(port, port.information) for port in self._sensors.values()]
        return {
            (port.entity, port.attribute): (missing_in(sensor.space), reading_of(sensor.space, sensor.uid))
            for port, sensor in sensors
        }

    @property
    def wanted(self) -> list[tuple[str, str, bool]]:
        """Full id of an entity, attribute, whether it is set: everything that must be there."""
        read = [(port.entity, port.attribute, False) for port in self._sensors.values()]
        return read + [(port.entity, port.attribute, True) for port in self._actuators.values()]

    def _sensor(self, where: str, entity: Any, attribute: str, given: Any) -> str:
        space = _ANY if given is None else _space(where, attribute, given)
        name = self._name(entity)
        uid = f"{name}.{attribute}"
        known = self._sensors.get(uid)
        if known is None:
            self._sensors[uid] = SensorPort(SensorInformation(None, space, uid), name, attribute)
        elif given is not None and known.information.space != space:
            raise ContractError(
                f"{where}: sensor {uid!r} has the space {space}, but {known.information.space} elsewhere; it has one"
            )
        return f"{WORLD}.{uid}"

    def _actuator(self, where: str, entity: Any, attribute: str, given: Any) -> str:
        name = self._name(entity)
        uid = f"{name}.{attribute}"
        if given is None:
            raise ContractError(
                f"{where}: actuator {uid!r} needs a space, as in {{{attribute!r}: Box(-1, 1)}}"
            )
        if uid in self._actuators:
            raise ContractError(f"{where}: actuator {uid!r} is set twice; it belongs to one agent")
        first: Any = None
        if isinstance(given, tuple):
            if len(given) != 2:
                raise ContractError(
                    f"{where}: actuator {uid!r} has a space, or (space, value), found {given!r}"
                )
            given, first = given
        space = _space(where, attribute, given)
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
    """Return mosaik's full id of an entity, or the text that is one."""
    name = entity if isinstance(entity, str) else getattr(entity, "full_id", None)
    if not isinstance(name, str):
        raise ContractError(f"an entity of mosaik or its full id is needed, not {entity!r}")
    return name


def found_in(entities: Any) -> dict[str, Any]:
    """Return entities and all their children by full id; ``entities`` is one, or many."""
    found: dict[str, Any] = {}
    given = entities if isinstance(entities, Iterable) and not isinstance(entities, str) else [entities]
    for entity in given:
        if not hasattr(entity, "model_mock"):
            raise ContractError(
                f"entities are what models of mosaik have made (not their ids), found {entity!r}"
            )
        found[full_id(entity)] = entity
        found |= found_in(entity.children)
    return found


def check_wanted(wanted: Iterable[tuple[str, str, bool]], entities: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` where ``entities`` (by full id) lack what agents see or set."""
    for name, attribute, is_set in wanted:
        entity = entities.get(name)
        if entity is None:
            raise ContractError(
                f"there is no entity {name!r}{did_you_mean(name, entities)}: give it to attach, or one whose child "
                f"it is; given are {listed(list(entities), 8) or 'none'}"
            )
        model = entity.model_mock
        there = model.input_attrs if is_set else model.output_attrs
        if attribute not in there:
            names = _names(there)
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


def _reward(name: str, found: Any) -> float:
    try:
        return float(found)
    except (TypeError, ValueError):
        raise ContractError(f"reward {name!r} must be a number, found {found!r}") from None


def _names(attributes: Any) -> list[str]:
    try:
        return sorted(attributes)
    except TypeError:
        return []  # mosaik's set of everything


def _attributes(where: str, kind: str, given: Any) -> Iterator[tuple[Any, str, Any]]:
    """Yield (entity, attribute, space as it is given)."""
    if not isinstance(given, Mapping):
        raise ContractError(f"{where}: {kind} is a mapping of entities to attributes, found {given!r}")
    for entity, attributes in given.items():
        if isinstance(attributes, str):
            attributes = [attributes]
        if not isinstance(attributes, Iterable) or not all(isinstance(one, str) for one in attributes):
            raise ContractError(
                f"{where}: {kind} of {full_id(entity)!r} are names of attributes, or a mapping of them to spaces, "
                f"found {attributes!r}"
            )
        for attribute in attributes:
            yield entity, attribute, attributes[attribute] if isinstance(attributes, Mapping) else None


def _space(where: str, attribute: str, given: Any) -> Space:
    if isinstance(given, str):
        given = parse_space(given)
    if not isinstance(given, Space):
        raise ContractError(f"{where}: {attribute!r} needs a space such as Box(0, 1), found {given!r}")
    if isinstance(given, Box) and given.shape == (1,):
        # an attribute of mosaik is a plain number far more often than a list of one
        return Box(given.low[0], given.high[0], shape=(), dtype=given.dtype)
    return given

"""The way of values between environments and agents: channels, wires, and the mosaik connections below them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import ContractError, SpaceError
from palaestrai_mosaik.environment.batch import BatchEnvironment
from palaestrai_mosaik.environment.cosimulation import CoSimulation, CoSimulationPlan
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.spaces import Space
from palaestrai_mosaik.types.vectors import Layout

from .environment_handle import EnvironmentHandle, Places, places


class Channels:
    """The channels of one agent; ``sensors`` and ``actuators`` are full ids, no patterns."""

    def __init__(
        self, handles: Sequence[EnvironmentHandle], sensors: Sequence[str], actuators: Sequence[str]
    ):
        read = [self._handle_of(handles, uid) for uid in sensors]
        used = {*read, *(self._handle_of(handles, uid) for uid in actuators)}
        #: the environments (or incarnations) that it reads from or acts in, in the document's order
        self.handles = tuple(sorted(used, key=lambda handle: (handles.index(handle.root), handle.number)))
        #: the environments that make this agent act by new readings
        self.watched = frozenset(read) or frozenset(used)
        self.rewards = [f"{handle.uid}.{reward.uid}" for handle in self.handles for reward in handle.rewards]
        self.sensors = self._select(handles, "sensors", sensors)
        self.actuators = self._select(handles, "actuators", actuators)
        #: for each environment, the indices of readings in its state and in the agent's vector
        self._places: list[tuple[Places, Places]] = []
        for handle in self.handles:
            take: list[int] = []
            put: list[int] = []
            for uid, source, part in zip(sensors, read, self.sensors.slices, strict=True):
                if source is handle:
                    take += _range(handle.sensors.slices[handle.sensors.index[uid]])
                    put += _range(part)
            self._places.append((places(take), places(put)))
        #: the indices of all readings in the environment's state, if there is only one environment
        self.alone = self._places[0][0] if len(self.handles) == 1 else None

    def readings(self) -> FloatVector:
        """Return the newest readings of the environments: (readings,)."""
        return self.pick([handle.vector for handle in self.handles])

    def pick(self, states: Sequence[FloatVector]) -> FloatVector:
        """Extract the readings (readings,) from the state vectors of all ``handles``, in order."""
        vector = np.empty(self.sensors.size)
        for state, (take, put) in zip(states, self._places, strict=True):
            vector[put] = state[take]
        return vector

    @staticmethod
    def _handle_of(handles: Sequence[EnvironmentHandle], uid: str) -> EnvironmentHandle:
        for handle in handles:
            channel_handle = handle.handle_of(uid)
            if channel_handle is not None:
                return channel_handle
        raise ContractError(f"no environment offers {uid!r}")

    def _select(self, handles: Sequence[EnvironmentHandle], kind: str, uids: Sequence[str]) -> Layout:
        spaces = []
        for uid in uids:
            layout: Layout = getattr(self._handle_of(handles, uid), kind)
            if uid not in layout.index:
                raise ContractError(f"{uid!r} is none of the {kind}")
            spaces.append(layout.spaces[layout.index[uid]])
        return Layout(uids, spaces)


def _range(part: slice) -> range:
    return range(part.start, part.stop)


#: the attribute of an agent with the newest states of its environments; with the @, it cannot be a channel's name
STATES = "@states"


@dataclass(frozen=True, slots=True)
class InputWire:
    """Copies elements of a mosaik input into a vector.

    ``attribute`` is the input's name at the receiving entity; ``take`` the indices in the
    source vector (``None``: the source is one plain value, converted by ``flatten``),
    ``put`` the indices in the receiver's vector. With ``at``, the plain value is a single number, which
    ``flatten`` returns, for this index.
    """

    attribute: str
    take: Places | None
    put: Places
    flatten: Any = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class OutputWire:
    """Sends an agent's set-points to one mosaik input.

    ``take`` are the indices in the agent's set-point vector (``whole``: all). ``put``: their indices in the
    environment's set-point vector, or in a vector attribute of length ``size``; ``None`` if
    the attribute takes a plain value, which ``unflatten`` makes. With ``at``, it makes it from the single
    number at this index. ``step_size`` is that of the environment, for a packet.
    """

    attribute: str
    take: Places
    whole: bool
    put: Places | None
    kind: str
    size: int = 0
    unflatten: Any = None
    initial: Any = None
    at: int | None = None
    step_size: int = 1


@dataclass(frozen=True, slots=True)
class MosaikConnection:
    """A mosaik connection between an environment's entity and an agent or the coordinator.

    ``entity`` is an entity uid of the environment; ``""`` is its own simulator.
    """

    environment: int
    entity: str
    source: str
    target: str
    initial: Any = None


def shared_actuators(
    handles: Sequence[EnvironmentHandle], owned: Sequence[tuple[str, Sequence[str]]]
) -> list[tuple[int, str]]:
    """Return the problems of actuators in co-simulations that several agents own.

    ``owned``: name and actuators of every agent. Each problem comes with the index in
    ``owned`` of the later owner.
    """
    groups = [handle for handle in handles if isinstance(handle.domain, CoSimulation)]
    in_groups = {uid for handle in groups for uid in handle.actuators.uids}
    owners: dict[str, str] = {}
    problems = []
    for index, (name, uids) in enumerate(owned):
        shared = [uid for uid in uids if uid in owners]
        if shared:
            more = f" (and {len(shared) - 1} more)" if len(shared) > 1 else ""
            message = (
                f"actuator {shared[0]!r}{more} belongs to {owners[shared[0]]} and to {name}; in a co-simulation "
                "an actuator has one owner, because mosaik gives both values to the entity without an order"
            )
            problems.append((index, message))
        owners |= dict.fromkeys((uid for uid in uids if uid in in_groups), name)
    return problems


def read(wires: Sequence[InputWire], inputs: Mapping[str, Mapping[str, Any]], size: int) -> FloatVector:
    """Gather a read-only vector of length ``size`` from mosaik's inputs of one entity."""
    vector = np.empty(size)
    for wire in wires:
        (value,) = inputs[wire.attribute].values()
        try:
            if wire.at is not None:
                vector[wire.at] = wire.flatten(value)
            elif wire.take is None:
                vector[wire.put] = wire.flatten(value)
            else:
                vector[wire.put] = np.asarray(value, dtype=np.float64)[wire.take]
        except (SpaceError, TypeError, ValueError, IndexError) as error:
            if value is None:
                # whether it may be missing is checked with all other values
                vector[wire.put] = np.nan
                continue
            message = f"what came from {wire.attribute!r} is no reading: {value!r} ({error})"
            raise ContractError(message) from error
    vector.setflags(write=False)
    return vector


@dataclass(frozen=True)
class EnvironmentPlans:
    """The environments of a world with their plans, as targets of connections."""

    handles: Sequence[EnvironmentHandle]
    plans: Sequence[CoSimulationPlan | None]

    def find(
        self, plugged: Sequence[EnvironmentHandle], uid: str, kind: str
    ) -> tuple[int, EnvironmentHandle, int]:
        """Return the environment's index, its handle, and the channel's index in it."""
        for handle in plugged:
            i = getattr(handle, kind).index.get(uid)
            if i is not None:
                return self.handles.index(handle.root), handle, i
        raise ContractError(f"no environment offers the {kind[:-1]} {uid!r}")


def wire_sensors(
    sockets: EnvironmentPlans, plugged: Sequence[EnvironmentHandle], uids: Sequence[str]
) -> tuple[list[InputWire], list[MosaikConnection]]:
    """Make wires from the sensors ``uids`` (full ids) of co-simulations to a vector in their order."""
    groups: dict[tuple[int, str, str], tuple[list[int], list[int], Space | None]] = {}
    position = 0
    for uid in uids:
        e, handle, i = sockets.find(plugged, uid, "sensors")
        space, plan = handle.sensors.spaces[i], sockets.plans[e]
        assert plan is not None
        sensor = plan.sensors[i]
        put = list(range(position, position + space.size))
        position += space.size
        if sensor.index is None:
            # a plain value has a separate wire, even if other sensors use the same attribute
            groups[e, sensor.entity, sensor.attribute + "\0" + uid] = ([], put, space)
            continue
        taken, placed, _ = groups.setdefault((e, sensor.entity, sensor.attribute), ([], [], None))
        taken.append(sensor.index)
        placed += put
    wires: list[InputWire] = []
    links: list[MosaikConnection] = []
    for (e, entity, attribute), (take, put, plain) in groups.items():
        source = attribute.split("\0")[0]
        # with the environment's index, because uids and entities may contain dots
        target = ".".join(part for part in (f"{e}-{sockets.handles[e].uid}", entity, source) if part)
        if not take:
            target += f"#{len(wires)}"
        if plain is None:
            wires.append(InputWire(target, places(take), places(put)))
        elif plain.size == 1:
            wires.append(InputWire(target, None, places(put), plain.to_number, at=put[0]))
        else:
            wires.append(InputWire(target, None, places(put), plain.flatten))
        links.append(MosaikConnection(e, entity, source, target))
    return wires, links


def wire_actuators(
    sockets: EnvironmentPlans, plugged: Sequence[EnvironmentHandle], uids: Sequence[str]
) -> tuple[list[OutputWire], list[MosaikConnection]]:
    """Make wires from a set-point vector in the order of ``uids`` to the actuators of ``plugged``."""
    groups: dict[tuple[int, str, str], tuple[list[int], list[int], Any]] = {}
    wires: list[OutputWire] = []
    links: list[MosaikConnection] = []
    position = 0
    for uid in uids:
        e, handle, i = sockets.find(plugged, uid, "actuators")
        part, space = handle.actuators.slices[i], handle.actuators.spaces[i]
        take = list(range(position, position + space.size))
        position += space.size
        plan = sockets.plans[e]
        if plan is None:
            key, put, size = (e, handle.entity, "setpoints"), list(range(part.start, part.stop)), 0
        else:
            actuator = plan.actuators[i]
            if actuator.index is None:
                name = f"{handle.uid}.{actuator.entity}.{actuator.attribute}"
                value = actuator.information.value
                convert, at = (space.from_number, take[0]) if space.size == 1 else (space.unflatten, None)
                wires.append(OutputWire(name, places(take), False, None, "value", 0, convert, value, at))
                links.append(MosaikConnection(e, actuator.entity, name, actuator.attribute, value))
                continue
            key, put, size = (e, actuator.entity, actuator.attribute), [actuator.index], actuator.size
        taken, placed, _ = groups.setdefault(key, ([], [], size))
        taken += take
        placed += put
    for (e, entity, attribute), (taken, placed, size) in groups.items():
        name = ".".join(part for part in (f"{e}-{sockets.handles[e].uid}", entity, attribute) if part)
        # only attributes of a co-simulation have a size
        kind = "vector" if size else "packet"
        initial, step_size = np.full(size, np.nan) if size else (), sockets.handles[e].step_size
        indices = places(taken), taken == list(range(position)), places(placed)
        wires.append(OutputWire(name, *indices, kind, size, initial=initial, step_size=step_size))
        links.append(MosaikConnection(e, entity, name, attribute, initial))
    return wires, links


def plans_of(handles: Sequence[EnvironmentHandle]) -> list[CoSimulationPlan | None]:
    """Return the plan of every co-simulation, and ``None`` for an environment of one class."""
    plans: list[CoSimulationPlan | None] = []
    for handle in handles:
        if isinstance(handle.domain, CoSimulation):
            plan = handle.domain.plan()
            for what, ported, offered in (
                ("sensors", plan.sensors, handle.sensors.uids),
                ("actuators", plan.actuators, handle.actuators.uids),
            ):
                planned = tuple(f"{handle.uid}.{p.information.uid}" for p in ported)
                if planned != offered:
                    raise ContractError(f"environment {handle.uid!r}: {what} of plan() and setup() differ")
            plans.append(plan)
        else:
            if not isinstance(handle.domain, Environment | BatchEnvironment):
                raise ContractError(
                    f"environment {handle.uid!r} is neither an Environment nor a CoSimulation"
                )
            plans.append(None)
    return plans

"""The mosaik simulators of this package's own parts: environments, agents, the coordinator.

Every environment and every agent is a separate simulator, with its bodies as entities; so is the
coordinator, which triggers the acting agents.

mosaik wraps some exceptions in its own (``TypeError``, ``ConnectionError``), and
asyncio treats others specially (``SystemExit``, ``StopIteration``). Exceptions of users' code are
therefore stored here, and mosaik only sees :class:`Stopped`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType
from typing import Any, TypeVar

import mosaik_api_v3
import numpy as np

from palaestrai_mosaik.core.errors import PalaestraiMosaikError, SimulationError
from palaestrai_mosaik.environment.batch import BatchStepper
from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.types.arrays import FloatVector

from .body import AnyBody, Packet
from .connections import STATES, InputWire, read
from .coordinator import EpisodeCoordinator
from .environment_handle import BatchHandle, EnvironmentHandle
from .scheduler import only_questions

Inputs = Mapping[str, Mapping[str, Mapping[str, Any]]]

# An entity and attributes of our own. With the @, they cannot be names of agents.
COORDINATOR = "@coordinator"
CLOCK = "@clock"

_T = TypeVar("_T")

#: the fields of a packet that determine the order in which packets are applied
_TIME_AND_ORDER = itemgetter(0, 1)

#: exceptions that would end the loop or a task instead of the run, or be misinterpreted
_MISLEADING = (SystemExit, GeneratorExit, StopIteration, asyncio.CancelledError)


class Stopped(Exception):
    """Raised into mosaik in place of an exception of users' code."""


def ordinary(error: BaseException, where: str) -> BaseException:
    """Return an error that fails the run: ``error``, or one that describes it.

    ``where``: its source, for the message.
    """
    if not isinstance(error, _MISLEADING):
        return error
    replacement = SimulationError(f"{where} raised {error!r}")
    replacement.__cause__ = error
    return replacement


def guarded(call: Callable[[], _T], where: str) -> _T:
    """Call users' code from within a coroutine; see :func:`ordinary`."""
    try:
        return call()
    except _MISLEADING as error:
        raise ordinary(error, where) from error


def unread(attributes: Mapping[str, Mapping[str, Any]], since: int) -> list[Packet]:
    """Return the packets of set-points that were sent at ``since`` or later, in the order to apply them.

    If agents share an actuator, the later set-point takes precedence; at one time, that of the agent
    later in the document. mosaik repeats an agent's newest value at every step, hence the time.
    """
    senders = attributes.get("setpoints", {}).values()
    packets = [packet for sent in senders for packet in sent if packet[0] >= since]
    if len(packets) > 1:
        packets.sort(key=_TIME_AND_ORDER)
    return packets


class BridgeSimulator(mosaik_api_v3.Simulator):
    """Base of these simulators: creates entities under a given id, and stores failures."""

    def __init__(
        self,
        models: Mapping[str, Sequence[str]],
        name: str,
        kinds: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ):
        described = {
            model: {"public": True, "params": ["eid"], "attrs": list(attributes), **kinds}
            for model, attributes in models.items()
        }
        super().__init__({"api_version": "3.0", "type": "hybrid", "models": described})
        self.name = name
        self.outputs: dict[str, dict[str, Any]] = {}
        #: exceptions of users' code; one list for all simulators of a world
        self.failures: list[BaseException] = []

    def keep(self, error: BaseException) -> BaseException:
        """Store an exception of users' code, and return the exception to raise into mosaik."""
        if isinstance(error, KeyboardInterrupt):
            return error
        noted = any(note.startswith("raised in ") for note in getattr(error, "__notes__", ()))
        # messages of this package's own errors name their source
        if not isinstance(error, PalaestraiMosaikError) and not noted:
            error.add_note(f"raised in {self.name}")
        self.failures.append(ordinary(error, self.name))
        return Stopped(self.name)

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        return self.meta

    def create(self, num: int, model: str, **params: Any) -> Any:
        eid = params["eid"]
        self.outputs[eid] = {}
        return [{"eid": eid, "type": model}]

    def begin(self) -> None:
        """Return to the state before the first step, for another episode."""
        self.failures.clear()
        self.outputs = {eid: {} for eid in self.outputs}

    def get_data(self, outputs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
        # everything, because all of it is connected and so requested
        return self.outputs


class EnvironmentSimulator(BridgeSimulator):
    """Steps one environment: set-points in, one state vector out."""

    def __init__(self, handle: EnvironmentHandle, environment: Environment, coordinator: EpisodeCoordinator):
        super().__init__({"Environment": ("state", "setpoints")}, f"environment {handle.uid!r}")
        self.handle = handle
        self.environment = environment
        self.coordinator = coordinator
        self.begin()

    def begin(self) -> None:
        super().begin()
        self.setpoints = self.handle.initial_setpoints()

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        handle, coordinator = self.handle, self.coordinator
        if coordinator.over or handle.stopped:
            return None
        try:
            held = self._apply(time, inputs)
            if time == 0 or handle.done:
                self.setpoints = handle.initial_setpoints()
                state = self.environment.reset()
            else:
                state = self.environment.step(handle.actuators.as_integers(held))
            vector = coordinator.pack(handle, state)
        except BaseException as error:
            raise self.keep(error) from None
        self.outputs = {handle.uid: {"state": vector}}
        if (vector[-2] or vector[-1]) and not coordinator.environments_reset:
            return None
        return time + handle.step_size

    def _apply(self, time: int, inputs: Inputs) -> np.ndarray[Any, Any]:
        held = self.setpoints.copy()
        if not self.environment.hold_setpoints:
            held.fill(np.nan)
        packets = unread(inputs.get(self.handle.uid, {}), time - self.handle.step_size)
        for _, _, put, values in packets:
            if math.isnan(np.add.reduce(values)):
                values = np.where(np.isnan(values), held[put], values)
            held[put] = values
        # read-only, because values that an environment wrote here would be held like an agent's set-points
        held.setflags(write=False)
        self.setpoints = held
        return held


class BatchSimulator(BridgeSimulator):
    """Steps all incarnations of a batched environment: set-points in, state vectors out.

    One entity represents all of them, for bodies that are stepped as arrays; every incarnation
    with a single body is a child of it.
    """

    def __init__(self, handle: BatchHandle, coordinator: EpisodeCoordinator):
        super().__init__(
            {"Batch": ("states", "setpoints"), "Incarnation": ("setpoints",)},
            f"environment {handle.uid!r}",
        )
        self.handle = handle
        self.coordinator = coordinator
        self.begin()
        #: the incarnations with a separate entity, by entity id
        self._numbers = {f"{handle.uid}.{sub.number}": sub.number for sub in handle.sub_environments}

    def begin(self) -> None:
        super().begin()
        self.stepper = BatchStepper(self.handle.domain)
        self.setpoints = self.initial = self.handle.initial_setpoints()

    def create(self, num: int, model: str, **params: Any) -> Any:
        (entity,) = super().create(num, model, **params)
        children = [{"eid": eid, "type": "Incarnation"} for eid in self._numbers]
        return [{**entity, "children": children}]

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        handle, coordinator = self.handle, self.coordinator
        if coordinator.over or handle.stopped:
            return None
        try:
            if time == 0:
                state = self.stepper.reset()
            else:
                state = self.stepper.step(self._apply(time, inputs), resets=coordinator.environments_reset)
            matrix = handle.pack(state)
        except BaseException as error:
            raise self.keep(error) from None
        self.outputs = {handle.uid: {"states": matrix}}
        if not coordinator.environments_reset and matrix[:, -2:].any(axis=1).all():
            return None
        return time + handle.step_size

    def _apply(self, time: int, inputs: Inputs) -> np.ndarray[Any, Any]:
        handle = self.handle
        held = self.setpoints.copy()
        packets = [
            (set_at, order, self._places(eid, put), values)
            for eid, attributes in inputs.items()
            for set_at, order, put, values in unread(attributes, time - handle.step_size)
        ]
        packets.sort(key=_TIME_AND_ORDER)
        for _, _, put, values in packets:
            missing = np.isnan(values)
            if missing.any():
                values = np.where(missing, held[put], values)
            held[put] = values
        if handle.dones.any():
            # a restarted incarnation starts without earlier set-points, and new ones come too late
            held[handle.dones] = self.initial[handle.dones]
        held.flags.writeable = False
        self.setpoints = held
        return held

    def _places(self, eid: str, put: Any) -> Any:
        """Return the index of the values in the matrix of all set-points."""
        if eid in self._numbers:
            return self._numbers[eid], put
        rows, columns = put
        arrays = isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray)
        return np.ix_(rows, columns) if arrays else put


class CoordinatorSimulator(BridgeSimulator):
    """Leads the episode: collects the new states, and passes them to every acting agent."""

    def __init__(
        self,
        coordinator: EpisodeCoordinator,
        stop: Callable[[int], None],
        wires: Sequence[Sequence[InputWire]],
    ):
        """Prepare for episodes.

        Args:
            coordinator: decides who acts.
            stop: called with the last time to simulate.
            wires: for each environment, its inputs.
        """
        names = [body.name for body in coordinator.bodies]
        attributes = sorted({wire.attribute for own_wires in wires for wire in own_wires})
        super().__init__(
            {"EpisodeCoordinator": [*attributes, CLOCK, *names]},
            "an objective, a brain or a condition",
            {"non-persistent": names},
        )
        self.coordinator = coordinator
        self.stop = stop
        #: for each environment: its inputs, and its co-simulation, if any, which turns them into a state
        self.sources = [
            (handle, own_wires, handle.domain if isinstance(handle.domain, CoSimulation) else None)
            for handle, own_wires in zip(coordinator.handles, wires, strict=True)
        ]
        #: whether any simulator has the time of the last step as an input
        self.clocked = False
        #: the bodies that act now
        self.acting: Sequence[AnyBody] = ()

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        coordinator = self.coordinator
        received = inputs.get(COORDINATOR, {})
        states: dict[EnvironmentHandle, FloatVector] = {}
        try:
            for handle, wires, cosimulation in self.sources:
                if not handle.stopped and time % handle.step_size == 0:
                    if cosimulation is None:
                        (states[handle],) = received[wires[0].attribute].values()
                    else:
                        readings = read(wires, received, handle.n_readings)
                        states[handle] = coordinator.pack(handle, cosimulation.judge(time, readings))
            self.acting = coordinator.observe(time, states)
            if not self.acting:
                coordinator.flush_rows()
        except BaseException as error:
            raise self.keep(error) from None
        # only acting bodies receive states
        newest: dict[str, Any] = {
            body.name: [handle.vector for handle in body.handles] for body in self.acting
        }
        if self.clocked:
            newest[CLOCK] = time
        self.outputs = {COORDINATOR: newest}
        if coordinator.over:
            self.stop(time)
            return None
        steps = [handle.step_size for handle in coordinator.handles if not handle.stopped]
        return min([time - time % step + step for step in steps], default=None)


class ExternalControlSimulator(CoordinatorSimulator):
    """The coordinator of a world with external control of some bodies."""

    @only_questions
    def step(  # type: ignore[override]  # generators are run, and what they yield is awaited
        self, time: int, inputs: Mapping[str, Mapping[str, Mapping[str, Any]]], max_advance: int
    ) -> Generator[Any, Any, int | None]:
        coordinator, control = self.coordinator, self.coordinator.external_control
        assert control is not None
        following = super().step(time, inputs, max_advance)
        if not coordinator.over and control.concerned(self.acting, coordinator.some_done):
            yield control.ask()
        return following


class AgentSimulator(BridgeSimulator):
    """One agent with all its bodies; steps when the coordinator passes states to one of them."""

    def __init__(self, coordinator: EpisodeCoordinator, agent: str, attributes: Sequence[str]):
        super().__init__({"Agent": [*attributes, STATES]}, f"agent {agent!r}", {"trigger": [STATES]})
        self.coordinator = coordinator
        self.bodies = coordinator.agents[agent]

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        coordinator = self.coordinator
        acted = False
        try:
            for body in self.bodies:
                mine = inputs.get(body.name)
                # no body acts at the step with which every simulator of this type begins
                if mine is not None:
                    (states,) = mine[STATES].values()
                    body.act(time, states)
                    coordinator.missing -= 1
                    acted = True
            if acted and not coordinator.missing:
                coordinator.flush_rows()
        except BaseException as error:
            raise self.keep(error) from None
        self.outputs = {body.name: body.values for body in self.bodies}
        return None

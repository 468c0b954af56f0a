"""The mosaik simulators of this package's own parts: environments, agents, the coordinator.

Every environment and every agent is a simulator of its own, with its bodies as entities; so is the
coordinator, which triggers the agents that act.

mosaik has words of its own for some exceptions (``TypeError``, ``ConnectionError``), and
asyncio has for others (``SystemExit``, ``StopIteration``). What users' code raises is
therefore kept here, and mosaik sees no more than :class:`Stopped`.
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

from palaestrai_mosaik.environment.batch import BatchStepper
from palaestrai_mosaik.environment.environment import Environment
from palaestrai_mosaik.errors import PalaestraiMosaikError, SimulationError

from .batch_handle import BatchHandle
from .body import AnyBody
from .connections import STATES
from .coordinator import EpisodeCoordinator
from .environment_handle import EnvironmentHandle
from .scheduler import only_questions

Inputs = Mapping[str, Mapping[str, Mapping[str, Any]]]

# An entity and attributes of our own. With the sign they are no names of agents.
COORDINATOR = "@coordinator"
CLOCK = "@clock"

_T = TypeVar("_T")

#: of a packet of set-points: when they were set, and the place of the agent in the document
_TIME_AND_ORDER = itemgetter(0, 1)

#: they would end the loop or a task instead of the run, or be taken for something else
_MISLEADING = (SystemExit, GeneratorExit, StopIteration, asyncio.CancelledError)


class Stopped(Exception):
    """Raised into mosaik instead of what users' code raised."""


def ordinary(error: BaseException, where: str) -> BaseException:
    """Return an error that fails the run: ``error``, or one that tells of it.

    ``where``: what raised it, for the message.
    """
    if not isinstance(error, _MISLEADING):
        return error
    mended = SimulationError(f"{where} raised {error!r}")
    mended.__cause__ = error
    return mended


def guarded(call: Callable[[], _T], where: str) -> _T:
    """Call users' code from within a coroutine; see :func:`ordinary`."""
    try:
        return call()
    except _MISLEADING as error:
        raise ordinary(error, where) from error


def _meta(models: Mapping[str, Sequence[str]], kinds: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    return {
        "api_version": "3.0",
        "type": "hybrid",
        "models": {
            model: {"public": True, "params": ["eid"], "attrs": list(attributes), **kinds}
            for model, attributes in models.items()
        },
    }


class BridgeSimulator(mosaik_api_v3.Simulator):
    """What these simulators share: entities are created under a given id, failures kept."""

    def __init__(
        self,
        models: Mapping[str, Sequence[str]],
        name: str,
        kinds: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ):
        super().__init__(_meta(models, kinds))
        self.name = name
        self.outputs: dict[str, dict[str, Any]] = {}
        #: what users' code raised; one list for all simulators of a world
        self.failures: list[BaseException] = []

    def keep(self, error: BaseException) -> BaseException:
        """Keep what users' code raised; return what to raise into mosaik."""
        if isinstance(error, KeyboardInterrupt):
            return error
        # (messages of this package's own errors say where)
        note = f"raised in {self.name}"
        if not isinstance(error, PalaestraiMosaikError) and note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        self.failures.append(ordinary(error, self.name))
        return Stopped(self.name)

    def init(self, sid: str, time_resolution: float = 1.0, **params: Any) -> Any:
        return self.meta

    def create(self, num: int, model: str, **params: Any) -> Any:
        eid = params["eid"]
        self.outputs[eid] = {}
        return [{"eid": eid, "type": model}]

    def begin(self) -> None:
        """Go back to the state before the first step, for another episode."""
        self.failures.clear()
        self.outputs = {eid: {} for eid in self.outputs}

    def get_data(self, outputs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
        # no more than what is asked for: all of it is connected
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
        #: the time of the newest packet from each source
        self.accepted: dict[str, int] = {}

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        handle, coordinator = self.handle, self.coordinator
        if coordinator.over or handle.stopped:
            return None
        try:
            held = self._apply(inputs)
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

    def _apply(self, inputs: Inputs) -> np.ndarray[Any, Any]:
        held = self.setpoints.copy()
        if not self.environment.hold_setpoints:
            held.fill(np.nan)
        packets = []
        for source, packet in inputs.get(self.handle.uid, {}).get("setpoints", {}).items():
            if packet and packet[0] > self.accepted.get(source, -1):
                self.accepted[source] = packet[0]
                packets.append(packet)
        if len(packets) > 1:
            # where agents share an actuator, the later set-point holds; at one time, that
            # of the agent that stands later in the document
            packets.sort(key=_TIME_AND_ORDER)
        for _, _, put, values in packets:
            if math.isnan(values.dot(values)):
                values = np.where(np.isnan(values), held[put], values)
            held[put] = values
        # what an environment wrote here would be held as if an agent had set it
        held.setflags(write=False)
        self.setpoints = held
        return held


class BatchSimulator(BridgeSimulator):
    """Steps all incarnations of a batched environment: set-points in, state vectors out.

    One entity stands for all of them, for bodies that are stepped as arrays; every incarnation
    in which a body sits alone is a child of it.
    """

    def __init__(self, handle: BatchHandle, coordinator: EpisodeCoordinator):
        super().__init__(
            {"Batch": ("states", "setpoints"), "Incarnation": ("setpoints",)},
            f"environment {handle.uid!r}",
        )
        self.handle = handle
        self.coordinator = coordinator
        self.begin()
        #: the incarnations that are entities of their own, by entity id
        self._numbers = {f"{handle.uid}.{sub.number}": sub.number for sub in handle.sub_environments}

    def begin(self) -> None:
        super().begin()
        self.stepper = BatchStepper(self.handle.domain)
        self.setpoints = self.initial = self.handle.initial_setpoints()
        self.accepted: dict[tuple[str, str], int] = {}

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
                state = self.stepper.step(self._apply(inputs), resets=coordinator.environments_reset)
            matrix = handle.pack(state)
        except BaseException as error:
            raise self.keep(error) from None
        self.outputs = {handle.uid: {"states": matrix}}
        if not coordinator.environments_reset and matrix[:, -2:].any(axis=1).all():
            return None
        return time + handle.step_size

    def _apply(self, inputs: Inputs) -> np.ndarray[Any, Any]:
        handle = self.handle
        held = self.setpoints.copy()
        packets = []
        for eid, attributes in inputs.items():
            for source, packet in attributes.get("setpoints", {}).items():
                key = (eid, source)
                if packet and packet[0] > self.accepted.get(key, -1):
                    self.accepted[key] = packet[0]
                    packets.append((packet[0], packet[1], self._places(eid, packet[2]), packet[3]))
        if len(packets) > 1:
            # as in an environment of one class
            packets.sort(key=_TIME_AND_ORDER)
        for _, _, put, values in packets:
            missing = np.isnan(values)
            if missing.any():
                values = np.where(missing, held[put], values)
            held[put] = values
        if handle.dones.any():
            # who begins again begins without what was set before, and what is set now is too late
            held[handle.dones] = self.initial[handle.dones]
        held.flags.writeable = False
        self.setpoints = held
        return held

    def _places(self, eid: str, put: Any) -> Any:
        """Return where the values belong in the matrix of all set-points."""
        if eid in self._numbers:
            return self._numbers[eid], put
        rows, columns = put
        return (
            np.ix_(rows, columns) if isinstance(rows, np.ndarray) and isinstance(columns, np.ndarray) else put
        )


class CoordinatorSimulator(BridgeSimulator):
    """Leads the episode: takes the new states in, and gives them to every agent that acts."""

    def __init__(
        self, coordinator: EpisodeCoordinator, stop: Callable[[int], None], attributes: Sequence[str]
    ):
        names = [body.name for body in coordinator.bodies]
        super().__init__(
            {"EpisodeCoordinator": [*attributes, CLOCK, *names]},
            "an objective, a brain or a condition",
            {"non-persistent": names},
        )
        self.coordinator = coordinator
        self.stop = stop
        #: whether some simulator asks for the time of the last step
        self.clocked = False
        #: the bodies that act now
        self.acting: Sequence[AnyBody] = ()

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int | None:
        coordinator = self.coordinator
        try:
            self.acting = coordinator.observe(time, inputs.get(COORDINATOR, {}))
            if not self.acting:
                coordinator.flush_rows()
        except BaseException as error:
            raise self.keep(error) from None
        # who does not act gets nothing
        newest: dict[str, Any] = {
            body.name: [handle.vector for handle in body.handles] for body in self.acting
        }
        if self.clocked:
            newest[CLOCK] = time
        self.outputs = {COORDINATOR: newest}
        if coordinator.over:
            self.stop(time)
            return None
        return coordinator.following


class ExternalControlSimulator(CoordinatorSimulator):
    """The coordinator of a world in which somebody outside decides for some bodies."""

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
    """One agent, with all its bodies: steps when the coordinator gives one of them states to act on."""

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
                # nobody acts at the step with which every simulator of this type begins
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

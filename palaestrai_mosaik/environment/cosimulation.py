"""The contract of a co-simulation: an environment that is a group of mosaik simulators.

Agents connect straight to the entities of these simulators. A sensor is an attribute of
an entity (or one place of a vector attribute), and so is an actuator.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestrai_mosaik.types import ActuatorInformation, SensorInformation

from .environment import EnvironmentState, FloatVector, World


@dataclass(frozen=True, slots=True)
class SimulatorSpec:
    """How to start one simulator; exactly one of the ways is given.

    ``python``: ``module:Class`` in this process; ``cmd``: a command line with
    ``%(addr)s`` (and ``%(python)s``); ``connect``: ``host:port`` of a running one;
    ``factory``: a function that returns a ``mosaik_api_v3.Simulator`` (for simulators
    that share objects with the environment). ``params`` go to the simulator's ``init``.
    ``timeout``: seconds that one answer of a remote simulator (``cmd``, ``connect``) may
    take; to start, and for ``init``, it has at least 10.
    """

    uid: str
    python: str | None = None
    cmd: str | None = None
    connect: str | None = None
    factory: Callable[[], Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class EntitySpec:
    """One entity: created from ``model`` of ``simulator``, or a child of ``parent``.

    A child is found among the parent's children by its mosaik id ``eid``.
    """

    uid: str
    simulator: str = ""
    model: str = ""
    params: Mapping[str, Any] = field(default_factory=dict)
    parent: str | None = None
    eid: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionSpec:
    """A data flow between two entities: ``attributes`` are (source, target) pairs."""

    source: str
    target: str
    attributes: Sequence[tuple[str, str]]
    time_shifted: int = 0
    initial: Mapping[str, Any] = field(default_factory=dict)
    weak: bool = False
    async_requests: bool = False


@dataclass(frozen=True, slots=True)
class SensorPort:
    """``attribute`` of ``entity`` is a sensor; ``index`` picks one place of a vector."""

    information: SensorInformation
    entity: str
    attribute: str
    index: int | None = None


@dataclass(frozen=True, slots=True)
class ActuatorPort:
    """``attribute`` of ``entity`` is an actuator.

    With ``index`` the attribute takes a vector of length ``size``: an agent sends NaN in
    the places that it does not set, and the entity keeps what it had there. Without it
    the attribute takes the plain value, and the information's value is what it gets
    until an agent has acted.

    Vectors and values of spaces that hold several numbers are numpy arrays. A remote
    simulator (``cmd``, ``connect``) gets them as JSON: lists, with null in place of NaN.
    """

    information: ActuatorInformation
    entity: str
    attribute: str
    index: int | None = None
    size: int = 0


@dataclass(frozen=True, slots=True)
class CoSimulationPlan:
    """Everything that the world must build for one episode.

    ``clocks`` are (entity, attribute) pairs that receive the time of the agents' last
    step. A simulator without any input would run ahead of the agents, unless mosaik makes
    every simulator wait for those that it feeds, which costs a quarter of the speed. One
    that takes the clock as an input waits by itself.
    """

    simulators: Sequence[SimulatorSpec]
    entities: Sequence[EntitySpec]
    connections: Sequence[ConnectionSpec]
    sensors: Sequence[SensorPort]
    actuators: Sequence[ActuatorPort]
    clocks: Sequence[tuple[str, str]] = ()


class CoSimulation(World):
    """An environment made of mosaik simulators. ``setup`` and ``plan`` are mandatory.

    Simulators start afresh with every episode; what shall live on (a parsed grid, say)
    belongs to this object and reaches them through ``params`` or ``factory``.
    """

    def reset(self) -> None:
        """Prepare for a new episode (before its simulators are started)."""
        return None

    @abstractmethod
    def plan(self) -> CoSimulationPlan:
        """Return the simulators, entities, connections, sensors and actuators.

        Called before every episode. Sensors and actuators must be those of the baseline
        in the same order.
        """

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Turn the readings at ``time`` (ticks) into a state: rewards and the end.

        ``readings``: shape ``(n_readings,)``, all sensors in the baseline's order, may
        be kept (it is not written to again). The default never ends and has no rewards.
        """
        return EnvironmentState(readings)

"""A co-simulation that is described in a run document, or by a Python function.

Nothing here stops at the first fault: the reader notes each one and goes on, so that a
researcher sees them all at once.

The document's ``params`` name the simulators, what is created in them, how data flows,
and what agents may see and set::

    params:
      step_size: 900              # ticks between two observations
      end: 86400                  # the episode is truncated at the first state at or after it
      start: 2016-01-01
      simulators:
        storage: {cmd: "%(python)s battery_sim.py %(addr)s", params: {step_size: 900}}
        weather: {python: "mosaik_csv:CSV", params: {...}}
      entities:
        - {uid: battery, simulator: storage, model: Battery, params: {capacity: 2.0}, count: 3}
        - {uid: sun, simulator: weather, model: Sun}
      connections:
        - {from: sun, to: battery-0, attributes: [[G, P_surplus]]}
      sensors:
        - {entity: battery-0, attribute: soc, space: "Box(0, 1, ())"}
      actuators:
        - {entity: battery-0, attribute: P_set, space: "Box(-1, 1, ())", value: 0.0}

or name a function that returns a :class:`CoSimulationPlan`::

    params: {build: "mypackage.grid:plan", params: {size: 3}, step_size: 900}

Simulators join as they are; they need not know of agents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np

from palaestrai_mosaik.errors import (
    ActionError,
    ContractError,
    DocumentError,
    NameResolutionError,
    Problem,
    SpaceError,
    did_you_mean,
)
from palaestrai_mosaik.importing import COMMANDS, CONNECTIONS, check_origin, import_module, refusal
from palaestrai_mosaik.types import ActuatorInformation, Box, SensorInformation, Space
from palaestrai_mosaik.types.arrays import FloatVector

from .cosimulation import (
    ActuatorPort,
    ConnectionSpec,
    CoSimulation,
    CoSimulationPlan,
    EntitySpec,
    PlanPaths,
    SensorPort,
    SimulatorSpec,
    plan_problems,
)
from .environment import EnvironmentBaseline, EnvironmentState

_SIMULATOR_KEYS = ("python", "cmd", "connect", "params", "cwd", "env", "timeout")
_ENTITY_KEYS = ("uid", "simulator", "model", "params", "count", "parent", "eid")
_CONNECTION_KEYS = ("from", "to", "attributes", "time_shifted", "initial", "weak", "async_requests")
_SENSOR_KEYS = ("uid", "entity", "attribute", "index", "space", "value")
_ACTUATOR_KEYS = (*_SENSOR_KEYS, "size")
_ADDRESS = re.compile(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
#: stands for a space that could not be read, so that the rest can still be checked
_ANY_NUMBER = Box(-np.inf, np.inf, shape=())


class PlanReader:
    """Reads the parts of a description; :attr:`problems` has what is wrong with them."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def error(self, message: str, path: str) -> None:
        self.problems.append(Problem(message, path))

    # --- simple values --------------------------------------------------------------------

    def mapping(self, value: Any, path: str, what: str, allowed: Sequence[str]) -> Mapping[str, Any]:
        """Return ``value`` if it is a mapping, else ``{}``; report keys that are not allowed."""
        if not isinstance(value, Mapping):
            self.error(f"{what} must be a mapping, found {value!r}", path)
            return {}
        for key in value:
            if key not in allowed:
                hint = did_you_mean(str(key), allowed)
                self.error(
                    f"unknown key {key!r} of {what}{hint}; allowed: {', '.join(allowed)}", _join(path, key)
                )
        return value

    def entries(
        self, value: Any, path: str, what: str, allowed: Sequence[str]
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """Return (path, mapping) for every mapping in a list; report what is no mapping."""
        places = [(f"{path}.{i}", item) for i, item in enumerate(self.items(value, path))]
        read = [(place, item, self.mapping(item, place, what, allowed)) for place, item in places]
        return [(place, entry) for place, item, entry in read if isinstance(item, Mapping)]

    def items(self, value: Any, path: str) -> list[Any]:
        """Return a list's items; nothing where it is left out."""
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            self.error(f"must be a list, found {value!r}", path)
            return []
        return list(value)

    def keywords(self, value: Any, path: str) -> dict[str, Any]:
        """Return a mapping with text keys; nothing where it is left out."""
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            self.error(f"must be a mapping, found {value!r}", path)
            return {}
        for key in value:
            if not isinstance(key, str):
                self.error(f"the keys must be text, found {key!r}", path)
        return {str(key): item for key, item in value.items()}

    def name(self, entry: Mapping[str, Any], key: str, path: str) -> str:
        """Return a mandatory name; a number counts as its text (YAML reads ``uid: 0`` so)."""
        if key not in entry:
            self.error(f"{key} is missing", _join(path, key))
            return ""
        return self.text(entry[key], _join(path, key))

    def text(self, value: Any, path: str) -> str:
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value:
            self.error(f"must be text, found {value!r}", path)
            return ""
        return value

    def whole(self, value: Any, path: str, least: int) -> int:
        """Return a whole number that is ``least`` or more."""
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            self.error(f"must be a whole number >= {least}, found {value!r}", path)
            return least
        return value

    def function(self, name: Any, path: str) -> Callable[..., Any]:
        """Import ``package.module:function``."""
        module_name, _, attribute = str(name).partition(":")
        if not isinstance(name, str) or not module_name or not attribute:
            self.error(f"must be of the form package.module:name, found {name!r}", path)
            return _nothing
        try:
            # this package's functions are not made to be called by a document
            module = import_module(module_name, ours=False)
        except NameResolutionError as error:
            self.error(f"cannot import {module_name!r}: {error}", path)
            return _nothing
        found: Callable[..., Any] | None = getattr(module, attribute, None)
        if not callable(found):
            state = "has no" if found is None else "has no class or function"
            self.error(f"{module_name!r} {state} {attribute!r}{did_you_mean(attribute, dir(module))}", path)
            return _nothing
        try:
            check_origin(found, name, ours=False)
        except NameResolutionError as error:
            self.error(str(error), path)
            return _nothing
        return found

    # --- the parts of a plan --------------------------------------------------------------

    def plan(self, params: Mapping[str, Any]) -> CoSimulationPlan:
        """Read the whole description and check how its parts refer to each other."""
        for key in ("simulators", "entities"):
            if not params.get(key):
                self.error(f"{key} is missing (or give build)", key)
        paths = PlanPaths()
        plan = CoSimulationPlan(
            simulators=self._simulators(params.get("simulators"), paths.simulators),
            entities=self._entities(params.get("entities"), paths.entities),
            connections=self._connections(params.get("connections"), paths.connections),
            sensors=self._sensors(params.get("sensors"), paths.sensors),
            actuators=self._actuators(params.get("actuators"), paths.actuators),
        )
        # What could not be read would only cause follow-up messages in the same place.
        broken = tuple(f"{problem.path}." for problem in self.problems)
        self.problems += [p for p in plan_problems(plan, paths) if not f"{p.path}.".startswith(broken)]
        return plan

    def _simulators(self, value: Any, paths: list[str]) -> list[SimulatorSpec]:
        specs = []
        for uid, entry in self.keywords(value, "simulators").items():
            path = f"simulators.{uid}"
            entry = self.mapping(entry, path, "a simulator", _SIMULATOR_KEYS)
            given = {
                key: self.text(entry[key], f"{path}.{key}") for key in _SIMULATOR_KEYS[:3] if key in entry
            }
            self._check_start(given, entry, path)
            paths.append(path)
            specs.append(
                SimulatorSpec(
                    uid=uid,
                    python=given.get("python"),
                    cmd=given.get("cmd"),
                    connect=given.get("connect"),
                    params=self.keywords(entry.get("params"), f"{path}.params"),
                    cwd=self.text(entry["cwd"], f"{path}.cwd") if "cwd" in entry else None,
                    env={
                        key: self.text(item, f"{path}.env.{key}")
                        for key, item in self.keywords(entry.get("env"), f"{path}.env").items()
                    },
                    timeout=self._seconds(entry.get("timeout", 60.0), f"{path}.timeout"),
                )
            )
        return specs

    def _check_start(self, given: Mapping[str, str], entry: Mapping[str, Any], path: str) -> None:
        """Check how a simulator is to be started, as far as can be seen before it is."""
        if given.get("python"):
            self.function(given["python"], f"{path}.python")
        if given.get("cmd") and "%(addr)s" not in given["cmd"]:
            self.error("the command line must contain %(addr)s, the address to connect to", f"{path}.cmd")
        if given.get("connect") and not _ADDRESS.fullmatch(given["connect"]):
            self.error(f"must be host:port, found {given['connect']!r}", f"{path}.connect")
        for key, word in (("cmd", COMMANDS), ("connect", CONNECTIONS)):
            fault = refusal(word) if given.get(key) else None
            if fault is not None:
                self.error(fault, f"{path}.{key}")
        for key, ways in (("cwd", ("cmd",)), ("env", ("cmd",)), ("timeout", ("cmd", "connect"))):
            if key in entry and given and not any(way in given for way in ways):
                self.error(f"{key} goes with {' or '.join(ways)} only", f"{path}.{key}")

    def _seconds(self, value: Any, path: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < np.inf:
            self.error(f"must be a number of seconds > 0, found {value!r}", path)
            return 1.0
        return float(value)

    def _entities(self, value: Any, paths: list[str]) -> list[EntitySpec]:
        specs: list[EntitySpec] = []
        for path, entry in self.entries(value, "entities", "an entity", _ENTITY_KEYS):
            texts = {
                k: self.text(entry[k], f"{path}.{k}") for k in ("simulator", "model", "eid") if k in entry
            }
            if "parent" in entry:
                texts["parent"] = self.text(entry["parent"], f"{path}.parent")
            elif "simulator" not in entry:
                self.error("simulator is missing (or, for a child, parent and eid)", f"{path}.simulator")
            uid = self.name(entry, "uid", path)
            uids = [uid]
            if "count" in entry:
                if "parent" in entry:
                    self.error("a child is one entity; count has no place here", f"{path}.count")
                count = self.whole(entry["count"], f"{path}.count", least=1)
                uids = [f"{uid}-{n}" for n in range(count)]
            params = self.keywords(entry.get("params"), f"{path}.params")
            paths.extend([path] * len(uids))
            specs.extend(EntitySpec(uid=uid, params=params, **texts) for uid in uids)
        return specs

    def _connections(self, value: Any, paths: list[str]) -> list[ConnectionSpec]:
        specs = []
        for path, entry in self.entries(value, "connections", "a connection", _CONNECTION_KEYS):
            shift = entry.get("time_shifted", 0)
            paths.append(path)
            specs.append(
                ConnectionSpec(
                    source=self.name(entry, "from", path),
                    target=self.name(entry, "to", path),
                    attributes=self._attributes(entry.get("attributes"), f"{path}.attributes"),
                    time_shifted=int(shift)
                    if isinstance(shift, bool)
                    else self.whole(shift, f"{path}.time_shifted", least=0),
                    initial=self.keywords(entry.get("initial"), f"{path}.initial"),
                    weak=self._flag(entry, "weak", path),
                    async_requests=self._flag(entry, "async_requests", path),
                )
            )
        return specs

    def _flag(self, entry: Mapping[str, Any], key: str, path: str) -> bool:
        value = entry.get(key, False)
        if not isinstance(value, bool):
            self.error(f"must be true or false, found {value!r}", f"{path}.{key}")
            return False
        return value

    def _attributes(self, value: Any, path: str) -> list[tuple[str, str]]:
        pairs = []
        for i, item in enumerate(self.items(value, path)):
            if isinstance(item, list | tuple):
                if len(item) != 2:
                    self.error(f"must be a name or a pair [source, target], found {item!r}", f"{path}.{i}")
                    continue
                pairs.append((self.text(item[0], f"{path}.{i}.0"), self.text(item[1], f"{path}.{i}.1")))
            else:
                name = self.text(item, f"{path}.{i}")
                pairs.append((name, name))
        return pairs

    def _sensors(self, value: Any, paths: list[str]) -> list[SensorPort]:
        ports = []
        for path, entry in self.entries(value, "sensors", "a sensor", _SENSOR_KEYS):
            uid, entity, attribute, index = self._port(entry, path)
            space = self._space(entry, path)
            reading = entry.get("value")
            if reading is None:
                # before the first observation: the value of the space nearest to zero
                reading = space.unflatten(np.clip(0.0, space.flat_low, space.flat_high))
            elif reading not in space:
                self.error(f"{reading!r} is not in {space}", f"{path}.value")
            paths.append(path)
            ports.append(SensorPort(SensorInformation(reading, space, uid), entity, attribute, index))
        return ports

    def _actuators(self, value: Any, paths: list[str]) -> list[ActuatorPort]:
        entries = self.entries(value, "actuators", "an actuator", _ACTUATOR_KEYS)
        read = [self._port(entry, path) for path, entry in entries]
        # Where the length of a vector is not given, it reaches to the last place that is used.
        sizes: dict[tuple[str, str], int] = {}
        for _, entity, attribute, index in read:
            if index is not None:
                key = entity, attribute
                sizes[key] = max(sizes.get(key, 0), index + 1)
        ports = []
        for (path, entry), (uid, entity, attribute, index) in zip(entries, read, strict=True):
            space = self._space(entry, path)
            try:
                information = ActuatorInformation(entry.get("value"), space, uid)
            except ActionError as error:
                self.error(str(error), f"{path}.value")
                information = ActuatorInformation(None, space, uid)
            size = sizes[entity, attribute] if index is not None else 0
            if "size" in entry:
                size = self.whole(entry["size"], f"{path}.size", least=1)
                if index is None:
                    self.error("size goes with index only", f"{path}.size")
            paths.append(path)
            ports.append(ActuatorPort(information, entity, attribute, index, size))
        return ports

    def _port(self, entry: Mapping[str, Any], path: str) -> tuple[str, str, str, int | None]:
        """Return uid, entity, attribute and index of a sensor or an actuator."""
        entity = self.name(entry, "entity", path)
        attribute = self.name(entry, "attribute", path)
        index = self.whole(entry["index"], f"{path}.index", least=0) if "index" in entry else None
        default = f"{entity}.{attribute}" + ("" if index is None else f".{index}")
        uid = self.text(entry["uid"], f"{path}.uid") if "uid" in entry else default
        return uid, entity, attribute, index

    def _space(self, entry: Mapping[str, Any], path: str) -> Space:
        if "space" not in entry:
            self.error("space is missing", f"{path}.space")
            return _ANY_NUMBER
        try:
            return Space.from_string(entry["space"])
        except SpaceError as error:
            self.error(str(error), f"{path}.space")
            return _ANY_NUMBER


def _nothing(**_: Any) -> None:
    """Stand in for a function that could not be imported; the reader has the reason."""


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


_CLOCK = ("step_size", "end", "start")
_PARTS = ("simulators", "entities", "connections", "sensors", "actuators")


class DescribedCoSimulation(CoSimulation):
    """A co-simulation made of the simulators that the document's ``params`` describe.

    Args:
        **params: see the module's text. With ``build``, the description comes from that function, which is
            called once with ``params`` as keywords; without it, from ``simulators``, ``entities``,
            ``connections``, ``sensors`` and ``actuators``.

    Raises:
        DocumentError: carries everything that is wrong with ``params``, paths relative to them.
    """

    def __init__(self, **params: Any):
        reader = PlanReader()
        self._plan: CoSimulationPlan | None = None
        if "build" in params:
            reader.mapping(params, "", "a co-simulation with build", (*_CLOCK, "build", "params"))
            self._build = reader.function(params["build"], "build")
            self._build_params = reader.keywords(params.get("params"), "params")
        else:
            reader.mapping(params, "", "a co-simulation", (*_CLOCK, *_PARTS, "build"))
            self._plan = reader.plan(params)
        self.step_size = reader.whole(params.get("step_size", 1), "step_size", least=1)
        end = params.get("end")
        self.end = None if end is None else reader.whole(end, "end", least=1)
        # without an end, only a condition can end an episode: most simulators go on for ever
        self.ends = self.end is not None
        self.start = _date(reader, params.get("start"))
        if reader.problems:
            raise DocumentError(reader.problems)

    def setup(self) -> EnvironmentBaseline:
        """Return the sensors and actuators of the plan; there are no rewards of its own."""
        plan = self.plan()
        return EnvironmentBaseline(
            sensors=[port.information for port in plan.sensors],
            actuators=[port.information for port in plan.actuators],
            start=self.start,
        )

    def plan(self) -> CoSimulationPlan:
        """Return the plan, the same for every episode; simulators start afresh in each."""
        if self._plan is None:
            plan = self._build(**self._build_params)
            if not isinstance(plan, CoSimulationPlan):
                name = getattr(self._build, "__qualname__", self._build)
                raise ContractError(f"build: {name} must return a CoSimulationPlan, found {plan!r}")
            problems = plan_problems(plan)
            if problems:
                raise DocumentError(Problem(p.message, f"build: {p.path}") for p in problems)
            self._plan = plan
        return self._plan

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Truncate the episode at the first state whose time is ``end`` or later."""
        return EnvironmentState(readings, truncated=self.end is not None and time >= self.end)


def _date(reader: PlanReader, value: Any) -> datetime | None:
    if value is None or isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        return datetime.fromisoformat(value)
    except (ValueError, TypeError):
        reader.error(f"must be an ISO date such as 2016-01-31T12:00, found {value!r}", "start")
        return None

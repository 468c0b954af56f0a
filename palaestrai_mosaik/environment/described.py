"""Co-simulations described in a run document or by a Python function.

The reader does not stop at the first fault: it collects all of them, so that a researcher sees them at
once.

The document's ``params`` name the simulators, their entities, the data flows, and the sensors and
actuators of agents::

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

Simulators need no adaptation; they need not know about agents.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from functools import partial
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import (
    ActionError,
    ContractError,
    DocumentError,
    NameResolutionError,
    Problem,
    SpaceError,
    did_you_mean,
)
from palaestrai_mosaik.core.importing import COMMANDS, CONNECTIONS, check_origin, import_module, refusal
from palaestrai_mosaik.core.printing import count
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

#: placeholder for a seed that differs in every episode
SEED = "{seed}"

_WORD = re.compile(r"\{\s*(\w+)\s*\}")


def with_seed(value: Any, draw: Callable[[], int]) -> Any:
    """Replace each ``{seed}`` in ``value`` by the seed.

    A text equal to ``{seed}`` becomes the number; within a longer text the number is inserted as text.

    Args:
        value: a text, or a list or mapping with texts at any depth. Anything else is returned unchanged.
        draw: returns the seed; called only if ``value`` holds a placeholder.
    """
    if type(value) is str:
        if SEED not in value:
            return value
        return draw() if value == SEED else value.replace(SEED, str(draw()))
    new: Any
    if type(value) is dict:
        new = {key: with_seed(item, draw) for key, item in value.items()}
        changed = any(new[key] is not item for key, item in value.items())
    elif type(value) is list:
        new = [with_seed(item, draw) for item in value]
        changed = any(map(operator.is_not, new, value))
    else:
        return value
    # keep the object if nothing changed: a simulator may share lists and mappings with its environment
    return new if changed else value


def seeded(plan: CoSimulationPlan, seed: Callable[..., int]) -> CoSimulationPlan:
    """Return ``plan`` with each ``{seed}`` replaced by a seed.

    Placeholders are replaced in the parameters of simulators and entities, and in the command lines and
    environment variables of simulators.

    Args:
        plan: the plan, which is not changed.
        seed: returns the seed for a path of names: ``"simulator"`` and its uid, for an entity also ``"entity"``
            and its uid.
    """

    def simulator(spec: SimulatorSpec) -> SimulatorSpec:
        draw = partial(seed, "simulator", spec.uid)
        params, env = with_seed(spec.params, draw), with_seed(spec.env, draw)
        return replace(
            spec,
            cmd=with_seed(spec.cmd, draw),
            params=params,
            env={key: str(value) for key, value in env.items()},
        )

    def entity(spec: EntitySpec) -> EntitySpec:
        draw = partial(seed, "simulator", spec.simulator, "entity", spec.uid)
        params = with_seed(spec.params, draw)
        return spec if params is spec.params else replace(spec, params=params)

    return replace(
        plan,
        simulators=[simulator(spec) for spec in plan.simulators],
        entities=[entity(spec) for spec in plan.entities],
    )


def misspelt_seeds(plan: CoSimulationPlan, paths: PlanPaths) -> list[Problem]:
    """Return a warning for each placeholder in ``plan`` that resembles ``{seed}`` but is not replaced."""
    written: list[tuple[Any, str]] = []
    for spec, path in zip(plan.simulators, paths.simulators, strict=True):
        written += [(getattr(spec, key), f"{path}.{key}") for key in ("cmd", "params", "env")]
    written += [(e.params, f"{path}.params") for e, path in zip(plan.entities, paths.entities, strict=True)]
    return list(dict.fromkeys(problem for value, path in written for problem in _misspelt(value, path)))


def _misspelt(value: Any, path: str) -> Iterator[Problem]:
    if isinstance(value, str):
        for placeholder in _WORD.finditer(value):
            near = did_you_mean(placeholder[1], ["seed"])
            if near and placeholder[0] != SEED:
                text = f"the placeholder {placeholder[0]!r} is passed on as text (did you mean {SEED!r}?)"
                yield Problem(text, path)
    elif isinstance(value, Mapping):
        if len(value) == 1 and value.get("seed", SEED) is None:
            yield Problem(f"{SEED} without quotes is a mapping in YAML; write {SEED!r}", path)
        for key, item in value.items():
            yield from _misspelt(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _misspelt(item, f"{path}.{index}")


_SIMULATOR_KEYS = ("python", "cmd", "connect", "params", "cwd", "env", "timeout")
_ENTITY_KEYS = ("uid", "simulator", "model", "params", "count", "parent", "eid")
_CONNECTION_KEYS = ("from", "to", "attributes", "time_shifted", "initial", "weak", "async_requests")
_PORT_KEYS = ("uid", "entity", "attribute", "index", "space", "value")
_SENSOR_KEYS = (*_PORT_KEYS, "may_be_missing", "unit")
_ACTUATOR_KEYS = (*_PORT_KEYS, "size")
#: unknown keys of one mapping that are reported; the others are counted
_MOST_UNKNOWN = 100
_ADDRESS = re.compile(r"[^\s:]+:\d{1,5}|\[[0-9a-fA-F:]+\]:\d{1,5}")
#: replaces a space that could not be read, so that the checks can continue
_ANY_NUMBER = Box(-np.inf, np.inf, shape=())


class PlanReader:
    """Reads the parts of a description and collects its faults in :attr:`problems`."""

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
        unknown = [key for key in value if key not in allowed]
        for key in unknown[:_MOST_UNKNOWN]:
            hint = did_you_mean(str(key), allowed)
            self.error(
                f"unknown key {key!r} of {what}{hint}; allowed: {', '.join(allowed)}", _join(path, key)
            )
        if len(unknown) > _MOST_UNKNOWN:
            more = count(len(unknown) - _MOST_UNKNOWN, "more unknown key")
            self.error(f"{more} of {what}; allowed: {', '.join(allowed)}", path)
        return value

    def entries(
        self, value: Any, path: str, what: str, allowed: Sequence[str]
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """Return (path, mapping) for every mapping in a list; report all other items."""
        entries = []
        for i, item in enumerate(self.items(value, path)):
            entry = self.mapping(item, f"{path}.{i}", what, allowed)
            if isinstance(item, Mapping):
                entries.append((f"{path}.{i}", entry))
        return entries

    def items(self, value: Any, path: str) -> list[Any]:
        """Return a list's items, or ``[]`` for ``None``."""
        if value is None:
            return []
        if not isinstance(value, list | tuple):
            self.error(f"must be a list, found {value!r}", path)
            return []
        return list(value)

    def keywords(self, value: Any, path: str) -> dict[str, Any]:
        """Return a mapping with text keys, or ``{}`` for ``None``."""
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
        """Return a mandatory name; an integer counts as text, because YAML reads ``uid: 0`` as one."""
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
        """Check a whole number of at least ``least``."""
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
            # functions of this package are not meant to be called from a document
            module = import_module(module_name, ours=False)
        except NameResolutionError as error:
            self.error(f"cannot import {module_name!r}: {error}", path)
            return _nothing
        target: Callable[..., Any] | None = getattr(module, attribute, None)
        if not callable(target):
            state = "has no" if target is None else "has no class or function"
            self.error(f"{module_name!r} {state} {attribute!r}{did_you_mean(attribute, dir(module))}", path)
            return _nothing
        try:
            check_origin(target, name, ours=False)
        except NameResolutionError as error:
            self.error(str(error), path)
            return _nothing
        return target

    # --- the parts of a plan --------------------------------------------------------------

    def plan(self, params: Mapping[str, Any]) -> tuple[CoSimulationPlan, PlanPaths]:
        """Read the whole description, check its cross-references, and return it with the parts' paths."""
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
        # A part that could not be read would only cause follow-up messages at the same path.
        broken = tuple(f"{problem.path}." for problem in self.problems)
        self.problems += [p for p in plan_problems(plan, paths) if not f"{p.path}.".startswith(broken)]
        return plan, paths

    def _simulators(self, value: Any, paths: list[str]) -> list[SimulatorSpec]:
        specs = []
        for uid, entry in self.keywords(value, "simulators").items():
            path = f"simulators.{uid}"
            entry = self.mapping(entry, path, "a simulator", _SIMULATOR_KEYS)
            starts: dict[str, Any] = {
                key: self.text(entry[key], f"{path}.{key}") for key in _SIMULATOR_KEYS[:3] if key in entry
            }
            self._check_start(starts, entry, path)
            paths.append(path)
            specs.append(
                SimulatorSpec(
                    uid=uid,
                    **starts,
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

    def _check_start(self, starts: Mapping[str, str], entry: Mapping[str, Any], path: str) -> None:
        """Check the start of a simulator, as far as possible without starting it."""
        if starts.get("python"):
            self.function(starts["python"], f"{path}.python")
        if starts.get("cmd") and "%(addr)s" not in starts["cmd"]:
            self.error("the command line must contain %(addr)s, the address to connect to", f"{path}.cmd")
        if starts.get("connect") and not _ADDRESS.fullmatch(starts["connect"]):
            self.error(f"must be host:port, found {starts['connect']!r}", f"{path}.connect")
        for key, word in (("cmd", COMMANDS), ("connect", CONNECTIONS)):
            fault = refusal(word) if starts.get(key) else None
            if fault is not None:
                self.error(fault, f"{path}.{key}")
        for key, ways in (("cwd", ("cmd",)), ("env", ("cmd",)), ("timeout", ("cmd", "connect"))):
            if key in entry and starts and not any(way in starts for way in ways):
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
                # the initial reading defaults to the space's value nearest to zero
                reading = space.unflatten(np.clip(0.0, space.flat_low, space.flat_high))
            elif reading not in space:
                self.error(f"{reading!r} is not in {space}", f"{path}.value")
            unit = None if entry.get("unit") is None else self.text(entry["unit"], f"{path}.unit")
            missing = self._flag(entry, "may_be_missing", path)
            information = SensorInformation(reading, space, uid, missing, unit)
            paths.append(path)
            ports.append(SensorPort(information, entity, attribute, index))
        return ports

    def _actuators(self, value: Any, paths: list[str]) -> list[ActuatorPort]:
        entries = self.entries(value, "actuators", "an actuator", _ACTUATOR_KEYS)
        targets = [self._port(entry, path) for path, entry in entries]
        # By default, a vector ends at its largest index in use.
        sizes: dict[tuple[str, str], int] = {}
        for _, entity, attribute, index in targets:
            if index is not None:
                key = entity, attribute
                sizes[key] = max(sizes.get(key, 0), index + 1)
        ports = []
        for (path, entry), (uid, entity, attribute, index) in zip(entries, targets, strict=True):
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
    """Replace a function that could not be imported; the reader has recorded the reason."""


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


_CLOCK = ("step_size", "end", "start")
_PARTS = ("simulators", "entities", "connections", "sensors", "actuators")


class DescribedCoSimulation(CoSimulation):
    """A co-simulation made of the simulators that the document's ``params`` describe.

    Args:
        **params: see the module's docstring. With ``build``, the description comes from that function,
            which is called once with ``params`` as keywords; otherwise from ``simulators``, ``entities``,
            ``connections``, ``sensors`` and ``actuators``.

    Raises:
        DocumentError: lists all problems of ``params``, with paths relative to them.
    """

    missing_remedy = "give its sensor the key 'may_be_missing: true'"

    def __init__(self, **params: Any):
        reader = PlanReader()
        self._plan: CoSimulationPlan | None = None
        self._paths: PlanPaths | None = None
        #: warnings for the check of a document, with paths relative to ``params``; set by :meth:`setup`
        self.warnings: list[Problem] = []
        if "build" in params:
            reader.mapping(params, "", "a co-simulation with build", (*_CLOCK, "build", "params"))
            self._build = reader.function(params["build"], "build")
            self._build_params = reader.keywords(params.get("params"), "params")
        else:
            reader.mapping(params, "", "a co-simulation", (*_CLOCK, *_PARTS, "build"))
            self._plan, self._paths = reader.plan(params)
        self.step_size = reader.whole(params.get("step_size", 1), "step_size", least=1)
        end = params.get("end")
        self.end = None if end is None else reader.whole(end, "end", least=1)
        # without an end, only a condition can end an episode: most simulators never stop
        self.ends = self.end is not None
        self.start = _date(reader, params.get("start"))
        if reader.problems:
            raise DocumentError(reader.problems)

    def setup(self) -> EnvironmentBaseline:
        """Return the plan's sensors and actuators; there are no rewards."""
        plan = self.plan()
        self.warnings = misspelt_seeds(plan, self._paths or PlanPaths.of(plan))
        return EnvironmentBaseline(
            sensors=[port.information for port in plan.sensors],
            actuators=[port.information for port in plan.actuators],
            start=self.start,
        )

    def plan(self) -> CoSimulationPlan:
        """Return the plan, the same for every episode; its simulators are started anew in each."""
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

    def source_of(self, sensor: str | None) -> str:
        plan = self.plan()
        entity = next(port.entity for port in plan.sensors if port.information.uid == sensor)
        specs = {spec.uid: spec for spec in plan.entities}
        name = entity
        while (parent := specs[name].parent) is not None:
            name = parent
        simulator = next(spec for spec in plan.simulators if spec.uid == specs[name].simulator)
        start = simulator.python or simulator.cmd or simulator.connect or "a function of its plan"
        return f"entity {entity!r} of simulator {simulator.uid!r} ({start})"

    def judge(self, time: int, readings: FloatVector) -> EnvironmentState:
        """Truncate the episode at the first state at or after the tick ``end``."""
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

"""From cascaded parts to the model; everything that is wrong is reported, nothing imported."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from palaestrai_mosaik.errors import NameResolutionError, did_you_mean
from palaestrai_mosaik.types.mode import Mode

from .canonical import copy
from .cascade import CascadedPhase, Definitions, Entry, identifier
from .located import Findings, Located, show
from .model import DOCUMENT_VERSION, AgentSpec, ClassSpec, EnvironmentSpec, PhaseSpec, Place, SimulationSpec
from .names import canonical_name, name_fault, split_id
from .vocabulary import (
    AGENT,
    AGENT_KEYED_CONDITION,
    BRIDGES,
    CLASS,
    CONTROLLERS,
    LOAD,
    MODES,
    RUN_CONFIG,
    SIMULATION,
)

Spec = TypeVar("Spec")
_THRESHOLD = re.compile(r"(brain|phase)_avg[1-9][0-9]*")


class ModelBuilder:
    """Reads cascaded phases into specs and remembers where each part was written.

    ``origins`` maps a place in the model to the place in the text. An inherited entry
    is read once and its spec is shared by the phases.
    """

    def __init__(self, found: Findings):
        self.found = found
        self.origins: dict[Place, Place] = {}
        self._specs: dict[int, Any] = {}

    def phase(self, index: int, raw: CascadedPhase) -> PhaseSpec | None:
        """Return one phase, or ``None`` where it is not sound."""
        here: Place = ("phases", index)
        self.origins[here] = raw.at.place
        for topic, entries in (("environments", raw.environments), ("agents", raw.agents)):
            if not entries and topic not in raw.faulty:
                self.found.error(raw.at.place, f"the phase {raw.name!r} needs at least one of {topic!r}")
        environments = self._entries((*here, "environments"), raw.environments, self._environment)
        agents = self._entries((*here, "agents"), raw.agents, lambda entry, _: self._agent(entry, raw))
        simulation = self._simulation(raw, (*here, "simulation"))
        mode, workers, episodes = self._phase_config(raw.phase_config)
        if simulation is None:
            return None
        return PhaseSpec(index, raw.name, environments, agents, simulation, mode, workers, episodes)

    def _entries(
        self, here: Place, entries: Mapping[str, Entry], reader: Callable[[Entry, Place], Spec | None]
    ) -> tuple[Spec, ...]:
        specs = []
        for index, entry in enumerate(entries.values()):
            place = (*here, index)
            self.origins[place] = entry.at.place
            for key, part in entry.parts.items():
                if part.place != (*entry.at.place, key):
                    self.origins[(*place, key)] = part.place
            if id(entry) not in self._specs:
                self._specs[id(entry)] = reader(entry, place)
            if self._specs[id(entry)] is not None:
                specs.append(self._specs[id(entry)])
        return tuple(specs)

    def _environment(self, entry: Entry, _: Place) -> EnvironmentSpec | None:
        parts = entry.parts
        name = class_name(self.found, parts["name"])
        params = parameters(self.found, parts.get("params"))
        step_size = integer(self.found, parts.get("step_size"), "step_size (mosaik ticks)", 1)
        reward = optional_class(self.found, parts.get("reward"), "reward")
        transformer = optional_class(self.found, parts.get("state_transformer"), "state_transformer")
        if name is None:
            return None
        return EnvironmentSpec(parts["uid"].value, name, params, step_size, reward, transformer)

    def _agent(self, entry: Entry, phase: CascadedPhase) -> AgentSpec | None:
        found, parts = self.found, entry.parts
        incomplete = "agents" not in phase.faulty and found.missing(entry.at.place, parts, AGENT)
        # With an environment unread, nobody can say which ids are wrong.
        environments = None if "environments" in phase.faulty else phase.environments
        classes = {
            key: optional_class(found, parts.get(key), key) for key in ("muscle", "brain", "objective")
        }
        ids = {key: id_list(found, parts.get(key), key, environments) for key in ("sensors", "actuators")}
        load = load_section(found, parts.get("load"))
        if "muscle" in parts and parts["muscle"].value is None:
            found.error(parts["muscle"].place, "an agent's muscle may not be left out")
        muscle = classes["muscle"]
        if incomplete or muscle is None:
            return None
        return AgentSpec(
            parts["name"].value,
            muscle,
            classes["brain"],
            classes["objective"],
            ids["sensors"],
            ids["actuators"],
            load,
        )

    def _simulation(self, raw: CascadedPhase, here: Place) -> SimulationSpec | None:
        found, parts = self.found, raw.simulation
        faulty = "simulation" in raw.faulty
        if not parts:
            if not faulty:
                message = f"the phase {raw.name!r} needs the key 'simulation', which is missing"
                found.error(raw.at.place, message)
            return None
        for key, part in parts.items():
            self.origins[(*here, key)] = part.place
        place = next(iter(parts.values())).place[:-1]
        conditions = condition_list(found, parts.get("conditions"))
        check_agent_keys(found, items_of(parts.get("conditions")), raw.agents)
        bridge = choice(found, parts.get("bridge"), "bridge", {name: name for name in BRIDGES}, "agents")
        if "name" not in parts:
            if not faulty:
                found.missing(place, parts, SIMULATION)
            return None
        controller = choice(found, parts["name"], "the simulation controller", CONTROLLERS, "vanilla")
        return SimulationSpec(controller, str(parts["name"].value), conditions, bridge)

    def _phase_config(self, parts: Mapping[str, Located]) -> tuple[Mode, int, int | None]:
        mode_at = parts.get("mode")
        if mode_at is not None and isinstance(mode_at.value, str):
            mode_at = mode_at._replace(value=mode_at.value.lower())
        mode = choice(self.found, mode_at, "mode", MODES, "train")
        workers = integer(self.found, parts.get("workers"), "workers", 1)
        episodes = integer(self.found, parts.get("episodes"), "episodes", 1)
        return Mode(mode), 1 if workers is None else workers, episodes

    def run_conditions(
        self, at: Located | None, agents: Collection[str], place: Place
    ) -> tuple[ClassSpec, ...]:
        """Return the conditions of ``run_config`` (``at``); ``place`` is where it belongs."""
        found = self.found
        if at is None:
            found.error(place, "the document needs the key 'run_config', which is missing")
            return ()
        parts = found.section(at, RUN_CONFIG)
        if parts is None:
            return ()
        if len(parts) == 2:
            found.error(parts["conditions"].place, "give either 'condition' (one) or 'conditions' (a list)")
        elif not parts:
            found.error(at.place, "run_config needs the key 'condition' (one) or 'conditions' (a list)")
        listed = parts.get("conditions")
        if listed is not None:
            self.origins["conditions",] = listed.place
            conditions = condition_list(found, listed)
            check_agent_keys(found, items_of(listed), agents)
            return conditions
        single = parts.get("condition")
        if single is None:
            return ()
        self.origins["conditions", 0] = single.place
        condition = class_spec(found, single, "a condition")
        check_agent_keys(found, [single], agents)
        return (condition,) if condition is not None else ()


def header(found: Findings, parts: Mapping[str, Located]) -> tuple[str, int, str]:
    """Return uid, seed and version of the document (empty or 0 where they are not sound)."""
    uid = identifier(found, parts["uid"], "uid") if "uid" in parts else None
    seed = None
    if "seed" in parts:
        seed = integer(found, parts["seed"], "seed", None, nullable=False)
    version = identifier(found, parts["version"], "version") if "version" in parts else None
    if version is not None:
        ours, theirs = DOCUMENT_VERSION.split(".")[:2], version.split(".")[:2]
        if ours != theirs:
            found.warn(
                parts["version"].place,
                f"the document is written for version {version}, this is version {DOCUMENT_VERSION}; "
                "it is read as the latter",
            )
    return uid or "", seed or 0, version or ""


def run_config_of(found: Findings, parts: Mapping[str, Located], definitions: Definitions) -> Located | None:
    """Return the run_config: given, named by a string, or the default in the definitions."""
    if "run_config" in parts:
        return definitions.lookup("run_config", parts["run_config"])
    return definitions.default("run_config", RUN_CONFIG)


def check_loads(found: Findings, uid: str, raw: Iterable[CascadedPhase]) -> None:
    """Check that the phases and agents that ``load`` names in this document exist."""
    phases = list(raw)
    names = [phase.name for phase in phases]
    agents = {name for phase in phases for name in phase.agents}
    for phase in phases:
        for entry in phase.agents.values():
            load = entry.parts.get("load")
            if load is None or not isinstance(load.value, dict):
                continue
            parts = {LOAD.spellings.get(key, key): load.child(key) for key in load.value}
            run = parts.get("experiment_run")
            if run is not None and run.value != uid:
                continue
            name, index, agent = (parts.get(key) for key in ("phase_name", "phase", "agent"))
            if name is not None and isinstance(name.value, str) and name.value not in names:
                allowed = ", ".join(names)
                found.error(
                    name.place,
                    f"there is no phase {name.value!r}{did_you_mean(name.value, names)}; phases: {allowed}",
                )
            if index is not None and type(index.value) is int and index.value >= len(names):
                found.error(
                    index.place,
                    f"there is no phase {index.value}: the last of {len(names)} is {len(names) - 1}",
                )
            if agent is not None and isinstance(agent.value, str) and agent.value not in agents:
                near = did_you_mean(agent.value, agents)
                found.error(agent.place, f"there is no agent {agent.value!r}{near}")


def class_name(found: Findings, at: Located) -> str | None:
    """Return the name of a class, its form checked."""
    name = identifier(found, at, "a class name")
    fault = name_fault(name) if name is not None else None
    if fault is not None:
        found.error(at.place, fault)
        return None
    return name


def class_spec(found: Findings, at: Located, what: str) -> ClassSpec | None:
    """Return the class to load at ``at`` (``name`` and ``params``)."""
    if not isinstance(at.value, dict):
        found.error(at.place, f"{what} must be a mapping with name and params, found {show(at.value)}")
        return None
    parts = found.section(at, CLASS)
    if parts is None or found.missing(at.place, parts, CLASS):
        return None
    name = class_name(found, parts["name"])
    params = parameters(found, parts.get("params"))
    return ClassSpec(name, params) if name is not None else None


def optional_class(found: Findings, at: Located | None, what: str) -> ClassSpec | None:
    """Return the class to load at ``at``; absent or null means none."""
    return None if at is None or at.value is None else class_spec(found, at, what)


def parameters(found: Findings, at: Located | None) -> dict[str, Any]:
    """Return an own copy of the ``params`` at ``at``; absent or null means none."""
    if at is None or at.value is None:
        return {}
    if not isinstance(at.value, dict):
        found.error(at.place, f"params must be a mapping, found {show(at.value)}")
        return {}
    for key in at.value:
        if not isinstance(key, str):
            found.error((*at.place, key), f"a parameter's name must be a string, found {show(key)}")
    return {str(key): copy(value) for key, value in at.value.items()}


def integer(
    found: Findings, at: Located | None, what: str, minimum: int | None, *, nullable: bool = True
) -> int | None:
    """Return the integer at ``at``; absent, or null where that is ``nullable``, gives ``None``."""
    if at is None or (at.value is None and nullable):
        return None
    value = at.value
    if isinstance(value, int) and not isinstance(value, bool) and (minimum is None or value >= minimum):
        return value
    least = "" if minimum is None else f" of at least {minimum}"
    null = " or null" if nullable else ""
    found.error(at.place, f"{what} must be an integer{least}{null}, found {show(value)}")
    return None


def choice(found: Findings, at: Located | None, what: str, table: Mapping[str, Spec], default: Spec) -> Spec:
    """Return what the word at ``at`` stands for in ``table``; absent or null: ``default``."""
    if at is None or at.value is None:
        return default
    if isinstance(at.value, str) and at.value in table:
        return table[at.value]
    near = did_you_mean(at.value, table) if isinstance(at.value, str) else ""
    found.error(at.place, f"{what} is {show(at.value)}{near}; allowed: {', '.join(table)}")
    return default


def id_list(found: Findings, at: Located | None, what: str, uids: Collection[str] | None) -> tuple[str, ...]:
    """Return the sensor or actuator ids at ``at``, each below one of the environments ``uids``.

    Where ``uids`` is ``None``, they are not known and not compared.
    """
    if at is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"{what} must be a list of ids, found {show(at.value)}")
        return ()
    first: dict[str, int] = {}
    for index, value in enumerate(at.value):
        place = (*at.place, index)
        if identifier(found, Located(value, place), f"an id in {what}") is None:
            continue
        if value in first:
            found.error(place, f"{value!r} stands twice in {what}: first as entry {first[value]}")
            continue
        first[value] = index
        if uids is None:
            continue
        try:
            split_id(value, uids)
        except NameResolutionError as error:
            found.error(place, str(error))
    return tuple(first)


def load_section(found: Findings, at: Located | None) -> dict[str, Any] | None:
    """Return ``load`` with its keys in one spelling; absent or null means none."""
    if at is None or at.value is None:
        return None
    parts = found.section(at, LOAD) or {}
    load: dict[str, Any] = {}
    for key, part in parts.items():
        if key == "phase":
            value: Any = integer(found, part, "load's phase (an index; a name goes to phase_name)", 0)
        else:
            value = identifier(found, part, f"load's {key}") if part.value is not None else None
        if value is not None:
            load[key] = value
    if "phase" in load and "phase_name" in load:
        found.error(at.place, "load takes 'phase' (an index) or 'phase_name', not both")
    return load


def condition_list(found: Findings, at: Located | None) -> tuple[ClassSpec, ...]:
    """Return the conditions listed at ``at``; absent or null means none."""
    if at is None or at.value is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"conditions must be a list, found {show(at.value)}")
        return ()
    specs = [class_spec(found, item, "a condition") for item in items_of(at)]
    return tuple(spec for spec in specs if spec is not None)


def items_of(at: Located | None) -> list[Located]:
    """Return the items of the list at ``at``, none where there is no list."""
    if at is None or not isinstance(at.value, list):
        return []
    return [at.child(index) for index in range(len(at.value))]


def check_agent_keys(found: Findings, conditions: Iterable[Located], agents: Collection[str]) -> None:
    """Check conditions whose params are thresholds by agent: the agents and keys exist."""
    for item in conditions:
        if not isinstance(item.value, dict):
            continue
        name = item.value.get("name")
        if not isinstance(name, str) or canonical_name(name) != AGENT_KEYED_CONDITION:
            continue
        params = next((item.child(key) for key in ("params", "parameters") if key in item.value), None)
        if params is None or not isinstance(params.value, dict):
            continue
        for agent in params.value:
            thresholds = params.child(agent)
            if agent not in agents:
                allowed = ", ".join(agents)
                found.error(
                    thresholds.place,
                    f"there is no agent {agent!r}{did_you_mean(agent, agents)}; agents: {allowed}",
                )
            _check_thresholds(found, thresholds)


def _check_thresholds(found: Findings, at: Located) -> None:
    if not isinstance(at.value, dict):
        found.error(at.place, f"an agent's thresholds must be a mapping, found {show(at.value)}")
        return
    for key, value in at.value.items():
        if not isinstance(key, str) or not _THRESHOLD.fullmatch(key):
            found.error(
                (*at.place, key), f"unknown threshold {key!r}; allowed: brain_avgN and phase_avgN, N from 1"
            )
        elif isinstance(value, bool) or not isinstance(value, (int, float)):
            found.error((*at.place, key), f"{key} must be a number, found {show(value)}")

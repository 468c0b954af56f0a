"""From cascaded parts to the model; everything that is wrong is reported, nothing imported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from palaestrai_mosaik.types.control import Mode

from .bodies import Common, body_list, channel_list, has_bodies, origins_of
from .brain_sources import load_section, points_before_the_first, replay_list, snapshot_section
from .cascade import CascadedPhase, Definitions, Entry
from .conditions import check_agent_keys, warn_of_evaluations
from .located import Findings, Located
from .model import (
    DEFAULT_SYNC_EVERY,
    DOCUMENT_VERSION,
    AgentSpec,
    BodySpec,
    ClassSpec,
    EnvironmentSpec,
    PhaseSpec,
    Place,
    Scheduler,
    SimulationSpec,
)
from .readers import (
    boolean,
    check_modules,
    choice,
    class_list,
    class_name,
    class_spec,
    id_list,
    identifier,
    integer,
    items_of,
    lower,
    optional_class,
    parameters,
)
from .vocabulary import (
    AGENT,
    AGENT_WITH_BODIES,
    BRIDGES,
    CONTROLLERS,
    MODES,
    RUN_CONFIG,
    SCHEDULERS,
    SIMULATION,
)

Spec = TypeVar("Spec")


class ModelBuilder:
    """Reads cascaded phases into specs and remembers where each part was written.

    ``origins`` maps a place in the model to the place in the text. An inherited entry
    is read once and its spec is shared by the phases. ``run_condition_items`` are the
    conditions of ``run_config`` as they are written.
    """

    def __init__(self, found: Findings):
        self.found = found
        self.origins: dict[Place, Place] = {}
        self.run_condition_items: list[Located] = []
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
        agents = tuple(
            replace(agent, load=None)
            if agent.load is not None and points_before_the_first(agent.load, index)
            else agent
            for agent in agents
        )
        simulation = self._simulation(raw, (*here, "simulation"))
        config = self._phase_config(raw.phase_config)
        if simulation is None:
            return None
        return PhaseSpec(index, raw.name, environments, agents, simulation, **config)

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
            if has_bodies(entry.parts):
                for inside, origin in origins_of(entry.parts):
                    self.origins[(*place, *inside)] = origin
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
        check_modules(self.found, parts, name, params)
        return EnvironmentSpec(parts["uid"].value, name, params, step_size, reward, transformer)

    def _agent(self, entry: Entry, phase: CascadedPhase) -> AgentSpec | None:
        found, parts = self.found, entry.parts
        several, faulty = has_bodies(parts), "agents" in phase.faulty
        section = AGENT_WITH_BODIES if several else AGENT
        incomplete = not faulty and found.missing(entry.at.place, parts, section)
        # With an environment unread, nobody can say which ids are wrong.
        environments = None if "environments" in phase.faulty else phase.environments
        classes = {
            key: optional_class(found, parts.get(key), key) for key in ("muscle", "brain", "objective")
        }
        channels = channel_list if several else id_list
        ids = {key: channels(found, parts.get(key), key, environments) for key in ("sensors", "actuators")}
        load = load_section(found, parts.get("load"))
        filters = class_list(found, parts.get("filters"), "filters")
        replay = replay_list(found, parts.get("replay"))
        snapshots = snapshot_section(found, parts.get("snapshots"))
        muscle = classes["muscle"]
        bodies: tuple[BodySpec, ...] = ()
        if several:
            common = Common(parts, muscle, classes["objective"], ids, filters, environments, faulty)
            bodies = body_list(found, parts["bodies"], common)
            if bodies and muscle is None:
                muscle = bodies[0].muscle
        elif "muscle" in parts and parts["muscle"].value is None:
            found.error(parts["muscle"].place, "an agent's muscle may not be left out")
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
            filters,
            replay,
            snapshots,
            bodies,
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
        conditions = class_list(found, parts.get("conditions"), "conditions")
        listed = items_of(parts.get("conditions"))
        check_agent_keys(found, listed, raw.agents)
        warn_of_evaluations(found, listed)
        params = parts.get("params")
        for key in parameters(found, params):
            found.error(
                (*parts["params"].place, key),
                f"unknown parameter {key!r}: a simulation controller takes none",
            )
        bridge = choice(found, parts.get("bridge"), "bridge", {name: name for name in BRIDGES}, "agents")
        schedulers: dict[str, Scheduler] = {name: name for name in SCHEDULERS}
        scheduler = choice(found, parts.get("scheduler"), "scheduler", schedulers, "direct")
        if "name" not in parts:
            if not faulty:
                found.missing(place, parts, SIMULATION)
            return None
        controller = choice(found, parts["name"], "the simulation controller", CONTROLLERS, "vanilla")
        return SimulationSpec(controller, str(parts["name"].value), conditions, bridge, scheduler)

    def _phase_config(self, parts: Mapping[str, Located]) -> dict[str, Any]:
        """Return the fields of a phase that its ``phase_config`` gives."""
        found = self.found
        workers = integer(found, parts.get("workers"), "workers", 1)
        every = integer(found, parts.get("evaluate_every"), "evaluate_every (episodes; 0: never)", 0)
        sync_every = integer(found, parts.get("sync_every"), "sync_every (steps)", 1)
        return {
            "mode": Mode(choice(found, lower(parts.get("mode")), "mode", MODES, "train")),
            "workers": 1 if workers is None else workers,
            "episodes": integer(found, parts.get("episodes"), "episodes", 1),
            "evaluate_every": every or None,
            "sync_every": DEFAULT_SYNC_EVERY if sync_every is None else sync_every,
            "asynchronous": boolean(found, parts.get("asynchronous"), "asynchronous"),
        }

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
            conditions = class_list(found, listed, "conditions")
            self.run_condition_items = items_of(listed)
            check_agent_keys(found, self.run_condition_items, agents)
            return conditions
        single = parts.get("condition")
        if single is None:
            return ()
        self.origins["conditions", 0] = single.place
        condition = class_spec(found, single, "a condition")
        self.run_condition_items = [single]
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

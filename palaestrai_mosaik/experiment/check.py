"""Builds the model from cascaded parts; all problems are reported, and nothing is imported."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from palaestrai_mosaik.errors import did_you_mean
from palaestrai_mosaik.importing import COMMANDS, refusal
from palaestrai_mosaik.types.control import Mode

from .bodies import Common, body_list, channel_list, has_bodies, origins_of
from .brain_sources import load_section, points_before_the_first, replay_list, snapshot_section
from .cascade import CascadedPhase, Definitions, Entry
from .classes import interpreter_refusal
from .conditions import check_agent_keys, warn_of_evaluations
from .fields import check_modules, id_list, items_of, with_full_name
from .located import Findings, Located, Section
from .model import (
    DOCUMENT_VERSION,
    UNREAD,
    AgentSpec,
    BodySpec,
    ClassSpec,
    EnvironmentSpec,
    PhaseSpec,
    Place,
    SimulationSpec,
    all_channels,
)
from .random_streams import RANDOM_STREAMS
from .short_names import EPISODE_CONDITION, RUN_CONDITION
from .vocabulary import (
    AGENT,
    AGENT_WITH_BODIES,
    ENVIRONMENT,
    ENVIRONMENT_ENTRY,
    PHASE_CONFIG,
    RUN_CONFIG,
    SIMULATION,
    TOP,
)

Spec = TypeVar("Spec")

#: keys of an agent that depend on other parts of the document
_CHANNELS = ("sensors", "actuators")
_IN_CONTEXT = ("name", "sensors", "actuators", "load", "replay", "snapshots", "bodies")


class ModelBuilder:
    """Reads cascaded phases into specs, and remembers the place of each part in the text.

    ``origins`` maps a place in the model to the place in the text. An inherited entry
    is read once and its spec is shared by the phases. ``run_condition_items`` are the
    written conditions of ``run_config``.
    """

    def __init__(self, found: Findings):
        self.found = found
        self.origins: dict[Place, Place] = {}
        self.run_condition_items: list[Located] = []
        self._specs: dict[tuple[Any, ...], Any] = {}
        #: topics without an entry in a phase
        self._absent: set[str] = set()

    def phase(self, index: int, raw: CascadedPhase, streams: str | None = None) -> PhaseSpec:
        """Build one phase; ``streams`` names the phase with its random streams.

        Unsound environments are left out, and other unsound values are replaced by defaults.
        """
        here: Place = ("phases", index)
        self.origins[here] = raw.at.place
        for topic, entries in (("environments", raw.environments), ("agents", raw.agents)):
            if not entries and topic not in raw.faulty and topic not in self._absent:
                self.found.error(raw.at.place, f"the phase {raw.name!r} needs at least one of {topic!r}")
                # later phases inherit the gap: report it once
                self._absent.add(topic)
        environments = self._entries((*here, "environments"), raw.environments, self._environment)
        agents = self._entries(
            (*here, "agents"), raw.agents, lambda entry, _: self._agent(entry, raw), raw.environments
        )
        self._check_owners(raw)
        agents = tuple(
            replace(agent, load=None)
            if agent.load is not None and points_before_the_first(agent.load, index)
            else agent
            for agent in agents
        )
        simulation = self._simulation(raw, (*here, "simulation"))
        config = PHASE_CONFIG.values(self.found, raw.phase_config)
        config |= {"mode": Mode(config["mode"]), "evaluate_every": config["evaluate_every"] or None}
        config[RANDOM_STREAMS] = streams
        return PhaseSpec(index, raw.name, environments, agents, simulation, **config)

    def _check_owners(self, raw: CascadedPhase) -> None:
        """Report several agents that name no actuators, so that each would have all."""
        owners = [
            name
            for name, entry in raw.agents.items()
            if "actuators" not in entry.parts and not has_bodies(entry.parts)
        ]
        if len(owners) > 1 and "agents" not in raw.faulty:
            names = ", ".join(map(repr, owners))
            for name in owners[1:]:
                message = f"the agents {names} name no actuators, and each would have all: say which ones each of them has"
                self.found.error(raw.agents[name].at.place, message)

    def _entries(
        self,
        here: Place,
        entries: Mapping[str, Entry],
        reader: Callable[[Entry, Place], Spec | None],
        uids: Iterable[str] = (),
    ) -> tuple[Spec, ...]:
        specs: list[Spec] = []
        for entry in entries.values():
            place = (*here, len(specs))
            self.origins[place] = entry.at.place
            for key, part in entry.parts.items():
                if part.place != (*entry.at.place, key):
                    self.origins[(*place, key)] = part.place
            if has_bodies(entry.parts):
                for inside, origin in origins_of(entry.parts):
                    self.origins[(*place, *inside)] = origin
            # an agent's default channels depend on the environments of the phase
            spec_key = (id(entry), *(() if entry.parts.keys() >= {*_CHANNELS} else uids))
            if spec_key not in self._specs:
                self._specs[spec_key] = reader(entry, place)
            if self._specs[spec_key] is not None:
                specs.append(self._specs[spec_key])
        return tuple(specs)

    def _environment(self, entry: Entry, _: Place) -> EnvironmentSpec | None:
        parts = entry.parts
        own, given = (
            ENVIRONMENT.values(self.found, parts),
            ENVIRONMENT_ENTRY.values(self.found, parts),
        )
        if own["name"] is None:
            return None
        own["name"], own["params"] = with_full_name(
            self.found, parts, own["name"], own["params"], "environment"
        )
        check_modules(self.found, parts, own["name"], own["params"])
        if own["timeout"] is not None and own["interpreter"] is None:
            message = (
                "timeout: limits the answers of another interpreter, and none is given (interpreter: PATH)"
            )
            self.found.error(parts["timeout"].place, message)
        fault = refusal(COMMANDS) if own["interpreter"] is not None else None
        if fault is not None:
            self.found.error(parts["interpreter"].place, interpreter_refusal(fault))
            self.found.refused = True
        del given["environment"]
        return EnvironmentSpec(**own, **given)

    def _agent(self, entry: Entry, phase: CascadedPhase) -> AgentSpec:
        found, parts = self.found, entry.parts
        several, faulty = has_bodies(parts), "agents" in phase.faulty
        section = AGENT_WITH_BODIES if several else AGENT
        if not faulty and not self._is_misspelt(entry, phase, section):
            found.missing(entry.at.place, parts, section)
        # If an environment could not be read, ids cannot be checked.
        environments = None if "environments" in phase.faulty else phase.environments
        given = section.values(found, {key: at for key, at in parts.items() if key not in _IN_CONTEXT})
        channels = channel_list if several else id_list
        ids = {key: channels(found, parts.get(key), key, environments) for key in _CHANNELS}
        for key in () if several else _CHANNELS:
            if key not in parts:
                ids[key] = tuple(map(all_channels, environments or ()))
        load = load_section(found, parts.get("load"))
        replay = replay_list(found, parts.get("replay"))
        snapshots = snapshot_section(found, parts.get("snapshots"))
        muscle, filters = given["muscle"], given["filters"]
        bodies: tuple[BodySpec, ...] = ()
        if several:
            common = Common(parts, muscle, given["objective"], ids, filters, environments, faulty)
            bodies = body_list(found, parts["bodies"], common)
            if bodies and muscle is None:
                muscle = bodies[0].muscle
        elif "muscle" in parts and parts["muscle"].value is None:
            found.error(parts["muscle"].place, "an agent's muscle may not be left out")
        return AgentSpec(
            parts["name"].value,
            muscle or UNREAD,
            given["brain"],
            given["objective"],
            ids["sensors"],
            ids["actuators"],
            load,
            filters,
            replay,
            snapshots,
            bodies,
        )

    def _is_misspelt(self, entry: Entry, phase: CascadedPhase, section: Section) -> bool:
        """Report an agent that lacks keys and has nearly the name of another one; return whether it was reported."""
        absent = [key for key in section.required if key not in entry.parts]
        name = entry.parts["name"].value
        near = did_you_mean(name, [agent_name for agent_name in phase.agents if agent_name != name])
        if not absent or not near:
            return False
        self.found.error(
            entry.at.place,
            f"agent {name!r} is new in phase {phase.name!r}{near}; a new one needs {', '.join(map(repr, absent))}, too",
        )
        return True

    def _simulation(self, raw: CascadedPhase, here: Place) -> SimulationSpec:
        found, parts = self.found, raw.simulation
        if not parts:
            return SimulationSpec("vanilla", "vanilla", (EPISODE_CONDITION,))
        for key, part in parts.items():
            self.origins[(*here, key)] = part.place
        given = SIMULATION.values(found, parts)
        listed = items_of(parts.get("conditions"))
        check_agent_keys(found, listed, raw.agents)
        warn_of_evaluations(found, listed)
        for key in given["params"]:
            found.error(
                (*parts["params"].place, key),
                f"unknown parameter {key!r}: a simulation controller takes none",
            )
        return SimulationSpec(
            given["name"],
            str(parts["name"].value) if "name" in parts else given["name"],
            given["conditions"] if "conditions" in parts else (EPISODE_CONDITION,),
            given["bridge"],
            given["scheduler"],
            given["values"],
        )

    def run_conditions(self, at: Located | None, agents: Collection[str]) -> tuple[ClassSpec, ...]:
        """Read the conditions of ``run_config`` at ``at``; the default condition if ``at`` is ``None``."""
        found = self.found
        if at is None:
            return (RUN_CONDITION,)
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
            conditions: tuple[ClassSpec, ...] = RUN_CONFIG.keys["conditions"].read(
                found, listed, "conditions"
            )
            self.run_condition_items = items_of(listed)
            check_agent_keys(found, self.run_condition_items, agents)
            return conditions
        single = parts.get("condition")
        if single is None:
            return ()
        self.origins["conditions", 0] = single.place
        condition = RUN_CONFIG.keys["condition"].read(found, single, "a condition")
        self.run_condition_items = [single]
        check_agent_keys(found, [single], agents)
        return (condition or UNREAD,)


def header(found: Findings, parts: Mapping[str, Located]) -> tuple[str, int, str]:
    """Read uid, seed and version of the document; empty or 0 if they are not sound."""
    uid, seed, version = (
        TOP.keys[key].read(found, parts.get(key), key) for key in ("uid", "seed", "version")
    )
    if "version" not in parts:
        version = DOCUMENT_VERSION
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
    """Return the run_config: written, named by a string, or the default in the definitions."""
    if "run_config" in parts:
        return definitions.lookup("run_config", parts["run_config"])
    return definitions.default("run_config", RUN_CONFIG)

"""Builds the model from cascaded parts; all problems are reported, and nothing is imported.

Source of the word body: the seed "AEB Design" of SLM Lab. A body is one incarnation of an agent in
exactly one environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from palaestrai_mosaik.core.errors import NameResolutionError, did_you_mean
from palaestrai_mosaik.core.importing import COMMANDS, refusal
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.types.control import Mode

from .cascade import RANDOM_STREAMS, CascadedPhase, Definitions, Entry, shared_streams
from .class_names import EPISODE_CONDITION, RUN_CONDITION, interpreter_refusal
from .conditions import check_agent_keys, warn_of_evaluations
from .fields import (
    TEXT,
    Findings,
    Located,
    Section,
    id_list,
    items_of,
    optional_class,
    show,
    split_id,
    with_full_name,
)
from .model import (
    BODY_NUMBER,
    DOCUMENT_VERSION,
    MAX_BODIES,
    UNREAD,
    AgentSpec,
    BodySpec,
    ClassSpec,
    EnvironmentSpec,
    PhaseSpec,
    Place,
    ReplaySpec,
    SimulationSpec,
    SnapshotSpec,
    all_channels,
)
from .vocabulary import (
    AGENT,
    AGENT_WITH_BODIES,
    BODY,
    COMMON,
    ENVIRONMENT,
    ENVIRONMENT_ENTRY,
    LOAD,
    PHASE_CONFIG,
    REPLAY,
    RUN_CONFIG,
    SIMULATION,
    SNAPSHOTS,
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

    def __init__(self, findings: Findings):
        self.findings = findings
        self.origins: dict[Place, Place] = {}
        self.run_condition_items: list[Located] = []
        self._specs: dict[tuple[Any, ...], Any] = {}
        #: topics without an entry in a phase
        self._absent: set[str] = set()

    def phases(self, schedule: Sequence[CascadedPhase]) -> tuple[PhaseSpec, ...]:
        """Build all phases of a schedule."""
        shared = shared_streams(self.findings, schedule)
        return tuple(
            self._phase(index, phase, shared.get(phase.name)) for index, phase in enumerate(schedule)
        )

    def _phase(self, index: int, raw: CascadedPhase, streams: str | None) -> PhaseSpec:
        """Build one phase; ``streams`` names the phase with its random streams.

        Unsound environments are left out, and other unsound values are replaced by defaults.
        """
        here: Place = ("phases", index)
        self.origins[here] = raw.at.place
        for topic in ("environments", "agents"):
            if not getattr(raw, topic) and topic not in raw.faulty | self._absent:
                self.findings.error(raw.at.place, f"the phase {raw.name!r} needs at least one of {topic!r}")
                # later phases inherit the gap: report it once
                self._absent.add(topic)
        environments = self._entries((*here, "environments"), raw.environments, self._environment)
        agents = self._entries(
            (*here, "agents"), raw.agents, lambda entry: self._agent(entry, raw), raw.environments
        )
        self._check_owners(raw)
        if index == 0:
            agents = tuple(map(_without_useless_load, agents))
        simulation = self._simulation(raw, (*here, "simulation"))
        config = PHASE_CONFIG.values(self.findings, raw.phase_config)
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
                self.findings.error(raw.agents[name].at.place, message)

    def _entries(
        self,
        here: Place,
        entries: Mapping[str, Entry],
        reader: Callable[[Entry], Spec | None],
        uids: Iterable[str] = (),
    ) -> tuple[Spec, ...]:
        specs: list[Spec] = []
        for entry in entries.values():
            path = (*here, len(specs))
            self.origins[path] = entry.at.place
            for key, part in entry.parts.items():
                if part.place != (*entry.at.place, key):
                    self.origins[(*path, key)] = part.place
            if has_bodies(entry.parts):
                for inside, origin in origins_of(entry.parts):
                    self.origins[(*path, *inside)] = origin
            # an agent's default channels depend on the environments of the phase
            spec_key = (id(entry), *(() if entry.parts.keys() >= {*_CHANNELS} else uids))
            if spec_key not in self._specs:
                self._specs[spec_key] = reader(entry)
            if self._specs[spec_key] is not None:
                specs.append(self._specs[spec_key])
        return tuple(specs)

    def _environment(self, entry: Entry) -> EnvironmentSpec | None:
        findings, parts = self.findings, entry.parts
        values = ENVIRONMENT.values(findings, parts) | ENVIRONMENT_ENTRY.values(findings, parts)
        del values["environment"]
        if values["name"] is None:
            return None
        values["name"], values["params"] = with_full_name(
            findings, parts, values["name"], values["params"], "environment"
        )
        if values["interpreter"] is not None:
            fault = refusal(COMMANDS)
            if fault is not None:
                findings.error(parts["interpreter"].place, interpreter_refusal(fault))
                findings.refused = True
        elif values["timeout"] is not None:
            message = (
                "timeout: limits the answers of another interpreter, and none is given (interpreter: PATH)"
            )
            findings.error(parts["timeout"].place, message)
        return EnvironmentSpec(**values)

    def _agent(self, entry: Entry, phase: CascadedPhase) -> AgentSpec:
        findings, parts = self.findings, entry.parts
        several, faulty = has_bodies(parts), "agents" in phase.faulty
        section = AGENT_WITH_BODIES if several else AGENT
        if not faulty:
            self._check_required(entry, phase, section)
        # If an environment could not be read, ids cannot be checked.
        environments = None if "environments" in phase.faulty else phase.environments
        values = section.values(findings, _apart_from(parts, _IN_CONTEXT))
        ids = _channels(findings, parts, environments)
        load = load_section(findings, parts.get("load"))
        replay = replay_list(findings, parts.get("replay"))
        snapshots = snapshot_section(findings, parts.get("snapshots"))
        muscle, filters = values["muscle"], values["filters"]
        bodies: tuple[BodySpec, ...] = ()
        if several:
            common = Common(parts, muscle, values["objective"], ids, filters, environments, faulty)
            bodies = body_list(findings, parts["bodies"], common)
            if bodies and muscle is None:
                muscle = bodies[0].muscle
        elif "muscle" in parts and not _has(parts, "muscle"):
            findings.error(parts["muscle"].place, "an agent's muscle may not be left out")
        return AgentSpec(
            parts["name"].value,
            muscle or UNREAD,
            values["brain"],
            values["objective"],
            ids["sensors"],
            ids["actuators"],
            load,
            filters,
            replay,
            snapshots,
            bodies,
        )

    def _check_required(self, entry: Entry, phase: CascadedPhase, section: Section) -> None:
        """Report missing keys of an agent; its name is probably misspelt if it is nearly that of another one."""
        absent = [key for key in section.required if key not in entry.parts]
        name = entry.parts["name"].value
        near = did_you_mean(name, [agent_name for agent_name in phase.agents if agent_name != name])
        if absent and near:
            message = f"agent {name!r} is new in phase {phase.name!r}{near}; a new one needs {', '.join(map(repr, absent))}, too"
            self.findings.error(entry.at.place, message)
        else:
            self.findings.missing(entry.at.place, entry.parts, section)

    def _simulation(self, raw: CascadedPhase, here: Place) -> SimulationSpec:
        findings, parts = self.findings, raw.simulation
        if not parts:
            return SimulationSpec("vanilla", "vanilla", (EPISODE_CONDITION,))
        for key, part in parts.items():
            self.origins[(*here, key)] = part.place
        values = SIMULATION.values(findings, parts)
        conditions = items_of(parts.get("conditions"))
        check_agent_keys(findings, conditions, raw.agents)
        warn_of_evaluations(findings, conditions)
        for key in values["params"]:
            message = f"unknown parameter {key!r}: a simulation controller takes none"
            findings.error((*parts["params"].place, key), message)
        return SimulationSpec(
            values["name"],
            str(parts["name"].value) if "name" in parts else values["name"],
            values["conditions"] if "conditions" in parts else (EPISODE_CONDITION,),
            values["bridge"],
            values["scheduler"],
            values["values"],
        )

    def run_conditions(self, at: Located | None, agents: Collection[str]) -> tuple[ClassSpec, ...]:
        """Read the conditions of ``run_config`` at ``at``; the default condition if ``at`` is ``None``."""
        findings = self.findings
        if at is None:
            return (RUN_CONDITION,)
        parts = findings.section(at, RUN_CONFIG)
        if parts is None:
            return ()
        if not parts:
            findings.error(at.place, "run_config needs the key 'condition' (one) or 'conditions' (a list)")
            return ()
        listed = parts.get("conditions")
        conditions: tuple[ClassSpec, ...]
        if listed is None:
            single = parts["condition"]
            self.origins["conditions", 0] = single.place
            self.run_condition_items = [single]
            conditions = (RUN_CONFIG.keys["condition"].read(findings, single, "a condition") or UNREAD,)
        else:
            if "condition" in parts:
                findings.error(listed.place, "give either 'condition' (one) or 'conditions' (a list)")
            self.origins["conditions",] = listed.place
            self.run_condition_items = items_of(listed)
            conditions = RUN_CONFIG.keys["conditions"].read(findings, listed, "conditions")
        check_agent_keys(findings, self.run_condition_items, agents)
        return conditions


def _channels(
    findings: Findings, parts: Mapping[str, Located], uids: Collection[str] | None
) -> dict[str, tuple[str, ...]]:
    """Read sensors and actuators of an agent; without bodies, a missing key means all channels."""
    if has_bodies(parts):
        return {key: channel_list(findings, parts.get(key), key, uids) for key in _CHANNELS}
    every = tuple(map(all_channels, uids or ()))
    return {key: id_list(findings, parts[key], key, uids) if key in parts else every for key in _CHANNELS}


def header(findings: Findings, parts: Mapping[str, Located]) -> tuple[str, int, str]:
    """Read uid, seed and version of the document; empty or 0 if they are not sound."""
    uid, seed, version = (
        TOP.keys[key].read(findings, parts.get(key), key) for key in ("uid", "seed", "version")
    )
    if "version" not in parts:
        version = DOCUMENT_VERSION
    if version is not None:
        ours, theirs = DOCUMENT_VERSION.split(".")[:2], version.split(".")[:2]
        if ours != theirs:
            findings.warn(
                parts["version"].place,
                f"the document is written for version {version}, this is version {DOCUMENT_VERSION}; "
                "it is read as the latter",
            )
    return uid or "", seed or 0, version or ""


def run_config_of(
    findings: Findings, parts: Mapping[str, Located], definitions: Definitions
) -> Located | None:
    """Return the run_config: written, named by a string, or the default in the definitions."""
    if "run_config" in parts:
        return definitions.lookup("run_config", parts["run_config"])
    return definitions.default("run_config", RUN_CONFIG)


#: keys that belong to the agent, not to a body
_OF_THE_AGENT = ("brain", "load", "replay", "snapshots")
#: keys of a body that depend on other parts of the document
_OF_CONTEXT = ("name", "environment", "muscle", *_CHANNELS)
_BRACES = re.compile(r"\{[^{}]*\}|[{}]")
_INTEGER = re.compile(r"[+-]?\d+")
#: environments of ids, each with the first of its ids
Homes = Mapping[str, Located]


@dataclass(frozen=True, slots=True)
class Common:
    """The agent's own keys: the written parts, and their values.

    ``environments`` are the uids of the phase's (``None``: unknown, because one could not be
    read). Without a ``muscle`` every entry must have one; ``faulty``: the agent's muscle may
    be among the unreadable keys.
    """

    parts: Mapping[str, Located]
    muscle: ClassSpec | None
    objective: ClassSpec | None
    ids: Mapping[str, tuple[str, ...]]
    filters: tuple[ClassSpec, ...]
    environments: Collection[str] | None
    faulty: bool


def has_bodies(parts: Mapping[str, Located]) -> bool:
    """Whether an agent with these parts has ``bodies`` that are not null."""
    return _has(parts, "bodies")


def channel_list(
    findings: Findings, at: Located | None, what: str, uids: Collection[str] | None
) -> tuple[str, ...]:
    """Read the ids of bodies at ``at``, which may contain ``{body}``; absent or null means none."""
    if at is None or at.value is None:
        return ()
    ids = id_list(findings, at, what, uids)
    for full_id, item in zip(ids, items_of(at), strict=True):
        braces = (match[0] for match in _BRACES.finditer(full_id))
        wrong = next((part for part in braces if part != BODY_NUMBER), None)
        if wrong is not None:
            findings.error(
                item.place,
                f"{full_id!r} has {wrong!r}{did_you_mean(wrong, [BODY_NUMBER])}; between braces an agent "
                f"with bodies may have {BODY_NUMBER!r} only, which stands for the body's number",
            )
    return ids


def body_list(findings: Findings, at: Located, common: Common) -> tuple[BodySpec, ...]:
    """Read the bodies listed at ``at``, each completed by ``common``."""
    items = findings.items(at, "bodies")
    if at.value == []:
        findings.error(
            at.place,
            "bodies needs at least one entry; an agent without the key has one body, with its own sensors "
            "and actuators",
        )
    # computed once, because there may be many bodies, with many common ids
    homes = {key: _homes(common.parts.get(key), common.environments) for key in _CHANNELS}
    bodies = tuple(_body(findings, item, common, homes) for item in items)
    _check_names(findings, items)
    if sum(body.count for body in bodies) > MAX_BODIES:
        findings.error(at.place, f"an agent may have at most {MAX_BODIES:,} bodies; the counts come to more")
        return ()
    return bodies


def origins_of(parts: Mapping[str, Located]) -> Iterator[tuple[Place, Place]]:
    """Yield places below the agent in the model, with their places in the text, if the two differ.

    They differ for keys that bodies take from the agent, and for the
    muscle of an agent that takes it from its first body.
    """
    for index, item in enumerate(items_of(parts["bodies"])):
        for key in COMMON if isinstance(item.value, dict) else ():
            if key not in item.value and key in parts:
                yield ("bodies", index, key), parts[key].place
    if not _has(parts, "muscle"):
        yield ("muscle",), (*parts["bodies"].place, 0, "muscle")


def _body(findings: Findings, at: Located, common: Common, homes: Mapping[str, Homes]) -> BodySpec:
    parts = findings.section(_without_agents_keys(findings, at), BODY)
    if parts is None:
        return BodySpec(UNREAD)
    errors = findings.count
    muscle = _muscle(findings, at, parts, common)
    values = BODY.values(findings, _apart_from(parts, _OF_CONTEXT))
    values |= {key: getattr(common, key) for key in ("objective", "filters") if key not in parts}
    for key in _CHANNELS:
        values[key] = common.ids[key]
        if key in parts:
            values[key] = channel_list(findings, parts[key], key, common.environments)
    if values["first"] > MAX_BODIES:
        message = f"first must be at most {MAX_BODIES:,}, found {show(values['first'])}"
        findings.error(parts["first"].place, message)
        values["first"] = 0
    values["environment"] = _environment(findings, at, parts, common, homes)
    if findings.count == errors:
        _warn(findings, parts, values)
    values["name"] = parts["name"].value if "name" in parts else None
    return BodySpec(**values | {"muscle": muscle or UNREAD})


def _without_agents_keys(findings: Findings, at: Located) -> Located:
    """Report the keys of a body that belong to its agent, and remove them."""
    if not isinstance(at.value, dict):
        return at
    for key in _OF_THE_AGENT:
        if key in at.value:
            message = f"{key!r} is one for all bodies of an agent; give it beside 'bodies'"
            findings.error((*at.place, key), message)
    return Located({key: value for key, value in at.value.items() if key not in _OF_THE_AGENT}, at.place)


def _muscle(
    findings: Findings, at: Located, parts: Mapping[str, Located], common: Common
) -> ClassSpec | None:
    if "muscle" not in parts:
        if common.muscle is None and not common.faulty and not _has(common.parts, "muscle"):
            findings.error(at.place, "the body needs the key 'muscle', which neither it nor its agent gives")
        return common.muscle
    if parts["muscle"].value is None:
        findings.error(parts["muscle"].place, "a body's muscle may not be left out")
    return optional_class(findings, parts["muscle"], "muscle", "muscle")


def _has(parts: Mapping[str, Located], key: str) -> bool:
    """Whether a key is there, and not null."""
    return key in parts and parts[key].value is not None


def _apart_from(parts: Mapping[str, Located], keys: Collection[str]) -> dict[str, Located]:
    return {key: part for key, part in parts.items() if key not in keys}


def _environment(
    findings: Findings, at: Located, parts: Mapping[str, Located], common: Common, homes: Mapping[str, Homes]
) -> str | None:
    """Return the uid of the body's single environment; ``homes`` are those of common ids."""
    home, why = None, ""
    uids = common.environments
    if _has(parts, "environment"):
        written = parts["environment"]
        home, why = TEXT.read(findings, written, "a body's environment"), "given as its environment"
        if home is not None and uids is not None and home not in uids:
            findings.error(written.place, _unknown_environment(home, uids))
            return None
    elif not any(_listed(parts.get(key, common.parts.get(key))) for key in _CHANNELS):
        findings.error(
            at.place,
            "the body has neither sensors nor actuators, of its own or of its agent's: name them, or give its "
            "'environment', of which it then has all",
        )
    for key in _CHANNELS:
        for uid, item in (_homes(parts[key], uids) if key in parts else homes[key]).items():
            if home is None:
                home, why = uid, f"where {item.value!r} is"
            elif uid != home:
                findings.error(
                    item.place if key in parts else at.place,
                    f"the body is in two environments, {home!r} ({why}) and {uid!r} (where {item.value!r} is); a "
                    "body is one incarnation of the agent in exactly one environment: give each an entry of its "
                    "own",
                )
                return None
    return home


def _unknown_environment(uid: str, uids: Collection[str]) -> str:
    near, allowed = did_you_mean(uid, uids), listed([repr(name) for name in uids], 5)
    return f"there is no environment {uid!r} in the phase{near}; environments: {allowed or 'none'}"


def _listed(at: Located | None) -> bool:
    """Whether there are ids at ``at``; unreadable values count as ids, because they are reported elsewhere."""
    return at is not None and at.value is not None and at.value != []


def _homes(at: Located | None, uids: Collection[str] | None) -> Homes:
    """Find the environments of the ids at ``at``, each with its first id.

    Wrong ids are left out, because they are reported when they are read.
    """
    homes: dict[str, Located] = {}
    for item in items_of(at):
        if isinstance(item.value, str):
            with suppress(NameResolutionError):
                homes.setdefault(split_id(item.value, uids or ())[0], item)
    return homes


def _warn(findings: Findings, parts: Mapping[str, Located], values: Mapping[str, Any]) -> None:
    """Warn of bodies that share actuators, and of a ``first`` without effect."""
    shared = [channel for channel in values["actuators"] if BODY_NUMBER not in channel]
    if shared and values["count"] > 1:
        findings.warn(
            parts["count"].place,
            f"the {values['count']} bodies have the same actuators ({listed(shared, 3)}), as {BODY_NUMBER} is not in "
            "them: of their set-points at one time, the last one holds",
        )
    if "first" in parts and parts["first"].value:
        channels = [*values["sensors"], *values["actuators"]]
        if channels and not any(BODY_NUMBER in channel for channel in channels):
            findings.warn(
                parts["first"].place,
                f"'first' has no effect: {BODY_NUMBER} is in none of the body's sensors and actuators",
            )


def _check_names(findings: Findings, entries: list[Located]) -> None:
    """Check that labels differ from one another and from the numbers of bodies."""
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        name = entry.value.get("name") if isinstance(entry.value, dict) else None
        if name is None:
            continue
        at = entry.child("name")
        if not isinstance(name, bool) and _INTEGER.fullmatch(str(name)):
            findings.error(
                at.place,
                f"a body's name may not be a whole number, found {show(name)}: numbers count an agent's bodies "
                "from 0",
            )
        elif TEXT.read(findings, at, "a body's name") is None:
            continue
        elif seen.setdefault(name, index) != index:
            message = f"the body's name {name!r} is given twice: first by entry {seen[name]}"
            findings.error(at.place, message)


def load_section(findings: Findings, at: Located | None) -> dict[str, Any] | None:
    """Read ``load`` with its keys in one spelling; absent or null means none."""
    if at is None or at.value is None:
        return None
    parts = findings.section(at, LOAD) or {}
    values = LOAD.values(findings, parts, "load's ")
    load = {
        "phase_name" if key == "phase" and isinstance(values[key], str) else key: values[key]
        for key in parts
        if values[key] is not None
    }
    _not_both(findings, at, parts, "load")
    return load


def _not_both(findings: Findings, at: Located, parts: Mapping[str, Located], what: str) -> None:
    if all(key in parts and parts[key].value is not None for key in ("phase", "phase_name")):
        findings.error(at.place, f"{what} takes 'phase' (an index or a name) or 'phase_name', not both")


def replay_list(findings: Findings, at: Located | None) -> tuple[ReplaySpec, ...]:
    """Read the stored trajectories listed at ``at``; absent or null means none."""
    if at is None or at.value is None:
        return ()
    return tuple(_replay(findings, item) for item in findings.items(at, "replay"))


def _replay(findings: Findings, at: Located) -> ReplaySpec:
    parts = {
        key: part for key, part in (findings.section(at, REPLAY) or {}).items() if part.value is not None
    }
    values = REPLAY.values(findings, parts, "replay's ")
    _not_both(findings, at, parts, "replay")
    name = values.pop("phase_name")
    if "phase" not in parts:
        values["phase"] = name
    if not values.pop("strict") and "strict" in parts:
        findings.warn(
            parts["strict"].place, "replay is always strict here: what cannot be replayed is an error"
        )
    for key in ("sensors", "actuators"):
        if key not in parts:
            values[key] = None  # this agent's channels
        elif parts[key].value == []:
            findings.error(
                parts[key].place,
                f"replay's {key} must name at least one; leave the key out for those of this agent",
            )
    return ReplaySpec(**values)


def snapshot_section(findings: Findings, at: Located | None) -> SnapshotSpec | None:
    """Read when the brain is dumped during a phase; absent, null or an empty choice means never."""
    if at is None or at.value is None:
        return None
    parts = findings.section(at, SNAPSHOTS)
    if parts is None:
        return None
    if not at.value:
        findings.error(at.place, "snapshots needs 'every' (a number of episodes), 'best' (true), or both")
    spec = SnapshotSpec(**SNAPSHOTS.values(findings, parts, "snapshots' "))
    return None if spec == SnapshotSpec() else spec


def _without_useless_load(agent: AgentSpec) -> AgentSpec:
    useless = agent.load is not None and points_before_the_first(agent.load, 0)
    return replace(agent, load=None) if useless else agent


def points_before_the_first(load: Mapping[str, Any], number: int) -> bool:
    """Whether ``load`` in phase ``number`` refers to a phase before the first one.

    Documents of palaestrAI use it to give all phases the same ``load``; it is ignored there, too.
    """
    return number == 0 and not load.keys() - {"agent"}

"""Designs in arsenAI's form: ``definitions``, and a ``schedule`` with alternatives for every phase and topic.

A topic is a list of alternatives; with more than one it is a factor. An alternative of
``environments`` and ``agents`` is a list of names (``[[a, b], [c]]``), or one name
(``[a, b]`` has two alternatives with one name each). An alternative of ``simulation`` and ``phase_config`` is one
name. ``sensors`` and ``actuators`` are set for each agent; an alternative is one set, or a list of sets that
are joined. ``$req(phase=0, index=1)`` is entry 1 of the same topic in phase 0,
``$req(phase=0)`` all of its entries. A phase inherits missing topics from the phase before; sensors and actuators
are inherited agent by agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.experiment import vocabulary as run
from palaestrai_mosaik.experiment.build import has_bodies
from palaestrai_mosaik.experiment.cascade import phases_of
from palaestrai_mosaik.experiment.fields import (
    CLASS_NAME,
    TEXT,
    Findings,
    Located,
    class_spec,
    items_of,
    optional_class,
    show,
)
from palaestrai_mosaik.experiment.paths import uid_of, with_mappings
from palaestrai_mosaik.experiment.yaml_text import Lines

from .model import Choice, DesignSpec, Factor, Topic
from .vocabulary import AGENT, AGENT_WITH_BODIES, DEFINITIONS, PHASE, TOPICS

_REQUEST = re.compile(r"\$req\s*\((?P<arguments>[^()]*)\)?\s*")
#: topics with one name per alternative
_SINGLE = ("simulation", "phase_config")
#: topics that are set for each agent
BY_AGENT: tuple[Topic, Topic] = ("sensors", "actuators")

#: environment uid -> local ids
IdSet = dict[str, list[str]]


@dataclass
class Definitions:
    """All definitions, in the form of a run document.

    Attributes:
        entries: definition by topic and name, None if it is invalid. Sets of sensors and actuators are local ids by
            environment uid.
        loads: ``load`` by agent and phase.
        run_config: the run configuration.
    """

    entries: dict[str, dict[str, Any]] = field(default_factory=lambda: {topic: {} for topic in TOPICS})
    loads: dict[str, dict[str, Any]] = field(default_factory=dict)
    run_config: dict[str, Any] = field(default_factory=dict)

    def ids(self, topic: str, names: Sequence[str], uids: Sequence[str]) -> list[str]:
        """Return the full ids of the sets ``names`` in the environments ``uids``, without duplicates."""
        sets = [self.entries[topic][name] for name in names]
        return list(
            dict.fromkeys(f"{uid}.{local}" for uid in uids for ids in sets for local in ids.get(uid, ()))
        )


# --- definitions ----------------------------------------------------------------------------


def read_definitions(findings: Findings, at: Located, phases: Sequence[str]) -> Definitions:
    """Read the definitions at ``at``.

    Args:
        findings: collects the problems.
        at: the definitions.
        phases: names of the schedule's phases.
    """
    result = Definitions()
    parts = findings.section(at, DEFINITIONS)
    if parts is None:
        return result
    findings.missing(at.place, parts, DEFINITIONS)
    uids = _uids(parts.get("environments"))
    readers: dict[str, Callable[[Findings, Located], Any]] = {
        "environments": _environment,
        "agents": lambda findings, at: _agent(findings, at, phases, result.loads),
        "sensors": lambda findings, at: _id_set(findings, at, uids),
        "actuators": lambda findings, at: _id_set(findings, at, uids),
        "simulation": _simulation,
        "phase_config": _phase_config,
    }
    for topic, reader in readers.items():
        if topic in parts:
            result.entries[topic] = _named(findings, parts[topic], topic, reader)
    if "run_config" in parts and findings.section(parts["run_config"], run.RUN_CONFIG) is not None:
        result.run_config = parts["run_config"].value
    return result


def _uids(at: Located | None) -> tuple[str, ...]:
    """Return the uids of all environments, including those with an invalid definition."""
    entries = at.value.values() if at is not None and isinstance(at.value, dict) else ()
    inner = [entry.get("environment", entry) for entry in entries if isinstance(entry, dict)]
    return tuple(dict.fromkeys(uid for uid in map(uid_of, inner) if uid is not None))


def _named(
    findings: Findings, at: Located, topic: str, reader: Callable[[Findings, Located], Any]
) -> dict[str, Any]:
    """Read every definition of a topic with ``reader``, and return the results by name, None if invalid."""
    if not isinstance(at.value, dict):
        findings.error(at.place, f"definitions.{topic} must be a mapping from names, found {show(at.value)}")
        return {}
    read: dict[str, Any] = {}
    for key in at.value:
        if isinstance(key, str) and key:
            read[key] = reader(findings, at.child(key))
            continue
        read[str(key)] = None
        findings.error((*at.place, key), f"a name in definitions.{topic} must be a string, found {show(key)}")
    return read


def _environment(findings: Findings, at: Located) -> dict[str, Any] | None:
    entry = at.value
    if isinstance(entry, dict) and "environment" not in entry and entry.keys() & {"name", "uid", "params"}:
        findings.error(
            at.place,
            "an environment's definition is written 'environment:' with uid, name, params below it, and "
            "reward and state_transformer beside it; here 'environment:' is missing",
        )
        return None
    parts = findings.section(at, run.ENVIRONMENT_ENTRY)
    if parts is None or findings.missing(at.place, parts, run.ENVIRONMENT_ENTRY):
        return None
    result = {"environment": parts["environment"].value}
    sound = _is_environment(findings, parts["environment"])
    for key in ("reward", "state_transformer"):
        if key in parts and not _nameless(parts[key].value):
            optional_class(findings, parts[key], key, key)
            result[key] = parts[key].value
    if "frames" in parts:
        run.ENVIRONMENT_ENTRY.keys["frames"].read(findings, parts["frames"], "frames")
        result["frames"] = parts["frames"].value
    return result if sound else None


def _is_environment(findings: Findings, at: Located) -> bool:
    """Return whether the uid and the class of an environment are valid; report them if not."""
    parts = {"name": at} if isinstance(at.value, str) else findings.section(at, run.ENVIRONMENT)
    if parts is None or findings.missing(at.place, parts, run.ENVIRONMENT):
        return False
    uid = TEXT.read(findings, parts["uid"], "an environment's uid") if "uid" in parts else ""
    return CLASS_NAME.read(findings, parts["name"], "name") is not None and uid is not None


def _nameless(value: Any) -> bool:
    """Return whether a class is left out; arsenAI's documents express this by an empty name."""
    return value is None or value == {} or (isinstance(value, dict) and value.get("name", "") in ("", None))


def _agent(
    findings: Findings, at: Located, phases: Sequence[str], loads: dict[str, dict[str, Any]]
) -> dict[str, Any] | None:
    parts = findings.section(at, AGENT)
    several = parts is not None and has_bodies(parts)
    if parts is None or findings.missing(at.place, parts, AGENT_WITH_BODIES if several else AGENT):
        return None
    name = TEXT.read(findings, parts["name"], "an agent's name")
    sound = (
        several or class_spec(findings, parts["muscle"], "muscle", "muscle") is not None
    ) and name is not None
    for key in ("brain", "objective", *(("muscle",) if several else ())):
        optional_class(findings, parts.get(key), key, key)
    if "load" in parts:
        loads[at.place[-1]] = _loads(findings, parts["load"], phases)
    entry = {key: part.value for key, part in parts.items() if key != "load"}
    return entry if sound else None


def _loads(findings: Findings, at: Located, phases: Sequence[str]) -> dict[str, Any]:
    """Return the ``load`` of an agent by phase. In the document, it is one for all phases, or one for each name.

    An empty one for a name loads nothing. An empty one for all phases holds from the
    second phase on, because the first has no phase before it.
    """
    if at.value is None:
        return {}
    if not isinstance(at.value, dict):
        findings.error(at.place, f"load must be a mapping, found {show(at.value)}")
        return {}
    by_phase = bool(at.value) and not any(key in run.LOAD.words for key in at.value)
    if not by_phase:
        findings.section(at, run.LOAD)
        return dict.fromkeys(phases if at.value else phases[1:], at.value)
    loads = {}
    for key, value in at.value.items():
        if key not in phases:
            findings.error(
                (*at.place, key),
                f"load names {key!r}, which is no phase of the schedule{did_you_mean(key, phases)}; phases: "
                f"{', '.join(phases)}; or, for all phases, a key of load: {', '.join(run.LOAD.keys)}",
            )
        elif value is not None and findings.section(at.child(key), run.LOAD):
            loads[key] = value
    return loads


def _id_set(findings: Findings, at: Located, uids: Sequence[str]) -> IdSet | None:
    """Return a set of sensors or actuators: environment uid -> local ids."""
    if not isinstance(at.value, dict):
        findings.error(
            at.place,
            f"a set of sensors or actuators is a mapping from an environment's uid to ids, found "
            f"{show(at.value)}",
        )
        return None
    ids: IdSet = {}
    for uid in at.value:
        entry = at.child(uid)
        if str(uid) not in uids:
            findings.error(
                entry.place,
                f"no environment with the uid {uid!r} is defined{did_you_mean(uid, uids)}; uids: "
                f"{', '.join(uids) or 'none'}",
            )
        elif not isinstance(entry.value, list):
            findings.error(
                entry.place, f"the ids in environment {uid!r} must be a list, found {show(entry.value)}"
            )
        else:
            ids[str(uid)] = [
                local
                for item in range(len(entry.value))
                if (local := _id(findings, entry.child(item), str(uid)))
            ]
    return ids


def _id(findings: Findings, at: Located, uid: str) -> str:
    """Return a local id, written with or without its environment's uid; empty if it is invalid."""
    if isinstance(at.value, int) and not isinstance(at.value, bool):
        return str(at.value)
    if not isinstance(at.value, str) or at.value in ("", f"{uid}."):
        findings.error(at.place, f"an id must be a string or a whole number, found {show(at.value)}")
        return ""
    return at.value.removeprefix(f"{uid}.")


def _simulation(findings: Findings, at: Located) -> dict[str, Any] | None:
    parts = findings.section(at, run.SIMULATION)
    if parts is None or findings.missing(at.place, parts, run.SIMULATION):
        return None
    return {key: part.value for key, part in parts.items()}


def _phase_config(findings: Findings, at: Located) -> dict[str, Any] | None:
    # keep the user's spelling of keys
    parts = findings.section(at, run.PHASE_CONFIG)
    return None if parts is None else dict(at.value)


# --- the schedule ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slot:
    """A topic of a phase (``sensors`` and ``actuators`` of one agent), and its alternatives."""

    key: Choice
    options: tuple[tuple[Entry, ...], ...]
    labels: tuple[str, ...]
    written: tuple[Any, ...]

    def possible(self) -> dict[str, None]:
        """Return all names that any alternative can resolve to, in order."""
        return {name: None for option in self.options for entry in option for name in _possible(entry)}

    def chosen(self, choices: Mapping[Choice, int]) -> tuple[str, ...]:
        """Return the names that the slot resolves to, if every slot has its alternative in ``choices``."""
        names: list[str] = []
        for entry in self.options[choices.get(self.key, 0)]:
            if isinstance(entry, str):
                names.append(entry)
                continue
            requested = entry.slot.chosen(choices)
            names += requested if entry.index is None else (requested[entry.index],)
        return tuple(names)


@dataclass(frozen=True, slots=True)
class Request:
    """``$req``: all entries of the topic in the phase named ``phase``, or only its entry ``index``."""

    phase: str
    slot: Slot
    index: int | None = None


Entry = str | Request


def least_count(option: Sequence[Entry]) -> int:
    """Return the least number of names that an alternative can resolve to."""
    return sum(
        min(map(least_count, entry.slot.options)) if isinstance(entry, Request) and entry.index is None else 1
        for entry in option
    )


def _possible(entry: Entry) -> dict[str, None]:
    """Return the names that an entry of an alternative can resolve to."""
    if isinstance(entry, str):
        return {entry: None}
    if entry.index is None:
        return entry.slot.possible()
    names: dict[str, None] = {}
    for option in entry.slot.options:
        # after an entry of unknown length, any name is possible
        fixed = all(isinstance(source, str) or source.index is not None for source in option)
        for source in (option[entry.index],) if fixed else option:
            names |= _possible(source)
    return names


def _label(option: Sequence[Entry]) -> str:
    texts = [
        entry
        if isinstance(entry, str)
        else f"{entry.phase}{'' if entry.index is None else f'[{entry.index}]'}"
        for entry in option
    ]
    return "+".join(texts) or "none"


@dataclass
class Phase:
    """A phase's name and all its slots; inherited slots keep their own phase's index."""

    name: str
    slots: dict[tuple[Topic, str | None], Slot] = field(default_factory=dict)


class ScheduleReader:
    """Reads a schedule that chooses from ``definitions``."""

    def __init__(self, findings: Findings, definitions: Definitions):
        self._findings = findings
        self._definitions = definitions
        self._phases: list[Phase] = []
        self._errors = findings.count

    @property
    def _faulty(self) -> bool:
        """Whether there were errors; a missing part may then be a consequence."""
        return self._findings.count > self._errors

    def phases(self, at: Located) -> list[Phase]:
        """Read all phases of the schedule at ``at``, including their inherited slots."""
        slots: dict[tuple[Topic, str | None], Slot] = {}
        for name, body in phases_of(self._findings, at):
            phase = Phase(name, dict(slots))
            self._phases.append(phase)
            parts = {} if body.value is None else self._findings.section(body, PHASE) or {}
            for topic, part in parts.items():
                self._topic(phase, topic, part)  # type: ignore[arg-type]
            if not self._faulty:
                self._complete(phase, body)
            slots = phase.slots
        return self._phases

    def _topic(self, phase: Phase, topic: Topic, at: Located) -> None:
        if topic not in BY_AGENT:
            self._add(phase, topic, None, at)
            return
        if not isinstance(at.value, dict):
            self._findings.error(
                at.place, f"{topic} must be a mapping from agents to alternatives, found {show(at.value)}"
            )
            return
        agents = self._definitions.entries["agents"]
        for agent in at.value:
            if agent in agents:
                self._add(phase, topic, agent, at.child(agent))
            else:
                self._findings.error(
                    (*at.place, agent),
                    f"{agent!r} is not defined in definitions.agents{did_you_mean(agent, agents)}; defined: "
                    f"{', '.join(agents)}",
                )

    def _add(self, phase: Phase, topic: Topic, agent: str | None, at: Located) -> None:
        listed = _listed(at)
        if not listed:
            self._findings.error(at.place, f"{topic} needs at least one alternative")
            return
        options = [self._option(topic, agent, item) for item in listed]
        read = tuple(option for option in options if option is not None)
        if len(read) < len(options):
            return
        labels = tuple(map(_label, read))
        for index, label in enumerate(labels):
            if label in labels[:index]:
                self._findings.error(
                    listed[index].place, f"the alternative {label!r} of {topic} is given twice"
                )
        key = Choice(len(self._phases) - 1, topic, agent)
        phase.slots[topic, agent] = Slot(key, read, labels, tuple(item.value for item in listed))

    def _option(self, topic: Topic, agent: str | None, at: Located) -> tuple[Entry, ...] | None:
        """Read one alternative; None if it is invalid."""
        listed = _listed(at)
        if topic in _SINGLE and len(listed) != 1:
            self._findings.error(at.place, f"an alternative of {topic} is one name, found {len(listed)}")
            return None
        if not listed and topic not in BY_AGENT:
            self._findings.error(at.place, f"an alternative of {topic} needs at least one name")
            return None
        entries = [self._entry(topic, agent, item) for item in listed]
        return None if None in entries else tuple(entry for entry in entries if entry is not None)

    def _entry(self, topic: Topic, agent: str | None, at: Located) -> Entry | None:
        if not isinstance(at.value, str):
            hint = "" if not isinstance(at.value, dict) else ", which is put below definitions and named here"
            self._findings.error(
                at.place, f"a name from definitions.{topic} must stand here, found {show(at.value)}{hint}"
            )
            return None
        if at.value.lstrip().startswith("$"):
            return self._request(topic, agent, at)
        names = self._definitions.entries[topic]
        if at.value in names:
            return at.value
        allowed = f"; defined: {', '.join(names)}" if names else ""
        self._findings.error(
            at.place,
            f"{at.value!r} is not defined in definitions.{topic}{did_you_mean(at.value, names)}{allowed}",
        )
        return None

    def _request(self, topic: Topic, agent: str | None, at: Located) -> Request | None:
        match = _REQUEST.fullmatch(at.value.strip())
        arguments = _arguments(match["arguments"]) if match is not None else None
        if arguments is None:
            self._findings.error(
                at.place, f"{at.value!r} is not understood; written: $req(phase=0, index=0), or $req(phase=0)"
            )
            return None
        number = self._earlier(arguments["phase"], at)
        slot = None if number is None else self._requested(number, topic, agent, at)
        if number is None or slot is None:
            return None
        phase, index = self._phases[number].name, arguments.get("index")
        if index is None or topic in _SINGLE or topic in BY_AGENT:
            return Request(phase, slot)
        least = min(map(least_count, slot.options))
        if index.isdecimal() and int(index) < least:
            return Request(phase, slot, int(index))
        self._findings.error(
            at.place,
            f"{at.value!r}: index is {index}; phase {number} always has {topic} 0 to {least - 1} only",
        )
        return None

    def _earlier(self, text: str, at: Located) -> int | None:
        """Return the index of the earlier phase with the index or name ``text``, or None if there is none."""
        names = [phase.name for phase in self._phases[:-1]]
        number = int(text) if text.isdecimal() else names.index(text) if text in names else len(names)
        if number < len(names):
            return number
        earlier = ", ".join(f"{index} ({name})" for index, name in enumerate(names))
        self._findings.error(
            at.place,
            f"{at.value!r} must name an earlier phase; earlier ones: {earlier or 'none, this is the first'}",
        )
        return None

    def _requested(self, phase: int, topic: Topic, agent: str | None, at: Located) -> Slot | None:
        """Return a slot of the earlier phase with this index, or None if it does not exist."""
        slot = self._phases[phase].slots.get((topic, agent))
        if slot is None and not self._faulty:
            for_agent = f" for agent {agent!r}" if agent is not None else ""
            self._findings.error(at.place, f"phase {phase} has no {topic}{for_agent} that could be requested")
        return slot

    def _complete(self, phase: Phase, at: Located) -> None:
        """Check that the phase has everything it needs."""
        for topic in ("environments", "agents", "simulation"):
            if (topic, None) not in phase.slots:
                self._findings.error(at.place, f"the phase {phase.name!r} needs the key {topic!r}")
        slot = phase.slots.get(("agents", None))
        for agent in slot.possible() if slot is not None else ():
            definition = self._definitions.entries["agents"][agent] or {}
            for topic in BY_AGENT if definition.get("bodies") is None else ():
                if (topic, agent) not in phase.slots and topic not in definition:
                    self._findings.error(
                        at.place,
                        f"the phase {phase.name!r} needs {topic} for agent {agent!r}: {topic}: "
                        f"{{{agent}: [NAME OF A SET]}}",
                    )


def _listed(at: Located) -> list[Located]:
    """Return the items of a list; any other value is its own only item."""
    return items_of(at) if isinstance(at.value, list) else [at]


def _arguments(text: str) -> dict[str, str] | None:
    """Parse the arguments of a request: ``phase``, and perhaps ``index``; None if they are invalid."""
    arguments: dict[str, str] = {}
    for piece in text.split(","):
        key, _, value = (part.strip() for part in piece.partition("="))
        if key not in ("phase", "index") or not value or key in arguments:
            return None
        arguments[key] = value
    return arguments if "phase" in arguments else None


# --- from the schedule to run documents -----------------------------------------------------


class Schedule:
    """The run documents of a design in arsenAI's form, one for each combination of alternatives."""

    def __init__(self, definitions: Definitions, phases: Sequence[Phase], version: str):
        self.definitions = definitions
        self.phases = tuple(phases)
        self._version = version
        self._ids: dict[Any, list[str]] = {}

    def factors(self) -> list[Factor]:
        """Return a factor for each slot with more than one alternative."""
        factors = []
        for number, phase in enumerate(self.phases):
            for slot in phase.slots.values():
                count = len(slot.options)
                if slot.key.phase == number and count > 1:
                    _, topic, agent = slot.key
                    factors.append(
                        Factor(
                            ".".join((phase.name, topic, *((agent,) if agent is not None else ()))),
                            "levels",
                            choice=slot.key,
                            levels=slot.written,
                            labels=slot.labels,
                            weights=(1 / count,) * count,
                        )
                    )
        return factors

    def document(self, chosen: Mapping[Choice, int]) -> dict[str, Any]:
        """Build the run document with the alternatives in ``chosen``, and the first ones of all other slots."""
        schedule = [{phase.name: self._phase(phase, chosen)} for phase in self.phases]
        _write_out([next(iter(phase.values())) for phase in schedule])
        run_config = self.definitions.run_config
        return with_mappings({"version": self._version, "schedule": schedule, "run_config": run_config})

    def _phase(self, phase: Phase, chosen: Mapping[Choice, int]) -> dict[str, Any]:
        names = {topic: slot.chosen(chosen) for (topic, agent), slot in phase.slots.items() if agent is None}
        defined = self.definitions.entries
        environments = [defined["environments"][name] for name in names["environments"]]
        uids = tuple(str(uid_of(entry["environment"])) for entry in environments)
        result: dict[str, Any] = {
            "environments": environments,
            "agents": [self._agent(phase, name, uids, chosen) for name in names["agents"]],
            "simulation": dict(defined["simulation"][names["simulation"][0]]),
        }
        if "phase_config" in names:
            result["phase_config"] = dict(defined["phase_config"][names["phase_config"][0]])
        return result

    def _agent(
        self, phase: Phase, key: str, uids: tuple[str, ...], chosen: Mapping[Choice, int]
    ) -> dict[str, Any]:
        agent = dict(self.definitions.entries["agents"][key])
        load = self.definitions.loads.get(key, {}).get(phase.name)
        if load is not None:
            agent["load"] = load
        for topic in BY_AGENT:
            slot = phase.slots.get((topic, key))
            if slot is not None:
                sets = slot.chosen(chosen)
                key_of_ids = (topic, sets, uids)
                if key_of_ids not in self._ids:
                    self._ids[key_of_ids] = self.definitions.ids(topic, sets, uids)
                agent[topic] = self._ids[key_of_ids]
        return agent


def _write_out(phases: Sequence[dict[str, Any]]) -> None:
    """Modify phases so that the cascade of run documents adds nothing to them.

    Every phase of a design is complete by itself. If a phase lacks environments or agents of the
    phase before, or orders them differently, it gets ``inherit: false``. Otherwise null is written
    for every key that its agents, simulation and phase configuration would inherit.
    """
    seen: dict[Any, dict[str, None]] = {}
    before: list[list[str]] = [[], []]
    for phase in phases:
        names = [
            [str(uid_of(entry["environment"])) for entry in phase["environments"]],
            [entry["name"] for entry in phase["agents"]],
        ]
        if any(list(dict.fromkeys((*old, *new))) != new for old, new in zip(before, names, strict=True)):
            phase["inherit"] = False
            seen.clear()
        before = names
        parts = [(("agents", agent["name"]), agent) for agent in phase["agents"]]
        parts += [((topic, ""), phase[topic]) for topic in _SINGLE if topic in phase]
        for which, part in parts:
            _write_nulls(part, seen.setdefault(which, {}))


def _write_nulls(part: dict[str, Any], kept: dict[str, None]) -> None:
    """Write null for every key of ``kept`` that ``part`` lacks, and add its keys to ``kept``."""
    words = [run.PHASE_CONFIG.spellings.get(key, key) for key in part]
    part.update({key: None for key in kept if key not in words})
    kept |= dict.fromkeys(words)


def read_schedule(findings: Findings, definitions: Located, schedule: Located, version: str) -> Schedule:
    """Read the schedule of a design in arsenAI's form.

    Args:
        findings: collects the problems.
        definitions: the definitions.
        schedule: the schedule.
        version: version of the run documents.
    """
    defined = read_definitions(findings, definitions, _phase_names(schedule.value))
    phases = ScheduleReader(findings, defined).phases(schedule)
    return Schedule(defined, phases, version)


def _phase_names(schedule: Any) -> list[str]:
    if isinstance(schedule, dict):
        return [str(name) for name in schedule]
    items = schedule if isinstance(schedule, list) else []
    return [str(next(iter(item))) for item in items if isinstance(item, dict) and item]


def schedule_of(spec: DesignSpec) -> Schedule:
    """Return the schedule of a valid design in arsenAI's form."""
    findings = Findings(spec.source, Lines())
    schedule = Located(list(spec.schedule), ("schedule",))
    return read_schedule(findings, Located(spec.definitions, ("definitions",)), schedule, spec.version)

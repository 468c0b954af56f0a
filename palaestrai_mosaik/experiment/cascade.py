"""The cascade: from the schedule and its definitions to complete phases.

Environments match by ``uid``, agents by ``name``. A later environment entry replaces the
earlier one completely; a later agent entry, ``simulation`` and ``phase_config`` replace their
keys and keep the others, except ``random_streams``, which no phase inherits. A phase with ``inherit: false`` takes
nothing from the phases before it. Nothing is interpreted here, and every part
keeps its place in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.core.printing import listed

from .class_names import SHORT_NAMES, default_uid
from .fields import CLASS_NAME, FLAG, TEXT, Findings, Located, Section, items_of, show, unquoted
from .model import BODY_NUMBER
from .vocabulary import (
    AGENT,
    COMMON,
    CONTROLLERS,
    ENVIRONMENT,
    ENVIRONMENT_ENTRY,
    PHASE,
    PHASE_CONFIG,
    RUN_CONFIG,
    SIMULATION,
)
from .yaml_text import MAX_EXTRA_NODES, size_of

RANDOM_STREAMS = "random_streams"


@dataclass(frozen=True)
class Entry:
    """The parts of an environment entry or an agent; ``at`` is its first place."""

    at: Located
    parts: dict[str, Located]

    def is_sound(self, findings: Findings) -> bool:
        """Whether all parts of these topics (``agents``, ``phase_config``, ...) of ``phase`` could be read."""
        return findings.is_sound(self.at.place, *(part.place for part in self.parts.values()))


@dataclass
class CascadedPhase:
    """One phase with all that it inherits, not yet interpreted.

    ``faulty``: topics with unreadable parts; an entry that seems to be
    missing there may be one of them.
    """

    name: str
    at: Located
    environments: dict[str, Entry] = field(default_factory=dict)
    agents: dict[str, Entry] = field(default_factory=dict)
    simulation: dict[str, Located] = field(default_factory=dict)
    phase_config: dict[str, Located] = field(default_factory=dict)
    faulty: set[str] = field(default_factory=set)


def is_sound(findings: Findings, phase: CascadedPhase, *topics: str) -> bool:
    """Whether everything of these topics (``agents``, ``phase_config``, ...) of ``phase`` could be read."""
    parts = [part for topic in topics for part in getattr(phase, topic).values()]
    return phase.faulty.isdisjoint(topics) and all(
        part.is_sound(findings) if isinstance(part, Entry) else findings.is_sound(part.place)
        for part in parts
    )


#: topic -> names that need no definition, and an addition to the message
_NAMES_WITHOUT_DEFINITION: Mapping[str, tuple[Sequence[str], str]] = {
    "environments": (tuple(SHORT_NAMES["environment"]), ", and is no short name of an environment"),
    "simulation": (("vanilla", "taking_turns"), ", and is no simulation controller"),
}


class Definitions:
    """The ``definitions`` of a document: named parts that strings refer to, and defaults."""

    def __init__(self, findings: Findings, at: Located | None):
        self._findings = findings
        self._topics: dict[str, Located] = {}
        if at is not None and isinstance(at.value, dict):
            self._topics = {key: at.child(key) for key, part in at.value.items() if isinstance(part, dict)}
        elif at is not None and at.value is not None:
            findings.error(at.place, f"definitions must be a mapping, found {show(at.value)}")

    def default(self, topic: str, section: Section) -> Located | None:
        """Return ``definitions.<topic>`` if it is itself the part, not a mapping of named ones.

        It is the part if one of the part's own words has a value that cannot be a named part.
        """
        at = self._topics.get(topic)
        if at is None:
            return None
        values = [at.value[word] for word in section.words if word in at.value]
        return at if any(section is RUN_CONFIG or not isinstance(value, dict) for value in values) else None

    def lookup(self, topic: str, at: Located) -> Located | None:
        """Return the part at ``at``, or the definition that a string there names."""
        if not isinstance(at.value, str):
            return at
        named = self._topics.get(topic, Located({}, ()))
        if at.value in named.value:
            return named.child(at.value)
        if topic == "environments" and (":" in at.value or at.value in SHORT_NAMES["environment"]):
            return Located({"environment": at.value}, at.place)
        if topic == "simulation" and at.value in CONTROLLERS:
            return Located({"name": at.value}, at.place)
        builtin, also = _NAMES_WITHOUT_DEFINITION.get(topic, ((), ""))
        near = did_you_mean(at.value, [*named.value, *builtin])
        allowed = f"; defined: {', '.join(map(str, named.value))}" if named.value else ""
        message = f"{at.value!r} is not defined in definitions.{topic}{also}{near}{allowed}"
        self._findings.error(at.place, message)
        return None


def phases_of(findings: Findings, at: Located) -> Iterator[tuple[str, Located]]:
    """Yield name and body of every phase of a schedule: a list, or a mapping by name."""
    if isinstance(at.value, dict):
        named = [(key, at.child(key)) for key in at.value]
    elif isinstance(at.value, list):
        named = _listed_phases(findings, at)
    else:
        findings.error(at.place, f"schedule must be a list of phases, found {show(at.value)}")
        return
    if not at.value:
        findings.error(at.place, "schedule needs at least one phase")
    seen: dict[str, Located] = {}
    for name, body in named:
        if not isinstance(name, str) or not name:
            findings.error(
                body.place, f"a phase's name must be a string, found {show(name)}; put it in quotes"
            )
        elif name in seen:
            line = findings.lines.nearest(seen[name].place)
            findings.error(body.place, f"the phase name {name!r} is given twice: first in line {line}")
        else:
            seen[name] = body
            yield name, body


def _listed_phases(findings: Findings, at: Located) -> list[tuple[Any, Located]]:
    """Return name and body of the phases in a list of mappings with one key each."""
    named = []
    for item in items_of(at):
        if not isinstance(item.value, dict) or not item.value:
            findings.error(item.place, f"a phase must be 'name:' and its contents, found {show(item.value)}")
        elif len(item.value) > 1:
            keys = ", ".join(map(str, item.value))
            findings.error(
                item.place,
                f"a list item of the schedule must have one key, the phase's name; found {keys}. "
                "Indent a phase's contents below its name",
            )
        else:
            key = next(iter(item.value))
            named.append((key, item.child(key)))
    return named


def cascade(findings: Findings, schedule: Located, definitions: Definitions) -> list[CascadedPhase]:
    """Return all phases of ``schedule``, each completed by inheritance.

    Stops with a problem if the cascade would multiply the size of the document too much.
    """
    phases: list[CascadedPhase] = []
    first = latest = _defaults(findings, schedule, definitions)
    sizes: dict[int, int] = {}
    room = MAX_EXTRA_NODES
    for name, body in phases_of(findings, schedule):
        before = latest if _inherits(findings, body) else first
        latest = _next_phase(findings, before, (name, body), definitions)
        phases.append(latest)
        for entry in (*latest.environments.values(), *latest.agents.values()):
            room -= sum(_repeated(part.value, sizes) for part in entry.parts.values())
        room -= sum(taken_by_bodies(entry.parts, sizes) for entry in latest.agents.values())
        if room < 0:
            findings.error(
                body.place,
                f"up to here the phases inherit more than {MAX_EXTRA_NODES:,} values, or bodies take them from "
                "their agents, beyond those that are written; refused",
            )
            break
    return phases


def _defaults(findings: Findings, schedule: Located, definitions: Definitions) -> CascadedPhase:
    """Return what the definitions give to every phase that inherits nothing else."""
    phase = CascadedPhase("", schedule)
    for topic, section in (("simulation", SIMULATION), ("phase_config", PHASE_CONFIG)):
        default = definitions.default(topic, section)
        if default is not None:
            getattr(phase, topic).update(findings.section(default, section) or {})
    if RANDOM_STREAMS in phase.phase_config:
        findings.error(
            phase.phase_config[RANDOM_STREAMS].place,
            f"{RANDOM_STREAMS!r} belongs to one phase and cannot be the default of all: write it in the phase",
        )
    return phase


def _inherits(findings: Findings, body: Located) -> bool:
    """Whether a phase inherits from the phase before it."""
    if not isinstance(body.value, dict) or body.value.get("inherit") is None:
        return True
    return bool(FLAG.read(findings, body.child("inherit"), "inherit"))


def _repeated(value: Any, sizes: dict[int, int]) -> int:
    """Return the size of a collection that was seen before; otherwise 0, and remember it."""
    if not isinstance(value, (dict, list)):
        return 0
    if id(value) not in sizes:
        sizes[id(value)] = 0
        return 0
    return size_of(value, sizes)


def _next_phase(
    findings: Findings, before: CascadedPhase, named: tuple[str, Located], definitions: Definitions
) -> CascadedPhase:
    name, body = named
    phase = CascadedPhase(
        name,
        body,
        dict(before.environments),
        dict(before.agents),
        dict(before.simulation),
        {key: part for key, part in before.phase_config.items() if key != RANDOM_STREAMS},
        set(before.faulty),
    )
    if body.value is None:  # "phase_1:" alone repeats the phase before
        return phase
    errors = findings.count
    parts = findings.section(body, PHASE) or {}
    if findings.count > errors:  # the key of any topic may be misspelled
        phase.faulty.update(PHASE.keys)
    for topic in ("environments", "agents", "simulation", "phase_config"):
        if topic in parts:
            errors = findings.count
            _replace(findings, phase, topic, parts[topic], definitions)
            if findings.count > errors:
                phase.faulty.add(topic)
    return phase


def _replace(
    findings: Findings, phase: CascadedPhase, topic: str, at: Located, definitions: Definitions
) -> None:
    """Replace the inherited parts of a topic by those at ``at``."""
    if topic in ("environments", "agents"):
        inherited = getattr(phase, topic)
        reader = _environment if topic == "environments" else _agent
        entries: dict[str, Entry] = {}
        for item in findings.items(at, topic):
            entry = definitions.lookup(topic, item)
            if entry is not None:
                reader(findings, entry, inherited, entries)
        inherited.update(entries)
        return
    part = definitions.lookup(topic, at)
    if part is not None:
        section = SIMULATION if topic == "simulation" else PHASE_CONFIG
        getattr(phase, topic).update(findings.section(part, section) or {})


def _environment(findings: Findings, at: Located, _: dict[str, Entry], entries: dict[str, Entry]) -> None:
    if isinstance(at.value, dict) and "environment" not in at.value and "uid" in at.value:
        findings.error(
            at.place, "an entry of environments is written '- environment:' with uid, name, params below"
        )
        return
    parts = findings.section(at, ENVIRONMENT_ENTRY)
    if parts is None or findings.missing(at.place, parts, ENVIRONMENT_ENTRY):
        return
    inner = _environment_parts(findings, parts["environment"])
    if inner is None:
        return
    if "uid" not in inner:
        if not isinstance(inner["name"].value, str):
            CLASS_NAME.read(findings, inner["name"], "name")
            return
        inner["uid"] = Located(default_uid(inner["name"].value), inner["name"].place)
    uid = inner["uid"]
    if BODY_NUMBER in str(uid.value):
        findings.error(
            uid.place, f"an environment's uid may not hold {BODY_NUMBER!r}, found {show(uid.value)}"
        )
    elif TEXT.read(findings, uid, "an environment's uid") is not None:
        _give(findings, entries, uid, Entry(at, {**parts, **inner}), "environment uid")


def _environment_parts(findings: Findings, at: Located) -> dict[str, Located] | None:
    """Split an environment, a name or a mapping, into its parts; ``None`` if it has no name."""
    if advice := unquoted(at.value, ENVIRONMENT):
        findings.error(at.place, f"an environment must be a name, or a mapping, found a mapping{advice}")
        return None
    parts = {"name": at} if isinstance(at.value, str) else findings.section(at, ENVIRONMENT)
    return None if parts is None or findings.missing(at.place, parts, ENVIRONMENT) else parts


def _agent(findings: Findings, at: Located, inherited: dict[str, Entry], entries: dict[str, Entry]) -> None:
    parts = findings.section(at, AGENT)
    if parts is None:
        return
    if "name" not in parts:
        findings.error(at.place, "an agent needs the key 'name', which is missing")
        return
    name = parts["name"]
    if TEXT.read(findings, name, "an agent's name") is None:
        return
    before = inherited.get(name.value)
    entry = Entry(at, parts) if before is None else Entry(before.at, {**before.parts, **parts})
    _give(findings, entries, name, entry, "agent name")


def _give(findings: Findings, entries: dict[str, Entry], key: Located, entry: Entry, what: str) -> None:
    before = entries.setdefault(key.value, entry)
    if before is not entry:
        line = findings.lines.nearest(before.parts["uid" if "uid" in before.parts else "name"].place)
        where = f": first in line {line}" if line else ""
        findings.error(key.place, f"the {what} {key.value!r} is given twice in this phase{where}")


def shared_streams(findings: Findings, schedule: Sequence[CascadedPhase]) -> dict[str, str]:
    """Map each phase with the random streams of another phase to the name of that phase.

    Unknown names, and phases that name each other in a circle, are reported.
    """
    written = {phase.name: phase.phase_config.get(RANDOM_STREAMS) for phase in schedule}
    named = {name: at for name, at in written.items() if at is not None and isinstance(at.value, str)}
    names = list(written)
    shared: dict[str, str] = {}
    for name, at in named.items():
        way = [name]
        while way[-1] in named and way.count(way[-1]) == 1:
            way.append(named[way[-1]].value)
        message = ""
        if at.value not in names:
            near, listing = did_you_mean(at.value, names), listed(list(map(repr, names)), 8)
            message = f"there is no phase {at.value!r}{near}; phases: {listing}"
        elif way[-1] not in named:
            shared[name] = way[-1]
        elif way == [name, name]:
            message = (
                f"a phase has random streams of its own without this key; name another phase, not {name!r}"
            )
        elif way[-1] == name:
            message = f"the phases name each other: {' -> '.join(way)}; one of them draws its own streams"
        if message:
            findings.error(at.place, message)
    return shared


def taken_by_bodies(parts: Mapping[str, Located], sizes: dict[int, int]) -> int:
    """Count the values that the bodies of an agent take from it: its canonical form writes them all out.

    ``sizes``: see :func:`~.canonical.size_of`.
    """
    entries = [item.value for item in items_of(parts.get("bodies")) if isinstance(item.value, dict)]
    common = [key for key in COMMON if key in parts] if entries else []
    return sum(
        size_of(parts[key].value, sizes) * sum(key not in entry for entry in entries) for key in common
    )

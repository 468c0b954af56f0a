"""The ``schedule`` of a design in arsenAI's form: for every phase and topic its alternatives.

A topic is a list of alternatives; with more than one it is a factor. An alternative of
``environments`` and ``agents`` is a list of names (``[[a, b], [c]]``), or one name
(``[a, b]`` has two alternatives of one each); of ``simulation`` and ``phase_config`` one
name; of ``sensors`` and ``actuators``, given for each agent, one set or a list of sets that
are joined. ``$req(phase=0, index=1)`` is entry 1 of what phase 0 has for the same topic,
``$req(phase=0)`` all of it. What a phase does not give is that of the phase before: topic by
topic, sensors and actuators agent by agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestrai_mosaik.errors import did_you_mean
from palaestrai_mosaik.experiment.cascade import phases_of
from palaestrai_mosaik.experiment.located import Findings, Located, show
from palaestrai_mosaik.experiment.readers import items_of

from .definitions import Definitions
from .model import Topic
from .vocabulary import PHASE

_REQUEST = re.compile(r"\$req\s*\((?P<arguments>[^()]*)\)?\s*")
#: topics whose alternative is one name
_SINGLE = ("simulation", "phase_config")
#: topics that are given for each agent
BY_AGENT: tuple[Topic, Topic] = ("sensors", "actuators")

#: (index of the phase, topic, key of the agent among the definitions)
SlotKey = tuple[int, Topic, str | None]


@dataclass(frozen=True, slots=True)
class Request:
    """``$req``: what ``phase`` has for the topic, or its entry ``index`` only."""

    phase: int
    index: int | None = None


Entry = str | Request


@dataclass(frozen=True, slots=True)
class Slot:
    """A topic of a phase (for ``sensors`` and ``actuators`` of one agent), and its alternatives."""

    key: SlotKey
    options: tuple[tuple[Entry, ...], ...]
    labels: tuple[str, ...]
    written: tuple[Any, ...]


@dataclass
class Phase:
    """A phase's name and all its slots: own ones and inherited ones, which know their own phase."""

    name: str
    slots: dict[tuple[Topic, str | None], Slot] = field(default_factory=dict)


class Reader:
    """Reads the schedule at ``at``, which chooses from ``definitions``."""

    def __init__(self, found: Findings, definitions: Definitions):
        self._found = found
        self._definitions = definitions
        self._phases: list[Phase] = []
        self._errors = found.count

    @property
    def _faulty(self) -> bool:
        """Whether something was not understood, so that what seems missing later may be no fault."""
        return self._found.count > self._errors

    def phases(self, at: Located) -> list[Phase]:
        """Return all phases, each with what it inherits."""
        slots: dict[tuple[Topic, str | None], Slot] = {}
        for name, body in phases_of(self._found, at):
            phase = Phase(name, dict(slots))
            self._phases.append(phase)
            parts = {} if body.value is None else self._found.section(body, PHASE) or {}
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
            self._found.error(
                at.place, f"{topic} must be a mapping from agents to alternatives, found {show(at.value)}"
            )
            return
        agents = self._definitions.names["agents"]
        for agent in at.value:
            if agent in agents:
                self._add(phase, topic, agent, at.child(agent))
            else:
                self._found.error(
                    (*at.place, agent),
                    f"{agent!r} is not defined in definitions.agents{did_you_mean(agent, agents)}; defined: "
                    f"{', '.join(agents)}",
                )

    def _add(self, phase: Phase, topic: Topic, agent: str | None, at: Located) -> None:
        listed = _listed(at)
        if not listed:
            self._found.error(at.place, f"{topic} needs at least one alternative")
            return
        options = [self._option(topic, agent, one) for one in listed]
        if any(option is None for option in options):
            return
        read = tuple(option for option in options if option is not None)
        labels = tuple(self._label(option) for option in read)
        for index, label in enumerate(labels):
            if label in labels[:index]:
                self._found.error(listed[index].place, f"the alternative {label!r} of {topic} is given twice")
        key: SlotKey = (len(self._phases) - 1, topic, agent)
        phase.slots[topic, agent] = Slot(key, read, labels, tuple(one.value for one in listed))

    def _label(self, option: tuple[Entry, ...]) -> str:
        texts = []
        for entry in option:
            if isinstance(entry, str):
                texts.append(entry)
            else:
                index = "" if entry.index is None else f"[{entry.index}]"
                texts.append(f"{self._phases[entry.phase].name}{index}")
        return "+".join(texts) or "none"

    def _option(self, topic: Topic, agent: str | None, at: Located) -> tuple[Entry, ...] | None:
        """Return one alternative, ``None`` where it is unsound."""
        listed = _listed(at)
        if topic in _SINGLE and len(listed) != 1:
            self._found.error(at.place, f"an alternative of {topic} is one name, found {len(listed)}")
            return None
        if not listed and topic not in BY_AGENT:
            self._found.error(at.place, f"an alternative of {topic} needs at least one name")
            return None
        entries = [self._entry(topic, agent, one) for one in listed]
        return None if None in entries else tuple(entry for entry in entries if entry is not None)

    def _entry(self, topic: Topic, agent: str | None, at: Located) -> Entry | None:
        if not isinstance(at.value, str):
            hint = "" if not isinstance(at.value, dict) else ", which is put below definitions and named here"
            self._found.error(
                at.place, f"a name from definitions.{topic} must stand here, found {show(at.value)}{hint}"
            )
            return None
        if at.value.lstrip().startswith("$"):
            return self._request(topic, agent, at)
        names = self._definitions.names[topic]
        if at.value in names:
            return at.value
        allowed = f"; defined: {', '.join(names)}" if names else ""
        self._found.error(
            at.place,
            f"{at.value!r} is not defined in definitions.{topic}{did_you_mean(at.value, names)}{allowed}",
        )
        return None

    def _request(self, topic: Topic, agent: str | None, at: Located) -> Request | None:
        match = _REQUEST.fullmatch(at.value.strip())
        arguments = _arguments(match["arguments"]) if match is not None else None
        if arguments is None or not arguments.keys() <= {"phase", "index"} or "phase" not in arguments:
            self._found.error(
                at.place, f"{at.value!r} is not understood; written: $req(phase=0, index=0), or $req(phase=0)"
            )
            return None
        slot = self._requested(arguments["phase"], (topic, agent), at)
        if slot is None:
            return None
        phase, index = self._source(arguments["phase"]) or 0, arguments.get("index")
        if index is None or topic in _SINGLE or topic in BY_AGENT:
            return Request(phase)
        least = min(entry_count(self._phases, slot, option) for option in slot.options)
        if index.isdecimal() and int(index) < least:
            return Request(phase, int(index))
        self._found.error(
            at.place,
            f"{at.value!r}: index is {index}; phase {phase} always has {topic} 0 to {least - 1} only",
        )
        return None

    def _requested(self, text: str, which: tuple[Topic, str | None], at: Located) -> Slot | None:
        """Return the slot of the earlier phase ``text``, ``None`` where there is none."""
        here = len(self._phases) - 1
        phase = self._source(text)
        if phase is None or phase >= here:
            earlier = ", ".join(f"{i} ({one.name})" for i, one in enumerate(self._phases[:here]))
            self._found.error(
                at.place,
                f"{at.value!r} must name an earlier phase; earlier ones: {earlier or 'none, this is the first'}",
            )
            return None
        slot = self._phases[phase].slots.get(which)
        if slot is None and not self._faulty:
            topic, agent = which
            whose = f" for agent {agent!r}" if agent is not None else ""
            self._found.error(at.place, f"phase {phase} has no {topic}{whose} that could be requested")
        return slot

    def _source(self, text: str) -> int | None:
        """Return the index of the phase that ``text`` names: its index or its name."""
        if text.isdecimal():
            return int(text)
        names = [phase.name for phase in self._phases]
        return names.index(text) if text in names else None

    def _complete(self, phase: Phase, at: Located) -> None:
        """Check that everything that the phase needs is given."""
        for topic in ("environments", "agents", "simulation"):
            if (topic, None) not in phase.slots:
                self._found.error(at.place, f"the phase {phase.name!r} needs the key {topic!r}")
        slot = phase.slots.get(("agents", None))
        for agent in possible(self._phases, slot) if slot is not None else ():
            given = self._definitions.agents.get(agent, {})
            for topic in BY_AGENT if given.get("bodies") is None else ():
                if (topic, agent) not in phase.slots and topic not in given:
                    self._found.error(
                        at.place,
                        f"the phase {phase.name!r} needs {topic} for agent {agent!r}: {topic}: "
                        f"{{{agent}: [NAME OF A SET]}}",
                    )


def _listed(at: Located) -> list[Located]:
    """Return the items of a list; what is none stands for itself alone."""
    return items_of(at) if isinstance(at.value, list) else [at]


def _arguments(text: str) -> dict[str, str] | None:
    """Return the arguments of a request, ``None`` if they are none."""
    arguments: dict[str, str] = {}
    for piece in text.split(","):
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or not value or key in arguments:
            return None
        arguments[key] = value
    return arguments


def entry_count(phases: Sequence[Phase], slot: Slot, option: tuple[Entry, ...]) -> int:
    """Return the least number of names that an alternative can come to."""
    count = 0
    for entry in option:
        if isinstance(entry, Request) and entry.index is None:
            source = phases[entry.phase].slots[slot.key[1], slot.key[2]]
            count += min(entry_count(phases, source, one) for one in source.options)
        else:
            count += 1
    return count


def possible(phases: Sequence[Phase], slot: Slot) -> dict[str, None]:
    """Return all names that any alternative of a slot can come to, in order."""
    names: dict[str, None] = {}
    for option in slot.options:
        for entry in option:
            if isinstance(entry, str):
                names[entry] = None
                continue
            source = phases[entry.phase].slots[slot.key[1], slot.key[2]]
            if entry.index is None:
                names |= possible(phases, source)
                continue
            for one in source.options:
                names |= _possible_at(phases, source, one, entry.index)
    return names


def _possible_at(
    phases: Sequence[Phase], slot: Slot, option: tuple[Entry, ...], index: int
) -> dict[str, None]:
    """Return the names that the entry ``index`` of an alternative can be."""
    if all(isinstance(entry, str) or entry.index is not None for entry in option):
        entry = option[index]
        if isinstance(entry, str):
            return {entry: None}
        source = phases[entry.phase].slots[slot.key[1], slot.key[2]]
        return {
            name: None
            for one in source.options
            for name in _possible_at(phases, source, one, entry.index or 0)
        }
    # an entry of unknown length stands before: any name is possible
    return possible(phases, Slot(slot.key, (option,), (), ()))


def chosen_names(phases: Sequence[Phase], slot: Slot, chosen: Mapping[SlotKey, int]) -> tuple[str, ...]:
    """Return the names that a slot comes to where every slot has the alternative ``chosen``."""
    names: list[str] = []
    for entry in slot.options[chosen.get(slot.key, 0)]:
        if isinstance(entry, str):
            names.append(entry)
            continue
        source = phases[entry.phase].slots[slot.key[1], slot.key[2]]
        requested = chosen_names(phases, source, chosen)
        names += requested if entry.index is None else (requested[entry.index],)
    return tuple(names)

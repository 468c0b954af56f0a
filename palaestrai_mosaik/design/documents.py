"""From the values of factors to the run document that they make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaestrai_mosaik.errors import DocumentError
from palaestrai_mosaik.experiment.located import Findings, Lines, Located
from palaestrai_mosaik.experiment.vocabulary import PHASE_CONFIG

from .arsenai_form import BY_AGENT, Definitions, Phase, Reader, SlotKey, chosen_names, read_definitions
from .model import INACTIVE, DesignSpec, Factor
from .paths import Changes, Keys, Path


class DocumentBuilder:
    """Makes the run documents of ``spec``."""

    def __init__(self, spec: DesignSpec):
        self._spec = spec
        self._schedule = None if spec.base is not None else schedule_of(spec)
        self._base = dict(spec.base) if spec.base is not None else {}
        self._base.setdefault("version", spec.version)
        self._choices = [factor for factor in spec.factors if factor.choice is not None]
        self._paths = [
            (factor, Path.parse(factor.path)) for factor in spec.factors if factor.path is not None
        ]
        self._keys: dict[str, Keys] = {}
        if self._schedule is None:
            self._keys = {factor.name: self._found(factor, path, self._base) for factor, path in self._paths}

    def build(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the run document for ``values``, without ``uid``, ``seed`` and ``experiment_uid``.

        ``values`` has for every factor its value (of a factor of the schedule the label, of
        other levels the level), or ``INACTIVE``, which leaves the document as it is there. The
        document is plain data, fresh where it is changed; the rest is shared with other
        documents, so nobody may write to it. Raises
        :class:`~palaestrai_mosaik.errors.DocumentError` where a path leads nowhere in the
        document of these values.
        """
        document = self._base if self._schedule is None else self._generated(values)
        changes = Changes()
        for factor, path in self._paths:
            value = values[factor.name]
            if value is not INACTIVE:
                keys = self._keys.get(factor.name) or self._found(factor, path, document, values)
                changes.set(keys, value)
        built: dict[str, Any] = changes.applied(document)
        return built

    def _generated(self, values: Mapping[str, Any]) -> dict[str, Any]:
        chosen: dict[SlotKey, int] = {}
        for factor in self._choices:
            choice, label = factor.choice, values[factor.name]
            if choice is not None and label is not INACTIVE:
                chosen[choice.phase, choice.topic, choice.agent] = factor.labels.index(label)
        assert self._schedule is not None
        return self._schedule.document(chosen)

    def _found(
        self, factor: Factor, path: Path, document: Any, values: Mapping[str, Any] | None = None
    ) -> Keys:
        found = path.find(document, factor.create)
        if found.fault is None:
            return found.keys
        row = ""
        if values is not None:
            row = " in the document of " + ", ".join(
                f"{one.name}={values[one.name]}" for one in self._choices
            )
            row += "; exclude such rows with 'when'"
        message = f"the path of factor {factor.name!r} ({path.text}) leads nowhere{row}: {found.fault}"
        raise DocumentError([self._spec.problem(message, "factors", factor.name)])


class Schedule:
    """The run documents that arsenAI's form of a design stands for, one for each combination."""

    def __init__(self, definitions: Definitions, phases: Sequence[Phase], version: str):
        self.definitions = definitions
        self.phases = tuple(phases)
        self._version = version
        self._ids: dict[Any, list[str]] = {}

    def document(self, chosen: Mapping[SlotKey, int]) -> dict[str, Any]:
        """Return the run document where every slot has the alternative ``chosen`` (else the first)."""
        schedule = [{phase.name: self._phase(phase, chosen)} for phase in self.phases]
        _write_out([next(iter(phase.values())) for phase in schedule])
        return {"version": self._version, "schedule": schedule, "run_config": self.definitions.run_config}

    def _phase(self, phase: Phase, chosen: Mapping[SlotKey, int]) -> dict[str, Any]:
        names = {
            topic: chosen_names(self.phases, slot, chosen)
            for (topic, agent), slot in phase.slots.items()
            if agent is None
        }
        defined = self.definitions
        environments = [defined.environments[name] for name in names["environments"]]
        uids = tuple(str(entry["environment"]["uid"]) for entry in environments)
        result: dict[str, Any] = {
            "environments": environments,
            "agents": [self._agent(phase, name, uids, chosen) for name in names["agents"]],
            "simulation": dict(defined.simulation[names["simulation"][0]]),
        }
        if "phase_config" in names:
            result["phase_config"] = dict(defined.phase_config[names["phase_config"][0]])
        return result

    def _agent(
        self, phase: Phase, key: str, uids: tuple[str, ...], chosen: Mapping[SlotKey, int]
    ) -> dict[str, Any]:
        agent = dict(self.definitions.agents[key])
        load = self.definitions.loads.get(key, {}).get(phase.name)
        if load is not None:
            agent["load"] = load
        for topic in BY_AGENT:
            slot = phase.slots.get((topic, key))
            if slot is not None:
                sets = chosen_names(self.phases, slot, chosen)
                made = (topic, sets, uids)
                if made not in self._ids:
                    self._ids[made] = self.definitions.ids(topic, sets, uids)
                agent[topic] = self._ids[made]
        return agent


def _write_out(phases: Sequence[dict[str, Any]]) -> None:
    """Write into phases what keeps the cascade of run documents from adding to them.

    Every phase of a design is complete by itself. Where a phase lacks environments or agents of the
    phase before, or has them in another order, it is told not to inherit; else null is written
    for what its own agents, simulation and phase configuration do not give and would inherit.
    """
    seen: dict[Any, dict[str, None]] = {}
    before: list[list[str]] = [[], []]
    for phase in phases:
        names = [
            [str(one["environment"]["uid"]) for one in phase["environments"]],
            [one["name"] for one in phase["agents"]],
        ]
        if any(list(dict.fromkeys((*old, *new))) != new for old, new in zip(before, names, strict=True)):
            phase["inherit"] = False
            seen.clear()
        before = names
        parts = [(("agents", agent["name"]), agent) for agent in phase["agents"]]
        parts += [((topic, ""), phase[topic]) for topic in ("simulation", "phase_config") if topic in phase]
        for which, part in parts:
            words = [PHASE_CONFIG.spellings.get(key, key) for key in part]
            kept = seen.setdefault(which, {})
            for key in kept:
                if key not in words:
                    part[key] = None
            kept |= dict.fromkeys(words)


def read_schedule(found: Findings, definitions: Located, schedule: Located, version: str) -> Schedule:
    """Return the schedule of a design in arsenAI's form; what is wrong goes to ``found``."""
    defined = read_definitions(found, definitions, _phase_names(schedule.value))
    phases = Reader(found, defined).phases(schedule)
    return Schedule(defined, phases, version)


def _phase_names(schedule: Any) -> list[str]:
    if isinstance(schedule, dict):
        return [str(name) for name in schedule]
    items = schedule if isinstance(schedule, list) else []
    return [str(next(iter(item))) for item in items if isinstance(item, dict) and item]


def schedule_of(spec: DesignSpec) -> Schedule:
    """Return the schedule of a sound design in arsenAI's form."""
    found = Findings(spec.source, Lines())
    schedule = Located(list(spec.schedule), ("schedule",))
    return read_schedule(found, Located(spec.definitions, ("definitions",)), schedule, spec.version)

"""The ``definitions`` of a design in arsenAI's form: named parts that its schedule chooses from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from palaestrai_mosaik.errors import did_you_mean
from palaestrai_mosaik.experiment import vocabulary as run
from palaestrai_mosaik.experiment.bodies import has_bodies
from palaestrai_mosaik.experiment.located import Findings, Located, show
from palaestrai_mosaik.experiment.readers import class_name, class_spec, identifier, optional_class

from .vocabulary import AGENT, AGENT_WITH_BODIES, DEFINITIONS, TOPICS

#: environment uid -> local ids
IdSet = dict[str, list[str]]


@dataclass
class Definitions:
    """All definitions, ready to be put into a run document.

    ``environments``, ``agents``, ``simulation``, ``phase_config``: name -> entry of a run
    document; ``loads``: agent -> phase -> its ``load``; ``sensors``, ``actuators``: name ->
    environment uid -> local ids.
    """

    environments: dict[str, dict[str, Any]] = field(default_factory=dict)
    agents: dict[str, dict[str, Any]] = field(default_factory=dict)
    loads: dict[str, dict[str, Any]] = field(default_factory=dict)
    sensors: dict[str, IdSet] = field(default_factory=dict)
    actuators: dict[str, IdSet] = field(default_factory=dict)
    simulation: dict[str, dict[str, Any]] = field(default_factory=dict)
    phase_config: dict[str, dict[str, Any]] = field(default_factory=dict)
    run_config: dict[str, Any] = field(default_factory=dict)
    #: all names of a topic, of unsound definitions, too
    names: dict[str, tuple[str, ...]] = field(default_factory=lambda: dict.fromkeys(TOPICS, ()))

    def ids(self, topic: str, names: Sequence[str], uids: Sequence[str]) -> list[str]:
        """Return the full ids of the sets ``names`` in the environments ``uids``, each once."""
        sets = [getattr(self, topic)[name] for name in names]
        return list(dict.fromkeys(f"{uid}.{one}" for uid in uids for ids in sets for one in ids.get(uid, ())))


def read_definitions(found: Findings, at: Located, phases: Sequence[str]) -> Definitions:
    """Return the definitions at ``at``; ``phases`` are the names of the schedule's phases."""
    result = Definitions()
    parts = found.section(at, DEFINITIONS)
    if parts is None:
        return result
    found.missing(at.place, parts, DEFINITIONS)
    result.names = {topic: _names(parts[topic]) if topic in parts else () for topic in TOPICS}
    uids = _uids(parts.get("environments"))

    def agent(found: Findings, one: Located) -> dict[str, Any] | None:
        return _agent(found, one, phases, result.loads)

    def ids(found: Findings, one: Located) -> IdSet | None:
        return _id_set(found, one, uids)

    readers: dict[str, Callable[[Findings, Located], Any]] = {
        "environments": _environment,
        "agents": agent,
        "sensors": ids,
        "actuators": ids,
        "simulation": _simulation,
        "phase_config": _phase_config,
    }
    for topic, reader in readers.items():
        if topic in parts:
            setattr(result, topic, _named(found, parts[topic], topic, reader))
    if "run_config" in parts and found.section(parts["run_config"], run.RUN_CONFIG) is not None:
        result.run_config = parts["run_config"].value
    return result


def _names(at: Located) -> tuple[str, ...]:
    return tuple(str(key) for key in at.value) if isinstance(at.value, dict) else ()


def _uids(at: Located | None) -> tuple[str, ...]:
    """Return the uids of all environments, also of those whose definition is not sound."""
    entries = at.value.values() if at is not None and isinstance(at.value, dict) else ()
    inner = [entry.get("environment", entry) for entry in entries if isinstance(entry, dict)]
    return tuple(dict.fromkeys(str(one["uid"]) for one in inner if isinstance(one, dict) and "uid" in one))


def _named(
    found: Findings, at: Located, topic: str, reader: Callable[[Findings, Located], Any]
) -> dict[str, Any]:
    """Return what ``reader`` makes of every definition of a topic."""
    if not isinstance(at.value, dict):
        found.error(at.place, f"definitions.{topic} must be a mapping from names, found {show(at.value)}")
        return {}
    read: dict[str, Any] = {}
    for key in at.value:
        if not isinstance(key, str) or not key:
            found.error(
                (*at.place, key), f"a name in definitions.{topic} must be a string, found {show(key)}"
            )
            continue
        entry = reader(found, at.child(key))
        if entry is not None:
            read[key] = entry
    return read


def _environment(found: Findings, at: Located) -> dict[str, Any] | None:
    entry = at.value
    if isinstance(entry, dict) and "environment" not in entry and entry.keys() & {"name", "uid", "params"}:
        found.error(
            at.place,
            "an environment's definition is written 'environment:' with uid, name, params below it, and "
            "reward and state_transformer beside it; here 'environment:' is missing",
        )
        return None
    parts = found.section(at, run.ENVIRONMENT_ENTRY)
    if parts is None or found.missing(at.place, parts, run.ENVIRONMENT_ENTRY):
        return None
    inner = found.section(parts["environment"], run.ENVIRONMENT)
    if inner is None or found.missing(parts["environment"].place, inner, run.ENVIRONMENT):
        return None
    uid = identifier(found, inner["uid"], "an environment's uid")
    name = class_name(found, inner["name"])
    result = {"environment": parts["environment"].value}
    for key in ("reward", "state_transformer"):
        if key in parts and not _nameless(parts[key].value):
            optional_class(found, parts[key], key)
            result[key] = parts[key].value
    return result if uid is not None and name is not None else None


def _nameless(value: Any) -> bool:
    """Whether a class is left out: arsenAI's documents say so with an empty name."""
    return value is None or value == {} or (isinstance(value, dict) and value.get("name", "") in ("", None))


def _agent(
    found: Findings, at: Located, phases: Sequence[str], loads: dict[str, dict[str, Any]]
) -> dict[str, Any] | None:
    parts = found.section(at, AGENT)
    several = parts is not None and has_bodies(parts)
    if parts is None or found.missing(at.place, parts, AGENT_WITH_BODIES if several else AGENT):
        return None
    name = identifier(found, parts["name"], "an agent's name")
    sound = (several or class_spec(found, parts["muscle"], "muscle") is not None) and name is not None
    for key in ("brain", "objective", *(("muscle",) if several else ())):
        optional_class(found, parts.get(key), key)
    if "load" in parts:
        loads[at.place[-1]] = _loads(found, parts["load"], phases)
    entry = {key: part.value for key, part in parts.items() if key != "load"}
    return entry if sound else None


def _loads(found: Findings, at: Located, phases: Sequence[str]) -> dict[str, Any]:
    """Return the ``load`` of an agent by phase: it is given for all phases, or by their names.

    By name, an empty one means that nothing is loaded. For all, an empty one holds from the
    second phase on, as the first has none before it.
    """
    if at.value is None:
        return {}
    if not isinstance(at.value, dict):
        found.error(at.place, f"load must be a mapping, found {show(at.value)}")
        return {}
    by_phase = bool(at.value) and not any(key in run.LOAD.words for key in at.value)
    if not by_phase:
        found.section(at, run.LOAD)
        return dict.fromkeys(phases if at.value else phases[1:], at.value)
    loads = {}
    for key, value in at.value.items():
        if key not in phases:
            found.error(
                (*at.place, key),
                f"load names {key!r}, which is no phase of the schedule{did_you_mean(key, phases)}; phases: "
                f"{', '.join(phases)}; or, for all phases, a key of load: {', '.join(run.LOAD.keys)}",
            )
        elif value is not None and found.section(at.child(key), run.LOAD):
            loads[key] = value
    return loads


def _id_set(found: Findings, at: Located, uids: Sequence[str]) -> IdSet | None:
    """Return a set of sensors or actuators: environment uid -> local ids."""
    if not isinstance(at.value, dict):
        found.error(
            at.place,
            f"a set of sensors or actuators is a mapping from an environment's uid to ids, found "
            f"{show(at.value)}",
        )
        return None
    ids: IdSet = {}
    for uid in at.value:
        one = at.child(uid)
        if str(uid) not in uids:
            found.error(
                one.place,
                f"no environment with the uid {uid!r} is defined{did_you_mean(uid, uids)}; uids: "
                f"{', '.join(uids) or 'none'}",
            )
        elif not isinstance(one.value, list):
            found.error(one.place, f"the ids in environment {uid!r} must be a list, found {show(one.value)}")
        else:
            ids[str(uid)] = [
                local for item in range(len(one.value)) if (local := _id(found, one.child(item), str(uid)))
            ]
    return ids


def _id(found: Findings, at: Located, uid: str) -> str:
    """Return a local id, given with or without its environment's uid; empty if it is none."""
    if isinstance(at.value, int) and not isinstance(at.value, bool):
        return str(at.value)
    if not isinstance(at.value, str) or at.value in ("", f"{uid}."):
        found.error(at.place, f"an id must be a string or a whole number, found {show(at.value)}")
        return ""
    return at.value.removeprefix(f"{uid}.")


def _simulation(found: Findings, at: Located) -> dict[str, Any] | None:
    parts = found.section(at, run.SIMULATION)
    if parts is None or found.missing(at.place, parts, run.SIMULATION):
        return None
    return {key: part.value for key, part in parts.items()}


def _phase_config(found: Findings, at: Located) -> dict[str, Any] | None:
    # keys keep their spelling: that of the document is the user's
    parts = found.section(at, run.PHASE_CONFIG)
    return None if parts is None else dict(at.value)

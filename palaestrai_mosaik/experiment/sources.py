"""Where ``load`` and ``replay`` of a document point to in this document: can that be there?

What other runs have is known to the store only, and what lies in a folder (``base``) to the
file system.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.errors import did_you_mean

from .cascade import CascadedPhase, Entry
from .learning import load_section, snapshot_section
from .located import Findings, Located
from .readers import items_of
from .vocabulary import LOAD, REPLAY


def check_sources(found: Findings, uid: str, raw: Sequence[CascadedPhase]) -> None:
    """Check that there are the phases and agents of this run that ``load`` and ``replay`` name.

    A brain that is loaded must be one of an earlier phase; trajectories may be those of an
    earlier execution.
    """
    names = [phase.name for phase in raw]
    agents = {name for phase in raw for name in phase.agents}
    for number, phase in enumerate(raw):
        for name, entry in phase.agents.items():
            for at in items_of(entry.parts.get("replay")):
                if isinstance(at.value, dict):
                    parts = {REPLAY.spellings.get(key, key): at.child(key) for key in at.value}
                    if _is_own(parts, uid):
                        _check_phase(found, parts, names)
                        _check_agent(found, parts, agents)
            load = entry.parts.get("load")
            if load is not None and isinstance(load.value, dict):
                parts = {LOAD.spellings.get(key, key): load.child(key) for key in load.value}
                if not _is_own(parts, uid):
                    _check_names_a_phase(found, load, parts)
                elif _check_phase(found, parts, names) and _check_agent(found, parts, agents):
                    _check_load(found, raw, number, name, entry)


def points_before_the_first(load: Mapping[str, Any], number: int) -> bool:
    """Whether ``load`` in phase ``number`` would take the phase before the first one.

    Documents of palaestrAI say so where all phases shall have it; it is passed over there, too.
    """
    return number == 0 and not load.keys() - {"agent"}


def warn_of_snapshots(found: Findings, uid: str, raw: Sequence[CascadedPhase]) -> None:
    """Warn, once, of a ``load`` whose snapshot nobody in this run is told to take.

    Only a warning: a brain may take snapshots by itself. ``raw`` has no faults.
    """
    warned = set()
    for number, phase in enumerate(raw):
        for name, entry in phase.agents.items():
            at = entry.parts.get("load")
            load = load_section(found, at) or {}
            snapshot = load.get("snapshot")
            if at is None or snapshot is None or at.place in warned or not _comes_from_here(load, uid):
                continue
            source, agent = raw[_source(load, raw, number)], load.get("agent", name)
            taken = snapshot_section(found, source.agents[agent].parts.get("snapshots"))
            best = snapshot == "best" and taken is not None and taken.best
            if not best and not (snapshot.startswith("episode-") and taken is not None and taken.every):
                warned.add(at.place)
                found.warn(
                    at.place, f"no 'snapshots' of agent {agent!r} in phase {source.name!r} makes {snapshot!r}"
                )


def _value(parts: Mapping[str, Located], key: str) -> Any:
    return parts[key].value if key in parts else None


def _is_own(parts: Mapping[str, Located], uid: str) -> bool:
    """Whether a source is of this run; which instance that is may be left open."""
    return _value(parts, "instance") is None and _value(parts, "experiment_run") in (None, uid)


def _comes_from_here(load: Mapping[str, Any], uid: str) -> bool:
    """Whether ``load`` can be met by nothing but this very execution."""
    return not load.keys() & {"base", "instance"} and load.get("experiment_run", uid) == uid


def _source(load: Mapping[str, Any], raw: Sequence[CascadedPhase], number: int) -> int:
    """Return the number of the phase that ``load`` in phase ``number`` means."""
    if "phase_name" in load:
        return [phase.name for phase in raw].index(load["phase_name"])
    return int(load.get("phase", number - 1))


def _check_names_a_phase(found: Findings, at: Located, parts: Mapping[str, Located]) -> None:
    if _value(parts, "phase") is None and _value(parts, "phase_name") is None:
        found.error(at.place, "'load' from another execution must name the phase")


def _check_phase(found: Findings, parts: Mapping[str, Located], names: list[str]) -> bool:
    """Check that the phase that is named, if one is, exists; return whether it does."""
    errors = found.count
    for phase in (parts.get("phase_name"), parts.get("phase")):
        if phase is None:
            continue
        if isinstance(phase.value, str) and phase.value not in names:
            allowed = ", ".join(names)
            found.error(
                phase.place,
                f"there is no phase {phase.value!r}{did_you_mean(phase.value, names)}; phases: {allowed}",
            )
        if type(phase.value) is int and phase.value >= len(names):
            found.error(
                phase.place,
                f"there is no phase {phase.value}: the last of {len(names)} is {len(names) - 1}",
            )
    return found.count == errors


def _check_agent(found: Findings, parts: Mapping[str, Located], agents: Collection[str]) -> bool:
    """Check that the agent that is named, if one is, is in any phase; return whether it is."""
    agent = parts.get("agent")
    if agent is None or not isinstance(agent.value, str) or agent.value in agents:
        return True
    found.error(agent.place, f"there is no agent {agent.value!r}{did_you_mean(agent.value, agents)}")
    return False


def _check_load(found: Findings, raw: Sequence[CascadedPhase], number: int, name: str, entry: Entry) -> None:
    """Check that there will be a brain to load when phase ``number`` begins."""
    at = entry.parts["load"]
    # what is wrong with the keys themselves is told elsewhere
    unheard = Findings(found.source, found.lines)
    load = load_section(unheard, at)
    if unheard.count or load is None:
        return
    source = _source(load, raw, number)
    if points_before_the_first(load, number):
        found.warn(at.place, "'load' has no effect in the first phase: there is none before it")
        return
    if source < 0:
        found.error(at.place, "'load' must name the phase here: the first phase has none before it")
        return
    if "base" in load:
        return
    here, there = raw[number], raw[source]
    if source >= number:
        which = "this very phase" if source == number else f"phase {there.name!r}, a later one"
        found.error(
            at.place,
            f"'load' in phase {here.name!r} points to {which}: a brain is kept when its phase has ended",
        )
        return
    if "agents" in there.faulty:
        return
    agent = load.get("agent", name)
    if agent not in there.agents:
        found.error(
            at.place,
            f"phase {there.name!r} has no agent {agent!r}{did_you_mean(agent, there.agents)}; agents there: "
            f"{', '.join(there.agents)}",
        )
    elif _value(there.agents[agent].parts, "brain") is None:
        found.error(at.place, f"agent {agent!r} has no brain in phase {there.name!r} that could be loaded")

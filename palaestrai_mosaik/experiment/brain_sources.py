"""The source of an agent's brain, and when it is kept: load, replay, snapshots.

Only the store knows other runs, and only the file system knows the content of a folder (``base``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.errors import did_you_mean

from .cascade import CascadedPhase, Entry
from .fields import items_of
from .located import Findings, Located, show
from .model import ReplaySpec, SnapshotSpec
from .vocabulary import LOAD, REPLAY, SNAPSHOTS


def load_section(found: Findings, at: Located | None) -> dict[str, Any] | None:
    """Read ``load`` with its keys in one spelling; absent or null means none."""
    if at is None or at.value is None:
        return None
    parts = found.section(at, LOAD) or {}
    given = LOAD.values(found, parts, "load's ")
    load = {
        "phase_name" if key == "phase" and isinstance(given[key], str) else key: given[key]
        for key in parts
        if given[key] is not None
    }
    _not_both(found, at, parts, "load")
    return load


def _not_both(found: Findings, at: Located, parts: Mapping[str, Located], what: str) -> None:
    if all(key in parts and parts[key].value is not None for key in ("phase", "phase_name")):
        found.error(at.place, f"{what} takes 'phase' (an index or a name) or 'phase_name', not both")


def replay_list(found: Findings, at: Located | None) -> tuple[ReplaySpec, ...]:
    """Read the stored trajectories listed at ``at``; absent or null means none."""
    if at is None or at.value is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"replay must be a list, found {show(at.value)}")
        return ()
    return tuple(_replay(found, item) for item in items_of(at))


def _replay(found: Findings, at: Located) -> ReplaySpec:
    parts = {key: part for key, part in (found.section(at, REPLAY) or {}).items() if part.value is not None}
    given = REPLAY.values(found, parts, "replay's ")
    _not_both(found, at, parts, "replay")
    name = given.pop("phase_name")
    if "phase" not in parts:
        given["phase"] = name
    if not given.pop("strict") and "strict" in parts:
        found.warn(parts["strict"].place, "replay is always strict here: what cannot be replayed is an error")
    for key in ("sensors", "actuators"):
        if key not in parts:
            given[key] = None  # this agent's channels
        elif parts[key].value == []:
            found.error(
                parts[key].place,
                f"replay's {key} must name at least one; leave the key out for those of this agent",
            )
    return ReplaySpec(**given)


def snapshot_section(found: Findings, at: Located | None) -> SnapshotSpec | None:
    """Read when the brain is dumped during a phase; absent, null or an empty choice means never."""
    if at is None or at.value is None:
        return None
    parts = found.section(at, SNAPSHOTS)
    if parts is None:
        return None
    if not at.value:
        found.error(at.place, "snapshots needs 'every' (a number of episodes), 'best' (true), or both")
    given = SNAPSHOTS.values(found, parts, "snapshots' ")
    return SnapshotSpec(**given) if given["every"] is not None or given["best"] else None


def check_sources(found: Findings, uid: str, raw: Sequence[CascadedPhase]) -> None:
    """Check that the phases and agents of this run in ``load`` and ``replay`` exist.

    A brain must be loaded from an earlier phase; trajectories may come from an
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
    """Whether ``load`` in phase ``number`` refers to a phase before the first one.

    Documents of palaestrAI use it to give all phases the same ``load``; it is ignored there, too.
    """
    return number == 0 and not load.keys() - {"agent"}


def warn_of_snapshots(found: Findings, uid: str, raw: Sequence[CascadedPhase]) -> None:
    """Warn, once, of a ``load`` with a snapshot that no agent of this run is configured to take.

    It is only a warning, because a brain may take snapshots by itself. ``raw`` must be without faults.
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
    """Whether a source is in this run; its instance may be left open."""
    return _value(parts, "instance") is None and _value(parts, "experiment_run") in (None, uid)


def _comes_from_here(load: Mapping[str, Any], uid: str) -> bool:
    """Whether ``load`` can refer only to this very execution."""
    return not load.keys() & {"base", "instance"} and load.get("experiment_run", uid) == uid


def _source(load: Mapping[str, Any], raw: Sequence[CascadedPhase], number: int) -> int:
    """Return the number of the phase to which ``load`` in phase ``number`` refers."""
    if "phase_name" in load:
        return [phase.name for phase in raw].index(load["phase_name"])
    return int(load.get("phase", number - 1))


def _check_names_a_phase(found: Findings, at: Located, parts: Mapping[str, Located]) -> None:
    if _value(parts, "phase") is None and _value(parts, "phase_name") is None:
        found.error(at.place, "'load' from another execution must name the phase")


def _check_phase(found: Findings, parts: Mapping[str, Located], names: list[str]) -> bool:
    """Check that the named phase, if any, exists; return whether it does."""
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
    """Check that the named agent, if any, is in some phase; return whether it is."""
    agent = parts.get("agent")
    if agent is None or not isinstance(agent.value, str) or agent.value in agents:
        return True
    found.error(agent.place, f"there is no agent {agent.value!r}{did_you_mean(agent.value, agents)}")
    return False


def _check_load(found: Findings, raw: Sequence[CascadedPhase], number: int, name: str, entry: Entry) -> None:
    """Check that there will be a brain to load when phase ``number`` begins."""
    at = entry.parts["load"]
    # problems of the keys themselves are reported elsewhere
    discarded = Findings(found.source, found.lines)
    load = load_section(discarded, at)
    if discarded.count or load is None:
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
    this_phase, origin = raw[number], raw[source]
    if source >= number:
        which = "this very phase" if source == number else f"phase {origin.name!r}, a later one"
        found.error(
            at.place,
            f"'load' in phase {this_phase.name!r} points to {which}: a brain is kept when its phase has ended",
        )
        return
    if "agents" in origin.faulty:
        return
    agent = load.get("agent", name)
    if agent not in origin.agents:
        found.error(
            at.place,
            f"phase {origin.name!r} has no agent {agent!r}{did_you_mean(agent, origin.agents)}; agents there: "
            f"{', '.join(origin.agents)}",
        )
    elif _value(origin.agents[agent].parts, "brain") is None:
        found.error(at.place, f"agent {agent!r} has no brain in phase {origin.name!r} that could be loaded")

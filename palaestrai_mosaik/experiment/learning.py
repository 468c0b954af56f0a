"""Where an agent's brain starts from, and when it is kept: load, replay, snapshots."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.errors import did_you_mean

from .cascade import CascadedPhase
from .located import Findings, Located, show
from .model import ReplaySpec, SnapshotSpec
from .readers import boolean, choice, id_list, identifier, integer, items_of, lower
from .vocabulary import LOAD, MODES, REPLAY, SNAPSHOTS


def load_section(found: Findings, at: Located | None) -> dict[str, Any] | None:
    """Return ``load`` with its keys in one spelling; absent or null means none."""
    if at is None or at.value is None:
        return None
    parts = found.section(at, LOAD) or {}
    load: dict[str, Any] = {}
    for key, part in parts.items():
        if key == "phase":
            value: Any = integer(found, part, "load's phase (an index; a name goes to phase_name)", 0)
        else:
            value = identifier(found, part, f"load's {key}") if part.value is not None else None
        if value is not None:
            load[key] = value
    if "phase" in load and "phase_name" in load:
        found.error(at.place, "load takes 'phase' (an index) or 'phase_name', not both")
    return load


def replay_list(found: Findings, at: Located | None) -> tuple[ReplaySpec, ...]:
    """Return the stored trajectories listed at ``at``; absent or null means none."""
    if at is None or at.value is None:
        return ()
    if not isinstance(at.value, list):
        found.error(at.place, f"replay must be a list, found {show(at.value)}")
        return ()
    return tuple(_replay(found, item) for item in items_of(at))


def _replay(found: Findings, at: Located) -> ReplaySpec:
    parts = {key: part for key, part in (found.section(at, REPLAY) or {}).items() if part.value is not None}
    text = {
        key: identifier(found, parts[key], f"replay's {key}")
        for key in ("agent", "experiment_run", "instance", "phase_name")
        if key in parts
    }
    phase: int | str | None = text.pop("phase_name", None)
    if "phase" in parts:
        if "phase_name" in parts:
            found.error(at.place, "replay takes 'phase' (an index or a name) or 'phase_name', not both")
        elif isinstance(parts["phase"].value, str):
            phase = identifier(found, parts["phase"], "replay's phase")
        else:
            phase = integer(found, parts["phase"], "replay's phase (an index, or a name)", 0)
    mode = choice(found, lower(parts.get("mode")), "replay's mode", MODES, None)
    repeat = integer(found, parts.get("repeat"), "replay's repeat", 1)
    if "strict" in parts and not boolean(found, parts["strict"], "replay's strict"):
        found.warn(parts["strict"].place, "replay is always strict here: what cannot be replayed is an error")
    return ReplaySpec(
        **text,
        phase=phase,
        mode=mode,
        repeat=repeat or 1,
        sensors=_channels(found, parts.get("sensors"), "replay's sensors"),
        actuators=_channels(found, parts.get("actuators"), "replay's actuators"),
    )


def _channels(found: Findings, at: Located | None, what: str) -> tuple[str, ...] | None:
    """Return the ids at ``at``, those of the agent that is replayed; absent means those of this one."""
    if at is None:
        return None
    ids = id_list(found, at, what, None)
    if at.value == []:
        found.error(at.place, f"{what} must name at least one; leave the key out for those of this agent")
    return ids


def snapshot_section(found: Findings, at: Located | None) -> SnapshotSpec | None:
    """Return when the brain is dumped during a phase; absent, null, or nothing chosen: never."""
    if at is None or at.value is None:
        return None
    parts = found.section(at, SNAPSHOTS)
    if parts is None:
        return None
    if not at.value:
        found.error(at.place, "snapshots needs 'every' (a number of episodes), 'best' (true), or both")
    every = integer(found, parts.get("every"), "snapshots' every (a number of episodes)", 1)
    best = boolean(found, parts.get("best"), "snapshots' best")
    return SnapshotSpec(every, best) if every is not None or best else None


def check_sources(found: Findings, uid: str, raw: Iterable[CascadedPhase]) -> None:
    """Check that the phases and agents of this run that ``load`` and ``replay`` name exist."""
    phases = list(raw)
    names = [phase.name for phase in phases]
    agents = {name for phase in phases for name in phase.agents}
    for phase in phases:
        for entry in phase.agents.values():
            for at in _sources(entry.parts):
                parts = {LOAD.spellings.get(key, key): at.child(key) for key in at.value}
                run = parts.get("experiment_run")
                # what another run, or an earlier instance of this one, has is known to the store only
                if "instance" not in parts and (run is None or run.value in (None, uid)):
                    _check_source(found, parts, names, agents)


def warn_of_snapshots(found: Findings, uid: str, raw: Sequence[CascadedPhase]) -> None:
    """Warn of a ``load`` whose snapshot nobody in this run is told to take.

    Only a warning: a brain may take snapshots by itself.
    """
    names = [phase.name for phase in raw]
    for index, phase in enumerate(raw):
        for name, entry in phase.agents.items():
            load = load_section(found, entry.parts.get("load")) or {}
            snapshot = load.get("snapshot")
            source = load.get("phase", index - 1)
            if "phase_name" in load:
                source = names.index(load["phase_name"]) if load["phase_name"] in names else -1
            if snapshot is None or source < 0 or "base" in load or load.get("experiment_run", uid) != uid:
                continue
            agent = load.get("agent", name)
            taker = raw[source].agents.get(agent)
            taken = snapshot_section(found, taker.parts.get("snapshots")) if taker is not None else None
            best = snapshot == "best" and taken is not None and taken.best
            if not best and not (snapshot.startswith("episode-") and taken is not None and taken.every):
                found.warn(
                    entry.parts["load"].place,
                    f"no 'snapshots' of agent {agent!r} in phase {names[source]!r} makes {snapshot!r}",
                )


def _sources(parts: Mapping[str, Located]) -> Iterator[Located]:
    load = [parts["load"]] if "load" in parts else []
    yield from (at for at in (*load, *items_of(parts.get("replay"))) if isinstance(at.value, dict))


def _check_source(
    found: Findings, parts: Mapping[str, Located], names: list[str], agents: Collection[str]
) -> None:
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
    agent = parts.get("agent")
    if agent is not None and isinstance(agent.value, str) and agent.value not in agents:
        found.error(agent.place, f"there is no agent {agent.value!r}{did_you_mean(agent.value, agents)}")

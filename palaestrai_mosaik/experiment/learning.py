"""Where an agent's brain starts from, and when it is kept: load, replay, snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
        if part.value is None:
            continue
        if key == "phase":
            value: Any = _phase(found, part, "load's phase")
        else:
            value = identifier(found, part, f"load's {key}")
        if value is not None:
            load["phase_name" if key == "phase" and isinstance(value, str) else key] = value
    _not_both(found, at, parts, "load")
    return load


def _phase(found: Findings, at: Located, what: str) -> int | str | None:
    """Return the index or name of a phase at ``at``."""
    if isinstance(at.value, str):
        return identifier(found, at, what)
    return integer(found, at, f"{what} (an index, or a name)", 0)


def _not_both(found: Findings, at: Located, parts: Mapping[str, Located], what: str) -> None:
    if all(key in parts and parts[key].value is not None for key in ("phase", "phase_name")):
        found.error(at.place, f"{what} takes 'phase' (an index or a name) or 'phase_name', not both")


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
    _not_both(found, at, parts, "replay")
    if "phase" in parts:
        phase = _phase(found, parts["phase"], "replay's phase")
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

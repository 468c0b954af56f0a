"""Creates the store's records of environments and agents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.experiment import AgentSpec, EnvironmentSpec, PhaseSpec
from palaestrai_mosaik.experiment.model import BODY_NUMBER
from palaestrai_mosaik.simulation.body_placement import BodyGroup, Names, place_bodies
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.simulation.environment_handle import BatchHandle, EnvironmentHandle
from palaestrai_mosaik.store import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord
from palaestrai_mosaik.types.vectors import Layout

#: seconds per tick of a co-simulation: mosaik's default, which worlds built by users must have, too
TICK = 1.0


def phase_records(
    phase: PhaseSpec, handles: Sequence[EnvironmentHandle]
) -> tuple[list[EnvironmentRecord], list[AgentRecord]]:
    """Create the store's records of a phase's environments and agents.

    Args:
        phase: the phase; all its agents can be placed.
        handles: its environments, in order, set up.
    """
    environments = [
        environment_record(spec, handle) for spec, handle in zip(phase.environments, handles, strict=True)
    ]
    return environments, [agent_record(agent, place_bodies(agent, handles)[0]) for agent in phase.agents]


def environment_record(spec: EnvironmentSpec, handle: EnvironmentHandle) -> EnvironmentRecord:
    """Create the store's record of an environment."""
    # one incarnation's channels represent those of all incarnations
    each = f"{handle.uid}.{BODY_NUMBER}" if isinstance(handle, BatchHandle) else handle.uid
    topology = handle.baseline.topology
    return EnvironmentRecord(
        uid=handle.uid,
        name=spec.name,
        params=spec.params,
        sensors=_sensors(handle),
        actuators=_channels(handle.actuators),
        rewards=[ChannelRecord(f"{each}.{r.uid}", str(r.space), 1) for r in handle.rewards],
        world_model=_world_model(handle),
        start=handle.baseline.start,
        step_size=handle.step_size,
        incarnations=len(handle.names),
        topology=None if topology is None else topology.renamed(lambda uid: f"{each}.{uid}"),
        frames=spec.frames is not None,
        rewards_accumulate=bool(handle.domain.rewards_accumulate),
    )


def _world_model(handle: EnvironmentHandle) -> Any:
    """Return the environment's description of its world, with the length of a tick if it is a co-simulation."""
    model = handle.baseline.world_model
    if isinstance(handle.domain, CoSimulation) and isinstance(model, dict | None):
        return {"seconds_per_tick": TICK, **(model or {})}
    return model


def agent_record(spec: AgentSpec, groups: Sequence[BodyGroup]) -> AgentRecord:
    """Create the store's record of an agent and the ``groups`` of its bodies, in order.

    In the channels of identical bodies, ``{body}`` is a placeholder for their number.
    """
    return AgentRecord(
        name=spec.name,
        brain=spec.brain.name if spec.brain is not None else None,
        muscle=spec.muscle.name,
        objective=spec.objective.name if spec.objective is not None else None,
        bodies=[body_record(group) for group in groups],
    )


def body_record(group: BodyGroup) -> BodyRecord:
    """Create the store's record of a group of identical bodies."""
    spec, channels = group.spec, group.channels()
    return BodyRecord(
        group=group.index,
        name=spec.name,
        first=group.first,
        count=group.count,
        environment=group.environments[0] if len(group.environments) == 1 else None,
        muscle=spec.muscle.name,
        objective=spec.objective.name if spec.objective is not None else None,
        sensors=_channels(channels.sensors, group.common(channels.sensors.uids, spec.sensors)),
        actuators=_channels(channels.actuators, group.common(channels.actuators.uids, spec.actuators)),
        rewards=group.reward_names,
        proposed=any(handle.replays for handle in channels.handles),
        number=_number(group, channels),
        incarnations=_incarnations(group),
    )


def _number(group: BodyGroup, channels: Channels) -> int:
    """Return the number that replaces ``{body}`` in the first body's channels.

    If the channel names have no ``{body}``, return the incarnation of the body, if it is in exactly one.
    """
    seats = _seats(channels)
    varies = any(BODY_NUMBER in name for name in (*group.spec.sensors, *group.spec.actuators))
    return seats[0] if len(seats) == 1 and not varies else group.spec.first


def _incarnations(group: BodyGroup) -> tuple[int, ...] | None:
    """Return the incarnations of the bodies, or ``None`` if they follow from the bodies' numbers."""
    if group.batch is not None or len(group.environments) != 1:
        return None
    seats: dict[Names, tuple[int, ...]] = {}
    for names in group.ids:
        if names not in seats:
            seats[names] = _seats(Channels(group.handles, *names))
    # an incarnation may have several bodies
    return tuple(seat for names in group.ids for seat in seats[names]) or None


def _seats(channels: Channels) -> tuple[int, ...]:
    return tuple(handle.number for handle in channels.handles if handle.root is not handle)


def _sensors(handle: EnvironmentHandle) -> list[ChannelRecord]:
    # environments of palaestrAI and subclasses may declare sensors without the attribute
    units = [getattr(sensor, "unit", None) for sensor in handle.baseline.sensors]
    return [replace(record, unit=unit) for record, unit in zip(_channels(handle.sensors), units, strict=True)]


def _channels(layout: Layout, names: Sequence[str] | None = None) -> list[ChannelRecord]:
    uids = layout.uids if names is None else names
    return [ChannelRecord(u, str(s), s.size) for u, s in zip(uids, layout.spaces, strict=True)]

"""Describes environments and agents to the store."""

from __future__ import annotations

from collections.abc import Sequence

from palaestrai_mosaik.experiment import AgentSpec, EnvironmentSpec
from palaestrai_mosaik.experiment.model import BODY_NUMBER
from palaestrai_mosaik.simulation.batch_handle import BatchHandle
from palaestrai_mosaik.simulation.body_placement import BodyGroup, Names
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.simulation.environment_handle import EnvironmentHandle
from palaestrai_mosaik.store import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord
from palaestrai_mosaik.types.vectors import Layout


def environment_record(spec: EnvironmentSpec, handle: EnvironmentHandle) -> EnvironmentRecord:
    """Return what the store keeps about an environment."""
    # the channels of one incarnation stand for those of all
    each = f"{handle.uid}.{BODY_NUMBER}" if isinstance(handle, BatchHandle) else handle.uid
    topology = handle.baseline.topology
    return EnvironmentRecord(
        uid=handle.uid,
        name=spec.name,
        params=spec.params,
        sensors=_channels(handle.sensors),
        actuators=_channels(handle.actuators),
        rewards=[ChannelRecord(f"{each}.{r.uid}", str(r.space), 1) for r in handle.rewards],
        world_model=handle.baseline.world_model,
        start=handle.baseline.start,
        step_size=handle.step_size,
        incarnations=len(handle.names),
        topology=None if topology is None else topology.renamed(lambda uid: f"{each}.{uid}"),
        frames=spec.frames is not None,
    )


def agent_record(spec: AgentSpec, groups: Sequence[BodyGroup]) -> AgentRecord:
    """Return what the store keeps about an agent and the ``groups`` of its bodies, in order.

    In the channels of identical bodies, ``{body}`` stands for their number.
    """
    return AgentRecord(
        name=spec.name,
        brain=spec.brain.name if spec.brain is not None else None,
        muscle=spec.muscle.name,
        objective=spec.objective.name if spec.objective is not None else None,
        bodies=[body_record(group) for group in groups],
    )


def body_record(group: BodyGroup) -> BodyRecord:
    """Return what the store keeps about identical bodies of an agent."""
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
    """Return what stands for ``{body}`` in the channels of the first body.

    Where they have no place for it, it is the incarnation in which the body sits, if it sits in one.
    """
    seats = _seats(channels)
    varies = any(BODY_NUMBER in name for name in (*group.spec.sensors, *group.spec.actuators))
    return seats[0] if len(seats) == 1 and not varies else group.spec.first


def _incarnations(group: BodyGroup) -> tuple[int, ...] | None:
    """Return where the bodies sit, unless they sit one behind the other as their numbers say."""
    if group.batch is not None or len(group.environments) != 1:
        return None
    seats: dict[Names, tuple[int, ...]] = {}
    for names in group.ids:
        if names not in seats:
            seats[names] = _seats(Channels(group.handles, *names))
    # several bodies sit in one incarnation each
    return tuple(one for names in group.ids for one in seats[names]) or None


def _seats(channels: Channels) -> tuple[int, ...]:
    return tuple(handle.number for handle in channels.handles if handle.root is not handle)


def _channels(layout: Layout, names: Sequence[str] | None = None) -> list[ChannelRecord]:
    uids = layout.uids if names is None else names
    return [ChannelRecord(u, str(s), s.size) for u, s in zip(uids, layout.spaces, strict=True)]

"""Describes environments and agents to the store."""

from __future__ import annotations

from palaestrai_mosaik.experiment import AgentSpec, EnvironmentSpec
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.simulation.ports import EnvironmentPort
from palaestrai_mosaik.store import AgentRecord, ChannelRecord, EnvironmentRecord
from palaestrai_mosaik.types.vectors import Layout


def _channels(layout: Layout) -> list[ChannelRecord]:
    return [ChannelRecord(u, str(s), s.size) for u, s in zip(layout.uids, layout.spaces, strict=True)]


def environment_record(spec: EnvironmentSpec, port: EnvironmentPort) -> EnvironmentRecord:
    """Return what the store keeps about an environment."""
    return EnvironmentRecord(
        uid=port.uid,
        name=spec.name,
        params=spec.params,
        sensors=_channels(port.sensors),
        actuators=_channels(port.actuators),
        rewards=[ChannelRecord(f"{port.uid}.{r.uid}", str(r.space), 1) for r in port.rewards],
        world_model=port.baseline.world_model,
        start=port.baseline.start,
        step_size=port.step_size,
    )


def agent_record(spec: AgentSpec, channels: Channels) -> AgentRecord:
    """Return what the store keeps about an agent."""
    return AgentRecord(
        name=spec.name,
        brain=spec.brain.name if spec.brain is not None else None,
        muscle=spec.muscle.name,
        objective=spec.objective.name if spec.objective is not None else None,
        sensors=_channels(channels.sensors),
        actuators=_channels(channels.actuators),
        rewards=list(channels.rewards),
    )

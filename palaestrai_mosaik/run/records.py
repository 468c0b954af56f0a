"""Describes environments and agents to the store."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from palaestrai_mosaik.experiment import AgentSpec, EnvironmentSpec
from palaestrai_mosaik.experiment.model import BODY_NUMBER, BodySpec
from palaestrai_mosaik.simulation.batch_port import BatchPort
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.simulation.ports import EnvironmentPort
from palaestrai_mosaik.store import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord
from palaestrai_mosaik.types.vectors import Layout

if TYPE_CHECKING:
    from .learners import Group


def environment_record(spec: EnvironmentSpec, port: EnvironmentPort) -> EnvironmentRecord:
    """Return what the store keeps about an environment."""
    # the channels of one incarnation stand for those of all
    each = f"{port.uid}.{BODY_NUMBER}" if isinstance(port, BatchPort) else port.uid
    return EnvironmentRecord(
        uid=port.uid,
        name=spec.name,
        params=spec.params,
        sensors=_channels(port.sensors),
        actuators=_channels(port.actuators),
        rewards=[ChannelRecord(f"{each}.{r.uid}", str(r.space), 1) for r in port.rewards],
        world_model=port.baseline.world_model,
        start=port.baseline.start,
        step_size=port.step_size,
        incarnations=len(port.names),
    )


def agent_record(spec: AgentSpec, groups: Sequence[Group]) -> AgentRecord:
    """Return what the store keeps about an agent and the ``groups`` of its bodies, in order.

    Where a group has several bodies, ``{body}`` stands in its channels for their number.
    """
    return AgentRecord(
        name=spec.name,
        brain=spec.brain.name if spec.brain is not None else None,
        muscle=spec.muscle.name,
        objective=spec.objective.name if spec.objective is not None else None,
        bodies=body_records(spec, groups),
    )


def body_records(spec: AgentSpec, groups: Sequence[Group]) -> list[BodyRecord]:
    """Return what the store keeps about the ``groups`` of an agent's bodies, in order."""
    return [_body_record(spec, number, group) for number, group in enumerate(groups)]


def _body_record(agent: AgentSpec, number: int, group: Group) -> BodyRecord:
    entry, channels, first, count = group
    own = agent if entry is None else entry
    environments = list(dict.fromkeys(port.root.uid for port in channels.ports))
    names = _Names(entry, environments) if entry is not None and count > 1 else None
    return BodyRecord(
        group=number,
        name=entry.name if entry is not None else None,
        first=first,
        count=count,
        environment=environments[0] if len(environments) == 1 else None,
        muscle=own.muscle.name,
        objective=own.objective.name if own.objective is not None else None,
        sensors=_channels(channels.sensors, names, own.sensors),
        actuators=_channels(channels.actuators, names, own.actuators),
        rewards=[names.of(uid) for uid in channels.rewards] if names is not None else list(channels.rewards),
        proposed=any(port.replays for port in channels.ports),
        number=_number(entry, channels),
    )


def _number(entry: BodySpec | None, channels: Channels) -> int:
    """Return the number of the first body: that of the incarnation in which it sits, if it sits in one."""
    seats = [port.number for port in channels.ports if port.root is not port]
    if len(seats) == 1:
        return seats[0]
    return entry.first if entry is not None else 0


class _Names:
    """Names the channels of several alike bodies after those of the first one."""

    def __init__(self, entry: BodySpec, environments: Sequence[str]):
        self._number = str(entry.first)
        self._uids = sorted(environments, key=len, reverse=True)

    def of(self, uid: str, patterns: Sequence[str] = ()) -> str:
        """Return ``uid`` with ``{body}`` for the number, the first part behind the environment's uid that is it.

        Where ``patterns`` have a ``{body}`` themselves, only what these mean has a number.
        """
        numbered = [pattern for pattern in patterns if BODY_NUMBER in pattern]
        if numbered and not any(fnmatchcase(uid, p.replace(BODY_NUMBER, self._number)) for p in numbered):
            return uid
        start = next((len(own) + 1 for own in self._uids if uid.startswith(f"{own}.")), 0)
        parts = uid[start:].split(".")
        if self._number in parts:
            parts[parts.index(self._number)] = BODY_NUMBER
        return uid[:start] + ".".join(parts)


def _channels(
    layout: Layout, names: _Names | None = None, patterns: Sequence[str] = ()
) -> list[ChannelRecord]:
    uids = layout.uids if names is None else [names.of(uid, patterns) for uid in layout.uids]
    return [ChannelRecord(u, str(s), s.size) for u, s in zip(uids, layout.spaces, strict=True)]

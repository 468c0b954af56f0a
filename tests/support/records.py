"""Records of agents and environments, as a run describes them to the store."""

from __future__ import annotations

from typing import Any

from palaestrai_mosaik.store import AgentRecord, BodyRecord


def one_body(
    name: str,
    brain: str | None = None,
    muscle: str | None = None,
    objective: str | None = None,
    **channels: Any,
) -> AgentRecord:
    """Return an agent of one body; ``channels`` are the body's sensors, actuators and rewards."""
    body = BodyRecord(muscle=muscle, objective=objective, **channels)
    return AgentRecord(name, brain, muscle, objective, [body])

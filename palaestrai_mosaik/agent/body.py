"""What a brain knows of the bodies of its agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaestrai_mosaik.types import ActuatorInformation, SensorInformation


@dataclass(frozen=True, slots=True)
class BodyInformation:
    """One body of an agent; ``(agent, environment, number)`` is its place in the AEB space.

    ``number`` counts the agent's bodies in the document's order, from 0. Bodies with the same
    ``group`` are alike: they are of one entry of the document. ``environments`` has one uid,
    unless the agent has no ``bodies``: then it may have several. ``name`` is the label of its
    entry. ``muscles``: the uid of its muscle in each worker. ``sensors`` and ``actuators`` are
    what the muscle sees of them, called as those of the group's first body. ``replayed``: an
    environment that replays decides what is done there, so that rows hold others' actions.

    Source: the seed "AEB Design" of SLM Lab.
    """

    agent: str
    environments: tuple[str, ...]
    number: int
    group: int
    muscles: tuple[str, ...]
    sensors: Sequence[SensorInformation]
    actuators: Sequence[ActuatorInformation]
    name: str | None = None
    replayed: bool = False

    @property
    def sizes(self) -> tuple[int, int]:
        """How many numbers the muscle sees, and how many it sets."""
        return sum(s.space.size for s in self.sensors), sum(a.space.size for a in self.actuators)

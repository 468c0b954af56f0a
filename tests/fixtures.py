"""Classes that run documents of the tests name (``tests.fixtures:...``)."""

from __future__ import annotations

from dataclasses import replace

from palaestrai_mosaik.environment import EnvironmentState, EnvironmentStateTransformer


class CountingWorldStateTransformer(EnvironmentStateTransformer):
    """Replaces the world state by the number of states that were transformed."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, environment_state: EnvironmentState) -> EnvironmentState:
        self.count += 1
        return replace(environment_state, world_state={"count": self.count})

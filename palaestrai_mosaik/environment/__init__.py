"""Environments: the contract, and one file per kind of environment."""

from .cosimulation import CoSimulation
from .environment import (
    Environment,
    EnvironmentBaseline,
    EnvironmentState,
    EnvironmentStateTransformer,
    Reward,
)

__all__ = [
    "CoSimulation",
    "Environment",
    "EnvironmentBaseline",
    "EnvironmentState",
    "EnvironmentStateTransformer",
    "Reward",
]

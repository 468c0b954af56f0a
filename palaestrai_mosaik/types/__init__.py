"""Leaf types: spaces, readings, set-points, rewards, mode, flow control."""

from .control import Mode, SimulationFlowControl
from .information import ActuatorInformation, RewardInformation, SensorInformation
from .spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple

__all__ = [
    "ActuatorInformation",
    "Box",
    "Discrete",
    "Mode",
    "MultiBinary",
    "MultiDiscrete",
    "RewardInformation",
    "SensorInformation",
    "SimulationFlowControl",
    "Space",
    "Tuple",
]

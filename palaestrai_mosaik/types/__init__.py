"""Leaf types: spaces, readings, set-points, rewards, mode, flow control."""

from .flow_control import SimulationFlowControl
from .information import ActuatorInformation, RewardInformation, SensorInformation
from .mode import Mode
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

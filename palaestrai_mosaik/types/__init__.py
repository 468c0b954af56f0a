"""Leaf types: spaces, readings, set-points, rewards, mode, flow control, simulated time."""

from .flow_control import SimulationFlowControl
from .information import ActuatorInformation, RewardInformation, SensorInformation
from .mode import Mode
from .simtime import SimTime
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
    "SimTime",
    "SimulationFlowControl",
    "Space",
    "Tuple",
]

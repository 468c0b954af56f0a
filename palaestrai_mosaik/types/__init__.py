"""Leaf types: spaces, readings, set-points, rewards, mode, flow control, topologies."""

from .control import Mode, SimulationFlowControl
from .information import ActuatorInformation, RewardInformation, SensorInformation
from .spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from .topology import Device, Edge, Node, Topology

__all__ = [
    "ActuatorInformation",
    "Box",
    "Device",
    "Discrete",
    "Edge",
    "Mode",
    "MultiBinary",
    "MultiDiscrete",
    "Node",
    "RewardInformation",
    "SensorInformation",
    "SimulationFlowControl",
    "Space",
    "Topology",
    "Tuple",
]

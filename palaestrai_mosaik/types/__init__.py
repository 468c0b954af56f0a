"""Leaf types: spaces, readings, set-points, rewards, mode, flow control, topologies."""

from .control import Mode, SimulationFlowControl
from .information import ActuatorInformation, RewardInformation, SensorInformation
from .spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from .topology import Device, Edge, Node, Topology
from .vectors import ActuatorSetpoints, SensorReadings

__all__ = [
    "ActuatorInformation",
    "ActuatorSetpoints",
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
    "SensorReadings",
    "SimulationFlowControl",
    "Space",
    "Topology",
    "Tuple",
]

"""Agents: a brain that learns, muscles that act, an objective, and their memory."""

from .brain import BodyInformation, Brain, is_update
from .dumper import BrainDumper, FileBrainDumper, dump_arrays, load_arrays
from .filter import Filter, FilterChain
from .memory import Experience, Memory, MemoryShard
from .muscle import BatchMuscle, BatchObjective, BatchReadings, BatchRows, Muscle, Objective

__all__ = [
    "BatchMuscle",
    "BatchObjective",
    "BatchReadings",
    "BatchRows",
    "BodyInformation",
    "Brain",
    "BrainDumper",
    "Experience",
    "FileBrainDumper",
    "Filter",
    "FilterChain",
    "Memory",
    "MemoryShard",
    "Muscle",
    "Objective",
    "dump_arrays",
    "is_update",
    "load_arrays",
]

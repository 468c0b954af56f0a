"""Agents: a brain that learns, muscles that act, an objective, and their memory."""

from .brain import Brain
from .dumper import BrainDumper, FileBrainDumper
from .memory import Memory, MemoryShard
from .muscle import Muscle
from .objective import Objective

__all__ = ["Brain", "BrainDumper", "FileBrainDumper", "Memory", "MemoryShard", "Muscle", "Objective"]

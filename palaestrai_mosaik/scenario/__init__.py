"""Agents in a mosaik scenario of the user's own: a Python script that builds a ``mosaik.World`` and runs it.

:func:`attach_agents` adds agents to such a world with a few lines; no document is needed.
"""

from .agent import Agent
from .attach import Agents, attach_agents
from .environment import Readings

__all__ = ["Agent", "Agents", "Readings", "attach_agents"]

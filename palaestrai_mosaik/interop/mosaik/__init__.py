"""Agents for Python scripts that build and run a ``mosaik.World``.

:func:`attach_agents` adds agents to such a world with a few lines, without a run document.
"""

from .agent import Agent
from .attach import Agents, attach_agents
from .world import Readings

__all__ = ["Agent", "Agents", "Readings", "attach_agents"]

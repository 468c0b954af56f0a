"""Co-simulation of agents and environments on mosaik, from one YAML document.

The package of the distribution ``mosaik-agents``. Its commands look for that name here (``mosaik_agents.py``): another
distribution has a package of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .core.lazy import lazy_names

if TYPE_CHECKING:
    from .api import RecordedRun, run, view
    from .core import errors, seeding
    from .core.pages import Page
    from .interop.mosaik import Agent, Agents, attach_agents
    from .interop.palaestrai.mosaik_environment import MosaikEnvironment
    from .interop.rl import aec_env, make, make_vec, parallel_env
    from .simulation.scheduler import run_async_world, run_world
    from .store import Store

__all__ = [
    "Agent",
    "Agents",
    "MosaikEnvironment",
    "Page",
    "RecordedRun",
    "Store",
    "aec_env",
    "attach_agents",
    "errors",
    "make",
    "make_vec",
    "parallel_env",
    "run",
    "run_async_world",
    "run_world",
    "seeding",
    "view",
]

__version__ = "0.1.0"

#: public name -> its module, imported on first access
_HOMES = {
    "Agent": "interop.mosaik",
    "Agents": "interop.mosaik",
    "MosaikEnvironment": "interop.palaestrai.mosaik_environment",
    "Page": "core.pages",
    "RecordedRun": "api",
    "Store": "store",
    "aec_env": "interop.rl",
    "attach_agents": "interop.mosaik",
    "errors": "core.errors",
    "make": "interop.rl",
    "make_vec": "interop.rl",
    "parallel_env": "interop.rl",
    "run": "api",
    "run_async_world": "simulation.scheduler",
    "run_world": "simulation.scheduler",
    "seeding": "core.seeding",
    "view": "api",
}


__getattr__, __dir__ = lazy_names(__name__, _HOMES)

"""Co-simulation of agents and environments on mosaik, from one YAML document.

The package of the distribution ``mosaik-agents``. Its commands look for that name here (``mosaik_agents.py``): another
distribution has a package of the same name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from palaestrai_mosaik.palaestrai.mosaik_environment import MosaikEnvironment

    from .api import RecordedRun, run, view
    from .pages import Page
    from .rl import aec_env, make, make_vec, parallel_env
    from .scenario import attach_agents
    from .simulation.scheduler import run_async_world, run_world
    from .store import Store

__all__ = [
    "MosaikEnvironment",
    "Page",
    "RecordedRun",
    "Store",
    "aec_env",
    "attach_agents",
    "make",
    "make_vec",
    "parallel_env",
    "run",
    "run_async_world",
    "run_world",
    "view",
]

__version__ = "0.1.0"

#: the module of each public name, imported on first access
_HOMES = {
    "MosaikEnvironment": "palaestrai.mosaik_environment",
    "Page": "pages",
    "RecordedRun": "api",
    "Store": "store",
    "aec_env": "rl",
    "attach_agents": "scenario",
    "make": "rl",
    "make_vec": "rl",
    "parallel_env": "rl",
    "run": "api",
    "run_async_world": "simulation.scheduler",
    "run_world": "simulation.scheduler",
    "view": "api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})

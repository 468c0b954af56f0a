"""arsenAI's half: designs of experiments, their execution, their analysis, and searches for the best settings.

Each name is imported from its package on first access::

    from palaestrai_mosaik.arsenai import Design, Results, run_folder, sensitivity

    folder = Design.load("design.yml").generate()
    run_folder(folder)
    sensitivity(Results(folder))
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .analysis import (
        Results,
        compare_design,
        discover_design,
        discovery_figure,
        robustness,
        sensitivity,
    )
    from .design import Design, DesignFolder
    from .execution import Settings, run_folder
    from .search import history_figure, search_result, tune

#: the package of each public name
_PACKAGES = {
    "Design": "design",
    "DesignFolder": "design",
    "Results": "analysis",
    "Settings": "execution",
    "compare_design": "analysis",
    "discover_design": "analysis",
    "discovery_figure": "analysis",
    "history_figure": "search",
    "robustness": "analysis",
    "run_folder": "execution",
    "search_result": "search",
    "sensitivity": "analysis",
    "tune": "search",
}

__all__ = [
    "Design",
    "DesignFolder",
    "Results",
    "Settings",
    "compare_design",
    "discover_design",
    "discovery_figure",
    "history_figure",
    "robustness",
    "run_folder",
    "search_result",
    "sensitivity",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PACKAGES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PACKAGES})

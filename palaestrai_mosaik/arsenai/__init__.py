"""arsenAI's half: designs of experiments, their execution, their analysis, and searches for the best settings.

Each name is imported from its package on first access::

    from palaestrai_mosaik.arsenai import Design, Results, run_folder, sensitivity

    folder = Design.load("design.yml").generate()
    run_folder(folder)
    sensitivity(Results(folder))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaestrai_mosaik.core.lazy import lazy_names

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

#: public name -> its package, imported on first access
_HOMES = {
    "Design": "arsenai.design",
    "DesignFolder": "arsenai.design",
    "Results": "arsenai.analysis",
    "Settings": "arsenai.execution",
    "compare_design": "arsenai.analysis",
    "discover_design": "arsenai.analysis",
    "discovery_figure": "arsenai.analysis",
    "history_figure": "arsenai.search",
    "robustness": "arsenai.analysis",
    "run_folder": "arsenai.execution",
    "search_result": "arsenai.search",
    "sensitivity": "arsenai.analysis",
    "tune": "arsenai.search",
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


__getattr__, __dir__ = lazy_names(__name__, _HOMES)

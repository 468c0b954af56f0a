"""How the documentation becomes a site: ``make docs``; Sphinx's own names."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

import palaestrai_mosaik

project = "palaestrai_mosaik"
author = "The palaestrai_mosaik developers"
project_copyright = author
version = release = palaestrai_mosaik.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "schema_tables",
    "search_words",
]
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
# no copy button for output
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
# words after the language are instructions for the tests
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("npt.ArrayLike", "FloatVector", "ArrayLike")}
# packages that the docstrings do not need
autodoc_mock_imports = [
    *("gymnasium", "pettingzoo", "palaestrai", "tensorboardX"),
    *("pandapower", "simbench", "lightsim2grid", "numba"),
]
autodoc_default_options = {"members": True, "show-inheritance": True}

html_theme = "furo"
html_title = f"palaestrai_mosaik {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False

#: page -> what people search for when they need it (docs/_ext/search_words.py); ``make site`` checks that they find it
search_words = {
    "learners": ["PPO", "A2C", "SAC", "TD3", "DDPG", "DQN", "Stable-Baselines3", "learner"],
    "gradient-free": ["CMA-ES", "cross-entropy method", "evolution strategy"],
    "gymnasium": ["Gym", "gymnasium", "VecEnv"],
    "pettingzoo": ["PettingZoo", "multi-agent"],
    "sensitivity": ["Sobol", "Morris", "SALib", "Shapley"],
    "report": ["report.json", "parallel coordinates"],
    "paper": ["paper", "publication", "reproducibility"],
    "building": ["building", "heat pump", "thermostat", "photovoltaics"],
    "comparing": ["p value", "significance", "bootstrap", "how many seeds"],
    "tuning": ["Optuna", "hyperparameters", "hyperparameter optimization"],
    "cluster": ["Slurm", "SLURM", "Parsl", "HPC"],
    "live-scalars": ["TensorBoard", "Weights & Biases", "wandb"],
    "look-at-results": ["pandas", "plot", "CSV", "DuckDB", "export"],
    "workers": ["checkpoint", "resume", "parallel"],
    "grid": ["pandapower", "SimBench", "power flow"],
    "from-palaestrai": ["palaestrAI", "arsenAI", "migration"],
    "store": ["PostgreSQL", "SQLite", "Parquet"],
    "notebook": ["Jupyter"],
    "filters": ["normalise", "normalize", "VecNormalize"],
    "own-agent": ["muscle", "brain", "objective"],
    "installing": ["install", "pip", "conda", "Docker", "Windows"],
    "troubleshooting": ["error", "error message", "traceback"],
}
#: the page that lists messages
search_messages = "troubleshooting"

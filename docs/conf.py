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
]
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
# nobody copies what a command printed
copybutton_selector = "div:not(.highlight-text) > div.highlight > pre"
# words after the language say what the tests do with a block
suppress_warnings = ["misc.highlighting_failure"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("npt.ArrayLike", "FloatVector", "ArrayLike")}
# what is not needed for reading docstrings
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

"""Designs of experiments: from factors over a run document to the run documents themselves.

Begin with :class:`Design`: ``Design.load("design.yml").generate()``. This package executes nothing.
"""

from .design import Design
from .folder import DesignFolder, PlannedRun
from .load import from_mapping, load, loads
from .model import DesignSpec
from .vocabulary import design_schema

__all__ = [
    "Design",
    "DesignFolder",
    "DesignSpec",
    "PlannedRun",
    "design_schema",
    "from_mapping",
    "load",
    "loads",
]

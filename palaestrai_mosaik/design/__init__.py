"""Designs of experiments: from factors over a run document to the run documents themselves.

Executes nothing.
"""

from .load import from_mapping, load, loads
from .model import DesignSpec
from .schema import design_schema

__all__ = ["DesignSpec", "design_schema", "from_mapping", "load", "loads"]

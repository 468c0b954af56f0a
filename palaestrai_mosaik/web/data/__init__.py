"""The resources of the views, one module per view; importing the package registers all of them."""

from ..resources import get
from . import agent as agent
from . import columns as columns
from . import curves as curves
from . import design as design
from . import design_analysis as design_analysis
from . import episodes as episodes
from . import grid as grid
from . import record as record
from . import runs as runs
from . import search as search
from . import time as time

__all__ = ["get"]

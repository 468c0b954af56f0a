"""The resources of the views, one module for each view; importing the package registers all of them."""

from ..resources import get
from . import record as record
from . import run as run
from . import store as store
from . import time as time

__all__ = ["get"]

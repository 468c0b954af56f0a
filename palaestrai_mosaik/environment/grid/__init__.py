"""The power grid: profiles, inverters, storages and power flow, coupled through mosaik.

Needs the extra ``grid``: ``pip install palaestrai-mosaik[grid]``.
"""

from importlib.util import find_spec

if find_spec("pandapower") is None:
    raise ImportError("the power grid needs pandapower: pip install palaestrai-mosaik[grid]")

from .batch import BatchGridEnvironment
from .environment import GridEnvironment
from .network import load_grid
from .rewards import GridReward

__all__ = ["BatchGridEnvironment", "GridEnvironment", "GridReward", "load_grid"]

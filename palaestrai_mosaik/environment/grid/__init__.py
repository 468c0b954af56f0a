"""The power grid: profiles, inverters, storages and power flow, coupled through mosaik.

Needs the extra ``grid``.
"""

from importlib.util import find_spec

from palaestrai_mosaik.core.installation import install_extra

if find_spec("pandapower") is None:
    raise ImportError(f"the power grid needs pandapower: {install_extra('grid')}")

from .batch import BatchGridEnvironment
from .environment import GridEnvironment
from .network import load_grid
from .rewards import GridReward

__all__ = ["BatchGridEnvironment", "GridEnvironment", "GridReward", "load_grid"]

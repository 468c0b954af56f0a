"""Simulators of this package for any mosaik scenario, with or without agents.

=========================================== ========================= ==========================
``python``                                  over TCP                  public model
=========================================== ========================= ==========================
``palaestrai_mosaik.simulators:PowerFlow``  ``power-flow``            ``Grid``, with its elements
``palaestrai_mosaik.simulators:Profiles``   ``profiles``              ``Profiles``, with elements
``palaestrai_mosaik.simulators:Storage``    ``storage``               ``Battery``
``palaestrai_mosaik.simulators:PV``         ``pv``                    ``PV``
=========================================== ========================= ==========================

Over TCP: ``{"cmd": "%(python)s -m palaestrai_mosaik.simulators power-flow %(addr)s"}``. All are
*time-based*: they step themselves, every ``step_size`` ticks; one tick is ``time_resolution`` seconds.
Where several entities feed one input, their values are added. Power is in MW and Mvar, voltage in
p.u. Power flow and profiles need the extra ``grid``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .core.errors import did_you_mean
from .core.lazy import lazy_names

if TYPE_CHECKING:
    from .interop.mosaik.simulators.power_flow import PowerFlow
    from .interop.mosaik.simulators.profiles import Profiles
    from .interop.mosaik.simulators.pv import PV
    from .interop.mosaik.simulators.storage import Storage

__all__ = ["PV", "PowerFlow", "Profiles", "Storage"]

#: the module of each simulator, imported on first access: power flow and profiles need pandapower, the others do not
_HOMES = {
    "PV": "interop.mosaik.simulators.pv",
    "PowerFlow": "interop.mosaik.simulators.power_flow",
    "Profiles": "interop.mosaik.simulators.profiles",
    "Storage": "interop.mosaik.simulators.storage",
}
#: the simulators by their names on the command line
_SIMULATORS = {"power-flow": "PowerFlow", "profiles": "Profiles", "storage": "Storage", "pv": "PV"}


__getattr__, __dir__ = lazy_names(__name__, _HOMES)


def main() -> None:
    """Start the simulator that the first argument names; mosaik's own arguments follow."""
    import mosaik_api_v3

    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in _SIMULATORS:
        names = ", ".join(_SIMULATORS)
        sys.exit(
            f"usage: python -m palaestrai_mosaik.simulators NAME HOST:PORT\n"
            f"NAME is one of {names}, not {name!r}{did_you_mean(name, _SIMULATORS)}"
        )
    # mosaik reads the rest
    del sys.argv[1]
    mosaik_api_v3.start_simulation(__getattr__(_SIMULATORS[name])())


if __name__ == "__main__":
    main()

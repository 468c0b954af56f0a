"""A simulator as a process of its own: ``python -m palaestrai_mosaik.simulators power-flow HOST:PORT``."""

from __future__ import annotations

import sys
from collections.abc import Callable

import mosaik_api_v3

from palaestrai_mosaik.errors import did_you_mean


def _power_flow() -> mosaik_api_v3.Simulator:
    from .power_flow import PowerFlow

    return PowerFlow()


def _profiles() -> mosaik_api_v3.Simulator:
    from .profiles import Profiles

    return Profiles()


def _storage() -> mosaik_api_v3.Simulator:
    from .storage import Storage

    return Storage()


def _pv() -> mosaik_api_v3.Simulator:
    from .pv import PV

    return PV()


SIMULATORS: dict[str, Callable[[], mosaik_api_v3.Simulator]] = {
    "power-flow": _power_flow,
    "profiles": _profiles,
    "storage": _storage,
    "pv": _pv,
}


def main() -> None:
    """Start the simulator that the first argument names; mosaik's own arguments follow."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in SIMULATORS:
        names = ", ".join(SIMULATORS)
        sys.exit(f"usage: python -m palaestrai_mosaik.simulators NAME HOST:PORT\n"
                 f"NAME is one of {names}, not {name!r}{did_you_mean(name, SIMULATORS)}")  # fmt: skip
    # mosaik reads the rest
    del sys.argv[1]
    mosaik_api_v3.start_simulation(SIMULATORS[name]())


if __name__ == "__main__":
    main()

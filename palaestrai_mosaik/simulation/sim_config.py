"""How mosaik is told to start the simulators of a co-simulation."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection
from typing import Any

from palaestrai_mosaik.environment.cosimulation import SimulatorSpec
from palaestrai_mosaik.errors import SimulatorError

from .mosaik_internals import HANDED_OVER

#: seconds that a process may take to start, however short the time-out of its answers is
LEAST_START = 10.0


def starter(sid: str, spec: SimulatorSpec) -> dict[str, Any]:
    """Return the entry of mosaik's ``sim_config`` for the simulator ``sid``."""
    if spec.factory is not None:
        return dict(HANDED_OVER)
    if spec.python is not None:
        return {"python": spec.python}
    if spec.connect is not None:
        return {"connect": spec.connect}
    if spec.cmd is None:
        raise SimulatorError(f"simulator {sid!r}: none of python, cmd, connect and factory is given")
    # said out loud, because the default of 3.6 is the wrong way round
    starter: dict[str, Any] = {"cmd": spec.cmd, "posix": os.name != "nt"}
    if spec.cwd is not None:
        starter["cwd"] = spec.cwd
    if spec.env:
        starter["env"] = dict(spec.env)
    return starter


def new_sid(environment: str, simulator: str, taken: Collection[str]) -> str:
    """Return mosaik's id for a simulator of an environment (``""``: its only one) that is not ``taken``."""
    # mosaik separates simulator and entity by the first dot
    parts = [environment, *([simulator] if simulator else [])]
    name = "-".join(re.sub(r"[.\s]", "_", part) for part in parts)
    numbered = (f"{name}-{i}" for i in itertools.count(2))
    return next(sid for sid in itertools.chain([name], numbered) if sid not in taken)

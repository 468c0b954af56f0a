"""Batteries, one by one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import SimulationError
from palaestrai_mosaik.environment.devices import Storages

from .base import Inputs, TimeBased, total


class Storage(TimeBased):
    """Batteries that charge and discharge by set-point, within their limits.

    The model is ``Battery(capacity_mwh=1.0, p_rated_mw=1.0, efficiency=0.95, initial_soc=0.5, min_soc=0.0)``.
    Input: ``p_set_mw`` (positive charges; it holds until the next one). Outputs: ``p_mw``, the power
    from now until the next step, and ``soc``, the state of charge now (0 to 1). Charging with P for h hours
    adds ``P * h * efficiency`` MWh, discharging takes ``P * h / efficiency``.

    Args:
        capacity_mwh: energy of a full battery in MWh, above 0.
        p_rated_mw: largest power in MW, both ways, above 0.
        efficiency: of charging and of discharging, above 0 and at most 1.
        initial_soc: state of charge at the start, from ``min_soc`` to 1.
        min_soc: state of charge below which it does not discharge, from 0 to ``initial_soc``.
    """

    MODELS = {
        "Battery": (
            True,
            ("capacity_mwh", "p_rated_mw", "efficiency", "initial_soc", "min_soc"),
            ("p_set_mw", "p_mw", "soc"),
        )
    }

    def __init__(self) -> None:
        super().__init__()
        self._batteries: dict[str, Storages] = {}
        self._wanted: dict[str, float] = {}

    def create(  # type: ignore[override]  # mosaik calls it with the model's params
        self,
        num: int,
        model: str,
        capacity_mwh: float = 1.0,
        p_rated_mw: float = 1.0,
        efficiency: float = 0.95,
        initial_soc: float = 0.5,
        min_soc: float = 0.0,
    ) -> Any:
        params = {
            "capacity_mwh": capacity_mwh,
            "p_rated_mw": p_rated_mw,
            "efficiency": efficiency,
            "initial_soc": initial_soc,
            "min_soc": min_soc,
        }
        for name, value in params.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise SimulationError(f"{name} of a battery must be a finite number, not {value!r}")
        if capacity_mwh <= 0 or p_rated_mw <= 0 or not 0 < efficiency <= 1:
            raise SimulationError(
                "a battery has capacity_mwh and p_rated_mw above 0, and efficiency above 0 and at most 1; found "
                f"{capacity_mwh!r}, {p_rated_mw!r} and {efficiency!r}"
            )
        if not 0 <= min_soc <= initial_soc <= 1:
            raise SimulationError(
                f"0 <= min_soc <= initial_soc <= 1 does not hold: {min_soc!r} and {initial_soc!r}"
            )
        made = []
        for _ in range(num):
            eid = f"Battery_{len(self._batteries)}"
            self._batteries[eid] = Storages(
                np.array([p_rated_mw]),
                np.array([capacity_mwh]),
                np.array([min_soc * capacity_mwh]),
                np.array([efficiency]),
                initial_soc,
                self.seconds / 3600,
            )
            self._wanted[eid] = 0.0
            self.outputs[eid] = {"p_mw": 0.0, "soc": float(initial_soc), "p_set_mw": 0.0}
            made.append({"eid": eid, "type": model})
        return made

    def compute(self, time: int, inputs: Inputs) -> None:
        for eid, battery in self._batteries.items():
            wanted = total(inputs.get(eid, {}), "p_set_mw")
            if wanted is not None:
                self._wanted[eid] = wanted
            setpoint = np.array([self._wanted[eid]])
            soc = float(battery.soc[0])
            power, battery.energy = battery.exchange(battery.energy, setpoint, setpoint, np.array([True]))
            self.outputs[eid] = {"p_mw": float(power[0]), "soc": soc, "p_set_mw": self._wanted[eid]}

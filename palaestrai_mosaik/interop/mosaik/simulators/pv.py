"""Photovoltaic plants with inverters."""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import SimulationError
from palaestrai_mosaik.environment.devices import Inverters

from .base import Inputs, TimeBased, total

#: irradiance (W/m2) and cell temperature (degrees Celsius) at which a plant has its rated power
_STANDARD_G, _STANDARD_T = 1000.0, 25.0
#: change of the power per kelvin, usual for crystalline silicon
_GAMMA = -0.004
#: cell temperature (degrees Celsius) at 800 W/m2 and 20 degrees
_NOCT, _NOCT_G, _NOCT_AIR = 45.0, 800.0, 20.0


def dc_power(p_rated_mw: float, g_w_m2: float, t_air_degc: float, noct: float = _NOCT) -> float:
    """Return the power (MW) of a plant at an irradiance on its plane and an air temperature.

    ``P = P_rated * G / 1000 * (1 + gamma * (T_cell - 25))``, as PVWatts has it (A. P. Dobos, *PVWatts Version
    5 Manual*, NREL, 2014), with ``T_cell = T_air + G / 800 * (noct - 20)``. It is never negative.

    Args:
        p_rated_mw: rated power in MW, at 1000 W/m2 and a cell temperature of 25 degrees Celsius.
        g_w_m2: irradiance on the plane in W/m2.
        t_air_degc: air temperature in degrees Celsius.
        noct: nominal operating cell temperature in degrees Celsius, at 800 W/m2 and an air temperature of 20.
    """
    cell = t_air_degc + g_w_m2 / _NOCT_G * (noct - _NOCT_AIR)
    return max(p_rated_mw * g_w_m2 / _STANDARD_G * (1.0 + _GAMMA * (cell - _STANDARD_T)), 0.0)


class PV(TimeBased):
    """Plants that feed in the available solar power, and reactive power by set-point.

    The model is ``PV(p_rated_mw=0.01, s_rated_mva=None, noct_degc=45)``. Inputs: ``g_w_m2`` (irradiance on
    the plane, W/m2), ``t_air_degc`` (25 without it), or, instead of both, ``p_available_mw`` (a profile);
    ``q_set_mvar`` (0 without it). Outputs: ``p_mw`` and ``q_mvar`` fed in; P is clipped to the rating S, and Q to
    ``sqrt(S**2 - P**2)``.

    Args:
        p_rated_mw: rated power in MW, above 0 (see :func:`dc_power`).
        s_rated_mva: rating of the inverter in MVA, above 0; ``None``: ``p_rated_mw``.
        noct_degc: nominal operating cell temperature in degrees Celsius.
    """

    MODELS = {
        "PV": (
            True,
            ("p_rated_mw", "s_rated_mva", "noct_degc"),
            ("g_w_m2", "t_air_degc", "p_available_mw", "q_set_mvar", "p_mw", "q_mvar"),
        )
    }

    def __init__(self) -> None:
        super().__init__()
        #: rated power (MW), nominal operating cell temperature (degrees Celsius) and inverter of each plant
        self._plants: dict[str, tuple[float, float, Inverters]] = {}

    def create(  # type: ignore[override]  # mosaik calls it with the model's params
        self,
        num: int,
        model: str,
        p_rated_mw: float = 0.01,
        s_rated_mva: float | None = None,
        noct_degc: float = _NOCT,
    ) -> Any:
        rating = p_rated_mw if s_rated_mva is None else s_rated_mva
        if p_rated_mw <= 0 or rating <= 0:
            raise SimulationError(
                f"a plant has p_rated_mw and s_rated_mva above 0; found {p_rated_mw!r} and {rating!r}"
            )
        made = []
        for _ in range(num):
            eid = f"PV_{len(self._plants)}"
            self._plants[eid] = p_rated_mw, noct_degc, Inverters(np.array([rating]), np.zeros(1))
            self.outputs[eid] = dict.fromkeys(self.MODELS["PV"][2], 0.0)
            made.append({"eid": eid, "type": model})
        return made

    def compute(self, time: int, inputs: Inputs) -> None:
        for eid, (rated, noct, inverter) in self._plants.items():
            sent = inputs.get(eid, {})
            received = {name: total(sent, name) for name in sent}
            available, irradiance = received.get("p_available_mw"), received.get("g_w_m2")
            if available is not None and irradiance is not None:
                raise SimulationError(
                    f"{eid} gets p_available_mw and g_w_m2: one of them says what the sun gives"
                )
            air = received.get("t_air_degc")
            air = _STANDARD_T if air is None else air
            if available is None:
                available = dc_power(rated, irradiance or 0.0, air, noct)
            power = np.minimum([available], inverter.rating)
            wanted = received.get("q_set_mvar") or 0.0
            reactive = inverter.reactive_power(power, np.array([wanted]), np.array([True]))
            self.outputs[eid] = {
                "g_w_m2": irradiance or 0.0,
                "t_air_degc": air,
                "p_available_mw": available,
                "q_set_mvar": wanted,
                "p_mw": float(power[0]),
                "q_mvar": float(reactive[0]),
            }

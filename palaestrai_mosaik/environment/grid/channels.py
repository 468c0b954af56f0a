"""Sensors and actuators of a grid, by uid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import Problem, did_you_mean
from palaestrai_mosaik.environment.cosimulation import ActuatorPort, SensorPort
from palaestrai_mosaik.types import ActuatorInformation, Box, Discrete, SensorInformation, Space

#: uid of the sensor that every grid has: 1 if the power flow of this step has a solution
CONVERGED = "grid.converged"

#: group -> (entity, its vector attribute); the uid is ``<element>-<index>.<quantity>``
SENSOR_GROUPS: dict[str, tuple[str, str]] = {
    "bus.vm_pu": ("PowerGrid", "vm_pu"),
    "line.loading": ("PowerGrid", "line_loading"),
    "trafo.loading": ("PowerGrid", "trafo_loading"),
    "ext_grid.p_mw": ("PowerGrid", "ext_grid_p"),
    "ext_grid.q_mvar": ("PowerGrid", "ext_grid_q"),
    "load.p_mw": ("PowerGrid", "load_p_mw"),
    "sgen.vm_pu": ("PowerGrid", "vm_pu"),
    "sgen.p_mw": ("PowerGrid", "sgen_p_mw"),
    "sgen.q_mvar": ("PowerGrid", "sgen_q_mvar"),
    "storage.p_mw": ("PowerGrid", "storage_p_mw"),
    "storage.soc": ("Storages", "soc"),
}

ACTUATOR_GROUPS: dict[str, tuple[str, str]] = {
    "sgen.q_mvar": ("Inverters", "q_set"),
    "storage.p_mw": ("Storages", "p_set"),
    "trafo.tap_pos": ("PowerGrid", "tap_pos"),
    "load.scaling": ("PowerGrid", "load_scaling"),
    "line.in_service": ("PowerGrid", "line_in_service"),
}


def chosen_groups(
    wish: str | Sequence[str], groups: Mapping[str, Any], path: str, problems: list[Problem]
) -> list[str]:
    """Return the groups that ``wish`` selects, in the order of ``groups``.

    ``wish`` is ``"all"`` or a list of groups (``sgen.q_mvar``) and elements (``sgen``,
    for all its groups). Unknown names are added to ``problems``.
    """
    if wish == "all":
        return list(groups)
    elements = {group.split(".")[0] for group in groups}
    allowed = [*sorted(elements), *groups]
    names = [wish] if isinstance(wish, str) else list(wish)
    for i, name in enumerate(names):
        if name not in allowed:
            text = (
                f"unknown group {name!r}{did_you_mean(name, allowed)}; allowed are all, {', '.join(allowed)}"
            )
            problems.append(Problem(text, f"{path}.{i}"))
    return [g for g in groups if g in names or g.split(".")[0] in names]


@dataclass(slots=True)
class Channels:
    """The sensors and actuators of a net, in a fixed order: group by group, by table row.

    ``readings``: initial values, by (entity, attribute).
    ``limits``: bounds of set-points given by the device's rating (``q_set``, ``p_set``), in Mvar
    and MW, each of shape ``(n,)``.
    """

    net: Any
    readings: Mapping[tuple[str, str], npt.NDArray[np.float64]]
    limits: Mapping[str, npt.NDArray[np.float64]]
    sensors: list[SensorPort] = field(default_factory=list)
    actuators: list[ActuatorPort] = field(default_factory=list)

    def add_sensors(self, groups: Sequence[str]) -> None:
        """Add the sensors of ``groups``, and :data:`CONVERGED`."""
        self.sensors.append(
            SensorPort(SensorInformation(1, Discrete(2), CONVERGED), "PowerGrid", "converged")
        )
        for group in groups:
            entity, attribute = SENSOR_GROUPS[group]
            space = _sensor_space(group)
            for row, uid in self._uids(group):
                index = row
                if group == "sgen.vm_pu":
                    # an inverter measures the voltage of its bus
                    index = self.net.bus.index.get_loc(self.net.sgen.bus.iloc[row])
                value = float(self.readings[entity, attribute][index])
                self.sensors.append(
                    SensorPort(SensorInformation(value, space, uid), entity, attribute, index)
                )

    def add_actuators(self, groups: Sequence[str]) -> None:
        """Add the actuators of ``groups``; transformers without a tap changer have none."""
        for group in groups:
            entity, attribute = ACTUATOR_GROUPS[group]
            size = len(self.net[group.split(".")[0]])
            for row, uid in self._uids(group):
                space, value = self._actuator(group, row)
                if space is not None:
                    information = ActuatorInformation(value, space, uid)
                    self.actuators.append(ActuatorPort(information, entity, attribute, row, size))

    def _uids(self, group: str) -> Iterator[tuple[int, str]]:
        element, quantity = group.split(".")
        for row, index in enumerate(self.net[element].index):
            yield row, f"{element}-{index}.{quantity}"

    def _actuator(self, group: str, row: int) -> tuple[Space | None, float | int | None]:
        """Return the space of an actuator, ``None`` if it has none, and its initial set-point."""
        if group == "load.scaling":
            return Box(0.0, 2.0, shape=()), 1.0
        if group == "line.in_service":
            return Discrete(2), int(self.net.line.in_service.iloc[row])
        if group == "trafo.tap_pos":
            return self._tap(row)
        limit = float(self.limits[ACTUATOR_GROUPS[group][1]][row])
        return Box(-limit, limit, shape=()), None

    def _tap(self, row: int) -> tuple[Space | None, int | None]:
        trafo = self.net.trafo.iloc[row]
        low, high, now = trafo.tap_min, trafo.tap_max, trafo.tap_pos
        if not np.isfinite([low, high, now]).all() or low >= high or not _moves_voltage(trafo):
            return None, None
        return Discrete(int(high - low) + 1, start=int(low)), int(now)


def _moves_voltage(trafo: Any) -> bool:
    """Return whether pandapower uses the tap position of a transformer."""
    kind, by_table = trafo.tap_changer_type, trafo.get("tap_dependency_table")
    if not isinstance(kind, str) or trafo.tap_side not in ("hv", "lv"):
        return False
    return kind in ("Ratio", "Symmetrical", "Ideal") or by_table is True or by_table is np.True_


def _sensor_space(group: str) -> Space:
    if group.endswith(".vm_pu"):
        return Box(0.0, 2.0, shape=())
    if group == "storage.soc":
        return Box(0.0, 1.0, shape=())
    if group.endswith(".loading"):
        return Box(0.0, np.inf, shape=())
    return Box(-np.inf, np.inf, shape=())

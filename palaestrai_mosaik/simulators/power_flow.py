"""The power flow of a grid; its buses, lines, loads and so on are entities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandapower as pp

from palaestrai_mosaik.environment.grid.components import PowerGrid
from palaestrai_mosaik.environment.grid.network import load_grid
from palaestrai_mosaik.environment.grid.power_flow_factory import make_power_flow
from palaestrai_mosaik.errors import PowerFlowError, SimulationError

from .base import Inputs, TimeBased, total

#: model of the children -> table of the net, whose element they are
TABLES = {
    "Bus": "bus",
    "Line": "line",
    "Trafo": "trafo",
    "ExtGrid": "ext_grid",
    "Load": "load",
    "Sgen": "sgen",
    "Storage": "storage",
}
#: table -> (attribute, its place among the powers that are solved for)
_POWERS = {
    "load": (("p_mw", 0), ("q_mvar", 1)),
    "sgen": (("p_mw", 2), ("q_mvar", 3)),
    "storage": (("p_mw", 4),),
}
#: table -> (attribute that is set, as it is called by the power grid)
_SETTINGS = {
    "line": ("in_service", "line_in_service"),
    "trafo": ("tap_pos", "tap_pos"),
    "load": ("scaling", "load_scaling"),
}


class PowerFlow(TimeBased):
    """One grid, and its elements as children of it.

    The model is ``Grid(grid="cigre_mv", on_divergence="fail")``. A child is called after its table and index,
    ``bus-3``, and knows its name in the net as ``extra_info["name"]``:

        =========== =============================== ==========================================================
        model       inputs                          outputs
        =========== =============================== ==========================================================
        ``Grid``                                    ``converged`` (1 or 0), ``losses_mw``
        ``Bus``                                     ``vm_pu``
        ``Line``    ``in_service`` (0 or 1)         ``loading_percent``, ``in_service``
        ``Trafo``   ``tap_pos``                     ``loading_percent``, ``tap_pos``
        ``ExtGrid``                                 ``p_mw``, ``q_mvar`` (fed into the grid)
        ``Load``    ``p_mw``, ``q_mvar``,           ``p_mw``, ``q_mvar`` (as scaled), ``scaling``
                    ``scaling``
        ``Sgen``    ``p_mw``, ``q_mvar``            ``p_mw``, ``q_mvar`` (fed in)
        ``Storage`` ``p_mw``                        ``p_mw`` (positive charges)
        =========== =============================== ==========================================================

    A bus without voltage has ``vm_pu`` 0. What nothing was ever sent to keeps the power of the net's table.
    The extra method ``get_net`` returns the net as pandapower's JSON text.

    Args:
        grid: a name of :func:`~palaestrai_mosaik.environment.grid.load_grid` or a pandapower ``.json`` file.
        on_divergence: where there is no solution, ``"fail"`` raises
            :class:`~palaestrai_mosaik.errors.PowerFlowError`; ``"keep"`` keeps the last results, with
            ``converged`` 0.
    """

    MODELS = {
        "Grid": (True, ("grid", "on_divergence"), ("converged", "losses_mw")),
        "Bus": (False, (), ("vm_pu",)),
        "Line": (False, (), ("loading_percent", "in_service")),
        "Trafo": (False, (), ("loading_percent", "tap_pos")),
        "ExtGrid": (False, (), ("p_mw", "q_mvar")),
        "Load": (False, (), ("p_mw", "q_mvar", "scaling")),
        "Sgen": (False, (), ("p_mw", "q_mvar")),
        "Storage": (False, (), ("p_mw",)),
    }
    METHODS = ("get_net",)

    def __init__(self) -> None:
        super().__init__()
        self._grid: PowerGrid | None = None
        #: entity -> table of the net and place in it
        self._places: dict[str, tuple[str, int]] = {}

    def create(  # type: ignore[override]  # mosaik calls it with the model's params
        self, num: int, model: str, grid: str = "cigre_mv", on_divergence: str = "fail"
    ) -> Any:
        if num != 1 or self._grid is not None:
            raise SimulationError("one simulator solves one grid: start another one for the next")
        if on_divergence not in ("fail", "keep"):
            raise SimulationError(f"on_divergence is fail or keep, not {on_divergence!r}")
        net = load_grid(grid).net
        flow = make_power_flow(net)
        # results before the first step: those of the powers in the net itself
        made = PowerGrid(flow, flow.solve_own(), "fail" if on_divergence == "fail" else "terminate")
        self._grid = made
        self._powers = [
            (table[column] * table["scaling"]).to_numpy(dtype=float)
            for table, column in (
                (net.load, "p_mw"),
                (net.load, "q_mvar"),
                (net.sgen, "p_mw"),
                (net.sgen, "q_mvar"),
                (net.storage, "p_mw"),
            )
        ]
        children = []
        for kind, table in TABLES.items():
            for place, index in enumerate(net[table].index):
                eid = f"{table}-{index}"
                self._places[eid] = table, place
                children.append({"eid": eid, "type": kind, "extra_info": _info(net, table, index)})
                if table in (*_POWERS, "ext_grid"):
                    children[-1]["rel"] = [f"bus-{net[table].at[index, 'bus']}"]
        self._publish(made, self._powers[0], self._powers[1])
        return [{"eid": "Grid", "type": model, "children": children}]

    def get_net(self) -> str:
        """Return the net as pandapower's JSON text (``pandapower.from_json_string``)."""
        if self._grid is None:
            raise SimulationError("there is no grid yet: create it first")
        text: str = pp.to_json(self._grid.power_flow.net)
        return text

    def compute(self, time: int, inputs: Inputs) -> None:
        grid = self._grid
        if grid is None:
            return
        settings: dict[str, Any] = {}
        for eid, attributes in inputs.items():
            table, place = self._places[eid]
            for name, which in _POWERS.get(table, ()):
                value = total(attributes, name)
                if value is not None:
                    self._powers[which][place] = value
            self._set(settings, table, place, attributes)
        grid.accept({name: {"mosaik": vector} for name, vector in settings.items()})
        try:
            load_p, load_q = grid.step(*(vector.copy() for vector in self._powers))
        except PowerFlowError as error:
            raise PowerFlowError(f"at time {time}: {error}") from error
        self._publish(grid, load_p, load_q)

    def _set(
        self,
        settings: dict[str, Any],
        table: str,
        place: int,
        attributes: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Put what is set of an element into the vector of ``settings`` that it belongs to."""
        if table not in _SETTINGS or self._grid is None:
            return
        name, known_as = _SETTINGS[table]
        value = total(attributes, name)
        now = getattr(self._grid, known_as).values
        if value is not None and value != now[place]:
            settings.setdefault(known_as, np.full(len(now), np.nan))[place] = value

    def _publish(self, grid: PowerGrid, load_p: Any, load_q: Any) -> None:
        result, powers = grid.result, self._powers
        columns: dict[str, dict[str, Any]] = {
            "bus": {"vm_pu": result.vm_pu},
            "line": {"loading_percent": result.line_loading, "in_service": grid.line_in_service.values},
            "trafo": {"loading_percent": result.trafo_loading, "tap_pos": grid.tap_pos.values},
            "ext_grid": {"p_mw": result.ext_grid_p, "q_mvar": result.ext_grid_q},
            "load": {"p_mw": load_p, "q_mvar": load_q, "scaling": grid.load_scaling.values},
            "sgen": {"p_mw": powers[2], "q_mvar": powers[3]},
            "storage": {"p_mw": powers[4]},
        }
        outputs: dict[str, dict[str, Any]] = {
            eid: {name: float(values[place]) for name, values in columns[table].items()}
            for eid, (table, place) in self._places.items()
        }
        outputs["Grid"] = {"converged": grid.converged, "losses_mw": float(result.losses_mw)}
        self.outputs = outputs


def _info(net: Any, table: str, index: Any) -> dict[str, Any]:
    name = net[table].at[index, "name"] if "name" in net[table] else None
    return {"name": name if isinstance(name, str) else None, "index": int(index)}

"""The power flow of a grid; its buses, lines, loads and so on are entities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandapower as pp

from palaestrai_mosaik.core.errors import PowerFlowError, SimulationError
from palaestrai_mosaik.environment.grid.network import load_grid
from palaestrai_mosaik.environment.grid.power_flow import PowerGrid
from palaestrai_mosaik.environment.grid.power_flow_factory import make_power_flow

from .base import Inputs, TimeBased, total

#: model of the children -> table of the net with their element
TABLES = {
    "Bus": "bus",
    "Line": "line",
    "Trafo": "trafo",
    "ExtGrid": "ext_grid",
    "Load": "load",
    "Sgen": "sgen",
    "Storage": "storage",
    "Gen": "gen",
}
#: table and attribute of each vector of powers, in the order of the solver
_POWERS = (
    ("load", "p_mw"),
    ("load", "q_mvar"),
    ("sgen", "p_mw"),
    ("sgen", "q_mvar"),
    ("storage", "p_mw"),
    ("gen", "p_mw"),
)
#: tables with elements at one bus
_AT_BUS = ("load", "sgen", "storage", "gen", "ext_grid")
#: table -> attribute that can be set, and its name in the power grid
_SETTINGS = {
    "line": ("in_service", "line_in_service"),
    "trafo": ("tap_pos", "tap_pos"),
    "load": ("scaling", "load_scaling"),
}


class PowerFlow(TimeBased):
    """One grid, and its elements as children of it.

    The model is ``Grid(grid="cigre_mv", on_divergence="fail")``. A child is named by its table and index,
    ``bus-3``, and has its name in the net as ``extra_info["name"]``:

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
        ``Gen``     ``p_mw``                        ``p_mw`` (fed in)
        =========== =============================== ==========================================================

    A bus without voltage has ``vm_pu`` 0, and its elements, like those out of service, have power 0. An element
    without inputs keeps the power of the net's table.
    The extra method ``get_net`` returns the net as pandapower's JSON text.

    Args:
        grid: a name of :func:`~palaestrai_mosaik.environment.grid.load_grid` or a pandapower ``.json`` file.
        on_divergence: without a solution, ``"fail"`` raises
            :class:`~palaestrai_mosaik.core.errors.PowerFlowError`; ``"keep"`` keeps the last results, with
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
        "Gen": (False, (), ("p_mw",)),
    }
    METHODS = ("get_net",)

    def __init__(self) -> None:
        super().__init__()
        self._grid: PowerGrid | None = None
        #: entity -> table of the net and row in it
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
        power_grid = PowerGrid(flow, flow.solve_own(), "fail" if on_divergence == "fail" else "terminate")
        self._grid = power_grid
        self._powers = {
            (table, column): (net[table][column] * net[table]["scaling"]).to_numpy(dtype=float)
            for table, column in _POWERS
        }
        children = []
        for kind, table in TABLES.items():
            for row, index in enumerate(net[table].index):
                eid = f"{table}-{index}"
                self._places[eid] = table, row
                children.append({"eid": eid, "type": kind, "extra_info": _info(net, table, index)})
                if table in _AT_BUS:
                    children[-1]["rel"] = [f"bus-{net[table].at[index, 'bus']}"]
        self._publish(power_grid)
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
            table, row = self._places[eid]
            for name in attributes:
                value = total(attributes, name)
                if value is not None and (table, name) in self._powers:
                    self._powers[table, name][row] = value
            if table in _SETTINGS:
                name, setting = _SETTINGS[table]
                value, now = total(attributes, name), getattr(grid, setting).values
                if value is not None and value != now[row]:
                    settings.setdefault(setting, np.full(len(now), np.nan))[row] = value
        grid.accept({name: {"mosaik": vector} for name, vector in settings.items()})
        try:
            grid.step(*(vector.copy() for vector in self._powers.values()))
        except PowerFlowError as error:
            raise PowerFlowError(f"at time {time}: {error}") from error
        self._publish(grid)

    def _publish(self, grid: PowerGrid) -> None:
        result = grid.result
        columns: dict[str, dict[str, Any]] = {
            "bus": {"vm_pu": result.vm_pu},
            "line": {"loading_percent": result.line_loading, "in_service": grid.line_in_service.values},
            "trafo": {"loading_percent": result.trafo_loading, "tap_pos": grid.tap_pos.values},
            "ext_grid": {"p_mw": result.ext_grid_p, "q_mvar": result.ext_grid_q},
            "load": {
                "p_mw": result.load_p,
                "q_mvar": result.load_q,
                "scaling": grid.load_scaling.values,
            },
            "sgen": {"p_mw": result.sgen_p, "q_mvar": result.sgen_q},
            "storage": {"p_mw": result.storage_p},
            "gen": {"p_mw": result.gen_p},
        }
        outputs: dict[str, dict[str, Any]] = {
            eid: {name: float(values[row]) for name, values in columns[table].items()}
            for eid, (table, row) in self._places.items()
        }
        outputs["Grid"] = {"converged": grid.converged, "losses_mw": float(result.losses_mw)}
        self.outputs = outputs


def _info(net: Any, table: str, index: Any) -> dict[str, Any]:
    name = net[table].at[index, "name"] if "name" in net[table] else None
    return {"name": name if isinstance(name, str) else None, "index": int(index)}

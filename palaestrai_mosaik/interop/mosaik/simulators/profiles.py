"""Profiles of a grid's loads, generators and storages without control, over a year."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError, SimulationError
from palaestrai_mosaik.environment.grid.episode_starts import start_rows
from palaestrai_mosaik.environment.grid.network import load_grid
from palaestrai_mosaik.environment.grid.profiles import QUANTITIES
from palaestrai_mosaik.environment.grid.profiles import Profiles as Tables

from .base import Inputs, TimeBased

#: quantity of a row of the profiles -> table of the net, attribute
_ATTRIBUTES = {
    "load_p": ("load", "p_mw"),
    "load_q": ("load", "q_mvar"),
    "sgen_p": ("sgen", "p_mw"),
    "storage_p": ("storage", "p_mw"),
    "gen_p": ("gen", "p_mw"),
}
_MODELS = {"load": "Load", "sgen": "Sgen", "storage": "Storage", "gen": "Gen"}


class Profiles(TimeBased):
    """The profiles of a grid, for example of SimBench.

    The model is ``Profiles(grid="cigre_mv", start=0)``. Its children ``load-3`` (``p_mw``, ``q_mvar``),
    ``sgen-3``, ``storage-3`` and ``gen-3`` (``p_mw``) have the names of the elements of :class:`.power_flow.PowerFlow`
    that they feed. Between two rows, the earlier one is in force. The extra method
    ``get_date`` returns the date (ISO text) at a time.

    Args:
        grid: a name of :func:`~palaestrai_mosaik.environment.grid.load_grid`.
        start: the date of tick 0 (ISO text) or a row of the profiles.
    """

    MODELS = {
        "Profiles": (True, ("grid", "start"), ()),
        "Load": (False, (), ("p_mw", "q_mvar")),
        "Sgen": (False, (), ("p_mw",)),
        "Storage": (False, (), ("p_mw",)),
        "Gen": (False, (), ("p_mw",)),
    }
    METHODS = ("get_date",)

    def __init__(self) -> None:
        super().__init__()
        self._tables: Tables | None = None
        self._names: dict[str, list[str]] = {}
        self._start = 0

    def create(  # type: ignore[override]  # mosaik calls it with the model's params
        self, num: int, model: str, grid: str = "cigre_mv", start: str | int | date = 0
    ) -> Any:
        if num != 1 or self._tables is not None:
            raise SimulationError(
                "one simulator has the profiles of one grid: start another one for the next"
            )
        grid_data = load_grid(grid)
        try:
            (self._start,) = start_rows(start, grid_data.profiles)
        except DocumentError as error:
            raise SimulationError(f"start: {error}") from error
        self._tables = grid_data.profiles
        children = []
        for table, kind in _MODELS.items():
            self._names[table] = [f"{table}-{index}" for index in grid_data.net[table].index]
            children += [{"eid": eid, "type": kind} for eid in self._names[table]]
        self._publish(0)
        return [{"eid": "Profiles", "type": model, "children": children}]

    def get_date(self, time: int) -> str:
        """Return the date (ISO text, standard time) of the row in force at ``time`` (ticks)."""
        if self._tables is None:
            raise SimulationError("there are no profiles yet: create them first")
        row: datetime = self._tables.date_of(self._row(time))
        return row.isoformat()

    def compute(self, time: int, inputs: Inputs) -> None:
        if self._tables is not None:
            self._publish(time)

    def _row(self, time: int) -> int:
        assert self._tables is not None
        return self._start + int(time * self.time_resolution // self._tables.resolution)

    def _publish(self, time: int) -> None:
        assert self._tables is not None
        row = self._row(time)
        try:
            powers = self._tables.at(row)
        except IndexError as error:
            raise SimulationError(f"at time {time}: {error}") from error
        outputs: dict[str, dict[str, Any]] = {"Profiles": {}}
        for quantity, values in zip(QUANTITIES, powers, strict=True):
            table, attribute = _ATTRIBUTES[quantity]
            for eid, value in zip(self._names[table], values.tolist(), strict=True):
                outputs.setdefault(eid, {})[attribute] = value
        self.outputs = outputs

"""Compare readings of a grid with pandapower's own: nets with random outages, and the value of every sensor.

Expected values are made with pandapower and SimBench alone: the powers by ``simbench.get_absolute_values``, the
set-points written into the net's tables, ``pandapower.runpp``, and its tables ``res_*``. Inverters and storages follow
the formulas of docs/grid.md, in plain loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandapower as pp
import pandas as pd
import pytest

import palaestrai_mosaik
from palaestrai_mosaik.environment.batch import BatchStepper
from palaestrai_mosaik.environment.grid import BatchGridEnvironment
from palaestrai_mosaik.environment.grid import environment as grid_environment
from palaestrai_mosaik.environment.grid.power_flow_factory import PandapowerPowerFlow

#: quantity -> table of results, its column; and the absolute floor of a relative difference, in the sensor's unit
READINGS = {
    "bus.vm_pu": ("res_bus", "vm_pu", 0.1),
    "line.loading": ("res_line", "loading_percent", 1.0),
    "trafo.loading": ("res_trafo", "loading_percent", 1.0),
    "ext_grid.p_mw": ("res_ext_grid", "p_mw", 0.1),
    "ext_grid.q_mvar": ("res_ext_grid", "q_mvar", 0.1),
    "load.p_mw": ("res_load", "p_mw", 0.1),
    "sgen.p_mw": ("res_sgen", "p_mw", 0.1),
    "sgen.q_mvar": ("res_sgen", "q_mvar", 0.1),
    "storage.p_mw": ("res_storage", "p_mw", 0.1),
}
HOURS = 0.25
Setpoints = Mapping[str, float]


def fail_some(net: Any, rng: np.random.Generator, share: float = 0.08) -> None:
    """Take elements of all kinds out of service, and turn switches, in place."""
    for table in ("load", "sgen", "storage", "gen", "shunt", "ward", "motor", "trafo3w", "impedance"):
        if table in net and len(net[table]):
            net[table]["in_service"] &= rng.random(len(net[table])) > share
    for table, most in (("line", 3), ("trafo", 1), ("bus", 2)):
        keep = (
            set(net.ext_grid.bus) | set(net.gen.bus[net.gen.slack.astype(bool)]) if table == "bus" else set()
        )
        out = rng.permutation(net[table].index)[
            : rng.integers(0, min(most, max(len(net[table]) // 8, 0)) + 1)
        ]
        net[table].loc[[i for i in out if i not in keep], "in_service"] = False
    if len(net.switch):
        turned = rng.permutation(net.switch.index)[: rng.integers(0, 4)]
        net.switch.loc[turned, "closed"] = ~net.switch.loc[turned, "closed"].astype(bool)


def with_rows(net: Any, rows: list[int]) -> Any:
    """Return a copy of ``net`` with these rows of its profiles."""
    tables = net.pop("profiles", None)
    small = deepcopy(net)
    if tables is not None:
        net["profiles"] = tables
        small["profiles"] = {
            name: table.iloc[rows].reset_index(drop=True) if len(table) else table.reindex(range(len(rows)))
            for name, table in tables.items()
        }
    return small


class Oracle:
    """What pandapower says of the states of one net. ``row`` k is the k-th of its profiles."""

    def __init__(self, net: Any, tolerances: tuple[float, ...] = (1e-10, 1e-8), **options: Any):
        self.net = deepcopy(net)
        # in small grids, what 1e-8 MVA leaves open is more than a millionth of the powers; in large ones, rounding is
        self.tolerances = tolerances
        self.options = options
        self.absolute: dict[Any, pd.DataFrame] = {}
        if "profiles" in self.net:
            import simbench

            self._give_all_a_profile()
            self.absolute = simbench.get_absolute_values(self.net, profiles_instead_of_study_cases=True)

    def episode(self, first: int, initial_soc: float = 0.5) -> Episode:
        return Episode(self, first, initial_soc)

    def _give_all_a_profile(self) -> None:
        """Give elements without a profile, which SimBench does not know, one of ones."""
        for table, kind, suffixes in (
            ("load", "load", ("_pload", "_qload")),
            ("sgen", "powerplants", ("",)),
            ("gen", "powerplants", ("",)),
            ("storage", "storage", ("",)),
        ):
            if "profile" in self.net[table]:
                self.net[table]["profile"] = self.net[table]["profile"].astype(object).fillna("constant")
            for suffix in suffixes:
                self.net.profiles[kind][f"constant{suffix}"] = 1.0

    def solve(self, net: Any) -> bool:
        """Solve ``net``; return whether there is a solution."""
        for tolerance in self.tolerances:
            try:
                pp.runpp(net, tolerance_mva=tolerance, **self.options)
            except pp.LoadflowNotConverged:
                continue
            except UserWarning:  # no external grid is left
                return False
            return True
        return False

    def power(self, table: str, column: str, row: int) -> pd.Series:
        """Return the powers of a table's elements in a row of the profiles (MW, Mvar), scaled."""
        frame = self.net[table]
        own = self.absolute[table, column].loc[row] if (table, column) in self.absolute else frame[column]
        return own * frame["scaling"]


@dataclass
class Episode:
    """The states of an episode, one after the other."""

    oracle: Oracle
    row: int
    initial_soc: float
    energy: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, row in self.oracle.net.storage.iterrows():
            self.energy[index] = max(self.initial_soc * _capacity(row), _number(row, "min_e_mwh", 0.0))

    def next(self, setpoints: Setpoints) -> dict[str, float] | None:
        """Return the readings by uid of the next row, None if pandapower finds no solution."""
        net = deepcopy(self.oracle.net)
        for table, column in (
            ("load", "p_mw"),
            ("load", "q_mvar"),
            ("sgen", "p_mw"),
            ("gen", "p_mw"),
            ("storage", "p_mw"),
        ):
            net[table][column] = self.oracle.power(table, column, self.row)
        net.sgen["q_mvar"] = net.sgen.q_mvar * net.sgen.scaling
        net.storage["q_mvar"] = net.storage.q_mvar * net.storage.scaling
        net.load["scaling"] = net.sgen["scaling"] = net.storage["scaling"] = net.gen["scaling"] = 1.0
        for uid, value in setpoints.items():
            element, quantity = uid.split(".")
            table, index = element.rsplit("-", 1)
            _set(net, table, int(index), quantity, value, self)
        self.row += 1
        soc = {f"storage-{i}.soc": self.energy[i] / _capacity(row) for i, row in net.storage.iterrows()}
        if not self.oracle.solve(net):
            return None
        readings = {"grid.converged": 1.0, **soc}
        for group, (table, column, _) in READINGS.items():
            element, quantity = group.split(".")
            if len(net[element]):
                values = net[table][column].reindex(net[element].index).replace(np.inf, 0.0).fillna(0.0)
                readings |= {f"{element}-{i}.{quantity}": value for i, value in values.items()}
        for i, bus in net.sgen.bus.items():
            readings[f"sgen-{i}.vm_pu"] = readings[f"bus-{bus}.vm_pu"]
        for i, row in net.storage.iterrows():
            if f"storage-{i}.p_mw" in setpoints:
                taken = net.res_storage.p_mw[i]
                taken = 0.0 if math.isnan(taken) else taken
                efficiency = _efficiency(row)
                self.energy[i] += taken * HOURS * (efficiency if taken > 0 else 1.0 / efficiency)
        return readings


def _set(net: Any, table: str, index: int, quantity: str, value: float, episode: Episode) -> None:
    row = net[table].loc[index]
    if quantity == "scaling":
        net.load.loc[index, "scaling"] = value
    elif quantity == "in_service":
        net[table].loc[index, quantity] = value > 0.5
    elif quantity == "tap_pos":
        net[table].loc[index, quantity] = value
    elif (table, quantity) == ("sgen", "q_mvar"):
        own = episode.oracle.net.sgen.loc[index]
        rating = _number(own, "sn_mva", 0.0)
        rating = rating if rating > 0 else abs(own.p_mw * own.scaling)
        limit = math.sqrt(max(rating**2 - row.p_mw**2, 0.0))
        net.sgen.loc[index, "q_mvar"] = min(max(value, -limit), limit)
    elif (table, quantity) == ("storage", "p_mw"):
        own = episode.oracle.net.storage.loc[index]
        energy, efficiency = episode.energy[index], _efficiency(own)
        rating = _number(own, "sn_mva", 0.0)
        if not rating > 0:
            rating = max(abs(_number(own, name, 0.0)) for name in ("p_mw", "min_p_mw", "max_p_mw"))
        most = min(rating, (_capacity(own) - energy) / (HOURS * efficiency))
        least = -min(rating, max(energy - _number(own, "min_e_mwh", 0.0), 0.0) * efficiency / HOURS)
        net.storage.loc[index, "p_mw"] = min(max(value, least), most)
    else:
        raise AssertionError(f"the oracle cannot set {table}.{quantity}")


def _number(row: Any, name: str, default: float) -> float:
    value = row.get(name)
    return default if value is None or not math.isfinite(value) else float(value)


def _capacity(row: Any) -> float:
    capacity = _number(row, "max_e_mwh", 0.0)
    return capacity if capacity > 0 else 1e9


def _efficiency(row: Any) -> float:
    efficiency = _number(row, "efficiency_percent", 0.95)
    return efficiency / 100.0 if efficiency > 1.0 else efficiency


def random_setpoints(actuators: Mapping[str, Any], net: Any, rng: np.random.Generator) -> dict[str, float]:
    """Return set-points by uid: ``actuators`` are spaces by uid. Most lines keep their state."""
    lines = [uid for uid in actuators if uid.endswith(".in_service")]
    turned = set(rng.permutation(lines)[: rng.integers(0, 3)]) if lines else set()
    chosen: dict[str, float] = {}
    for uid, space in actuators.items():
        index = uid.split(".")[0].rsplit("-", 1)[1]
        if uid.endswith(".in_service"):
            now = bool(net.line.in_service[int(index)])
            chosen[uid] = float(now != (uid in turned))
        elif uid.endswith(".tap_pos"):
            low, high = int(net.trafo.tap_min[int(index)]), int(net.trafo.tap_max[int(index)])
            moved = int(net.trafo.tap_pos[int(index)]) + int(rng.integers(-1, 2))
            chosen[uid] = float(min(max(moved, low), high))
        elif uid.endswith(".scaling"):
            chosen[uid] = float(rng.uniform(0.4, 1.1))
        else:
            chosen[uid] = float(rng.uniform(space.low, space.high)) * 0.5
    return chosen


@dataclass
class Comparison:
    """The rows that were compared, and the largest relative difference."""

    states: int = 0
    unsolved: int = 0
    rows: int = 0
    worst: float = 0.0
    where: str = ""

    def add(self, found: Mapping[str, float], expected: Mapping[str, float] | None) -> None:
        """Compare one state; raise AssertionError where only one side has a solution."""
        solved = found["grid.converged"] > 0.5
        assert solved == (expected is not None), (
            f"pandapower {'has a' if expected is not None else 'has no'} solution; here: {solved}"
        )
        self.states += 1
        if expected is None:
            self.unsolved += 1
            return
        assert set(found) == set(expected), sorted(set(found) ^ set(expected))[:5]
        for uid, value in found.items():
            table = uid.split("-")[0]
            floor = READINGS.get(f"{table}.{uid.split('.')[-1]}", ("", "", 0.1))[2]
            difference = abs(value - expected[uid]) / max(abs(expected[uid]), floor)
            self.rows += 1
            if not difference <= self.worst:
                self.worst, self.where = difference, f"{uid}: {value!r}, pandapower has {expected[uid]!r}"


@contextmanager
def solved_by_pandapower() -> Iterator[None]:
    """Have :class:`GridEnvironment` solve every state with pandapower."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            grid_environment, "make_power_flow", lambda net, limits=False: PandapowerPowerFlow(net, limits)
        )
        yield


def compare_alone(
    path: Path, net: Any, rng: np.random.Generator, states: int, comparison: Comparison, **options: Any
) -> None:
    """Compare one episode of :class:`GridEnvironment`, as a user of ``make`` sees it. ``options``: of the oracle."""
    document = {
        "uid": "readings",
        "seed": 1,
        "schedule": [
            {
                "only": {
                    "environments": [
                        {
                            "environment": {
                                "uid": "g",
                                "name": "grid",
                                "params": {"grid": str(path), "steps": states},
                            }
                        }
                    ],
                    "agents": [{"name": "a", "muscle": "idle", "sensors": ["g.*"], "actuators": ["g.*"]}],
                    "phase_config": {"mode": "test", "episodes": 1},
                }
            }
        ],
    }
    environment = palaestrai_mosaik.make(document, flatten=False)
    spaces = {uid.removeprefix("g."): space for uid, space in environment.action_space.spaces.items()}
    episode = Oracle(net, run_control=bool(net.controller.in_service.any()), **options).episode(0)
    try:
        readings, _ = environment.reset(seed=1)
        expected = episode.next({})
        comparison.add(_named(readings), expected)
        for _ in range(states - 1):
            setpoints = random_setpoints(spaces, net, rng)
            action = {
                f"g.{uid}": int(value) if uid.endswith(("tap_pos", "in_service")) else np.array(value)
                for uid, value in setpoints.items()
            }
            readings, _, terminated, _, _ = environment.step(action)
            comparison.add(_named(readings), episode.next(setpoints))
            if terminated:
                break
    finally:
        environment.close()


def _named(readings: Mapping[str, Any]) -> dict[str, float]:
    return {uid.removeprefix("g."): float(value) for uid, value in readings.items()}


def compare_batch(path: Path, net: Any, rng: np.random.Generator, batch: int, comparison: Comparison) -> None:
    """Compare the first two states of ``batch`` copies, each from a row of its own."""
    rows = len(next(iter(net.profiles.values()))) if "profiles" in net else batch + 1
    environment = BatchGridEnvironment(
        str(path), batch=batch, start=[k % (rows - 1) for k in range(batch)], steps=2
    )
    environment.uid = "g"
    baseline = environment.setup()
    uids = [sensor.uid for sensor in baseline.sensors]
    spaces = {actuator.uid: actuator.space for actuator in baseline.actuators}
    stepper = BatchStepper(environment)
    oracle = Oracle(net)
    episodes = [oracle.episode(k % (rows - 1)) for k in range(batch)]
    state = stepper.reset()
    for k, episode in enumerate(episodes):
        comparison.add(dict(zip(uids, state.readings[k].tolist(), strict=True)), episode.next({}))
    chosen = [random_setpoints(spaces, net, rng) for _ in range(batch)]
    state = stepper.step(np.array([list(setpoints.values()) for setpoints in chosen]))
    for k, episode in enumerate(episodes):
        comparison.add(dict(zip(uids, state.readings[k].tolist(), strict=True)), episode.next(chosen[k]))


def compare(way: str, net: Any, seed: int, folder: Path, states: int = 3) -> Comparison:
    """Compare random states of ``net`` with random outages.

    Args:
        way: ``fast`` or ``pandapower`` (one episode of ``states``), or ``batch`` (two states of ``states`` copies).
        net: a net, with profiles as SimBench stores them, or none; it is not changed.
        seed: of outages, rows of the profiles, and set-points.
        folder: where the net's file is written.
    """
    rng = np.random.default_rng(seed)
    tables = net.get("profiles")
    length = max(map(len, tables.values())) if tables else states + 2
    whole = with_rows(net, sorted(rng.choice(length, states + 2, replace=False).tolist()))
    for _ in range(10):
        small = deepcopy(whole)
        fail_some(small, rng)
        if Oracle(small).solve(deepcopy(small)):
            break
    path, comparison = folder / "net.json", Comparison()
    pp.to_json(small, str(path))
    if way == "batch":
        compare_batch(path, small, rng, states, comparison)
    elif way == "pandapower":
        with solved_by_pandapower():
            compare_alone(path, small, rng, states, comparison, tolerances=(1e-8,))
    else:
        compare_alone(path, small, rng, states, comparison)
    return comparison


def simbench_net(code: str) -> Any:
    """Return a SimBench net as SimBench and pandapower 2 mean it: a tap step without a kind is a ratio."""
    import simbench

    net = simbench.get_simbench_net(code)
    for trafos in (net.trafo, net.trafo3w):
        kinds = trafos["tap_changer_type"].astype(object)
        trafos["tap_changer_type"] = kinds.mask(
            kinds.isna() & (trafos.tap_step_percent.fillna(0.0) != 0.0), "Ratio"
        )
    return net

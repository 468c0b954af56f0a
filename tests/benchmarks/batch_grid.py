"""Many copies of a grid at once: time of one step of one of them, in microseconds of CPU time.

    OMP_NUM_THREADS=1 python tests/benchmarks/batch_grid.py [--batches 1 8 64 512] [--repeat 5] [GRID ...]

All inverters integrate the voltage error; every copy is on a day of its own. Columns, each
the median over ``--repeat`` rounds in turn, the less the better:

* ``solver``: the batch solver in a bare loop: write all powers, solve to 1e-8 MVA, read all
  voltages, loadings and exchanges, on the injections of the controlled grids;
* ``pgm``: power-grid-model's batch on the same (iterative current method, one thread), where
  it is installed: ``pip install power-grid-model``;
* ``stepper``: the environment in a bare loop: profiles, inverters, solver, readings, rewards;
* ``run``: a document with ``bodies``, through the whole package: environment, mosaik, muscle,
  objective, rewards; ``stored``: the same, with every step of agent and environment stored;
* ``alone``: copies of the unbatched environment, one document with one agent each, one after the
  other (measured once).

``run`` of 1 is what one copy costs in a batch of 1. ``times`` is by how much ``run`` falls from
1 to that batch; ``share`` is solver / run. Time that a run takes before its first step is not
counted: it is the difference between runs of many and of few steps.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from time import process_time
from typing import Any

import numpy as np

from palaestrai_mosaik.agent.library.voltage_control import IntegratingVoltageController
from palaestrai_mosaik.environment.batch import BatchStepper
from palaestrai_mosaik.environment.grid import BatchGridEnvironment
from palaestrai_mosaik.environment.grid.batch_power_flow import BatchPowerFlow
from palaestrai_mosaik.environment.grid.fast_power_flow import FastPowerFlow
from palaestrai_mosaik.environment.grid.network import load_grid
from palaestrai_mosaik.experiment import RunDocument, from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

GRIDS = ("cigre_mv", "simbench:1-MV-rural--2-sw", "simbench:1-MV-semiurb--1-sw")
DAYS = [{"from": "2016-01-01", "to": "2016-12-20"}]
LIBRARY = "palaestrai_mosaik.agent.library"


def params(grid: str, batch: int, steps: int) -> dict[str, Any]:
    """The parameters of the batched environment; with ``batch=0`` those of the unbatched one."""
    common = {
        "grid": grid,
        "steps": steps,
        "sensors": ["bus.vm_pu", "sgen.vm_pu"],
        "actuators": ["sgen.q_mvar"],
    }
    if not batch:
        return common | {"start": "2016-06-01"}
    return common | {"batch": batch, "start": DAYS, "rewards": {"terms": ["defender"]}}


def document(grid: str, batch: int, steps: int, episodes: int = 1) -> RunDocument:
    """The run document that is measured; ``batch=0``: one agent in the unbatched environment.

    ``steps``: states of an episode; ``episodes``: of every copy.
    """
    body = "{body}." if batch else ""
    channels = {"sensors": [f"grid.{body}sgen-*.vm_pu"], "actuators": [f"grid.{body}sgen-*.q_mvar"]}
    kind = "BatchGridEnvironment" if batch else "GridEnvironment"
    environment: dict[str, Any] = {
        "environment": {
            "uid": "grid",
            "name": f"palaestrai_mosaik.environment.grid:{kind}",
            "params": params(grid, batch, steps),
        }
    }
    if not batch:
        environment["reward"] = {
            "name": "palaestrai_mosaik.environment.grid:GridReward",
            "params": {"terms": ["defender"]},
        }
    agent: dict[str, Any] = {
        "name": "controller",
        "muscle": {"name": f"{LIBRARY}.voltage_control:IntegratingVoltageController", "params": {}},
        "objective": {
            "name": f"{LIBRARY}.aggregate:AggregateRewardsObjective",
            "params": {"rewards": "defender"},
        },
    }
    agent |= {"bodies": [{"environment": "grid", "count": batch, **channels}]} if batch else channels
    condition = "palaestrai_mosaik.simulation.conditions:{}"
    ends = {
        "name": condition.format("EnvironmentTerminationCondition"),
        "params": {"when": "all", "episodes": episodes},
    }
    return from_mapping(
        {
            "uid": "batch_grid",
            "seed": 1,
            "version": "3.5",
            "schedule": [
                {
                    "only": {
                        "environments": [environment],
                        "agents": [agent],
                        "simulation": {"name": "palaestrai_mosaik.simulation:Vanilla", "conditions": [ends]},
                        "phase_config": {"mode": "test", "workers": 1, "episodes": 1},
                    }
                }
            ],
            "run_config": {
                "condition": {
                    "name": condition.format("VanillaRunGovernorTerminationCondition"),
                    "params": {},
                }
            },
        }
    )


def cpu(run: Callable[[], Any]) -> float:
    started = process_time()
    run()
    return process_time() - started


def run_time(grid: str, batch: int, steps: int, stored: bool = False) -> float:
    """CPU microseconds of one step of one copy in a run."""

    def once(count: int) -> float:
        content = document(grid, batch, count)
        if not stored:
            return cpu(lambda: execute(content))
        with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
            return cpu(lambda: execute(content, store=store))

    few = max(steps // 10, 2)
    return (once(steps) - once(few)) / ((steps - few) * max(batch, 1)) * 1e6


class Loop:
    """The controlled grids in a plain loop, and what it gave to the solver."""

    def __init__(self, grid: str, batch: int, steps: int):
        self.environment = BatchGridEnvironment(**params(grid, batch, steps))
        baseline = self.environment.setup()
        self.stepper = BatchStepper(self.environment)
        self.batch, self.steps = batch, steps
        names = [sensor.uid for sensor in baseline.sensors]
        voltages = [i for i, name in enumerate(names) if name.startswith("sgen")]
        ratings = np.array([actuator.space.flat_high[0] for actuator in baseline.actuators])
        controller = IntegratingVoltageController()
        powers = np.zeros((batch, len(ratings)))
        state = self.stepper.reset()
        self.setpoints = []
        for _ in range(steps - 1):
            wish = powers - controller.gain * ratings * (state.readings[:, voltages] - controller.target)
            powers = np.clip(wish, -ratings, ratings)
            self.setpoints.append(powers)
            state = self.stepper.step(powers)
        flow = FastPowerFlow(load_grid(grid).net)
        self.flow = BatchPowerFlow(flow)
        self.equations = flow.topology(flow.line_in_service, flow.tap_pos).equations

    def stepper_time(self) -> float:
        self.stepper.reset()

        def run() -> None:
            for powers in self.setpoints:
                self.stepper.step(powers)

        return cpu(run) / (len(self.setpoints) * self.batch) * 1e6

    def injections(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield active and reactive powers of loads and inverters, and those of storages, step by step."""
        first = self.environment._first_rows(np.arange(self.batch))
        flow = self.flow
        for tick, setpoints in enumerate(self.setpoints, start=1):
            p, q = flow.follow(self.environment.grid.profiles, first + tick)
            yield p[:, flow.loads], q[:, flow.loads], p[:, flow.sgens], setpoints, p[:, flow.storages]

    def written(self, powers: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
        flow = self.flow
        p, q = np.empty((self.batch, flow.elements)), np.repeat(flow.own_q[None], self.batch, axis=0)
        p[:, flow.loads], q[:, flow.loads], p[:, flow.sgens], q[:, flow.sgens], p[:, flow.storages] = powers
        return p, q

    def solver_time(self) -> float:
        given = list(self.injections())
        voltage = np.repeat(self.flow.cold[None], self.batch, axis=0)
        results, states = np.zeros((self.batch, self.flow.width)), np.arange(self.batch)

        def run() -> None:
            for powers in given:
                assert not self.flow.solve(self.written(powers), voltage, results, states)

        spent = cpu(run) / (len(given) * self.batch) * 1e6
        self.voltages = np.abs(voltage)
        return spent

    def pgm_time(self) -> float:
        """The same by power-grid-model; NaN where it is not installed."""
        if importlib.util.find_spec("power_grid_model") is None:
            return float("nan")
        from power_grid_model import CalculationMethod, initialize_array

        equations, model = self.equations, pgm_model(self.equations, self.environment.grid.net)
        scale = -1e6 * np.sign(equations.element_factors)
        given = list(self.injections())[:20]

        def run() -> None:
            for powers in given:
                p, q = self.written(powers)
                update = initialize_array("update", "sym_load", p.shape)
                update["id"] = 2 * equations.n + np.arange(p.shape[1])
                update["p_specified"], update["q_specified"] = p * scale, q * scale
                self.found = model.calculate_power_flow(
                    update_data={"sym_load": update},
                    output_component_types={"node": ["u_pu"], "generic_branch": ["i_from", "i_to"]},
                    calculation_method=CalculationMethod.iterative_current,
                    threading=-1,
                )

        return cpu(run) / (len(given) * self.batch) * 1e6


def pgm_model(equations: Any, net: Any) -> Any:
    """The same grid as a model of power-grid-model: pandapower's branches, one load for each element."""
    from pandapower.pypower import idx_brch as columns
    from pandapower.pypower.idx_bus import BASE_KV
    from power_grid_model import PowerGridModel, initialize_array

    internal, n = net._ppc["internal"], equations.n
    branch, kv = internal["branch"].real, internal["bus"].real[:, BASE_KV]
    nodes = initialize_array("input", "node", n)
    nodes["id"], nodes["u_rated"] = np.arange(n), kv * 1e3
    branches = initialize_array("input", "generic_branch", len(branch))
    branches["id"] = 10**6 + np.arange(len(branch))
    branches["from_node"], branches["to_node"] = branch[:, columns.F_BUS], branch[:, columns.T_BUS]
    branches["from_status"] = branches["to_status"] = 1
    impedance = kv[branch[:, columns.T_BUS].astype(int)] ** 2 / equations.base_mva
    for name, column, base in (
        ("r1", columns.BR_R, impedance),
        ("x1", columns.BR_X, impedance),
        ("g1", columns.BR_G, 1.0 / impedance),
        ("b1", columns.BR_B, 1.0 / impedance),
    ):
        branches[name] = branch[:, column] * base
    branches["k"] = np.where(branch[:, columns.TAP] == 0.0, 1.0, branch[:, columns.TAP])
    branches["theta"], branches["sn"] = np.radians(branch[:, columns.SHIFT]), 1e6
    sources = initialize_array("input", "source", len(equations.ref))
    sources["id"], sources["node"], sources["status"] = n + np.arange(len(equations.ref)), equations.ref, 1
    slack = equations.cold[equations.ref]
    sources["u_ref"], sources["u_ref_angle"], sources["sk"] = np.abs(slack), np.angle(slack), 1e20
    loads = initialize_array("input", "sym_load", len(equations.element_rows))
    loads["id"], loads["node"] = 2 * n + np.arange(len(loads)), equations.element_rows
    loads["status"], loads["type"] = equations.element_factors != 0.0, 0
    loads["p_specified"] = loads["q_specified"] = 0.0
    return PowerGridModel({"node": nodes, "generic_branch": branches, "source": sources, "sym_load": loads})


def cases() -> list[Any]:
    """Return cases for ``batches.py --more batch_grid``: the middle one of the grids."""
    from batches import Case

    grid, states = GRIDS[1], 192

    def run(batch: int, steps: int, stored: bool) -> Callable[[], int]:
        episodes = max(steps // states, 1)
        content = document(grid, batch, states, episodes)

        def measured() -> int:
            if not stored:
                execute(content)
            else:
                with tempfile.TemporaryDirectory() as folder, Store(folder, create=True) as store:
                    execute(content, store=store)
            return batch * episodes * (states - 1)

        return measured

    def loop(batch: int, steps: int, run: Callable[[Loop], Any]) -> Callable[[], int]:
        made = Loop(grid, batch, states)

        def measured() -> int:
            for _ in range(max(steps // states, 1)):
                run(made)
            return max(steps // states, 1) * batch * (states - 1)

        return measured

    return [
        Case("grid", "run", partial(run, stored=False)),
        Case("grid", "run, store", partial(run, stored=True)),
        Case("grid", "stepper", partial(loop, run=Loop.stepper_time)),
        Case("grid", "solver", partial(loop, run=Loop.solver_time)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("grids", nargs="*", default=GRIDS, metavar="GRID")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print("| grid | batch | solver | pgm | stepper | run | stored | alone | times | share |")
    print("|---" * 10 + "|")
    for grid in options.grids:
        alone = statistics.median(run_time(grid, 0, 400) for _ in range(options.repeat))
        one = float("nan")
        for batch in options.batches:
            steps = 960 if batch == 1 else 192 if batch <= 64 else 48
            loop = Loop(grid, batch, steps)
            columns: dict[str, list[float]] = {}
            for _ in range(options.repeat):
                for name, value in (
                    ("solver", loop.solver_time()),
                    ("pgm", loop.pgm_time()),
                    ("stepper", loop.stepper_time()),
                    ("run", run_time(grid, batch, steps)),
                    ("stored", run_time(grid, batch, steps, stored=True)),
                ):
                    columns.setdefault(name, []).append(value)
            found = {name: statistics.median(values) for name, values in columns.items()}
            one = found["run"] if batch == 1 else one
            cells = " | ".join(f"{value:.1f}" for value in found.values())
            print(
                f"| {grid} | {batch} | {cells} | {alone:.0f} | {one / found['run']:.1f} "
                f"| {found['solver'] / found['run']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Time of one power flow: write all powers, solve to 1e-8 MVA, read all results.

    OMP_NUM_THREADS=1 python tests/benchmarks/grid_solver.py [--steps 2000] [--year] [GRID ...]

Prints CPU time per state, median over blocks of 100 steps (so that other work on the
machine does little harm), of the fixed-point iteration (with what falls back to Newton's
method, where there are PV buses all), of Newton's method, and of ``pandapower.runpp`` on
the same states; then the largest difference between the first two. Grids with profiles
run along them; the loads of the others vary by 10 % from state to state.
``--year`` runs a grid's whole year, nobody acting, and prints voltages and how many
steps have a bus outside 0.95 to 1.05 p.u. Known are 1.001 to 1.080 and 35.1 %
(1-MV-rural--2-sw), 1.000 to 1.059 and 2.7 % (1-MV-semiurb--1-sw).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pandapower as pp

from palaestrai_mosaik.environment.grid.fast_power_flow import FastPowerFlow
from palaestrai_mosaik.environment.grid.network import Grid, load_grid
from palaestrai_mosaik.environment.grid.power_flow import PowerFlow

GRIDS = ("cigre_mv", "simbench:1-MV-rural--2-sw", "simbench:1-MV-semiurb--1-sw", "oberrhein", "case2869")
BLOCK = 100
Powers = tuple[np.ndarray, ...]


def states(grid: Grid, first: int, count: int) -> list[Powers]:
    """The arguments of ``solve`` for ``count`` states."""
    q = (grid.net.sgen.q_mvar * grid.net.sgen.scaling).to_numpy(dtype=float)
    rng = np.random.default_rng(first)
    found = []
    for step in range(first, first + count):
        load_p, load_q, sgen_p, storage_p, gen_p = grid.profiles.at(step)
        if grid.profiles.steps is None:
            factor = rng.uniform(0.9, 1.0, len(load_p))
            load_p, load_q = load_p * factor, load_q * factor
        found.append((load_p, load_q, sgen_p, q, storage_p, gen_p))
    return found


def block_time(step: Callable[..., Any], blocks: list[list[Powers]]) -> float:
    """CPU microseconds of one state, median over ``blocks``."""
    times = []
    for block in blocks:
        start = time.process_time()
        for powers in block:
            step(*powers)
        times.append((time.process_time() - start) / len(block) * 1e6)
    return float(np.median(times))


def with_pandapower(grid: Grid) -> Callable[..., Any]:
    net = grid.net

    def step(*powers: np.ndarray) -> Any:
        net.load["p_mw"], net.load["q_mvar"], net.sgen["p_mw"], net.sgen["q_mvar"] = powers[:4]
        net.storage["p_mw"], net.gen["p_mw"] = powers[4:]
        pp.runpp(net, init="results")
        return net.res_bus.vm_pu.to_numpy(), net.res_line.loading_percent.to_numpy()

    net.load["scaling"] = net.sgen["scaling"] = net.storage["scaling"] = net.gen["scaling"] = 1.0
    pp.runpp(net)
    return step


def year(grid: Grid, flow: PowerFlow) -> str:
    steps = grid.profiles.steps
    if steps is None:
        return "no profiles"
    lowest, highest, outside = np.inf, -np.inf, 0
    flow.reset()
    start = time.process_time()
    for first in range(0, steps, 1000):
        for powers in states(grid, first, min(1000, steps - first)):
            voltage = flow.solve(*powers).vm_pu
            low, high = voltage.min(), voltage.max()
            lowest, highest = min(lowest, low), max(highest, high)
            outside += low < 0.95 or high > 1.05
    seconds = time.process_time() - start
    return f"{seconds:.1f} s, {lowest:.3f} to {highest:.3f} p.u., {100 * outside / steps:.2f} % outside"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("grids", nargs="*", default=GRIDS, metavar="GRID")
    parser.add_argument("--steps", type=int, default=2000, help="states with the fast solver (default 2000)")
    parser.add_argument("--year", action="store_true", help="also run the whole year")
    arguments = parser.parse_args()
    print(f"{'grid':<30}{'buses':>6}{'fixed point/us':>16}{'newton/us':>11}{'runpp/us':>10}{'apart/pu':>10}")
    for name in arguments.grids:
        grid = load_grid(name)
        flow, newton = FastPowerFlow(grid.net), FastPowerFlow(grid.net, newton_only=True)
        count = max(arguments.steps // (10 if len(grid.net.bus) > 1000 else 1) // BLOCK, 1)
        blocks = [states(grid, i * BLOCK, BLOCK) for i in range(count)]
        flow.solve(*blocks[0][0])  # compiles
        ours, by_newton = block_time(flow.solve, blocks), block_time(newton.solve, blocks)
        apart = max(np.abs(flow.solve(*p).vm_pu - newton.solve(*p).vm_pu).max() for p in blocks[0])
        text = year(grid, flow) if arguments.year else ""
        theirs = block_time(with_pandapower(grid), [states(grid, i, 1) for i in range(20)])
        print(
            f"{name:<30}{len(grid.net.bus):>6}{ours:>16.1f}{by_newton:>11.1f}{theirs:>10.0f}{apart:>10.1e}  {text}",
            flush=True,
        )


if __name__ == "__main__":
    main()

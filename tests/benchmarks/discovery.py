"""How well and how fast planted boxes are found: PRIM and CART on Latin hypercubes.

A box that limits three of the factors is planted: x0 > 0.5, x1 < 0.6, x2 > 0.3 (21 % of the space). ``coverage`` and
``density`` are those of the first box that is found, measured on 20,000 other points; the medians of ``--repeat``
samples. ``s``: CPU seconds of one search; a resample needs one more for each box.

    python tests/benchmarks/discovery.py [--factors 3 5 8] [--rows 100 200 400 800] [--repeat 5]
"""

from __future__ import annotations

import argparse
import statistics
from time import process_time

import numpy as np
from scipy.stats import qmc

from palaestrai_mosaik.analysis.discovery.algorithms import METHODS, Points
from palaestrai_mosaik.analysis.discovery.boxes import Column
from palaestrai_mosaik.design.model import Axis, Factor
from palaestrai_mosaik.types.arrays import BoolVector, FloatMatrix

_FRESH = 20_000


def planted(unit: FloatMatrix) -> BoolVector:
    """Return which points lie in the planted box."""
    inside: BoolVector = (unit[:, 0] > 0.5) & (unit[:, 1] < 0.6) & (unit[:, 2] > 0.3)
    return inside


def columns_of(unit: FloatMatrix) -> tuple[Column, ...]:
    """Return the points as coded axes."""
    factors = [Factor(f"x{i}", "float", path=f"x{i}", low=0.0, high=1.0) for i in range(unit.shape[1])]
    axes = [Axis(factor.name, (factor,)) for factor in factors]
    return tuple(Column(axis, unit[:, i], "number") for i, axis in enumerate(axes))


def measured(method: str, factors: int, rows: int, seed: int) -> tuple[float, float, float]:
    """Return coverage and density of the first box, 0 where there is none, and the CPU seconds of the search."""
    unit = qmc.LatinHypercube(factors, seed=seed).random(rows)
    fresh = np.random.Generator(np.random.PCG64(seed)).random((_FRESH, factors))
    numbers = np.arange(rows)
    points = Points(columns_of(unit), numbers, planted(unit), numbers)
    begun = process_time()
    found = METHODS[method](points, 1)
    seconds = process_time() - begun
    if not found:
        return 0.0, 0.0, seconds
    inside, true = found[0].box.contains(columns_of(fresh)), planted(fresh)
    return float(inside[true].mean()), float(true[inside].mean()) if inside.any() else 0.0, seconds


def main() -> None:
    """Print a line per method and size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--factors", nargs="+", type=int, default=[3, 5, 8])
    parser.add_argument("--rows", nargs="+", type=int, default=[100, 200, 400, 800])
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    for method in METHODS:
        measured(method, 3, 50, 0)  # what is imported for the first search
    print(f"{'method':8}{'factors':>8}{'rows':>8}{'coverage':>10}{'density':>10}{'s':>8}")
    for method in METHODS:
        for factors in arguments.factors:
            for rows in arguments.rows:
                found = [measured(method, factors, rows, seed) for seed in range(1, arguments.repeat + 1)]
                coverage, density, seconds = (
                    statistics.median(values) for values in zip(*found, strict=True)
                )
                print(f"{method:8}{factors:8}{rows:8,}{coverage:10.3f}{density:10.3f}{seconds:8.3f}")


if __name__ == "__main__":
    main()

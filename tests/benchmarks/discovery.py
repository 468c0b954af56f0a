"""False alarms, power and intervals of boxes, and how well and how fast planted boxes are found: PRIM and CART.

``truth`` (the default): studies of Latin hypercubes and the rule of ``arsenai analyse --discover``. In ``noise``, the
condition depends on no factor (30 or 5 % of the runs; ``x 3``: three repetitions with common seeds that make half of
the variance). ``box``: it holds in 21 % of the space (x0 > 0.5, x1 < 0.6, x2 > 0.3) and nowhere else; ``noisy box``: with
the probability 0.8 in that box and 0.1 elsewhere; ``slope``: with a probability that grows with x0 + x1. Columns:
studies that find a box (five times as many studies of noise); of the first box, the mean of coverage and density on 20,000 other points, the mean error of
the estimates, and in which share of the studies the interval of 95 % has the true value.

``speed``: coverage and density of the first box on other points, medians of ``--repeat`` samples, and the CPU seconds of
one search; a discovery makes some 230 for each method.

    python tests/benchmarks/discovery.py [truth] [--studies 20] [--only STUDY]
    python tests/benchmarks/discovery.py speed [--factors 3 5 8] [--rows 100 200 400 800] [--repeat 5]
"""

from __future__ import annotations

import argparse
import statistics
from time import process_time

import numpy as np
from scipy.stats import norm, qmc

from palaestrai_mosaik.arsenai.analysis.discovery.algorithms import METHODS, MOST_BOXES, Points
from palaestrai_mosaik.arsenai.analysis.discovery.boxes import Column
from palaestrai_mosaik.arsenai.analysis.discovery.validation import beyond_chance, folds, held_out
from palaestrai_mosaik.arsenai.design.model import Axis, Factor
from palaestrai_mosaik.types.arrays import BoolVector, FloatMatrix, FloatVector

_FRESH = 20_000
_CONFIDENCE = 0.95
#: so many times as many studies of noise, which are quick and have a rare answer
_MORE = 5
#: what is studied, factors, rows, repetitions
STUDIES = (
    ("noise 30 %", 3, 60, 1),
    ("noise 30 %", 5, 120, 1),
    ("noise 30 %", 12, 120, 1),
    ("noise 30 %", 5, 500, 1),
    ("noise 5 %", 5, 150, 1),
    ("noise 5 %", 12, 500, 1),
    ("noise 30 %", 5, 60, 3),
    ("box", 5, 60, 1),
    ("box", 5, 120, 1),
    ("box", 8, 200, 1),
    ("noisy box", 5, 120, 1),
    ("noisy box", 8, 200, 1),
    ("noisy box", 5, 60, 3),
    ("slope", 5, 120, 1),
)


def planted(unit: FloatMatrix) -> BoolVector:
    """Return which points lie in the planted box."""
    inside: BoolVector = (unit[:, 0] > 0.5) & (unit[:, 1] < 0.6) & (unit[:, 2] > 0.3)
    return inside


def probability(what: str, unit: FloatMatrix) -> FloatVector:
    """Return how probable it is that the condition holds at each point."""
    if what.startswith("noise"):
        return np.full(len(unit), float(what.split()[1]) / 100)
    if what == "slope":
        slope: FloatVector = 1 / (1 + np.exp(-8 * (unit[:, 0] + unit[:, 1] - 1.3)))
        return slope
    inside, outside = (1.0, 0.0) if what == "box" else (0.8, 0.1)
    return np.where(planted(unit), inside, outside)


def columns_of(unit: FloatMatrix) -> tuple[Column, ...]:
    """Return the points as coded axes."""
    factors = [Factor(f"x{i}", "float", path=f"x{i}", low=0.0, high=1.0) for i in range(unit.shape[1])]
    axes = [Axis(factor.name, (factor,)) for factor in factors]
    return tuple(Column(axis, unit[:, i], "number") for i, axis in enumerate(axes))


def study(what: str, factors: int, rows: int, repetitions: int, seed: int) -> Points:
    """Return the runs of a study."""
    generator = np.random.Generator(np.random.PCG64(seed))
    unit = qmc.LatinHypercube(factors, seed=seed).random(rows)
    chance = generator.normal(size=(rows, repetitions))
    if repetitions > 1:
        chance = np.sqrt(0.5) * (chance + generator.normal(size=repetitions))
    holds = (norm.cdf(chance) < probability(what, unit)[:, None]).ravel()
    row = np.repeat(np.arange(rows), repetitions)
    return Points(columns_of(unit), row, holds, row)


def examined(method: str, what: str, points: Points, seed: int) -> tuple[float, ...] | None:
    """Return true coverage and density of the first box, the errors of both estimates, and whether the intervals are right.

    ``None`` where no box is found.
    """
    find, generator = METHODS[method], np.random.Generator(np.random.PCG64(seed))
    boxes = [one.box for one in find(points, MOST_BOXES)]
    boxes = [
        box for box, kept in zip(boxes, beyond_chance(points, boxes, find, generator), strict=True) if kept
    ]
    if not boxes:
        return None
    fresh = generator.random((_FRESH, len(points.columns)))
    true, inside = probability(what, fresh), boxes[0].contains(columns_of(fresh))
    known = true[inside].sum() / true.sum(), true[inside].mean()
    parts = [
        (left, [one.box for one in find(points.only(~left), MOST_BOXES)]) for left in folds(points, generator)
    ]
    told = held_out(points, boxes[0], parts, points, np.ones(len(points.holds)), _CONFIDENCE)
    both = list(zip(known, (told.coverage, told.density), strict=True))
    return (
        *known,
        *(value - truth for truth, (value, _) in both),
        *(float(low <= truth <= high) for truth, (_, (low, high)) in both),
    )


def truth(studies: int, only: str) -> None:
    """Print a row of a table per kind of study and method; ``only``: part of the name of a kind."""
    print(
        "| study | factors | rows | method | finds a box | coverage | density | error | | interval right | |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for what, factors, rows, repetitions in STUDIES:
        for method in METHODS if only in what else ():
            number = studies * (_MORE if what.startswith("noise") else 1)
            made = [study(what, factors, rows, repetitions, seed) for seed in range(1, number + 1)]
            given = [examined(method, what, points, seed) for seed, points in enumerate(made, start=1)]
            found = [one for one in given if one is not None]
            size = f"{rows} x {repetitions}" if repetitions > 1 else f"{rows}"
            told = [f"{100 * len(found) / number:.0f} %"]
            if found and not what.startswith("noise"):
                mean = np.mean(found, axis=0)
                told += [f"{mean[0]:.2f}", f"{mean[1]:.2f}", f"{mean[2]:+.2f}", f"{mean[3]:+.2f}"]
                told += [f"{100 * mean[4]:.0f} %", f"{100 * mean[5]:.0f} %"]
            told += [""] * (7 - len(told))
            print(f"| {what} | {factors} | {size} | {method} | {' | '.join(told)} |", flush=True)


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


def speed(sizes: list[int], numbers: list[int], repeat: int) -> None:
    """Print a line per method and size; ``sizes``: numbers of factors, ``numbers``: of rows."""
    for method in METHODS:
        measured(method, 3, 50, 0)  # what is imported for the first search
    print(f"{'method':8}{'factors':>8}{'rows':>8}{'coverage':>10}{'density':>10}{'s':>8}")
    for method in METHODS:
        for factors in sizes:
            for rows in numbers:
                found = [measured(method, factors, rows, seed) for seed in range(1, repeat + 1)]
                coverage, density, seconds = (
                    statistics.median(values) for values in zip(*found, strict=True)
                )
                print(f"{method:8}{factors:8}{rows:8,}{coverage:10.3f}{density:10.3f}{seconds:8.3f}")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["truth", "speed"], default="truth")
    parser.add_argument("--studies", type=int, default=20)
    parser.add_argument("--only", default="", metavar="STUDY", help="such as slope; default: all")
    parser.add_argument("--factors", nargs="+", type=int, default=[3, 5, 8])
    parser.add_argument("--rows", nargs="+", type=int, default=[100, 200, 400, 800])
    parser.add_argument("--repeat", type=int, default=5)
    given = parser.parse_args()
    if given.what == "truth":
        truth(given.studies, given.only)
    else:
        speed(given.factors, given.rows, given.repeat)


if __name__ == "__main__":
    main()

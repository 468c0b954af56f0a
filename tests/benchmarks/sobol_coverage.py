"""How often the intervals of Sobol' indices hold the true index, and how wide they are.

Five functions with known indices, of any number of factors; a study draws a design's sample with another seed and
analyses it as ``arsenai analyse`` does. Prints a table: for each n, per cent of the intervals of S1 and ST that hold the
index (mean over all factors, and the worst of them), and the mean half-width. ``--method shapley`` does the same with
Shapley effects of functions that have them in closed form. ``--bootstrap`` does the same with one sequence and SALib's
bootstrap, which takes its points for independent.

    python tests/benchmarks/sobol_coverage.py [--studies 500] [--factors 2 3 5 8 12] [--n 64 256 1024]

The smallest run: ``--studies 2 --factors 2 --n 16``.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.arsenai.design.load import from_mapping
from palaestrai_mosaik.arsenai.design.methods import METHODS, Study
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.samplers import sample

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Function:
    """A function of points of the unit cube, (points, factors), and its true S1 and ST, (2, factors)."""

    value: Callable[[FloatArray], FloatArray]
    indices: Callable[[int], FloatArray]


def ishigami(x: FloatArray) -> FloatArray:
    """Return the sum of Ishigami's functions of each three factors; the last one lacks the terms of missing factors."""
    z = (2 * x - 1) * np.pi
    y = np.zeros(len(x))
    for k in range(0, z.shape[1], 3):
        rest = z[:, k:]
        y += np.sin(rest[:, 0]) * (1 + 0.1 * rest[:, 2] ** 4 if rest.shape[1] > 2 else 1)
        y += 7 * np.sin(rest[:, 1]) ** 2 if rest.shape[1] > 1 else 0
    return y


def ishigami_indices(factors: int) -> FloatArray:
    variances = np.zeros((2, factors))
    for k in range(0, factors, 3):
        whole = k + 2 < factors
        variances[:, k] = (1 + 0.1 * np.pi**4 / 5) ** 2 / 2 if whole else 0.5
        variances[:, k + 1 : k + 2] = 49 / 8
        if whole:
            variances[1, k : k + 3 : 2] += 0.01 * np.pi**8 * 8 / 225
    return variances / (variances[0].sum() + variances[1, 2::3].sum())


def coefficients(factors: int) -> FloatArray:
    """Return those of Sobol's g: from the most to hardly any influence."""
    return np.array([0, 1, 4.5, 9, *[99] * factors][:factors], dtype=float)


def product_indices(partial: FloatArray) -> FloatArray:
    """Return the indices of a product of factors with mean 1 and these variances."""
    total = np.prod(1 + partial)
    return np.array([partial, total * partial / (1 + partial)]) / (total - 1)


def sum_indices(partial: FloatArray) -> FloatArray:
    return np.array([partial, partial]) / partial.sum()


FUNCTIONS = {
    "ishigami": Function(ishigami, ishigami_indices),
    "g": Function(
        lambda x: np.prod((abs(4 * x - 2) + (a := coefficients(x.shape[1]))) / (1 + a), axis=1),
        lambda factors: product_indices(1 / (3 * (1 + coefficients(factors)) ** 2)),
    ),
    "linear": Function(
        lambda x: x @ np.arange(1.0, x.shape[1] + 1),
        lambda factors: sum_indices(np.arange(1.0, factors + 1) ** 2),
    ),
    "product": Function(
        lambda x: np.prod(x + 0.5, axis=1), lambda factors: product_indices(np.full(factors, 1 / 12))
    ),
    # a jump, and factors with hardly any influence
    "step": Function(
        lambda x: (x[:, 0] > 0.8) + 0.1 * x[:, 1:].sum(axis=1),
        lambda factors: sum_indices(np.array([0.16, *[0.01 / 12] * (factors - 1)])),
    ),
}


def design(factors: int, n: int, second_order: bool) -> DesignSpec:
    path = "schedule.only.environments.formula.environment.params"
    names = [f"x{i}" for i in range(factors)]
    only = {
        "environments": [
            {
                "environment": {
                    "uid": "formula",
                    "name": "function",
                    "params": {"function": "linear", **dict.fromkeys(names, 0.5)},
                }
            }
        ],
        "agents": [{"name": "nobody", "muscle": "idle", "sensors": [], "actuators": ["formula.idle"]}],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    return from_mapping(
        {
            "uid": "coverage",
            "seed": 1,
            "base": {"schedule": [{"only": only}]},
            "factors": {name: {"path": f"{path}.{name}", "low": 0, "high": 1} for name in names},
            "sampler": {"name": "sobol", "n": n, "second_order": second_order},
        }
    )


def shapley_indices(function: Function, factors: int) -> FloatArray:
    """Return the Shapley effects, (1, factors), of a function that is a sum, or Ishigami's."""
    first, total = function.indices(factors)
    # no interaction is of more than two factors, which share it equally
    return np.array([(first + total) / 2])


def intervals(spec: DesignSpec, method: str, functions: Sequence[str]) -> FloatArray:
    """Return low and high of S1 and ST (or of Shapley effects) of each function: (functions, 2, indices, factors)."""
    drawn = sample(spec)
    names = tuple(axis.name for axis in spec.axes)
    found = []
    for name in functions:
        y = FUNCTIONS[name].value(drawn.unit)
        study = Study(drawn.unit, y, drawn.block, names, names, "sobol", drawn.arguments)
        rows = [row for row in METHODS[method].analyse(study).rows if row.index in ("S1", "ST", "Sh")]
        ends = np.array([(row.low, row.high) for row in rows])
        found.append(ends.T.reshape(2, -1, len(names)))
    return np.array(found)


def bootstrapped(spec: DesignSpec, n: int, functions: Sequence[str]) -> FloatArray:
    """Return the same by SALib from one sequence, with its bootstrap."""
    from SALib.analyze import sobol as analyser
    from SALib.sample import sobol as sampler

    names = [axis.name for axis in spec.axes]
    problem: dict[str, Any] = {"num_vars": len(names), "names": names, "bounds": [[0.0, 1.0]] * len(names)}
    unit = sampler.sample(problem, n, calc_second_order=False, seed=spec.seed)
    found = []
    for name in functions:
        result = analyser.analyze(
            problem, FUNCTIONS[name].value(unit), calc_second_order=False, num_resamples=100, seed=spec.seed
        )
        value = np.array([result[index] for index in ("S1", "ST")])
        half = np.array([result[f"{index}_conf"] for index in ("S1", "ST")])
        found.append([value - half, value + half])
    return np.array(found)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--studies", type=int, default=500)
    parser.add_argument("--factors", type=int, nargs="+", default=[2, 3, 5, 8, 12])
    parser.add_argument("--n", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--functions", nargs="+", choices=FUNCTIONS, default=list(FUNCTIONS))
    parser.add_argument("--method", choices=("sobol", "shapley"), default="sobol")
    parser.add_argument("--bootstrap", action="store_true")
    chosen = parser.parse_args(argv)
    functions = chosen.functions
    if chosen.method == "shapley":
        functions = [name for name in functions if name not in ("g", "product")]
    header = [f"n = {n}: {what}" for n in chosen.n for what in ("mean %", "worst %", "half-width")]
    print(f"{chosen.studies} studies\n\n| function | factors | {' | '.join(header)} |")
    print("|---" * (2 + len(header)) + "|")
    for factors in chosen.factors:
        cells: dict[str, list[str]] = {name: [] for name in functions}
        for n in chosen.n:
            spec = design(factors, n, chosen.method == "shapley")
            specs = [replace(spec, seed=seed) for seed in range(1, chosen.studies + 1)]
            if chosen.bootstrap:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    ends = np.array([bootstrapped(one, n, functions) for one in specs])
            else:
                ends = np.array([intervals(one, chosen.method, functions) for one in specs])
            for number, name in enumerate(functions):
                function = FUNCTIONS[name]
                shapley = chosen.method == "shapley"
                true = shapley_indices(function, factors) if shapley else function.indices(factors)
                low, high = ends[:, number, 0], ends[:, number, 1]
                # rounding: the true index may lie on the end of an interval
                held = ((low <= true + 1e-9) & (true - 1e-9 <= high)).mean(axis=0)
                half = (high - low).mean() / 2
                cells[name] += [f"{100 * held.mean():.1f}", f"{100 * held.min():.1f}", f"{half:.3f}"]
        for name, row in cells.items():
            print(f"| {name} | {factors} | {' | '.join(row)} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

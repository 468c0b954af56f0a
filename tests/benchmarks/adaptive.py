"""How many runs it takes to find planted boxes: a Latin hypercube and the adaptive sampler.

Boxes are planted that limit three or four of the factors, and hold 21, 10 and 5 % of the space. ``hypercube`` and ``adaptive``:
the fewest rows (of those looked at) from which on the medians of coverage and density of the first box of PRIM are 0.9 or
more, measured on 20,000 other points, median over ``--repeat`` samples. ``stops``: the rows at which the adaptive sampler
has stopped by itself, and coverage and density there. Nothing is executed: the outcomes are computed from the rows. All
else is as in ``arsenai run``: documents, folder, decisions.

    python tests/benchmarks/adaptive.py [--factors 3 5 8] [--repeat 5] [--most 400]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from discovery import columns_of
from scipy.stats import qmc

from palaestrai_mosaik.analysis import Results
from palaestrai_mosaik.analysis.discovery.algorithms import METHODS, Points
from palaestrai_mosaik.analysis.discovery.boxes import Box
from palaestrai_mosaik.analysis.discovery.conditions import label_runs, parse_condition
from palaestrai_mosaik.analysis.discovery.discover import points_of, shares
from palaestrai_mosaik.analysis.discovery.surrogate import Relabelling
from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.load import from_mapping
from palaestrai_mosaik.design.writer import write_folder
from palaestrai_mosaik.rounds.advance import next_round
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray

#: share of the space -> the limits of the planted box, by the factor
BOXES: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "21 %": {0: (0.5, 1), 1: (0, 0.6), 2: (0.3, 1)},
    "10 %": {0: (0.6, 1), 1: (0, 0.5), 2: (0.5, 1)},
    "5 %": {0: (0.6, 1), 1: (0, 0.5), 2: (0.5, 1), 3: (0, 0.5)},
}
_ENOUGH = 0.9
_FRESH = 20_000
_STEP = 20


def planted(unit: FloatArray, limits: Mapping[int, tuple[float, float]]) -> BoolVector:
    """Return which points lie in the planted box."""
    inside = np.ones(len(unit), dtype=bool)
    for place, (low, high) in limits.items():
        inside &= (unit[:, place] > low) & (unit[:, place] < high)
    return inside


def quality(boxes: Sequence[Box], limits: Any, factors: int, seed: int) -> tuple[float, float]:
    """Return coverage and density of the first box on other points, 0 where there is none."""
    fresh = np.random.Generator(np.random.PCG64(seed)).random((_FRESH, factors))
    if not boxes:
        return 0.0, 0.0
    inside, true = boxes[0].contains(columns_of(fresh)), planted(fresh, limits)
    return float(inside[true].mean()), float(true[inside].mean()) if inside.any() else 0.0


def boxes_of(points: Points) -> list[Box]:
    if points.holds.all() or not points.holds.any():
        return []
    return [one.box for one in METHODS["PRIM"](points, 1)]


def hypercube(limits: Any, factors: int, rows: int, seed: int) -> tuple[float, float]:
    unit = qmc.LatinHypercube(factors, seed=seed).random(rows)
    numbers = np.arange(rows)
    points = Points(columns_of(unit), numbers, planted(unit, limits), numbers)
    return quality(boxes_of(points), limits, factors, seed)


class Computed(Results):
    """The results of runs that were not executed: 1 in the planted box, else 0."""

    def __init__(self, folder: DesignFolder, limits: Any):
        super().__init__(folder)
        self._limits = limits

    def outcomes(self) -> pd.DataFrame:
        """Return the outcomes of all rows."""
        runs, y = self.folder.runs, planted(self.folder.sample.unit, self._limits)
        columns = {"row": [run.row for run in runs], "run": [run.run for run in runs]}
        return pd.DataFrame(
            {**columns, "status": "finished", "y": y[[run.row for run in runs]].astype(float)}
        )


def adaptive(
    limits: Any, factors: int, most: int, seed: int
) -> tuple[dict[int, tuple[float, float]], int, tuple[float, float]]:
    """Return coverage and density by the number of rows, and where the sampler stops: its rows, coverage and density."""
    params = "schedule.only.environments.formula.environment.params"
    names = [f"x{i + 1}" for i in range(factors)]
    formula = {"function": "linear", "coefficients": [1.0] * factors, **dict.fromkeys(names, 0.5)}
    only = {
        "environments": [{"environment": {"uid": "formula", "name": "function", "params": formula}}],
        "agents": [{"name": "nobody", "muscle": "idle", "sensors": [], "actuators": ["formula.idle"]}],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    sampler = {"name": "adaptive", "n": 20, "batch": 10, "condition": "y > 0.5", "until": {"max_n": most}}
    spec = from_mapping(
        {
            "uid": "planted",
            "seed": seed,
            "base": {"schedule": [{"only": only}]},
            "factors": {name: {"path": f"{params}.{name}", "low": 0, "high": 1} for name in names},
            "sampler": sampler,
            "outcomes": {"y": {"of": "reward.y"}},
        }
    )
    found: dict[int, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        write_folder(spec, Path(place, "f"), force=False)
        folder = DesignFolder.open(Path(place, "f"))
        while True:
            results = Computed(folder, limits)
            runs = label_runs(results, parse_condition(results, "y > 0.5"))
            relabelling = Relabelling(results, runs, shares(runs, len(folder.runs)))
            points = points_of(relabelling.rows, runs)
            boxes = boxes_of(relabelling.points(points)) if runs.holds.any() else []
            found[len(folder.runs)] = quality(boxes, limits, factors, seed)
            folder = next_round(results)
            assert folder.rounds is not None
            if folder.rounds.ended:
                return found, len(folder.runs), found[len(folder.runs)]


def fewest(by_rows: Mapping[int, Sequence[tuple[float, float]]]) -> int | None:
    """Return the fewest rows from which on both medians are good enough; ``None``: they are not with the most, either."""
    enough = None
    for rows in sorted(by_rows, reverse=True):
        if min(statistics.median(values) for values in zip(*by_rows[rows], strict=True)) < _ENOUGH:
            break
        enough = rows
    return enough


def main() -> None:
    """Print a line per box and number of factors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--factors", nargs="+", type=int, default=[3, 5, 8])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--most", type=int, default=400)
    arguments = parser.parse_args()
    print(
        f"{'box':>5}{'factors':>9}{'hypercube':>11}{'adaptive':>10}{'stops':>8}{'coverage':>10}{'density':>9}"
    )
    seeds = range(1, arguments.repeat + 1)
    for name, limits in BOXES.items():
        for factors in arguments.factors:
            if factors <= max(limits):
                continue
            sizes = range(_STEP, arguments.most + 1, _STEP)
            cubes = {n: [hypercube(limits, factors, n, seed) for seed in seeds] for n in sizes}
            grown = [adaptive(limits, factors, arguments.most, seed) for seed in seeds]
            # (of one that has stopped, what it had then)
            by_rows = {
                n: [one.get(n, last) for one, _, last in grown] for n in range(20, arguments.most + 1, 10)
            }
            stops = statistics.median(rows for _, rows, _ in grown)
            coverage, density = (
                statistics.median(v) for v in zip(*(last for *_, last in grown), strict=True)
            )
            needed = [str(fewest(one) or f">{arguments.most}") for one in (cubes, by_rows)]
            print(
                f"{name:>5}{factors:9}{needed[0]:>11}{needed[1]:>10}{stops:8.0f}{coverage:10.2f}{density:9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

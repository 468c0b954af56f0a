"""How many runs it takes to find planted boxes: a Latin hypercube and the adaptive sampler.

Boxes are planted that limit three or four of the factors, and hold 21, 10 and 5 % of the space. ``hypercube`` and ``adaptive``:
the fewest rows (of those looked at) from which on the medians of coverage and density of the first box of PRIM are 0.9 or
more, measured on 20,000 other points, over ``--repeat`` samples; in brackets the fewest from which on their lower quartiles
are, so that three of four samples are good enough. Both are looked at with the same numbers of rows: every ``--batch`` up to 100,
then every 10 (or the next multiple of it). ``stops``: the rows at which the adaptive sampler has stopped by itself, median and quartiles, and coverage and
density there, median and lower quartile. Nothing is executed: the outcomes are computed from the rows. All else is as in
``arsenai run``: documents, folder, decisions.

    python tests/benchmarks/adaptive.py [--boxes 21 10 5] [--factors 3 5 8] [--repeat 10] [--n 10] [--batch 5] [--most 400]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from discovery import columns_of
from scipy.stats import qmc

from palaestrai_mosaik.arsenai.analysis import Results
from palaestrai_mosaik.arsenai.analysis.discovery.algorithms import METHODS, MOST_BOXES, FoundLimits, Points
from palaestrai_mosaik.arsenai.analysis.discovery.boxes import Box
from palaestrai_mosaik.arsenai.analysis.discovery.conditions import label_runs, parse_condition
from palaestrai_mosaik.arsenai.analysis.discovery.discover import points_of, shares
from palaestrai_mosaik.arsenai.analysis.discovery.surrogate import Relabelling
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.load import from_mapping
from palaestrai_mosaik.arsenai.design.writer import write_folder
from palaestrai_mosaik.arsenai.search.rounds import next_round
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray

#: share of the space in per cent -> the limits of the planted box, by the factor
BOXES: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "21": {0: (0.5, 1), 1: (0, 0.6), 2: (0.3, 1)},
    "10": {0: (0.6, 1), 1: (0, 0.5), 2: (0.5, 1)},
    "5": {0: (0.6, 1), 1: (0, 0.5), 2: (0.5, 1), 3: (0, 0.5)},
}
_ENOUGH = 0.9
_FRESH = 20_000
#: beyond so many rows, steps are at least so large
_MANY, _STEP = 100, 10


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
    return [one.box for one in METHODS["PRIM"](points, MOST_BOXES)]


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
    limits: Any, factors: int, options: Mapping[str, Any], seed: int
) -> dict[int, tuple[float, float]]:
    """Return coverage and density by the number of rows, the last of which is that at which the sampler stops.

    ``options``: those of the sampler.
    """
    params = "schedule.only.environments.formula.environment.params"
    names = [f"x{i + 1}" for i in range(factors)]
    formula = {"function": "linear", "coefficients": [1.0] * factors, **dict.fromkeys(names, 0.5)}
    only = {
        "environments": [{"environment": {"uid": "formula", "name": "function", "params": formula}}],
        "agents": [{"name": "nobody", "muscle": "idle", "sensors": [], "actuators": ["formula.idle"]}],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    sampler = {"name": "adaptive", "condition": "y > 0.5", **options}
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
                return found


def looked_at(n: int, batch: int, most: int) -> list[int]:
    """Return the numbers of rows at which both samplers are looked at."""
    rows = range(n, most + 1, batch)
    step = batch * -(-_STEP // batch)
    return [one for one in rows if one <= _MANY or (one - n) % step == 0]


def fewest(by_rows: Mapping[int, Sequence[tuple[float, float]]], share: float) -> str:
    """Return the fewest rows from which on these quantiles of coverage and density are good enough, if any are."""
    enough = f">{max(by_rows)}"
    for rows in sorted(by_rows, reverse=True):
        if np.quantile(by_rows[rows], share, axis=0).min() < _ENOUGH:
            break
        enough = str(rows)
    return enough


def remember_boxes() -> None:
    """Let a method that is given the same points again return the same boxes: decisions look at earlier rounds, too."""
    for name, find in METHODS.items():
        METHODS[name] = _remembering(find)


def _remembering(find: Callable[[Points, int], list[FoundLimits]]) -> Callable[..., list[FoundLimits]]:
    known: dict[tuple[bytes, ...], list[FoundLimits]] = {}

    def found(points: Points, most: int) -> list[FoundLimits]:
        key = (
            bytes([most]),
            points.holds.tobytes(),
            *(one.codes[points.row].tobytes() for one in points.columns),
        )
        if key not in known:
            known[key] = find(points, most)
        return known[key]

    return found


def main() -> None:
    """Print a line per box and number of factors."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--boxes", nargs="+", choices=list(BOXES), default=list(BOXES))
    parser.add_argument("--factors", nargs="+", type=int, default=[3, 5, 8])
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--n", type=int, default=10)
    parser.add_argument("--batch", type=int, default=5)
    parser.add_argument("--most", type=int, default=400)
    given = parser.parse_args()
    options = {"n": given.n, "batch": given.batch, "until": {"max_n": given.most}}
    remember_boxes()
    print(
        f"{'box':>5}{'factors':>9}{'hypercube':>13}{'adaptive':>13}{'stops':>17}{'coverage':>14}{'density':>14}"
    )
    seeds = range(1, given.repeat + 1)
    for name in given.boxes:
        limits = BOXES[name]
        for factors in given.factors:
            if factors <= max(limits):
                continue
            sizes = looked_at(given.n, given.batch, given.most)
            cubes = {n: [hypercube(limits, factors, n, seed) for seed in seeds] for n in sizes}
            grown = [adaptive(limits, factors, options, seed) for seed in seeds]
            # (of one that has stopped, what it had then)
            by_rows = {n: [one[min(n, max(one))] for one in grown] for n in sizes}
            needed = [f"{fewest(one, 0.5)} ({fewest(one, 0.25)})" for one in (cubes, by_rows)]
            low, stops, high = np.quantile([max(one) for one in grown], [0.25, 0.5, 0.75])
            ends = zip(*(one[max(one)] for one in grown), strict=True)
            last = [f"{np.median(v):.2f} ({np.quantile(v, 0.25):.2f})" for v in ends]
            print(
                f"{name + ' %':>5}{factors:9}{needed[0]:>13}{needed[1]:>13}"
                f"{f'{stops:.0f} ({low:.0f}-{high:.0f})':>17}{last[0]:>14}{last[1]:>14}",
                flush=True,
            )


if __name__ == "__main__":
    main()

"""How often comparisons name a difference where there is none, and how often their intervals hold the truth.

All levels are equal. What is drawn: ``--settings`` settings with ``--seeds`` seeds each, where noise of one
of the ``--shapes`` is correlated by the shared seed: by ``--correlations`` between the settings of a level, and by
``--between-levels`` between the levels of a setting. The designs:

* ``paired``: all settings and levels share their seeds (``policy: common``);
* ``unpaired``: every run has a seed of its own (``policy: independent``);
* ``nested``: no setting occurs with two levels; all rows share the seeds of their repetitions.

``alarms``: per cent of the trials in which a pair has a corrected p of at most 5 %. ``covered``: per cent of
``--intervals`` trials in which the interval of the difference of the first pair holds 0; ``level``: in which
that of the first level's mean holds the true one. A trial draws seeds; the settings stay.

    python tests/benchmarks/comparison_false_alarms.py [--trials 2000] [--seeds 3 5 10 30] [--csv FILE]

The smallest run: ``--trials 2 --intervals 1 --seeds 3 --settings 2 --correlations 0``.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from palaestrai_mosaik.analysis.comparison import ComparisonOptions, compare
from palaestrai_mosaik.analysis.comparison.hypothesis_tests import holm, rank_sum, signed_rank, two_way
from palaestrai_mosaik.analysis.comparison.pairs import by_seed
from palaestrai_mosaik.analysis.comparison.resampling import UnpairedRuns

FloatArray = npt.NDArray[np.float64]

#: a standard normal value -> one of the shape, the mean of which is 0
SHAPES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "normal": lambda z: z,
    "heavy": lambda z: np.asarray(stats.t.ppf(stats.norm.cdf(z), 3)),
    "skewed": lambda z: np.asarray(np.exp(z) - math.exp(0.5)),
    "ties": np.rint,
    "binary": lambda z: np.where(z > 0, 0.5, -0.5),
}
DESIGNS = ("paired", "unpaired", "nested")
LEVEL = 0.05


def noise(
    levels: int, settings: int, seeds: int, between: tuple[float, float], draw: np.random.Generator
) -> FloatArray:
    """Return normal noise: (levels, settings, seeds), correlated ``between`` settings and levels."""
    of_settings, of_levels = between

    def some(count: int) -> FloatArray:
        shared = draw.normal(size=(count, 1, seeds))
        return math.sqrt(of_settings) * shared + math.sqrt(1 - of_settings) * draw.normal(
            size=(count, settings, seeds)
        )

    return np.asarray(math.sqrt(of_levels) * some(1) + math.sqrt(1 - of_levels) * some(levels))


def tested(design: str, values: FloatArray, draw: np.random.Generator) -> FloatArray:
    """Return p of each pair of levels, by the tests of comparisons: ``values`` (levels, settings, seeds)."""
    _, settings, seeds = values.shape
    found = []
    for a, b in combinations(values, 2):
        if design == "paired":
            p, _ = signed_rank(by_seed(list(a - b), [np.arange(seeds)] * settings))
        elif design == "unpaired":
            p, _ = rank_sum(list(a), list(b), draw)
        else:
            rows, repetitions = np.indices((settings, seeds)).reshape(2, -1)
            p, _ = two_way(*(UnpairedRuns.of(side.ravel(), rows, repetitions) for side in (a, b)))
        found.append(p)
    return np.array(found)


def planned(design: str, levels: int, settings: int, seeds: int) -> pd.DataFrame:
    """Return the runs of the design without values; where nested, level ``i`` has settings of its own."""
    rows: list[dict[str, Any]] = []
    for (level, setting), repetition in product(product(range(levels), range(settings)), range(seeds)):
        own = f"{level}-{setting}" if design == "nested" else str(setting)
        place = {"row": level * settings + setting, "repetition": repetition}
        rows.append({**place, "run": len(rows), "agent": f"a{level}", "setting": own})
    return pd.DataFrame(rows)


def trials(case: argparse.Namespace, seed: int) -> dict[str, float]:
    """Return the shares of the trials of one case; NaN where none was made."""
    draw = np.random.default_rng([seed, case.levels, case.settings, case.seeds, int(1000 * case.correlation)])
    common = case.design != "unpaired"
    between = (case.correlation, case.between_levels) if common else (0.0, 0.0)

    def values() -> FloatArray:
        z = noise(case.levels, case.settings, case.seeds, between, draw)
        return np.asarray(SHAPES[case.shape](z))

    alarms = [bool((holm(tested(case.design, values(), draw)) <= LEVEL).any()) for _ in range(case.trials)]
    frame = planned(case.design, case.levels, case.settings, case.seeds)
    covered, level = [], []
    for trial in range(case.intervals):
        options = ComparisonOptions(common_seeds=common, seed=trial)
        found = compare(frame.assign(y=values().ravel()), "agent", "y", ["setting"], options)
        pair, first = found.pairs.iloc[0], found.levels.iloc[0]
        covered.append(_holds(pair["difference_low"], pair["difference_high"]))
        level.append(_holds(first["mean_low"], first["mean_high"]))
    return {"alarms": _share(alarms), "covered": _share(covered), "level": _share(level)}


def _holds(low: float, high: float) -> float:
    return math.nan if math.isnan(low) else float(low <= 0 <= high)


def _share(found: list[Any]) -> float:
    known = np.array(found, dtype=float)
    known = known[~np.isnan(known)]
    return 100 * float(known.mean()) if len(known) else math.nan


def cases(arguments: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """Yield what is simulated, without what makes no difference."""
    for design, shape, settings, seeds, levels in product(
        arguments.designs, arguments.shapes, arguments.settings, arguments.seeds, arguments.levels
    ):
        for correlation in arguments.correlations if design != "unpaired" else [0.0]:
            if design == "paired" and settings == 1 and correlation != arguments.correlations[0]:
                continue
            yield argparse.Namespace(
                design=design,
                shape=shape,
                settings=settings,
                seeds=seeds,
                levels=levels,
                correlation=correlation,
                between_levels=arguments.between_levels,
                trials=arguments.trials,
                intervals=arguments.intervals,
            )


def main() -> None:
    """Print a row per case."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--designs", nargs="+", choices=DESIGNS, default=list(DESIGNS))
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=["normal"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 5, 10, 30])
    parser.add_argument("--settings", type=int, nargs="+", default=[1, 3, 10])
    parser.add_argument("--levels", type=int, nargs="+", default=[2])
    parser.add_argument("--correlations", type=float, nargs="+", default=[0.0, 0.1, 0.3, 0.6, 0.9])
    parser.add_argument("--between-levels", type=float, default=0.3)
    parser.add_argument("--intervals", type=int, default=0, help="trials of intervals, which take longer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv")
    arguments = parser.parse_args()
    rows = []
    shown = ("design", "shape", "settings", "seeds", "levels", "correlation")
    print(*(f"{name:>11}" for name in (*shown, "alarms %", "covered %", "level %")))
    for case in cases(arguments):
        told = {name: getattr(case, name) for name in shown}
        row = told | trials(case, arguments.seed)
        rows.append(row)
        print(
            *(f"{value:11.1f}" if isinstance(value, float) else f"{value:>11}" for value in row.values()),
            flush=True,
        )
    if arguments.csv:
        pd.DataFrame(rows).to_csv(arguments.csv, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()

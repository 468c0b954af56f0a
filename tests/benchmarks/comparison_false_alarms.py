"""How often comparisons name a difference where there is none, and how often their intervals hold the truth.

All levels are equal. What is drawn: ``--settings`` settings with ``--seeds`` seeds each, where noise of one
of the ``--shapes`` is correlated by the shared seed: by ``--correlations`` between the settings of a level, and by
``--between-levels`` between the levels of a setting. The designs:

* ``paired``: all settings and levels share their seeds (``policy: common``);
* ``unpaired``: every run has a seed of its own (``policy: independent``);
* ``nested``: no setting occurs with two levels; all rows share the seeds of their repetitions.

``alarms``: per cent of the trials in which a pair has a corrected p of at most 5 %, of the difference of means;
``t``: the same by Student's or Welch's t alone; ``improvement``: of the probability of improvement. The interval of a
difference holds 0 in all other trials of two levels. ``level``: per cent of ``--intervals`` trials in which the interval
of the first level's mean holds the true one. A trial draws seeds; the settings stay. ``--effect``: what is added
to the first level, for power; ``--lost``: the share of runs that are lost; ``--scale``: how much more the first level varies.
``--lose``: which runs these are: ``any``, ``bad`` (the lowest ones of all levels) or ``first`` (the lowest ones of the
first level). ``winner``: per cent of ``--winners`` trials in which ``compare`` calls a level better than another;
``finished``: in which it would if lost runs did not count.

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

from palaestrai_mosaik.arsenai.analysis.comparison import ComparisonOptions, compare
from palaestrai_mosaik.arsenai.analysis.comparison.aggregates import UnpairedRuns
from palaestrai_mosaik.arsenai.analysis.comparison.pairs import by_seed
from palaestrai_mosaik.arsenai.analysis.comparison.studentized import (
    improvement,
    nested_improvement,
    nested_means,
    paired_means,
    unpaired_means,
)
from palaestrai_mosaik.arsenai.design.methods.significance import holm

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
LOSE = ("any", "bad", "first")
LEVEL = 0.05
TESTS = ("alarms", "t", "improvement")


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
    """Return p of each pair of levels, (tests, pairs): of means, of t alone, of improvement.

    ``values``: (levels, settings, seeds), NaN where a run is lost.
    """
    _, settings, seeds = values.shape
    confidence = 1 - LEVEL
    found = []
    for a, b in combinations(values, 2):
        there = np.isfinite(a) & np.isfinite(b) if design == "paired" else np.ones(a.shape, dtype=bool)
        x = [one[kept & np.isfinite(one)] for one, kept in zip(a, there, strict=True)]
        y = [one[kept & np.isfinite(one)] for one, kept in zip(b, there, strict=True)]
        t = math.nan
        if design == "paired":
            numbers = [np.flatnonzero(kept) for kept in there]
            contributions, weights = by_seed([p - q for p, q in zip(x, y, strict=True)], numbers)
            means = paired_means(contributions, weights, confidence, draw)
            chance = improvement(x, y, numbers, confidence, draw)
            t = stats.ttest_1samp(contributions, 0).pvalue
        elif design == "unpaired":
            means, chance = (
                unpaired_means(x, y, confidence, draw),
                improvement(x, y, None, confidence, draw),
            )
            if settings == 1:
                t = stats.ttest_ind(x[0], y[0], equal_var=False).pvalue
        else:
            rows, repetitions = np.indices((settings, seeds)).reshape(2, -1)
            sides = [
                UnpairedRuns.of(one[kept], rows[kept], repetitions[kept])
                for one, kept in ((side.ravel(), np.isfinite(side.ravel())) for side in (a, b))
            ]
            means, chance = nested_means(*sides, confidence), nested_improvement(*sides, confidence)
        found.append((means.p, t, chance.p))
    return np.array(found).T


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
        found = np.asarray(SHAPES[case.shape](z))
        found[0] = case.scale * found[0] + case.effect
        # what is low is bad
        score = draw.random(found.shape) if case.lose == "any" else stats.norm.cdf(z)
        if case.lose == "first":
            score[1:] = 1.0
        found[score < case.lost] = math.nan
        return found

    drawn = [[_alarm(p) for p in tested(case.design, values(), draw)] for _ in range(case.trials)]
    alarms = dict(zip(TESTS, np.array(drawn, dtype=float).reshape(-1, len(TESTS)).T, strict=True))
    frame = planned(case.design, case.levels, case.settings, case.seeds)
    level = []
    for trial in range(case.intervals):
        options = ComparisonOptions(common_seeds=common, seed=trial)
        found = compare(frame.assign(y=values().ravel()), "agent", "y", ["setting"], options)
        first = found.levels.iloc[0]
        level.append(_holds(first["mean_low"] - case.effect, first["mean_high"] - case.effect))
    named = []
    for trial in range(case.winners):
        options = ComparisonOptions(common_seeds=common, seed=trial, better="higher", resamples=1)
        pairs = compare(frame.assign(y=values().ravel()), "agent", "y", ["setting"], options).pairs
        named.append(((pairs["favours"] != "").any(), (pairs["p_holm"] <= LEVEL).any()))
    winner, finished = zip(*named, strict=True) if named else ((), ())
    return {
        **{name: _share(list(one)) for name, one in alarms.items()},
        **{"level": _share(level), "winner": _share(list(winner)), "finished": _share(list(finished))},
    }


def _alarm(p: FloatArray) -> float:
    """Return whether a pair is told to differ; NaN where no pair is tested."""
    return math.nan if np.isnan(p).all() else float((holm(p) <= LEVEL).any())


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
                effect=arguments.effect,
                lost=arguments.lost,
                lose=arguments.lose,
                winners=arguments.winners,
                scale=arguments.scale,
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
    parser.add_argument("--effect", type=float, default=0.0)
    parser.add_argument("--lost", type=float, default=0.0)
    parser.add_argument("--lose", choices=LOSE, default="any")
    parser.add_argument(
        "--winners", type=int, default=0, help="trials of whole comparisons, which take longer"
    )
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--csv")
    arguments = parser.parse_args()
    rows = []
    shown = ("design", "shape", "settings", "seeds", "levels", "correlation")
    shares = (*TESTS, "level", "winner", "finished")
    print(*(f"{name:>11}" for name in (*shown, *(f"{name} %" for name in shares))))
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

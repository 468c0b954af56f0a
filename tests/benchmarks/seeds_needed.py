"""How many seeds a comparison of two levels needs to find a difference: the table of docs/comparing.md.

The outcome of a run is normal, with a standard deviation of 1; the first level is better by ``--effects``. Where seeds
are shared, the runs of a seed are correlated between the levels (``--correlations``: 0.5 means that half of the variance
comes from the seed). A study finds the difference if p is at most 0.05 divided by ``--pairs``: the first step of Holm's
correction, so with several pairs the strictest case.

A cell is the smallest number of seeds with which Student's t test finds the difference in ``--power`` of the studies (exact,
from the noncentral t distribution), and with which p as ``arsenai compare`` computes it does, too, in ``--trials``
simulated studies (less than two standard errors below). The share of these is in parentheses, in per cent.

    python tests/benchmarks/seeds_needed.py [--trials 1000] [--pairs 1 4]

The smallest run: ``--trials 4 --effects 3 --correlations 0.5 --pairs 1``.
"""

from __future__ import annotations

import argparse
import math
from itertools import count

import numpy as np
from scipy import stats

from palaestrai_mosaik.arsenai.analysis.comparison.studentized import paired_means, unpaired_means

LEVEL = 0.05
#: seeds of their own instead of a correlation
OWN = math.nan


def p_value(seeds: int, effect: float, correlation: float, draw: np.random.Generator) -> float:
    """Return the p value of one study; ``correlation`` is NaN where every run has a seed of its own."""
    runs = draw.normal(size=(2, seeds))
    if math.isnan(correlation):
        return unpaired_means([runs[0] + effect], [runs[1]], 1 - LEVEL, draw).p
    shared = math.sqrt(correlation) * draw.normal(size=seeds)
    first, second = math.sqrt(1 - correlation) * runs + shared
    return paired_means(first + effect - second, np.ones(seeds), 1 - LEVEL, draw).p


def power_of_t(seeds: int, effect: float, correlation: float, level: float) -> float:
    """Return the power of Student's two-sided t test, without the other tail."""
    paired = not math.isnan(correlation)
    freedom = seeds - 1 if paired else 2 * seeds - 2
    error = math.sqrt(2 * (1 - correlation if paired else 1) / seeds)
    return float(stats.nct.sf(stats.t.isf(level / 2, freedom), freedom, effect / error))


def needed(effect: float, correlation: float, pairs: int, arguments: argparse.Namespace) -> str:
    """Return the smallest number of seeds with which enough studies find the effect, and their share in per cent."""
    level = LEVEL / pairs
    least = arguments.power - 2 * math.sqrt(arguments.power * (1 - arguments.power) / arguments.trials)
    for seeds in count(2):
        if power_of_t(seeds, effect, correlation, level) < arguments.power:
            continue
        draw = np.random.default_rng([arguments.seed, seeds, int(100 * effect), pairs])
        share = np.mean([p_value(seeds, effect, correlation, draw) <= level for _ in range(arguments.trials)])
        if share >= least:
            return f"{seeds} ({100 * share:.0f})"
    raise AssertionError("no number of seeds is enough")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--effects", type=float, nargs="+", default=[0.5, 0.75, 1.0, 1.5, 2.0])
    parser.add_argument("--correlations", type=float, nargs="+", default=[0.8, 0.5])
    parser.add_argument("--pairs", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--power", type=float, default=0.8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    columns = [(pairs, shared) for pairs in arguments.pairs for shared in (*arguments.correlations, OWN)]
    names = [
        f"{'own seeds' if math.isnan(shared) else f'shared, correlation {shared:g}'}, {pairs} pair{'s'[: pairs > 1]}"
        for pairs, shared in columns
    ]
    print("| difference |", " | ".join(names), "|")
    print("|---" * (len(columns) + 1) + "|")
    for effect in arguments.effects:
        cells = [needed(effect, shared, pairs, arguments) for pairs, shared in columns]
        print(f"| {effect:g} |", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()

"""The least numbers of settings, levels and seeds that an analysis can use."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: fewest settings with which a box can be distinguished from chance
FEWEST_SETTINGS = 20
#: largest number of levels that are compared; more of them are a scale, not a choice
MOST_LEVELS = 30
#: number of seeds below which a warning is issued (Agarwal et al. 2021; Colas et al. 2018)
FEW_SEEDS = 10
# Largest number of repetitions in a search for a sufficient number.
_MOST_SEEDS = 1000


def significance_level(confidence: float) -> float:
    """Return the largest p that is significant: 1 - confidence, plus a tolerance for rounding.

    In floating point, 1 - 0.8 is less than 0.2, which is the p of one permutation in five.
    """
    return (1 - confidence) * (1 + 1e-12)


def least_p_of_pairs(pairs: int) -> float:
    """Return the smallest two-sided p of a test of ``pairs`` pairs: one of 2^pairs choices of signs, and its opposite."""
    return float(2.0 ** (1 - pairs))


def least_p_of_runs(sizes: Sequence[tuple[int, int]]) -> float:
    """Return the smallest two-sided p of unpaired runs.

    It is that of one way to deal the runs to the sides; with sides of equal size, also of the opposite one.

    Args:
        sizes: numbers of runs of both sides, for each stratum.
    """
    turned = all(a == b for a, b in sizes)
    return min(1.0, (1 + turned) / math.prod(math.comb(a + b, a) for a, b in sizes))


def enough_pairs(tests: int, alpha: float) -> int:
    """Return the number of pairs with which a paired test can be significant.

    Args:
        tests: number of tests that Holm's correction counts.
        alpha: significance level, such as 0.05.
    """
    enough = (n for n in range(2, _MOST_SEEDS) if tests * least_p_of_pairs(n) <= alpha)
    return next(enough, _MOST_SEEDS)


def enough_runs(tests: int, alpha: float, strata: int = 1) -> int:
    """Return the number of runs per side and stratum with which an unpaired test can be significant.

    Args:
        tests: number of tests that Holm's correction counts.
        alpha: significance level, such as 0.05.
        strata: number of settings that both sides have.
    """
    enough = (n for n in range(1, _MOST_SEEDS) if tests * least_p_of_runs([(n, n)] * strata) <= alpha)
    return next(enough, _MOST_SEEDS)

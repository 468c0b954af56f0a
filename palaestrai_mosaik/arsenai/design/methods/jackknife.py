"""Confidence intervals from the spread between independent randomisations of a quasi-random sequence.

Computes an estimate from all blocks, and again without each randomisation in turn (delete-one jackknife over groups,
valid for ratios of means). Sources: Owen (1997), "Monte Carlo variance of scrambled net quadrature"; Tukey (1958),
"Bias and confidence in not quite large samples"; for groups of unequal size after a loss of blocks: Busing, Meijer and
van der Leeden (1999), "Delete-m jackknife for unequal m".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from ..samplers.sobol import ARGUMENT
from .method import Index, Study

#: note for samples with a single sequence
ONE_SEQUENCE = (
    "all points are of one sequence, which has no spread: intervals take them for independent, and are usually too wide "
    "(scramble: false)"
)


@dataclass(frozen=True)
class Estimates:
    """Estimates from all blocks, and without each randomisation.

    Attributes:
        value: (indices,) estimates from all blocks.
        without: (randomisations, indices) estimates without each randomisation.
        share: (randomisations,) share of the blocks in each randomisation.
        notes: notes about the intervals.
    """

    value: FloatArray
    without: FloatArray
    share: FloatArray
    notes: tuple[str, ...] = ()

    def half_widths(
        self, confidence: float, scale: Callable[[FloatArray], FloatArray] = np.asarray
    ) -> FloatArray:
        """Compute the half-widths of Student's t intervals, (indices,); NaN if an estimate is not finite.

        Args:
            confidence: confidence of the intervals.
            scale: transforms the estimates; the half-widths are on this scale.
        """
        from scipy.stats import t

        count, complement = len(self.share), (1 - self.share)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            value, without = scale(self.value), scale(self.without)
            centre = count * value - (complement * without).sum(axis=0)
            # pseudo-values of Busing et al., less their mean
            deviation = (value - complement * without) / self.share[:, None] - centre
            variance = (self.share[:, None] / complement * deviation**2).mean(axis=0)
            return np.asarray(t.ppf(0.5 + confidence / 2, count - 1) * np.sqrt(variance))

    def never_negative(self, index: str, names: Sequence[str], first: int, confidence: float) -> list[Index]:
        """Build indices from means of squares, with intervals that end at 0.

        Such estimates are skewed: if they are too low, so is their spread. The upper ends are therefore computed from
        logarithms, unless the plain interval reaches further.

        Args:
            index: name of the index.
            names: names of the factors.
            first: position of the first factor's estimate; the others follow.
            confidence: confidence of the intervals.
        """
        half, log_half = self.half_widths(confidence), self.half_widths(confidence, np.log)
        with np.errstate(over="ignore", invalid="ignore"):
            log_reach = self.value * np.expm1(log_half)
        # a randomisation without any effect has no logarithm
        reach = np.where(np.isfinite(log_reach), np.maximum(half, log_reach), half)
        # subtracted noise can make a mean negative; it is then the end of its own interval
        low, high = np.maximum(self.value - half, np.minimum(self.value, 0.0)), self.value + reach
        return [
            Index(index, name, float(self.value[i]), float(low[i]), float(high[i]))
            for i, name in enumerate(names, first)
        ]


def jackknife(study: Study, parts: FloatArray, estimate: Callable[[FloatArray], FloatArray]) -> Estimates:
    """Compute estimates that are functions of means over blocks.

    Args:
        study: the study, with two or more blocks.
        parts: (blocks, parts) terms to average over blocks.
        estimate: maps means, (samples, parts), to indices, (samples, indices).
    """
    group, notes = _randomization(study, len(parts))
    sizes = np.bincount(group)
    sums = np.zeros((len(sizes), parts.shape[1]))
    np.add.at(sums, group, parts)
    without = (sums.sum(axis=0) - sums) / (len(parts) - sizes)[:, None]
    value = estimate(parts.mean(axis=0, keepdims=True))[0]
    return Estimates(value, estimate(without), sizes / len(parts), notes)


def _randomization(study: Study, blocks: int) -> tuple[IntArray, tuple[str, ...]]:
    """Return the number of each block's randomisation, from 0, and notes about it."""
    count = int(study.arguments.get(ARGUMENT, 1))
    if count == 1:
        return np.arange(blocks), (ONE_SEQUENCE,)
    number = np.unique(study.block)
    return np.asarray(np.unique(number % count, return_inverse=True)[1]), ()

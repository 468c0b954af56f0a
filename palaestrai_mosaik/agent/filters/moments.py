"""Count, mean and sum of squared deviations of many readings, merged as Chan et al. do.

T. F. Chan, G. H. Golub, R. J. LeVeque: Updating formulae and a pairwise algorithm for
computing sample variances. Stanford University, STAN-CS-79-773, 1979.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatVector = npt.NDArray[np.float64]


class Moments(NamedTuple):
    """Moments of each place of several vectors of shape ``(size,)``; never changed in place.

    ``n`` (how many), ``mean``, ``m2`` (the sum of squared deviations from the mean), all of that shape.
    What is not finite is left out, so that ``n`` may differ between places.
    """

    n: FloatVector
    mean: FloatVector
    m2: FloatVector

    @classmethod
    def none(cls, size: int) -> Moments:
        """Return the moments of no vectors."""
        return cls(np.zeros(size), np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, vectors: Sequence[FloatVector]) -> Moments:
        """Return the moments of one or more ``vectors``."""
        if len(vectors) == 1 and np.isfinite(vectors[0]).all():
            size = len(vectors[0])
            return cls(np.ones(size), vectors[0], np.zeros(size))
        rows = np.array(vectors)
        there = np.isfinite(rows)
        n = there.sum(axis=0, dtype=np.float64)
        mean = np.where(there, rows, 0.0).sum(axis=0) / np.maximum(n, 1.0)
        # what is left out adds nothing
        m2 = np.square(np.where(there, rows, mean) - mean).sum(axis=0)
        return cls(n, mean, m2)

    def merged(self, other: Moments) -> Moments:
        """Return the moments of both together."""
        n = self.n + other.n
        shift = other.mean - self.mean
        step = shift * other.n / np.maximum(n, 1.0)
        return Moments(n, self.mean + step, self.m2 + other.m2 + shift * step * self.n)

    def variance(self) -> FloatVector:
        """Return the variance of each place (mean squared deviation), 1 for less than two values."""
        return np.where(self.n > 1.0, self.m2 / np.maximum(self.n, 1.0), 1.0)

"""Independently randomised Sobol' sequences.

The points of one sequence are not independent, so their variance says little about the error of an estimate. The spread
between estimates from independent randomisations does. Sources: Owen (1997), "Monte Carlo variance of scrambled net
quadrature"; L'Ecuyer (2018), "Randomized quasi-Monte Carlo: an introduction for practitioners". The implementation is
scipy's: Matousek's linear scramble and a digital shift.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from ..model import DesignSpec
from .option import random_of

#: Number of randomisations. More of them reduce Student's t, but leave fewer points in each sequence.
RANDOMIZATIONS = 8
#: name of the number of randomisations in a sample's arguments
ARGUMENT = "randomizations"


def randomized(spec: DesignSpec, n: int, dimensions: int) -> tuple[FloatArray, dict[str, Any]]:
    """Draw n points in [0, 1) from independently randomised sequences.

    Point i belongs to randomisation i modulo 8, so a larger n continues each sequence and keeps the first points. With
    fewer than 8 points, each is a randomisation of its own.

    Returns:
        The points, (n, dimensions), and the number of randomisations as a sample's argument.
    """
    count = min(n, RANDOMIZATIONS)
    each = -(-n // count)
    sequences = [_points(dimensions, each, random_of(spec, "randomization", i)) for i in range(count)]
    return np.stack(sequences, axis=1).reshape(-1, dimensions)[:n], {ARGUMENT: count}


def plain(n: int, dimensions: int) -> tuple[FloatArray, dict[str, Any]]:
    """Return the first n points of the unscrambled sequence, (n, dimensions), and the sample's argument."""
    return _points(dimensions, n, None), {ARGUMENT: 1}


def _points(dimensions: int, n: int, generator: np.random.Generator | None) -> FloatArray:
    """Return the first n points of the sequence, scrambled if there is a generator."""
    from scipy.stats import qmc

    sequence = qmc.Sobol(dimensions, scramble=generator is not None, seed=generator)
    # scipy warns about numbers of points that are not powers of two
    points: FloatArray = sequence.random_base2((n - 1).bit_length())[:n]
    return points

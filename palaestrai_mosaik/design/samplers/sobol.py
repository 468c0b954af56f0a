"""Saltelli's sample for Sobol' indices.

Source: Saltelli (2002), "Making best use of model evaluations to compute sensitivity indices",
by SALib; the base sequence is Sobol's, scrambled after Owen and Matousek.
"""

from __future__ import annotations

import numpy as np

from ..model import DesignSpec
from ..sample import Sample
from .option import Option, Sampler, flag, problem, random_of, size_of, units

#: SALib's base sequence has 30 bits
_LARGEST = 2**30


def draw(spec: DesignSpec) -> Sample:
    """Return blocks of D + 2 rows, with ``second_order`` 2D + 2 (D: groups and single axes).

    The blocks of n = 64 are the first of those of n = 128.
    """
    from SALib.sample import sobol

    n = size_of(spec)
    second_order, scramble = SOBOL.option(spec, "second_order"), SOBOL.option(spec, "scramble")
    unit = sobol.sample(
        problem(spec), n, calc_second_order=second_order, scramble=scramble, seed=random_of(spec)
    )
    arguments = {"n": n, "second_order": second_order, "scramble": scramble}
    return Sample(unit, np.repeat(np.arange(n, dtype=np.int64), len(unit) // n), arguments)


def _rows(spec: DesignSpec) -> int:
    count = len(units(spec))
    return size_of(spec) * (2 * count + 2 if SOBOL.option(spec, "second_order") else count + 2)


def _size(spec: DesignSpec, n: int) -> str | None:
    lower = 1 << (max(n, 2).bit_length() - 1)
    if n == lower and n <= _LARGEST:
        return None
    return (
        f"n must be a power of two, or the Sobol' sequence loses its balance; found {n}, "
        f"the nearest are {lower} and {2 * lower}"
    )


SOBOL: Sampler = Sampler(
    "sobol",
    "Sobol' sample (Saltelli)",
    draw,
    _rows,
    unit="base points, a power of two",
    size_check=_size,
    options=(
        Option("second_order", True, flag, "rows for the interactions of pairs, too"),
        Option("scramble", True, flag, "scramble the sequence by the design's seed"),
    ),
    groups=True,
    made_for="sobol",
    inner="sobol with scramble: true",
    includes_bounds=lambda spec: SOBOL.option(spec, "scramble") is False,
    methods=("sobol", "shapley"),
)

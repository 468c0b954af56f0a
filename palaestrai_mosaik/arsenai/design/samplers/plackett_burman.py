"""Plackett-Burman designs: main effects of k two-level factors in little more than k runs.

Source: Plackett and Burman (1946), "The design of optimum multifactorial experiments"; matrices by
Paley (1933), "On orthogonal matrices". With 8, 12, 20, 24, 32, ... rows, these are the published
cyclic designs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ..distributions import grid
from ..model import DesignSpec
from .sampler import Option, Sample, Sampler, flag, single_rows

Signs = npt.NDArray[np.int64]

#: largest number of rows
LARGEST = 512


def draw_two_levels(spec: DesignSpec) -> Sample:
    """Return the rows, high before low as published; ``foldover`` appends all of them with opposite signs.

    In a foldover, main effects are not confounded with interactions of two factors.
    """
    n = _runs(spec)
    signs = plackett_burman(n)[:, : len(spec.axes)]
    foldover = PLACKETT_BURMAN.option(spec, "foldover")
    if foldover:
        signs = np.vstack([signs, -signs])
    ends = [grid(axis, 2)[[0, -1]] for axis in spec.axes]
    unit = np.stack([end[(signs[:, number] > 0).astype(int)] for number, end in enumerate(ends)], axis=1)
    aliased = "main effects are partly mixed with interactions of two factors; foldover: true separates them"
    # all combinations of two factors leave nothing to mix
    clear = foldover or len(spec.axes) < 3
    return single_rows(unit, {"n": n, "foldover": foldover}, *([] if clear else [aliased]))


def plackett_burman(n: int) -> Signs:
    """Return the design of ``n`` rows and n - 1 columns of -1 and 1; the last row is all -1.

    Raises:
        ValueError: no design of ``n`` rows is implemented.
    """
    matrix = _hadamard(n)
    if matrix is None:
        raise ValueError(f"no design of {n} runs is known here")
    # normalise the first column to 1 and the first row to -1, which becomes the last
    matrix = matrix * matrix[:, :1]
    matrix = -matrix * matrix[:1]
    return np.vstack([matrix[1:, 1:], matrix[:1, 1:]])


def _hadamard(n: int) -> Signs | None:
    """Return a Hadamard matrix, (n, n), of Paley's first or second kind, or doubled; None for other n.

    Those of the second kind, and those doubled from them, are not normalised.
    """
    if n in (1, 2):
        return np.array([[1, 1], [1, -1]])[:n, :n]
    if n % 4 == 0 and _is_prime(n - 1):
        return _first_kind(n - 1)
    if n % 4 == 0 and _is_prime(n // 2 - 1) and (n // 2 - 1) % 4 == 1:
        return _second_kind(n // 2 - 1)
    half = _hadamard(n // 2) if n % 2 == 0 else None
    return None if half is None else np.kron(np.array([[1, 1], [1, -1]]), half)


def _first_kind(q: int) -> Signs:
    # row 0 and column 0 are ones; inside, -1 marks the high levels of the cyclic design
    inner = -_cyclic(q) - np.eye(q, dtype=np.int64)
    matrix = np.ones((q + 1, q + 1), dtype=np.int64)
    matrix[1:, 1:] = inner
    return matrix


def _second_kind(q: int) -> Signs:
    conference = np.ones((q + 1, q + 1), dtype=np.int64)
    conference[0, 0] = 0
    conference[1:, 1:] = _cyclic(q)
    identity = np.eye(q + 1, dtype=np.int64)
    ones, turned = np.array([[1, 1], [1, -1]]), np.array([[1, -1], [-1, -1]])
    return np.kron(conference, ones) + np.kron(identity, turned)


def _cyclic(q: int) -> Signs:
    """Return the matrix of the quadratic characters of column - row modulo the prime ``q``."""
    squares = {number * number % q for number in range(1, q)}
    character = np.array([0, *(1 if number in squares else -1 for number in range(1, q))])
    characters: Signs = character[(np.arange(q)[None, :] - np.arange(q)[:, None]) % q]
    return characters


def _is_prime(number: int) -> bool:
    return number >= 2 and all(number % divisor for divisor in range(2, int(number**0.5) + 1))


def _known(n: int) -> bool:
    return n % 4 == 0 and n <= LARGEST and _hadamard(n) is not None


def _runs(spec: DesignSpec) -> int:
    if spec.sampler.n is not None:
        return spec.sampler.n
    return next(n for n in range(4, LARGEST + 1, 4) if n > len(spec.axes) and _known(n))


def _size(spec: DesignSpec, n: int) -> str | None:
    if n > len(spec.axes) and _known(n):
        return None
    near = [size for size in range(4, LARGEST + 1, 4) if size > len(spec.axes) and _known(size)]
    near = sorted(sorted(near, key=lambda size: abs(size - n))[:2])
    return (
        f"n must be a multiple of 4, larger than the number of factors ({len(spec.axes)}), with a known design; "
        f"found {n}, the nearest are {' and '.join(map(str, near))}"
    )


PLACKETT_BURMAN: Sampler = Sampler(
    "plackett_burman",
    "Plackett-Burman design (two levels)",
    draw_two_levels,
    lambda spec: _runs(spec) * (2 if PLACKETT_BURMAN.option(spec, "foldover") else 1),
    size="optional",
    size_check=_size,
    options=(Option("foldover", False, flag, "the same rows again with all levels exchanged"),),
    includes_bounds=lambda spec: True,
    uses_weights=False,
    two_level=True,
    scales_with=lambda spec: None,
    check=lambda spec: (
        []
        if len(spec.axes) < LARGEST
        else [(("sampler",), f"Plackett-Burman designs have fewer than {LARGEST} factors")]
    ),
    methods=("anova",),
)

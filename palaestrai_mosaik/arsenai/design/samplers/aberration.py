"""Minimum aberration: the fractions of a two-level factorial with the fewest short words.

A word is a set of columns with the product 1. Compare the numbers of words of two fractions with as many factors and
rows, from the shortest length on: at the first difference, the fraction with fewer words has less aberration (Fries
and Hunter 1980, "Minimum aberration 2^(k-p) designs", Technometrics 22). At resolution IV, fractions of minimum
aberration have the fewest interactions of two factors that are confounded with each other.

The generators of up to 11 factors in 32 rows are those of Box, Hunter and Hunter, "Statistics for
Experimenters", table 12.15, and of the NIST/SEMATECH e-Handbook of Statistical Methods, table
5.3.3.4.7. The other generators were found by exchanging columns. Their words are as few as those of Chen,
Sun and Wu (1993), "A catalogue of two-level and three-level fractional factorial designs with small
runs", International Statistical Review 61, which is complete up to 64 rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from palaestrai_mosaik.types.arrays import IntArray

#: generated columns by number of factors and rows, as products of the base factors a, b, ...
_GENERATORS = {
    (9, 32): "bcde acde abde abce",
    (10, 32): "abcd abce abde acde bcde",
    (11, 32): "abc bcd cde acd ade bde",
    (12, 32): "ade ace abe bcd acd abd abc",
    (9, 64): "abcf abde acd",
    (10, 64): "abcf abde adf bce",
    (11, 64): "abcf acde abde adf bce",
    (12, 64): "abdf abcf bcde acde cdf abe",
    (13, 64): "abce abcd aef cdf acf bde ade",
    (14, 64): "abce abcd bef aef cdf adf cde bde",
    (15, 64): "abcf abce abcd bef aef cdf adf cde bde",
    (16, 64): "abcf abce abcd cef aef cdf bdf adf cde bde",
    (17, 64): "abcf abce abcd cef bef aef bdf adf cde bde ade",
    (18, 64): "abcf abce abcd cef bef aef cdf bdf adf cde bde ade",
    (19, 64): "abcf abce abcd def cef bef aef cdf bdf adf cde bde ade",
    (20, 64): "abcdef abcf abce abcd def cef bef aef cdf bdf adf cde bde ade",
    (21, 64): "def bef aef cdf adf bcf acf abf cde bde ade bce ace bcd abc",
    (22, 64): "abcde cef bef aef cdf bdf adf bcf acf bde ade bce ace abe bcd abd",
    (23, 64): "abcde cef bef aef cdf bdf adf bcf acf bde ade bce abe bcd acd abd abc",
    (24, 64): "abcde def cef bef aef cdf bdf adf bcf acf abf cde ade bce abe bcd acd abd",
    (25, 64): "abcef def cef aef cdf bdf adf bcf acf abf cde bde ade bce ace abe bcd acd abd",
}


def catalogued(count: int, base: int) -> tuple[int, ...] | None:
    """Return the columns of ``count`` factors in 2**``base`` rows, or None if they are not in the catalogue."""
    words = _GENERATORS.get((count, 2**base))
    if words is None:
        return None
    products = (sum(1 << "abcdef".index(letter) for letter in word) for word in words.split())
    return (*(1 << number for number in range(base)), *products)


def around(inner: Sequence[int], base: int) -> tuple[int, ...]:
    """Return all products of an odd number of ``base`` factors, and the ``inner`` columns of half as many rows.

    With more factors than half of the rows, the result has minimum aberration if the inner columns have it (Chen
    and Hedayat 1996, "2^(n-l) designs with weak minimum aberration", Annals of Statistics 24; Tang and
    Wu 1996, "Characterization of minimum aberration 2^(n-k) designs in terms of their complementary
    designs", ibid.).
    """
    odd = [number for number in range(1, 2**base) if number.bit_count() % 2 == 1]
    last = 1 << (base - 1)
    even = [number | last if number.bit_count() % 2 == 1 else number for number in inner]
    generated = sorted({*odd, *even}, key=lambda number: (-number.bit_count(), -number))
    return (
        *(1 << number for number in range(base)),
        *(number for number in generated if number.bit_count() > 1),
    )


def has_less(columns: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether ``columns`` have less aberration than as many ``others`` in as many rows.

    The numbers of words are compared by the power moments of the rows, which are in the same order and stay small (Xu
    2003, "Minimum moment aberration for nonregular designs and supersaturated designs", Statistica
    Sinica 13).
    """
    mine, theirs = (np.unique(_row_sums(side), return_counts=True) for side in (columns, others))
    if all(np.array_equal(side, other) for side, other in zip(mine, theirs, strict=True)):
        return False
    for power in range(3, len(columns) + 1):
        if (difference := _moment(mine, power) - _moment(theirs, power)) != 0:
            return difference < 0
    return False


def _moment(sums: tuple[IntArray, IntArray], power: int) -> int:
    """Return the sum of a power over all rows; ``sums`` are distinct values and their counts."""
    return sum(int(count) * int(value) ** power for value, count in zip(*sums, strict=True))


def _row_sums(columns: Sequence[int]) -> IntArray:
    """Return the sum of all columns in each row, by a fast Walsh-Hadamard transform."""
    base = max(columns).bit_length()
    sums = np.bincount(columns, minlength=2**base).astype(np.int64)
    for bit in range(base):
        pairs = sums.reshape(-1, 2, 1 << bit)
        sums = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
    return sums

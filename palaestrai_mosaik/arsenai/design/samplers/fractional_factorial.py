"""Fractional factorials: two levels per factor, with generators of minimum aberration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations
from math import comb
from operator import xor
from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import IntArray

from ..distributions import grid
from ..model import DesignSpec
from .sampler import Fault, Option, Sample, Sampler, single_rows, whole

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


LETTERS = "abcdefghjklmnopqrstuvwxyz"
_GENERATOR = re.compile(r"([a-z])\s*=\s*([+-]?)\s*([a-z]+)")
#: largest number of base factors in a search
_MOST_BASE = 16
#: largest number of factors for which the aliases of pairs are listed
_MOST_TOLD = 40

#: columns, and whether each is negative
Columns = tuple[tuple[int, ...], tuple[bool, ...]]


def draw(spec: DesignSpec) -> Sample:
    """Return the rows in standard order; levels are in the middle of their share, ranges at their ends."""
    columns, negative = _columns(spec)
    base = _base(columns)
    rows = np.arange(2**base)
    # standard order: the first base factor changes with every row
    high = np.stack([_parity(rows, column) for column in columns], axis=1) ^ np.array(negative)
    ends = [grid(axis, 2)[[0, -1]] for axis in spec.axes]
    unit = np.stack([end[high[:, number].astype(int)] for number, end in enumerate(ends)], axis=1)
    names = {_letter(number): axis.name for number, axis in enumerate(spec.axes)}
    least = resolution(columns)
    arguments = {
        "letters": names,
        "generators": [
            f"{_letter(number)}={'-' if negative[number] else ''}{_product(column)}"
            for number, column in enumerate(columns)
            if column.bit_count() > 1
        ],
        "resolution": least,
        "aliases": aliases(columns, negative),
    }
    warnings = [] if least is None or least >= 5 else [_WARNINGS[least]]
    return single_rows(unit, arguments, *warnings)


_WARNINGS = {
    2: "resolution II: some main effects cannot be told from each other; the manifest names the aliases",
    3: "resolution III: main effects cannot be told from interactions of two factors; "
    "the manifest names the aliases",
    4: "resolution IV: interactions of two factors cannot be told from each other; "
    "the manifest names the aliases",
}


def resolution(columns: Sequence[int]) -> int | None:
    """Return the smallest number of columns with the product 1, or None for a full factorial."""
    if len(columns) == _base(columns):
        return None
    numbers = range(len(columns))

    def product(chosen: Iterable[int]) -> int:
        return reduce(xor, (columns[number] for number in chosen), 0)

    for length in range(1, len(columns) + 1):
        half, remainder = length // 2, length - length // 2
        # Shorter words were excluded before, so no two halves have the same product, unless together they are a word
        # of this length. Columns may be equal, so halves are compared by their numbers.
        products = {product(chosen_columns): chosen_columns for chosen_columns in combinations(numbers, half)}
        if len(products) < comb(len(columns), half):
            return length
        for chosen_columns in combinations(numbers, remainder):
            other = products.get(product(chosen_columns))
            if other is not None and other != chosen_columns:
                return length
    raise AssertionError("more columns than base factors have a product that is 1")


def aliases(columns: Sequence[int], negative: Sequence[bool]) -> list[list[str]]:
    """Return the groups of main effects and interactions of two factors that are confounded with each other.

    A ``-`` before an effect marks the opposite sign. With more than 40 factors, only main effects are listed.
    """
    effects: list[tuple[tuple[int, ...], int]] = [
        ((number,), column) for number, column in enumerate(columns)
    ]
    if len(columns) <= _MOST_TOLD:
        pairs = combinations(range(len(columns)), 2)
        effects += [((i, j), columns[i] ^ columns[j]) for i, j in pairs]
    groups: dict[int, list[str]] = {}
    signs: dict[int, bool] = {}
    for factors, column in effects:
        sign = reduce(xor, (negative[number] for number in factors))
        sign ^= signs.setdefault(column, sign)
        name = "".join(_letter(number) for number in factors)
        groups.setdefault(column, []).append(f"-{name}" if sign else name)
    return [group for group in groups.values() if len(group) > 1]


def generate(count: int, wanted: int) -> tuple[int, ...]:
    """Return columns of ``count`` factors with resolution ``wanted`` or better, in as few rows as the search finds.

    Up to 64 rows they have minimum aberration (`aberration`), with resolution III up to 128 rows. For larger fractions
    this is not known.

    Args:
        count: number of factors.
        wanted: the least resolution.

    Raises:
        ValueError: no such fraction has at most 2**16 rows.
    """
    for base in range(1, min(count, _MOST_BASE) + 1):
        columns = _longest(count, base, wanted)
        if columns is not None:
            return _fewest_words(columns, base)
        if count == base:
            return _single(base)
    raise ValueError(
        f"no fraction of {count} factors with resolution {wanted} has at most 2**{_MOST_BASE} rows"
    )


def _longest(count: int, base: int, least: int) -> tuple[int, ...] | None:
    """Return the columns of the best resolution that the search finds, or None if it is below ``least``."""
    best = None
    for target in range(least, count + 1):
        columns = _extend(count, base, target)
        if columns is None:
            break
        best = columns
    return best


def _fewest_words(columns: tuple[int, ...], base: int) -> tuple[int, ...]:
    """Return ``columns``, or as many others in as many rows that have less aberration."""
    count, half = len(columns), 2 ** (base - 1)
    others = [catalogued(count, base)]
    if half < count < 2 * half - 1:
        others.append(around(_inner(count - half, base - 1), base))
    for other in others:
        if other is not None and has_less(other, columns):
            columns = other
    return columns


def _inner(count: int, base: int) -> tuple[int, ...]:
    """Return the columns of ``count`` factors in 2**``base`` rows, even if fewer rows would be enough."""
    columns = _longest(count, base, 3)
    return _single(base)[:count] if columns is None else _fewest_words(columns, base)


def _single(base: int) -> tuple[int, ...]:
    return tuple(1 << number for number in range(base))


def _extend(count: int, base: int, least: int) -> tuple[int, ...] | None:
    """Return the base columns and as many generated ones as needed, or None if there are too few of this resolution."""
    single = _single(base)
    if count < base or count >= 2**base:
        return None
    longest = _order(base, least)
    for candidates in (longest[::-1], longest):
        columns, sums = list(single), _sums(single, least - 2)
        for candidate in candidates:
            if len(columns) == count:
                break
            if candidate not in sums[-1]:
                columns.append(candidate)
                sums = _grown(sums, candidate)
        if len(columns) == count:
            return tuple(columns)
    return None


def _order(base: int, least: int) -> list[int]:
    """Return products of base factors in descending length; for resolution IV, those of odd length suffice."""
    products = [number for number in range(1, 2**base) if number.bit_count() >= least - 1]
    if least == 4:
        products = [number for number in products if number.bit_count() % 2 == 1]
    return sorted(products, key=lambda number: (-number.bit_count(), -number))


def _sums(columns: Sequence[int], most: int) -> list[set[int]]:
    """Return the sets of products of up to 0, 1, ... ``most`` columns."""
    sums: list[set[int]] = [{0} for _ in range(most + 1)]
    for column in columns:
        sums = _grown(sums, column)
    return sums


def _grown(sums: list[set[int]], column: int) -> list[set[int]]:
    return [
        products | ({number ^ column for number in sums[length - 1]} if length else set())
        for length, products in enumerate(sums)
    ]


def _columns(spec: DesignSpec) -> Columns:
    written = spec.sampler.options.get("generators")
    count = len(spec.axes)
    if written is None:
        columns = generate(count, FRACTIONAL_FACTORIAL.option(spec, "resolution"))
        return columns, (False,) * count
    generators = dict(_parse(text) for text in written)
    base = [number for number in range(count) if number not in generators]
    bits = {number: 1 << bit for bit, number in enumerate(base)}
    columns = tuple(
        bits[number] if number in bits else reduce(xor, (bits[factor] for factor in generators[number][1]))
        for number in range(count)
    )
    return columns, tuple(number in generators and generators[number][0] for number in range(count))


def _parse(text: str) -> tuple[int, tuple[bool, tuple[int, ...]]]:
    """Return the factor that a valid generator sets, whether its product is negated, and the product's factors."""
    match = _GENERATOR.fullmatch(text.strip().lower())
    assert match is not None, text
    target, sign, product = match.groups()
    return LETTERS.index(target), (sign == "-", tuple(LETTERS.index(letter) for letter in product))


def _parity(rows: np.ndarray, column: int) -> np.ndarray:
    """Return in which rows the product of the base factors in ``column`` is high, (rows,)."""
    low = np.zeros(len(rows), dtype=bool)
    for bit in range(column.bit_length()):
        if column >> bit & 1:
            low ^= (rows >> bit & 1) == 0
    return ~low


def _base(columns: Sequence[int]) -> int:
    return max(columns).bit_length()


def _letter(number: int) -> str:
    return LETTERS[number] if number < len(LETTERS) else f"({number + 1})"


def _product(column: int) -> str:
    return "".join(_letter(bit) for bit in range(column.bit_length()) if column >> bit & 1)


def _generators(value: Any) -> str | None:
    sound = isinstance(value, list) and value and all(isinstance(text, str) for text in value)
    if sound and all(_GENERATOR.fullmatch(text.strip().lower()) for text in value):
        return None
    return 'a list of generators such as "d=abc" (letters stand for the factors in their order, without i)'


def _check(spec: DesignSpec) -> list[Fault]:
    written = spec.sampler.options.get("generators")
    if written is None:
        try:
            generate(len(spec.axes), FRACTIONAL_FACTORIAL.option(spec, "resolution"))
        except ValueError as error:
            return [(("sampler", "resolution"), f"{error}; choose plackett_burman or lhs")]
        return []
    if "resolution" in spec.sampler.options:
        return [(("sampler", "resolution"), "generators fix the resolution; keep one of them")]
    return [(("sampler", "generators"), message) for message in _faults(written, len(spec.axes))]


def _faults(written: Sequence[str], count: int) -> Iterator[str]:
    letters = LETTERS[:count]
    targets = [text.strip()[0].lower() for text in written]
    setters: dict[frozenset[str], str] = {}
    for text, target in zip(written, targets, strict=True):
        product = _GENERATOR.fullmatch(text.strip().lower())[3]  # type: ignore[index]
        unknown = [letter for letter in (target, *product) if letter not in letters]
        if unknown:
            yield f"{text!r}: there is no factor {unknown[0]!r}; the {count} factors are {letters[0]} to {letters[-1]}"
        elif targets.count(target) > 1:
            yield f"{text!r}: {target} is set twice"
        elif any(letter in targets for letter in product):
            yield f"{text!r}: {target} must be a product of factors that no generator sets"
        elif len(set(product)) < max(len(product), 2):
            yield f"{text!r}: the product needs two different factors or more, each once"
        elif (other := setters.setdefault(frozenset(product), target)) != target:
            yield (
                f"{text!r}: {other} is that product already, so {other} and {target} could not be told apart "
                "(resolution II); give each a product of its own"
            )


FRACTIONAL_FACTORIAL: Sampler = Sampler(
    "fractional_factorial",
    "fractional factorial (two levels)",
    draw,
    lambda spec: 2 ** _base(_columns(spec)[0]),
    size="none",
    options=(
        Option("resolution", 4, whole(3), "the least number of factors that are confounded together"),
        Option("generators", None, _generators, 'which factors are products of others: ["d=abc"]'),
    ),
    includes_bounds=lambda spec: True,
    uses_weights=False,
    two_level=True,
    scales_with=lambda spec: None,
    check=_check,
    methods=("anova",),
)

"""Regular fractions of a two-level factorial.

Factors are written as letters (I is left out, it stands for the mean): ``d=abc`` sets factor d
to the product of a, b and c. Source: Box, Hunter and Hunter, "Statistics for Experimenters",
chapter 6; Montgomery, "Design and Analysis of Experiments", chapter 8.

Inside, a column of the design is the number whose bits are the base factors that it is the
product of, so that the product of columns is the exclusive or of their numbers. A fraction has
resolution R if no R - 1 of its columns have the product 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import combinations
from math import comb
from operator import xor
from typing import Any

import numpy as np

from ..model import DesignSpec
from ..sample import Sample
from .grid import grid
from .option import Found, Option, Sampler, single_rows, whole

LETTERS = "abcdefghjklmnopqrstuvwxyz"
_GENERATOR = re.compile(r"([a-z])\s*=\s*([+-]?)\s*([a-z]+)")
#: base factors are not searched beyond this number
_MOST_BASE = 16
#: how many factors have their aliases of pairs told
_MOST_TOLD = 40

#: columns, and which of them are negative
Columns = tuple[tuple[int, ...], tuple[bool, ...]]


def draw(spec: DesignSpec) -> Sample:
    """Return the rows in standard order; levels sit in the middle of their share, ranges at their ends."""
    columns, negative = _columns(spec)
    base = _base(columns)
    rows = np.arange(2**base)
    # standard order: the first base factor changes with every row
    high = np.stack([_parity(rows, column) for column in columns], axis=1) ^ np.array(negative)
    ends = [grid(axis, 2)[[0, -1]] for axis in spec.axes]
    unit = np.stack([end[high[:, number].astype(int)] for number, end in enumerate(ends)], axis=1)
    names = {_letter(number): axis.name for number, axis in enumerate(spec.axes)}
    found = resolution(columns)
    arguments = {
        "letters": names,
        "generators": [
            f"{_letter(number)}={'-' if negative[number] else ''}{_product(column)}"
            for number, column in enumerate(columns)
            if column.bit_count() > 1
        ],
        "resolution": found,
        "aliases": aliases(columns, negative),
    }
    warnings = [] if found is None or found >= 5 else [_WARNINGS[found]]
    return single_rows(unit, arguments, *warnings)


_WARNINGS = {
    2: "resolution II: some main effects cannot be told from each other; the manifest names the aliases",
    3: "resolution III: main effects cannot be told from interactions of two factors; "
    "the manifest names the aliases",
    4: "resolution IV: interactions of two factors cannot be told from each other; "
    "the manifest names the aliases",
}


def resolution(columns: Sequence[int]) -> int | None:
    """Return the smallest number of columns whose product is 1, ``None`` for a full factorial."""
    if len(columns) == _base(columns):
        return None
    numbers = range(len(columns))

    def product(chosen: Iterable[int]) -> int:
        return reduce(xor, (columns[number] for number in chosen), 0)

    for length in range(1, len(columns) + 1):
        half, rest = length // 2, length - length // 2
        # Shorter words were found before, so that no two halves have the same product, unless
        # together they are a word of this length. Two columns may be equal, so they go by number.
        products = {product(one): one for one in combinations(numbers, half)}
        if len(products) < comb(len(columns), half):
            return length
        for one in combinations(numbers, rest):
            other = products.get(product(one))
            if other is not None and other != one:
                return length
    raise AssertionError("more columns than base factors have a product that is 1")


def aliases(columns: Sequence[int], negative: Sequence[bool]) -> list[list[str]]:
    """Return the main effects and interactions of two factors that cannot be told apart, group by group.

    ``-`` before an effect: it comes in with the other sign. Of very many factors the main effects only.
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
    """Return the columns of ``count`` factors in as few rows as found, with resolution ``wanted`` or better.

    Raises ``ValueError`` where none are found.
    """
    for base in range(1, min(count, _MOST_BASE) + 1):
        found = None
        for better in range(wanted, count + 1):
            columns = _extend(count, base, better)
            if columns is None:
                break
            found = columns
        if found is not None or count == base:
            return found if found is not None else tuple(1 << i for i in range(base))
    raise ValueError(
        f"no fraction of {count} factors with resolution {wanted} has at most 2**{_MOST_BASE} rows"
    )


def _extend(count: int, base: int, wanted: int) -> tuple[int, ...] | None:
    """Return the base columns and generated ones, taken as long as the resolution stays ``wanted``."""
    single = [1 << number for number in range(base)]
    if count < base or count >= 2**base:
        return None
    longest = _order(base, wanted)
    for candidates in (longest[::-1], longest):
        columns, sums = list(single), _sums(single, wanted - 2)
        for candidate in candidates:
            if len(columns) == count:
                break
            if candidate not in sums[-1]:
                columns.append(candidate)
                sums = _grown(sums, candidate)
        if len(columns) == count:
            return tuple(columns)
    return None


def _order(base: int, wanted: int) -> list[int]:
    """Return products of base factors, longest last; for even resolutions those of odd length suffice."""
    products = [number for number in range(1, 2**base) if number.bit_count() >= wanted - 1]
    if wanted == 4:
        products = [number for number in products if number.bit_count() % 2 == 1]
    return sorted(products, key=lambda number: (-number.bit_count(), -number))


def _sums(columns: Sequence[int], most: int) -> list[set[int]]:
    """Return the products of up to 0, 1, ... ``most`` columns."""
    sums: list[set[int]] = [{0} for _ in range(most + 1)]
    for column in columns:
        sums = _grown(sums, column)
    return sums


def _grown(sums: list[set[int]], column: int) -> list[set[int]]:
    return [
        one | ({number ^ column for number in sums[length - 1]} if length else set())
        for length, one in enumerate(sums)
    ]


def _columns(spec: DesignSpec) -> Columns:
    written = spec.sampler.options.get("generators")
    count = len(spec.axes)
    if written is None:
        columns = generate(count, FRACTIONAL_FACTORIAL.option(spec, "resolution"))
        return columns, (False,) * count
    generators = dict(_parse(text) for text in written)
    base = [number for number in range(count) if number not in generators]
    bits = {number: 1 << place for place, number in enumerate(base)}
    columns = tuple(
        bits[number] if number in bits else reduce(xor, (bits[factor] for factor in generators[number][1]))
        for number in range(count)
    )
    return columns, tuple(number in generators and generators[number][0] for number in range(count))


def _parse(text: str) -> tuple[int, tuple[bool, tuple[int, ...]]]:
    """Return the factor that a sound generator sets, whether to the negative, and the product's factors."""
    match = _GENERATOR.fullmatch(text.strip().lower())
    assert match is not None, text
    target, sign, product = match.groups()
    return LETTERS.index(target), (sign == "-", tuple(LETTERS.index(letter) for letter in product))


def _parity(rows: np.ndarray, column: int) -> np.ndarray:
    """Return whether the product of the base factors in ``column`` is high in each row."""
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
    sound = isinstance(value, list) and value and all(isinstance(one, str) for one in value)
    if sound and all(_GENERATOR.fullmatch(one.strip().lower()) for one in value):
        return None
    return 'a list of generators such as "d=abc" (letters stand for the factors in their order, without i)'


def _check(spec: DesignSpec) -> list[Found]:
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
    known = LETTERS[:count]
    targets = [text.strip()[0].lower() for text in written]
    setters: dict[frozenset[str], str] = {}
    for text, target in zip(written, targets, strict=True):
        product = _GENERATOR.fullmatch(text.strip().lower())[3]  # type: ignore[index]
        unknown = [letter for letter in (target, *product) if letter not in known]
        if unknown:
            yield f"{text!r}: there is no factor {unknown[0]!r}; the {count} factors are {known[0]} to {known[-1]}"
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

"""The rows of a design: what the sampler gives, without those that constraints reject."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

from palaestrai_mosaik.errors import DocumentError, Problem
from palaestrai_mosaik.text import listed
from palaestrai_mosaik.types.arrays import FloatArray

from .decode import decode, keep
from .expansion import Expansion, Row, RowName, Values, is_scalar
from .model import INACTIVE, DesignSpec
from .sample import Sample
from .samplers import sample

#: points that are decoded at a time, so that memory does not grow with their number
_CHUNK = 1000
#: runs of a design: as many as a folder may sensibly hold, and far more than are executed
MOST_RUNS = 10_000_000
#: of so many combinations of levels at most, one row each is representative
MOST_COMBINATIONS = 100
#: how many faults and factors of a row a message names
_FAULTS, _FACTORS = 20, 8
_NUMBERS = re.compile(r"[0-9][0-9.e+-]*")


@dataclass(frozen=True)
class SampledRows:
    """The points of the rows that a design has, numbered from 0; ``drawn``: with those rejected."""

    sample: Sample
    drawn: int

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.sample.unit)


@dataclass(frozen=True, slots=True)
class ExpandedRow:
    """A row, its values, its documents, the ``name`` below which its seeds hang.

    ``first`` is the number of the first row with equal documents.
    """

    number: int
    values: Values
    documents: Row
    name: RowName
    first: int


def draw_rows(spec: DesignSpec) -> SampledRows:
    """Draw the sample of ``spec`` and leave out what its constraints reject.

    Raises :class:`~palaestrai_mosaik.errors.DocumentError` where no row is left, or the rows make
    more than :data:`MOST_RUNS` runs.
    """
    drawn = sample(spec)
    rows = _kept(spec, drawn)
    if rows.count * spec.repetitions > MOST_RUNS:
        message = (
            f"the design makes {rows.count * spec.repetitions:,} runs ({rows.count:,} rows, "
            f"{spec.repetitions:,} repetitions of each); at most {MOST_RUNS:,} are made"
        )
        raise DocumentError([spec.problem(message, "repetitions" if spec.repetitions > 1 else "sampler")])
    return rows


def _kept(spec: DesignSpec, drawn: Sample) -> SampledRows:
    if not spec.constraints:
        return SampledRows(drawn, len(drawn.unit))
    kept = [start + i for start, values in _decoded(spec, drawn.unit) for i in keep(spec, values)]
    if not kept:
        seen = drawn.arguments.get("looked_at")
        rows = drawn.arguments.get("combinations", len(drawn.unit))
        which = (
            f"all {rows:,} rows" if seen is None else f"all {seen:,} rows that were looked at (of {rows:,})"
        )
        message = f"the constraints reject {which}: {'; '.join(spec.constraints)}"
        raise DocumentError([spec.problem(message, "constraints")])
    left = Sample(drawn.unit[kept], drawn.block[kept], drawn.arguments, drawn.warnings)
    return SampledRows(left, len(drawn.unit))


def expand(rows: SampledRows, expansion: Expansion) -> Iterator[ExpandedRow]:
    """Yield all rows in order with their documents, one at a time.

    Raises :class:`~palaestrai_mosaik.errors.DocumentError` with everything that is wrong in any
    row, after the last of them; rows are yielded up to the first that is not sound.
    """
    spec = expansion.spec
    faults = RowFaults(spec)
    firsts: dict[str, int] = {}
    equal: Counter[str] = Counter()
    decoded = (enumerate(values, start) for start, values in _decoded(spec, rows.sample.unit))
    for number, values in chain.from_iterable(decoded):
        try:
            documents = expansion.row(values, number)
        except DocumentError as error:
            faults.add(number, values, error.problems)
            continue
        if faults.count:
            continue
        if spec.seed_policy == "common":
            # equal documents have equal seeds, too: never where every row has its own
            name: RowName = ()
            first = firsts.setdefault(documents.hash("", 0), number)
        else:
            digest = expansion.digest(values)
            name, first = ("row", digest, equal[digest]), number
            equal[digest] += 1
        yield ExpandedRow(number, values, documents, name, first)
    if faults.count:
        raise DocumentError(faults.problems())


def representative_rows(spec: DesignSpec, rows: SampledRows) -> dict[int, Values]:
    """Return the values of some rows, by their numbers, that stand for all.

    Each level of each factor is in one of them, each factor without levels at its least and at its greatest value. Levels that
    are no numbers (classes, names, lists) make documents of another structure, so every combination of them that
    occurs is in one, up to :data:`MOST_COMBINATIONS`.
    """
    structural = [
        factor.name
        for factor in spec.factors
        if any(isinstance(level, str) or not is_scalar(level) for level in factor.levels)
    ]
    found: dict[int, Values] = {}
    seen: set[tuple[str, str]] = set()
    combinations: set[tuple[str, ...]] = set()
    ends: dict[tuple[str, bool], tuple[float, int, Values]] = {}
    for start, decoded in _decoded(spec, rows.sample.unit):
        for number, values in enumerate(decoded, start):
            levels = {
                (factor.name, repr(values[factor.name]))
                for factor in spec.factors
                if factor.levels or values[factor.name] is INACTIVE
            }
            combination = tuple(repr(values[name]) for name in structural)
            new = combination not in combinations and len(combinations) < MOST_COMBINATIONS
            if new or not levels <= seen:
                found[number] = values
                seen |= levels
                combinations.add(combination)
            for factor in spec.factors:
                value = values[factor.name]
                if factor.levels or value is INACTIVE:
                    continue
                for sign in (1, -1):
                    key = (factor.name, sign < 0)
                    if key not in ends or sign * value < ends[key][0]:
                        ends[key] = (sign * value, number, values)
    found.update((number, values) for _, number, values in ends.values())
    return dict(sorted(found.items()))


def all_rows(spec: DesignSpec, rows: SampledRows) -> dict[int, Values]:
    """Return the values of all rows, by their numbers."""
    return {n: v for start, decoded in _decoded(spec, rows.sample.unit) for n, v in enumerate(decoded, start)}


def _decoded(spec: DesignSpec, unit: FloatArray) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the values of some rows at a time, with the number of the first of them."""
    for start in range(0, len(unit), _CHUNK):
        yield start, decode(spec, unit[start : start + _CHUNK])


class RowFaults:
    """What is wrong in rows; what differs in numbers only is one fault."""

    def __init__(self, spec: DesignSpec):
        self._spec = spec
        self._first: dict[tuple[str, str], tuple[int, Values, Problem]] = {}
        self._rows: dict[tuple[str, str], int] = {}
        self.count = 0

    def add(self, number: int, values: Values, problems: Iterable[Problem]) -> None:
        """Take note of what is wrong in the row ``number``."""
        self.count += 1
        for key, problem in {_fault(problem): problem for problem in problems}.items():
            self._first.setdefault(key, (number, values, problem))
            self._rows[key] = self._rows.get(key, 0) + 1

    def problems(self) -> list[Problem]:
        """Return every fault once, with the first row that has it."""
        problems = []
        for key, (number, values, problem) in list(self._first.items())[:_FAULTS]:
            others = self._rows[key] - 1
            rows = f"row {number}" + (f" and {others:,} other{'s' * (others > 1)}" if others else "")
            message = f"{problem.message} (in {rows}, where {_shown(values)})"
            problems.append(Problem(message, problem.path, self._spec.source, problem.line))
        if len(self._first) > _FAULTS:
            message = f"and {len(self._first) - _FAULTS:,} more faults, in {self.count:,} rows in all"
            problems.append(Problem(message, file=self._spec.source))
        return problems


def _fault(problem: Problem) -> tuple[str, str]:
    return problem.path, _NUMBERS.sub("#", problem.message)


def _shown(values: Values) -> str:
    shown = [f"{name} = {str(value)[:60]}" for name, value in values.items() if value is not INACTIVE]
    return listed(shown, _FACTORS)

"""The rows of a design: the sample, without the rows that constraints reject."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError, Problem
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.types.arrays import FloatArray

from .decode import decode, keep
from .expansion import Expansion, Row, RowName, Values, is_scalar
from .model import INACTIVE, DesignSpec
from .samplers import sample
from .samplers.sampler import Sample

#: number of points to decode at a time, so that memory does not grow with the sample
_CHUNK = 1000
#: largest number of runs of a design: about as many files as a folder can hold, and far more than can be executed
MOST_RUNS = 10_000_000
#: largest number of combinations of levels in representative rows
MOST_COMBINATIONS = 100
#: largest number of faults, and of factors of a row, in a message
_FAULTS, _FACTORS = 20, 8
_NUMBERS = re.compile(r"[0-9][0-9.e+-]*")


@dataclass(frozen=True)
class SampledRows:
    """The points of a design's rows, numbered from 0; ``drawn`` also counts the rejected points."""

    sample: Sample
    drawn: int

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.sample.unit)


@dataclass(frozen=True, slots=True)
class ExpandedRow:
    """A row with its values and documents.

    ``name`` is the path of its seeds in the tree of seeds; ``first`` is the number of the first row with equal
    documents.
    """

    number: int
    values: Values
    documents: Row
    name: RowName
    first: int


def draw_rows(spec: DesignSpec) -> SampledRows:
    """Draw the sample of ``spec``, without the rows that its constraints reject.

    Raises:
        DocumentError: no row is left, or there are more than :data:`MOST_RUNS` runs.
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

    Warnings about the analysis are added to ``expansion``.

    Raises:
        DocumentError: rows are invalid, or not enough for the requested analysis. Rows are yielded up to the first
            invalid one; the error follows after the last row, with the problems of all rows.
    """
    spec = expansion.spec
    faults = RowFaults(spec)
    # sensitivity methods are slow to import
    from .rules import PlannedAnalysis

    firsts: dict[str, int] = {}
    planned = PlannedAnalysis(spec, rows.sample)
    equal: Counter[str] = Counter()
    for number, values in _numbered(spec, rows):
        try:
            documents = expansion.row(values, number)
        except DocumentError as error:
            faults.add(number, values, error.problems)
            continue
        if faults.count:
            continue
        if spec.seed_policy == "common":
            # rows with equal documents also have equal seeds, unless every row has its own
            name: RowName = ()
            first = firsts.setdefault(documents.hash("", 0), number)
        else:
            digest = expansion.digest(values)
            name, first = ("row", digest, equal[digest]), number
            equal[digest] += 1
        planned.add(values, first)
        yield ExpandedRow(number, values, documents, name, first)
    if faults.count:
        raise DocumentError(faults.problems())
    lacking = list(planned.problems())
    if lacking:
        raise DocumentError(lacking)
    for problem in planned.advice():
        expansion.warn(problem)


def representative_rows(spec: DesignSpec, rows: SampledRows) -> dict[int, Values]:
    """Return the values of some rows, by number, that represent all rows.

    They include each level of each factor, and the smallest and the largest value of each factor without levels. Levels
    that are no numbers (classes, names, lists) change the structure of documents, so all of their combinations that
    occur are included, up to :data:`MOST_COMBINATIONS`.
    """
    structural = _structural(spec)
    representatives: dict[int, Values] = {}
    seen: set[tuple[str, str]] = set()
    combinations: set[tuple[str, ...]] = set()
    extremes = {factor.name: _Extremes() for factor in spec.factors if not factor.levels}
    for number, values in _numbered(spec, rows):
        for name, extreme in extremes.items():
            extreme.add(values[name], number, values)
        levels = {(name, repr(v)) for name, v in values.items() if name not in extremes or v is INACTIVE}
        combination = tuple(repr(values[name]) for name in structural)
        new = combination not in combinations and len(combinations) < MOST_COMBINATIONS
        if new or not levels <= seen:
            representatives[number] = values
            seen |= levels
            combinations.add(combination)
    for extreme in extremes.values():
        representatives |= extreme.rows
    return dict(sorted(representatives.items()))


def _structural(spec: DesignSpec) -> list[str]:
    """Return the factors with a level that is no number."""
    return [
        factor.name
        for factor in spec.factors
        if any(isinstance(level, str) or not is_scalar(level) for level in factor.levels)
    ]


class _Extremes:
    """The first rows with the smallest and the largest value of a factor."""

    def __init__(self) -> None:
        self._low, self._high = math.inf, -math.inf
        self._rows: list[tuple[int, Values]] = [(0, {}), (0, {})]

    def add(self, value: Any, number: int, values: Values) -> None:
        """Add the next row; ``value`` may be ``INACTIVE``."""
        if value is INACTIVE:
            return
        if value < self._low:
            self._low, self._rows[0] = value, (number, values)
        if value > self._high:
            self._high, self._rows[1] = value, (number, values)

    @property
    def rows(self) -> dict[int, Values]:
        """The values of both rows, by number; empty if the factor is never active."""
        return dict(self._rows) if self._low <= self._high else {}


def all_rows(spec: DesignSpec, rows: SampledRows) -> dict[int, Values]:
    """Return the values of all rows, by number."""
    return dict(_numbered(spec, rows))


def _numbered(spec: DesignSpec, rows: SampledRows) -> Iterator[tuple[int, Values]]:
    """Yield the number and the values of each row."""
    for start, values in _decoded(spec, rows.sample.unit):
        yield from enumerate(values, start)


def _decoded(spec: DesignSpec, unit: FloatArray) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    """Yield the values of some rows at a time, with the number of their first row."""
    for start in range(0, len(unit), _CHUNK):
        yield start, decode(spec, unit[start : start + _CHUNK])


class RowFaults:
    """Collects the problems of rows; problems that differ only in numbers are one fault."""

    def __init__(self, spec: DesignSpec):
        self._spec = spec
        self._first: dict[tuple[str, str], tuple[int, Values, Problem]] = {}
        self._rows: dict[tuple[str, str], int] = {}
        self.count = 0

    def add(self, number: int, values: Values, problems: Iterable[Problem]) -> None:
        """Add the problems of the row ``number``."""
        self.count += 1
        for key, problem in {_fault(problem): problem for problem in problems}.items():
            self._first.setdefault(key, (number, values, problem))
            self._rows[key] = self._rows.get(key, 0) + 1

    def problems(self) -> list[Problem]:
        """Return every fault once, with its first row."""
        problems = []
        for key, (number, values, problem) in list(self._first.items())[:_FAULTS]:
            more = self._rows[key] - 1
            rows = f"row {number}" + (f" and {more:,} other{'s' * (more > 1)}" if more else "")
            message = f"{problem.message} (in {rows}, where {_shown(values)})"
            problems.append(Problem(message, problem.path, self._spec.source, problem.line))
        if len(self._first) > _FAULTS:
            message = f"and {len(self._first) - _FAULTS:,} more faults, in {self.count:,} rows in all"
            problems.append(Problem(message, file=self._spec.source))
        return problems


def _fault(problem: Problem) -> tuple[str, str]:
    return problem.path, _NUMBERS.sub("#", problem.message)


def _shown(values: Values) -> str:
    items = [f"{name} = {str(value)[:60]}" for name, value in values.items() if value is not INACTIVE]
    return listed(items, _FACTORS)

"""Explicit points: a table with a column per factor, in the design or in a CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.experiment.fields import show_unquoted
from palaestrai_mosaik.types.arrays import FloatArray

from ..decode import decode, resolution
from ..distributions import INSIDE, bounded, middles, position, reach
from ..model import INACTIVE, Axis, DesignSpec, Factor, is_number
from .sampler import Fault, Option, Sample, Sampler, flag, single_rows

#: largest number of faults of a table in an error
_TOLD = 20
#: coordinate of a factor that is inactive in a row; it is never used
_NOWHERE = 0.5
#: Largest relative difference between a value and its round trip through the unit cube.
_SAME = 1e-12


def inlined(sampler: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Replace the CSV ``file`` of a design's ``sampler`` by the file's table.

    The table becomes a part of the design, so a design with a changed file is another design. Cells that Python writes
    the same way as a number become numbers, empty cells null, and all others stay text.

    Args:
        sampler: the ``sampler`` of a design, with the key ``file``: UTF-8, with a header.
        directory: folder that ``file`` is relative to.

    Raises:
        DocumentError: the file cannot be read, is no CSV file, or has no points.
    """
    path = directory / str(sampler["file"])
    lines = _csv_lines(path)
    if len(lines) < 2:
        raise _unreadable(path, "needs a header with the names of the factors, and a line per point")
    options = {key: value for key, value in sampler.items() if key != "file"}
    rows = [[_scalar(cell.strip()) for cell in line] for line in lines[1:]]
    return {**options, "columns": [name.strip() for name in lines[0]], "rows": rows}


def _csv_lines(path: Path) -> list[list[str]]:
    try:
        with files.open_text(path, encoding="utf-8-sig", newline="", follow=True) as stream:
            return [line for line in csv.reader(stream, skipinitialspace=True) if line]
    except OSError as error:
        near = did_you_mean(path.name, [csv_file.name for csv_file in path.parent.glob("*.csv")])
        raise _unreadable(path, f"cannot be read: {error.strerror}{near}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, f"not a CSV file in UTF-8: {files.reading_fault(error)}") from None


def _unreadable(path: Path, message: str) -> DocumentError:
    return DocumentError([Problem(message, file=str(path))])


def _scalar(cell: str) -> Any:
    for kind in (int, float):
        try:
            number = kind(cell)
        except ValueError:
            continue
        if repr(number) == cell:
            return number
    return cell or None


def draw(spec: DesignSpec) -> Sample:
    """Return the points: levels in the middle of their share, numbers at their position in the distribution."""
    unit, problems = _read(spec)
    assert not problems, problems
    arguments = {"n": len(unit), "unit": POINTS.option(spec, "unit")}
    return single_rows(unit, arguments)


def _read(spec: DesignSpec) -> tuple[FloatArray, list[Fault]]:
    """Return the points, (rows, axes), and the problems of the table."""
    columns, rows = spec.sampler.options["columns"], spec.sampler.options["rows"]
    in_unit = POINTS.option(spec, "unit")
    unit = np.full((len(rows), len(spec.axes)), np.nan)
    problems: list[Fault] = []
    for index, row in enumerate(rows):
        path = ("sampler", "rows", index)
        if len(row) != len(columns):
            problems.append(
                (
                    path,
                    f"this point has {count(len(row), 'value')}, there must be a value for {count(len(columns), 'column')}",
                )
            )
            continue
        cells = dict(zip(columns, row, strict=True))
        for number, axis in enumerate(spec.axes):
            try:
                unit[index, number] = (
                    _coordinate(axis, cells[axis.name]) if in_unit else _of_axis(axis, cells)
                )
            except ValueError as error:
                problems.append((path, f"{axis.name}: {error}"))
    if not problems and not in_unit:
        values = decode(spec, unit)
        problems = [*_empty(spec, values), *_changed(spec, values)]
    return unit, problems


def _empty(spec: DesignSpec, values: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Yield a problem for each active factor without a value."""
    columns, rows = spec.sampler.options["columns"], spec.sampler.options["rows"]
    for index, row in enumerate(rows):
        cells = dict(zip(columns, row, strict=True))
        for factor in spec.factors:
            if cells[factor.name] is None and values[index][factor.name] is not INACTIVE:
                yield ("sampler", "rows", index), f"{factor.name} has no value, and is active in this row"


def _changed(spec: DesignSpec, values: Sequence[Mapping[str, Any]]) -> Iterator[Fault]:
    """Yield a problem for each value that the round trip through the unit cube changes; runs get the result."""
    columns, rows = spec.sampler.options["columns"], spec.sampler.options["rows"]
    numbers = [columns.index(factor.name) for factor in spec.factors]
    for index, row in enumerate(rows):
        for factor, number in zip(spec.factors, numbers, strict=True):
            value, result = row[number], values[index][factor.name]
            if value is not None and result is not INACTIVE and not _comes_back(factor, value, result):
                path = ("sampler", "rows", index)
                yield (
                    path,
                    f"{factor.name}: {show_unquoted(value)} would become {show_unquoted(result)}; {_reached(factor)}",
                )


def _comes_back(factor: Factor, value: Any, result: Any) -> bool:
    if factor.kind == "levels":
        return factor.row_levels[_level(factor, value)] is result
    number = float(value)
    if factor.kind == "int" or not number or not result:
        return bool(number == result)
    return bool(abs(result - number) <= max(_SAME * abs(number), resolution(factor)))


def _reached(factor: Factor) -> str:
    if factor.kind == "levels":
        return "its weight is too small for a coordinate of its own"
    low, high = reach(factor)
    return (
        f"values of this distribution ({factor.dist}) lie from {low:g} to {high:g}, with 15 digits of the largest, "
        "fewer far out on a tail: widen it, or give the factor low and high and a uniform or loguniform distribution"
    )


def _coordinate(axis: Axis, cell: Any) -> float:
    if not is_number(cell) or not 0 <= cell <= 1:
        raise ValueError(f"a coordinate is a number from 0 to 1, found {show_unquoted(cell)}")
    if not INSIDE <= cell <= 1 - INSIDE and not all(bounded(factor) for factor in axis.factors):
        raise ValueError(
            f"the coordinate {cell} is too near to the end of a distribution without one: at least {INSIDE:g} "
            f"and at most 1 - {INSIDE:g}"
        )
    return float(cell)


def _of_axis(axis: Axis, cells: Mapping[str, Any]) -> float:
    coordinates = {}
    for factor in axis.factors:
        cell = cells[factor.name]
        if cell is not None or factor.when is None:
            coordinates[factor.name] = _position(axis, factor, cell)
    if not coordinates:
        return _NOWHERE
    (first, coordinate), *remaining = coordinates.items()
    for other, second in remaining:
        if abs(second - coordinate) > 1e-9:
            raise ValueError(f"{first} and {other} are zipped, and these values do not belong together")
    return coordinate


def _position(axis: Axis, factor: Factor, cell: Any) -> float:
    if factor.kind == "levels":
        return float(middles(axis)[_level(factor, cell)])
    try:
        number = float("" if cell is None or isinstance(cell, bool) else cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"a value is a number, found {show_unquoted(cell)}")
    return position(factor, number)


def _level(factor: Factor, cell: Any) -> int:
    """Return the index of a level, which ``cell`` holds as itself or as its label."""
    for same in (
        [isinstance(cell, str) and label == cell for label in factor.labels],
        [type(level) is type(cell) and level == cell for level in factor.levels],
        [label == str(cell) for label in factor.labels],
        [not isinstance(level, (bool, list, dict)) and level == cell for level in factor.levels],
    ):
        if any(same):
            return same.index(True)
    levels = ", ".join(factor.labels)
    raise ValueError(
        f"{show_unquoted(cell)} is no level{did_you_mean(str(cell), factor.labels)}; levels: {levels}"
    )


def _names(value: Any) -> str | None:
    sound = isinstance(value, list) and value and all(isinstance(name, str) for name in value)
    return None if sound else "a list of names of factors"


def _table(value: Any) -> str | None:
    sound = isinstance(value, list) and value and all(isinstance(row, list) for row in value)
    return None if sound else "a list of points, each a list of values"


def _check(spec: DesignSpec) -> list[Fault]:
    options = spec.sampler.options
    missing = [key for key in ("columns", "rows") if key not in options]
    if missing:
        return [(("sampler",), "the sampler points needs file (a CSV), or columns and rows")]
    problems = [(("sampler", "columns"), message) for message in _column_faults(spec, options["columns"])]
    return (problems or _read(spec)[1])[:_TOLD]


def _column_faults(spec: DesignSpec, columns: Sequence[str]) -> Iterator[str]:
    if POINTS.option(spec, "unit"):
        names = [axis.name for axis in spec.axes]
    else:
        names = [factor.name for factor in spec.factors]
    for number, name in enumerate(columns, 1):
        if name not in names:
            yield f"column {number} is no factor{did_you_mean(name, names)}; factors: {', '.join(names)}"
        elif name in columns[: number - 1]:
            continue
        elif columns.count(name) > 1:
            yield f"{name!r} has more than one column"
    lacking = [name for name in names if name not in columns]
    if lacking:
        yield f"there is no column for {', '.join(lacking)}"


POINTS: Sampler = Sampler(
    "points",
    "given points",
    draw,
    lambda spec: len(spec.sampler.options["rows"]),
    size="none",
    options=(
        Option("file", None, lambda value: None if isinstance(value, str) else "the path of a CSV", "a CSV"),
        Option("columns", None, _names, "the factor of each column"),
        Option("rows", None, _table, "the points: a level or its label, or a number, for each column"),
        Option("unit", False, flag, "the values are coordinates of the axes in [0, 1]"),
    ),
    allows_constraints=True,
    scales_with=lambda spec: None,
    check=_check,
)

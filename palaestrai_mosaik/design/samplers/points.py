"""Given points: a table with a column per factor, in the design or in a CSV file."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import DocumentError, Problem, did_you_mean
from palaestrai_mosaik.experiment.located import show

from ..decode import decode, resolution
from ..distributions import INSIDE, bounded, middles, position, reach
from ..model import INACTIVE, Axis, DesignSpec, Factor
from ..sample import FloatArray, Sample
from .option import Found, Option, Sampler, flag, single_rows

#: how many faults of a table are told
_TOLD = 20
#: the coordinate of a factor that is inactive in a row, which nobody looks at
_NOWHERE = 0.5
#: A value that comes back from its coordinate this near, in relation to itself, is the same.
_SAME = 1e-12


def inlined(sampler: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Return the ``sampler`` of a design with the table of its CSV ``file`` in place of the file's name.

    The file starts from ``directory``, is UTF-8, and has a header. Numbers that read back as they
    are written become numbers, empty cells null, all else stays text. So a design holds its points,
    and is another one where they change. Raises :class:`~palaestrai_mosaik.errors.DocumentError`.
    """
    path = directory / str(sampler["file"])
    try:
        with files.open_text(path, encoding="utf-8-sig", newline="") as stream:
            lines = [line for line in csv.reader(stream, skipinitialspace=True) if line]
    except OSError as error:
        near = did_you_mean(path.name, [one.name for one in path.parent.glob("*.csv")])
        raise _unreadable(path, f"cannot be read: {error.strerror}{near}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise _unreadable(path, f"not a CSV file in UTF-8: {error}") from None
    if len(lines) < 2:
        raise _unreadable(path, "needs a header with the names of the factors, and a line per point")
    rest = {key: value for key, value in sampler.items() if key != "file"}
    rows = [[_scalar(cell.strip()) for cell in line] for line in lines[1:]]
    return {**rest, "columns": [name.strip() for name in lines[0]], "rows": rows}


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
    """Return the points: levels in the middle of their share, numbers where they lie in the distribution."""
    unit, faults = _read(spec)
    assert not faults, faults
    arguments = {"n": len(unit), "unit": POINTS.option(spec, "unit")}
    return single_rows(unit, arguments)


def _read(spec: DesignSpec) -> tuple[FloatArray, list[Found]]:
    """Return the points and what is wrong with the table; ``(rows, axes)``."""
    columns, rows = spec.sampler.options["columns"], spec.sampler.options["rows"]
    in_unit = POINTS.option(spec, "unit")
    unit = np.full((len(rows), len(spec.axes)), np.nan)
    faults: list[Found] = []
    empty: list[tuple[int, str]] = []
    for index, row in enumerate(rows):
        place = ("sampler", "rows", index)
        if len(row) != len(columns):
            faults.append((place, f"this point has {len(row)} values, there are {len(columns)} columns"))
            continue
        cells = dict(zip(columns, row, strict=True))
        for number, axis in enumerate(spec.axes):
            try:
                if in_unit:
                    unit[index, number] = _coordinate(axis, cells[axis.name])
                else:
                    unit[index, number] = _of_axis(axis, cells)
            except ValueError as error:
                faults.append((place, f"{axis.name}: {error}"))
            empty += [(index, f.name) for f in axis.factors if not in_unit and cells[f.name] is None]
    if not faults:
        values = decode(spec, unit)
        faults = [
            (("sampler", "rows", index), f"{name} has no value, and is active in this row")
            for index, name in empty
            if values[index][name] is not INACTIVE
        ]
        faults += [] if in_unit else _changed(spec, values)
    return unit, faults


def _changed(spec: DesignSpec, values: Sequence[Mapping[str, Any]]) -> Iterator[Found]:
    """Yield the given values that another one would stand for: what runs has gone through the unit cube."""
    columns, rows = spec.sampler.options["columns"], spec.sampler.options["rows"]
    numbers = [columns.index(factor.name) for factor in spec.factors]
    for index, row in enumerate(rows):
        for factor, number in zip(spec.factors, numbers, strict=True):
            given, found = row[number], values[index][factor.name]
            if given is not None and found is not INACTIVE and not _comes_back(factor, given, found):
                place = ("sampler", "rows", index)
                yield place, f"{factor.name}: {show(given)} would become {show(found)}; {_reached(factor)}"


def _comes_back(factor: Factor, given: Any, found: Any) -> bool:
    if factor.kind == "levels":
        shown = factor.labels if factor.choice is not None else factor.levels
        return shown[_level(factor, given)] is found
    number = float(given)
    if factor.kind == "int" or not number or not found:
        return bool(number == found)
    return bool(abs(found - number) <= max(_SAME * abs(number), resolution(factor)))


def _reached(factor: Factor) -> str:
    if factor.kind == "levels":
        return "its weight is too small for a coordinate of its own"
    low, high = reach(factor)
    return (
        f"values of this distribution ({factor.dist}) lie from {low:g} to {high:g}, with 15 digits of the largest, "
        "fewer far out on a tail: widen it, or give the factor low and high and a uniform or loguniform distribution"
    )


def _coordinate(axis: Axis, cell: Any) -> float:
    if isinstance(cell, bool) or not isinstance(cell, (int, float)) or not 0 <= cell <= 1:
        raise ValueError(f"a coordinate is a number from 0 to 1, found {show(cell)}")
    if not INSIDE <= cell <= 1 - INSIDE and not all(bounded(factor) for factor in axis.factors):
        raise ValueError(
            f"the coordinate {cell} is too near to the end of a distribution without one: at least {INSIDE:g} "
            f"and at most 1 - {INSIDE:g}"
        )
    return float(cell)


def _of_axis(axis: Axis, cells: Mapping[str, Any]) -> float:
    found = {}
    for factor in axis.factors:
        cell = cells[factor.name]
        if cell is not None or factor.when is None:
            found[factor.name] = _position(axis, factor, cell)
    if not found:
        return _NOWHERE
    (first, coordinate), *others = found.items()
    for other, second in others:
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
        raise ValueError(f"a value is a number, found {show(cell)}")
    return position(factor, number)


def _level(factor: Factor, cell: Any) -> int:
    """Return the index of a level, given by itself or its label."""
    for same in (
        [isinstance(cell, str) and label == cell for label in factor.labels],
        [type(level) is type(cell) and level == cell for level in factor.levels],
        [label == str(cell) for label in factor.labels],
        [not isinstance(level, (bool, list, dict)) and level == cell for level in factor.levels],
    ):
        if any(same):
            return same.index(True)
    known = ", ".join(factor.labels)
    raise ValueError(f"{show(cell)} is no level{did_you_mean(str(cell), factor.labels)}; levels: {known}")


def _names(value: Any) -> str | None:
    sound = isinstance(value, list) and value and all(isinstance(one, str) for one in value)
    return None if sound else "a list of names of factors"


def _table(value: Any) -> str | None:
    sound = isinstance(value, list) and value and all(isinstance(one, list) for one in value)
    return None if sound else "a list of points, each a list of values"


def _check(spec: DesignSpec) -> list[Found]:
    options = spec.sampler.options
    missing = [key for key in ("columns", "rows") if key not in options]
    if missing:
        return [(("sampler",), "the sampler points needs file (a CSV), or columns and rows")]
    found = [(("sampler", "columns"), message) for message in _column_faults(spec, options["columns"])]
    return (found or _read(spec)[1])[:_TOLD]


def _column_faults(spec: DesignSpec, columns: Sequence[str]) -> Iterator[str]:
    if POINTS.option(spec, "unit"):
        names = [axis.name for axis in spec.axes]
    else:
        names = [factor.name for factor in spec.factors]
    for name in dict.fromkeys(columns):
        if name not in names:
            yield f"{name!r} is no factor{did_you_mean(name, names)}; factors: {', '.join(names)}"
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

"""Encodes data for browsers: JSON with arrays as bytes, long lines with fewer points, and compact matrices."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

#: approximate maximum number of points of a line that is sent
MOST_POINTS = 2000


def places_of_extremes(
    low: FloatVector, high: FloatVector | None = None, most: int = MOST_POINTS
) -> npt.NDArray[np.intp]:
    """Return the indices of the points to draw, in order: all of them, or ``most`` and at most two more.

    The line is cut into equal spans. The lowest and the highest point of each span are kept, and the line's first and
    last point. A span without values keeps one point, so that the gap stays visible.

    Args:
        low: values of shape (points,); NaN for missing values.
        high: the upper edge of a band with the lower edge ``low``; ``None``: the same values.
        most: the number of points, at least 2.
    """
    count = len(low)
    if count <= most:
        return np.arange(count)
    upper = low if high is None else high
    spans = most // 2
    width = -(-count // spans)
    spans = -(-count // width)

    def in_spans(values: FloatVector, missing: float) -> FloatVector:
        padded = np.full(spans * width, missing)
        padded[:count] = np.where(np.isfinite(values), values, missing)
        return padded.reshape(spans, width)

    starts = np.arange(spans) * width
    lowest = starts + in_spans(low, np.inf).argmin(axis=1)
    highest = starts + in_spans(upper, -np.inf).argmax(axis=1)
    places: npt.NDArray[np.intp] = np.unique(np.concatenate([[0, count - 1], lowest, highest]))
    return places


#: the largest value of a column in quanta
_QUANTA = 1_000_000
_BYTE = 8


def compact(values: FloatMatrix) -> dict[str, Any]:
    """Encode a matrix; ``decode`` of ``data.js`` restores it, row after row.

    Args:
        values: shape ``(rows, columns)``. Infinite values become NaN.

    Returns:
        ``rows``, ``quantum`` (of each distinct column), ``of`` (the index of the distinct column for each column),
        ``planes`` (bytes of the zigzag-coded changes, lowest first), and ``missing`` (1 for missing values; ``None`` if
        no value is missing).
    """
    rows, count = values.shape
    columns = np.where(np.isfinite(values), values, np.nan).T
    unique, of = np.unique(columns, axis=0, return_inverse=True, equal_nan=True) if count else (columns, [])
    missing = np.isnan(unique)
    whole = np.where(missing, 0.0, unique)
    quantum = np.abs(whole).max(axis=1, initial=0.0) / _QUANTA
    quantum[quantum == 0.0] = 1.0
    rounded = np.rint(whole / quantum[:, None]).astype(np.int64)
    changes = np.diff(rounded, axis=1, prepend=0)
    coded = np.where(changes < 0, -2 * changes - 1, 2 * changes).astype(np.uint32)
    largest = int(coded.max(initial=0)).bit_length()
    planes = [(coded >> shift).astype(np.uint8).ravel() for shift in range(0, max(largest, 1), _BYTE)]
    return {
        "rows": rows,
        "quantum": quantum.tolist(),
        "of": np.asarray(of, dtype=np.int64).ravel().tolist(),
        "planes": planes,
        "missing": missing.astype(np.uint8).ravel() if missing.any() else None,
    }


#: shorter arrays become plain lists, which are readable
_SHORT = 32


def to_json(value: Any, *, single: bool = False) -> bytes:
    """Encode ``value`` as JSON.

    Arrays of numbers with more than 32 values become ``{"dtype", "shape", "base64"}``: little-endian bytes of
    ``float64``, ``float32``, ``int32`` or ``uint8``. Dates are ISO 8601 in UTC, frames are mappings of their columns.

    Args:
        value: plain data, arrays, frames, dates, paths and enumerations, and mappings and lists of these.
        single: whether floats of arrays have single precision (7 digits), which halves their size.

    Raises:
        TypeError: ``value`` contains an object of another type.
    """
    plain = _plain(value, single)
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


def _plain(value: Any, single: bool) -> Any:
    if value is None or (isinstance(value, str | int) and not isinstance(value, Enum)):
        return value
    for kind, encoded in _ENCODERS:
        if isinstance(value, kind):
            return encoded(value, single)
    if hasattr(value, "to_dict") and hasattr(value, "columns"):
        return {str(name): _column(value[name], single) for name in value.columns}
    if hasattr(value, "item"):
        return _plain(value.item(), single)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _moment(value: datetime, single: bool) -> str | None:
    if str(value) == "NaT":  # pandas' NaT is a datetime without a date
        return None
    aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return aware.astimezone(UTC).isoformat()


def _column(series: Any, single: bool) -> Any:
    values = series.to_numpy()
    if values.dtype.kind in "fiub":
        return _array(values, single)
    # missing values of pandas' own dtypes are neither numbers nor texts
    missing = series.isna().to_numpy()
    return [
        None if is_missing else _plain(item, single)
        for item, is_missing in zip(series.tolist(), missing, strict=True)
    ]


def _array(values: npt.NDArray[Any], single: bool) -> Any:
    kind = values.dtype.kind
    if kind not in "fiub" or values.size <= _SHORT:
        return _plain(values.tolist(), single)
    if kind == "f":
        values = values.astype("<f4" if single else "<f8")
    elif kind == "b":
        values = values.astype("u1")
    elif values.dtype != np.uint8:
        exact = values.min() >= -(2**31) and values.max() < 2**31
        values = values.astype("<i4" if exact else "<f8")
    coded = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {"dtype": values.dtype.name, "shape": list(values.shape), "base64": coded}


#: a kind of value -> its encoder, which gets the value and whether arrays have single precision; the first one counts
_ENCODERS: tuple[tuple[Any, Callable[[Any, bool], Any]], ...] = (
    (Enum, lambda value, single: value.value),
    (float, lambda value, single: value if math.isfinite(value) else None),
    (Mapping, lambda value, single: {str(name): _plain(item, single) for name, item in value.items()}),
    (list | tuple, lambda value, single: [_plain(item, single) for item in value]),
    (np.ndarray, _array),
    (datetime, _moment),
    (date | PurePath, lambda value, single: str(value)),
)

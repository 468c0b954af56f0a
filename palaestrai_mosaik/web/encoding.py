"""Encodes values as JSON for browsers: long arrays as base64 of their bytes, NaN as ``null``."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import numpy.typing as npt

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
    result = value
    if isinstance(value, Enum):
        result = value.value
    elif isinstance(value, float):
        result = value if math.isfinite(value) else None
    elif isinstance(value, Mapping):
        result = {str(name): _plain(item, single) for name, item in value.items()}
    elif isinstance(value, list | tuple):
        result = [_plain(item, single) for item in value]
    elif isinstance(value, np.ndarray):
        result = _array(value, single)
    elif hasattr(value, "to_dict") and hasattr(value, "columns"):
        result = {str(name): _column(value[name], single) for name in value.columns}
    elif isinstance(value, datetime):
        result = _moment(value)
    elif isinstance(value, date | PurePath):
        result = str(value)
    elif hasattr(value, "item"):
        result = _plain(value.item(), single)
    elif value is not None and not isinstance(value, str | int):
        raise TypeError(f"a {type(value).__name__} has no JSON form")
    return result


def _moment(value: datetime) -> str | None:
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
    if kind not in "fiub":
        return [_plain(item, single) for item in values.tolist()]
    if values.size <= _SHORT:
        return _plain(values.tolist(), False)
    if kind == "f":
        values = values.astype("<f4" if single else "<f8")
    elif kind == "b":
        values = values.astype("u1")
    elif values.dtype != np.uint8:
        exact = values.size == 0 or (values.min() >= -(2**31) and values.max() < 2**31)
        values = values.astype("<i4" if exact else "<f8")
    coded = base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()
    return {"dtype": values.dtype.name, "shape": list(values.shape), "base64": coded}

"""The folds of an outcome: they reduce many values to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from palaestrai_mosaik.types.arrays import FloatVector

_FOLDS: dict[str, Callable[[FloatVector], Any]] = {
    "mean": np.mean,
    "median": np.median,
    "sum": np.sum,
    "min": np.min,
    "max": np.max,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}


def fold(values: FloatVector, how: str) -> float:
    """Reduce ``values``, (n,), to one number; NaN if ``values`` is empty or contains NaN.

    Args:
        values: the values, in order.
        how: one of :data:`.model.Fold`.
    """
    return float(_FOLDS[how](values)) if len(values) else float("nan")

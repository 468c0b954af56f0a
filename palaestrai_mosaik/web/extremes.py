"""Reduction of long lines to the points that a browser draws; local minima and maxima are kept."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.arrays import FloatVector

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

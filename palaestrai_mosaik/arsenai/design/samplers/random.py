"""Independent points, uniform in the unit cube."""

from __future__ import annotations

from ..model import DesignSpec
from .sampler import Sample, Sampler, random_of, single_rows, size_of


def draw_independent(spec: DesignSpec) -> Sample:
    """Draw n independent points; a smaller n yields the first of them."""
    n = size_of(spec)
    return single_rows(random_of(spec).random((n, len(spec.axes))), {"n": n})


RANDOM: Sampler = Sampler(
    "random",
    "random points",
    draw_independent,
    size_of,
    allows_constraints=True,
    methods=("rbd_fast", "pawn", "delta"),
)

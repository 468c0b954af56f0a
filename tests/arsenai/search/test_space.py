"""The space of a search: where a parameter of Optuna lies on the axis of a factor."""

from __future__ import annotations

import numpy as np
import pytest
from support.factors import design, number

from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.model import Factor
from palaestrai_mosaik.arsenai.search.samplers import Space, coordinate

pytest.importorskip("optuna")


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (number("k", 1, 4, kind="int"), np.full(4, 1 / 4)),
        (number("k", 1, 4, kind="int", dist="loguniform"), np.log([3, 5 / 3, 7 / 5, 9 / 7]) / np.log(9)),
        (number("k", 1, 4, kind="int", dist="triangular", params={"mode": 1}), np.array([7, 5, 3, 1]) / 16),
    ],
    ids=lambda one: getattr(one, "dist", ""),
)
def test_a_search_proposes_whole_numbers_with_the_shares_of_a_design(
    factor: Factor, expected: np.ndarray
) -> None:
    spec = design([factor], "random", 1)
    (axis,) = spec.axes
    space = Space(spec).distributions[axis.name]
    # all values that Optuna may draw of this axis, evenly
    span = np.arange(4096)
    drawn = span % (space.high + 1) if isinstance(space.high, int) else (span + 0.5) / 4096
    unit = np.array([[coordinate(axis, value)] for value in drawn])
    counts = np.bincount([row["k"] for row in decode(spec, unit)], minlength=5)[1:]
    np.testing.assert_allclose(counts / 4096, expected, atol=1 / 2048)

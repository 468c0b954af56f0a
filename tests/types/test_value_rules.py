"""Which numbers readings and rewards may have."""

from __future__ import annotations

import numpy as np
import pytest

from palaestrai_mosaik.types import Box, Discrete, MultiBinary, MultiDiscrete, SensorInformation, Space, Tuple
from palaestrai_mosaik.types.vectors import ValueRules

SPACES = [
    Box(-1.0, 2.0, shape=()),
    Box(0.0, np.inf, shape=(2,)),
    Box(-np.inf, 0.3, shape=()),
    Box(0.1, 0.7, shape=(), dtype=np.float32),
    Discrete(3, start=-1),
    MultiDiscrete([2, 4]),
    MultiBinary(3),
    Tuple(Discrete(2), Box(-1.0, 1.0, shape=(2,), dtype=np.float32)),
]
RULES = ValueRules([SensorInformation(None, space, f"s{i}") for i, space in enumerate(SPACES)])


def inside(space: Space, flat: np.ndarray) -> bool:
    """Return whether the space contains the value of a flat form."""
    try:
        return space.contains(space.unflatten(flat))
    except ValueError:
        return False


def test_a_value_is_outside_where_its_space_does_not_contain_it():
    rng = np.random.default_rng(1)
    drawn = [space.flatten(space.sample(rng)) for space in SPACES for _ in range(1)]
    rows = np.tile(np.concatenate(drawn), (400, 1))
    for row in rows:
        # most are moved to a value beside a bound, or to a fraction
        row[rng.integers(row.size)] = rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0, 5.0])
    found = RULES.outside(rows)
    for row, wrong in zip(rows, found, strict=True):
        for space, part in zip(SPACES, RULES.layout.slices, strict=True):
            assert wrong[part].any() != inside(space, row[part]), (space, row[part])
        assert RULES.contains(row, row, row[None]) != wrong.any()
    assert 100 < found.any(axis=1).sum() < 300
    assert (RULES.excess(rows)[found] > 0.0).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_a_bound_takes_in_what_its_type_rounds(dtype):
    rules = ValueRules([SensorInformation(None, Box(0.1, 0.7, shape=(), dtype=dtype), "x")])
    eps = float(np.finfo(dtype).eps)
    low, high = dtype(0.1), dtype(0.7)
    for value in (0.1, 0.7, low, high, np.nextafter(low, dtype(0)), np.nextafter(high, dtype(1))):
        assert not rules.outside(np.array([float(value)])).any()
    for value in (0.1 - 2 * eps, 0.7 + 2 * eps):
        assert rules.outside(np.array([value])).all()


def test_whole_numbers_are_not_rounded():
    rules = ValueRules([SensorInformation(None, Discrete(3), "x")])
    assert rules.outside(np.array([[2.0], [2.0 + 1e-15], [3.0], [-1.0]])).ravel().tolist() == [
        *(False, True, True, True)
    ]


def test_only_a_declared_sensor_may_be_missing():
    box = Box(-np.inf, np.inf, shape=(2,))
    rules = ValueRules([SensorInformation(None, box, "a"), SensorInformation(None, box, "b", True)])
    values = np.array([[0.0, np.nan, np.nan, np.inf], [np.inf, 1e308, 0.0, -np.inf]])
    assert rules.not_finite(values).tolist() == [[False, True, False, True], [True, False, False, True]]
    assert not rules.outside(values[0]).any() and not rules.restricts

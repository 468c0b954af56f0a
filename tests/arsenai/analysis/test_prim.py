"""Our PRIM finds the boxes of EMA Workbench, one by one on the whole trajectory."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from palaestrai_mosaik.arsenai.analysis.discovery.algorithms import trajectory
from palaestrai_mosaik.types.arrays import BoolVector, FloatMatrix


def datasets() -> Iterator[tuple[FloatMatrix, list[bool], BoolVector, float]]:
    """Yield codes, which columns have no order, where the condition holds, and the smallest box."""
    rng = np.random.default_rng(0)
    numbers = rng.random((90, 3))
    clear = (numbers[:, 0] > 0.5) & (numbers[:, 1] < 0.6)
    plain = [False] * 3
    yield numbers, plain, clear, 0.05
    yield numbers, plain, rng.random(90) < 0.3, 0.1
    # ties: whole numbers, and points that a resample has drawn several times
    whole = np.column_stack([np.floor(5 * numbers[:, 0]), numbers[:, 1:]])
    yield whole, plain, clear & (rng.random(90) < 0.8), 0.05
    drawn = rng.integers(90, size=90)
    yield numbers[drawn], plain, clear[drawn], 0.05
    # levels without an order between numbers
    levels = rng.integers(0, 4, size=(90, 2)).astype(float)
    mixed = np.column_stack([levels[:, 0], numbers[:, 0], levels[:, 1], numbers[:, 1]])
    yield mixed, [True, False, True, False], clear & (levels[:, 0] != 2), 0.05
    yield mixed, [True, False, True, False], (levels[:, 0] < 2) & (rng.random(90) < 0.7), 0.05


@pytest.mark.parametrize("number", range(6))
def test_boxes_are_those_of_ema_workbench(number: int) -> None:
    prim: Any = pytest.importorskip("ema_workbench.analysis.prim", exc_type=ImportError)
    codes, nominal, holds, smallest = list(datasets())[number]
    columns = range(codes.shape[1])
    frame = pd.DataFrame(
        {str(i): pd.Categorical(codes[:, i].astype(int)) if nominal[i] else codes[:, i] for i in columns}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        theirs = prim.Prim(frame, holds.astype(int), threshold=1e-9, mass_min=smallest).find_box().box_lims
    found = trajectory(codes, nominal, holds, smallest)
    assert len(found) == len(theirs) > 5
    everything = {
        i: set(np.unique(codes[:, i])) if nominal[i] else (codes[:, i].min(), codes[:, i].max())
        for i in columns
    }
    for step, limits in zip(found, theirs, strict=True):
        for i in columns:
            own, other = step.limits.get(i, everything[i]), limits[str(i)].tolist()
            assert (set(own) == other[0]) if nominal[i] else (tuple(own) == tuple(other))


def test_levels_without_order_are_peeled_one_by_one() -> None:
    """The worst level goes first."""
    level = np.repeat([0.0, 1.0, 2.0], 20)
    holds = np.concatenate([np.ones(20), np.arange(20) < 11, np.zeros(20)]).astype(bool)
    steps = trajectory(level[:, None], [True], holds, 0.05)
    assert [step.limits.get(0, frozenset({0, 1, 2})) for step in steps] == [{0, 1, 2}, {0, 1}, {0}]


def test_nothing_is_peeled_where_nothing_helps() -> None:
    codes = np.tile([0.0, 1.0], 20)[:, None]
    holds = np.repeat([True, False], 20)
    (only,) = trajectory(codes, [False], holds, 0.05)
    assert only.limits == {} and only.inside.all()

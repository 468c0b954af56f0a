"""From coordinates to the values of factors, and the rows that constraints keep."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factors import design, levels, number

from palaestrai_mosaik.arsenai.design.decode import decode, keep
from palaestrai_mosaik.arsenai.design.distributions import position
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, Choice, Factor
from palaestrai_mosaik.core.errors import DocumentError


def test_values_are_python_s_levels_and_labels() -> None:
    choice = Factor(
        "phase_0.agents",
        "levels",
        choice=Choice(0, "agents"),
        levels=([["a"], ["b"]]),  # type: ignore[arg-type]
        labels=("a", "b"),
        weights=(0.5, 0.5),
    )
    spec = design([choice, levels("size", [1, 2], None, True), number("k", 0, 9, kind="int"), number("x")])
    rows = decode(spec, np.array([[0.0, 0.0, 0.0, 0.3], [1.0, 1.0, 1.0, 1.0], [0.6, 0.5, 0.55, 0.0]]))
    assert rows == [
        {"phase_0.agents": "a", "size": [1, 2], "k": 0, "x": 0.3},
        {"phase_0.agents": "b", "size": True, "k": 9, "x": 1.0},
        {"phase_0.agents": "b", "size": None, "k": 5, "x": 0.0},
    ]
    assert [type(value) for value in rows[0].values()] == [str, list, int, float]


def test_a_factor_whose_condition_is_false_is_inactive_and_so_is_what_hangs_on_it() -> None:
    spec = design(
        [
            number("clip", 0, 1, when="epochs > 3"),
            number("epochs", 1, 6, kind="int", when='agent == "ppo"'),
            levels("agent", "ppo", "sac"),
        ]
    )
    rows = decode(spec, np.array([[0.5, 0.9, 0.1], [0.5, 0.1, 0.1], [0.5, 0.9, 0.9]]))
    assert [tuple(row.values()) for row in rows] == [
        (0.5, 6, "ppo"),
        (INACTIVE, 1, "ppo"),
        (INACTIVE, INACTIVE, "sac"),
    ]
    assert pickle.loads(pickle.dumps(INACTIVE)) is INACTIVE
    assert repr(INACTIVE) == "INACTIVE"


def test_constraints_keep_the_rows_in_which_all_hold() -> None:
    spec = design(
        [number("low"), number("high"), number("band", when="low > 0.5")],
        "random",
        4,
        constraints=["low < high", "band < 0.9"],
    )
    unit = np.array([[0.2, 0.4, 0.95], [0.4, 0.2, 0.1], [0.6, 0.8, 0.95], [0.6, 0.8, 0.5]])
    # band says nothing where it is inactive
    assert keep(spec, decode(spec, unit)) == [0, 3]
    with pytest.raises(DocumentError, match="cannot be computed"):
        broken = design([levels("agent", "ppo", "sac")], constraints=["agent < 3"])
        keep(broken, decode(broken, np.array([[0.1]])))


def test_unbounded_distributions_stay_finite_at_the_ends() -> None:
    free = number("x", None, None, dist="normal", params={"mean": 0, "std": 1})
    low, middle, high = (row["x"] for row in decode(design([free]), np.array([[0.0], [0.5], [1.0]])))
    assert -7 < low < -6 and middle == 0.0 and 6 < high < 7


def test_zipped_levels_share_the_weights_of_the_first() -> None:
    pair = Axis("a+b", (levels("a", 1, 2, weights=(0.9, 0.1)), levels("b", "x", "y"), number("c", 0, 10)))
    rows = decode(design([pair]), np.array([[0.8], [0.95]]))
    assert [tuple(row.values()) for row in rows] == [(1, "x", 8.0), (2, "y", 9.5)]


BOUNDS = st.floats(-1e6, 1e6).map(lambda one: round(one, 3))


@given(BOUNDS, st.floats(1e-2, 1e6), st.integers(0, 1000))
def test_a_decimal_comes_back_as_it_was_written(low: float, width: float, share: int) -> None:
    high = low + width
    digits = 12 - math.ceil(math.log10(max(abs(low), abs(high), 1)))
    value = round(low + width * share / 1000, digits)
    if low <= value <= high:
        factor = number("x", low, high)
        unit = np.array([[position(factor, value)]])
        assert decode(design([factor]), unit)[0]["x"] == value


@given(st.floats(0, 1))
def test_rounding_is_below_what_matters(unit: float) -> None:
    factor = number("x", -3, 5)
    found = decode(design([factor]), np.array([[unit]]))[0]["x"]
    assert -3 <= found <= 5 and abs(found - (-3 + 8 * unit)) < 1e-14


def test_small_values_of_a_logarithmic_range_keep_their_digits() -> None:
    factor = number("x", 1e-12, 1, dist="loguniform")
    found = decode(design([factor]), np.array([[0.0], [1 / 12], [0.5 + 1e-7], [1.0]]))
    assert [row["x"] for row in found] == pytest.approx([1e-12, 1e-11, 10 ** (-6 + 12e-7), 1.0], rel=1e-13)
    assert [found[0]["x"], found[1]["x"], found[3]["x"]] == [1e-12, 1e-11, 1.0]

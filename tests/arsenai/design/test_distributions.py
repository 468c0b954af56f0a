"""Inverse distribution functions, against scipy.stats."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from support.factors import design, number
from support.factors import levels as levels_of

from palaestrai_mosaik.arsenai.design import distributions
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.model import Axis, Factor
from palaestrai_mosaik.arsenai.design.samplers import sample

UNIT = np.concatenate(([0.0, 1e-12], np.linspace(0.001, 0.999, 57), [1 - 1e-12, 1.0]))

ORACLES = [
    (number(low=-2, high=5), stats.uniform(-2, 7)),
    (number(low=1e-4, high=10, dist="loguniform"), stats.loguniform(1e-4, 10)),
    (number(low=2, high=10, dist="triangular", params={"mode": 3}), stats.triang(1 / 8, 2, 8)),
    (number(low=2, high=10, dist="triangular", params={"mode": 2}), stats.triang(0, 2, 8)),
    (number(low=2, high=10, dist="triangular", params={"mode": 10}), stats.triang(1, 2, 8)),
    (number(low=None, high=None, dist="normal", params={"mean": 3, "std": 2}), stats.norm(3, 2)),
    (number(low=2, high=4, dist="normal", params={"mean": 3, "std": 2}), stats.truncnorm(-0.5, 0.5, 3, 2)),
    (number(low=9, high=None, dist="normal", params={"mean": 3, "std": 2}), stats.truncnorm(3, np.inf, 3, 2)),
    (
        number(low=None, high=None, dist="lognormal", params={"mean": 0.5, "std": 0.3}),
        stats.lognorm(0.3, scale=math.exp(0.5)),
    ),
]


@pytest.mark.parametrize(("factor", "oracle"), ORACLES, ids=lambda one: getattr(one, "dist", None) and "")
def test_values_are_those_of_scipy(factor: Factor, oracle: stats.rv_continuous) -> None:
    inner = UNIT[1:-1]
    np.testing.assert_allclose(distributions.values(factor, inner), oracle.ppf(inner), rtol=1e-9, atol=1e-9)
    ends = distributions.values(factor, np.array([0.0, 1.0]))
    assert ends.tolist() == pytest.approx(oracle.support())
    assert distributions.bounded(factor) is bool(np.isfinite(ends).all())
    positions = [distributions.position(factor, value) for value in oracle.ppf(inner)]
    np.testing.assert_allclose(positions, inner, rtol=1e-9, atol=1e-12)


def test_a_truncated_lognormal_is_the_lognormal_between_its_ends() -> None:
    factor = number(low=1, high=2, dist="lognormal", params={"mean": 0.5, "std": 0.3})
    whole = stats.lognorm(0.3, scale=math.exp(0.5))
    within = whole.cdf(1) + UNIT * (whole.cdf(2) - whole.cdf(1))
    np.testing.assert_allclose(distributions.values(factor, UNIT), whole.ppf(within), rtol=1e-9)
    assert distributions.values(factor, np.array([0.0, 1.0])).tolist() == [1.0, 2.0]


def test_whole_numbers_have_equal_shares_and_include_the_last() -> None:
    factor = number(low=-1, high=3, kind="int")
    unit = (np.arange(1000) + 0.5) / 1000
    found, counts = np.unique(distributions.values(factor, unit), return_counts=True)
    assert found.tolist() == [-1, 0, 1, 2, 3]
    assert counts.tolist() == [200] * 5
    assert distributions.values(factor, np.array([0.0, 1.0])).tolist() == [-1, 3]
    # rounding errors do not decide at the edges of the shares
    third = number(low=0, high=2, kind="int")
    for edge in (1 / 3, np.nextafter(1 / 3, 0), 1 - 2 / 3):
        assert distributions.values(third, np.array([edge])).tolist() == [1]


WHOLE = np.arange(1, 1001)
LOGNORMAL = stats.lognorm(2.0, scale=math.exp(3))

#: a factor of whole numbers, and the probability of each
SHARES = [
    (
        # uniform in the logarithm from 1/2 to 1000 1/2, rounded
        number(low=1, high=1000, kind="int", dist="loguniform"),
        np.log((WHOLE + 0.5) / (WHOLE - 0.5)) / np.log(1000.5 / 0.5),
    ),
    (
        number(low=3, high=7, kind="int", dist="loguniform"),
        np.log([3.5 / 2.5, 4.5 / 3.5, 5.5 / 4.5, 6.5 / 5.5, 7.5 / 6.5]) / np.log(7.5 / 2.5),
    ),
    (
        number(low=1, high=5, kind="int", dist="normal", params={"mean": 3, "std": 50}),
        np.diff(stats.norm(3, 50).cdf(np.arange(0.5, 6))) / np.diff(stats.norm(3, 50).cdf([0.5, 5.5])),
    ),
    (
        number(low=0, high=3, kind="int", dist="lognormal", params={"mean": 3, "std": 2}),
        np.diff(LOGNORMAL.cdf([0, 0.5, 1.5, 2.5, 3.5])) / LOGNORMAL.cdf(3.5),
    ),
    (
        number(low=2, high=4, kind="int", dist="lognormal", params={"mean": 3, "std": 2}),
        np.diff(LOGNORMAL.cdf([1.5, 2.5, 3.5, 4.5])) / np.diff(LOGNORMAL.cdf([1.5, 4.5])),
    ),
    # by hand: a triangle over 4 cells that falls from its left edge, and one over 3 with the mode in the middle
    (
        number(low=0, high=3, kind="int", dist="triangular", params={"mode": 0}),
        np.array([7, 5, 3, 1]) / 16,
    ),
    (
        number(low=0, high=3, kind="int", dist="triangular", params={"mode": 3}),
        np.array([1, 3, 5, 7]) / 16,
    ),
    (
        number(low=1, high=3, kind="int", dist="triangular", params={"mode": 2}),
        np.array([2, 5, 2]) / 9,
    ),
]


@pytest.mark.parametrize(("factor", "expected"), SHARES, ids=lambda one: getattr(one, "dist", ""))
def test_every_whole_number_has_a_whole_cell_also_at_the_ends(factor: Factor, expected: np.ndarray) -> None:
    n = 2**20
    found, counts = np.unique(distributions.values(factor, (np.arange(n) + 0.5) / n), return_counts=True)
    assert found.tolist() == list(range(int(factor.low or 0), int(factor.high or 0) + 1))
    np.testing.assert_allclose(counts / n, expected, atol=2 / n)
    # the position of a number is the middle of its share
    edges = np.concatenate(([0.0], np.cumsum(expected)))
    positions = [distributions.position(factor, value) for value in found]
    np.testing.assert_allclose(positions, (edges[:-1] + edges[1:]) / 2, atol=1e-12)
    assert distributions.values(factor, np.array([0.0, 1.0])).tolist() == [factor.low, factor.high]


def test_a_design_takes_the_first_whole_number_as_often_as_its_probability_says() -> None:
    spec = design([number("k", 1, 1000, kind="int", dist="loguniform")], "lhs", 512)
    found = [row["k"] for row in decode(spec, sample(spec).unit)]
    # 512 log 3 / log 2001 is 74.0; a latin hypercube has a row in each 512th
    assert found.count(1) in (73, 74, 75)
    assert set(found) <= set(range(1, 1001))


def test_whole_numbers_without_an_end_are_rounded() -> None:
    free = number(low=0, high=None, kind="int", dist="normal", params={"mean": 1, "std": 2})
    assert distributions.values(free, UNIT[:-1]).min() == 0
    both = number(low=None, high=None, kind="int", dist="normal", params={"mean": 1, "std": 20})
    inner = UNIT[1:-1]
    np.testing.assert_array_equal(distributions.values(both, inner), np.rint(stats.norm(1, 20).ppf(inner)))


def test_levels_have_the_shares_of_their_weights() -> None:
    axis = Axis("a", (levels_of("a", "x", "y", "z", weights=(0.2, 0.5, 0.3)),))
    edges = distributions.shares(axis)
    unit = (np.arange(1000) + 0.5) / 1000
    assert np.bincount(distributions.levels(edges, unit)).tolist() == [200, 500, 300]
    assert distributions.levels(edges, np.array([0.0, 0.2, 0.7, 1.0])).tolist() == [0, 1, 2, 2]
    assert distributions.middles(axis).tolist() == pytest.approx([0.1, 0.45, 0.85])


@given(st.integers(-50, 50), st.integers(1, 60), st.sampled_from(["uniform", "loguniform", "triangular"]))
def test_a_whole_number_comes_back_from_its_position(low: int, width: int, dist: str) -> None:
    low = max(low, 1) if dist == "loguniform" else low
    factor = number(low=low, high=low + width, kind="int", dist=dist, params={"mode": low})
    for value in range(low, low + width + 1):
        unit = distributions.position(factor, value)
        assert 0 <= unit <= 1
        assert distributions.values(factor, np.array([unit])).tolist() == [value]


@pytest.mark.parametrize(
    ("factor", "value", "message"),
    [
        (number(), 1.5, "1.5 lies outside 0 to 1"),
        (number(low=None, high=None, dist="lognormal", params={"mean": 0, "std": 1}), -1, "0 to infinity"),
        (number(high=4, kind="int"), 2.5, "2.5 is not a whole number"),
        (number(), math.nan, "nan lies outside"),
    ],
)
def test_a_value_that_the_factor_does_not_take_has_no_position(
    factor: Factor, value: float, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        distributions.position(factor, value)


NORMAL = {"mean": 0.0, "std": 1.0}


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (
            number("x", None, None, dist="lognormal", params={"mean": 1000, "std": 1}),
            "from infinity to infinity",
        ),
        (
            number("x", None, None, dist="normal", params={"mean": 0, "std": 1e308}),
            "minus infinity to infinity",
        ),
        (number("x", -1e304, 1e306), "must stay below 1e+305"),
        (number("x", -1e308, 1e308), "what cannot be computed"),
        (number("k", 0, 2.0**53, kind="int"), "below 2**53, beyond which they are not exact"),
        (number("k", None, None, kind="int", dist="normal", params={"mean": 0, "std": 1e16}), "below 2**53"),
        (
            number("x", None, None, dist="lognormal", params={"mean": -1000, "std": 1}),
            "always has the value 0",
        ),
        (number("k", None, None, kind="int", dist="normal", params={"mean": 5, "std": 0.01}), "the value 5"),
    ],
)
def test_distributions_whose_values_are_useless_are_told(factor: Factor, message: str) -> None:
    assert message in (distributions.fault(factor) or "")


@pytest.mark.parametrize(
    "factor",
    [
        number("k", 0, 2.0**53 - 1, kind="int"),
        number("x", -1e304, 1e304),
        number("x", 1e-300, 1e300, dist="loguniform"),
        number("x", 1e-300, None, dist="lognormal", params={"mean": 0, "std": 50}),
        number("x", 8, None, dist="normal", params=NORMAL),
    ],
)
def test_others_have_finite_values_all_over_the_cube(factor: Factor) -> None:
    assert distributions.fault(factor) is None
    unit = np.concatenate(([0.0, 1e-12], np.linspace(0.01, 0.99, 9), [1 - 1e-12, 1.0]))[:, None]
    values = [row[factor.name] for row in decode(design([factor]), unit)]
    assert np.isfinite(values).all() and values == sorted(values)
    low, high = distributions.reach(factor)
    assert low == pytest.approx(values[0], rel=1e-12) and high == pytest.approx(values[-1], rel=1e-12)

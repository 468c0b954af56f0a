"""A part of a factorial: balance, spread, and what is left out."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.factors import design, levels, number

from palaestrai_mosaik.arsenai.design.decode import decode, keep
from palaestrai_mosaik.arsenai.design.rows import draw_rows
from palaestrai_mosaik.arsenai.design.rules import check_sampler
from palaestrai_mosaik.arsenai.design.samplers import factorial, sample
from palaestrai_mosaik.arsenai.design.subset import subset
from palaestrai_mosaik.core.errors import DocumentError

Codes = npt.NDArray[np.int64]


def full(*sizes: int) -> Codes:
    return np.indices(sizes).reshape(len(sizes), -1).T


def take(codes: Codes, size: int, seed: int = 0, nominal: bool = True) -> Codes:
    rows = subset(codes, [nominal] * codes.shape[1], size, np.random.default_rng(seed))
    shown = [tuple(row) for row in rows.tolist()]
    assert sorted(set(shown)) == shown and set(shown) <= {tuple(row) for row in codes.tolist()}
    return rows


def level_counts(rows: Codes, codes: Codes) -> list[list[int]]:
    return [
        np.bincount(rows[:, axis], minlength=codes[:, axis].max() + 1).tolist()
        for axis in range(codes.shape[1])
    ]


def unevenness(rows: Codes, codes: Codes) -> int:
    """Sum of the squared numbers of times that a pair of levels comes."""
    ends = codes.max(axis=0) + 1
    return sum(
        int((np.bincount(rows[:, i] * ends[j] + rows[:, j]) ** 2).sum())
        for i, j in combinations(range(len(ends)), 2)
    )


@settings(max_examples=25)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_every_level_of_a_factorial_is_taken_equally_often(sizes: list[int], data: st.DataObject) -> None:
    codes = full(*sizes)
    size = data.draw(st.integers(1, len(codes)))
    rows = take(codes, size, data.draw(st.integers(0, 3)))
    assert len(rows) == size
    assert all(max(counts) - min(counts) <= 1 for counts in level_counts(rows, codes))


def test_most_rows_of_a_factorial_with_gaps_are_balanced() -> None:
    # 20 rows; f0 6/6, f1 4/4/4 and f2 3/3/3/3 is possible: f1 = 0 has but the four rows of f0 = 1
    codes = full(2, 3, 4)
    codes = codes[(codes[:, 0] != 0) | (codes[:, 1] != 0)]
    for seed in range(3):
        assert level_counts(take(codes, 12, seed), codes) == [[6] * 2, [4] * 3, [3] * 4]


@pytest.mark.parametrize(("sizes", "size"), [((2, 2, 2), 4), ((2,) * 7, 8), ((3,) * 4, 9), ((5, 5, 5), 25)])
def test_where_there_is_an_orthogonal_array_one_is_found(sizes: tuple[int, ...], size: int) -> None:
    codes = full(*sizes)
    rows = take(codes, size)
    for i, j in combinations(range(len(sizes)), 2):
        pairs = np.bincount(rows[:, i] * sizes[j] + rows[:, j], minlength=sizes[i] * sizes[j])
        assert set(pairs.tolist()) == {size // (sizes[i] * sizes[j])}


def test_a_subset_is_better_than_random_ones() -> None:
    codes = full(3, 4, 5, 2, 6)
    rows = take(codes, 37)
    ordered = take(codes, 37, nominal=False)
    random = np.random.default_rng(5)
    others = [codes[random.choice(len(codes), 37, replace=False)] for _ in range(300)]
    assert unevenness(rows, codes) < min(unevenness(one, codes) for one in others)
    assert unevenness(ordered, codes) < min(unevenness(one, codes) for one in others)

    def nearest(rows: Codes, nominal: bool) -> float:
        gaps = np.abs(rows[:, None] - rows[None]) / (codes.max(axis=0))
        gaps = (gaps > 0) * 1.0 if nominal else gaps
        distances = gaps.mean(axis=-1) + np.eye(len(rows))
        return float(distances.min(axis=0).mean())

    assert nearest(rows, True) > np.quantile([nearest(one, True) for one in others], 0.99)
    assert nearest(ordered, False) > np.quantile([nearest(one, False) for one in others], 0.95)


def test_max_runs_takes_a_seeded_subset_of_a_factorial() -> None:
    factors = [levels("agent", *"abcd"), levels("grid", *"xyz"), number("gain", 0, 1)]
    spec = design(factors, options={"levels": 5}, max_runs=12)
    assert check_sampler(spec) == []
    found = sample(spec)
    assert len(found.unit) == 12 and found.block.tolist() == list(range(12))
    assert np.array_equal(sample(spec).unit, found.unit)
    assert "12 of 60 rows" in found.warnings[0]
    rows = [tuple(row.values()) for row in decode(spec, found.unit)]
    assert {name: sum(row[0] == name for row in rows) for name in "abcd"} == dict.fromkeys("abcd", 3)
    # every agent meets every grid once
    assert len({row[:2] for row in rows}) == 12
    everything = decode(spec, sample(design(factors, options={"levels": 5})).unit)
    order = [everything.index(row) for row in decode(spec, found.unit)]
    assert order == sorted(order)
    other = design(factors, options={"levels": 5}, max_runs=12, seed=8)
    assert not np.array_equal(sample(other).unit, found.unit)


def test_max_runs_counts_what_constraints_allow_and_no_row_twice() -> None:
    factors = [
        levels("agent", "ppo", "idle"),
        levels("rate", *range(10), when='agent == "ppo"'),
        levels("step", *range(10)),
    ]
    spec = design(factors, constraints=["step > 6"], max_runs=24)
    found = sample(spec)
    rows = decode(spec, found.unit)
    assert len(rows) == 24 == len(keep(spec, rows))
    # ppo: 10 rates x 3 steps, idle: 3 steps, of which each comes once
    assert found.arguments["chosen_from"] == 33
    shown = [tuple(row.values()) for row in rows]
    assert len(set(shown)) == 24


def test_a_huge_factorial_is_not_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorial, "CANDIDATES", 2000)
    factors = [levels(f"f{axis}", *range(10)) for axis in range(9)]
    spec = design(factors, max_runs=40)
    assert check_sampler(spec) == []
    found = sample(spec)
    assert found.arguments["combinations"] == 10**9 and found.arguments["candidates"] == 2000
    rows = np.array([list(row.values()) for row in decode(spec, found.unit)])
    assert all(np.bincount(column, minlength=10).tolist() == [4] * 10 for column in rows.T)
    # constraints are kept, and the levels that they allow are as balanced
    half = sample(design(factors, max_runs=20, constraints=["f0 < 5", "f1 != f2"]))
    rows = np.array([list(row.values()) for row in decode(spec, half.unit)])
    assert (rows[:, 0] < 5).all() and (rows[:, 1] != rows[:, 2]).all()
    assert np.bincount(rows[:, 0]).tolist() == [4] * 5
    assert all(np.bincount(column, minlength=10).tolist() == [2] * 10 for column in rows.T[1:])


TEN = [levels(f"f{axis}", *range(10)) for axis in range(6)]


def drawn(size: int, *constraints: str) -> tuple[Codes, dict[str, object], tuple[str, ...]]:
    """Return the rows of a factorial of 10**6 under ``constraints``, checked, and what is told of them."""
    spec = design(TEN, max_runs=size, constraints=constraints)
    assert check_sampler(spec) == []
    found = draw_rows(spec).sample
    rows = decode(spec, found.unit)
    assert len(keep(spec, rows)) == len(rows)
    table = np.array([list(row.values()) for row in rows])
    assert len(np.unique(table, axis=0)) == len(table)
    return table, dict(found.arguments), found.warnings


def test_constraints_that_allow_little_of_a_large_factorial_leave_enough_rows() -> None:
    # one in 1000: 10 ways to set four factors alike, the others are free
    equal = "f0 == f1 and f1 == f2 and f2 == f3"
    rows, arguments, told = drawn(40, equal)
    assert arguments["allowed"] == 1000 and told == ("max_runs: 40 of 1,000 rows are taken",)
    assert all(np.bincount(column, minlength=10).tolist() == [4] * 10 for column in rows.T)
    rows, arguments, told = drawn(300, equal, "f0 < 2")
    assert len(rows) == arguments["allowed"] == 200 and told == ()


def test_what_cannot_be_enumerated_is_drawn_until_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factorial, "_FEW", 1000)
    monkeypatch.setattr(factorial, "LOOKED_AT", 30_000)
    monkeypatch.setattr(factorial, "CANDIDATES", 10_000)
    # 5.5 % of 10**6, of which 1000 are enough
    rows, arguments, told = drawn(40, "f0 + f1 + f2 + f3 + f4 + f5 == 27")
    assert len(rows) == 40 and arguments["looked_at"] == 20_000
    assert told == ("max_runs: 40 rows are taken (20,000 of 1,000,000 combinations were looked at)",)
    # 210 of 10**6
    rows, arguments, told = drawn(40, "f0 + f1 + f2 + f3 + f4 + f5 < 5")
    assert 0 < len(rows) < 30 and arguments["looked_at"] == 30_000
    assert f"only {len(rows)} of 40 rows were found (30,000 of 1,000,000 combinations" in told[0]
    with pytest.raises(DocumentError, match=r"reject all 30,000 rows that were looked at \(of 1,000,000\)"):
        drawn(40, "f0 + f1 + f2 + f3 + f4 + f5 < 0")


def test_what_rejects_all_of_a_factorial_tells_how_many_rows_it_had() -> None:
    spec = design(
        [levels("a", *range(5)), number("b", 1, 5, kind="int")], max_runs=4, constraints=["a > b + 4"]
    )
    with pytest.raises(DocumentError, match="reject all 25 rows"):
        draw_rows(spec)

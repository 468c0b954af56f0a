"""Designs with fixed levels: against published tables, and by hand."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.factors import design, levels, number

from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.model import Axis, Factor
from palaestrai_mosaik.arsenai.design.rules import check_sampler
from palaestrai_mosaik.arsenai.design.samplers import sample
from palaestrai_mosaik.arsenai.design.samplers.fractional_factorial import generate, resolution
from palaestrai_mosaik.arsenai.design.samplers.plackett_burman import plackett_burman
from palaestrai_mosaik.arsenai.design.samplers.points import inlined
from palaestrai_mosaik.core.errors import DocumentError


def values(spec: object) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in decode(spec, sample(spec).unit)]  # type: ignore[arg-type]


def test_a_full_factorial_is_the_product_of_all_levels() -> None:
    spec = design(
        [
            levels("agent", "ppo", "sac"),
            number("gain", 0, 1),
            number("episodes", 3, 5, kind="int"),
            number("size", 1, 1000, kind="int"),
        ],
        options={"levels": {"gain": 3, "size": 4}},
    )
    assert check_sampler(spec) == []
    expected = itertools.product(["ppo", "sac"], [0.0, 0.5, 1.0], [3, 4, 5], [1, 334, 667, 1000])
    assert values(spec) == list(expected)
    assert sample(spec).unit[0].tolist() == pytest.approx([0.25, 0.0, 1 / 6, 0.0005])


def test_a_design_without_factors_has_one_row() -> None:
    assert sample(design([])).unit.shape == (1, 0)
    assert decode(design([]), np.empty((1, 0))) == [{}]


def test_zipped_factors_vary_as_one() -> None:
    pair = Axis("a+b", (levels("a", 1, 2, 3), levels("b", "x", "y", "z")))
    assert values(design([pair, levels("c", True, False)])) == [
        (a, b, c) for (a, b) in [(1, "x"), (2, "y"), (3, "z")] for c in (True, False)
    ]
    both = Axis("low+high", (number("low", 0, 1), number("high", 10, 20)))
    assert values(design([both], options={"levels": 3})) == [(0, 10), (0.5, 15), (1, 20)]


# Plackett and Burman (1946), the first rows of their designs
PUBLISHED = {
    8: "+++-+--",
    12: "++-+++---+-",
    20: "++--++++-+-+----++-",
    24: "+++++-+-++--++--+-+----",
}


@pytest.mark.parametrize("n", PUBLISHED)
def test_plackett_burman_designs_are_the_published_ones(n: int) -> None:
    first = np.array([1 if sign == "+" else -1 for sign in PUBLISHED[n]])
    found = plackett_burman(n)
    cyclic = {tuple(np.roll(first, shift)) for shift in range(n - 1)}
    assert {tuple(row) for row in found[:-1]} == cyclic
    assert (found[-1] == -1).all() and tuple(found[0]) == tuple(first)


@pytest.mark.parametrize("n", [4, 16, 28, 36, 40, 44, 48, 56, 64, 84, 96])
def test_plackett_burman_columns_are_balanced_and_orthogonal(n: int) -> None:
    found = plackett_burman(n)
    assert found.shape == (n, n - 1) and (found.sum(axis=0) == 0).all()
    np.testing.assert_array_equal(found.T @ found, n * np.eye(n - 1))


def test_a_screening_takes_levels_and_ends_and_folds_over() -> None:
    factors: list[Factor] = [number(name) for name in "abcde"]
    factors += [levels("agent", "ppo", "sac"), number("k", 1, 9, kind="int")]
    spec = design(factors, "plackett_burman")
    found = values(spec)
    assert len(found) == 8 and found[-1] == (0, 0, 0, 0, 0, "ppo", 1)
    assert {row[5:] for row in found} == {(a, k) for a in ("ppo", "sac") for k in (1, 9)}
    folded = sample(design(factors, "plackett_burman", 12, {"foldover": True})).unit
    assert len(folded) == 24
    np.testing.assert_allclose(folded[:12] + folded[12:], 1)
    # main effects are free of interactions of two
    signs = np.sign(folded - 0.5)
    for one, other in itertools.combinations(range(7), 2):
        assert not (signs.T @ (signs[:, one] * signs[:, other])).any()


def test_the_half_fraction_of_four_factors_is_the_known_table() -> None:
    # Box, Hunter and Hunter: 2^(4-1) with D = ABC, resolution IV, in standard order
    spec = design([number(name, -1, 1) for name in ("w", "x", "y", "z")], "fractional_factorial")
    table = """
        - - - -
        + - - +
        - + - +
        + + - -
        - - + +
        + - + -
        - + + -
        + + + +
    """
    expected = [tuple(1.0 if sign == "+" else -1.0 for sign in line.split()) for line in table.split("\n")]
    assert values(spec) == [row for row in expected if row]
    found = sample(spec)
    assert found.arguments["letters"] == {"a": "w", "b": "x", "c": "y", "d": "z"}
    assert found.arguments["generators"] == ["d=abc"] and found.arguments["resolution"] == 4
    assert found.arguments["aliases"] == [["ab", "cd"], ["ac", "bd"], ["ad", "bc"]]
    assert "resolution IV" in found.warnings[0]


@pytest.mark.parametrize(
    ("factors", "wanted", "rows", "reached"),
    # Montgomery, table of two-level fractional factorial designs; 17 in 256: Box and Hunter (1961)
    [
        (3, 3, 4, 3),
        (5, 4, 16, 5),
        (5, 3, 8, 3),
        (7, 3, 8, 3),
        (7, 4, 16, 4),
        (8, 4, 16, 4),
        (15, 3, 16, 3),
        (8, 5, 64, 5),
        (11, 5, 128, 5),
        (17, 5, 256, 5),
        (9, 6, 128, 6),
    ],
)
def test_fractions_have_the_rows_and_resolution_of_the_tables(
    factors: int, wanted: int, rows: int, reached: int
) -> None:
    columns = generate(factors, wanted)
    assert (len(columns), 2 ** max(columns).bit_length()) == (factors, rows)
    assert resolution(columns) == reached


def word_lengths(columns: Sequence[int]) -> list[int]:
    """Return the numbers of words of 0, 1, 2, ... columns, by MacWilliams' identity."""
    n, rows = len(columns), 2 ** max(columns).bit_length()
    high = [sum((row & column).bit_count() % 2 for column in columns) for row in range(rows)]
    return [
        sum(
            times * sum((-1) ** k * comb(w, k) * comb(n - w, length - k) for k in range(length + 1))
            for w, times in Counter(high).items()
        )
        // rows
        for length in range(n + 1)
    ]


# Chen, Sun and Wu (1993): words of 3, 4, 5, ... letters of the designs with minimum aberration; those of
# 32 rows with 6 to 11 factors are in Box, Hunter and Hunter, too
FEWEST_WORDS = {
    (5, 4): (16, [0, 0, 1]),
    (6, 4): (16, [0, 3, 0]),
    (7, 4): (16, [0, 7, 0]),
    (8, 4): (16, [0, 14, 0]),
    (6, 5): (32, [0, 0, 0, 1]),
    (9, 4): (32, [0, 6, 8, 0, 0, 1]),
    (10, 4): (32, [0, 10, 16, 0, 0, 5]),
    (11, 4): (32, [0, 25, 0, 27, 0, 10]),
    (12, 4): (32, [0, 38, 0, 52]),
    (13, 4): (32, [0, 55, 0, 96]),
    (14, 4): (32, [0, 77, 0, 168]),
    (15, 4): (32, [0, 105, 0, 280]),
    (16, 4): (32, [0, 140, 0, 448]),
    (8, 5): (64, [0, 0, 2, 1]),
    (17, 4): (64, [0, 59, 108]),
    (18, 4): (64, [0, 78, 144]),
    (19, 4): (64, [0, 100, 192]),
    (20, 4): (64, [0, 125, 256]),
    (21, 4): (64, [0, 204, 0]),
    (22, 4): (64, [0, 250, 0]),
    (23, 4): (64, [0, 304, 0]),
    (24, 4): (64, [0, 365, 0]),
    (25, 4): (64, [0, 435, 0]),
    (26, 4): (64, [0, 515, 0]),
    (27, 4): (64, [0, 605, 0]),
    (28, 4): (64, [0, 706, 0]),
    (29, 4): (64, [0, 819, 0]),
    (30, 4): (64, [0, 945, 0]),
    (31, 4): (64, [0, 1085, 0]),
    (32, 4): (64, [0, 1240, 0]),
    (5, 3): (8, [2, 1, 0]),
    (6, 3): (8, [4, 3, 0]),
    (7, 3): (8, [7, 7, 0]),
    (17, 3): (32, [8, 140, 112]),
    (20, 3): (32, [32, 188, 480]),
    (25, 3): (32, [76, 442, 1656]),
    (28, 3): (32, [112, 707, 3024]),
    (31, 3): (32, [155, 1085, 5208]),
}


@pytest.mark.parametrize(("factors", "wanted"), FEWEST_WORDS)
def test_fractions_have_minimum_aberration(factors: int, wanted: int) -> None:
    rows, fewest = FEWEST_WORDS[factors, wanted]
    spec = design([number(f"x{i}") for i in range(factors)], "fractional_factorial")
    spec = replace(spec, sampler=replace(spec.sampler, options={"resolution": wanted}))
    assert len(sample(spec).unit) == rows
    assert word_lengths(generate(factors, wanted))[: 3 + len(fewest)] == [1, 0, 0, *fewest]


def test_no_fraction_of_sixteen_rows_has_fewer_words() -> None:
    """All sets of columns there are, by the power moments of the rows."""
    signs = np.array([[1 - 2 * ((x & c).bit_count() % 2) for c in range(1, 16)] for x in range(16)])
    chosen = (np.arange(2**15)[:, None] >> np.arange(15)) & 1
    sums = chosen @ signs.T
    for factors in range(5, 16):
        own = sums[(chosen.sum(axis=1) == factors) & ((sums == factors).sum(axis=1) == 1)]
        moments = np.stack([(own**power).sum(axis=1) for power in range(3, 10)], axis=1)
        columns = generate(factors, 4 if factors < 9 else 3)
        found = signs[:, np.array(columns) - 1].sum(axis=1)
        assert tuple((found**power).sum() for power in range(3, 10)) == min(map(tuple, moments))


def test_fractions_that_had_the_fewest_words_are_as_they_were() -> None:
    expected = {
        (7, 3): "ab ac bc abc",
        (8, 4): "abc abd acd bcd",
        (8, 5): "abcd abef",
        (13, 3): "ab ac bc ad bd cd abc abd acd",
        (13, 4): "abc abd acd bcd abe ace bce ade",
    }
    for (factors, wanted), words in expected.items():
        generated = [column for column in generate(factors, wanted) if column.bit_count() > 1]
        assert generated == [sum(1 << "abcdef".index(letter) for letter in word) for word in words.split()]


def test_two_factors_on_one_column_are_resolution_ii() -> None:
    # a, b, and twice their product
    assert resolution((1, 2, 3, 3)) == 2
    assert resolution((1, 2, 4, 3, 3)) == 2
    for generators in (["d=ab", "e=ba"], ["d=ab", "e=-ab"]):
        spec = design([number(c) for c in "abcde"], "fractional_factorial", None, {"generators": generators})
        ((place, message),) = check_sampler(spec)
        assert place == ("sampler", "generators")
        assert "d is that product already, so d and e could not be told apart (resolution II)" in message


def test_generators_are_taken_as_written() -> None:
    spec = design(
        [number(name, -1, 1) for name in "abcde"],
        "fractional_factorial",
        None,
        {"generators": ["d=-ab", "e = AC"]},
    )
    assert check_sampler(spec) == []
    table = np.array(values(spec))
    assert len(table) == 8
    np.testing.assert_array_equal(table[:, 3], -table[:, 0] * table[:, 1])
    np.testing.assert_array_equal(table[:, 4], table[:, 0] * table[:, 2])
    arguments = sample(spec).arguments
    assert arguments["resolution"] == 3
    # by hand: d=-ab gives a=-bd, b=-ad; e=ac gives a=ce, c=ae, e=ac; together be=-cd, bc=-de
    assert ["a", "-bd", "ce"] in arguments["aliases"] and ["bc", "-de"] in arguments["aliases"]
    assert ["be", "-cd"] in arguments["aliases"]


def test_given_points_come_back_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text(
        "\ufeffgain, agent, count,rate\n0.1,ppo,3,1e-3\n0.7, sac,1,0.10\n-0.3,ppo,2,1\n", encoding="utf-8"
    )
    options = inlined({"file": "points.csv"}, tmp_path)
    assert options["rows"][0] == [0.1, "ppo", 3, "1e-3"]
    spec = design(
        [
            number("gain", -1, 1),
            levels("agent", "ppo", "sac", "idle"),
            levels("count", 1, 2, 3),
            number("rate", 1e-6, 1, dist="loguniform"),
        ],
        "points",
        None,
        options,
    )
    assert check_sampler(spec) == []
    assert values(spec) == [(0.1, "ppo", 3, 0.001), (0.7, "sac", 1, 0.1), (-0.3, "ppo", 2, 1.0)]


LOGNORMAL = number("x", None, None, dist="lognormal", params={"mean": 0, "std": 1})
NORMAL = number("x", None, None, dist="normal", params={"mean": 0, "std": 1})
COUNT = number("x", None, None, kind="int", dist="normal", params={"mean": 0, "std": 1})


@pytest.mark.parametrize(
    ("factor", "value", "instead"),
    [
        (LOGNORMAL, 500, "the number 500 would become the number 455."),
        (LOGNORMAL, 1e-4, "would become the number 0.0021"),
        (NORMAL, 10, "would become the number 6.12"),
        (NORMAL, 5.1, "values of this distribution (normal) lie from -6.12"),
        (COUNT, 9, "the number 9 would become the number 6; "),
        (number("x", 0, 100, kind="int", dist="normal", params={"mean": 0, "std": 1}), 50, "would become"),
        (number("x", 0, 1e6), 1e-12, "would become the number 0.0"),
        (levels("x", 1, 2, weights=(1e-12, 1 - 1e-12)), 1, "its weight is too small"),
    ],
)
def test_a_given_value_that_would_become_another_is_refused(
    factor: Factor, value: float, instead: str
) -> None:
    found = check_sampler(design([factor], "points", None, {"columns": ["x"], "rows": [[value]]}))
    assert [place for place, _ in found] == [("sampler", "rows", 0)]
    assert instead in found[0][1], found


@given(st.floats(-4, 4), st.sampled_from([NORMAL, number("x", -5, 5), LOGNORMAL]))
def test_other_given_values_are_those_that_run(value: float, factor: Factor) -> None:
    value = float(np.exp(value)) if factor is LOGNORMAL else value
    spec = design([factor], "points", None, {"columns": ["x"], "rows": [[value]]})
    if value == 0 or abs(value) > 1e-14:
        assert check_sampler(spec) == []
        assert values(spec)[0][0] == pytest.approx(value, rel=1e-12, abs=2e-14)


def test_given_points_leave_out_what_is_inactive_only() -> None:
    factors = [levels("agent", "ppo", "sac"), number("clip", when='agent == "ppo"')]
    table = {"columns": ["agent", "clip"], "rows": [["ppo", 0.2], ["sac", None]]}
    spec = design(factors, "points", None, table)
    assert check_sampler(spec) == []
    assert [row[0] for row in values(spec)] == ["ppo", "sac"] and values(spec)[0][1] == 0.2
    lacking = design(factors, "points", None, {**table, "rows": [["ppo", None]]})
    assert check_sampler(lacking) == [
        (("sampler", "rows", 0), "clip has no value, and is active in this row")
    ]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"rows": [["x", 0.5]]}, "a text is no level; levels: ppo, sac"),
        ({"rows": [["pp0", 0.5]]}, "did you mean 'ppo'"),
        ({"rows": [["ppo", 7]]}, "clip: 7 lies outside 0 to 1"),
        ({"rows": [["ppo", 10**400]]}, "a value is a number, found the number 1000"),
        ({"rows": [["ppo", "much"]]}, "a value is a number, found a text"),
        ({"rows": [["ppo"]]}, "this point has 1 value, there must be a value for 2 columns"),
        ({"columns": ["agent", "klip"]}, "did you mean 'clip'"),
        ({"columns": ["agent"], "rows": [["ppo"]]}, "there is no column for clip"),
        ({"columns": ["agent", "clip", "clip"]}, "'clip' has more than one column"),
        ({"unit": True, "rows": [[0.5, 1.5]]}, "a coordinate is a number from 0 to 1, found the number 1.5"),
        ({"rows": 3}, "rows must be a list of points"),
    ],
)
def test_points_that_the_factors_do_not_have_are_refused(table: dict[str, object], message: str) -> None:
    options = {"columns": ["agent", "clip"], "rows": [["ppo", 0.5]], **table}
    found = check_sampler(design([levels("agent", "ppo", "sac"), number("clip")], "points", None, options))
    assert any(message in text for _, text in found), found


def test_a_file_of_points_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("a\n", encoding="utf-8")
    with pytest.raises(DocumentError, match=r"point.csv: cannot be read.*did you mean 'points.csv'"):
        inlined({"file": "point.csv"}, tmp_path)
    with pytest.raises(DocumentError, match="needs a header"):
        inlined({"file": "points.csv"}, tmp_path)

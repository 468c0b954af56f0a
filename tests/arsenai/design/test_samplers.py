"""Sensitivity samples and random ones: against SALib and scipy, called directly."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from SALib.sample import fast_sampler, morris, sobol
from scipy.stats import qmc
from support.factors import design, levels, number

from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.samplers import SAMPLERS, sample
from palaestrai_mosaik.arsenai.design.samplers.lhs import spread
from palaestrai_mosaik.core.seeding import generator, global_state_digest

THREE = [number("a"), levels("b", "x", "y", "z"), number("c", -1, 4)]
PROBLEM = {"num_vars": 3, "names": ["a", "b", "c"], "bounds": [[0, 1]] * 3}

SPECS = {
    "sobol": design(THREE, "sobol", 16),
    "morris": design([number("a"), number("c")], "morris", 6, {"levels": 6, "optimal": 4}),
    "fast": design([number("a"), number("c")], "fast", 65),
    "finite_differences": design([number("a"), number("c")], "finite_differences", 10),
    "lhs": design(THREE, "lhs", 20, {"optimize": "discrepancy"}),
    "random": design(THREE, "random", 20),
    "factorial": design(THREE, "factorial", None, {"levels": 5}, max_runs=20),
    "fractional_factorial": design([number(name) for name in "abcd"], "fractional_factorial"),
    "plackett_burman": design([number(name) for name in "abcde"], "plackett_burman"),
    "adaptive": design(THREE, "adaptive", 20, {"condition": "y > 1"}),
    "points": design(
        THREE,
        "points",
        None,
        {"columns": ["a", "b", "c"], "rows": [[0.25, "y", 3], [1, "z", -1]]},
    ),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_sample_lies_in_the_cube_and_is_the_design_s_alone(name: str) -> None:
    spec = SPECS[name]
    before = global_state_digest()
    first = sample(spec)
    again = sample(spec)
    assert global_state_digest() == before
    np.testing.assert_array_equal(first.unit, again.unit)
    assert first.unit.shape[1] == len(spec.axes)
    assert first.unit.min() >= 0 and first.unit.max() <= 1
    assert first.block.dtype == np.int64 and len(first.block) == len(first.unit)
    assert first.block[0] == 0 and set(np.diff(first.block)) <= {0, 1}
    rows = SAMPLERS[name].rows(spec)
    assert len(first.unit) == (rows if spec.max_runs is None else min(rows, spec.max_runs))


@pytest.mark.parametrize(
    "name", ["sobol", "finite_differences", "morris", "fast", "lhs", "random", "adaptive", "factorial"]
)
def test_another_seed_gives_another_sample(name: str) -> None:
    spec = SPECS[name]
    other = design(spec.axes, name, spec.sampler.n, spec.sampler.options, seed=8, max_runs=spec.max_runs)
    assert not np.array_equal(sample(spec).unit, sample(other).unit)


def test_sobol_is_saltelli_s_sample_in_the_unit_cube() -> None:
    found = sample(SPECS["sobol"])
    # eight randomisations take turns
    for i in range(8):
        seed = generator(7, "sample", "sobol", "randomization", i)
        oracle = sobol.sample(dict(PROBLEM), 2, seed=seed)
        np.testing.assert_array_equal(found.unit[found.block % 8 == i], oracle)
    assert found.arguments["randomizations"] == 8
    assert found.block.tolist() == [i for i in range(16) for _ in range(8)]
    # within a block: A, then A with one column of B, ..., B
    block = found.unit[:8]
    for column in range(3):
        changed = block[0] != block[1 + column]
        assert changed.tolist() == [column == other for other in range(3)]
    first = sample(design(THREE, "sobol", 16, {"second_order": False, "scramble": False}))
    assert len(first.unit) == 16 * 5 and first.unit[0].tolist() == [0, 0, 0]


def test_a_larger_sobol_sample_begins_with_the_smaller_one() -> None:
    large = sample(design(THREE, "sobol", 32))
    for n in (2, 4, 8, 16):
        small = sample(design(THREE, "sobol", n))
        np.testing.assert_array_equal(small.unit, large.unit[: len(small.unit)])
        assert small.arguments["randomizations"] == min(n, 8)
    small, large = (sample(design(THREE, "random", n)) for n in (7, 30))
    np.testing.assert_array_equal(small.unit, large.unit[:7])
    small, large = (sample(design([number("a")], "finite_differences", n)) for n in (7, 30))
    np.testing.assert_array_equal(small.unit, large.unit[:14])


@pytest.mark.parametrize(("sampler", "n"), [("sobol", 4), ("morris", 5)])
def test_groups_move_together(sampler: str, n: int) -> None:
    factors = [number(name) for name in "abcd"]
    spec = design(factors, sampler, n, groups={"a": "control", "c": "control"})
    found = sample(spec)
    # control, b, d
    rows = 2 * 3 + 2 if sampler == "sobol" else 3 + 1
    assert len(found.unit) == n * rows == SAMPLERS[sampler].rows(spec)
    assert np.bincount(found.block).tolist() == [rows] * n
    block = found.unit[:rows]
    steps = (
        [tuple(block[0] != row) for row in block[1:4]]
        if sampler == "sobol"
        else [tuple(one != other) for one, other in pairwise(block)]
    )
    expected = {(True, False, True, False), (False, True, False, False), (False, False, False, True)}
    assert set(steps) == expected


def test_morris_walks_on_the_grid_one_factor_at_a_time() -> None:
    factors = [number(name) for name in "abc"]
    found = sample(design(factors, "morris", 8, {"levels": 6}))
    oracle = morris.sample(dict(PROBLEM), 8, num_levels=6, seed=generator(7, "sample", "morris"))
    np.testing.assert_allclose(found.unit, oracle, atol=1e-15)
    assert found.block.tolist() == [i for i in range(8) for _ in range(4)]
    np.testing.assert_allclose(np.round(found.unit * 5), found.unit * 5, atol=1e-12)
    steps = np.abs(np.diff(found.unit.reshape(8, 4, 3), axis=1))
    np.testing.assert_allclose(np.sort(steps, axis=2), np.tile([0, 0, 0.6], (8, 3, 1)), atol=1e-12)


def test_optimal_trajectories_are_chosen_of_n_and_lie_further_apart() -> None:
    factors = [number(name) for name in "abc"]
    many = sample(design(factors, "morris", 40)).unit.reshape(40, 4, 3)
    best = sample(design(factors, "morris", 40, {"optimal": 6}))
    assert best.block.tolist() == [i for i in range(6) for _ in range(4)]
    chosen = best.unit.reshape(6, 4, 3)
    assert all(any(np.array_equal(one, other) for other in many) for one in chosen)

    def apart(walks: np.ndarray) -> float:
        return float(np.sqrt(((walks[:, None, :, None] - walks[None, :, None]) ** 2).sum(-1)).sum())

    random = np.random.default_rng(1)
    others = [apart(many[random.choice(40, 6, replace=False)]) for _ in range(200)]
    assert apart(chosen) > np.quantile(others, 0.95)
    also = sample(design(factors, "morris", None, {"trajectories": 40, "optimal": 6}))
    np.testing.assert_array_equal(also.unit, best.unit)


def test_fast_has_a_curve_per_factor() -> None:
    spec = design([number(name) for name in "abc"], "fast", 257, {"M": 8})
    found = sample(spec)
    oracle = fast_sampler.sample(dict(PROBLEM), 257, M=8, seed=generator(7, "sample", "fast"))
    np.testing.assert_allclose(found.unit, oracle, atol=1e-15)
    assert np.bincount(found.block).tolist() == [257] * 3


def test_finite_differences_step_once_along_every_axis() -> None:
    spec = design([number(name) for name in "abc"], "finite_differences", 9, {"delta": 0.1})
    found = sample(spec)
    blocks = found.unit.reshape(9, 4, 3)
    # eight randomisations take turns: the ninth point is the second one of the first
    for i in range(8):
        seed = generator(7, "sample", "finite_differences", "randomization", i)
        oracle = qmc.Sobol(3, seed=seed).random_base2(1)
        np.testing.assert_array_equal(blocks[i::8, 0], oracle[: len(blocks[i::8])])
    steps = np.diagonal(blocks[:, 1:], axis1=1, axis2=2)
    np.testing.assert_array_equal(steps, np.minimum(1.1 * blocks[:, 0], 1.0))
    for axis in range(3):
        moved = blocks[:, 1 + axis] != blocks[:, 0]
        assert (moved == (np.arange(3) == axis)).all()


def test_a_latin_hypercube_has_one_point_in_every_part() -> None:
    for optimize in ("none", "discrepancy", "maximin"):
        found = sample(design(THREE, "lhs", 25, {"optimize": optimize}))
        for column in found.unit.T:
            assert sorted(np.floor(column * 25).astype(int)) == list(range(25))
    oracle = qmc.LatinHypercube(3, seed=generator(7, "sample", "lhs")).random(25)
    np.testing.assert_array_equal(sample(design(THREE, "lhs", 25)).unit, oracle)


def test_optimised_hypercubes_are_better_by_their_criterion() -> None:
    factors = [number(name) for name in "abc"]
    plain, even, wide = (
        sample(design(factors, "lhs", 25, {"optimize": optimize})).unit
        for optimize in ("none", "discrepancy", "maximin")
    )

    def nearest(unit: np.ndarray) -> float:
        gaps = np.sqrt(((unit[:, None] - unit[None]) ** 2).sum(-1))
        return float(gaps[np.triu_indices(len(unit), 1)].min())

    assert qmc.discrepancy(even) < 0.8 * qmc.discrepancy(plain)
    assert nearest(wide) > 2 * nearest(plain)


def test_maximin_takes_no_distance_between_nominal_levels() -> None:
    spec: DesignSpec = design([levels("a", "x", "y", "z"), number("b")], "lhs", 12)
    unit = sample(spec).unit
    found = spread(spec, unit, np.random.default_rng(1))
    # the names of the levels exchanged: the same exchanges are made
    turned = unit.copy()
    turned[:, 0] = (unit[:, 0] + 1 / 3) % 1
    other = spread(spec, turned, np.random.default_rng(1))
    np.testing.assert_allclose(other[:, 0], (found[:, 0] + 1 / 3) % 1)
    np.testing.assert_array_equal(other[:, 1], found[:, 1])


def test_a_sample_of_a_morris_screening_says_what_its_levels_do() -> None:
    ordered = levels("a", 1, 2, 3, ordered=True)
    uneven = sample(design([ordered, number("b")], "morris", 4))
    assert "a has 3 levels and Morris moves on 4" in uneven.warnings[0]
    assert "levels: 6 hits" in uneven.warnings[0]
    even = sample(design([ordered, number("b", when="a > 1")], "morris", 4, {"levels": 6}))
    assert len(even.warnings) == 1 and "b: elementary effects are 0" in even.warnings[0]


def test_a_sample_of_a_morris_screening_names_the_levels_that_it_never_takes() -> None:
    many = levels("a", *"vwxyz", ordered=True)
    heavy = levels("b", 1, 2, 3, ordered=True, weights=(0.1, 0.8, 0.1))
    fair = levels("c", 1, 2, 3, ordered=True, weights=(0.25, 0.5, 0.25))
    for spec in (design([many, fair], "morris", 9), design([heavy, fair], "morris", 9, {"levels": 2})):
        found = sample(spec)
        rows = decode(spec, found.unit)
        axis, *_ = spec.factors
        never = [level for level in axis.levels if all(row[axis.name] != level for row in rows)]
        assert never == (["x"] if axis is many else [2])
        assert f"never takes {never[0]}; levels: {6 if axis is many else 4} hits all" in found.warnings[0]
    assert not sample(design([fair], "morris", 9, {"levels": 4})).warnings
    by_weight = sample(design([heavy], "morris", 9, {"levels": 4})).warnings
    assert "come more often than their share; levels: 10 hits each by its share" in by_weight[0]

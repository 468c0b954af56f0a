"""Methods of sensitivity analysis against SALib, scipy and numbers computed by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaestrai_mosaik.design.methods import METHODS, Refused, Repetitions, Study
from palaestrai_mosaik.design.methods.delta import classes
from palaestrai_mosaik.design.methods.method import ranks
from palaestrai_mosaik.environment.functions import ishigami, sobol_g
from palaestrai_mosaik.seeding import global_state_digest


def random(seed=1):
    return np.random.Generator(np.random.PCG64(seed))


def study(unit, y, block=None, **keys):
    names = tuple(f"x{i}" for i in range(1, unit.shape[1] + 1))
    block = np.arange(len(y)) if block is None else block
    told = {"names": names, "groups": names, "seed": 5, "resamples": 50, **keys}
    return Study(unit, np.asarray(y, dtype=float), block, **told)


def ishigami_at(unit):
    return np.array([ishigami(point) for point in np.pi * (2 * unit - 1)])


def values(name, given_study, index):
    rows = METHODS[name].analyse(given_study).rows
    return np.array([row.value for row in rows if row.index == index and not row.factor.startswith("(")])


def problem(size):
    names = [f"x{i}" for i in range(1, size + 1)]
    return {"num_vars": size, "names": names, "bounds": [[0.0, 1.0]] * size}


@pytest.fixture(scope="module")
def saltelli():
    from SALib.sample import sobol

    unit = sobol.sample(problem(3), 64, calc_second_order=True, seed=2)
    return study(unit, ishigami_at(unit), np.repeat(np.arange(64), 8))


@pytest.fixture(scope="module")
def scattered():
    unit = random().random((300, 3))
    return study(unit, ishigami_at(unit))


@pytest.fixture(scope="module")
def slopes():
    from SALib.sample import finite_diff

    unit = finite_diff.sample(problem(3), 64, seed=1)
    return study(unit, ishigami_at(unit))


def test_sobol_is_salib_and_repeats_itself(saltelli):
    from SALib.analyze import sobol

    theirs = sobol.analyze(problem(3), saltelli.y, num_resamples=50, seed=5)
    found = {(row.index, row.factor, row.factor2): row for row in METHODS["sobol"].analyse(saltelli).rows}
    assert found["S1", "x2", ""].value == theirs["S1"][1]
    assert found["ST", "x3", ""].high == theirs["ST"][2] + theirs["ST_conf"][2]
    assert found["S2", "x1", "x3"].low == theirs["S2"][0, 2] - theirs["S2_conf"][0, 2]
    assert METHODS["sobol"].analyse(saltelli) == METHODS["sobol"].analyse(saltelli)


def exact_shapley(a):
    """Of Sobol's G function, by enumerating all subsets: the closed index of u is prod(1 + V_i) - 1 over V."""
    size, v = len(a), 1 / (3 * (1 + np.array(a)) ** 2)
    total = np.prod(1 + v) - 1
    effects = np.zeros(size)
    for inside in itertools.product([False, True], repeat=size):
        u = np.array(inside)
        for i in np.flatnonzero(~u):
            gain = (np.prod(1 + v[u]) * v[i]) / total
            effects[i] += gain / (size * comb(size - 1, int(u.sum())))
    return effects


@pytest.mark.parametrize(("size", "second"), [(2, True), (3, False), (4, False), (5, True), (8, True)])
def test_shapley_effects_are_those_of_all_subsets(size, second):
    from SALib.sample import sobol

    a = [0, 1, 0.5, 2, 1.5, 9, 99, 3][:size]
    unit = sobol.sample(problem(size), 4096, calc_second_order=second, seed=1)
    given_study = study(
        unit,
        [sobol_g(point, a) for point in unit],
        np.repeat(np.arange(4096), 2 * size + 2 if second else size + 2),
        resamples=2,
    )
    found = values("shapley", given_study, "Sh")
    np.testing.assert_allclose(found, exact_shapley(a), rtol=0, atol=0.015)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(("size", "together", "second"), [(4, 3, False), (5, 4, True), (7, 4, True)])
def test_shapley_effects_of_what_only_acts_together_are_shared(size, together, second):
    """A product of some factors around 0 has one interaction, of all of them, and nothing else."""
    from SALib.sample import sobol

    unit = sobol.sample(problem(size), 2048, calc_second_order=second, seed=1)
    block = np.repeat(np.arange(2048), 2 * size + 2 if second else size + 2)
    given_study = study(unit, np.prod(2 * unit[:, :together] - 1, axis=1), block, resamples=2)
    wanted = [1 / together] * together + [0.0] * (size - together)
    np.testing.assert_allclose(values("shapley", given_study, "Sh"), wanted, rtol=0, atol=0.02)


def test_intervals_of_shapley_effects_hold_the_answer(saltelli):
    rows = METHODS["shapley"].analyse(replace(saltelli, resamples=300)).rows
    for row, wanted in zip(rows, [0.3139 + 0.2437 / 2, 0.4424, 0.2437 / 2], strict=True):
        assert row.low < wanted < row.high
        assert row.low < row.value < row.high


def test_pawn_is_salib_where_slices_are_alike():
    from SALib.analyze import pawn

    unit = np.column_stack([(random(i).permutation(200) + 0.5) / 200 for i in range(3)])
    y = ishigami_at(unit)
    theirs = pawn.analyze(problem(3), np.vstack([unit, [1.0, 1.0, 1.0]]), np.append(y, y[0]), S=10)
    np.testing.assert_allclose(values("pawn", study(unit, y), "median"), theirs["median"], rtol=0, atol=0.01)


def test_pawn_tells_what_a_factor_without_influence_has(scattered):
    unit = np.column_stack([scattered.unit, random(9).random(300)])
    rows = {
        (row.index, row.factor): row.value for row in METHODS["pawn"].analyse(study(unit, scattered.y)).rows
    }
    assert rows["median", "x4"] < rows["median", "(irrelevant)"] < rows["median", "x2"]


def test_rbd_fast_is_salib(scattered):
    from SALib.analyze import rbd_fast

    theirs = rbd_fast.analyze(problem(3), scattered.unit, scattered.y, num_resamples=2, seed=1)
    np.testing.assert_allclose(values("rbd_fast", scattered, "S1"), theirs["S1"], rtol=0, atol=1e-12)


def test_delta_is_salib(scattered):
    """Its bias correction is a bootstrap, so the two differ by chance; the number of classes must not."""
    from SALib.analyze import delta

    theirs = delta.calc_delta(
        scattered.y,
        np.linspace(scattered.y.min(), scattered.y.max(), 100),
        scattered.unit[:, 1],
        np.linspace(0, 300, classes(300) + 1),
    )
    found = values("delta", scattered, "delta")
    assert found[1] == pytest.approx(theirs, abs=0.06)
    assert found[1] < theirs  # the estimate without correction is too high
    assert (found > 0).all()


def test_delta_tells_how_little_it_can_see():
    """Four classes of sin^2 over two periods are alike; and half of these classes are constant."""
    unit = np.column_stack([(random(i).permutation(100) + 0.5) / 100 for i in range(2)])
    y = np.where(unit[:, 0] < 0.5, 0.0, np.sin(2 * np.pi * unit[:, 1]) ** 2)
    found = METHODS["delta"].analyse(study(unit, y))
    assert "into 4 classes for 100 rows" in found.notes[0]
    assert "leaves out 2 of 8 classes" in found.notes[1]


def test_dgsm_scales_its_intervals_too(slopes):
    rows = METHODS["dgsm"].analyse(slopes).rows
    bound, slope = rows[0], rows[3]
    assert (bound.index, slope.index, bound.factor, slope.factor) == ("dgsm", "vi", "x1", "x1")
    np.testing.assert_allclose(bound.high / bound.value, slope.high / slope.value, rtol=1e-12)


def test_anova_of_one_factor_is_that_of_scipy():
    from scipy.stats import f_oneway

    y = random().normal(loc=[[0], [1], [3]], size=(3, 4))
    runs = Repetitions(np.repeat(np.arange(3), 4), np.tile(np.arange(4), 3), y.ravel())
    unit = np.array([[1 / 6], [0.5], [5 / 6]])
    for drop in (None, 5):  # balanced and not: two ways to the same sums of squares
        kept = np.delete(np.arange(12), [] if drop is None else drop)
        left = Repetitions(runs.row[kept], runs.number[kept], runs.y[kept])
        given_study = study(unit, y.mean(axis=1), sampler="factorial", repetitions=left)
        theirs = f_oneway(*(left.y[left.row == row] for row in range(3)))
        assert values("anova", given_study, "F")[0] == pytest.approx(theirs.statistic, rel=1e-10)
        assert values("anova", given_study, "p")[0] == pytest.approx(theirs.pvalue, rel=1e-8)


def test_anova_takes_shared_seeds_as_blocks():
    """Randomised blocks by hand: rows differ by 2, seeds by 6, what is left are errors of 1."""
    y = np.array([[0.0, 6.0], [4.0, 8.0]])  # rows x repetitions; grand mean 4.5
    runs = Repetitions(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), y.ravel(), common=True)
    found = study(np.array([[0.25], [0.75]]), y.mean(axis=1), sampler="factorial", repetitions=runs)
    shares = {row.factor: row.value for row in METHODS["anova"].analyse(found).rows if row.index == "eta2"}
    # sums of squares: rows 2 (3 - 4.5)^2 + 2 (6 - 4.5)^2 = 9, seeds 2 (2 - 4.5)^2 + 2 (7 - 4.5)^2 = 25, all 35
    assert shares == pytest.approx({"x1": 9 / 35, "(repetition)": 25 / 35, "(error)": 1 / 35})


def test_anova_of_as_many_runs_that_are_of_unequal_seeds():
    """Each row lost one of three repetitions, not the same: what seeds explain is a regression, not a mean of columns."""
    row, number = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 1, 1, 2, 0, 2])
    y = np.array([1.0, 4.0, 5.0, 9.0, 3.0, 8.0])
    runs = Repetitions(row, number, y, common=True)
    means = np.bincount(row, y) / 2
    found = METHODS["anova"].analyse(
        study(np.array([[0.2], [0.5], [0.8]]), means, sampler="factorial", repetitions=runs)
    )
    rows = {(one.index, one.factor): one.value for one in found.rows}
    left = {}
    for name, columns in {"both": (row, number), "x1": (number,), "(repetition)": (row,)}.items():
        matrix = np.column_stack([np.eye(3)[column] for column in columns])
        left[name] = ((y - matrix @ np.linalg.lstsq(matrix, y, rcond=None)[0]) ** 2).sum()
    total = ((y - y.mean()) ** 2).sum()
    assert rows["eta2", "(error)"] == pytest.approx(left["both"] / total)
    assert rows["df", "(error)"] == 6 - 1 - 2 - 2
    for name in ("x1", "(repetition)"):
        assert rows["eta2", name] == pytest.approx((left[name] - left["both"]) / total)


@pytest.mark.parametrize("missing", [0, 1])
def test_what_explains_nothing_but_rounding_is_zero(missing):
    grid = np.array(list(itertools.product(range(2), range(3), range(3))))
    grid = grid[: len(grid) - missing]
    y = grid[:, 0] * 0.1 + grid[:, 1] * 0.3
    found = METHODS["anova"].analyse(study((grid + 0.5) / (2, 3, 3), y, sampler="factorial"))
    shares = {(one.factor, one.factor2): one.value for one in found.rows if one.index in ("eta2", "omega2")}
    assert {name for name, share in shares.items() if share == 0.0} == shares.keys() - {
        ("x1", ""),
        ("x2", ""),
    }


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(2, 4), min_size=1, max_size=3), st.integers(0, 10**6))
def test_shares_of_a_full_factorial_add_up_and_ignore_the_order_of_rows(levels, seed):
    grid = np.array(list(itertools.product(*(range(size) for size in levels))))
    unit = (grid + 0.5) / levels
    y = random(seed).normal(size=len(grid)) * 3 + 100
    order = random(seed + 1).permutation(len(grid))
    found = METHODS["anova"].analyse(study(unit, y, sampler="factorial")).rows
    shares = [row.value for row in found if row.index == "eta2"]
    assert sum(shares) == pytest.approx(1.0, abs=1e-9)
    again = METHODS["anova"].analyse(study(unit[order], y[order], sampler="factorial")).rows
    np.testing.assert_allclose(
        [row.value for row in again], [row.value for row in found], rtol=1e-8, atol=1e-10
    )


def test_anova_with_gaps_says_so_and_keeps_to_what_it_can_tell():
    grid = np.array(list(itertools.product(range(3), range(3))))[:-1]
    y = grid[:, 0] * 1.0 + grid[:, 1] ** 2
    found = METHODS["anova"].analyse(study((grid + 0.5) / 3, y, sampler="factorial"))
    rows = {(row.index, row.factor, row.factor2): row.value for row in found.rows}
    assert "type II" in found.notes[0]
    assert "confounded" in found.notes[1]
    assert rows["df", "x1", "x2"] == 3.0  # of 4: one combination is missing
    assert rows["eta2", "x1", "x2"] == pytest.approx(0.0, abs=1e-12)
    # what x1 adds to x2 and the other way round: regressions by hand
    total = ((y - y.mean()) ** 2).sum()
    for own, other in ((0, 1), (1, 0)):
        columns = [np.eye(3)[grid[:, axis]] for axis in (other, own)]
        left = [
            ((y - matrix @ np.linalg.lstsq(matrix, y, rcond=None)[0]) ** 2).sum()
            for matrix in (columns[0], np.column_stack(columns))
        ]
        assert rows["eta2", f"x{own + 1}", ""] == pytest.approx((left[0] - left[1]) / total, abs=1e-10)


def test_anova_of_a_saturated_design_gives_the_squares_of_its_contrasts():
    """Four runs for three factors of two levels: nothing is left for an error."""
    signs = np.array([[-1, -1, 1], [1, -1, -1], [-1, 1, -1], [1, 1, 1]])
    found = METHODS["anova"].analyse(
        study((signs + 2) / 4, signs @ [1.0, 2.0, 4.0], sampler="plackett_burman")
    )
    rows = {(row.index, row.factor): row.value for row in found.rows}
    assert rows == pytest.approx(
        {("eta2", f"x{i}"): share / 21 for i, share in ((1, 1), (2, 4), (3, 16))}
        | {("df", f"x{i}"): 1.0 for i in (1, 2, 3)}
    )
    assert "aliases" in found.notes[-1]
    assert "no run is left for an error" in found.notes[-2]
    # with repetitions there is one
    row, number = np.indices((4, 2)).reshape(2, -1)
    y = (signs @ [1.0, 2.0, 4.0])[row] + random().normal(size=8)
    repeated = study(
        (signs + 2) / 4,
        np.bincount(row, y) / 2,
        sampler="plackett_burman",
        repetitions=Repetitions(row, number, y, common=True),
    )
    assert not any("for an error" in note for note in METHODS["anova"].analyse(repeated).notes)


def test_a_factor_of_which_one_level_is_left_explains_nothing_that_is_known():
    unit = np.array([[0.25, 0.25], [0.25, 0.75], [0.25, 0.25], [0.25, 0.75]])
    found = METHODS["anova"].analyse(study(unit, [1.0, 2.0, 1.5, 2.5], sampler="factorial"))
    shares = {(row.factor, row.factor2): row.value for row in found.rows if row.index == "eta2"}
    assert np.isnan(shares["x1", ""]) and np.isnan(shares["x1", "x2"])
    assert shares["x2", ""] == pytest.approx(0.8)


@pytest.mark.parametrize(("resolution", "told"), [(3, False), (4, False), (5, True), (None, True)])
def test_pairs_of_a_fraction_are_told_where_nothing_else_is_in_them(resolution, told):
    """Half of 2^5: the fifth factor is the product of the others, so pairs are free of each other."""
    signs = np.array(list(itertools.product((-1, 1), repeat=4)))
    signs = np.column_stack([signs, signs.prod(axis=1)])
    y = 3.0 * signs[:, 0] + signs[:, 1] * signs[:, 4]
    arguments = {"resolution": resolution}
    given_study = study((signs + 2) / 4, y, sampler="fractional_factorial", arguments=arguments)
    found = METHODS["anova"].analyse(given_study)
    shares = {(row.factor, row.factor2): row.value for row in found.rows if row.index == "eta2"}
    assert shares["x1", ""] == pytest.approx(0.9)
    assert (("x2", "x5") in shares) == told
    if told:
        assert shares["x2", "x5"] == pytest.approx(0.1)
        assert shares["x3", "x4"] == pytest.approx(0.0, abs=1e-12)
    assert any("aliases" in note for note in found.notes) != told


def test_ties_are_broken_evenly_and_reproducibly():
    levels = np.repeat([0.25, 0.75], 50)
    found = ranks(levels, 3)
    assert sorted(found) == [(i + 0.5) / 100 for i in range(100)]
    assert (found[:50] < 0.5).all()
    assert not (np.diff(found[:50]) > 0).all()
    np.testing.assert_array_equal(found, ranks(levels, 3))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_too_few_rows_are_refused_or_analysed_but_never_an_accident(name):
    for rows in (2, 3, 5, 7):
        unit = random().random((rows, 3))
        given_study = study(unit, ishigami_at(unit), np.zeros(rows, dtype=int), sampler="factorial")
        try:
            found = METHODS[name].analyse(given_study).rows
        except Refused as reason:
            assert str(reason)
        else:
            assert found


@pytest.mark.parametrize("name", ["sobol", "shapley", "dgsm", "delta", "pawn", "rbd_fast"])
def test_the_global_generators_are_left_alone(name, saltelli, scattered, slopes):
    before = global_state_digest()
    given_study = {"sobol": saltelli, "shapley": saltelli, "dgsm": slopes}.get(name, scattered)
    first = METHODS[name].analyse(given_study)
    assert global_state_digest() == before
    np.random.random(3)  # noqa: NPY002  (somebody else draws; it must not matter)
    assert METHODS[name].analyse(given_study) == first

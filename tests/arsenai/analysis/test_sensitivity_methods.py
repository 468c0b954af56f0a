"""Methods of sensitivity analysis against SALib, scipy and numbers computed by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace
from math import comb

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from support.factors import design, number

from palaestrai_mosaik.arsenai.design.methods import METHODS, Refused, Repetitions, Study
from palaestrai_mosaik.arsenai.design.methods.delta import classes
from palaestrai_mosaik.arsenai.design.methods.jackknife import jackknife
from palaestrai_mosaik.arsenai.design.methods.method import ranks
from palaestrai_mosaik.arsenai.design.samplers import sample
from palaestrai_mosaik.core.seeding import global_state_digest
from palaestrai_mosaik.environment.functions import ishigami, sobol_g


def random(seed=1):
    return np.random.Generator(np.random.PCG64(seed))


def study(unit, y, block=None, **keys):
    names = tuple(f"x{i}" for i in range(1, unit.shape[1] + 1))
    block = np.arange(len(y)) if block is None else block
    told = {"names": names, "groups": names, "seed": 5, "resamples": 50, **keys}
    return Study(unit, np.asarray(y, dtype=float), block, **told)


def ishigami_at(unit):
    return np.array([ishigami(point) for point in np.pi * (2 * unit - 1)])


def indices(name, given_study):
    """Return the indices without the tests of them."""
    return [row for row in METHODS[name].analyse(given_study).rows if row.index != "p_adjusted"]


def values(name, given_study, index):
    rows = indices(name, given_study)
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

    theirs = sobol.analyze(problem(3), saltelli.y, num_resamples=2, seed=5)
    found = {(row.index, row.factor, row.factor2): row.value for row in indices("sobol", saltelli)}
    names = ("x1", "x2", "x3")
    wanted = {(index, name, ""): theirs[index][i] for index in ("S1", "ST") for i, name in enumerate(names)}
    wanted |= {("S2", names[i], names[j]): theirs["S2"][i, j] for i, j in ((0, 1), (0, 2), (1, 2))}
    assert found == pytest.approx(wanted, rel=1e-12, abs=1e-12)
    assert METHODS["sobol"].analyse(saltelli) == METHODS["sobol"].analyse(saltelli)


def test_intervals_are_from_the_spread_between_randomisations(saltelli):
    """Of ST, what SALib estimates without each of eight randomisations is an oracle."""
    from SALib.analyze import sobol
    from scipy.stats import t

    found = METHODS["sobol"].analyse(replace(saltelli, arguments={"randomizations": 8}))
    total = [row for row in found.rows if row.index == "ST"]
    kept = [saltelli.y[saltelli.block % 8 != number] for number in range(8)]
    without = np.array([sobol.analyze(problem(3), y, num_resamples=2, seed=5)["ST"] for y in kept])
    half = t.ppf(0.975, 7) * np.sqrt(7 * without.var(axis=0))
    log_half = t.ppf(0.975, 7) * np.sqrt(7 * np.log(without).var(axis=0))
    for row, down, up in zip(total, half, log_half, strict=True):
        assert row.low == pytest.approx(row.value - down, rel=1e-9)
        assert row.high == pytest.approx(min(1.0, max(row.value + down, row.value * np.exp(up))), rel=1e-9)
    # points that are no randomisations are taken for independent ones, which is said
    plain = METHODS["sobol"].analyse(saltelli)
    assert plain.notes[0].startswith("all points are of one sequence")
    assert not any(note.startswith("all points") for note in found.notes)


def test_randomisations_that_have_lost_blocks_weigh_less():
    """Of a mean, the delete-m jackknife is a weighted variance of the means of the groups (Busing et al. 1999)."""
    from scipy.stats import t

    y, block = random().random(40), np.arange(40)
    kept = ~np.isin(block, [3, 11, 12, 27])
    given = study(y[kept, None], y[kept], block[kept], arguments={"randomizations": 8})
    found = jackknife(given, y[kept, None], lambda means: means)
    groups = [y[kept & (block % 8 == number)] for number in range(8)]
    sizes, means = np.array([len(one) for one in groups]), np.array([one.mean() for one in groups])
    assert len(set(sizes)) > 1
    variance = (sizes / (36 - sizes) * (means - y[kept].mean()) ** 2).mean()
    assert found.half_widths(0.9) == pytest.approx(t.ppf(0.95, 7) * np.sqrt(variance))


def test_without_variance_there_is_no_interval(saltelli):
    eight = saltelli.block < 8
    kept = replace(
        saltelli, unit=saltelli.unit[eight], block=saltelli.block[eight], arguments={"randomizations": 8}
    )
    # one point of eight differs from the others: without it, nothing varies
    one = np.where(kept.block == 3, saltelli.y[eight], 0.0)
    for method in ("sobol", "shapley"):
        rows = METHODS[method].analyse(replace(kept, y=one)).rows
        assert np.isfinite([row.value for row in rows]).all()
        assert np.isnan([(row.low, row.high) for row in rows]).all()
    between = np.where((np.arange(64) % 8) % 7 == 0, 0.0, kept.unit[:, 0])
    with pytest.raises(Refused, match="the same at all base points"):
        METHODS["sobol"].analyse(replace(kept, y=between))


@pytest.mark.parametrize(
    ("method", "sampler", "factors"),
    [
        *(("sobol", "sobol", size) for size in (2, 12)),
        *(("shapley", "sobol", size) for size in (2, 5)),
        *(("dgsm", "finite_differences", size) for size in (2, 12)),
    ],
)
def test_intervals_are_as_wide_as_estimates_differ_between_seeds(method, sampler, factors):
    """With two factors, a bootstrap of the points makes them far too wide, with many too narrow for some factors."""
    names = tuple(f"x{i}" for i in range(factors))
    options = {"second_order": method == "shapley"} if sampler == "sobol" else {}
    values, halves = [], []
    for seed in range(60):
        drawn = sample(design([number(name) for name in names], sampler, 64, options, seed=seed))
        # (with two factors, that is additive; the slopes of such a function do not vary)
        y = np.prod(drawn.unit + 0.5, axis=1) if method == "dgsm" else drawn.unit @ np.arange(1, factors + 1)
        given = Study(drawn.unit, y, drawn.block, names, names, sampler, drawn.arguments)
        rows = indices(method, given)
        values.append([row.value for row in rows])
        halves.append([(row.high - row.low) / 2 for row in rows])
    ratio = np.mean(halves, axis=0) / np.std(values, axis=0)
    # Student's t of 7 degrees of freedom is 2.4
    assert ratio.min() > 1.6 and ratio.max() < 4.0


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
    rows = METHODS["shapley"].analyse(replace(saltelli, resamples=300)).rows[:3]
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


def test_dgsm_is_salib(slopes):
    from SALib.analyze import dgsm

    theirs = dgsm.analyze(problem(3), slopes.unit, slopes.y, num_resamples=2)
    found = {(row.index, row.factor): row.value for row in indices("dgsm", slopes)}
    wanted = {(index, f"x{i + 1}"): theirs[index][i] for index in ("dgsm", "vi") for i in range(3)}
    assert found == pytest.approx(wanted, rel=1e-12)


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


def by_seed(levels, seeds, seed=1, lost=()):
    """Return the indices, and the outcomes as an array of (levels..., seeds); ``lost`` are the numbers of lost runs."""
    grid = np.array(list(itertools.product(*map(range, levels), range(seeds))))
    rng = random(seed)
    y = rng.normal(size=len(grid)) + rng.normal(size=(levels[-1], seeds))[grid[:, -2], grid[:, -1]]
    kept = np.delete(np.arange(len(grid)), lost)
    rows, row = np.unique(grid[kept, :-1], axis=0, return_inverse=True)
    row = row.ravel()
    runs = Repetitions(row, grid[kept, -1], y[kept], common=True)
    means = np.bincount(row, y[kept]) / np.bincount(row)
    found = METHODS["anova"].analyse(
        study((rows + 0.5) / levels, means, sampler="factorial", repetitions=runs)
    )
    values = {(one.index, *filter(None, (one.factor, one.factor2))): one.value for one in found.rows}
    return values, y.reshape(*levels, seeds), found.notes


def test_anova_of_shared_seeds_is_one_of_repeated_measures():
    """Each effect over its interaction with the seed, by the formulas of a textbook and with marginal means."""
    levels, seeds = (4, 3), 6
    values, y, notes = by_seed(levels, seeds)
    y = y - y.mean()
    seed = y.mean(axis=(0, 1))
    for name, axis, other in (("x1", 0, 1), ("x2", 1, 0)):
        size, repeats = levels[axis], levels[other]
        own, by = y.mean(axis=(other, 2)), y.mean(axis=other)  # (levels), (levels, seeds)
        effect = seeds * repeats * (own**2).sum()
        error = repeats * ((by - own[:, None] - seed) ** 2).sum()
        df, df_error = size - 1, (size - 1) * (seeds - 1)
        ratio = effect / df / (error / df_error)
        # Box's factor from the covariance of orthonormal contrasts between seeds
        contrasts = np.linalg.qr(np.column_stack([np.ones(size), np.eye(size)[:, 1:]]))[0][:, 1:]
        between = np.atleast_2d(np.cov(contrasts.T @ by))
        box = np.trace(between) ** 2 / (between**2).sum()
        epsilon = min((seeds * box - 2) / (df * (seeds - 1 - box)), 1.0)
        assert values["F", name] == pytest.approx(ratio, rel=1e-9)
        assert (values["df", name], values["df_error", name]) == (df, df_error)
        assert values["epsilon", name] == pytest.approx(epsilon, rel=1e-9)
        p = scipy.stats.f.sf(ratio, df * epsilon, df_error * epsilon)
        assert values["p", name] == pytest.approx(p, rel=1e-9)
    cells = y - seed - y.mean(axis=(1, 2))[:, None, None] - y.mean(axis=(0, 2))[:, None]
    pair = cells.mean(axis=2)
    error = cells - pair[..., None] - _centred(y.mean(axis=1))[:, None, :] - _centred(y.mean(axis=0))
    assert values["F", "x1", "x2"] == pytest.approx(6 * (pair**2).sum() / 6 / ((error**2).sum() / 30))
    assert any("from seed to seed" in note for note in notes)


def _centred(means):
    """Return the interaction of a factor with the seed, from the means of both."""
    return means - means.mean(axis=0) - means.mean(axis=1)[:, None] + means.mean()


def test_anova_of_shared_seeds_equals_that_of_statsmodels():
    statsmodels = pytest.importorskip("statsmodels.stats.anova", reason="statsmodels is not installed")
    pd = pytest.importorskip("pandas")
    values, y, _ = by_seed((4, 3), 6)
    a, b, s = np.indices(y.shape).reshape(3, -1)
    frame = pd.DataFrame({"y": y.ravel(), "a": a, "b": b, "s": s})
    table = statsmodels.AnovaRM(frame, "y", "s", within=["a", "b"]).fit().anova_table
    ours = [values["F", "x1"], values["F", "x2"], values["F", "x1", "x2"]]
    np.testing.assert_allclose(ours, table["F Value"], rtol=1e-9)


def test_lost_runs_leave_a_test_of_effects_per_seed():
    """Of two levels, an effect per seed is a difference: its mean over the seeds is tested as by a paired t test."""
    values, y, _ = by_seed((2,), 8, lost=[3, 12])
    differences = np.delete(y[1] - y[0], [3, 4])
    theirs = scipy.stats.ttest_1samp(differences, 0.0)
    assert values["F", "x1"] == pytest.approx(theirs.statistic**2, rel=1e-9)
    assert values["p", "x1"] == pytest.approx(theirs.pvalue, rel=1e-9)
    assert values["df_error", "x1"] == 5


def test_few_seeds_say_what_is_taken_for_granted():
    for levels, seeds, said in (((3, 2), 2, True), ((3, 2), 3, True), ((3, 2), 4, False), ((2, 2), 2, False)):
        values, _, notes = by_seed(levels, seeds)
        assert any("seeds do not tell" in note for note in notes) == said
        assert not said or values["epsilon", "x1"] == 1.0


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


@settings(max_examples=25)
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


def screened(**sampler):
    """Return a study of a design for screening as it is sampled, with two repetitions that share seeds."""
    spec = design([number(name) for name in "abcde"], **sampler)
    drawn = sample(spec)
    row, repetition = np.indices((len(drawn.unit), 2)).reshape(2, -1)
    y = drawn.unit[row] @ [1.0, 2.0, 3.0, 4.0, 5.0] + random().normal(size=len(row))
    return drawn, row, repetition, y


@pytest.mark.parametrize(
    "sampler",
    [
        {"sampler": "plackett_burman"},
        {"sampler": "plackett_burman", "n": 12},
        {"sampler": "plackett_burman", "n": 12, "options": {"foldover": True}},
        {"sampler": "fractional_factorial"},
        {"sampler": "fractional_factorial", "options": {"resolution": 3}},
    ],
    ids=str,
)
@pytest.mark.parametrize("common", [True, False])
def test_a_complete_design_for_screening_gets_no_caution_about_combinations(sampler, common):
    drawn, row, repetition, y = screened(**sampler)

    def analysed(kept):
        found = METHODS["anova"].analyse(
            study(
                drawn.unit,
                np.bincount(row[kept], y[kept]) / np.bincount(row[kept]),
                sampler=sampler["sampler"],
                arguments=drawn.arguments,
                repetitions=Repetitions(row[kept], repetition[kept], y[kept], common=common),
            )
        )
        eta2 = {(one.factor, one.factor2): one.value for one in found.rows if one.index == "eta2"}
        return eta2, [note for note in found.notes if "equally often" in note]

    shares, notes = analysed(np.ones(len(y), dtype=bool))
    assert notes == []
    # they add up, with what is between the seeds and the error
    assert sum(shares.values()) == pytest.approx(1)
    _, notes = analysed(np.arange(len(y)) != 3)
    assert len(notes) == 1 and "type II" in notes[0]


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


@pytest.mark.parametrize(
    "method", ["sobol", "shapley", "morris", "fast", "dgsm", "rbd_fast", "pawn", "delta"]
)
def test_noise_is_no_effect(method):
    """Of 20 studies of noise, one names a factor on average, and more than three do in one of 60 times."""
    assert sum(bool(named(method, seed, lambda x: 0 * x[:, 0])) for seed in range(20)) <= 3


@pytest.mark.parametrize("method", ["sobol", "morris", "fast", "rbd_fast", "pawn", "delta"])
def test_of_an_effect_and_noise_the_effect_is_named(method):
    found = [named(method, seed, lambda x: 4 * x[:, 0]) for seed in range(10)]
    assert sum("x1" in one for one in found) >= 8
    assert sum(bool(one - {"x1"}) for one in found) <= 2


@pytest.mark.parametrize("method", ["sobol", "morris", "dgsm"])
@pytest.mark.parametrize("common", [False, True])
def test_repetitions_tell_interactions_from_noise(method, common):
    """A product around 0 has no effect of x1 or x2 alone: one run of each row cannot tell it from noise."""
    function = lambda x: 8 * (x[:, 0] - 0.5) * (x[:, 1] - 0.5)  # noqa: E731
    # (steps of finite differences are small)
    noise = 1e-6 if method == "dgsm" else 0.3
    once = [named(method, seed, function, scale=noise) for seed in range(10)]
    twice = [named(method, seed, function, 2, common, scale=noise) for seed in range(10)]
    assert sum({"x1", "x2"} <= one for one in twice) >= 8 > sum({"x1", "x2"} <= one for one in once)
    assert sum("x3" in one for one in twice) <= 2


@pytest.mark.parametrize("common", [False, True])
def test_noise_is_subtracted_and_shown(common):
    """x1 and noise of the same variance, whose mean of two runs has half of it."""
    given = noisy("sobol", 1, lambda x: x[:, 0], 2, common, scale=12**-0.5, n=2048)
    found = {(row.index, row.factor): row.value for row in METHODS["sobol"].analyse(given).rows}
    assert found["ST", "(noise)"] == pytest.approx(1 / 3, abs=0.03)
    assert found["ST", "x1"] == pytest.approx(2 / 3, abs=0.05)
    assert [found["ST", "x2"], found["ST", "x3"]] == pytest.approx([0.0, 0.0], abs=0.03)
    given = noisy("shapley", 1, lambda x: x[:, 0], 2, common, scale=12**-0.5, n=2048)
    shares = {row.factor: row.value for row in METHODS["shapley"].analyse(given).rows if row.index == "Sh"}
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-12)
    assert shares["x1"] == pytest.approx(2 / 3, abs=0.05) and shares["x3"] == pytest.approx(0.0, abs=0.03)
    given = noisy("fast", 1, lambda x: x[:, 0], 2, common, scale=12**-0.5, n=2049)
    found = {(row.index, row.factor): row.value for row in METHODS["fast"].analyse(given).rows}
    assert found["ST", "x1"] == pytest.approx(2 / 3, abs=0.05)
    assert found["ST", "x2"] == pytest.approx(0.0, abs=0.05)


def named(method, *told, **more):
    """Return which factors a method tells from noise (see :func:`noisy`)."""
    rows = METHODS[method].analyse(noisy(method, *told, **more)).rows
    return {row.factor for row in rows if row.index == "p_adjusted" and row.value <= 0.05}


SAMPLED = {
    **{"sobol": ("sobol", 64), "shapley": ("sobol", 64), "morris": ("morris", 20), "fast": ("fast", 129)},
    **{
        "dgsm": ("finite_differences", 32),
        "rbd_fast": ("lhs", 80),
        "pawn": ("lhs", 80),
        "delta": ("lhs", 80),
    },
}


def noisy(method, seed, function, repetitions=1, common=False, scale=1.0, n=None):
    """Return a study of a function of three factors with noise, of a sample that fits a method."""
    name, rows = SAMPLED[method]
    options = {"second_order": method == "shapley"} if name == "sobol" else {}
    names = ("x1", "x2", "x3")
    drawn = sample(design([number(one) for one in names], name, n or rows, options, seed=seed))
    rng = random(1000 + seed)
    y = function(drawn.unit)[:, None] + scale * rng.standard_normal((len(drawn.unit), repetitions))
    if common:
        y = y + rng.standard_normal(repetitions)
    row, repetition = np.nonzero(np.ones_like(y, dtype=bool))
    runs = Repetitions(row, repetition, y.ravel(), common) if repetitions > 1 else None
    told = {"seed": seed + 1, "resamples": 20, "repetitions": runs}
    return Study(drawn.unit, y.mean(axis=1), drawn.block, names, names, name, drawn.arguments, **told)

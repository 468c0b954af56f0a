"""The statistics of comparisons: hand-computed values, published examples, scipy, simulations."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from palaestrai_mosaik.analysis.comparison import aggregates, effects, resampling
from palaestrai_mosaik.analysis.comparison.compare import profile, scores
from palaestrai_mosaik.analysis.comparison.hypothesis_tests import (
    holm,
    rank_sum,
    signed_rank,
    smallest_rank_sum,
    two_way,
)
from palaestrai_mosaik.analysis.comparison.pairs import by_seed
from palaestrai_mosaik.analysis.comparison.resampling import Sample, UnpairedRuns, tail

NAN = float("nan")
# Depression scores of nine patients before and after, Hollander & Wolfe 1999, table 3.1
BEFORE = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
AFTER = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])


def rng(seed=0):
    return np.random.default_rng(seed)


def array(*values):
    return np.array(values, dtype=float)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    assert aggregates.iqm(array(8, 1, 7, 2, 6, 3, 5, 4)) == 4.5  # of 3, 4, 5, 6
    values = rng().normal(size=(3, 12))
    # where the number of runs divides by four, as rliable has it
    assert aggregates.iqm(values) == pytest.approx(stats.trim_mean(values, 0.25, axis=-1), abs=1e-15)
    # of five, the second and the fourth count three quarters
    assert aggregates.iqm(array(100, 0, 10, 0, -5)) == pytest.approx((0.75 * 0 + 0 + 0.75 * 10) / 2.5)
    assert aggregates.iqm(array(0, 3, 12)) == pytest.approx((0 + 4 * 3 + 12) / 6)
    assert [aggregates.iqm(array(7)), aggregates.iqm(array(1, 2))] == [7, 1.5]
    # all tasks' runs are taken together, as rliable does
    assert aggregates.iqm(array(0, 100), array(4, 8)) == 6


def test_strata_count_the_same_whatever_they_lost():
    whole, few = array(0, 0, 0, 0), array(10)
    assert aggregates.mean(whole, few) == 5
    assert aggregates.iqm(whole, few) == pytest.approx(5)  # half of the middle half is 10
    assert aggregates.median(whole, few) == 5
    assert aggregates.median(array(1, 2, 3), array(2, 9)) == 2  # weights 1/6 and 1/4


@given(st.lists(st.lists(st.integers(-9, 9), min_size=1, max_size=6), min_size=2, max_size=3))
@settings(max_examples=60, deadline=None)
def test_weighted_aggregates_are_those_of_repeated_runs(lists):
    """Repeating the runs of each stratum until all are alike changes weights to counts."""
    size = int(np.lcm.reduce([len(values) for values in lists])) * 4
    strata = [array(*values) for values in lists]
    even = [np.repeat(values, size // len(values)) for values in strata]
    assert aggregates.mean(*strata) == pytest.approx(aggregates.mean(*even), abs=1e-9)
    assert aggregates.iqm(*strata) == pytest.approx(aggregates.iqm(*even), abs=1e-9)
    if len({len(values) for values in lists}) > 1:
        assert aggregates.median(*strata) == pytest.approx(aggregates.median(*even), abs=1e-9)


def test_the_spread_is_that_within_strata():
    assert aggregates.spread([array(0, 2), array(100, 104)]) == pytest.approx(np.sqrt((2 + 8) / 2))
    assert np.isnan(aggregates.spread([array(1), array(2)]))


def interval(sample, draw, confidence=0.95, resamples=2000, statistic="mean"):
    weighted = {statistic: aggregates.WEIGHTED[statistic]}
    return resampling.intervals(sample, weighted, confidence, resamples, draw)[statistic]


@pytest.mark.parametrize("statistic", ["mean", "iqm", "median"])
def test_an_interval_is_scipys_percentile_bootstrap_of_a_higher_confidence(statistic):
    values = rng().normal(size=(2, 15))
    sample = Sample.of(list(values))
    expanded = 1 - 2 * tail(sample.blocks, 0.95)
    assert 0.95 < expanded < 0.97
    direct = stats.bootstrap(
        tuple(values),
        aggregates.AGGREGATES[statistic],
        n_resamples=4000,
        confidence_level=expanded,
        method="percentile",
        random_state=rng(3),
    ).confidence_interval
    assert interval(sample, rng(3), resamples=4000, statistic=statistic) == pytest.approx(direct, abs=0.04)


def test_an_interval_of_a_mean_is_as_wide_as_students():
    """Of normal scores, whose bootstrap is normal, as far as so few can be."""
    for n in (10, 20):
        values = stats.norm.ppf((np.arange(n) + 0.5) / n)
        low, high = interval(Sample.of([values]), rng(), resamples=20_000)
        half = stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / np.sqrt(n)
        assert (low, high) == pytest.approx((-half, half), rel=0.06)


@given(st.lists(st.lists(st.integers(-9, 9), min_size=2, max_size=6), min_size=1, max_size=3))
@settings(max_examples=40, deadline=None)
def test_an_aggregate_of_weights_is_that_of_the_strata(lists):
    strata = [array(*values) for values in lists]
    sample = Sample.of(strata)
    order = np.argsort(sample.values, kind="stable")
    for name, statistic in aggregates.AGGREGATES.items():
        found = aggregates.WEIGHTED[name](sample.values[order], sample.weights()[:, order])
        assert found == pytest.approx([statistic(*strata)], abs=1e-9)


def test_runs_are_drawn_within_their_stratum():
    low, high = interval(Sample.of([array(0, 0.1, 0.2), array(10, 10.1, 10.2)]), rng())
    assert 5 <= low < 5.1 < high <= 5.2 + 1e-9
    low, high = interval(Sample.of([array(0, 0, 0, 10, 10, 10)]), rng())
    assert low < 3
    assert high > 7


def test_seeds_are_drawn_with_their_runs_of_all_strata():
    """Four settings that are equal are one: their interval is that of one of them."""
    values = rng(4).normal(size=12)
    alone = interval(Sample.of([values]), rng())
    shared = interval(Sample.of([values] * 4, [np.arange(12)] * 4), rng())
    assert shared == pytest.approx(alone, abs=0.05)
    low, high = interval(Sample.of([values] * 4), rng())
    assert high - low < 0.6 * (alone[1] - alone[0])


def test_there_is_no_interval_where_a_stratum_has_one_run():
    for strata in ([array(1)], [array(1, 2), array(3)], []):
        assert np.isnan(interval(Sample.of(strata), rng())).all()


def test_there_is_no_interval_of_one_value():
    for strata in ([array(36, 36, 36)], [array(0, 0), array(10, 10)], [array(0.1, 0.1 + 1e-17)]):
        assert np.isnan(interval(Sample.of(strata), rng())).all()


@pytest.mark.parametrize(("statistic", "seeds"), [("mean", 15), ("iqm", 15), ("mean", 8)])
def test_intervals_hold_what_they_promise(statistic, seeds):
    """Two settings that share half of what their seeds do: intervals hold the true value that often."""
    draw = rng(11)
    held = 0
    for _ in range(400):
        luck = draw.normal(size=seeds)
        strata = [1 + luck + draw.normal(size=seeds) for _ in range(2)]
        sample = Sample.of(strata, [np.arange(seeds)] * 2)
        low, high = interval(sample, draw, resamples=500, statistic=statistic)
        held += low <= 1 <= high
    # 2 sigma of 400 trials is 2.2 %; runs drawn one by one hold it in less than 85 %
    assert 0.91 < held / 400 < 0.99


def test_what_a_seed_contributes():
    differences, seeds = [array(1, 2, 3), array(5, 7)], [np.array([0, 1, 2]), np.array([0, 2])]
    # a third of (1 / 3 + 5 / 2) / 2 and so on; their mean is that of the settings' means
    assert by_seed(differences, seeds) == pytest.approx([1.5 * (1 / 3 + 5 / 2), 1.0, 1.5 * (1 + 7 / 2)])
    assert by_seed(differences, seeds).mean() == pytest.approx((2 + 6) / 2)
    assert by_seed([], []).tolist() == []
    # what cancels out is 0, however it was summed up
    assert by_seed([array(0.1, 1), array(0.2, 1), array(-0.3, 1)], [np.arange(2)] * 3)[0] == 0


def test_ranks_by_rows_and_seeds():
    """A seed that does good to a level in all rows is no evidence that the level is better."""
    draw = rng(6)
    rows, seeds = np.indices((10, 4)).reshape(2, -1)
    luck, other = 3 * draw.normal(size=4), 3 * draw.normal(size=4)
    a, b = draw.normal(size=(2, 40))
    p, test = two_way(UnpairedRuns.of(a + 3, rows, seeds), UnpairedRuns.of(b, rows, seeds))
    assert (p < 0.01, test) == (True, "t of ranks, by rows and seeds")
    assert (
        two_way(
            UnpairedRuns.of(a + luck[seeds], rows, seeds), UnpairedRuns.of(b + other[seeds], rows, seeds)
        )[0]
        > 0.1
    )
    assert np.isnan(two_way(UnpairedRuns.of(a, rows, 0 * seeds), UnpairedRuns.of(b, rows, 0 * seeds))[0])
    one = UnpairedRuns.of(0 * a, rows, seeds)
    assert two_way(one, one)[1] == "none (no pair differs)"
    # where each level gives one value, rows are all that is counted
    assert two_way(one, UnpairedRuns.of(0 * a + 1, rows, seeds))[0] < 0.001
    assert two_way(one, UnpairedRuns.of(a, 0 * rows, seeds))[1] == "none (one row)"


@pytest.mark.parametrize("size", [10, 12, 13])
def test_levels_of_one_value_each_are_tested_by_rows(size):
    """What is left of the variance is rounding, and no measure of anything: p was 1e-16."""
    rows, seeds = np.indices((size, 2)).reshape(2, -1)
    p, test = two_way(UnpairedRuns.of(0.0 * rows, rows, seeds), UnpairedRuns.of(0.0 * rows + 1, rows, seeds))
    assert test.startswith("Mann-Whitney")
    assert p == pytest.approx(stats.mannwhitneyu(np.zeros(size), np.ones(size)).pvalue)


def test_a_shift_that_all_pairs_have_has_no_interval():
    for others in ((), (-12,)):
        found = effects.hodges_lehmann(array(*[-11] * 20, *others), 0.95)
        assert found == pytest.approx((-11, NAN, NAN), nan_ok=True)


def test_signed_rank_of_a_published_example():
    p, test = signed_rank(BEFORE - AFTER)
    assert p == pytest.approx(0.0390625, abs=1e-12)
    assert test == "Wilcoxon signed-rank (exact)"


def _all_signs(differences):
    """The definition: how many of all choices of signs give a rank sum as extreme as this one."""
    told = differences[differences != 0]
    ranks = stats.rankdata(np.abs(told))
    sums = [abs(np.dot(signs, ranks)) for signs in product((-1, 1), repeat=len(told))]
    return np.mean(np.array(sums) >= abs(np.dot(np.sign(told), ranks)) - 1e-9)


@given(st.lists(st.integers(-4, 4), min_size=2, max_size=9).filter(any))
@settings(max_examples=40, deadline=None)
def test_signed_rank_is_exact_with_ties_and_pairs_that_do_not_differ(differences):
    found, test = signed_rank(array(*differences))
    assert found == pytest.approx(_all_signs(array(*differences)), abs=1e-9)
    assert test.endswith("(exact)")


def test_signed_rank_is_scipys():
    for n in (5, 20, 50):
        values = rng(n).normal(0.2, 1, n)
        assert signed_rank(values)[0] == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)
    values = rng(2).normal(0.2, 1, 400)
    found, test = signed_rank(values)
    assert test == "Wilcoxon signed-rank (normal)"
    assert found == pytest.approx(stats.wilcoxon(values).pvalue)
    # where counting ends, the normal approximation is as good
    values = rng(3).normal(0.2, 1, 100)
    assert signed_rank(values)[0] == pytest.approx(stats.wilcoxon(values, method="approx").pvalue, abs=2e-3)


def test_pairs_that_are_all_alike():
    p, test = signed_rank(array(0, 0, 0))
    assert (np.isnan(p), test) == (True, "none (no pair differs)")
    assert np.isnan(rank_sum([array(3, 3), array(5)], [array(3), array(5, 5)], rng())[0])
    assert effects.rank_biserial(array(0, 0)) == 0
    assert effects.cohens_dz(array(0, 0)) == 0
    assert np.isnan(effects.cohens_dz(array(2, 2)))  # by the same: no scatter to relate to
    shift = effects.hodges_lehmann(array(*[0] * 8), 0.95)
    assert shift == pytest.approx((0, NAN, NAN), nan_ok=True)  # without width: no interval


def test_nothing_to_compare():
    none = np.empty(0)
    assert np.isnan(signed_rank(none)[0])
    assert np.isnan(rank_sum([none], [array(1)], rng())[0])
    assert np.isnan(effects.rank_biserial(none))
    assert np.isnan(effects.cohens_dz(array(1)))
    assert np.isnan(effects.hodges_lehmann(none, 0.95)).all()


def test_rank_sum_of_one_stratum():
    p, test = rank_sum([array(1, 2, 3)], [array(4, 5, 6)], rng())
    assert (p, test) == (pytest.approx(2 / 20), "Mann-Whitney (exact)")
    x, y = rng(1).normal(size=30), rng(2).normal(0.5, 1, 25)
    assert rank_sum([x], [y], rng())[0] == pytest.approx(stats.mannwhitneyu(x, y).pvalue)


def test_the_smallest_p_of_few_runs():
    assert smallest_rank_sum([array(1, 2, 3)], [array(4, 5, 6)]) == pytest.approx(2 / 20)
    assert smallest_rank_sum([array(1)] * 3, [array(2)] * 3) == pytest.approx(2 / 2**3)


def test_rank_sum_with_ties_looks_at_who_belongs_where():
    x, y = array(1, 1, 2, 3), array(2, 3, 3, 4, 4)
    ranks = stats.rankdata(np.concatenate([x, y]))
    sums = np.array([ranks[list(own)].sum() for own in combinations(range(9), 4)])
    exact = np.mean(abs(sums - sums.mean()) >= abs(ranks[:4].sum() - sums.mean()) - 1e-9)
    p, test = rank_sum([x], [y], rng())
    assert test == "Mann-Whitney (permutations)"
    assert p == pytest.approx(exact, abs=0.015)


def test_rank_sum_compares_within_strata():
    # each stratum has 6 ways to choose two of four; 2 of 36 are as extreme
    a, b = [array(1, 2), array(101, 102)], [array(3, 4), array(103, 104)]
    p, test = rank_sum(a, b, rng())
    assert (p, test) == (pytest.approx(2 / 36, abs=0.01), "van Elteren (permutations)")
    assert p == rank_sum(a, b, rng())[0]
    # a stratum that one side lacks says nothing
    assert rank_sum([*a, array(5)], [*b, np.empty(0)], rng())[0] == p


def test_rank_sum_of_many_runs_is_van_elterens():
    """The statistic as published: rank sums weighted by 1 / (N + 1), standardised."""
    draw = rng(9)
    a = [draw.normal(0.3, 1, n) for n in (5, 40, 20)]
    b = [draw.normal(0.0, 1, n) for n in (30, 10, 25)]
    total = variance = 0.0
    for x, y in zip(a, b, strict=True):
        n, m = len(x), len(y)
        rank_sum_of_x = stats.rankdata(np.concatenate([x, y]))[:n].sum()
        total += (rank_sum_of_x - n * (n + m + 1) / 2) / (n + m + 1)
        variance += n * m / (12 * (n + m + 1))
    p, test = rank_sum(a, b, rng())
    assert test == "van Elteren (normal)"
    assert p == pytest.approx(2 * stats.norm.sf(abs(total) / np.sqrt(variance)), rel=1e-9)
    assert np.isnan(rank_sum([np.zeros(60)] * 2, [np.zeros(60)] * 2, rng())[0])


# 5 % of 3,000 trials have a standard deviation of 0.4 %; single pairs gave 9.6 % and 7.4 % of alarms
@pytest.mark.parametrize(
    ("settings", "seeds", "correlation"), [(10, 10, 0.1), (3, 10, 0.1), (3, 20, 0.9), (1, 10, 0.0)]
)
def test_tests_keep_their_level_where_settings_share_seeds(settings, seeds, correlation):
    draw = rng(1)
    shape = (3000, settings, seeds)
    differences = np.sqrt(correlation) * draw.normal(size=(3000, 1, seeds))
    differences = differences + np.sqrt(1 - correlation) * draw.normal(size=shape)
    every = [np.arange(seeds)] * settings
    alarms = np.mean([signed_rank(by_seed(list(one), every))[0] <= 0.05 for one in differences])
    assert 0.035 < alarms < 0.065


def test_tests_by_rows_and_seeds_keep_their_level():
    draw = rng(2)
    rows, seeds = np.indices((10, 5)).reshape(2, -1)
    for correlation in (0.0, 0.5, 0.9):
        named = 0
        for _ in range(400):
            luck = np.sqrt(correlation) * draw.normal(size=(2, 5))
            noise = np.sqrt(1 - correlation) * draw.normal(size=(2, 50))
            sides = [UnpairedRuns.of(luck[i][seeds] + noise[i], rows, seeds) for i in (0, 1)]
            named += two_way(*sides)[0] <= 0.05
        assert named / 400 < 0.075


def test_tests_keep_their_level():
    """Without a difference, p <= 5 % happens in about 5 % of the cases, and not in more."""
    draw = rng(5)
    paired = [signed_rank(np.round(draw.normal(size=9), 1))[0] for _ in range(300)]
    assert 0.01 < np.mean(np.array(paired) <= 0.05) < 0.09
    sides = [rank_sum([draw.normal(size=7)], [draw.normal(size=7)], draw)[0] for _ in range(300)]
    assert 0.01 < np.mean(np.array(sides) <= 0.05) < 0.09


def test_holm():
    # R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.4]) == pytest.approx([0.8, 0.8])
    assert holm([0.9, 0.8]) == pytest.approx([1, 1])
    found = holm([0.02, NAN, 0.04])
    assert found[[0, 2]] == pytest.approx([0.04, 0.04])
    assert np.isnan(found[1])
    assert len(holm([])) == 0


def test_effect_sizes_by_hand():
    assert effects.cohens_dz(array(1, 2, 3)) == 2
    assert effects.rank_biserial(array(3, -1, 2, 0)) == pytest.approx((5 - 1) / 6)
    # 1 beats none of (2, 2), 2 ties with both, 3 beats both
    assert effects.improvement([array(1, 2, 3)], [array(2, 2)]) == 0.5
    assert effects.improvement([array(1, 2), array(5)], [array(0), array(7, 8)]) == 0.5  # of 1 and 0


@given(*[st.lists(st.integers(-5, 5), min_size=1, max_size=8)] * 2)
@settings(max_examples=40, deadline=None)
def test_improvement_counts_who_wins(a, b):
    wins = np.mean([(x > y) + (x == y) / 2 for x in a for y in b])
    assert effects.improvement([array(*a)], [array(*b)]) == pytest.approx(wins)
    assert effects.improvement([array(*b)], [array(*a)]) == pytest.approx(1 - wins)


def test_pairs_are_drawn_together_for_the_interval_of_improvement():
    x = np.arange(20.0)
    joint, alone = (
        effects.improvement_interval(Sample.of([x]), Sample.of([x - 0.5]), paired, 0.95, 4000, rng())
        for paired in (True, False)
    )
    # a resample of x beats the same resample of what is a little less: never less than a half
    assert 0.5 < joint[0] < joint[1] < 0.6
    assert alone[0] < 0.4
    direct = stats.bootstrap(
        (x, x - 0.5),
        lambda x, y: np.mean(x[:, None] > y),
        n_resamples=2000,
        vectorized=False,
        confidence_level=1 - 2 * tail((np.arange(40) // 20,), 0.95),
        method="percentile",
        random_state=rng(1),
    ).confidence_interval
    assert alone == pytest.approx(direct, abs=0.03)


def test_hodges_lehmann_of_a_published_example():
    # Hollander & Wolfe 1999, examples 3.3 and 3.4: 0.46, and 0.010 to 0.786 at 96.1 %
    assert effects.hodges_lehmann(BEFORE - AFTER, 0.95) == pytest.approx((0.46, 0.010, 0.786), abs=1e-12)


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=14))
@example([0.0, 0.0, 0.0, 0.0, 0.0, 2.2250738585072014e-308])
@example([0.0, 0.0, 0.0, 0.0, 5e-324, 1e-323])
@example([0.0, 0.0, 0.0, 0.0, 0.0, 5e-324])
@settings(max_examples=40, deadline=None)
def test_hodges_lehmann_is_the_median_of_all_averages(differences):
    values = array(*differences)
    walsh = np.sort([(values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values))])
    shift, low, high = effects.hodges_lehmann(values, 0.95)
    close = {"rel": 1e-12, "abs": 1e-12 * max(1.0, float(np.abs(values).max()))}
    assert shift == pytest.approx(np.median(walsh), **close)
    place = sum(_at_most(len(values), w) <= 0.025 for w in range(60))
    expected = (walsh[place - 1], walsh[-place])
    if expected[0] == expected[1]:
        assert np.isnan([low, high]).all()
    else:
        assert (low, high) == pytest.approx(expected, **close)


def _at_most(n, w):
    """P(rank sum of n pairs <= w), by counting subsets of 1..n."""
    ways = {0: 1}
    for rank in range(1, n + 1):
        for total, count in list(ways.items()):
            ways[total + rank] = ways.get(total + rank, 0) + count
    return sum(count for total, count in ways.items() if total <= w) / 2**n


def test_few_pairs_give_no_interval_of_the_shift():
    shift, low, high = effects.hodges_lehmann(array(1, 2, 3, 4, 5), 0.95)
    assert (shift, np.isnan(low), np.isnan(high)) == (3, True, True)  # 2 / 2^5 is more than 5 %
    assert not np.isnan(effects.hodges_lehmann(array(1, 2, 3, 4, 5, 6), 0.95)).any()


def test_the_shift_of_many_pairs_takes_no_list_of_averages():
    values = rng(6).normal(0.5, 1, 20_000)  # 200 million averages
    shift, low, high = effects.hodges_lehmann(values, 0.95)
    assert low < 0.5 < high
    assert low < shift < high
    assert high - low == pytest.approx(2 * 1.96 / np.sqrt(20_000) * np.sqrt(np.pi / 3), rel=0.03)


def test_a_profile_by_hand():
    found = profile(Sample.of([array(1, 2, 3, 4), array(4, 4)]), array(0, 2, 4), False, 0.95, 100, rng())
    assert found.share == pytest.approx([1, (0.5 + 1) / 2, 0])
    lower = profile(Sample.of([array(1, 2, 3, 4), array(4, 4)]), array(0, 2, 4), True, 0.95, 100, rng())
    assert lower.share == pytest.approx([0, 0.25 / 2, 0.75 / 2])
    assert scores(array(3, 1, 2))[[0, 25, 50]] == pytest.approx([1, 2, 3])
    assert scores(array(5, 5)) == pytest.approx([5])


def test_the_band_of_a_profile_is_the_bootstraps():
    values = rng(8).normal(size=12)
    found = profile(Sample.of([values]), array(0), False, 0.9, 4000, rng())
    direct = stats.bootstrap(
        (values,),
        lambda x, axis: np.mean(x > 0, axis=axis),
        n_resamples=4000,
        confidence_level=1 - 2 * tail((np.zeros(12, int),), 0.9),
        method="percentile",
        random_state=rng(1),
    ).confidence_interval
    assert (found.low[0], found.high[0]) == pytest.approx(direct, abs=1 / 12 + 1e-9)
    alone = profile(Sample.of([array(1)]), array(0), False, 0.9, 100, rng())
    assert np.isnan(alone.low).all()

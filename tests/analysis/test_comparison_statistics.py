"""The statistics of comparisons: hand-computed values, published examples, scipy, simulations."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from palaestrai_mosaik.analysis.comparison import aggregates, effects, profiles
from palaestrai_mosaik.analysis.comparison.hypothesis_tests import holm, rank_sum, signed_rank

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


def test_an_interval_is_scipys_percentile_bootstrap():
    values = rng().normal(size=15)
    direct = stats.bootstrap(
        (values,), np.mean, n_resamples=500, method="percentile", random_state=rng(3)
    ).confidence_interval
    assert aggregates.interval(aggregates.mean, [values], 0.95, 500, rng(3)) == pytest.approx(direct)


def test_runs_are_drawn_within_their_stratum():
    assert aggregates.interval(aggregates.mean, [array(0, 0), array(10, 10)], 0.95, 200, rng()) == (5, 5)
    low, high = aggregates.interval(aggregates.mean, [array(0, 0, 0, 10, 10, 10)], 0.95, 200, rng())
    assert low < 3
    assert high > 7


def test_there_is_no_interval_where_a_stratum_has_one_run():
    for strata in ([array(1)], [array(1, 2), array(3)], []):
        assert np.isnan(aggregates.interval(aggregates.mean, strata, 0.95, 100, rng())).all()


@pytest.mark.parametrize("statistic", [aggregates.mean, aggregates.iqm])
def test_intervals_hold_what_they_promise(statistic):
    """Two settings with 15 seeds each: 90 % intervals hold the true value nearly so often."""
    draw = rng(11)
    held = 0
    for _ in range(300):
        low, high = aggregates.interval(
            statistic, [draw.normal(1, 1, 15), draw.normal(1, 1, 15)], 0.9, 150, draw
        )
        held += low <= 1 <= high
    # 3 sigma of 300 trials is 5 %; percentile intervals are a little narrow
    assert 0.83 < held / 300 < 0.95


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
    assert signed_rank(array(0, 0, 0)) == (1.0, "none (no pair differs)")
    assert effects.rank_biserial(array(0, 0)) == 0
    assert effects.cohens_dz(array(0, 0)) == 0
    assert np.isnan(effects.cohens_dz(array(2, 2)))  # by the same: no scatter to relate to
    assert effects.hodges_lehmann(array(*[0] * 8), 0.95) == (0, 0, 0)


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
    assert rank_sum([np.zeros(60)] * 2, [np.zeros(60)] * 2, rng())[0] == 1


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
        effects.improvement_interval([x], [x - 0.5], paired, 0.95, 2000, rng()) for paired in (True, False)
    )
    # a resample of x beats the same resample of what is a little less: never less than a half
    assert 0.5 < joint[0] < joint[1] < 0.6
    assert alone[0] < 0.4
    direct = stats.bootstrap(
        (x, x - 0.5),
        lambda x, y: np.mean(x[:, None] > y),
        n_resamples=2000,
        vectorized=False,
        method="percentile",
        random_state=rng(1),
    ).confidence_interval
    assert alone == pytest.approx(direct, abs=0.02)


def test_hodges_lehmann_of_a_published_example():
    # Hollander & Wolfe 1999, examples 3.3 and 3.4: 0.46, and 0.010 to 0.786 at 96.1 %
    assert effects.hodges_lehmann(BEFORE - AFTER, 0.95) == pytest.approx((0.46, 0.010, 0.786), abs=1e-12)


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=14))
@settings(max_examples=40, deadline=None)
def test_hodges_lehmann_is_the_median_of_all_averages(differences):
    values = array(*differences)
    walsh = np.sort([(values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values))])
    shift, low, high = effects.hodges_lehmann(values, 0.95)
    close = {"rel": 1e-12, "abs": 1e-12 * max(1.0, float(np.abs(values).max()))}
    assert shift == pytest.approx(np.median(walsh), **close)
    place = sum(_at_most(len(values), w) <= 0.025 for w in range(60))
    assert (low, high) == pytest.approx((walsh[place - 1], walsh[-place]), **close)


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
    found = profiles.profile([array(1, 2, 3, 4), array(4, 4)], array(0, 2, 4), False, 0.95, 100, rng())
    assert found.share == pytest.approx([1, (0.5 + 1) / 2, 0])
    lower = profiles.profile([array(1, 2, 3, 4), array(4, 4)], array(0, 2, 4), True, 0.95, 100, rng())
    assert lower.share == pytest.approx([0, 0.25 / 2, 0.75 / 2])
    assert profiles.scores(array(3, 1, 2))[[0, 25, 50]] == pytest.approx([1, 2, 3])
    assert profiles.scores(array(5, 5)) == pytest.approx([5])


def test_the_band_of_a_profile_is_the_bootstraps():
    values = rng(8).normal(size=12)
    found = profiles.profile([values], array(0), False, 0.9, 4000, rng())
    direct = stats.bootstrap(
        (values,),
        lambda x, axis: np.mean(x > 0, axis=axis),
        n_resamples=4000,
        confidence_level=0.9,
        method="percentile",
        random_state=rng(1),
    ).confidence_interval
    assert (found.low[0], found.high[0]) == pytest.approx(direct, abs=1 / 12 + 1e-9)
    alone = profiles.profile([array(1)], array(0), False, 0.9, 100, rng())
    assert np.isnan(alone.low).all()

"""Tables of runs become comparisons: hand-computed cases, and what is wrong with the data."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from scipy.stats import ttest_1samp, ttest_rel

from palaestrai_mosaik.arsenai.analysis.comparison import ComparisonOptions, compare
from palaestrai_mosaik.arsenai.analysis.comparison.pairs import compare_pairs
from palaestrai_mosaik.arsenai.analysis.comparison.runs import collect
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import PalaestraiMosaikError

NAN = float("nan")


def runs(values, factors=("agent",)):
    """One row of the design per entry: its factors -> the outcomes of its repetitions."""
    rows = []
    for row, (labels, outcomes) in enumerate(values.items()):
        labels = labels if isinstance(labels, tuple) else (labels,)
        for repetition, y in enumerate(outcomes):
            status = "failed" if y is None else "finished"
            told = dict(zip(factors, labels, strict=True))
            number = {"row": row, "repetition": repetition, "run": f"{row}-{repetition}"}
            rows.append({**number, "status": status, **told, "y": NAN if y is None else float(y)})
    return pd.DataFrame(rows)


def grid(agents=("idle", "ppo", "cem"), grids=("rural", "urban"), repetitions=12, effect=0.0):
    draw = np.random.default_rng(1)
    values = {}
    for i, agent in enumerate(agents):
        for scale, name in enumerate(grids, 1):
            values[agent, name] = scale * 10 + effect * i + draw.normal(size=repetitions)
    return runs(values, ("agent", "grid"))


def only(frame, **conditions):
    for name, value in conditions.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return frame.iloc[0]


def says(comparison, *words):
    return [text for text in comparison.warnings if all(word in text for word in words)]


def test_a_comparison_by_hand():
    frame = runs({"idle": [1, 2, 3, 4, 5, 6, 7, 9], "ppo": [2, 4, 6, 8, 10, 12, 14, 1]})
    found = compare(frame, "agent", "y", options=ComparisonOptions(better="lower"))
    assert (found.paired, found.title) == (True, "y by agent")
    idle = only(found.levels, level="idle")
    assert (idle.n, idle.lost, idle.seeds, idle.settings) == (8, 0, 8, 1)
    assert (idle["mean"], idle.iqm, idle["median"]) == (37 / 8, (3 + 4 + 5 + 6) / 4, 4.5)
    assert idle["std"] == pytest.approx(np.std([1, 2, 3, 4, 5, 6, 7, 9], ddof=1))
    assert idle.mean_low < 37 / 8 < idle.mean_high
    pair = only(found.pairs)
    assert (pair.a, pair.b, pair.n, pair.lost) == ("idle", "ppo", 8, 0)
    differences = np.array([-1, -2, -3, -4, -5, -6, -7, 8])
    assert pair.difference == -20 / 8
    assert pair.cohens_dz == pytest.approx(-20 / 8 / differences.std(ddof=1))
    assert (pair.won, pair.tied, pair.settings_won) == (7, 0, 1)  # lower is better
    assert pair.improvement == pytest.approx(
        np.mean(
            [[(x < y) + (x == y) / 2 for y in (2, 4, 6, 8, 10, 12, 14, 1)] for x in (1, 2, 3, 4, 5, 6, 7, 9)]
        )
    )
    # by definition: all choices of signs
    signs = np.array(list(product((-1, 1), repeat=8))) @ differences
    assert pair.p == pair.p_holm == np.mean(np.abs(signs) >= 20)
    assert pair.difference_low < 0 < pair.difference_high
    assert pair.favours == ""
    assert pair.test == "paired t (Student's and all permutations)"
    assert pair.improvement_test == "Brunner-Munzel (Student's and all permutations)"


def test_what_a_difference_favours_depends_on_the_direction():
    frame = runs({"idle": range(12), "ppo": range(3, 15)})
    said = {
        better: only(compare(frame, "agent", "y", options=ComparisonOptions(better=better)).pairs)
        for better in ("higher", "lower", None)
    }
    assert [said[better].favours for better in ("higher", "lower", None)] == ["ppo", "idle", ""]
    assert said["higher"].improvement == pytest.approx(1 - said["lower"].improvement)
    assert (said["higher"].won, said["lower"].won) == (0, 12)
    assert said["higher"].difference == said["lower"].difference == -3
    assert np.isnan(said["higher"].cohens_dz)  # all pairs differ by the same
    assert any("higher values" in note for note in compare(frame, "agent", "y").notes)


def test_runs_are_compared_setting_by_setting():
    """Settings that differ more than agents do not hide what the agents differ by."""
    found = compare(grid(effect=1.0), "agent", "y", ["grid"], ComparisonOptions(better="higher"))
    pair = only(found.pairs, a="idle", b="cem")
    assert (pair.n, pair.settings, pair.settings_won) == (24, 2, 0)
    assert pair.favours == "cem"
    assert pair.difference_high < -1 < pair.difference_high + 2
    # within settings runs scatter by 1, over both by more than 5
    assert only(found.levels, level="cem")["std"] == pytest.approx(1, abs=0.4)
    assert list(found.cells["setting"]) == ["grid=rural", "grid=urban"] * 3
    cell = only(found.cells, level="idle", setting="grid=urban")
    frame = grid(effect=1.0)
    assert cell["mean"] == pytest.approx(frame[(frame.agent == "idle") & (frame.grid == "urban")].y.mean())


def test_p_values_are_corrected_over_the_pairs_of_an_outcome():
    found = compare(grid(effect=0.5), "agent", "y", ["grid"]).pairs
    smallest = found["p"].idxmin()
    assert len(found) == 3
    assert found["p_holm"][smallest] == pytest.approx(3 * found["p"][smallest])


def test_the_order_in_which_runs_ended_makes_no_difference():
    frame = grid()
    first = compare(frame, "agent", "y", ["grid"])
    for seed in range(3):
        other = compare(frame.sample(frac=1, random_state=seed), "agent", "y", ["grid"])
        for name in ("levels", "cells", "pairs", "profiles"):
            assert_frame_equal(getattr(first, name), getattr(other, name))


def test_a_further_level_changes_no_interval_of_the_others():
    two, three = (
        compare(grid(agents), "agent", "y", ["grid"]) for agents in (("idle", "ppo"), ("idle", "ppo", "cem"))
    )
    assert_frame_equal(two.levels, three.levels[:2])
    uncorrected = [name for name in two.pairs.columns if name not in ("p_holm", "p_worst")]
    assert_frame_equal(two.pairs[uncorrected], three.pairs[uncorrected][:1])


def test_no_global_generator_is_touched():
    before = seeding.global_state_digest()
    for common_seeds in (True, False):
        compare(grid(), "agent", "y", ["grid"], ComparisonOptions(common_seeds=common_seeds))
    assert seeding.global_state_digest() == before


def test_only_what_is_compared_with_the_baseline_is_a_pair():
    found = compare(grid(), "agent", "y", ["grid"], ComparisonOptions(baseline="ppo"))
    assert list(zip(found.pairs.a, found.pairs.b, strict=True)) == [("idle", "ppo"), ("cem", "ppo")]
    both = compare(grid(), ["agent", "grid"], "y", options=ComparisonOptions(baseline="idle"))
    assert list(found.levels["level"]) == ["idle", "ppo", "cem"]
    assert list(zip(both.pairs.a, both.pairs.b, strict=True)) == [
        (f"agent={agent}, grid={name}", f"agent=idle, grid={name}")
        for agent in ("ppo", "cem")
        for name in ("rural", "urban")
    ]


def test_levels_keep_the_order_of_their_factor():
    frame = grid()
    frame["agent"] = pd.Categorical(frame["agent"], ["ppo", "cem", "idle", "unused"])
    assert list(compare(frame, "agent", "y", ["grid"]).levels["level"]) == ["ppo", "cem", "idle"]


def test_a_lost_run_costs_its_pair_and_is_told():
    values = [0.0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    frame = runs({"idle": [None, float("inf"), *values[2:]], "ppo": [y + 1 for y in values]})
    found = compare(frame, "agent", "y")
    pair = only(found.pairs)
    assert (pair.n, pair.lost, pair.difference) == (10, 2, -1)
    assert only(found.levels, level="idle").lost == 2
    assert says(found, "2 of 12 of idle (16.7%)", "may look better")
    assert says(found, "pairs that lack one run", "16.7%")
    # what a failed run left in the store is no result
    frame.loc[frame["row"] == 0, "y"] = 99.0
    assert only(compare(frame, "agent", "y").pairs).n == 11


def test_a_lost_run_does_not_move_a_level_towards_the_other_settings():
    draw = np.random.default_rng(3)
    values = {
        (a, g): list(mean + draw.normal(size=20)) for a in "ab" for g, mean in (("low", 0), ("high", 100))
    }
    whole = compare(runs(values, ("agent", "grid")), "agent", "y", ["grid"])
    values["a", "low"][0] = None
    lost = compare(runs(values, ("agent", "grid")), "agent", "y", ["grid"])
    for name in ("mean", "iqm", "median"):
        assert lost.levels[name][0] == pytest.approx(whole.levels[name][0], abs=1.5)


def test_a_level_without_results():
    found = compare(runs({"idle": [1, 2, 3], "ppo": [None] * 3, "cem": [2, 3, 4]}), "agent", "y")
    ppo = only(found.levels, level="ppo")
    assert (ppo.n, ppo.lost) == (0, 3)
    assert np.isnan([ppo["mean"], ppo.iqm_low, ppo["std"]]).all()
    tested = found.pairs["p"].notna()
    assert list(tested) == [False, True, False]
    # what could not be tested is no test to correct for
    assert found.pairs["p_holm"][1] == found.pairs["p"][1]
    assert set(found.profiles["level"]) == {"idle", "cem"}
    assert says(found, "no run of ppo is left")
    assert says(found, "only 3 repetitions")
    assert not says(found, "only 0")


def test_all_runs_lost():
    found = compare(runs({"idle": [None], "ppo": [None]}), "agent", "y")
    assert found.levels["n"].sum() == 0
    assert found.profiles.empty
    assert np.isnan(found.pairs["p_holm"]).all()


def test_one_repetition_gives_no_interval():
    found = compare(runs({"idle": [1], "ppo": [2]}), "agent", "y")
    assert np.isnan(found.levels[["mean_low", "mean_high", "iqm_low", "std"]]).all(axis=None)
    assert list(found.levels["mean"]) == [1, 2]
    assert np.isnan(found.profiles["low"]).all()
    pair = only(found.pairs)
    assert (pair.difference, pair.units, pair.test) == (-1, 1, "none (one pair)")
    assert np.isnan([pair.p, pair.difference_low, pair.improvement_low]).all()
    assert says(found, "only 1 repetition of")
    assert says(found, "no interval for idle, ppo")
    assert says(found, "one seed gives no test")


def test_one_repetition_of_many_settings_draws_settings():
    draw = np.random.default_rng(2)
    values = {(agent, g): [draw.normal() + (agent == "b")] for agent in "ab" for g in range(20)}
    for common_seeds in (True, False):
        options = ComparisonOptions(common_seeds=common_seeds, better="higher")
        found = compare(runs(values, ("agent", "grid")), "agent", "y", ["grid"], options)
        pair = only(found.pairs)
        assert pair.n == pair.settings == 20
        if common_seeds:
            # one seed may do one of them good in all settings
            assert (pair.test, pair.units) == ("none (one pair)", 1)
            assert np.isnan([pair.difference_low, pair.improvement_low]).all()
        else:
            assert pair.difference_low < -1 < pair.difference_high < 0
            assert pair.improvement_low < pair.improvement < pair.improvement_high < 0.5
        assert not np.isnan(found.levels[["mean_low", "iqm_high", "std"]]).any(axis=None)
        assert says(found, "over settings, not over seeds")
        assert "bootstrap of settings, which have one run of each level" in found.notes[1]


def test_few_seeds_are_told():
    few, enough = (compare(runs({"a": range(n), "b": range(1, n + 1)}), "agent", "y") for n in (5, 10))
    assert says(few, "only 5 repetitions", "10 or more")
    assert says(few, "with 5 seeds, p_holm cannot fall below 0.062")
    assert enough.warnings == ()


@pytest.mark.parametrize("common_seeds", [True, False])
def test_constant_outcomes_are_no_comparison(common_seeds):
    """One value says nothing of how results vary: no interval, no test, no winner."""
    options = ComparisonOptions(better="lower", common_seeds=common_seeds)
    found = compare(runs({"a": [3] * 10, "b": [3] * 10}), "agent", "y", options=options)
    assert found.constant == 3
    assert says(found, "all 20 runs gave 3", "nothing to compare")
    assert not says(found, "repetition"), "more of them would give the same"
    ends = [f"{name}_{end}" for name in ("mean", "iqm", "median") for end in ("low", "high")]
    assert found.levels[ends].isna().all(axis=None)
    assert (found.levels[["mean", "iqm", "median"]] == 3).all(axis=None)
    assert list(found.levels["distinct"]) == [1, 1]
    pair = only(found.pairs)
    assert (pair.test, pair.difference, pair.improvement, pair.favours) == (
        "none (no pair differs)",
        0,
        0.5,
        "",
    )
    assert np.isnan([pair.p, pair.p_holm, pair.difference_low, pair.improvement_low]).all()
    assert found.profiles[["low", "high"]].isna().all(axis=None)


def test_a_level_that_is_constant_has_no_interval():
    found = compare(
        runs({"a": [36.0] * 12, "b": range(12)}), "agent", "y", options=ComparisonOptions(better="lower")
    )
    assert says(found, "all 12 runs of a gave 36", "no interval")
    assert np.isnan(only(found.levels, level="a")[["mean_low", "iqm_high"]].astype(float)).all()
    assert only(found.levels, level="b").mean_low < 5.5
    assert found.constant is None
    assert only(found.pairs).favours == "b"


def test_levels_that_never_differ_are_not_tested():
    """Which of two names an agent has makes no difference; chance does to all runs."""
    draw = np.random.default_rng(5)
    same = draw.normal(size=12)
    frame = runs({"a": same, "b": same * (1 + 1e-15), "c": same + draw.normal(size=12)})
    found = compare(frame, "agent", "y", options=ComparisonOptions(better="higher"))
    pair = only(found.pairs, a="a", b="b")
    assert (pair.test, pair.tied, pair.distinct, pair.difference) == ("none (no pair differs)", 12, 1, 0)
    assert np.isnan([pair.p, pair.difference_low, pair.improvement_low]).all()
    assert says(found, "the two runs of each pair gave the same", "a and b (12)")
    # what was not tested is not corrected for
    tested = found.pairs.dropna(subset="p")
    assert list(tested["p_holm"]) == pytest.approx([min(1, 2 * p) for p in tested["p"]], rel=0.5)
    assert len(tested) == 2


def test_an_interval_without_width_is_none():
    """All pairs differ by the same, and every run of b beats every run of a; that is all that was seen."""
    noise = np.random.default_rng(3).normal(size=8)
    values = {(agent, g): list(0.1 * g + noise + 9 * (agent == "b")) for agent in "ab" for g in range(3)}
    pair = only(compare(runs(values, ("agent", "grid")), "agent", "y", ["grid"]).pairs)
    assert (pair.n, pair.units, pair.distinct) == (24, 8, 1)
    assert pair.difference == pytest.approx(-9)
    assert pair.p == pytest.approx(2 / 2**8)
    assert np.isnan([pair.difference_low, pair.improvement_low, pair.cohens_dz]).all()


def test_seeds_that_make_no_difference_are_told():
    """Each setting gives one value: the bootstrap of seeds would find an interval without width."""
    values = {(agent, g): [g + 10.0 * (agent == "b")] * 10 for agent in "ab" for g in range(3)}
    found = compare(runs(values, ("agent", "grid")), "agent", "y", ["grid"])
    assert found.levels[["mean_low", "iqm_low"]].isna().all(axis=None)
    assert says(found, "no interval for a, b", "no two of its seeds differ")


def test_independent_seeds_are_not_paired():
    frame = grid(effect=1.0)
    found = compare(frame, "agent", "y", ["grid"], ComparisonOptions(common_seeds=False, better="higher"))
    pair = only(found.pairs, a="idle", b="cem")
    assert (found.paired, pair.n, pair.n_b, pair.favours) == (False, 24, 24, "cem")
    assert pair.test == "Welch's t (Student's and 9,999 permutations)"
    assert np.isnan(pair.cohens_dz)
    assert any("seeds of its own" in note for note in found.notes)
    one = compare(frame[frame.grid == "rural"], "agent", "y", options=ComparisonOptions(common_seeds=False))
    assert set(one.pairs["test"]) == {"Welch's t (Student's and 9,999 permutations)"}


def test_levels_without_a_common_setting_are_not_paired():
    draw = np.random.default_rng(4)
    values = {("ab"[i % 2], i): [i % 2 * 2 + draw.normal()] for i in range(40)}
    frame = runs(values, ("agent", "gain"))
    options = ComparisonOptions(better="lower", common_seeds=False)
    found = compare(frame, "agent", "y", ["gain"], options)
    pair = only(found.pairs)
    assert (found.paired, pair.n, pair.n_b, pair.settings, pair.favours) == (False, 20, 20, 1, "a")
    assert says(found, "no setting of 'gain'")
    assert list(found.cells["setting"]) == ["all", "all"]
    # all rows share one seed, which may do one of the levels good
    pair = only(compare(frame, "agent", "y", ["gain"], ComparisonOptions(better="lower")).pairs)
    assert (pair.test, pair.favours, pair.units) == ("none (one seed)", "", 1)
    assert np.isnan(pair.difference_low)


def test_a_level_without_a_common_setting_that_is_left_with_one_seed():
    """Levels of a hypercube, two seeds; one level has lost all runs of the second."""
    draw = np.random.default_rng(5)
    values = {("a", i): [draw.normal(), draw.normal()] for i in range(6)}
    values |= {("b", i): [5 + draw.normal(), None] for i in range(6, 12)}
    for by in ("ab", "ba"):
        frame = runs(
            {key: values[key] for level in by for key in values if key[0] == level}, ("agent", "gain")
        )
        found = compare(frame, "agent", "y", ["gain"], ComparisonOptions(better="higher"))
        pair = only(found.pairs)
        assert {pair.n, pair.n_b} == {12, 6}
        assert pair.improvement in (0, 1) or pair.improvement_low < pair.improvement < pair.improvement_high


@pytest.mark.parametrize("common_seeds", [True, False])
def test_a_level_that_is_left_with_one_row_is_called_so(common_seeds):
    draw = np.random.default_rng(5)
    values = {("a", i): [draw.normal() for _ in range(6)] if i == 0 else [None] * 6 for i in range(5)}
    values |= {("b", i): [draw.normal() for _ in range(6)] for i in range(5, 10)}
    options = ComparisonOptions(common_seeds=common_seeds)
    found = compare(runs(values, ("agent", "gain")), "agent", "y", ["gain"], options)
    assert says(found, "no interval for a: only one row")
    assert not says(found, "seed")
    assert only(found.pairs).test == "none (one row)"
    assert says(found, "one row gives no test")


def test_the_smallest_p_is_that_of_holms_correction_and_of_tests_only():
    """Of the second pair seven seeds are left, of the third none differs."""
    draw = np.random.default_rng(5)
    values = {"a": list(draw.normal(size=30)), "b": [5 + y for y in draw.normal(size=30)]}
    values |= {"c": [None] * 23 + [9.0 + i for i in range(7)], "d": values["a"]}
    found = compare(runs(values), "agent", "y", options=ComparisonOptions(baseline="a"))
    least = found.pairs.set_index("a")["p_least"]
    assert least["b"] == 2.0**-29 and least["c"] == 2.0**-6 and np.isnan(least["d"])
    # the smaller p is doubled, not the larger one
    assert not says(found, "p_holm cannot fall below")


def test_repetitions_of_a_row_are_no_further_rows():
    """Ten rows of each level differ by chance; their repetitions tell the same ten things again."""
    draw = np.random.default_rng(8)
    alarms = dict.fromkeys((True, False), 0)
    for _ in range(12):
        values = {("ab"[i % 2], i): draw.normal() + 0.1 * draw.normal(size=8) for i in range(20)}
        for common_seeds in alarms:
            options = ComparisonOptions(common_seeds=common_seeds, resamples=2)
            collected = collect(runs(values, ("agent", "gain")), ["agent"], "y", ["gain"], options)
            alarms[common_seeds] += only(compare_pairs(collected, "y", False, options)).p <= 0.05
    # one at most is expected; taken for 80 independent runs each, 6 are found
    assert max(alarms.values()) <= 2


def test_settings_that_lack_a_level():
    frame = grid()
    frame = frame[~((frame.agent == "cem") & (frame.grid == "urban"))]
    found = compare(frame, "agent", "y", ["grid"])
    assert list(found.pairs["settings"]) == [2, 1, 1]
    assert says(found, "unequal settings: 1 of 2 settings lack a level", "idle 2, ppo 2, cem 1")
    assert (found.equal_settings, found.shared_settings) == (False, ["grid=rural"])
    assert compare(grid(), "agent", "y", ["grid"]).equal_settings


def test_settings_of_which_all_runs_are_lost_are_unequal_too():
    frame = grid()
    lost = (frame.agent == "cem") & (frame.grid == "urban")
    found = compare(frame.assign(y=frame["y"].mask(lost)), "agent", "y", ["grid"])
    assert says(found, "unequal settings", "cem 1")
    assert not found.equal_settings


def test_a_factor_of_one_level_only_is_no_setting():
    """The gain of an agent that idle has not; idle's run stands for both rows."""
    values = {
        ("ppo", 1): range(10),
        ("ppo", 2): range(4, 14),
        ("idle", None): range(10),
        ("idle", "other"): range(10),
    }
    frame = runs(values, ("agent", "gain"))
    frame.loc[frame["gain"] == "other", "run"] = frame.loc[frame["gain"].isna(), "run"].to_numpy()
    frame["gain"] = frame["gain"].where(frame["gain"] != "other", None)
    found = compare(frame, "agent", "y", ["gain"])
    assert list(found.levels["n"]) == [20, 10]
    pair = only(found.pairs)
    assert (pair.n, pair.difference) == (10, 2)  # the mean of both gains
    assert says(found, "'gain'", "only some levels")
    # a mean over the gains that lacks one would speak of something else
    frame.loc[0, "y"] = NAN
    pair = only(compare(frame, "agent", "y", ["gain"]).pairs)
    assert (pair.n, pair.lost) == (9, 1)


def test_runs_that_stand_for_several_settings_count_once():
    """The grid makes no difference to idle and ppo, so their runs are executed for one of them only."""
    same = {"idle": range(10), "ppo": range(2, 12)}
    values = {(agent, g): same.get(agent, range(7, 17)) for agent in ("idle", "ppo", "cem") for g in "xy"}
    frame = runs(values, ("agent", "grid"))
    shared = frame["agent"].isin(list(same))
    frame.loc[shared, "run"] = frame["agent"] + frame["repetition"].astype(str)
    found = compare(frame, "agent", "y", ["grid"])
    assert says(found, "stand for several settings of 'grid'")
    assert list(found.levels["n"]) == [10, 10, 20]
    # idle and ppo have ten pairs of runs, each of them has twenty with cem
    assert list(found.pairs["n"]) == [10, 20, 20]


def test_a_seed_is_one_observation_however_many_settings_it_has():
    draw = np.random.default_rng(7)
    luck = draw.normal(size=15)
    together = {
        (agent, g): (agent == "b") * luck + 0.2 * draw.normal(size=15)
        for agent in "ab"
        for g in ("x", "y", "z")
    }
    found = compare(runs(together, ("agent", "grid")), "agent", "y", ["grid"])
    pair = only(found.pairs)
    # 15 repetitions are compared, by their means over the three settings
    assert (pair.n, pair.units, pair.settings) == (45, 15, 3)
    means = {agent: np.mean([together[agent, g] for g in ("x", "y", "z")], axis=0) for agent in "ab"}
    assert pair.p == pytest.approx(ttest_rel(means["a"], means["b"]).pvalue, abs=0.02)
    assert pair.difference == pytest.approx((means["a"] - means["b"]).mean())
    # so are intervals, which are as wide as that of 15 values and not of 45
    width = pair.difference_high - pair.difference_low
    spread = (means["a"] - means["b"]).std(ddof=1) / np.sqrt(15)
    assert width == pytest.approx(2 * 2.14 * spread, rel=0.15)
    level = only(found.levels, level="b")
    spread = means["b"].std(ddof=1) / np.sqrt(15)
    assert level.mean_high - level.mean_low == pytest.approx(2 * 2.14 * spread, rel=0.15)


@pytest.mark.parametrize(("common", "shared"), [(0.3, True), (0.9, False)])
def test_few_seeds_of_many_settings_are_few(common, shared):
    """Levels do not differ; a seed does a little good or bad to a level in all ten settings, or rows.

    With pairs or runs as units, 18 % of the comparisons of 3 seeds called one of the levels better,
    and 70 % of those in which levels share no setting.
    """
    draw = np.random.default_rng(1)
    seeds = 3
    options = ComparisonOptions(better="higher", resamples=2)
    values = {(agent, g if shared else f"{agent}{g}"): [0.0] * seeds for agent in "ab" for g in range(10)}
    collected = collect(runs(values, ("agent", "grid")), ["agent"], "y", ["grid"], options)
    named = 0
    for _ in range(40):
        luck = np.sqrt(common) * draw.normal(size=(2, 1, seeds))
        noise = np.sqrt(1 - common) * draw.normal(size=(2, 10, seeds))
        found = replace(collected, frame=collected.frame.assign(value=(luck + noise).ravel()))
        pair = only(compare_pairs(found, "y", shared, options))
        named += pair.favours != ""
    assert named <= (0 if shared else 6)
    assert pair.units == seeds


def test_a_lost_run_costs_its_pair_and_not_its_seed():
    luck = np.random.default_rng(2).normal(size=12)
    values = {("a", g): list(luck + g) for g in range(3)} | {("b", g): [float(g)] * 12 for g in range(3)}
    values["a", 1][0] = None
    pair = only(compare(runs(values, ("agent", "grid")), "agent", "y", ["grid"]).pairs)
    assert (pair.n, pair.lost, pair.units, pair.settings) == (35, 1, 12, 3)
    # settings count the same, whatever is lost there
    assert pair.difference == pytest.approx((2 * luck.mean() + luck[1:].mean()) / 3)
    # the first seed is left with two of three settings, and counts two thirds
    told = np.append(luck[0] * 2 * 12 / 36, luck[1:] * (2 / 3 + 12 / 11 / 3))
    assert pair.difference == pytest.approx(told.mean())
    assert pair.p == pytest.approx(ttest_1samp(told, 0).pvalue, abs=0.02)


def test_scales_are_those_within_levels():
    """Agents that differ much more in one grid than in the other do not change its scale."""
    draw = np.random.default_rng(4)
    values = {(agent, g): draw.normal(size=20) + 50 * (agent == "b") * g for agent in "ab" for g in (0, 1)}
    assert not says(compare(runs(values, ("agent", "grid")), "agent", "y", ["grid"]), "spread")


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_a_profile_tells_which_share_is_better(better):
    frame = runs({"a": range(51), "b": [50 - i for i in range(51)]})
    found = compare(frame, "agent", "y", options=ComparisonOptions(better=better)).profiles
    a = found[found.level == "a"]
    assert list(a["score"]) == pytest.approx(list(range(51)))
    beyond = [50 - i if better == "higher" else i for i in range(51)]
    assert list(a["share"]) == pytest.approx([count / 51 for count in beyond])
    assert (a["low"] <= a["share"]).all() and (a["share"] <= a["high"]).all()


def test_scales_that_mix_are_told_unless_normalised():
    values = {
        ("a", "x"): [1, 2, 3],
        ("b", "x"): [2, 3, 5],
        ("a", "y"): [100, 200, 300],
        ("b", "y"): [200, 300, 500],
    }
    frame = runs(values, ("agent", "grid"))
    assert says(compare(frame, "agent", "y", ["grid"]), "spread within levels differs by a factor of 100")
    found = compare(frame, "agent", "y", ["grid"], ComparisonOptions(normalise="minmax"))
    assert not says(found, "spread within")
    assert list(found.cells["mean"]) == pytest.approx([0.25, 0.25, 7 / 12, 7 / 12])
    relative = compare(frame, "agent", "y", ["grid"], ComparisonOptions(normalise="baseline", baseline="a"))
    assert list(relative.cells["mean"]) == pytest.approx([0, 0, 2 / 3, 2 / 3])
    assert only(relative.pairs).difference == pytest.approx(2 / 3)


def test_a_setting_in_which_all_are_alike_is_halfway():
    values = {("a", "x"): [7, 7], ("b", "x"): [7, 7], ("a", "y"): [0, 1], ("b", "y"): [1, 2]}
    found = compare(
        runs(values, ("agent", "grid")), "agent", "y", ["grid"], ComparisonOptions(normalise="minmax")
    )
    assert list(found.cells["mean"]) == pytest.approx([0.5, 0.25, 0.5, 0.75])


@pytest.mark.parametrize(
    ("by", "settings", "outcome", "options", "message"),
    [
        ("agnet", (), "y", {}, "no factor 'agnet' in the runs (did you mean 'agent'?)"),
        ("agent", ("gird",), "y", {}, "no factor 'gird' in the runs (did you mean 'grid'?)"),
        ("agent", (), "objective", {}, "no outcome 'objective'"),
        ((), (), "y", {}, "name a factor"),
        ("one", (), "y", {}, "one level only"),
        ("many", (), "y", {}, "72 levels are too many"),
        ("agent", ("grid",), "y", {"baseline": "idel"}, "(did you mean 'idle'?); these are idle, ppo, cem"),
        (("agent", "same"), (), "y", {"baseline": "idle"}, "a level of each of 'agent', 'same'"),
        ("agent", ("grid",), "zero", {"baseline": "idle", "normalise": "baseline"}, "'idle' is 0 on average"),
    ],
)
def test_what_cannot_be_compared_is_an_error(by, settings, outcome, options, message):
    frame = grid()
    frame = frame.assign(one="x", many=frame["run"], same=frame["agent"], zero=0.0)
    with pytest.raises(PalaestraiMosaikError) as error:
        compare(frame, by, outcome, settings, ComparisonOptions(**options))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"confidence": 95}, "between 0 and 1, not 95"),
        ({"resamples": 0}, "1 or more, not 0"),
        ({"normalise": "min_max"}, "did you mean 'minmax'?"),
        ({"normalise": "baseline"}, "needs a baseline"),
    ],
)
def test_options_that_mean_nothing_are_errors(options, message):
    with pytest.raises(PalaestraiMosaikError) as error:
        ComparisonOptions(**options)
    assert message in str(error.value)

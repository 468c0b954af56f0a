"""What lost runs could change is no winner: the order of settings, and that of the levels of a comparison."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from palaestrai_mosaik.arsenai.analysis.comparison import ComparisonOptions, compare
from palaestrai_mosaik.arsenai.analysis.lost_runs import rank
from palaestrai_mosaik.arsenai.design.remark import OPEN, kind_of

NAN = math.nan


def test_a_setting_that_lost_runs_ranks_behind_all_that_lost_none() -> None:
    found = rank(np.array([[9.0, NAN, NAN], [1.0, 2.0, 3.0], [3.0, 3.0, 3.0]]), higher=True, common=True)
    assert (found.order.tolist(), found.lost.tolist(), found.winner) == ([2, 1, 0], [2, 0, 0], 2)
    lower = rank(np.array([[0.0, NAN, 0.0], [1.0, 2.0, 3.0], [3.0, 3.0, 3.0]]), higher=False, common=True)
    assert (lower.order.tolist(), lower.winner) == ([1, 2, 0], 1)


def test_where_all_settings_lost_runs_the_first_must_stay_first_whatever_they_were() -> None:
    # at worst, the first has (9 + 9 + 1) / 3; at best, the second has (1 + 1 + 9) / 3
    clear = rank(np.array([[9.0, 9.0, NAN], [NAN, 1.0, 1.0]]), higher=True, common=True)
    assert (clear.order.tolist(), clear.winner) == ([0, 1], 0)
    open_ = rank(np.array([[9.0, NAN, NAN], [NAN, 1.0, 1.0]]), higher=True, common=True)
    assert open_.winner is None


@pytest.mark.parametrize(("common", "winner"), [(True, 1), (False, None)])
def test_a_shared_seed_that_nobody_finished_counts_for_none(common: bool, winner: int | None) -> None:
    found = rank(np.array([[1.0, 2.0, NAN], [2.0, 2.5, NAN]]), higher=True, common=common)
    assert found.winner == winner
    assert found.lost.tolist() == ([0, 0] if common else [1, 1])


def study(values: dict[str, np.ndarray], common: bool = True) -> tuple[pd.Series, tuple[str, ...]]:
    """Return the only pair of a comparison of two levels, and its warnings; higher is better."""
    rows = [
        {"agent": agent, "repetition": i, "y": value}
        for agent, found in values.items()
        for i, value in enumerate(found)
    ]
    options = ComparisonOptions(better="higher", common_seeds=common, resamples=1)
    found = compare(pd.DataFrame(rows), "agent", "y", options=options)
    return found.pairs.iloc[0], found.warnings


@pytest.mark.parametrize("common", [True, False])
def test_equal_agents_of_which_one_lost_its_bad_runs_have_no_winner(common: bool) -> None:
    draw = np.random.default_rng(3)
    finished = named = 0
    for _ in range(8):
        a, b = draw.normal(size=(2, 40))
        a[a < -0.5] = NAN
        pair, warnings = study({"a": a, "b": b}, common)
        finished += pair.p_holm <= 0.05
        named += pair.favours != ""
        assert pair.p_worst >= pair.p_holm
        assert any(kind_of(text) == OPEN for text in warnings) == (pair.p_holm <= 0.05)
    assert finished >= 3 and named == 0


@pytest.mark.parametrize("common", [True, False])
def test_a_large_difference_is_named_although_runs_were_lost(common: bool) -> None:
    a, b = np.random.default_rng(4).normal(size=(2, 30))
    a += 5
    a[:2] = NAN
    pair, _ = study({"a": a, "b": b}, common)
    assert pair.favours == "a" and pair.p_holm <= pair.p_worst < 0.05
    # a smaller one, of which p depends on single runs
    a -= 4.3
    a[:2] = b[:2] = NAN
    pair, _ = study({"a": a, "b": b}, common)
    # a seed that neither finished says nothing
    assert (pair.p_worst == pair.p_holm) == common

"""Robustness over scenarios, by hand: regret, worst case, percentiles, mean-variance, satisficing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.factors import design, levels, number

from palaestrai_mosaik.arsenai.analysis.comparison import Robustness, robustness
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.model import AnalysisSpec, Axis, DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.samplers import sample
from palaestrai_mosaik.core.errors import PalaestraiMosaikError

#: performance of three options in three scenarios
TABLE = {"a": (10.0, 6.0, 2.0), "b": (7.0, 7.0, 5.0), "c": (4.0, 8.0, 8.0)}
FACTORS = [levels("option", "a", "b", "c"), levels("load", 0, 1, 2, ordered=True)]


class Made:
    """Results of a design whose outcomes are made up: y, of which more is better, and cost, of which less is."""

    def __init__(
        self,
        spec: DesignSpec,
        outcome: Callable[[Mapping[str, Any], int], float],
        repetitions: int = 1,
    ):
        self.spec = replace(spec, repetitions=repetitions, analysis=AnalysisSpec(resamples=200))
        drawn = sample(spec)
        values = decode(spec, drawn.unit)
        self.folder = SimpleNamespace(sample=drawn, values=lambda: values)
        self.outcome_specs = (
            OutcomeSpec("y", "objective", better="higher"),
            OutcomeSpec("cost", "objective", better="lower"),
            OutcomeSpec("plain", "objective"),
        )
        row, repetition = np.divmod(np.arange(len(values) * repetitions), repetitions)
        y = np.array([outcome(values[r], n) for r, n in zip(row, repetition, strict=True)], dtype=float)
        self.frame = pd.DataFrame(
            {
                **{"row": row, "repetition": repetition, "run": np.arange(len(row)), "status": "finished"},
                **{"y": y, "cost": -y, "plain": y},
            }
        )

    def outcomes(self) -> pd.DataFrame:
        return self.frame


def by_table(values: Mapping[str, Any], repetition: int) -> float:
    # two seeds, one above the mean and one below it
    return TABLE[values["option"]][values["load"]] + (0.5 if repetition else -0.5)


def results(factors: Any = FACTORS, **more: Any) -> Made:
    return Made(design(factors, **more), by_table, repetitions=2)


def values_of(found: Robustness, metric: str) -> dict[str, float]:
    rows = found.table[found.table["metric"] == metric]
    return dict(zip(rows["level"], rows["value"], strict=True))


def best_of(found: Robustness, metric: str) -> set[str]:
    rows = found.table[(found.table["metric"] == metric) & found.table["best"]]
    return set(rows["level"])


def ask(made: Made, **more: Any) -> list[Robustness]:
    return robustness(made, ["option"], outcomes=more.pop("outcomes", ["y"]), **more)  # type: ignore[arg-type]


def test_metrics_by_hand() -> None:
    (found,) = ask(results())
    assert found.title == "y by option over load"
    assert values_of(found, "mean") == pytest.approx({"a": 6, "b": 19 / 3, "c": 20 / 3})
    assert values_of(found, "worst") == {"a": 2, "b": 5, "c": 4}
    # the best in each scenario: 10, 8, 8
    regret = found.scenarios.pivot(index="level", columns="scenario", values="regret")
    assert regret.to_numpy().tolist() == [[0, 2, 6], [3, 1, 3], [6, 0, 0]]
    assert values_of(found, "regret_max") == {"a": 6, "b": 3, "c": 6}
    assert values_of(found, "regret_mean") == pytest.approx({"a": 8 / 3, "b": 7 / 3, "c": 2})
    # 2 + 0.2 (6 - 2), 5 + 0.2 (7 - 5), 4 + 0.2 (8 - 4)
    assert values_of(found, "percentile") == pytest.approx({"a": 2.8, "b": 5.4, "c": 4.8})
    # 2 + 0.8 (6 - 2), 3, 0 + 0.8 (6 - 0)
    assert values_of(found, "regret_percentile") == pytest.approx({"a": 5.2, "b": 3, "c": 4.8})
    std = {"a": math.sqrt(32 / 3), "b": math.sqrt(8 / 9), "c": math.sqrt(32 / 9)}
    assert values_of(found, "std") == pytest.approx(std)
    spread = {level: (values_of(found, "mean")[level] + 1) / (std[level] + 1) for level in std}
    assert values_of(found, "mean_variance") == pytest.approx(spread)
    assert [best_of(found, m) for m in ("mean", "worst", "regret_max", "regret_mean", "mean_variance")] == [
        *({"c"}, {"b"}, {"b"}, {"c"}, {"b"})
    ]


def test_less_is_better() -> None:
    (found,) = ask(results(), outcomes=["cost"])
    assert values_of(found, "worst") == {"a": -2, "b": -5, "c": -4}
    assert values_of(found, "percentile") == pytest.approx({"a": -2.8, "b": -5.4, "c": -4.8})
    assert values_of(found, "regret_max") == {"a": 6, "b": 3, "c": 6}
    assert best_of(found, "worst") == best_of(found, "regret_max") == {"b"}
    # negative on average
    assert all(math.isnan(value) for value in values_of(found, "mean_variance").values())
    assert any("mean-variance is defined" in text for text in found.warnings)


def test_mean_variance_of_what_shall_be_small() -> None:
    made = results()
    made.frame["cost"] = made.frame["y"]
    (found,) = ask(made, outcomes=["cost"])
    assert values_of(found, "mean_variance")["b"] == pytest.approx((19 / 3 + 1) * (math.sqrt(8 / 9) + 1))
    assert values_of(found, "worst") == {"a": 10, "b": 7, "c": 8}


def test_satisficing_by_hand() -> None:
    found = ask(results(), satisfice=["y >= 6", "y >= 5 and cost < 0", "y > 100"])[1:]
    shares = [values_of(one, "satisficing") for one in found]
    assert shares[0] == pytest.approx({"a": 2 / 3, "b": 2 / 3, "c": 2 / 3})
    assert shares[1] == pytest.approx({"a": 2 / 3, "b": 1, "c": 2 / 3})
    assert shares[2] == {"a": 0, "b": 0, "c": 0}
    assert [best_of(one, "satisficing") for one in found[:2]] == [{"a", "b", "c"}, {"b"}]
    assert found[0].better is None and found[0].scenarios["value"].sum() == 6


def test_intervals_are_those_of_resampled_scenarios() -> None:
    (found,) = ask(results())
    rows = found.table.set_index(["level", "metric"])
    inside = rows.dropna()
    assert (inside["low"] <= inside["value"] + 1e-9).all() and (
        inside["value"] <= inside["high"] + 1e-9
    ).all()
    # of three scenarios, the largest mean is the best of them three times
    assert rows.loc[("a", "mean"), "high"] == 10
    # a maximum is never above the largest one seen
    assert rows.loc[("b", "regret_max"), "high"] == 3
    pd.testing.assert_frame_equal(found.table, ask(results())[0].table)


def test_factors_that_are_neither_are_averaged() -> None:
    made = results([*FACTORS, levels("season", "s", "w")])
    (found,) = ask(made, over=["load"])
    assert found.over == ("load",) and values_of(found, "regret_max") == {"a": 6, "b": 3, "c": 6}
    assert found.warnings == ("performance in a scenario is the mean over season",)
    (found,) = ask(made)
    assert found.over == ("load", "season")
    assert set(found.table["scenarios"]) == {6}


def test_what_is_zipped_with_the_decision_is_told() -> None:
    both = Axis("both", (FACTORS[0], levels("gain", 1, 2, 3)))
    (found,) = ask(results([both, FACTORS[1]]))
    assert found.over == ("load",)
    assert found.warnings == ("varies together with gain: what differs may be due to either",)


def test_scenarios_with_lost_runs_are_left_out_for_all() -> None:
    made = results()
    # both seeds of a in the first scenario
    gone = made.frame["y"].isin([9.5, 10.5])
    made.frame.loc[gone, "status"] = "failed"
    (found,) = ask(made)
    assert set(found.table["scenarios"]) == {2} and set(found.table["lost"]) == {1}
    assert values_of(found, "regret_max") == {"a": 6, "b": 3, "c": 0}
    (warning,) = found.warnings
    assert warning.startswith("2 runs without a finite value") and "1 scenario of 3 left out" in warning
    # a might have given 7.5 there, as b did: then c would have a regret of 3.5, and b of 3
    assert best_of(found, "regret_max") == set()
    # c has a mean of 20/3, b of 19/3, and a of 31/6 at most
    assert best_of(found, "mean") == {"c"}
    # nobody knows how much a varies
    assert best_of(found, "std") == best_of(found, "mean_variance") == set()


def test_a_level_that_crashes_where_it_is_bad_is_not_robust() -> None:
    made = results()
    # the second seed of a in the last scenario, where it is bad
    made.frame.loc[made.frame["y"].isin([2.5]), "status"] = "failed"
    found, often = ask(made, satisfice=["y >= 5"])
    # what all levels finished there: the first seeds
    assert values_of(found, "worst") == {"a": 1.5, "b": 4.5, "c": 4}
    assert best_of(found, "worst") == {"b"} and best_of(found, "regret_max") == {"b"}
    assert values_of(often, "satisficing") == pytest.approx({"a": 2 / 3, "b": 2 / 3, "c": 2 / 3})
    # both seeds of b hold it everywhere; no lost run of a could make that better
    assert best_of(often, "satisficing") == {"b"}


def test_what_no_level_finished_says_nothing_of_their_order() -> None:
    made = results()
    first = made.frame["y"].isin([9.5, 10.5, 6.5, 7.5, 3.5, 4.5]) & made.frame["row"].isin(
        [i for i, one in enumerate(made.folder.values()) if one["load"] == 0]
    )
    made.frame.loc[first, "status"] = "failed"
    found, often = ask(made, satisfice=["y >= 5"])
    assert values_of(found, "mean") == {"a": 4, "b": 6, "c": 8} and best_of(found, "mean") == {"c"}
    assert best_of(often, "satisficing") == {"b", "c"}


def test_levels_without_a_common_scenario_have_no_regret() -> None:
    def outcome(values: Mapping[str, Any], _: int) -> float:
        return float(values["load"])

    made = Made(design([levels("option", "a", "b"), number("load")], "lhs", 40), outcome)
    (found,) = ask(made)
    assert all(math.isnan(value) for value in values_of(found, "regret_max").values())
    assert values_of(found, "worst")["a"] < 0.1 and set(found.table["scenarios"]) == {20}
    assert any(text.startswith("levels share no scenario") for text in found.warnings)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"over": ["lod"]}, "no factor 'lod' in the design (did you mean 'load'?)"),
        ({"over": ["option"]}, "'option' cannot make scenarios: it is a factor that is compared"),
        ({"outcomes": ["yy"]}, "no outcome 'yy' (did you mean 'y'?)"),
        ({"outcomes": ["plain"]}, "which direction of 'plain' is good"),
        ({"satisfice": ["z > 1"]}, "names 'z', which is no outcome"),
        ({"satisfice": ["status == 'failed'"]}, "scenarios have outcomes, no status"),
    ],
)
def test_errors(more: dict[str, Any], message: str) -> None:
    with pytest.raises(PalaestraiMosaikError) as caught:
        ask(results(), **more)
    assert message in str(caught.value)


def test_nothing_beside_the_decision() -> None:
    made = Made(design([FACTORS[0]]), lambda values, _: 1.0)
    with pytest.raises(PalaestraiMosaikError, match="there are no scenarios"):
        ask(made)

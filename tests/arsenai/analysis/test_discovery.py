"""Boxes that are planted are found: numbers, whole numbers, levels, inactive factors, zips, repetitions, lost runs."""

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

from palaestrai_mosaik.arsenai.analysis.discovery import (
    Discovery,
    FoundBox,
    discover_design,
    discovery_figure,
)
from palaestrai_mosaik.arsenai.analysis.discovery.algorithms import Points, quasi_p
from palaestrai_mosaik.arsenai.analysis.discovery.boxes import Box, Column, rule_of, tidy
from palaestrai_mosaik.arsenai.analysis.discovery.discover import (
    box_table,
    limit_table,
    setting_table,
    trajectory_table,
)
from palaestrai_mosaik.arsenai.analysis.discovery.figure import plane_of
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.model import Axis, DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.samplers import sample
from palaestrai_mosaik.core.errors import PalaestraiMosaikError

pytest.importorskip("sklearn", reason="the extra discovery is not installed")

#: outcome of a row's values; the second argument is the number of the repetition
Outcome = Callable[[Mapping[str, Any], int], float]


class Made:
    """Results of a design whose outcomes are made up."""

    def __init__(self, spec: DesignSpec, outcome: Outcome, repetitions: int = 1, resamples: int = 10):
        self.spec = replace(
            spec, repetitions=repetitions, analysis=replace(spec.analysis, resamples=resamples)
        )
        drawn = sample(spec)
        values = decode(spec, drawn.unit)
        self.folder = SimpleNamespace(sample=drawn, values=lambda: values)
        self.outcome_specs = (OutcomeSpec("y", "objective"), OutcomeSpec("peak volts", "objective"))
        row, repetition = np.divmod(np.arange(len(values) * repetitions), repetitions)
        self.frame = pd.DataFrame(
            {
                **{"row": row, "repetition": repetition, "run": np.arange(len(row)), "status": "finished"},
                "y": [float(outcome(values[r], n)) for r, n in zip(row, repetition, strict=True)],
                "peak volts": 1.0,
            }
        )

    def outcomes(self) -> pd.DataFrame:
        return self.frame


def found_in(results: Made, *conditions: str) -> Discovery:
    (found,) = discover_design(results, conditions or ("y > 0",))  # type: ignore[arg-type]
    return found


def of(found: Discovery, method: str) -> list[FoundBox]:
    return [one for one in found.boxes if one.method == method]


def planted(values: Mapping[str, Any], number: int = 0) -> float:
    return float(values["x0"] > 0.5 and values["x1"] < 0.6 and values["x2"] > 0.3)


@pytest.mark.parametrize("count", [3, 5, 8])
def test_planted_boxes_are_found(count: int) -> None:
    factors = [number(f"x{i}") for i in range(count)]
    found = found_in(Made(design(factors, "lhs", 250), planted, resamples=4))
    # on points that were not used: where the box is, not where points happened to be
    grid = np.random.default_rng(1).random((20_000, count))
    true = (grid[:, 0] > 0.5) & (grid[:, 1] < 0.6) & (grid[:, 2] > 0.3)
    columns = [Column(column.axis, grid[:, i], "number") for i, column in enumerate(found.columns)]
    for method in ("PRIM", "CART"):
        one = of(found, method)[0]
        inside = one.box.contains(columns)
        assert true[inside].mean() >= 0.9 and inside[true].mean() >= 0.9, (method, one.rule)
        assert set(one.limits["factor"]) == {"x0", "x1", "x2"}
        assert one.figures["overlap"] > 0.7
        assert (one.limits["present"] > 0.7).all() and (one.limits["quasi_p"] < 0.05).all()


def corners(edge: float) -> Outcome:
    """Two boxes: the lower left corner, and the upper right one from ``edge`` on."""

    def outcome(values: Mapping[str, Any], _: int) -> float:
        low = values["x0"] < 0.3 and values["x1"] < 0.3
        high = values["x0"] > edge and values["x1"] > edge
        return float(low or high)

    return outcome


def test_two_boxes_are_found_one_after_the_other() -> None:
    found = found_in(Made(design([number("x0"), number("x1"), number("x2")], "lhs", 500), corners(0.5)))
    for method in ("PRIM", "CART"):
        first, second = of(found, method)
        assert not (first.box.contains(found.columns) & second.box.contains(found.columns)).any()
        assert first.figures["coverage"] + second.figures["coverage"] > 0.9
        assert first.figures["density"] > 0.85 and second.figures["density"] > 0.85
        assert "x0 >= " in first.rule and "x1 <= " in second.rule


def test_what_prim_cannot_peel_is_told_and_cart_finds_it() -> None:
    """At each edge, the condition holds more often than in the middle: no peel makes the rest denser."""
    found = found_in(Made(design([number("x0"), number("x1"), number("x2")], "lhs", 500), corners(0.6)))
    assert of(found, "PRIM") == []
    assert any(note.startswith("PRIM finds no box") for note in found.notes)
    first, second = of(found, "CART")
    assert first.figures["coverage"] + second.figures["coverage"] > 0.9


def test_levels_with_and_without_order_and_whole_numbers() -> None:
    factors = [
        levels("controller", "static", "integrating", "fuzzy"),
        levels("season", "winter", "spring", "summer", ordered=True),
        number("agents", 1, 9, kind="int"),
        number("load"),
    ]

    def outcome(values: Mapping[str, Any], number: int) -> float:
        hit = values["controller"] != "fuzzy" and values["season"] != "winter" and values["agents"] >= 5
        return float(hit)

    found = found_in(Made(design(factors, "lhs", 400), outcome))
    for method in ("PRIM", "CART"):
        (one,) = of(found, method)[:1]
        parts = set(one.rule.split(" and "))
        if method == "PRIM":
            wanted = {"controller in (static, integrating)", "season in (spring, summer)", "agents >= 5"}
            assert parts == wanted
            assert one.figures["coverage"] == one.figures["density"] == 1
            assert dict(zip(one.limits["factor"], one.limits["value"], strict=True)) == {
                **{"controller": "static, integrating", "season": "spring", "agents": "5"}
            }
        else:
            assert "agents >= 5" in parts


def test_levels_that_are_drawn_more_often_count_more() -> None:
    controller = levels("controller", "a", "b", weights=(0.8, 0.2))
    found = found_in(
        Made(design([controller, number("x0")], "lhs", 200), lambda v, _: v["controller"] == "b")
    )
    assert found.holds == 40
    (one,) = of(found, "PRIM")
    assert one.rule == "controller = b" and one.figures["mass"] == 0.2


def test_inactive_factors() -> None:
    factors = [levels("mode", "off", "on"), number("gain", when='mode == "on"'), number("load")]

    def high(values: Mapping[str, Any], number: int) -> float:
        # it holds where the factor is inactive, too
        return float(values["mode"] == "off" or values["gain"] > 0.5)

    spec = design(factors, "lhs", 160)
    (one,) = of(found_in(Made(spec, high)), "PRIM")[:1]
    assert one.rule.startswith("(gain >= 0.") and one.rule.endswith("or gain is inactive)")
    assert one.figures["coverage"] > 0.95 and one.figures["density"] > 0.95

    (one,) = of(found_in(Made(spec, lambda values, _: float(values["mode"] == "off"))), "PRIM")[:1]
    assert one.rule in ("mode = off", "gain is inactive")

    def active(values: Mapping[str, Any], number: int) -> float:
        return float(values["mode"] == "on" and values["gain"] > 0.5)

    (one,) = of(found_in(Made(spec, active)), "PRIM")[:1]
    assert one.rule.startswith("gain >= 0.") and "inactive" not in one.rule


def test_zipped_factors_are_limited_together() -> None:
    numbers = Axis("size", (number("width"), number("height", 0, 100)))
    named = Axis("pair", (levels("agent", "a", "b", "c"), levels("rate", 1, 2, 3, ordered=True)))

    def outcome(values: Mapping[str, Any], _: int) -> float:
        return float(values["width"] > 0.5 and values["rate"] == 2)

    (one,) = of(found_in(Made(design([numbers, named, number("load")], "lhs", 300), outcome)), "PRIM")[:1]
    size, pair = one.rule.split(" and ")
    assert pair == "pair = b + 2"
    assert size.startswith("size (width >= 0.") and ", height >= " in size
    assert one.figures["coverage"] > 0.95


def test_repetitions_are_counted_by_their_settings() -> None:
    def outcome(values: Mapping[str, Any], number: int) -> float:
        # three of four seeds fail in the box, and none elsewhere
        return float(values["x0"] > 0.5 and number != 3)

    results = Made(design([number("x0"), number("x1")], "lhs", 60), outcome, repetitions=4)
    found = found_in(results)
    (one,) = of(found, "CART")
    assert found.title == "y > 0 holds in 90 of 240 runs (37.5 %)"
    assert one.figures["settings"] == 30 and one.figures["settings_some"] == 30
    assert one.figures["runs"] == 120 and one.figures["holds"] == 90 and one.figures["settings_all"] == 0
    assert one.figures["density"] == pytest.approx(0.75, abs=0.05) and one.figures["coverage"] == 1
    shares = found.settings()
    assert set(shares.loc[shares["CART 1"], "share"]) == {0.75}
    assert set(shares.loc[~shares["CART 1"], "share"]) == {0.0}


def test_lost_runs_are_told_and_counted_in_their_box() -> None:
    results = Made(design([number(f"x{i}") for i in range(3)], "lhs", 300), planted)
    frame = results.frame
    lost = frame.index[frame["y"] > 0][:7]
    frame.loc[lost, "y"] = math.nan
    frame.loc[lost[:4], "status"] = "failed"
    found = found_in(results)
    assert len(found.runs.lost) == 7 and len(found.runs.row) == 293
    assert any(note.startswith("7 of 300 runs without a value, in 7 rows") for note in found.notes)
    (one,) = of(found, "PRIM")[:1]
    # they lie where the condition holds
    assert one.figures["lost"] >= 6
    assert found.settings()["lost"].sum() == 7


def test_where_runs_fail() -> None:
    results = Made(design([number(f"x{i}") for i in range(3)], "lhs", 300), planted)
    failed = results.frame["y"] > 0
    results.frame.loc[failed, "status"] = "failed"
    results.frame.loc[failed, "y"] = math.nan
    (one,) = of(found_in(results, "status == 'failed'"), "PRIM")[:1]
    assert one.figures["coverage"] > 0.9 and one.figures["density"] > 0.9


def test_runs_that_rows_share_count_for_each_row_and_are_drawn_once() -> None:
    results = Made(design([number("x0"), number("x1")], "lhs", 200), lambda v, _: float(v["x0"] > 0.6))
    # ten rows are one run
    twins = results.frame.index[results.frame["y"] == 0][:10]
    results.frame.loc[twins, "run"] = results.frame.loc[twins[0], "run"]
    found = found_in(results, "y == 0")
    assert found.holds == 120 and found.runs.settings == 191
    (one,) = of(found, "PRIM")
    assert one.figures["runs"] - one.figures["executed"] == 9


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("z > 0", "names 'z', which is no outcome; outcomes: y, peak volts, status"),
        ("yy > 0", "did you mean 'y'?"),
        ("1 > 0", "names no outcome, so it is always the same"),
        ("y", "'y' is a value and no condition: compare it with something, such as y > 0.5"),
        ("2 - y", "is a value and no condition"),
        ("y >", "is not understood"),
        ("y > 'a'", "cannot be computed for y = "),
        ("__import__('os')", "may not hold"),
    ],
)
def test_bad_conditions_are_errors(condition: str, message: str) -> None:
    results = Made(design([number("x0")], "lhs", 30), lambda v, _: v["x0"])
    with pytest.raises(PalaestraiMosaikError) as caught:
        found_in(results, condition)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("y > 2", "the condition holds in no run of 60 (y goes from 0."),
        ("y >= 0", "the condition holds in every run of 60 (y goes from 0."),
        ("y > 0.984", "the condition holds in 1 setting of 60 only; at least 5 are needed"),
        ("y < 0.984", "the condition does not hold in 1 setting of 60 only"),
        ('outcome["peak volts"] > 2', "the condition holds in no run of 60 (peak volts goes from 1 to 1)"),
    ],
)
def test_conditions_that_tell_nothing_are_refused(condition: str, message: str) -> None:
    spec = design([number("x0"), number("x1")], "lhs", 60)
    found = found_in(Made(spec, lambda values, _: values["x0"]), condition)
    assert found.boxes == () and found.refused.startswith(message)


def test_few_settings_are_refused() -> None:
    found = found_in(Made(design([number("x0")], "lhs", 19), lambda v, _: float(v["x0"] > 0.5)))
    assert found.refused.startswith("19 settings with a value are too few")


def test_pictures_show_the_two_axes_that_are_limited_most() -> None:
    factors = [
        levels("controller", "b", "a", "c"),
        number("agents", 1, 5, kind="int"),
        number("gain", 0.01, 10.0, dist="loguniform"),
    ]
    made = design(factors, "lhs", 200)
    found = found_in(Made(made, lambda v, _: float(v["controller"] != "b" and v["gain"] > 2)), "y > 0")
    (one,) = of(found, "PRIM")[:1]
    plane = plane_of(found, one)
    assert plane is not None
    assert (plane.x.name, plane.y.name) == ("gain", "controller")
    assert plane.x.log and plane.x.limit[1] == 10
    # the levels of the box come first, so that one rectangle holds them
    assert plane.y.levels == ("a", "c", "b") and plane.y.limit == (-0.5, 1.5)
    x, y = plane.x.places, plane.y.places
    framed = (
        (x >= plane.x.limit[0]) & (x <= plane.x.limit[1]) & (y >= plane.y.limit[0]) & (y <= plane.y.limit[1])
    )
    assert (framed == plane.inside).all()
    figure = discovery_figure(found)
    assert len(figure.axes) == 2 * len(found.boxes)
    assert figure.get_suptitle() == found.title
    with pytest.raises(PalaestraiMosaikError, match="there is no box to draw"):
        discovery_figure(replace(found, boxes=()))


def test_a_design_of_one_factor() -> None:
    found = found_in(Made(design([number("x0")], "lhs", 60), lambda v, _: float(v["x0"] > 0.6)))
    (one,) = of(found, "CART")
    assert one.rule == "x0 >= 0.6" and plane_of(found, one) is None
    assert discovery_figure(found, "CART").axes


@pytest.mark.parametrize("repetitions", [1, 3])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_chance_is_no_box(repetitions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    # common seeds: each is as good or bad in all rows
    worth = rng.normal(size=repetitions) * (repetitions > 1)
    spec = design([number(f"x{i}") for i in range(5)], "lhs", 120)
    found = found_in(Made(spec, lambda _, n: rng.normal() + worth[n] - 0.7, repetitions, resamples=2))
    assert found.boxes == () and not found.refused
    assert found.nothing_found == "nothing found: no box in which y > 0 holds more often than chance explains"
    assert {note.partition(" that is better")[0] for note in found.notes} == {
        "PRIM finds no box",
        "CART finds no box",
    }


def test_figures_are_of_settings_that_did_not_choose_the_box() -> None:
    """y > 0 holds in 8 of 10 runs within a box and in 1 of 10 outside, which the best box of 150 runs looks better than."""
    rng = np.random.default_rng(5)
    factors = [number(f"x{i}") for i in range(4)]
    results = Made(
        design(factors, "lhs", 150),
        lambda v, _: float(rng.random() < (0.8 if planted(v) else 0.1)),
        resamples=2,
    )
    found = found_in(results)
    grid = np.random.default_rng(1).random((20_000, 4))
    true = np.where((grid[:, 0] > 0.5) & (grid[:, 1] < 0.6) & (grid[:, 2] > 0.3), 0.8, 0.1)
    columns = [Column(column.axis, grid[:, i], "number") for i, column in enumerate(found.columns)]
    for one in (of(found, "PRIM")[0], of(found, "CART")[0]):
        inside, told = one.box.contains(columns), one.figures
        assert (
            told["density"] < told["holds"] / told["runs"] and told["coverage"] < told["holds"] / found.holds
        )
        for name, value in (("coverage", true[inside].sum() / true.sum()), ("density", true[inside].mean())):
            assert told[f"{name}_low"] <= told[name] <= told[f"{name}_high"]
            assert told[f"{name}_low"] <= value <= told[f"{name}_high"]


def test_same_results_same_boxes_in_any_order() -> None:
    factors = [levels("controller", "b", "a", "c"), number("x0"), number("x1"), number("x2")]
    results = Made(design(factors, "lhs", 100), planted, resamples=3)
    one = found_in(results)
    again = found_in(results)
    for table in (box_table, limit_table, trajectory_table, setting_table):
        pd.testing.assert_frame_equal(table([one]), table([again]))
    trajectory = trajectory_table([one])
    assert trajectory["coverage"].iloc[0] == 1 and trajectory["mass"].iloc[0] == 1
    assert trajectory.groupby(["method", "box"])["chosen"].sum().eq(1).all()
    # each step holds fewer runs than the one before it, until pasting begins
    assert trajectory["mass"].diff().iloc[1:10].lt(0).all()


def test_quasi_p_by_hand() -> None:
    """Of 8 settings, 4 in the box; all of those fail, and 4 of the 8: p = 0.5 ** 4."""
    column = Column(Axis("x", (number("x"),)), np.arange(8.0), "number")
    points = Points((column,), np.arange(8), np.arange(8) >= 4, np.arange(8))
    assert quasi_p(points, Box({0: (3.5, math.inf)})) == {(0, "lower"): pytest.approx(0.5**4)}
    # three more runs of each setting say nothing more
    thrice = points.only(np.repeat(np.arange(8), 3))
    assert quasi_p(thrice, Box({0: (3.5, math.inf)})) == {(0, "lower"): pytest.approx(0.5**4)}


def test_limits_are_round_numbers_that_leave_the_rows_as_they_are() -> None:
    column = Column(Axis("x", (number("x"),)), np.array([0.1, 0.2312, 0.2489, 0.9]), "number")
    box = tidy({0: (0.24, 1.5)}, [column])
    assert box.limits == {0: (0.24, math.inf)}
    box = tidy({0: (0.23119, 0.24891)}, [column])
    assert box.limits == {0: (0.2, 0.6)}
    assert rule_of(column, box.limits[0]) == "0.2 <= x <= 0.6"
    assert tidy({0: (0.0, 1.0)}, [column]).limits == {}

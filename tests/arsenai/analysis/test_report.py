"""The report as text: sentences from numbers, names as text, the same bytes, files on disk.

What it looks like in a browser: test_report_browser.py.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import pickle
import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup
from support.reports import EVIL, compared, indices, made_up

from palaestrai_mosaik import __version__
from palaestrai_mosaik.arsenai.analysis.comparison import ComparisonOptions, compare
from palaestrai_mosaik.arsenai.analysis.comparison.runs import collect
from palaestrai_mosaik.arsenai.analysis.report import (
    ReportData,
    SearchData,
    headline,
    references,
    render,
    write_report,
)
from palaestrai_mosaik.arsenai.analysis.report.answer import answer
from palaestrai_mosaik.arsenai.analysis.report.best import best_of, is_choice
from palaestrai_mosaik.arsenai.analysis.report.compared import Compared
from palaestrai_mosaik.arsenai.analysis.report.numbers import Mark, column, number, slug
from palaestrai_mosaik.arsenai.analysis.report.outcomes import outcome_axis
from palaestrai_mosaik.arsenai.analysis.report.pictures.canvas import in_units, limits, log_ticks, ticks
from palaestrai_mosaik.arsenai.analysis.report.pictures.parallel import MOST_RUNS, choose
from palaestrai_mosaik.arsenai.analysis.report.verdict import count_tests, lost_runs
from palaestrai_mosaik.arsenai.analysis.report.wording import plain
from palaestrai_mosaik.arsenai.design.methods import METHODS
from palaestrai_mosaik.arsenai.design.model import Axis, Factor
from palaestrai_mosaik.arsenai.design.remark import Remark, kind_of
from palaestrai_mosaik.core.errors import PalaestraiMosaikError, StoreError

FINITE = st.floats(-1e12, 1e12, allow_nan=False).filter(lambda x: x == 0 or abs(x) > 1e-12)


class Reader(HTMLParser):
    """Counts elements, and keeps the text of what is shown."""

    def __init__(self, page: str):
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.text = io.StringIO()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.text.write(data)


def sentences(data: ReportData) -> list[str]:
    ((_, found),) = headline(data)
    return [str(one) for one in found]


def cautions(page: str) -> dict[int, str]:
    """Return the cautions of a page as text, by their numbers."""
    found = re.findall(
        r'<li id="caution-(\d+)">(.*?)(?: <span class="quiet">(?:.*?)</span>)?</li>', page, re.DOTALL
    )
    return {int(place): str(plain(Markup(text))) for place, text in found}


def only(method: str, rows: list[tuple[str, str, float, float]], **changes: Any) -> ReportData:
    """Return a study with these indices: index, factor, value and half of the interval.

    All effects are more than noise, unless ``rows`` have values of ``p_adjusted``.
    """
    if all(index != "p_adjusted" for index, *_ in rows):
        named = dict.fromkeys(
            factor for _, factor, value, _ in rows if "(" not in factor and not math.isnan(value)
        )
        rows = [*rows, *(("p_adjusted", factor, 0.001, math.nan) for factor in named)]
    frame = pd.DataFrame(
        [
            {"outcome": "violations", "method": method, "index": index, "factor": factor, "factor2": ""}
            | {
                "value": value,
                "low": value - half,
                "high": value + half,
                "used": 60,
                "lost": 0,
                "executed": 60,
            }
            for index, factor, value, half in rows
        ]
    )
    return replace(made_up(rows=8, repetitions=1), sensitivity=frame, comparisons=(), **changes)


def test_the_first_sentences_say_what_matters() -> None:
    assert sentences(made_up()) == [
        "gain explains 61 % (56 to 66 %) of the variance of violations on its own, "
        "70 % (67 to 73 %) with its interactions.",
        "deadband explains 20 % (15 to 25 %) on its own, 30 % (27 to 33 %) with its interactions.",
        "sensors explains 15 % (12 to 18 %) with its interactions; its share on its own cannot be told "
        "apart from zero (5 %, interval 0 to 10 %).",
        "learning_rate explains less than 5 %, even at the upper end of the interval.",
        "Noise alone could explain the effect of learning_rate (p above 0.05, corrected for the number of factors), "
        "which does not mean that there is none.",
        "gain and deadband interact: together they explain a further 9 % (5 to 13 %).",
        "Among the levels of sensors, none has the best interquartile mean of violations: 6.6 (5.8 to 7.3) over "
        "12 runs of 6 seeds.",
        "Not everywhere: in 1 of 2 settings another level has the better mean (grid=b: all).",
        "none is better than few: violations is lower by 3.5 (2.0 to 5.0), 54 % of the mean of none "
        "(p = 0.01 after Holm's correction).",
        "all is better than few: violations is lower by 3.0 (1.8 to 4.2), 43 % of the mean of all "
        "(p = 0.02 after Holm's correction).",
        "Not told apart (p = 0.5 after Holm's correction; intervals are not corrected), which does not make them equal: all minus none is "
        "0.5 (-1.0 to 2.0), 7.7 % of the mean of none.",
        "Caution: only 6 repetitions of a level.",
    ]


@pytest.mark.parametrize(
    ("method", "rows", "expected"),
    [
        (
            "sobol",
            [("ST", "gain", 0.5, 0.2), ("ST", "sensors", 0.4, 0.2), ("ST", "deadband", 0.1, 0.02)],
            "The intervals of gain and sensors overlap: which of them matters most is not settled.",
        ),
        (
            "sobol",
            [("ST", "gain", 0.1, 0.2), ("ST", "sensors", 0.05, 0.2)],
            "gain and sensors have effects on violations, of unknown size: the interval of the largest share of the "
            "variance, interactions included (ST), that of gain, includes 0 (0.1 (-0.1 to 0.3)). More rows would narrow it.",
        ),
        (
            "morris",
            [("mu_star", "gain", 3.0, 0.5), ("mu_star", "sensors", 1.0, 0.5)],
            "gain has the largest effect on violations: across its range, a mean change of 3.0 (2.5 to 3.5); "
            "then sensors 1.0 (0.5 to 1.5).",
        ),
        (
            "fast",
            [("ST", "gain", 0.7, math.nan), ("ST", "sensors", 0.3, math.nan)],
            "There are no intervals, so it is not known how certain this order is.",
        ),
        (
            "anova",
            [
                *(("eta2", "gain", 0.7, math.nan), ("eta2", "sensors", 0.1, math.nan)),
                *(("p_adjusted", "gain", 0.001, math.nan), ("p_adjusted", "sensors", 0.2, math.nan)),
            ],
            "Noise alone could explain the effect of sensors (p above 0.05, corrected for the number of factors), "
            "which does not mean that there is none.",
        ),
        (
            "pawn",
            [("median", "gain", 0.4, math.nan), ("median", "sensors", 0.1, math.nan)],
            "The effects of gain and sensors are more than noise (p at most 0.05, corrected for the number of factors).",
        ),
    ],
)
def test_sentences_say_how_sure_they_are(
    method: str, rows: list[tuple[str, str, float, float]], expected: str
) -> None:
    assert expected in sentences(only(method, rows))


def test_sentences_of_errors_are_not_of_factors() -> None:
    """The share of repetitions is the largest here, but no factor."""
    rows = [("eta2", "(error)", 0.8, math.nan), ("eta2", "gain", 0.2, math.nan)]
    assert sentences(only("anova", rows))[0] == "gain explains 20 % of the variance of violations."


def test_what_cannot_be_said_is_not_said() -> None:
    nothing = only("sobol", [("ST", "gain", math.nan, math.nan)])
    refused = replace(nothing, refused={("violations", "sobol"): "constant outcome: it is 3 in all runs"})
    assert sentences(refused) == ["Sobol indices gave no result: constant outcome: it is 3 in all runs."]
    page = render(refused)["index.html"]
    (why,) = [i for i, text in cautions(page).items() if "constant outcome: it is 3 in all runs" in text]
    section = page[page.index(">Sobol indices<") :]
    assert "Not computed; the caution gives the reason." in section
    assert section.index(f'href="#caution-{why}"') < section.index("Not computed")
    assert page.count("constant outcome: it is 3 in all runs") == 2, "in the answer, as a caution"
    assert "violations-sobol-rows" not in page
    runs = nothing.runs.assign(violations=math.nan, status="missing")
    empty = replace(nothing, runs=runs, sensitivity=nothing.sensitivity.iloc[:0], learning=())
    assert sentences(empty) == ["No run has given a value of violations yet."]
    assert "8 of 8 runs (100.0 %) have not finished: 8 missing" in render(empty)["index.html"]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (
            [("S1", "gain", -0.2, 0.1), ("ST", "gain", 0.5, 0.1)],
            "gain explains 50 % (40 to 60 %) of the variance of violations with its interactions; its share on its "
            "own cannot be told apart from zero (-20 %, interval -30 to -10 %).",
        ),
        (
            [("S1", "gain", 0.3, 0.1), ("ST", "gain", 1.2, 0.2)],
            "gain explains 30 % (20 to 40 %) of the variance of violations on its own, nearly all "
            "(120 %, interval 100 to 140 %) with its interactions.",
        ),
        (
            [("ST", "gain", 0.5, 0.1), ("ST", "sensors", 0.1, 0.2)],
            "The share of sensors cannot be told apart from zero (10 %, interval -10 to 30 %).",
        ),
    ],
)
def test_a_share_is_never_below_nothing_nor_above_all(
    rows: list[tuple[str, str, float, float]], expected: str
) -> None:
    told = sentences(only("sobol", rows))
    assert expected in told
    assert "Shares below 0 or above 100 % are sampling error: true shares lie in between." in told
    assert "explains -" not in " ".join(told)


def test_a_sample_that_is_too_small_for_shares_is_told_first() -> None:
    rows = [("S1", "gain", 0.6, 0.4), ("ST", "gain", 0.7, 0.1)]
    expected = (
        "The sample is too small for shares of the variance: intervals are up to 80 percentage points wide. Their "
        "width falls with the square root of the sample size: half of it takes n = 64 instead of 16, 20 points take "
        "about n = 256."
    )
    data = only("sobol", rows)
    assert sentences(data)[0] == expected
    page = render(data)["index.html"]
    (place,) = [i for i, text in cautions(page).items() if text == expected]
    assert f'href="#caution-{place}"' in page[: page.index("<figure")], "the first sentence refers to it"
    assert page.count("The sample is too small") == 1
    narrow = only("sobol", [("S1", "gain", 0.6, 0.25), ("ST", "gain", 0.7, 0.1)])
    assert "too small" not in " ".join(sentences(narrow))


def test_pairs_that_do_not_differ() -> None:
    data = compared("sensors", "violations")
    alike = data.comparison.pairs.assign(p_holm=[0.3, 0.4, 0.5], favours="")
    found = sentences(changed(pairs=alike))
    assert (
        "Not told apart (smallest p = 0.3 after Holm's correction; intervals are not corrected), which does not make them equal: "
        "few minus all is 3.0 (1.8 to 4.2), 43 % of the mean of all; few minus none is 3.5 (2.0 to 5.0), 54 % of "
        "the mean of none; all minus none is 0.5 (-1.0 to 2.0), 7.7 % of the mean of none."
    ) in found


def test_pairs_whose_direction_is_not_said() -> None:
    pairs = compared("sensors", "violations").comparison.pairs
    told = sentences(changed(pairs=pairs.assign(favours="", p_holm=[1e-5, 0.2, 0.2])))
    assert (
        "few and all differ: violations of the first is higher by 3.0 (1.8 to 4.2), 43 % of the mean of all "
        "(p < 0.001 after Holm's correction)."
    ) in told


def test_a_difference_is_not_measured_by_a_mean_that_may_be_none() -> None:
    levels = compared("sensors", "violations").comparison.levels
    told = sentences(changed(levels=levels.assign(mean_low=-1.0)))
    assert (
        "none is better than few: violations is lower by 3.5 (2.0 to 5.0) (p = 0.01 after Holm's correction)."
        in told
    )


def test_how_many_tests_were_made_and_whether_they_were_planned() -> None:
    assert count_tests(only("sobol", [("S1", "gain", 0.6, 0.2)])) is None
    told = str(count_tests(made_up()))
    assert told.startswith("3 pairs of levels were tested (by sensors). The design planned no comparison")
    data = made_up()
    planned = replace(data.spec, analysis=replace(data.spec.analysis, compare=("sensors",)))
    f_tests = only("anova", [("eta2", "gain", 0.7, 0.1), ("p", "gain", 0.1, 0), ("p", "sensors", 0.2, 0)])
    data = replace(data, spec=planned, comparisons=data.comparisons * 2, sensitivity=f_tests.sensitivity)
    told = str(count_tests(data))
    assert told.startswith("6 pairs of levels were tested (by sensors; 1 outcome). The design planned these")
    assert (
        "each of the 2 comparisons has a chance of up to 5 % to name a difference where there is none" in told
    )
    assert " 2 F tests of the analysis of variance are not corrected for their number" in told
    assert told in cautions(render(data)["index.html"]).values()


def uneven() -> Compared:
    """Return two levels in two settings (lower is better); b has lost three runs, a none."""
    values = {
        "a": {"s": [1.0, 2.0, 3.0, 4.0], "t": [5.0, 6.0, 7.0, 8.0]},
        "b": {"s": [2.0, 3.0, 4.0, math.nan], "t": [4.0, 5.0, math.nan, math.nan]},
    }
    rows = [
        {"sensors": level, "grid": grid, "repetition": i, "violations": value}
        for level, grids in values.items()
        for grid, found in grids.items()
        for i, value in enumerate(found)
    ]
    frame = pd.DataFrame(rows)
    given = (["sensors"], "violations", ["grid"], ComparisonOptions(better="lower", resamples=50))
    return Compared(compare(frame, *given), collect(frame, *given).frame)


def test_losses_are_told_first_and_what_they_may_hide() -> None:
    data = uneven()
    told = sentences(replace(made_up(), sensitivity=made_up().sensitivity.iloc[:0], comparisons=(data,)))
    assert told[0].startswith("Caution: lost runs")
    assert "3 of 8 of b" in told[0]
    assert told[1].startswith(
        "Among the levels of sensors, none is called the best, because lost runs could change the order. Of the runs that "
        "finished, b has the best"
    )
    assert "over 5 runs of 3 seeds" in told[1]
    # of b: (2 + 3 + 4 + 4) / 4 = 3.25 and (4 + 5 + 8 + 8) / 4 = 6.25; of a, which lost nothing, 4.5
    assert told[2] == (
        "In the worst case (its lost runs as bad as the worst of their setting, those of others as good as the "
        "best) the mean of b is 4.75, that of a 4.5: the lost runs decide which is first."
    )
    assert told[3] == "Not everywhere: in 1 of 2 settings another level has the better mean (grid=s: a)."
    losses = data.losses().set_index("level")
    assert losses.loc["b", ["planned", "used", "lost", "seeds"]].tolist() == [8, 5, 3, 3]
    assert losses.loc["b"].tolist()[-3:] == [3.75, 4.75, (10 / 4 + 17 / 4) / 2]
    page = render(replace(made_up(), comparisons=(data,)))["index.html"]
    section = page[page.index(">Comparison<") :]
    assert section.index('id="table-comparison-0-violations-lost"') < section.index("<svg")


def test_dots_are_seeds() -> None:
    data = uneven()
    assert data.dots("mean", "a").tolist() == [3, 4, 5, 6]
    assert data.dots("mean", "b").tolist() == [3, 4], "those seeds that have both settings"
    assert data.differences("a", "b").tolist() == [0, 0]
    assert data.by_setting()["fewest seeds"].tolist() == [3, 2]
    own = replace(data.comparison, options=replace(data.comparison.options, common_seeds=False))
    assert sorted(Compared(own, data.runs).dots("mean", "b")) == [2, 3, 4, 4, 5]
    assert Compared(own, data.runs).seeds("b") == 5


def test_what_is_lost_in_one_setting_counts_too() -> None:
    """Two levels that lost as much each, but elsewhere, are means over different settings."""
    frame = pd.DataFrame(
        {"sensors": ["a", "a", "b", "b"] * 2, "grid": ["s", "t"] * 4, "repetition": [0] * 4 + [1] * 4}
    ).assign(violations=[math.nan, 5.0, 2.0, math.nan, math.nan, 6.0, 3.0, math.nan])
    given = (["sensors"], "violations", ["grid"], ComparisonOptions(better="lower", resamples=50))
    data = Compared(compare(frame, *given), collect(frame, *given).frame)
    assert data.comparison.levels["lost"].tolist() == [2, 2]
    assert data.lost
    assert data.best_by_setting("b") == {}
    assert data.differences("a", "b").tolist() == []


def of_runs(values: dict[str, dict[str, list[float]]], better: str = "higher") -> ReportData:
    """Return a study of levels, in which each setting has these values by repetition."""
    rows = [
        {"sensors": level, "grid": grid, "repetition": i, "violations": value}
        for level, grids in values.items()
        for grid, found in grids.items()
        for i, value in enumerate(found)
    ]
    frame = pd.DataFrame(rows)
    given: Any = (["sensors"], "violations", ["grid"], ComparisonOptions(better=better, resamples=50))  # type: ignore[arg-type]
    data = Compared(compare(frame, *given), collect(frame, *given).frame)
    uids = [f"u{i}" for i in range(len(frame))]
    runs = frame.assign(row=range(len(frame)), uid=uids, run=uids, status="finished")
    runs = runs[["row", "repetition", "uid", "run", "status", "violations"]]
    made = replace(made_up(), sensitivity=made_up().sensitivity.iloc[:0], comparisons=(data,), learning=())
    return replace(made, runs=runs)


def comparison_of(data: ReportData) -> str:
    page = render(data)["index.html"]
    return page[page.index(">Comparison<") :]


def test_a_constant_outcome_has_no_winner() -> None:
    data = of_runs({level: {"s": [36.0] * 10, "t": [36.0] * 10} for level in ("vanilla", "in turns")})
    # not even the analysis of what it depends on is asked
    data = replace(data, sensitivity=made_up().sensitivity)
    assert sentences(data) == [
        "All 40 runs gave the same violations, 36: there is nothing to compare or explain."
    ]
    section = comparison_of(data)
    assert "All 40 runs gave 36; there is nothing to draw." in section
    assert "comparison-0-violations-iqm" not in section
    assert count_tests(data) is None


def test_levels_that_tie_share_the_first_place() -> None:
    draw = np.random.default_rng(1).normal(size=12)
    data = of_runs({"a": {"s": [*draw]}, "b": {"s": [*draw]}, "c": {"s": [*(draw - 9)]}})
    told = sentences(data)
    assert told[0].startswith(
        "Among the levels of sensors, a and b share the best interquartile mean of violations: "
    )
    assert "No test, because their runs gave identical values: a and b." in told
    assert not any("a is better than b" in text or "a less b" in text for text in told)
    assert "a less b" not in comparison_of(data), "nothing is drawn of a difference that is none"
    two = of_runs({"a": {"s": [1.0, 2.0, 3.0]}, "b": {"s": [3.0, 1.0, 2.0]}})
    assert sentences(two)[0] == (
        "All 2 levels of sensors have the same interquartile mean of violations: 2. None of them is ahead."
    )


def test_a_level_with_one_value_has_no_interval_and_no_zoomed_axis() -> None:
    data = of_runs({"a": {"s": [389.0] * 12}, "b": {"s": [400.0] * 12}})
    assert sentences(data)[0] == (
        "Among the levels of sensors, b has the best interquartile mean of violations: 400 in all 12 runs of 12 seeds."
    )
    section = comparison_of(data)
    picture = section[section.index('id="comparison-0-violations-iqm"') :]
    picture = picture[: picture.index("</svg>")]
    assert ">0</text>" in picture and "389 (" not in picture
    assert "A level without an interval gave one value in all runs." in section


def test_lost_runs_may_decide_which_level_is_best_in_a_setting() -> None:
    """In s, q has one run, 5, and r a mean of 4.75; with the lost ones at 4.6, q has 4.7."""
    nan = math.nan
    values = {
        "q": {"s": [5.0, nan, nan, nan], "t": [5.0, nan, 5.2, 5.1]},
        "r": {"s": [4.6, 4.7, 4.8, 4.9], "t": [4.0, 4.5, 4.2, 4.1]},
    }
    (data,) = of_runs(values).comparisons
    assert data.by_setting()["best"].tolist() == ["(lost runs decide)", "q"]
    assert data.best_by_setting("q") == {"grid=t": "q"}


def test_levels_with_runs_in_unequal_settings_are_not_ranked() -> None:
    draw = np.random.default_rng(1)
    grids = {grid: list(draw.normal(size=10)) for grid in ("s", "t", "u")}
    data = of_runs({"a": grids, "b": {"s": list(draw.normal(size=10)), "v": [90.0 + i for i in range(10)]}})
    told = sentences(data)
    assert not any("has the best" in text for text in told)
    assert told[0] == (
        "The levels of sensors have runs in unequal settings, and 1 of 4 is common to all: their "
        "interquartile means of violations are not comparable, so none is called the best. Pairs are compared in the "
        "settings that both have."
    )
    assert any("settings with runs: a 3, b 2" in text for text in told)
    assert "a (3 of 4 settings)" in comparison_of(data)


def test_levels_without_a_common_setting_are_called_so() -> None:
    draw = np.random.default_rng(1)
    grids = {level: {f"{level}{i}": list(draw.normal(size=3)) for i in range(5)} for level in "ab"}
    first = sentences(of_runs(grids))[0]
    assert "has the best interquartile mean" in first
    assert first.endswith("of 3 seeds, though each level was run in its own settings.")


def test_of_one_seed_there_is_no_verdict() -> None:
    told = sentences(of_runs({"a": {g: [1.0] for g in "stuvwxyz"}, "b": {g: [2.0] for g in "stuvwxyz"}}))
    assert any(
        text.startswith(
            "No test, because one seed cannot separate the effect of a level from that of the seed: a minus b"
        )
        for text in told
    )
    assert not any("is better than" in text for text in told)


def test_the_only_level_with_runs_is_not_the_first_of_several() -> None:
    nothing = [float("nan")] * 3
    told = sentences(of_runs({"a": {"s": [1.0, 2.0, 4.0]}, "b": {"s": nothing}}))
    assert told[1].startswith(
        "Among the levels of sensors, only a has runs: interquartile mean of violations 2."
    )
    assert not any("has the best" in text or "what was lost decides" in text for text in told)
    assert any("no run of b is left" in text for text in told)


def test_one_run_is_not_all_runs_that_gave_the_same() -> None:
    told = sentences(of_runs({"a": {"s": [1.5, float("nan")]}, "b": {"s": [float("nan")] * 2}}))
    assert not any("gave the same" in text for text in told)
    assert any(text.endswith("violations 1.5 over 1 run of 1 seed.") for text in told)


def test_runs_that_are_identical_are_counted_alike_where_all_are_constant() -> None:
    data = of_runs({level: {"s": [36.0] * 4} for level in ("a", "b")})
    data = replace(data, runs=data.runs.assign(run=["u", "u", "v", "w"] * 2))
    assert sentences(data)[0].startswith("All 8 runs (3 executed) gave the same violations, 36:")


def test_what_is_not_finite_is_in_no_number_of_the_report() -> None:
    data = of_runs({"a": {"s": [1.0, 2.0, float("inf")]}, "b": {"s": [3.0, float("-inf"), 6.0]}})
    summary = pd.read_csv(io.StringIO(render(data)["summary-violations.csv"]), index_col=0)["value"]
    assert summary["runs"] == 4
    assert (summary["mean"], summary["maximum"]) == (3.0, 6.0)
    data = replace(data, comparisons=())
    assert sentences(data)[0].startswith("violations lies between 1 and 6, with a mean of 3 over 4 runs of ")


def test_of_one_row_there_is_no_verdict() -> None:
    """One level has one row of three seeds left: it is the row that may have done it good."""
    draw = np.random.default_rng(1)
    grids = {f"b{i}": list(draw.normal(size=3)) for i in range(5)}
    told = sentences(of_runs({"a": {"a0": list(draw.normal(size=3))}, "b": grids}))
    assert any(
        text.startswith("No test, because one row cannot separate the effect of a level") for text in told
    )
    assert not any("one seed" in text for text in told)


def test_settings_in_which_levels_tie_are_told() -> None:
    data = of_runs({"a": {"s": [1.0, 2.0], "t": [5.0, 6.0]}, "b": {"s": [2.0, 1.0], "t": [1.0, 2.0]}})
    assert "(tie)" in data.comparisons[0].by_setting()["best"].tolist()
    assert (
        "No other level has a better mean in any of the 2 settings in which it can be compared; in 1 of them, "
        "another has the same."
    ) in sentences(data)


def changed(**changes: Any) -> ReportData:
    """Return the study with another comparison."""
    data = made_up()
    (one,) = data.comparisons
    return replace(data, comparisons=(replace(one, comparison=replace(one.comparison, **changes)),))


def test_names_are_text_wherever_they_stand() -> None:
    data = made_up(evil=EVIL, outcome=f'"{EVIL}')
    spec = replace(data.spec, uid=EVIL, constraints=(EVIL,))
    told = data.comparisons[0].comparison
    frames: Any = {
        name: getattr(told, name).replace({"few": EVIL}) for name in ("levels", "pairs", "profiles")
    }
    cells = told.cells.replace({"few": EVIL, "grid=a": EVIL})
    told = replace(told, by=(EVIL,), cells=cells, **frames, warnings=(EVIL,), notes=(EVIL,))
    comparison = Compared(told, data.comparisons[0].runs.replace({"few": EVIL, "grid=a": EVIL}))
    learning = replace(data.learning[0], title=EVIL, note=EVIL)
    learning = replace(learning, lines=learning.lines.assign(level=EVIL))
    texts: Any = dict.fromkeys(("warnings", "notes", "commands"), (EVIL,))
    data = replace(
        data,
        spec=spec,
        comparisons=(comparison,),
        learning=(learning,),
        versions={EVIL: EVIL},
        sizes={EVIL: EVIL},
        remarks={(data.outcomes[0], "sobol"): (EVIL,)},
        refused={(data.outcomes[0], "morris"): EVIL},
        **texts,
    )
    files = render(data)
    found = Reader(files["index.html"])
    assert not set(found.elements) & {"img"}
    assert found.elements["script"] == 1, "that of the page itself"
    assert not {name for name in found.attributes if name.startswith("on") or name == "src"}
    assert found.text.getvalue().count(EVIL) > 30
    assert all(re.fullmatch(r"[a-z0-9-]+\.(csv|html)|report\.json|references\.bib", name) for name in files)
    policy = re.search(r"script-src '(sha256-[^']+)'", files["index.html"])
    script = re.search(r"<script>(.*?)</script>", files["index.html"], re.DOTALL)
    assert policy is not None and script is not None
    digest = b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert policy[1] == f"sha256-{digest}", "no other script may be executed"
    assert EVIL in set(pd.read_csv(io.StringIO(files["factors.csv"]))["factor"])


def test_figures_are_well_formed_whatever_the_names() -> None:
    """XML knows no control characters and no single surrogates."""
    # (pandas 3 has no text with single surrogates)
    single = "\ud800" if pd.Series(["text"]).dtype == object else ""
    page = render(made_up(evil=f"a\x00\x0b{single}\u202e\U0001f600 ]]> <!--"))["index.html"]
    figures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(figures) > 10
    for figure in figures:
        ElementTree.fromstring(figure)
    page.encode()


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    first, second = render(made_up()), render(made_up())
    assert first == second
    page = write_report(made_up(), tmp_path / "report")
    times = {path: path.stat().st_mtime_ns for path in page.parent.iterdir()}
    write_report(made_up(), tmp_path / "report")
    assert {path: path.stat().st_mtime_ns for path in page.parent.iterdir()} == times


def test_files_hold_all_digits(tmp_path: Path) -> None:
    data = made_up()
    folder = write_report(data, tmp_path).parent
    runs = pd.read_csv(folder / "runs.csv", dtype=str)
    np.testing.assert_array_equal(runs["violations"].astype(float), data.runs["violations"])
    assert runs["gain"].astype(float).tolist() == [data.values[row]["gain"] for row in data.runs["row"]]
    written = pd.read_csv(folder / "sensitivity-violations-sobol.csv", index_col="factor")
    frame = indices(list(written.index), "violations")
    assert written.loc["gain", ["S1", "S1 low", "ST high"]].tolist() == pytest.approx([0.61, 0.56, 0.73])
    assert len(frame[frame["method"] == "sobol"]) == 3 * len(written) + 6


def test_ten_thousand_runs_stay_small() -> None:
    files = render(made_up(rows=10_000, repetitions=1))
    assert len(files["index.html"]) < 1_000_000
    assert "All 9,500 rows are shown as cells" in files["index.html"]
    assert len(files["runs.csv"].splitlines()) == 10_001


def test_an_earlier_report_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "report"
    write_report(made_up(), folder)
    (folder / "mine.csv").write_text("mine")
    assert (folder / "learning-0.csv").exists()
    write_report(replace(made_up(), learning=()), folder)
    assert not (folder / "learning-0.csv").exists()
    assert (folder / "mine.csv").read_text() == "mine"
    assert not list(folder.glob(".*"))


def test_another_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(StoreError, match="holds no report: name another directory"):
        write_report(made_up(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(StoreError, match=r"cannot write the report into .*thesis"):
        write_report(made_up(), tmp_path / "thesis.tex" / "report")


@given(st.lists(FINITE, min_size=1, max_size=20), st.booleans())
def test_axes_hold_all_values_and_name_them_truly(values: list[float], zero: bool) -> None:
    low, high = limits(values, zero=zero)
    assert low <= min(values) and max(values) <= high and low < high
    if zero:
        assert low <= 0 <= high
    places, texts, exponent = ticks(low, high)
    assert 1 <= len(places) <= 7
    for place, text in zip(places, texts, strict=True):
        shown = float(text.replace(",", "").replace("\N{MINUS SIGN}", "-")) * 10.0**exponent
        assert abs(shown - place) < 0.01 * (high - low)


def test_numbers_of_an_axis_differ() -> None:
    for low, high in ((1000.001, 1000.005), (89.39, 89.425), (-2e-9, 3e-9), (0.0, 1.0)):
        _, texts, _ = ticks(low, high)
        assert len(set(texts)) == len(texts) >= 3


@given(st.floats(1e-9, 1e9), st.floats(1.001, 1e9))
def test_logarithmic_axes(low: float, factor: float) -> None:
    places, texts = log_ticks(low, low * factor)
    assert len(places) == len(texts) > 0
    assert all(low * (1 - 1e-6) <= place <= low * factor * (1 + 1e-6) for place in places)


@pytest.mark.parametrize(
    ("marks", "unit", "cells"),
    [
        # one unit and one number of decimals, by the width of the intervals
        (
            [Mark(6.88e-05, -3.11e-05, 1.69e-04), Mark(-2e-05, -1e-4, 6e-5)],
            "\u00d710\u207b\u00b3",
            ["0.07 (\u22120.03 to 0.17)", "\u22120.02 (\u22120.10 to 0.06)"],
        ),
        ([Mark(0.5), Mark(0.25), Mark(math.nan)], "", ["0.50", "0.25", ""]),
        ([Mark(12_000.0), Mark(7.0)], "", ["12,000", "7"]),
        ([Mark(2.5e6 + 0.5), Mark(1.25e6)], "\u00d710\u2076", ["2.50", "1.25"]),
        ([Mark(-0.0001), Mark(0.3, 0.2, 0.4)], "", ["0.0", "0.3 (0.2 to 0.4)"]),
        # what is next to nothing beside the largest is shown so
        ([Mark(0.539213), Mark(6.62e-6)], "", ["0.53921", "0.00001"]),
    ],
)
def test_a_column_has_one_unit(marks: list[Mark], unit: str, cells: list[str]) -> None:
    found = column(marks)
    assert (found.unit, list(found.cells)) == (unit, cells)


@given(st.lists(FINITE, min_size=1, max_size=10))
def test_columns_keep_their_values(values: list[float]) -> None:
    found = column([Mark(value) for value in values])
    largest = max(map(abs, values))
    for text, value in zip(found.cells, values, strict=True):
        digits, _, power = text.replace(",", "").replace("\N{MINUS SIGN}", "-").partition("\u00d710")
        exponent = (
            int(power.translate(str.maketrans("\u207b⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")) or 0) + found.exponent
        )
        assert float(digits) * 10.0**exponent == pytest.approx(value, rel=6e-3, abs=6e-4 * largest)


@given(st.floats(-1e300, 1e300))
def test_numbers_keep_four_digits(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=5.1e-4, abs=0)


@given(st.lists(st.text(), min_size=2, max_size=5, unique=True))
def test_names_of_files_are_safe_and_different(texts: list[str]) -> None:
    names = [slug(text) for text in texts]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9_-]+", name) and not name.startswith("-") for name in names)


def test_the_best_setting_has_its_interval_and_its_command() -> None:
    """Row 2 has the lowest mean; Student's interval of 1, 2 and 3 at 95 % is 2 \u00b1 4.303 / sqrt(3)."""
    data = made_up(rows=4, repetitions=3)
    values = [5.0, 6.0, 7.0, 4.0, math.nan, 4.0, 1.0, 2.0, 3.0, 9.0, 9.0, 9.0]
    runs = data.runs.assign(violations=values, status="finished")
    files = {uid: f"runs/{uid}.yml" for uid in runs["run"]}
    data = replace(data, runs=runs, documents=files, comparisons=(), learning=())
    best = best_of(data, "violations")
    assert best is not None
    assert (best.row, best.runs, best.planned, best.settings, best.ties) == (2, 3, 3, 4, 0)
    half = 4.302653 / math.sqrt(3)
    assert [best.mark.value, best.mark.low, best.mark.high] == pytest.approx(
        [2, 2 - half, 2 + half], rel=1e-6
    )
    uids = [f"runs/voltage-study-2-r{i}.yml" for i in range(3)]
    assert best.command == f"palaestrai-mosaik start {' '.join(uids)}"
    page = render(data)["index.html"]
    assert f"<pre>{best.command}</pre>" in page
    assert "mean of 3 runs with Student's 95 % confidence interval" in page
    assert any(
        text.startswith("The best setting was chosen from 4 settings") for text in cautions(page).values()
    )
    # a higher outcome is better: the row with nines, which has no interval, because all are equal
    (spec,) = data.spec.outcomes
    higher = replace(data, spec=replace(data.spec, outcomes=(replace(spec, better="higher"),)))
    best = best_of(higher, "violations")
    assert best is not None and best.row == 3 and not best.mark.spread
    assert "in all 3 runs" in render(higher)["index.html"]
    # of equal rows, none is the best
    same = replace(data, runs=data.runs.assign(violations=3.0))
    assert best_of(same, "violations") is None
    page = render(same)["index.html"]
    assert "violations-runs" not in page and "Best setting" not in page
    # nobody says which is better
    unsaid = replace(data, spec=replace(data.spec, outcomes=(replace(spec, better=None),)))
    assert best_of(unsaid, "violations") is None
    assert "so no setting is called the best" in plain(Markup(render(unsaid)["index.html"]))


def test_a_setting_that_failed_often_is_not_the_best() -> None:
    """Row 0 is worse by one than the others on each seed, and finished on the two best seeds only."""
    data = made_up(rows=3, repetitions=10)
    seeds = np.random.default_rng(5).normal(scale=3, size=10)
    values = np.array([seeds + 1, seeds, seeds + 0.1])
    values[0, np.argsort(seeds)[2:]] = math.nan
    data = replace(data, runs=data.runs.assign(violations=values.ravel(), status="finished"))
    data = replace(data, comparisons=(), learning=())
    best = best_of(data, "violations")
    assert best is not None
    assert (best.row, best.certain, best.runs, best.passed_over) == (1, True, 10, (1, 8, 10))
    page = plain(Markup(render(data)["index.html"]))
    assert "ranks behind, because it lost 8 of 10 runs" in page
    # all lost some, which could change the order
    values[1, 0] = values[2, 1] = math.nan
    data = replace(data, runs=data.runs.assign(violations=values.ravel()))
    best = best_of(data, "violations")
    assert best is not None and not best.certain
    files = render(data)
    page = plain(Markup(files["index.html"]))
    assert (
        "No setting is recommended for violations: all of them lost runs" in page
        and "Best setting" not in page
    )
    told = json.loads(files["report.json"])["outcomes"][0]["best"]
    assert (told["recommended"], told["runs"], told["planned"]) == (False, 9, 10)


def test_no_value_of_an_uncertain_factor_is_recommended() -> None:
    """Control b is the best under a weak attack, a on average (lower is better)."""
    levels = {"levels": (0, 1), "weights": (0.5, 0.5)}
    control = Factor("control", "levels", path="a.control", labels=("a", "b"), **levels)
    attack = Factor("attack", "levels", path="a.attack", labels=("weak", "strong"), uncertain=True, **levels)
    data = made_up(rows=4, repetitions=2)
    runs = data.runs.assign(violations=[2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 8.0, 10.0], status="finished")
    spec = replace(data.spec, axes=(Axis("control", (control,)), Axis("attack", (attack,))))
    values = [{"control": i, "attack": j} for i in (0, 1) for j in (0, 1)]
    data = replace(
        data,
        **{"spec": spec, "values": values, "runs": runs, "comparisons": (), "learning": ()},
        sensitivity=data.sensitivity.iloc[:0],
    )
    best = best_of(data, "violations")
    assert best is not None
    assert (best.row, best.values, best.over, best.settings) == (0, {"control": "a"}, ("attack",), 2)
    # the means of the two seeds are 3 and 4
    assert (best.mark.value, best.runs, best.planned) == (3.5, 4, 4)
    half = 12.7062047 * math.sqrt(0.5) / math.sqrt(2)
    assert best.mark.high == pytest.approx(3.5 + half, rel=1e-6)
    files = render(data)
    assert "over all values of attack" in plain(Markup(files["index.html"]))
    assert json.loads(files["report.json"])["outcomes"][0]["best"]["values"] == {"control": 0}
    # what each was run with differs
    data = replace(data, values=[values[0], values[0], values[2], values[3]])
    assert best_of(data, "violations") is None
    assert "No setting is recommended for violations: attack is uncertain" in plain(
        Markup(render(data)["index.html"])
    )


def test_of_one_run_there_is_no_interval() -> None:
    data = made_up(rows=8, repetitions=1)
    data = replace(
        data, spec=replace(data.spec, axes=data.spec.axes[3:]), sensitivity=data.sensitivity.iloc[:0]
    )
    assert "one run, so there is no interval" in render(data)["index.html"]


def test_rows_that_share_their_runs_are_one_setting() -> None:
    """A factor that is inactive, or a block that repeats a point: the same runs, in several rows."""
    data = made_up(rows=4, repetitions=2)
    runs = data.runs.assign(violations=[1.0, 2.0, 1.0, 2.0, 5.0, 6.0, 2.0, 1.0], status="finished")
    runs.loc[2:3, "run"] = runs.loc[0:1, "run"].to_numpy()
    data = replace(data, runs=runs, comparisons=(), learning=())
    best = best_of(data, "violations")
    assert best is not None
    assert (best.row, best.settings, best.ties, best.runs) == (0, 3, 1, 2), "row 3 ties, row 1 is the same"
    page = render(data)["index.html"]
    assert "1 other setting has the same mean" in page
    assert "All 6 runs with a value are drawn." in plain(Markup(page)), "a run is one line"


def test_levels_of_the_best_setting_are_called_by_their_labels() -> None:
    """Levels that are zipped vary as one, and stand once."""
    data = made_up(rows=3, repetitions=1)
    levels = {"levels": (0, 1, 2), "labels": ("off", "droop", "learned"), "weights": (1 / 3,) * 3}
    mode, sensors, gain = (
        Factor("mode", "levels", path="a.mode", **levels),
        Factor("sensors", "levels", path="a.sensors", **levels),
        Factor("gain", "float", path="a.gain", low=0, high=1),
    )
    axes = (Axis("control", (mode, sensors)), Axis("gain", (gain,)))
    values = [{"mode": i, "sensors": i, "gain": 1e-5 * (i + 1)} for i in (1, 0, 2)]
    runs = data.runs.assign(violations=[1.0, 2.0, 3.0], status="finished")
    spec = replace(data.spec, axes=axes)
    data = replace(
        data, spec=spec, values=values, runs=runs, comparisons=(), sensitivity=data.sensitivity.iloc[:0]
    )
    best = best_of(data, "violations")
    assert best is not None
    assert best.values == {"control": "droop", "gain": "2\u00d710\u207b\u2075"}
    files = render(data)
    assert json.loads(files["report.json"])["outcomes"][0]["best"]["values"] == values[0]
    titles = re.findall(r"violations against (\w+)</title>", files["index.html"])
    assert list(dict.fromkeys(titles)) == ["control", "gain"]


def test_a_method_that_gave_nothing_does_not_answer() -> None:
    """RBD-FAST needs more rows than there are, PAWN has an answer."""
    data = only("pawn", [("median", "gain", 0.4, math.nan), ("median", "sensors", 0.1, math.nan)])
    refused = only("rbd_fast", [("S1", "gain", math.nan, math.nan), ("S1", "sensors", math.nan, math.nan)])
    both = pd.concat([refused.sensitivity, data.sensitivity])
    why = {("violations", "rbd_fast"): "40 rows are too few"}
    data = replace(data, sensitivity=both, refused=why)
    assert sentences(data)[0] == (
        "gain matters most to violations: 0.4, the median Kolmogorov-Smirnov distance between the distributions of all "
        "rows and of those with the factor fixed, from 0 (no effect) to 1; then sensors 0.1."
    )
    page = render(data)["index.html"]
    assert ">PAWN: median</" in page
    assert "violations by rbd_fast: 40 rows are too few." in cautions(page).values()


def test_effects_that_may_be_noise_are_told_so_first() -> None:
    rows = [("eta2", "gain", 0.02, math.nan), ("eta2", "sensors", 0.01, math.nan)]
    tests = [("p_adjusted", "gain", 0.3, math.nan), ("p_adjusted", "sensors", 0.5, math.nan)]
    data = only("anova", [*rows, *tests])
    assert sentences(data)[0] == (
        "Noise alone could explain all effects on violations (p above 0.05, corrected for the number of factors). "
        "gain has the largest share of the variance (eta2), 0.02."
    )
    assert str(answer(data, "violations").sentence) == f"{sentences(data)[0][:-1]}; from 60 runs of 1 seed."


def test_small_numbers_of_a_sentence_have_one_unit() -> None:
    data = only("morris", [("mu_star", "gain", 1.37e-4, 1.02e-4), ("mu_star", "sensors", 6.6e-5, 4.7e-5)])
    assert sentences(data)[0] == (
        "gain has the largest effect on violations: across its range, a mean change of 0.14 (0.03 to 0.24) "
        "\u00d710\u207b\u00b3; then sensors 0.07 (0.02 to 0.11) \u00d710\u207b\u00b3."
    )
    assert str(Mark(6.88e-05, -3.11e-05, 1.69e-04)) == "0.07 (\u22120.03 to 0.17)\xa0\u00d710\u207b\u00b3"


def test_columns_that_users_have_named_mean_nothing_by_their_names() -> None:
    """Factors may be called std, p, or as the ends of an interval."""
    data = made_up(rows=4, repetitions=1)
    names = ("std", "p", "x", "x_low", "x_high", "what")
    own = tuple(Factor(name, "float", path=f"a.{name}", low=0, high=1) for name in names)
    values = [dict.fromkeys(names, 0.25 + i / 10) for i in range(4)]
    spec = replace(data.spec, axes=tuple(Axis(factor.name, (factor,)) for factor in own))
    data = replace(data, spec=spec, values=values, comparisons=(), sensitivity=data.sensitivity.iloc[:0])
    table = re.search(r'id="table-runs".*?</table>', render(data)["index.html"], re.DOTALL)
    assert table is not None
    heads = re.findall(r'data-column="([^"]+)"[^>]*><span class="head">([^<]+)<', table[0])
    assert heads == [(name, name) for name, _ in heads] and set(names) <= {name for name, _ in heads}
    assert table[0].count(">0.25<") == len(names)


def test_shares_are_drawn_on_an_axis_from_nothing_to_all() -> None:
    page = render(only("anova", [("eta2", "gain", 0.007, math.nan), ("eta2", "sensors", 0.002, math.nan)]))
    picture = re.search(r'<svg id="violations-anova-rows".*?</svg>', page["index.html"], re.DOTALL)
    assert picture is not None
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", picture[0])
    assert {"0.0", "1.0", "0.007", "0.002", "share of the variance"} <= set(texts)


def test_runs_without_a_finite_outcome_have_finished() -> None:
    data = made_up(rows=4, repetitions=1)
    runs = data.runs.assign(status="finished", violations=[1.0, math.nan, math.inf, 2.0])
    told = str(lost_runs(replace(data, runs=runs)))
    assert told == (
        "2 finished runs have no finite violations. Lost runs are left out; no value is made up for them."
    )


def test_a_caution_tells_where_it_applies() -> None:
    data = made_up()
    remarks = {("violations", "sobol"): ("gain is odd", "only few runs")}
    page = render(replace(data, remarks=remarks))["index.html"]
    places = dict(
        re.findall(r'<li id="caution-\d+">(.*?) <span class="quiet">Applies to: (.*?)</span>', page)
    )
    assert places["Only 6 repetitions of a level."] == "violations (by sensors)."
    assert places["Only few runs."] == "violations (Sobol indices)."
    assert "gain is odd." in places, "a name keeps its letters"
    assert "a note" in page and not any("note" in text for text in cautions(page).values()), (
        "it weakens nothing"
    )


def test_where_no_direction_is_better_runs_are_the_highest_and_the_lowest() -> None:
    data = made_up()
    (spec,) = data.spec.outcomes
    page = render(replace(data, spec=replace(data.spec, outcomes=(replace(spec, better=None),))))[
        "index.html"
    ]
    assert ">highest 10</text>" in page and ">best 10</text>" not in page


def test_runs_that_are_drawn_are_the_best_the_worst_and_others_by_rank() -> None:
    outcome = np.arange(1000.0)
    outcome[[3, 500]] = math.nan
    drawn = choose(outcome, -1)
    assert drawn.best.tolist() == [0, 1, 2, *range(4, 11)]
    assert drawn.worst.tolist() == [*range(990, 1000)]
    assert len(drawn.others) == MOST_RUNS and drawn.runs == 998
    assert drawn.others[0] == 11 and drawn.others[-1] == 989
    assert np.all(np.diff(drawn.others) > 0)
    few = choose(np.array([3.0, 1.0, 2.0, math.inf]), 1)
    assert (few.best.tolist(), few.others.tolist(), few.worst.tolist()) == ([0], [2], [1])


def test_every_caution_is_told_once() -> None:
    data = made_up()
    twice = ("only 6 repetitions of a level",)
    data = replace(data, remarks={("violations", "sobol"): twice, ("violations", "morris"): twice})
    page = render(data)["index.html"]
    found = cautions(page)
    assert list(found) == list(range(1, len(found) + 1))
    assert len(set(found.values())) == len(found)
    assert page.count("Only 6 repetitions of a level") == 1
    spans = re.findall(r'aria-label="cautions? (\d+)(?: to (\d+))?"', page)
    referred = {one for first, last in spans for one in range(int(first), int(last or first) + 1)}
    assert referred == set(found), "each is referred to, and what is referred to exists"


def test_the_facts_are_in_one_file_of_json() -> None:
    data = made_up()
    files = render(data)
    told = json.loads(files["report.json"])
    (outcome,) = told["outcomes"]
    assert outcome["name"] == "violations" and outcome["better"] == "lower"
    assert outcome["sentences"] == sentences(data)
    assert told["cautions"] == list(cautions(files["index.html"]).values())
    assert {f"{name}.csv" for name in told["tables"]} == {name for name in files if name.endswith(".csv")}
    for name, table in told["tables"].items():
        frame = pd.read_csv(io.StringIO(files[f"{name}.csv"]))
        assert len(table["rows"]) == len(frame)
        assert list(table["rows"][0]) == list(frame.columns)
    runs = told["tables"]["runs"]["rows"]
    lost = [run["violations"] is None for run in runs]
    assert lost == data.runs["violations"].isna().tolist() and any(lost)


def test_runs_lead_to_the_files_that_exist(tmp_path: Path) -> None:
    data = made_up(rows=8, repetitions=1)
    files = {uid: f"runs/{uid}.yml" for uid in data.runs["run"]}
    data = replace(data, folder=tmp_path, documents=files)
    for name in ("runs/voltage-study-0-r0.yml", "jobs/voltage-study-0-r0.log", "runs/voltage-study-1-r0.yml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    theatre = tmp_path / "report" / "theatre"
    theatre.mkdir(parents=True)
    (theatre / "voltage-study-1-r0.html").write_text("")
    page = write_report(data, tmp_path / "report")
    table = re.search(r'id="table-runs".*?</table>', page.read_text(), re.DOTALL)
    assert table is not None
    rows = re.findall(r"<tr>.*?</tr>", table[0], re.DOTALL)
    links = {
        uid: re.findall(r'<a href="([^"]+)">(\w+)</a>', row)
        for row in rows
        for uid in re.findall(r">(voltage-study-\d+-r0)</td>", row)[:1]
    }
    assert links["voltage-study-0-r0"] == [
        ("../runs/voltage-study-0-r0.yml", "document"),
        ("../jobs/voltage-study-0-r0.log", "log"),
    ]
    assert links["voltage-study-1-r0"] == [
        ("../runs/voltage-study-1-r0.yml", "document"),
        ("theatre/voltage-study-1-r0.html", "theatre"),
    ]
    assert links["voltage-study-2-r0"] == []
    for address, _ in links["voltage-study-0-r0"] + links["voltage-study-1-r0"]:
        assert (page.parent / address).is_file()


def test_the_best_runs_are_the_first_rows_of_the_table() -> None:
    files = render(made_up())
    table = re.search(r'id="table-runs".*?</table>', files["index.html"], re.DOTALL)
    assert table is not None
    uids = re.findall(r"<tr><th[^>]*>[^<]*</th><td[^>]*>[^<]*</td><td>([^<]+)</td>", table[0])
    runs = pd.read_csv(io.StringIO(files["runs.csv"]))
    assert uids == runs.sort_values("violations", kind="stable")["uid"].head(100).tolist()


def test_units_and_limits_are_on_the_axes() -> None:
    data = made_up()
    (spec,) = data.spec.outcomes
    voltage = replace(spec, of="reading.grid.bus-3.vm_pu", step="max", episode="max")
    data = replace(data, spec=replace(data.spec, outcomes=(voltage,)))
    axis = outcome_axis(data, "violations")
    assert (axis.label, axis.limits) == ("violations (p.u.)", (0.95, 1.05))
    summed = replace(data, spec=replace(data.spec, outcomes=(replace(voltage, step="sum"),)))
    assert outcome_axis(summed, "violations").limits == (), "a sum has not the limits of what it is of"
    assert "violations (p.u.)</text>" in render(data)["index.html"]
    assert in_units("power (MW)", -6) == "power (\u00d710\u207b\u2076 MW)"
    assert in_units("sigma (of effects)", 3) == "sigma (of effects) (\u00d710\u00b3)", "that is no unit"
    assert in_units("loss", 3) == "loss (\u00d710\u00b3)"


def test_what_was_planned_is_the_first_sentence() -> None:
    data = made_up()
    assert str(answer(data, "violations").sentence) == (
        "gain explains 70 % (67 to 73 %) of the variance of violations, interactions included, deadband 30 % (27 to "
        "33 %) and sensors 15 % (12 to 18 %); from 54 runs (6 lost) of 2 seeds."
    )
    planned = replace(data.spec, analysis=replace(data.spec.analysis, compare=("sensors",)))
    first = answer(replace(data, spec=planned), "violations").sentence
    # better than few, but not told apart from all
    assert str(first) == (
        "Of sensors, none has the best interquartile mean of violations: 6.6 (5.8 to 7.3) over 12 runs of 6 seeds; it "
        "is better than few (p at most 0.05 after Holm's correction), and is not told apart from all."
    )


def between(values: dict[str, list[float]], better: str = "lower") -> str:
    """Return the answer of a planned comparison of these levels in one setting."""
    data = of_runs({level: {"s": found} for level, found in values.items()}, better)
    spec = replace(data.spec, analysis=replace(data.spec.analysis, compare=("sensors",)))
    return str(answer(replace(data, spec=spec), "violations").sentence)


def test_the_answer_on_two_levels_is_their_difference() -> None:
    draw = np.random.default_rng(2).normal(size=12)
    told = between({"few": [*(10 + draw)], "all": [*(7 + draw[::-1])]})
    assert re.fullmatch(
        r"all is better than few: violations is lower by [\d.]+ \([\d.]+ to [\d.]+\), \d+ % of the mean of (few|all) "
        r"\(p < 0\.001 after Holm's correction\); from 12 pairs of runs, 12 seeds of each level\.",
        told,
    )
    alike = between({"few": [*draw], "all": [*np.random.default_rng(3).normal(size=12)]})
    assert alike.startswith("Of sensors, few and all cannot be told apart in violations (p = ")
    assert "which does not make them equal: few minus all is " in alike
    assert alike.endswith("; from 12 pairs of runs, 12 seeds of each level.")


def searched(**changes: Any) -> ReportData:
    """Return a search whose best setting, of six, was confirmed with three runs."""
    data = made_up(rows=2, repetitions=1)
    best = pd.DataFrame({"setting": [1], "violations": [2.0], "violations, fresh seeds": [3.0]})
    best = best.assign(**{"violations, std": 1.0, "violations, n": 3, "violations, planned": 3})
    history = pd.DataFrame(
        {"setting": [0, 1], "runs": 1, "steps": [1, 2], "value": [4.0, 2.0], "best": [4.0, 2.0]}
    )
    states = {"complete": 2, "pruned": 4}
    found = SearchData(
        best,
        history,
        pd.DataFrame(),
        "violations",
        "lower",
        "6 settings.",
        True,
        winner=1,
        states=states,
        runs=6,
    )
    runs = data.runs.assign(violations=[4.0, 2.0], status="finished")
    nothing: dict[str, Any] = {"comparisons": (), "learning": (), "failures": None}
    values = [{"gain": 0.5}, {"gain": 2.0}]
    return replace(
        data,
        **{**nothing, "runs": runs, "values": values, "search": replace(found, **changes)},
        sensitivity=data.sensitivity.iloc[:0],
    )


def test_the_answer_of_a_search_is_its_winner() -> None:
    # Student's t for 2 degrees of freedom is 4.303, so the half is 4.303 / sqrt(3)
    told = str(answer(searched(), "violations").sentence)
    assert told == (
        "The search recommends gain = 2: violations 3.0 (0.5 to 5.5), the mean of 3 runs with seeds that the search "
        "has not used; 6 settings in 6 runs were tried, 4 of them stopped early."
    )
    lost = str(answer(searched(winner=None), "violations").sentence)
    assert lost.startswith(
        "The search recommends no setting for violations: lost runs could change which is the best"
    )
    page = render(searched())["index.html"]
    box = page[page.index('class="tiles"') : page.index("<nav")]
    assert told[:20] in plain(Markup(box)) and "2 complete, 4 stopped early" in box


def test_a_setting_drawn_from_ranges_needs_several_runs_to_be_the_best() -> None:
    """Levels are chosen, a random draw that was run once is an extreme, and an uncertain factor is not chosen."""
    data = made_up()
    assert is_choice(data.spec)
    assert not is_choice(replace(data.spec, repetitions=1))
    levels = replace(data.spec, axes=data.spec.axes[3:], repetitions=1)
    assert is_choice(levels)
    uncertain = tuple(
        replace(axis, factors=tuple(replace(factor, uncertain=True) for factor in axis.factors))
        for axis in data.spec.axes
    )
    unsure = replace(data, spec=replace(data.spec, axes=uncertain))
    assert best_of(unsure, "violations") is None
    assert "Best setting" not in render(unsure)["index.html"]


def test_means_are_drawn_only_where_a_factor_has_an_effect() -> None:
    """Of the four factors, learning_rate may be noise (p 0.6)."""
    page = render(made_up())["index.html"]
    drawn = re.findall(r"<title[^>]*>violations against (\w+)</title><desc[^>]*>([^<]*)</desc>", page)
    means = {factor for factor, text in drawn if "The mean of violations goes from" in text}
    assert {factor for factor, _ in drawn} == {"gain", "deadband", "learning_rate"}, "sensors is compared"
    assert means == {"gain", "deadband"}


def test_each_figure_of_a_comparison_is_there_once() -> None:
    page = render(made_up())["index.html"]
    pictures = set(re.findall(r'<svg id="(comparison-0-violations-[a-z]+)"', page))
    assert pictures == {f"comparison-0-violations-{name}" for name in ("iqm", "difference", "profiles")}
    assert 'id="effects"' not in page


def test_markdown_has_the_answer_the_tables_and_nothing_that_acts() -> None:
    data = made_up(evil=EVIL)
    text = render(data, format="md")["report.md"]
    assert text.splitlines()[2].startswith("**gain** explains 70 %")
    assert "<script" not in text.replace("\\<script", "") and "<img" not in text.replace("\\<img", "")
    rows = [line for line in text.splitlines() if line.startswith("| few |")]
    assert rows and rows[0].count("|") == text.splitlines()[text.splitlines().index(rows[0]) - 1].count("|")
    assert "6 of 120 runs (5.0 %) have not finished: 6 failed" in text
    assert "report.md" not in render(data)


def test_the_sources_of_the_methods_are_cited() -> None:
    files = render(made_up())
    keys = re.findall(r"^@\w+\{(\w+),", files["references.bib"], re.MULTILINE)
    assert keys == [
        *("palaestrai_mosaik", "steinbrink2019", "herman2017", "iwanaga2022", "sobol2001", "saltelli2010"),
        *("morris1991", "campolongo2007", "agarwal2021", "holm1979"),
    ]
    assert f"version = {{{__version__}}}" in files["references.bib"]
    known = dict(references._entries())
    assert {key for named in references.METHODS.values() for key in named} <= set(known)
    assert set(references.METHODS) == set(METHODS), "each method has a source"
    for entry in known.values():
        assert entry.count("{") == entry.count("}") and "title = {" in entry and "year = {" in entry


def test_the_software_is_cited_as_in_its_citation_file() -> None:
    citation = yaml.safe_load((Path(__file__).parents[3] / "CITATION.cff").read_text())
    assert citation["title"] == references.TITLE
    assert citation["authors"] == [{"name": references.AUTHOR}]
    assert citation["type"] == "software"


def test_a_pdf_needs_a_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        PalaestraiMosaikError, match=r"install Chromium or Google Chrome .*print the HTML report"
    ):
        write_report(made_up(), tmp_path / "report", "pdf")
    assert not (tmp_path / "report").exists()
    failing = tmp_path / "chromium"
    failing.write_text("#!/bin/sh\nexit 3\n")
    failing.chmod(0o755)
    with pytest.raises(PalaestraiMosaikError, match=r"does not print .* it ended with 3"):
        write_report(made_up(rows=4), tmp_path / "report", "pdf")


def test_remarks_keep_their_kind() -> None:
    remark = Remark("lost", "two runs")
    assert (remark, kind_of(remark), kind_of("two runs")) == ("two runs", "lost", "")
    assert kind_of(pickle.loads(pickle.dumps(remark))) == "lost"
    assert json.dumps([remark]) == '["two runs"]'

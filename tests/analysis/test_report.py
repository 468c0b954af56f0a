"""The report as text: sentences from numbers, names as text, the same bytes, files on disk.

What it looks like in a browser: test_report_browser.py.
"""

from __future__ import annotations

import io
import math
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reports import EVIL, compared, indices, made_up

from palaestrai_mosaik.analysis.report import ReportData, headline, render, write_report
from palaestrai_mosaik.analysis.report.markup import number, plain, slug
from palaestrai_mosaik.analysis.report.svg import label, scale
from palaestrai_mosaik.errors import StoreError

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
    return [plain(one) for one in found]


def only(method: str, rows: list[tuple[str, str, float, float]], **changes: Any) -> ReportData:
    """Return a study with these indices: index, factor, value and half of the interval."""
    frame = pd.DataFrame(
        [
            {"outcome": "violations", "method": method, "index": index, "factor": factor, "factor2": ""}
            | {"value": value, "low": value - half, "high": value + half, "used": 60, "lost": 0}
            for index, factor, value, half in rows
        ]
    )
    return replace(made_up(rows=8, repetitions=1), sensitivity=frame, comparisons=(), **changes)


def test_the_first_sentences_say_what_matters() -> None:
    assert sentences(made_up()) == [
        "gain explains 61 % (56 to 66 %) of the variance of violations on its own, "
        "70 % (67 to 73 %) with its interactions.",
        "deadband explains 20 % (15 to 25 %) on its own, 30 % (27 to 33 %) with its interactions.",
        "sensors explains 5 % (0 to 10 %) on its own, 15 % (12 to 18 %) with its interactions.",
        "learning_rate explains less than 5 %, even at the upper end of the interval.",
        "gain and deadband interact: together they explain a further 9 % (5 to 13 %).",
        "Of sensors, none has the best interquartile mean of violations: 6.6 (5.8 to 7.3) over 6 runs.",
        "none is better than few: violations is lower by 3.5 (2 to 5) (p = 0.01 after Holm's correction).",
        "all is better than few: violations is lower by 3 (1.8 to 4.2) (p = 0.02 after Holm's correction).",
        "With 6 seeds a level, take comparisons as hints: below 10, intervals are rough.",
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
            "No factor stands out: the largest ST is that of gain, 0.1 (-0.1 to 0.3), and its interval "
            "holds 0. More rows would tell more.",
        ),
        (
            "morris",
            [("mu_star", "gain", 3.0, 0.5), ("mu_star", "sensors", 1.0, 0.5)],
            "gain moves violations most: across its range by a mean of 3 (2.5 to 3.5); "
            "sensors 1 (0.5 to 1.5).",
        ),
        (
            "fast",
            [("ST", "gain", 0.7, math.nan), ("ST", "sensors", 0.3, math.nan)],
            "There are no intervals, so how sure this order is cannot be told.",
        ),
        (
            "anova",
            [
                *(("eta2", "gain", 0.7, math.nan), ("eta2", "sensors", 0.1, math.nan)),
                *(("p", "gain", 0.001, math.nan), ("p", "sensors", 0.2, math.nan)),
            ],
            "By the F test, chance alone would explain the effect of sensors (p above 0.05).",
        ),
        (
            "pawn",
            [
                *(("median", "gain", 0.4, math.nan), ("median", "sensors", 0.1, math.nan)),
                ("median", "(irrelevant)", 0.2, math.nan),
            ],
            "sensors cannot be told from a factor without any influence (at most 0.2).",
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
    assert sentences(refused) == [
        "Sobol indices: nothing can be said, constant outcome: it is 3 in all runs."
    ]
    page = render(refused)["index.html"]
    assert "Not computed: constant outcome" in page
    assert "violations-sobol-bars" not in page
    runs = nothing.runs.assign(violations=math.nan, status="missing")
    empty = replace(nothing, runs=runs, sensitivity=nothing.sensitivity.iloc[:0], learning=())
    assert sentences(empty) == ["No run has told a value of violations yet."]
    assert "8 of 8 runs (100.0 %) have not finished: 8 missing" in render(empty)["index.html"]


def test_pairs_that_do_not_differ() -> None:
    comparison = compared("sensors", "violations")
    alike = comparison.pairs.assign(p_holm=[0.3, 0.4, 0.5], favours="")
    data = replace(made_up(), comparisons=(replace(comparison, pairs=alike),))
    assert (
        "None of the 3 pairs differs by more than chance would explain (smallest p 0.3 after Holm's "
        "correction); that is no proof that they are equal."
    ) in sentences(data)


def test_pairs_whose_direction_is_not_said_or_not_clear() -> None:
    comparison = compared("sensors", "violations")
    unsaid = comparison.pairs.assign(favours="", p_holm=[1e-5, 0.2, 0.2])
    told = sentences(replace(made_up(), comparisons=(replace(comparison, pairs=unsaid),)))
    assert (
        "few and all differ: violations of the first is higher by 3 (1.8 to 4.2) "
        "(p < 0.001 after Holm's correction)."
    ) in told
    # the test's ranks favour one level, the mean the other
    against = comparison.pairs.assign(favours=["few", "", ""], p_holm=[0.01, 0.2, 0.2])
    told = sentences(replace(made_up(), comparisons=(replace(comparison, pairs=against),)))
    assert (
        "few is better than all: violations is higher by 3 (1.8 to 4.2) (p = 0.01 after Holm's "
        "correction), in ranks; its mean tells the opposite."
    ) in told


def test_names_are_text_wherever_they_stand() -> None:
    data = made_up(evil=EVIL, outcome=f'"{EVIL}')
    spec = replace(data.spec, uid=EVIL, constraints=(EVIL,))
    levels = data.comparisons[0].levels.assign(level=[EVIL, "b", "c"])
    comparison = replace(data.comparisons[0], by=(EVIL,), levels=levels, warnings=(EVIL,), notes=(EVIL,))
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
    assert not set(found.elements) & {"script", "img"}
    assert not {name for name in found.attributes if name.startswith("on") or name == "src"}
    assert found.text.getvalue().count(EVIL) > 30
    assert all(re.fullmatch(r"[a-z0-9-]+\.(csv|html)", name) for name in files)
    assert EVIL in set(pd.read_csv(io.StringIO(files["factors.csv"]))["factor"])


def test_figures_are_well_formed_whatever_the_names() -> None:
    """XML knows no control characters and no single surrogates."""
    page = render(made_up(evil="a\x00\x0b\ud800\u202e\U0001f600 ]]> <!--"))["index.html"]
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
    runs = pd.read_csv(folder / "runs.csv", float_precision="round_trip")
    np.testing.assert_array_equal(runs["violations"], data.runs["violations"])
    assert runs["gain"].tolist() == [data.values[row]["gain"] for row in data.runs["row"]]
    written = pd.read_csv(folder / "sensitivity-violations-sobol.csv", index_col="factor")
    frame = indices(list(written.index), "violations")
    assert written.loc["gain", ["S1", "S1 low", "ST high"]].tolist() == pytest.approx([0.61, 0.56, 0.73])
    assert len(frame[frame["method"] == "sobol"]) == 2 * len(written) + 6


def test_ten_thousand_runs_stay_small() -> None:
    files = render(made_up(rows=10_000, repetitions=1))
    assert len(files["index.html"]) < 1_000_000
    assert "All 9,500 rows are shown, as cells" in files["index.html"]
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
def test_scales_hold_all_values_and_name_them_truly(values: list[float], zero: bool) -> None:
    found = scale(values, 10, 300, zero=zero)
    places = found.many(values)
    assert np.all((places >= 10 - 1e-6) & (places <= 300 + 1e-6))
    ticks = found.ticks()
    assert len(ticks) <= 7
    for tick in ticks:
        shown = float(label(tick, ticks).replace(",", ""))
        assert abs(found(shown) - found(tick)) < 0.5


@given(st.floats(1e-9, 1e9), st.floats(1.001, 1e9))
def test_logarithmic_scales(low: float, factor: float) -> None:
    found = scale([low, low * factor], 10, 300, log=True)
    assert found(low) == pytest.approx(10)
    assert found(low * factor) == pytest.approx(300)
    assert all(9.9 <= found(tick) <= 300.1 for tick in found.ticks())


@given(st.floats(-1e300, 1e300))
def test_numbers_keep_four_digits(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=5.1e-4, abs=0)


@given(st.lists(st.text(), min_size=2, max_size=5, unique=True))
def test_names_of_files_are_safe_and_different(texts: list[str]) -> None:
    names = [slug(text) for text in texts]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9-]+", name) and not name.startswith("-") for name in names)

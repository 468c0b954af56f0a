"""Boxes and robustness in the view of a design: those that the commands compute, from the same functions."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser
from support.factors import function_design

from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.execution import Settings, run_folder
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.page import single_file
from palaestrai_mosaik.web.resources import Source

from .conftest import Serve

CONDITION = "y > 4.5"


def executed(folder: Path, **analysis: Any) -> Source:
    """Execute y = sobol_g(x1, x2): of a (x1 = 0.5) it is 0, of b (x1 = 1) it is |4 x2 - 2| + 1, for x2 = 0, 0.1, ..., 2.3."""
    told = function_design(
        "sobol_g",
        {
            "x1": {"levels": [0.5, 1.0], "labels": ["a", "b"]},
            "x2": {"levels": [i / 10 for i in range(24)], "ordered": True},
        },
        "factorial",
        params={"coefficients": [0.0, 1.0]},
        **{
            "uid": "asked",
            "outcomes": {"y": {"of": "reward.y", "better": "lower"}},
            "analysis": {"resamples": 50, **analysis},
        },
    )
    generated = Design.from_mapping(told).generate(folder)
    run_folder(generated, settings=Settings(executor="inline"))
    return Source(Store(generated.path / "results", read_only=True), generated)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    robust = {"by": "x1", "over": ["x2"], "satisfice": ["y <= 2"]}
    source = executed(tmp_path_factory.mktemp("asked") / "f", robustness=robust, discover=[CONDITION])
    yield source
    source.store.close()


def rows_of(browser: Browser, title: str) -> list[dict[str, str]]:
    """Return the rows of the table whose caption begins with ``title``."""
    return browser.rows(
        "[...document.querySelectorAll('.design-analysis table')]"
        f".find(e => e.caption?.textContent.startsWith('{title}'))"
    )


def test_robustness_is_that_of_the_command(asked: Source) -> None:
    found: Any = get(asked, "design/analysis")
    outcome, condition = found["robustness"]
    assert (outcome["title"], outcome["drawn"]) == ("y by x1 over x2", "regret")
    values = {row["level"]: row for row in outcome["levels"].to_dict("records")}
    # |4 x2 - 2| + 1 is at most 8.2 (x2 = 2.3), and a is 0 everywhere
    assert values["b"]["regret_max"] == pytest.approx(8.2) and values["a"]["regret_max"] == 0
    assert (condition["what"], condition["drawn"]) == ("y <= 2", "satisficing")
    shares = {row["level"]: row["satisficing"] for row in condition["levels"].to_dict("records")}
    # |4 x2 - 2| <= 1 for x2 = 0.3, ..., 0.7
    assert shares == {"a": 1, "b": pytest.approx(5 / 24)}


def test_boxes_are_those_of_the_command(asked: Source, tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    found: Any = get(asked, "design/analysis")
    (discovery,) = found["discoveries"]
    # |4 x2 - 2| > 3.5 for x2 > 1.375: ten of them
    assert discovery["title"] == f"{CONDITION} holds in 10 of 48 runs (20.8 %)"
    assert asked.folder is not None
    assert main(["analyse", str(asked.folder.path), "--output", str(tmp_path), "--quiet"]) == 0
    with (tmp_path / "discovery-boxes.csv").open(newline="") as file:
        told = list(csv.DictReader(file))
    assert [one["rule"] for one in discovery["boxes"]] == [row["rule"] for row in told]
    first = discovery["boxes"][0]
    for name in ("coverage", "density"):
        assert first[name] == pytest.approx(float(told[0][name]))
    assert first["density_low"] < first["density"] < first["density_high"] == 1
    plane = first["plane"]
    assert {plane["x"]["name"], plane["y"]["name"]} == {"x1", "x2"}
    assert int((plane["inside"] & (plane["group"] == 2)).sum()) == 10


def test_the_page_shows_boxes_and_robustness(browser: Browser, serve: Serve, asked: Source) -> None:
    pytest.importorskip("sklearn")
    browser.resize(1280, 900)
    browser.open(serve(asked))
    browser.wait("document.querySelector('h1') && document.querySelectorAll('[role=gridcell]').length")
    browser.js("[...document.querySelectorAll('button')].find(e => e.textContent === 'Analyse').click()")
    browser.wait("document.querySelectorAll('.design-analysis section').length > 3")
    found: Any = get(asked, "design/analysis")
    (discovery,) = found["discoveries"]
    text = browser.js("document.querySelector('.design-analysis').textContent")
    assert f"{CONDITION} holds in 10 of 48 runs (20.8 %)." in text
    assert "null" not in text
    boxes = rows_of(browser, "Boxes in which")
    assert [row["Rule"] for row in boxes] == [one["rule"] for one in discovery["boxes"]]
    first = discovery["boxes"][0]
    assert boxes[0]["Holds in"] == "10"
    for name in ("Coverage", "Density"):
        assert float(boxes[0][name]) == pytest.approx(first[name.lower()], abs=1e-4)
    levels = rows_of(browser, "Robustness of y by x1")
    assert {row["Level"]: row["Greatest regret"] for row in levels} == {"a": "0", "b": "8.2"}
    assert levels[0]["90 % at least"] == "0"
    assert [row["Share"] for row in rows_of(browser, "Robustness of y <= 2")] == ["1", "0.2083"]
    # a picture of each, with a frame around the box, on axes with names of levels
    chart = (
        "echarts.getInstanceByDom([...document.querySelectorAll('.design-analysis figure')]"
        f".find(e => e.querySelector('figcaption')?.textContent.startsWith('{discovery['boxes'][0]['name']}'))"
        ".querySelector('.chart')).getOption()"
    )
    assert browser.js(f"{chart}.series[0].markArea.data.length") == 1
    assert browser.js(f"{chart}.series.map(e => e.data.length)") == [38, 0, 10]
    sides = {one["name"]: one for one in (discovery["boxes"][0]["plane"][side] for side in "xy")}
    assert set(sides["x1"]["levels"]) == {"a", "b"}
    across = "x" if discovery["boxes"][0]["plane"]["x"]["name"] == "x1" else "y"
    shown = f"{chart}.{across}Axis[0]"
    labels = browser.js(f"[-1, 0, 1, 2].map({shown}.axisLabel.formatter)")
    assert labels == ["", *sides["x1"]["levels"], ""]
    assert browser.js(f"[{shown}.min, {shown}.max, {shown}.interval]") == [-1, 2, 1]
    browser.resize(390, 844)
    browser.js("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    browser.resize(1280, 900)
    assert browser.errors() == []


def test_one_file_has_them_too(browser: Browser, asked: Source, tmp_path: Path) -> None:
    paths = ("design", "design/states", "design/outcomes", "design/analysis")
    page = tmp_path / "design.html"
    page.write_text(single_file("A design", "#/design", {path: get(asked, path) for path in paths}))
    browser.open(page.as_uri())
    assert len(rows_of(browser, "Robustness of y by x1")) == 2
    assert browser.errors() == []


def test_what_cannot_be_computed_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else of the analysis is lost with it."""
    source = executed(tmp_path / "f", robustness={"by": "x1"}, discover=["y > 100"])
    found: Any = get(source, "design/analysis")
    assert len(found["robustness"]) == 1 and found["methods"]
    if found["discoveries"]:
        assert "holds in no run" in found["discoveries"][0]["refused"]
    else:  # without the extra
        assert any("no boxes: " in note and "install" in note for note in found["notes"])
    source.store.close()

"""Slices, contours, reports and the timeline of a search, against its journal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arsenai.search.searches import search_design, tuned
from support.browser import Browser

from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import ResourceError, Source

from .conftest import Serve

pytest.importorskip("optuna")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def searched(**keys: Any) -> Source:
    tuned(search_design(**keys))
    return Source(Store(Path("f") / RESULTS, read_only=True), DesignFolder.open("f"))


def journal() -> Iterator[dict[str, Any]]:
    """Yield the entries of Optuna's journal."""
    for line in Path("f/search/journal.log").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def test_slices_and_contours_are_the_settings_of_the_journal(here: Path) -> None:
    source = searched(search={"sampler": "random", "budget": {"runs": 14}})
    slices: Any = get(source, "design/search/slices")
    # entry 6 of Optuna's journal sets the state and the values of a trial
    told = {entry["trial_id"]: entry["values"] for entry in journal() if entry.get("values")}
    assert len(told) == 14 and slices["front"] is None
    (objective,) = slices["objectives"]
    assert (objective["name"], objective["better"]) == ("y", "lower")
    assert {int(n): [v] for n, v in zip(slices["number"], objective["values"], strict=True)} == told
    folder = DesignFolder.open("f")
    for factor in slices["factors"]:
        assert factor["levels"] is None and not factor["log"]
        expected = [folder.values()[n][factor["name"]] for n in slices["number"]]
        assert factor["values"].tolist() == expected
    again: Any = get(source, "design/search/slices", {"since": slices["version"]})
    assert again == {"version": slices["version"], "unchanged": True}

    contour: Any = get(source, "design/search/contour", {"x": "x1", "y": "x2"})
    x, y = (factor["values"] for factor in slices["factors"])
    assert contour["x"]["values"].tolist() == x.tolist() and contour["y"]["values"].tolist() == y.tolist()
    assert contour["values"].tolist() == objective["values"].tolist()
    grid = contour["grid"]
    assert (grid["x"][0], grid["x"][-1]) == pytest.approx((x.min(), x.max()))
    values = grid["values"].reshape(len(grid["y"]), len(grid["x"]))
    inside = values[np.isfinite(values)]
    assert 0 < len(inside) < values.size
    # values between settings are between theirs
    assert objective["values"].min() <= inside.min() and inside.max() <= objective["values"].max()


def test_a_contour_of_a_plane_is_the_plane(here: Path) -> None:
    source = searched(function="linear", search={"sampler": "random", "budget": {"runs": 12}})
    contour: Any = get(source, "design/search/contour", {"x": "x1", "y": "x2", "objective": "y"})
    grid = contour["grid"]
    across, up = np.meshgrid(grid["x"], grid["y"])
    # fit the plane to the settings, and compare the grid with it
    columns = np.column_stack(
        [contour["x"]["values"], contour["y"]["values"], np.ones(len(contour["values"]))]
    )
    plane, *_ = np.linalg.lstsq(columns, contour["values"], rcond=None)
    expected = (plane[0] * across + plane[1] * up + plane[2]).ravel()
    known = np.isfinite(grid["values"])
    assert grid["values"][known] == pytest.approx(expected[known])


def test_reports_and_times_are_those_of_the_journal(here: Path) -> None:
    source = searched(
        episodes=6,
        steps=2,
        noise=1.0,
        search={"sampler": "random", "budget": {"runs": 14}, "prune": "median"},
    )
    course: Any = get(source, "design/search/course")
    reported: dict[int, dict[int, float]] = {}
    for entry in journal():
        if "intermediate_value" in entry:
            reported.setdefault(entry["trial_id"], {})[entry["step"]] = entry["intermediate_value"]
    shown = {
        item["number"]: dict(zip(item["step"].tolist(), item["value"].tolist(), strict=True))
        for item in course["reports"]
    }
    assert shown == reported and len(shown) > 0
    states = dict(zip(course["timeline"]["number"].tolist(), course["timeline"]["state"], strict=True))
    pruned = {number for number, state in states.items() if state == "pruned"}
    assert pruned
    for item in course["reports"]:
        assert item["state"] == states[item["number"]]
        assert (len(item["step"]) < 6) == (item["number"] in pruned)
    search: Any = get(source, "design/search")
    for number in pruned:
        last = next(item for item in course["reports"] if item["number"] == number)
        assert last["value"][-1] == search["settings"]["values"][0][number]
    starts = {
        i: datetime.fromisoformat(entry["datetime_start"]).timestamp()
        for i, entry in enumerate(entry for entry in journal() if "datetime_start" in entry)
    }
    timeline = course["timeline"]
    for number, start in zip(timeline["number"].tolist(), timeline["start"].tolist(), strict=True):
        assert start == pytest.approx(starts[number], abs=1.0)
    assert (timeline["end"] >= timeline["start"]).all()
    assert get(source, "design/search/course", {"since": course["version"]}) == {
        "version": course["version"],
        "unchanged": True,
    }


def test_the_front_of_two_objectives_is_not_dominated(here: Path) -> None:
    source = searched(
        search={"sampler": "random", "budget": {"runs": 12}, "objectives": ["y", "steep"]},
        outcomes={
            "y": {"of": "reward.y", "step": "mean", "better": "lower"},
            "steep": {"of": "reward.y", "step": "mean", "better": "higher"},
        },
    )
    slices: Any = get(source, "design/search/slices")
    low, high = (item["values"] for item in slices["objectives"])
    # what is best in one is worst in the other, so no setting dominates another
    assert low.tolist() == high.tolist()
    assert slices["front"] == [int(slices["number"][i]) for i in np.argsort(low, kind="stable")]


def test_what_does_not_exist_is_refused(here: Path) -> None:
    source = searched(search={"sampler": "random", "budget": {"runs": 3}})
    for query in ({}, {"x": "x1"}, {"x": "x1", "y": "z"}, {"x": "x1", "y": "x2", "objective": "z"}):
        with pytest.raises(ResourceError, match="expected one of"):
            get(source, "design/search/contour", query)
    # three settings are too few
    answer: Any = get(source, "design/search/contour", {"x": "x1", "y": "x2"})
    assert answer["grid"] is None and len(answer["values"]) == 3


def drawn(browser: Browser, title: str) -> Any:
    """Return the series of the figure of a search whose title begins so."""
    figure = (
        "[...document.querySelectorAll('.design-search figure')]"
        f".find((one) => one.querySelector('figcaption').textContent.startsWith({title!r}))"
    )
    browser.wait(f"{figure}?.querySelector('canvas')")
    return browser.js(f"echarts.getInstanceByDom({figure}.querySelector('.chart')).getOption().series")


def check_pictures(browser: Browser, source: Source) -> None:
    """Compare the pictures of a search by x1 and x2 with their resources."""
    slices: Any = get(source, "design/search/slices")
    course: Any = get(source, "design/search/course")
    outcome = slices["objectives"][0]["values"].tolist()
    for factor in slices["factors"]:
        (points,) = drawn(browser, f"y over {factor['name']} (")
        assert points["data"] == [list(point) for point in zip(factor["values"], outcome, strict=True)]
    grid, settings = drawn(browser, "y over x1 and x2")
    contour: Any = get(source, "design/search/contour", {"x": "x1", "y": "x2"})
    assert len(grid["data"]) == np.isfinite(contour["grid"]["values"]).sum() > 0
    assert len(settings["data"]) == len(outcome)
    lines = drawn(browser, "What settings reported")
    assert [[point["value"] for point in line["data"]] for line in lines] == [
        [list(point) for point in zip(report["step"], report["value"], strict=True)]
        for report in course["reports"]
    ]
    assert {line["name"] for line in lines} == {"complete", "pruned"}
    bars = drawn(browser, "When settings were executed")
    assert sum(len(line["data"]) for line in bars) == 14


def test_the_page_draws_slices_contour_reports_and_times(
    browser: Browser, serve: Serve, here: Path, tmp_path: Path
) -> None:
    source = searched(
        episodes=6,
        steps=2,
        noise=1.0,
        search={"sampler": "random", "budget": {"runs": 14}, "prune": "median"},
    )
    browser.open(serve(source))
    check_pictures(browser, source)
    assert browser.errors() == []
    # the same in one file
    assert source.folder is not None
    browser.open(source.folder.view().save(tmp_path / "search.html").as_uri())
    check_pictures(browser, source)
    assert browser.errors() == []


def test_the_page_draws_the_front_and_analyses_importances(
    browser: Browser, serve: Serve, here: Path
) -> None:
    source = searched(
        search={"sampler": "random", "budget": {"runs": 12}, "objectives": ["y", "steep"]},
        outcomes={
            "y": {"of": "reward.y", "step": "mean", "better": "lower"},
            "steep": {"of": "reward.y", "step": "mean", "better": "higher"},
        },
    )
    browser.open(serve(source))
    slices: Any = get(source, "design/search/slices")
    others, front = drawn(browser, "Pareto front: steep over y")
    assert [point["setting"] for point in front["data"]] == slices["front"]
    assert len(others["data"]) + len(front["data"]) == 12
    browser.js("[...document.querySelectorAll('button')].find(e => e.textContent === 'Analyse').click()")
    analysis: Any = get(source, "design/analysis")
    table = "[...document.querySelectorAll('table')].find(e => e.caption?.textContent.startsWith({!r}))"
    rows = browser.rows(table.format("y: importances"))
    shares = analysis["search"]["importances"]["y"]
    assert {row["Factor"]: float(row["Importance"]) for row in rows} == pytest.approx(
        {factor: figures["share"] for factor, figures in shares.items()}, rel=1e-3
    )
    moments = browser.rows(table.format("Outcomes of the finished"))
    assert [float(row["Mean"]) for row in moments] == pytest.approx(
        [row["mean"] for row in analysis["outcomes"]], rel=1e-3
    )

"""The view of a design: states of its runs while they are executed, outcomes, selection, indices."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from arsenai.execution.folders import drive
from support.browser import Browser
from support.factors import function_design
from support.waiting import HANG

from palaestrai_mosaik.arsenai.analysis.results import Results
from palaestrai_mosaik.arsenai.design.design import Design
from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.model import INACTIVE
from palaestrai_mosaik.arsenai.execution import RunStatus, Settings, run_folder, run_states
from palaestrai_mosaik.cli.arsenai import main
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.page import single_file
from palaestrai_mosaik.web.resources import ResourceError, Source

from .conftest import Serve

PLANTED = "<script>window.planted=1</script><img src=x onerror=window.planted=1>"
_PARAMS = "schedule.p.environments.f.environment.params"
#: rows that are executed before the page is opened
_EXECUTED = range(6)


def study(folder: Path) -> DesignFolder:
    """Generate 12 rows with 2 repetitions: runs fail, outcomes are NaN, factors are inactive, zipped and named badly."""
    factors: dict[str, Any] = {
        "x1": {"low": 0.01, "high": 3.0, "dist": "loguniform"},
        "x2": {"low": -math.pi, "high": math.pi, "when": 'invalid != "unsound"'},
        "x3": {"levels": [0.5, 1.5]},
        "noise": {"levels": [0.0, 0.1]},
        "invalid": {
            "levels": [0.0, 1.0, 1e-9],
            "labels": [PLANTED, "unsound", "third"],
            "weights": [0.7, 0.1, 0.2],
        },
        "failures": {"levels": [0.0, 1.0], "labels": ["well", "fails"], "weights": [0.8, 0.2]},
    }
    outcomes = {"y": {"of": "reward.y", "better": "higher"}, "steps": {"of": "steps"}}
    told = function_design(
        "ishigami",
        factors,
        {"name": "lhs", "n": 12},
        **{"uid": "study", "repetitions": 2, "zip": {"both": ["x3", "noise"]}, "outcomes": outcomes},
    )
    (phase,) = told["base"]["schedule"]
    phase["p"]["environments"][0]["environment"]["name"] = "support.spoiled:SpoiledFunction"
    told["factors"][PLANTED] = {"path": f"{_PARAMS}.steps", "create": True, "levels": [1, 2]}
    return Design.from_mapping(told).generate(folder)


def executed(folder: DesignFolder, **more: Any) -> Source:
    run_folder(folder, settings=Settings(executor="inline"), **more)
    return Source(Store(folder.path / "results", read_only=True), folder)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """Give the study, of which the first rows are executed."""
    source = executed(study(tmp_path_factory.mktemp("begun") / "study"), rows=_EXECUTED)
    yield source
    source.store.close()


@pytest.fixture(scope="module")
def ishigami(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Source]:
    """Give an executed design whose indices are known, of which a factor is a choice to compare by."""
    limits = {"low": -math.pi, "high": math.pi}
    told = function_design(
        "ishigami",
        {"x1": dict(limits), "x2": dict(limits), "x3": dict(limits)},
        {"name": "sobol", "n": 8, "second_order": False},
        **{
            "uid": "known",
            "analysis": {"resamples": 50},
            "outcomes": {"y": {"of": "reward.y", "better": "lower"}},
        },
    )
    folder = Design.from_mapping(told).generate(tmp_path_factory.mktemp("known") / "known")
    source = executed(folder)
    yield source
    source.store.close()


def opened(browser: Browser, serve: Serve, source: Source) -> None:
    browser.resize(1280, 900)
    browser.open(serve(source))
    browser.wait("document.querySelector('h1') && document.querySelectorAll('[role=gridcell]').length")


def cells(browser: Browser) -> list[str]:
    """Return what the cells of the matrix say: ``row 0, repetition 1: failed``."""
    found: list[str] = browser.js("[...document.querySelectorAll('[role=gridcell]')].map(e => e.ariaLabel)")
    return found


def counts(source: Source) -> Counter[str]:
    assert source.folder is not None
    return Counter(str(state.status) for state in run_states(source.folder, source.store).runs)


def numbers(browser: Browser, figure: int) -> list[dict[str, str]]:
    """Open the table of a figure, and return its rows."""
    browser.js(f"document.querySelectorAll('figure details')[{figure}].open = true")
    return browser.rows(f"document.querySelectorAll('figure details')[{figure}].querySelector('table')")


def selected(browser: Browser) -> set[str]:
    """Return the uids of the runs that are listed."""
    return set(
        browser.js("[...document.querySelectorAll('.design-selected tbody a')].map(e => e.textContent)")
    )


def number(text: str) -> float:
    return math.nan if text in ("", "\u2013") else float(text.replace(",", ""))


def test_the_matrix_shows_the_states_and_changes_while_runs_end(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    source = executed(study(tmp_path / "study"), rows=_EXECUTED)
    assert source.folder is not None
    opened(browser, serve, source)
    shown = Counter(text.rpartition(": ")[2] for text in cells(browser))
    assert shown == counts(source)
    assert shown["waiting"] == 12 and shown["failed"] >= 1 and shown["finished"] >= 1
    # each cell is that of its own run
    states = {
        (one.planned.row, one.planned.repetition): one for one in run_states(source.folder, source.store).runs
    }
    assert cells(browser)[0] == f"row 0, repetition 0: {states[0, 0].status}"
    process = drive(source.folder.path)
    assert process.wait(HANG) == 1  # (some fail)
    browser.wait(
        "![...document.querySelectorAll('[role=gridcell]')].some(e => e.ariaLabel.includes('waiting'))"
    )
    after = Counter(text.rpartition(": ")[2] for text in cells(browser))
    assert after == counts(source)
    assert after["finished"] > shown["finished"]
    told = browser.js("document.querySelector('[data-tile=finished] b').textContent")
    assert told == f"{after['finished']} of 24"
    # and the outcomes of the new runs have come without a reload
    caption = f"{after['finished']} of {after['finished']} finished runs"
    browser.wait(f"document.querySelector('.design-selected caption')?.textContent.startsWith('{caption}')")
    assert browser.errors() == []
    process.communicate()
    source.store.close()


def test_cells_are_for_the_keyboard_and_lead_to_runs(browser: Browser, serve: Serve, begun: Source) -> None:
    opened(browser, serve, begun)
    assert browser.js("document.querySelectorAll('[role=gridcell][tabindex=\"0\"]').length") == 1
    browser.js("document.querySelector('[role=gridcell]').focus()")
    press = "(k => document.activeElement.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true})))('%s')"
    browser.js(press % "ArrowRight")
    assert str(browser.js("document.activeElement.ariaLabel")).startswith("row 1, repetition 0")
    browser.js(press % "ArrowDown")
    assert str(browser.js("document.activeElement.ariaLabel")).startswith("row 1, repetition 1")
    browser.js(press % "End")
    assert browser.js("document.activeElement.ariaLabel") == "row 11, repetition 1: waiting"
    browser.js(press % "Enter")
    assert "It has not run yet." in browser.js("document.querySelector('.design-detail').textContent")
    assert not browser.js("location.hash").startswith("#/run/")
    over = "document.querySelector('[data-cell=\"3\"]')"
    browser.js(f"{over}.dispatchEvent(new PointerEvent('pointerover', {{bubbles: true}}))")
    assert begun.folder is not None
    x1 = begun.folder.values()[1]["x1"]
    title = browser.js(f"{over}.title").split("\n")
    assert number(next(line for line in title if line.startswith("x1 = "))[5:]) == pytest.approx(x1, rel=1e-4)
    # runs that are filtered out are dimmed, and left out of the table
    browser.js("document.querySelector('[data-status=waiting]').click()")
    assert browser.js("document.querySelectorAll('.design-matrix .cell.out').length") == 12
    finished = next(i for i, text in enumerate(cells(browser)) if text.endswith("finished"))
    browser.js(f"document.querySelectorAll('[role=gridcell]')[{finished}].click()")
    place = cells_of(begun)[finished]
    browser.wait("location.hash.startsWith('#/run/')")
    assert browser.js("location.hash") == f"#/run/{place}"
    assert browser.errors() == []


def cells_of(source: Source) -> list[str | None]:
    """Return the instances of the cells in the order of the page: of a band, repetition after repetition."""
    assert source.folder is not None
    states = run_states(source.folder, source.store).runs
    found = {(one.planned.repetition, one.planned.row): one for one in states}
    return [found[key].instances[-1].uid if found[key].instances else None for key in sorted(found)]


def test_charts_show_the_numbers_of_the_results(browser: Browser, serve: Serve, begun: Source) -> None:
    opened(browser, serve, begun)
    browser.wait("document.querySelectorAll('figure canvas').length === 2")
    assert begun.folder is not None
    frame = Results(begun.folder, begun.store).table()
    finished = frame[frame["status"] == "finished"]
    assert finished["y"].isna().any() and finished["x2"].isna().any()  # (both are to be shown)
    drawn = finished[np.isfinite(finished["y"])]
    points = numbers(browser, 0)
    assert [row["Run"] for row in points] == list(drawn["uid"])
    for row, (_, one) in zip(points, drawn.iterrows(), strict=True):
        assert number(row["x1"]) == pytest.approx(one["x1"], rel=1e-5)
        assert number(row["y"]) == pytest.approx(one["y"], rel=1e-5)
    lines = numbers(browser, 1)
    assert [row["Run"] for row in lines] == list(finished["uid"])
    for row, (_, one) in zip(lines, finished.iterrows(), strict=True):
        assert (
            row["x2"] == "inactive"
            if one["x2"] is None
            else number(row["x2"]) == pytest.approx(one["x2"], rel=1e-5)
        )
        assert row["failures"] == "well"
        assert number(row["y"]) == pytest.approx(one["y"], rel=1e-5, nan_ok=True)
        assert number(row["steps"]) == one["steps"]
    labels = dict(zip((0.0, 1.0, 1e-9), (PLANTED, "unsound", "third"), strict=True))
    values = begun.folder.values()
    assert [row["invalid"] for row in lines] == [labels[values[r]["invalid"]] for r in finished["row"]]
    # what is drawn is what is listed: x is logarithmic, levels stand beside each other
    option = "echarts.getInstanceByDom(document.querySelectorAll('.chart')[0]).getOption()"
    assert browser.js(f"{option}.xAxis[0].type") == "log"
    assert browser.js(f"{option}.series[1].data.map(p => p.value[1])") == pytest.approx(list(drawn["y"]))
    # errors of failed runs, and nothing of what is named runs
    failed = frame[frame["status"] == "failed"]["uid"]
    errors = browser.js("[...document.querySelectorAll('.design-error')].map(e => e.textContent)")
    assert len(failed) * 2 == len(errors) and "this episode fails" in errors[0]
    assert browser.js("window.planted") is None
    assert browser.errors() == []


def test_brushes_and_inputs_select_the_same_runs(browser: Browser, serve: Serve, ishigami: Source) -> None:
    opened(browser, serve, ishigami)
    browser.wait("document.querySelectorAll('figure canvas').length === 2")
    assert ishigami.folder is not None
    frame = Results(ishigami.folder, ishigami.store).table()
    x1 = frame["x1"].astype(float)
    chart = "echarts.getInstanceByDom(document.querySelectorAll('.chart')[%d])"
    caption = "document.querySelector('.design-selected caption').textContent"

    def expect(mask: Any) -> None:
        browser.wait(f"{caption}.startsWith('{int(mask.sum())} of {len(frame)} finished runs selected')")
        assert selected(browser) == set(frame[mask]["uid"])

    # the axis of x1 in the parallel coordinates
    action = "{type: 'axisAreaSelect', parallelAxisId: 'f0', intervals: [[-1, 0.5], [2, 3]]}"
    browser.js(f"{chart % 1}.dispatchAction({action})")
    expect(x1.between(-1, 0.5) | x1.between(2, 3))
    # best first
    listed = browser.js(
        "[...document.querySelectorAll('.design-selected tbody tr')].map(r => r.lastChild.textContent)"
    )
    values = [number(text) for text in listed]
    assert values == sorted(values)
    browser.js(
        "[...document.querySelectorAll('button')].find(e => e.textContent === 'Clear the selection').click()"
    )
    browser.wait(f"{caption}.startsWith('{len(frame)} of')")
    # a rectangle in the scatter plot
    area = "{brushType: 'rect', xAxisIndex: 0, yAxisIndex: 0, coordRange: [[-2, 1], [0, 5]]}"
    browser.js(f"{chart % 0}.dispatchAction({{type: 'brush', areas: [{area}]}})")
    inside = x1.between(-2, 1) & frame["y"].between(0, 5)
    assert 0 < inside.sum() < len(frame)
    expect(inside)
    # the inputs show it, and change it
    ends = "[...document.querySelectorAll('.design-ranges input')].map(e => e.value)"
    assert browser.js(ends) == ["-2", "1", "", "", "", "", "0", "5"]
    browser.js("document.querySelector('.design-ranges').parentElement.open = true")
    change = "(e => { e.value = '%s'; e.dispatchEvent(new Event('change')); })(document.querySelectorAll('.design-ranges input')[%d])"
    browser.js(change % ("0.5", 1))
    expect(x1.between(-2, 0.5) & frame["y"].between(0, 5))
    intervals = f"{chart % 1}.getModel().getComponent('parallelAxis', 0).activeIntervals"
    assert browser.js(intervals) == [[-2, 0.5]]
    assert browser.errors() == []


def test_levels_are_selected_by_their_names(browser: Browser, serve: Serve, begun: Source) -> None:
    opened(browser, serve, begun)
    browser.wait("document.querySelectorAll('figure canvas').length === 2")
    assert begun.folder is not None
    frame = Results(begun.folder, begun.store).table()
    third = frame[(frame["status"] == "finished") & (frame["x3"].astype(float) == 1.5)]
    assert len(third) > 0
    choose = "document.querySelector('select[aria-label=\"lowest x3\"]')"
    browser.js(f"(e => {{ e.value = '1'; e.dispatchEvent(new Event('change')); }})({choose})")
    browser.wait("document.querySelector('.design-selected h3').textContent === 'Selected runs'")
    assert selected(browser) == set(third["uid"])
    assert browser.errors() == []


def test_indices_are_those_of_the_command(
    browser: Browser, serve: Serve, ishigami: Source, tmp_path: Path
) -> None:
    opened(browser, serve, ishigami)
    browser.js("[...document.querySelectorAll('button')].find(e => e.textContent === 'Analyse').click()")
    browser.wait("document.querySelectorAll('.design-analysis section figure canvas').length")
    assert ishigami.folder is not None
    assert main(["analyse", str(ishigami.folder.path), "--output", str(tmp_path)]) == 0
    with (tmp_path / "sensitivity.csv").open(newline="") as file:
        told = list(csv.DictReader(file))
    methods = list(dict.fromkeys(row["method"] for row in told))
    shown = [row for i in range(len(methods)) for row in numbers(browser, 2 + i)]
    assert [(row["Index"], row["Factor"]) for row in shown] == [(row["index"], row["factor"]) for row in told]
    for row, other in zip(shown, told, strict=True):
        for title, column in (("Value", "value"), ("Low", "low"), ("High", "high")):
            expected = float(other[column] or "nan")
            assert number(row[title]) == pytest.approx(expected, rel=1e-5, nan_ok=True)
    # why there is no comparison
    assert "no comparison: nothing to compare" in browser.js(
        "document.querySelector('.design-analysis').textContent"
    )
    assert browser.errors() == []


def test_comparisons_are_those_of_the_command(begun: Source) -> None:
    from palaestrai_mosaik.arsenai.analysis.comparison import compare_design

    found: Any = get(begun, "design/analysis")
    assert begun.folder is not None
    told = compare_design(Results(begun.folder, begun.store))
    assert [one["title"] for one in found["comparisons"]] == [one.title for one in told]
    assert found["comparisons"][0]["levels"].equals(told[0].levels)
    assert found["comparisons"][0]["pairs"].equals(told[0].pairs)
    assert found["runs"]["missing"] == 12
    assert get(begun, "design/analysis") is found  # kept as long as no more runs end


def test_it_fits_a_phone_with_names_that_do_not(browser: Browser, serve: Serve, begun: Source) -> None:
    browser.resize(390, 844)
    browser.open(serve(begun))
    browser.wait("document.querySelectorAll('figure canvas').length === 2")
    browser.js("[...document.querySelectorAll('button')].find(e => e.textContent === 'Analyse').click()")
    browser.wait("document.querySelectorAll('.design-analysis section figure canvas').length")
    browser.js("document.querySelectorAll('details').forEach(e => { e.open = true; })")
    assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    assert browser.js("window.planted") is None
    browser.resize(1280, 900)
    assert browser.errors() == []


def test_one_file_shows_the_design(browser: Browser, ishigami: Source, tmp_path: Path) -> None:
    paths = ("design", "design/states", "design/outcomes", "design/analysis")
    page = tmp_path / "design.html"
    page.write_text(single_file("A design", "#/design", {path: get(ishigami, path) for path in paths}))
    browser.open(page.as_uri())
    browser.wait("document.querySelectorAll('.design-analysis section figure canvas').length")
    assert browser.js("document.querySelectorAll('main a').length") == 0
    assert browser.errors() == []


def test_only_what_has_changed_is_sent_again(tmp_path: Path) -> None:
    source = executed(study(tmp_path / "study"), rows=[1])
    assert source.folder is not None
    first: Any = get(source, "design/states")
    assert len(first["changed"]["run"]) == 24
    since = {"since": str(first["version"])}
    assert len(get(source, "design/states", since)["changed"]["run"]) == 0  # type: ignore[index]
    outcomes: Any = get(source, "design/outcomes")
    assert get(source, "design/outcomes", {"since": str(outcomes["finished"])}) == {
        **{"finished": outcomes["finished"], "unchanged": True}
    }
    source.store.close()


def test_outcomes_that_were_read_are_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from palaestrai_mosaik.arsenai.analysis import results as module

    source = executed(study(tmp_path / "study"), rows=[1, 2])
    assert source.folder is not None
    read: list[int] = []
    take = module.take
    monkeypatch.setattr(
        module, "take", lambda store, runs, *more: read.append(len(runs)) or take(store, runs, *more)
    )
    first = Results(source.folder, source.store)
    first.outcomes()
    executed(source.folder, rows=[3]).store.close()
    fresh = first.refreshed().outcomes()
    assert read == [4, 4, 2, 2]
    assert fresh.equals(Results(source.folder, source.store).outcomes())
    source.store.close()


def test_between_two_questions_the_word_of_the_scheduler_counts(begun: Source) -> None:
    from dataclasses import replace

    from palaestrai_mosaik.arsenai.execution.cluster.scheduler import TaskState
    from palaestrai_mosaik.arsenai.execution.cluster.task_assignment import TaskAssignment
    from palaestrai_mosaik.web.data.design import _sure_or_before

    assert begun.folder is not None
    waiting = next(
        one for one in run_states(begun.folder, begun.store).runs if one.status is RunStatus.WAITING
    )
    told = replace(waiting, status=RunStatus.QUEUED, assignment=TaskAssignment(1, 0, 1, TaskState.QUEUED))
    unasked = replace(waiting, assignment=TaskAssignment(1, 0, 1, None))
    assert _sure_or_before(unasked, told).status is RunStatus.QUEUED
    assert _sure_or_before(replace(unasked, status=RunStatus.FINISHED), told).status is RunStatus.FINISHED
    assert _sure_or_before(waiting, told).status is RunStatus.WAITING  # of no submission any more


def test_a_store_without_a_design_says_so(begun: Source) -> None:
    with pytest.raises(ResourceError, match="no design is shown here"):
        get(Source(begun.store), "design")


def test_values_of_factors_are_numbers_or_numbers_of_levels(begun: Source) -> None:
    assert begun.folder is not None
    factors: Any = get(begun, "design")["factors"]  # type: ignore[index]
    assert [factor["name"] for factor in factors] == [factor.name for factor in begun.folder.spec.factors]
    for factor in factors:
        for value, row in zip(factor["values"].tolist(), begun.folder.values(), strict=True):
            inactive = row[factor["name"]] is INACTIVE
            if factor["levels"] is None:
                assert math.isnan(value) if inactive else value == row[factor["name"]]
            else:
                assert (
                    value == -1
                    if inactive
                    else begun.folder.spec.factor(factor["name"]).levels[value] == row[factor["name"]]
                )
    assert {factor["name"]: factor["zipped"] for factor in factors if factor["zipped"]} == {
        **{"x3": ["noise"], "noise": ["x3"]}
    }

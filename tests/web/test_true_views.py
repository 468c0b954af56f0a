"""Views say what happened: unfinished episodes, returns, phases of one episode, identical curves, whose objective."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from arsenai.analysis.test_true_pictures import record
from support.browser import Browser

from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.resources import Source

from .conftest import Serve
from .test_overview import choose_fold, open_view, options


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store", create=True) as opened:
        yield opened


def cells(browser: Browser) -> list[list[str]]:
    """Return the rows of the table of the objective."""
    table = "document.querySelector('.grid .card table')"
    shown: list[list[str]] = browser.js(
        f"[...{table}.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return shown


def test_phases_of_one_episode_are_a_table_and_the_choice_is_in_the_address(
    browser: Browser, serve: Serve, store: Store
) -> None:
    run = record(store, [(4,), (3,)], accumulate=True)
    open_view(browser, serve, Source(store), f"#/run/{run}")
    browser.wait("document.querySelector('.grid .card table')")
    label = " (unfinished, 3 of 4 steps)"
    assert cells(browser) == [["p0", "4", "8"], ["p1", f"3{label}", f"6{label}"]]
    assert browser.js("document.querySelector('select').value") == "sum"
    choose_fold(browser, "mean")
    browser.wait("location.hash.endsWith('/overview?fold=mean')")
    means = [["p0", "1", "2"], ["p1", f"1{label}", f"2{label}"]]
    assert cells(browser) == means
    address = browser.js("location.href")
    browser.open(address)
    browser.wait("document.querySelector('.grid .card table')")
    assert cells(browser) == means
    assert browser.errors() == []


def test_an_unfinished_episode_is_open_in_the_colour_of_its_agent(
    browser: Browser, serve: Serve, store: Store
) -> None:
    run = record(store, [(4, 4), (3,)])
    open_view(browser, serve, Source(store), f"#/run/{run}")
    series = {line["name"]: line for line in options(browser, "Objective")["series"]}
    assert list(series) == ["a", "b", "a (unfinished)", "b (unfinished)"]
    for agent, mean in (("a", 1), ("b", 2)):
        hollow = series[f"{agent} (unfinished)"]
        assert hollow["symbol"] == "emptyCircle" and hollow["data"] == [[2, mean]]
        assert hollow["itemStyle"]["color"] == series[agent]["itemStyle"]["color"]
    assert series["a"]["itemStyle"]["color"] != series["b"]["itemStyle"]["color"]


def test_identical_runs_are_counted_with_their_return(browser: Browser, serve: Serve, store: Store) -> None:
    runs = [record(store, [(4, 4)], accumulate=True, uid=uid) for uid in ("r", "s", "t")]
    open_view(browser, serve, Source(store), f"#/compare/{','.join(runs)}")
    series = options(browser, "Objective")["series"]
    assert [line["name"].split(":")[0] for line in series] == ["3 identical", "3 identical"]
    assert [[y for _, y in line["data"]] for line in series] == [[4, 4], [8, 8]]
    assert browser.js("document.querySelector('select').value") == "sum"


def test_the_list_says_whose_objective_it_shows(browser: Browser, serve: Serve, store: Store) -> None:
    record(store, [(4, 4)], accumulate=True)
    open_view(browser, serve, Source(store), "#/runs")
    row = "document.querySelector('table.window tbody tr[aria-rowindex]')"
    browser.wait(row)
    shown = browser.js(f"[...{row}.cells].map((cell) => cell.textContent.trim())")
    assert shown[shown.index("return of a") - 1] == "4"

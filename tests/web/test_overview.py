"""The overview of a run and the comparison of several, as a browser shows them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.browser import Browser
from support.small_grid import small_grid_document

import palaestrai_mosaik as pm
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.resources import ResourceError, Source

from .conftest import Serve


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("store")
    for seed in (1, 2):
        pm.run("scenarios/dummy.yml", store=folder, quiet=True, overrides={"seed": seed})
    return Source(Store(folder, read_only=True))


def open_view(browser: Browser, serve: Serve, source: Source, view: str) -> None:
    start = serve(source)
    browser.open(start)
    browser.open(start.split("?")[0] + view)


def choose_fold(browser: Browser, fold: str) -> None:
    """Choose the statistic of episodes in the first choice of the view."""
    browser.driver.execute_script(
        "const choice = document.querySelector('select'); choice.value = arguments[0];"
        "choice.dispatchEvent(new Event('change'))",
        fold,
    )


def rows(browser: Browser, figure: str) -> list[list[str]]:
    """Open the numbers of a figure and return them."""
    find = f"[...document.querySelectorAll('figure')].find((one) => one.querySelector('figcaption').textContent === {figure!r})"
    browser.wait(f"{find}?.querySelector('canvas')")
    browser.driver.execute_script(f"{find}.querySelector('details').open = true")
    browser.wait(f"{find}.querySelector('tbody tr')")
    found: list[list[str]] = browser.js(
        f"[...{find}.querySelectorAll('tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return found


def test_warnings_are_shown(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    entry = {"uid": "w", "name": "support.spoiled:Spoiled", "params": {"bad": 11}}
    first = {
        "environments": [{"environment": entry}],
        "agents": [{"name": "a", "muscle": "random"}],
        "phase_config": {"mode": "test", "episodes": 1},
    }
    pm.run({"uid": "w", "seed": 1, "schedule": [{"p": first}]}, store=tmp_path, quiet=True)
    open_view(browser, serve, Source(Store(tmp_path, read_only=True)), "#/run/latest")
    browser.wait("document.querySelector('.warnings li')")
    (text,) = browser.js("[...document.querySelectorAll('.warnings li')].map((one) => one.textContent)")
    assert text.startswith("phase 'p': 1 of 9 readings of sensor 'w.x' is outside of Box(")


def test_the_objective_is_that_of_the_store(browser: Browser, serve: Serve, source: Source) -> None:
    open_view(browser, serve, source, "#/run/latest")
    expected = source.store.outcomes("latest")
    expected = expected[expected["kind"] == "objective"]
    names = source.store.phases("latest").set_index("phase")["name"]
    found = {
        (phase, curve, int(episode)): (float(mean.replace("e", "e")), float(sum_))
        for phase, curve, kind, episode, mean, sum_ in rows(browser, "Objective")
        if kind == "episode"
    }
    assert len(found) == len(expected)
    for row in expected.itertuples():
        mean, total = found[names[row.phase], row.agent, row.episode]
        assert np.isclose(mean, row.mean, rtol=1e-5) and np.isclose(total, row.sum, rtol=1e-5)
    assert browser.js("[...document.querySelectorAll('.phase b')].map((one) => one.textContent)") == list(
        names
    )
    assert browser.errors() == []


def options(browser: Browser, figure: str) -> Any:
    """Return the options with which ECharts draws a figure."""
    find = f"[...document.querySelectorAll('figure')].find((one) => one.querySelector('figcaption').textContent === {figure!r})"
    browser.wait(f"{find}?.querySelector('canvas')")
    return browser.js(f"echarts.getInstanceByDom({find}.querySelector('.chart')).getOption()")


def test_no_line_hides_another_one(browser: Browser, serve: Serve, source: Source) -> None:
    """In training, both agents have the same objective: one line is wide, the other one dashed."""
    open_view(browser, serve, source, "#/run/latest")
    drawn = options(browser, "Objective")
    below, above = drawn["series"]
    assert (below["name"], above["name"]) == ("mighty_defender", "evil_attacker")
    assert below["data"][:3] == above["data"][:3]
    assert below["lineStyle"]["width"] > above["lineStyle"]["width"]
    assert (below["lineStyle"]["type"], above["lineStyle"]["type"]) == ("solid", [5, 5])
    # the only episode of the test is a point that nothing joins to others
    assert [one["data"][-1]["value"][1] for one in (below, above)] == [5, 4]
    assert above["data"][-1]["symbolSize"] == 8
    # all phases have their names, and episodes the numbers that they have within their phases
    assert [one["name"] for one in below["markLine"]["data"]] == ["train", "test"]
    assert [round(one, 3) for one in drawn["xAxis"][0]["axisLabel"]["customValues"]] == [0, 1, 2, 3]
    assert [one["type"] for one in drawn["dataZoom"]] == ["inside"], "a slider for a few points"


def test_agents_with_the_same_values_share_a_line(browser: Browser, serve: Serve, tmp_path: Path) -> None:
    document = small_grid_document()
    second = {"name": "second", "muscle": "dummy", "sensors": ["net.bus-1.vm_pu"], "actuators": []}
    document["schedule"][0]["calm"]["agents"].append(second)
    document["schedule"][0]["calm"]["phase_config"]["episodes"] = 2
    document["schedule"][1]["high"]["phase_config"] = {"episodes": 1}
    pm.run(document, store=tmp_path, quiet=True)
    with Store(tmp_path, read_only=True) as store:
        open_view(browser, serve, Source(store), "#/run/latest")
        assert [one["name"] for one in options(browser, "Reward net.r")["series"]] == [
            "2 identical: operator and second"
        ]
        assert "all episodes done (VanillaRunGovernor)" in browser.js(
            "document.querySelector('.phase').textContent"
        )
        assert "1 of 1 episode," in browser.js("[...document.querySelectorAll('.phase')].at(-1).textContent")
    assert browser.errors() == []


def test_episodes_are_a_table_with_the_newest_first(browser: Browser, serve: Serve, source: Source) -> None:
    open_view(browser, serve, source, "#/run/latest")
    browser.wait("document.querySelector('.episodes')")
    browser.driver.execute_script("document.querySelector('.episodes').open = true")
    browser.wait("document.querySelector('.episodes tbody tr[aria-rowindex]')")
    table = source.store.episodes("latest", evaluation=None)
    assert browser.js("document.querySelector('.episodes table').getAttribute('aria-rowcount')") == str(
        len(table) + 1
    )
    first: list[str] = browser.js(
        "[...document.querySelector('.episodes tr[aria-rowindex=\"2\"]').cells].map((cell) => cell.textContent)"
    )
    assert first[:2] == [str(table.iloc[-1]["phase"]), table.iloc[-1]["name"]]


def test_two_runs_are_compared(browser: Browser, serve: Serve, source: Source) -> None:
    runs = ",".join(source.store.runs()["run"])
    open_view(browser, serve, source, f"#/compare/{runs}")
    found = rows(browser, "Objective")
    assert {re.match(r"(\d): dummy, seed (\d)", row[1]).groups() for row in found} == {("1", "1"), ("2", "2")}  # type: ignore[union-attr]
    assert "seed" in browser.js("document.querySelector('main').innerText")
    assert browser.errors() == []


def test_differences_of_documents(source: Source) -> None:
    answer: Any = get(source, "compare", {"runs": ",".join(source.store.runs()["run"])})
    assert [one for one in answer["differences"] if one["path"] == "seed"] == [
        {"path": "seed", "values": [1, 2]}
    ]
    with pytest.raises(ResourceError, match="runs: expected 1 to 24 runs, found 0"):
        get(source, "compare", {})


def test_curves_are_not_sent_again_before_they_grow(source: Source) -> None:
    first: Any = get(source, "run/latest/curves")
    again: Any = get(source, "run/latest/curves", {"known": first["version"]})
    assert first["curves"] and again["curves"] is None


def test_workers_are_a_mean_with_a_band(tmp_path: Path) -> None:
    overrides = {"schedule.train.phase_config.worker": 2}
    pm.run("scenarios/dummy.yml", store=tmp_path, quiet=True, overrides=overrides)
    source = Source(Store(tmp_path, read_only=True))
    answer: Any = get(source, "run/latest/curves")
    curve = next(one for one in answer["curves"] if one["phase"] == 0 and one["kind"] == "objective")
    own = source.store.outcomes("latest", 0, curve["agent"])
    own = own[own["kind"] == "objective"].groupby("episode")["mean"]
    assert curve["mean"].tolist() == own.mean().tolist()
    assert (curve["low"].tolist(), curve["high"].tolist()) == (own.min().tolist(), own.max().tolist())


def test_a_phone_shows_the_overview(browser: Browser, serve: Serve, source: Source) -> None:
    browser.resize(390, 800)
    try:
        open_view(browser, serve, source, "#/run/latest")
        browser.wait("document.querySelector('figure canvas')")
        assert browser.js("document.documentElement.scrollWidth <= innerWidth")
    finally:
        browser.resize(1280, 900)

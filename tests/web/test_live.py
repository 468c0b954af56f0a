"""A run that goes on, as a browser shows it: values appear soon after they were recorded, and a kill is seen."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.browser import Browser
from support.clock import clock_document
from support.live_runs import running, slow_document
from support.waiting import HANG

from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.resources import Source

from .conftest import Serve

#: how many points the first line of a figure has, by its title
POINTS = """(title => { const found = [...document.querySelectorAll('figure')].find(
  one => one.querySelector('figcaption')?.textContent.startsWith(title));
  const chart = found && echarts.getInstanceByDom(found.querySelector('.chart'));
  return chart ? chart.getModel().getSeriesByIndex(0).getRawData().count() : 0; })"""
pytestmark = pytest.mark.skipif(os.name == "nt", reason="no SIGKILL")


def show(browser: Browser, start: str, view: str) -> None:
    browser.open(start)
    browser.open(start.partition("?")[0] + view)


def test_a_statistic_appears_before_an_episode_has_ended(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    with running(slow_document("endless", 1, steps=1_000_000, seconds=0.02), folder):
        source = Source(Store(folder, read_only=True))
        show(browser, serve(source), "#/run/latest")
        # the only episode is the cell of a table
        card = "[...document.querySelectorAll('.card')].find(one => one.textContent.startsWith('Statistic objective'))"
        value = f"Number({card}?.querySelector('td.number').textContent)"
        browser.wait(f"{value} > 0")
        assert source.store.episodes("latest").empty
        # the reward counts the steps, so the statistic's mean grows with each of them
        first = browser.js(value)
        later = browser.wait(f"(now => now > {first} && now)({value})")
        told = source.store.statistics("latest")["value"]
        # the page shows four digits
        assert first < later <= told.mean() * 1.001
        assert browser.errors() == []


def test_a_sensor_over_time_grows_within_the_first_part(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    with running(clock_document("clock", 1, steps=1_000_000, seconds=0.05), folder):
        store = Store(folder, read_only=True)
        show(browser, serve(Source(store)), "#/run/latest/time?panel=clock.x")
        chart = (
            "(one => one && echarts.getInstanceByDom(one)?.getModel().getSeriesByIndex(0)?.getRawData())"
            "(document.querySelector('figure .chart'))"
        )
        count = browser.wait(f"{chart}?.count()")
        count = browser.wait(f"(now => now > {count} && now)({chart}.count())")
        drawn = browser.js(f"Array.from({{length: {count}}}, (_, i) => {chart}.get('y', i))")
        recorded = store.environment_states("latest", 0, "clock")["reading.clock.x"].tolist()
        # (in the view, set-points and readings of an agent have the names of its columns)
        assert set(drawn) <= {*recorded, *store.steps("latest", 0, "a")["reading.clock.x"].tolist()}
        assert drawn == sorted(drawn)
        assert browser.errors() == []


def test_a_killed_run_is_shown_as_lost_within_ten_seconds(
    browser: Browser, serve: Serve, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    with running(clock_document("killed", 100_000, steps=5, seconds=0.02), folder) as process:
        source = Source(Store(folder, read_only=True))
        show(browser, serve(source), "#/run/latest")
        before = browser.wait(f"{POINTS}('Objective')")
        browser.wait(f"{POINTS}('Objective') > {before}")
        assert browser.js("document.querySelector('h1 .status').textContent") == "running"
        process.send_signal(signal.SIGKILL)
        process.wait(HANG)
        browser.wait("document.querySelector('h1 .status').textContent === 'lost'")
        # what it has recorded until then stays
        episodes = len(source.store.episodes("latest"))
        browser.wait(f"{POINTS}('Objective') === {episodes}")
        assert browser.errors() == []

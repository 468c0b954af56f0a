"""What views show while they load, fail, and go on: the states of their resources (static/resource.js)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.browser import Browser
from support.waiting import HANG, until

import palaestrai_mosaik as pm
import palaestrai_mosaik.web.data
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.web import actions
from palaestrai_mosaik.web.resources import resource

PROBLEM = "document.querySelector('main .problem')?.textContent"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("states") / "store"
    pm.run("scenarios/dummy.yml", store=folder, quiet=True)
    return folder


class Replaced:
    """A resource whose answers a test changes, and counts.

    Attributes:
        asked: how many requests were answered.
        change: makes an answer of the recorded one.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *path: str):
        self.asked = 0
        self.change: Callable[[Any], Any] = lambda answer: answer
        self._recorded, _ = resource.find("/".join(path))
        monkeypatch.setitem(resource._functions, path, self)

    def __call__(self, *arguments: Any) -> Any:
        answer = self.change(self._recorded(*arguments))
        self.asked += 1
        return answer


def more(replaced: Replaced, count: int) -> None:
    """Wait until the page has asked ``count`` times more."""
    before = replaced.asked
    until(lambda: replaced.asked >= before + count)


def test_the_overview_goes_on_after_a_resume(
    browser: Browser, opened: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    state: dict[str, object] = {"status": "interrupted", "error": "RunInterrupted"}
    done = {"episodes": 2}
    facts, curves = (
        Replaced(monkeypatch, "run", "{run}"),
        Replaced(monkeypatch, "run", "{run}", "curves"),
    )
    facts.change = lambda answer: {**answer, **state}
    curves.change = lambda answer: {
        **answer,
        "phases": answer["phases"].assign(episodes=80, episodes_done=done["episodes"]),
    }
    possible = {"cancel": False, "resume": True, "why": ""}
    monkeypatch.setitem(resource._functions, ("run", "{run}", "actions"), lambda *asked: possible)

    def resume(*asked: object) -> dict[str, object]:
        state.update(status="running", error=None)
        return {"done": "resumed"}

    monkeypatch.setitem(actions.registry.action._functions, ("run", "{run}", "resume"), resume)
    opened("#/run/latest")
    browser.wait("document.querySelector('.phase')?.textContent.includes('2 of 80 episodes')")
    assert browser.js(PROBLEM).startswith("RunInterrupted")
    browser.js("document.querySelector('[data-action=resume]').click()")
    browser.wait(f"({PROBLEM}) === undefined")
    for episodes in (3, 4):
        done["episodes"] = episodes
        browser.wait(f"document.querySelector('.phase')?.textContent.includes('{episodes} of 80 episodes')")
    assert browser.errors() == []


@pytest.mark.parametrize("view", ["overview", "time", "record"])
def test_a_problem_goes_when_its_cause_goes(
    browser: Browser, opened: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    causes = ["cannot read the database"]
    path = {"overview": "curves", "time": "series", "record": "record"}[view]
    answer = Replaced(monkeypatch, "run", "{run}", path)

    def change(recorded: Any) -> Any:
        if causes:
            raise StoreError(causes[0])
        return recorded

    answer.change = change
    opened(f"#/run/latest/{view}")
    assert browser.wait(PROBLEM).startswith("cannot read the database")
    causes.clear()
    browser.wait(f"({PROBLEM}) === undefined")
    browser.wait("document.querySelector('main figure, main pre.document')")
    browser.errors()


def test_what_is_finished_is_not_asked_for_again(
    browser: Browser, opened: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, curves = Replaced(monkeypatch, "run", "{run}"), Replaced(monkeypatch, "run", "{run}", "curves")
    opened("#/run/latest")
    browser.wait("document.querySelector('figure canvas')")
    asked = (facts.asked, curves.asked)
    # as long as several polls of a run that goes on
    browser.driver.execute_async_script("setTimeout(arguments[0], 5000)")
    assert (facts.asked, curves.asked) == asked


def test_controls_stay_while_a_run_is_followed(
    browser: Browser, opened: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Replaced(monkeypatch, "run", "{run}")
    facts.change = lambda answer: {**answer, "status": "running"}
    series = Replaced(monkeypatch, "run", "{run}", "series")
    opened("#/run/latest/time")
    browser.wait("document.querySelector('.time-panels canvas')")
    browser.js(
        "(window.fields = [...document.querySelectorAll('.controls input, .controls select, .controls button')])"
    )
    browser.js("(one => { one.value = 'half a pat'; one.focus(); })(document.getElementById('pattern'))")
    more(series, 3)
    assert browser.js("document.activeElement.id") == "pattern"
    assert browser.js("document.getElementById('pattern').value") == "half a pat"
    assert browser.js("window.fields.every(one => one.isConnected)")
    browser.js("document.getElementById('phase-0').focus()")
    more(series, 2)
    assert browser.js("document.activeElement.id") == "phase-0"
    assert browser.errors() == []


@pytest.mark.parametrize(
    ("view", "path", "head"),
    [
        ("#/runs", ("runs",), "Runs"),
        ("#/run/latest", ("run", "{run}", "curves"), "dummy finished"),
        ("#/run/latest/time", ("run", "{run}", "time"), "dummy finished"),
        ("#/run/latest/time", ("run", "{run}", "series"), "dummy finished"),
        ("#/run/latest/record", ("run", "{run}", "record"), "dummy finished"),
        ("#/compare/latest", ("compare",), "1 run compared"),
        ("#/documents", ("documents",), "Documents"),
    ],
)
def test_no_view_is_blank_while_it_loads(
    browser: Browser,
    opened: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    view: str,
    path: tuple[str, ...],
    head: str,
) -> None:
    ready = threading.Event()
    answer = Replaced(monkeypatch, *path)

    def change(recorded: Any) -> Any:
        ready.wait(HANG)
        return recorded

    answer.change = change
    try:
        opened(view)
        browser.wait(
            "[...document.querySelectorAll('main [role=status]')].some(one => one.textContent === 'Loading …')"
        )
        browser.wait(f"document.querySelector('h1')?.textContent === '{head}'")
    finally:
        ready.set()
    browser.wait(
        "![...document.querySelectorAll('main [role=status]')].some(one => one.textContent === 'Loading …')"
    )
    assert browser.errors() == []


@pytest.mark.parametrize(
    ("view", "title"),
    [
        ("#/runs", "Runs"),
        ("#/run/latest", "dummy · Overview"),
        ("#/run/latest/time", "dummy · Time"),
        ("#/run/latest/record", "dummy · Record"),
        ("#/compare/latest", "Comparison"),
        ("#/documents", "Documents"),
    ],
)
def test_a_tab_of_the_browser_is_named_after_its_view(
    browser: Browser, opened: Callable[[str], None], view: str, title: str
) -> None:
    opened(view)
    browser.wait(f"document.title === '{title} · palaestrai-mosaik'")


def test_one_of_a_thing_is_not_plural(browser: Browser, opened: Callable[[str], None]) -> None:
    opened("#/runs")
    browser.wait("document.querySelector('table.window .status')")
    assert browser.js("document.querySelector('main p[role=status]').textContent") == "1 run"


@pytest.mark.parametrize("address", ["#/run/%zz", "#/compare/%", "#/run/%E0%A4%A/time"])
def test_an_address_that_cannot_be_decoded_shows_the_runs(
    browser: Browser, opened: Callable[[str], None], address: str
) -> None:
    opened(address)
    browser.wait("document.querySelector('h1')?.textContent === 'Runs'")
    assert browser.errors() == []


def test_what_is_typed_stays_while_a_run_is_followed(
    browser: Browser, opened: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from selenium.webdriver.common.keys import Keys

    facts, series = Replaced(monkeypatch, "run", "{run}"), Replaced(monkeypatch, "run", "{run}", "series")
    facts.change = lambda answer: {**answer, "status": "running"}
    opened("#/run/latest/time?phases=0&episode=0")
    browser.wait("document.getElementById('episode') && document.querySelector('.time-panels canvas')")
    field = browser.driver.find_element("id", "episode")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("1")
    # a new answer draws the controls anew
    series.change = lambda answer: {**answer, "phases": [{**one, "last": 7} for one in answer["phases"]]}
    browser.wait("document.getElementById('episode').placeholder === 'last (7)'")
    assert browser.js("document.getElementById('episode').value") == "1"
    series.change = lambda answer: answer
    field.send_keys("\n")
    browser.wait("location.hash.includes('episode=1')")
    assert browser.js("document.getElementById('episode').value") == "1"
    assert browser.errors() == []

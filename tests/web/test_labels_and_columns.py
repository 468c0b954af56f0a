"""Labels in the head of a run and in the list, and columns that the reader adds to the list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from support.browser import Browser
from support.many_runs import insert_runs, objective_of, uid_of

from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.resources import Source

from .conftest import Serve

STATUS = "document.querySelector('main p[role=status]').textContent"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    insert_runs(tmp_path, 3)
    return tmp_path


def test_labels_are_set_and_filter_the_list(
    browser: Browser, opened: Callable[[str], None], folder: Path
) -> None:
    opened(f"#/run/{uid_of(1)}")
    browser.wait("document.querySelector('[data-action=label]')")
    browser.js("(document.querySelector('[data-action=label]').click(), 1)")
    browser.wait("document.querySelector('.label form')")
    fields = "document.querySelector('.label form').elements"
    for name, value in (("name", "best"), ("tags", "paper, draft"), ("note", "for figure 3")):
        browser.js(f"({fields}.{name}.value = {value!r})")
    browser.js("(document.querySelector('.label form').requestSubmit(), 1)")
    browser.wait("document.querySelector('.labels')?.textContent === 'bestdraftpaper'")
    browser.js("(location.hash = '#/runs')")
    browser.wait("document.querySelector('button.tag[value=paper]')")
    for box in (0, 1):
        browser.js(f"(document.querySelectorAll('table.window input[type=checkbox]')[{box}].click(), 1)")
    browser.wait("document.querySelector('.tagging')")
    browser.js("(document.querySelector('.tagging input').value = 'paper')")
    browser.js("(document.querySelector('.tagging').requestSubmit(), 1)")
    browser.wait("document.querySelector('button.tag[value=paper]').textContent === 'paper 2'")
    browser.js("(document.querySelector('button.tag[value=draft]').click(), 1)")
    browser.wait(f"{STATUS} === '1 of 3 runs'")
    browser.wait("location.hash === '#/runs?tag=draft'")
    with Store(folder, read_only=True) as store:
        assert store.labels(uid_of(1)) == ("best", ("draft", "paper"), "for figure 3")
        assert store.labels(uid_of(2)).tags == ("paper",)
    assert browser.errors() == []


def test_a_page_that_only_reads_has_no_form(browser: Browser, serve: Serve, folder: Path) -> None:
    with Store(folder) as store:
        store.label(uid_of(0), name="best")
    start = serve(Source(Store(folder, read_only=True)))
    browser.open(start)
    browser.open(start.split("?", maxsplit=1)[0] + f"#/run/{uid_of(0)}")
    browser.wait("document.querySelector('.labels')?.textContent === 'best'")
    assert browser.js("document.querySelector('[data-action=label]')") is None


def test_a_column_is_added_filtered_and_kept(browser: Browser, opened: Callable[[str], None]) -> None:
    values = [objective_of(number, 1, 4) for number in range(3)]
    opened("#/runs")
    browser.wait("document.querySelector('details.columns')")
    browser.js("(document.querySelector('details.columns').open = true)")
    browser.wait("document.querySelector('#run-column')")
    browser.js(
        "(one => { one.value = 'objective.defender'; one.dispatchEvent(new Event('input', {bubbles: true})); })"
        "(document.querySelector('#run-column'))"
    )
    browser.wait("document.querySelectorAll('.adding-column select').length === 2")
    browser.js("(document.querySelectorAll('.adding-column select')[1].value = 'best')")
    browser.js("(document.querySelector('.adding-column').requestSubmit(), 1)")
    mean = "objective.defender:mean:best"
    browser.wait(f"document.querySelector('[data-column=\"{mean}\"]')")
    rows = "[...document.querySelectorAll('table.window tbody tr:not(.space)')]"
    at = browser.js(
        "[...document.querySelectorAll('table.window th')].findIndex(one => one.textContent === arguments[0])",
        mean,
    )
    shown = [f"{value:.4g}" for value in reversed(values)]
    browser.wait(
        f"JSON.stringify({rows}.map(row => row.cells[{at}].textContent)) === JSON.stringify({shown})"
    )
    browser.js(
        "(one => { one.value = '> 50'; one.dispatchEvent(new Event('change', {bubbles: true})); })"
        f"(document.querySelector('[data-column=\"{mean}\"]'))"
    )
    browser.wait(f"{STATUS} === '{sum(value > 50 for value in values)} of 3 runs'")
    browser.wait(f"decodeURIComponent(location.hash) === '#/runs?column={mean}+>+50'")
    assert browser.errors() == []

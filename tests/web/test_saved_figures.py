"""Figures that are saved from the page: as pictures, and their data as comma-separated values."""

from __future__ import annotations

import csv
import io

import pytest
from support.browser import Browser

import palaestrai_mosaik as pm
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.resources import Source

from .conftest import Serve

#: keeps what the page would have the browser save
KEEP = """(() => { window.saved = []; window.blobs = [];
  HTMLAnchorElement.prototype.click = function () { window.saved.push([this.download, this.href.slice(0, 22)]); };
  URL.createObjectURL = (blob) => { window.blobs.push(blob); return 'blob:kept'; }; return true; })()"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("store")
    pm.run("scenarios/dummy.yml", store=folder, quiet=True)
    return Source(Store(folder, read_only=True))


def test_a_figure_is_saved_with_its_data(browser: Browser, serve: Serve, source: Source) -> None:
    start = serve(source)
    browser.open(start)
    browser.open(start.split("?", maxsplit=1)[0] + "#/run/latest")
    browser.wait("document.querySelector('figure canvas')")
    assert browser.js(KEEP)
    for form in ("PNG", "SVG", "CSV"):
        browser.js(f"document.querySelector('figure [aria-label=\"Save as {form}\"]').click()")
    assert browser.js("window.saved") == [
        ["Objective.png", "data:image/png;base64,"],
        ["Objective.svg", "blob:kept"],
        ["Objective.csv", "blob:kept"],
    ]
    drawing, text = (
        browser.driver.execute_async_script(f"window.blobs[{i}].text().then(arguments[0])") for i in (0, 1)
    )
    assert drawing.startswith("<svg") and "mighty_defender" in drawing
    rows = list(csv.DictReader(io.StringIO(text)))
    expected = source.store.outcomes("latest")
    expected = expected[expected["kind"] == "objective"]
    assert sorted(float(row["sum"]) for row in rows) == pytest.approx(sorted(expected["sum"]))
    assert {row["phase"] for row in rows} == {"train", "test"}
    assert browser.errors() == []


def test_a_text_is_no_formula(browser: Browser, serve: Serve, source: Source) -> None:
    browser.open(serve(source))
    browser.wait("document.querySelector('h1')")
    text = browser.driver.execute_async_script(
        'import("web/chart").then(({ csv }) => arguments[0](csv({ columns: ["=1+1", "a,b"],'
        ' rows: [["-x", -1.5], ["say \\"no\\"", NaN], ["\\u2013", 3]] })))'
    )
    assert text == '\'=1+1,"a,b"\r\n\'-x,-1.5\r\n"say ""no""",\r\n,3\r\n'

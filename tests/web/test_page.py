"""The page: served to a browser that has the token, and as one file without a network."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.browser import Browser

import palaestrai_mosaik as pm
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.web.data import get
from palaestrai_mosaik.web.page import single_file
from palaestrai_mosaik.web.resources import Query, ResourceError, Source, address

from .conftest import Serve


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("store")
    pm.run("scenarios/dummy.yml", store=folder, quiet=True)
    return Source(Store(folder, read_only=True))


def test_the_server_shows_a_run(browser: Browser, serve: Serve, source: Source) -> None:
    start = serve(source)
    browser.open(start)
    browser.open(start.split("?")[0] + "#/run/latest")
    assert browser.wait("document.querySelector('h1')?.textContent") == "dummy finished"
    assert browser.errors() == []


def test_one_file_shows_a_run_without_a_network(browser: Browser, source: Source, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    page.write_text(single_file("A run", "#/run/latest", {"run/latest": get(source, "run/latest")}))
    browser.open(page.as_uri())
    assert browser.wait("document.querySelector('h1')?.textContent") == "dummy finished"
    assert browser.errors() == []


def test_an_unknown_resource_is_refused_with_the_nearest_name(source: Source) -> None:
    with pytest.raises(ResourceError, match=r"no resource 'stor' \(did you mean 'store'\?\)"):
        get(source, "stor")


def test_numbers_of_a_query_are_checked() -> None:
    with pytest.raises(ResourceError, match="phase: expected a whole number, found 'x'"):
        Query({"phase": "x"}).integer("phase")


def test_addresses_do_not_depend_on_the_order_of_the_query() -> None:
    assert address("runs", {"b": "a b", "a": "é"}) == "runs?a=%C3%A9&b=a%20b"

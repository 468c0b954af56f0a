"""A tab whose server ends, comes back, or is replaced by another one; and messages that go when their cause goes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from support.browser import Browser

import palaestrai_mosaik as pm
from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web import actions, data
from palaestrai_mosaik.web.resources import Source, resource
from palaestrai_mosaik.web.workplace import Workplace

pytest.importorskip("uvicorn", reason="no server (extra 'web')")

NOTICE = "document.querySelector('body > .problem')?.textContent"
PROBLEM = "document.querySelector('main .problem')?.textContent"
SAID = "document.querySelector('.controls [role=status]').textContent"
TOKEN = "a" * 64


@contextmanager
def server(folder: Path, port: int = 0, token: str = TOKEN) -> Iterator[str]:
    """Serve a store at a port; give the first address."""
    from palaestrai_mosaik.web.server import listen, make_server

    location = StoreLocation(str(folder))
    listening = listen("127.0.0.1", port).with_token(token)
    assert port in (0, listening.port)
    source = Source(location, workplace=Workplace(location))
    running = make_server(source, listening.access)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening.socket]}, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    try:
        yield listening.address
    finally:
        running.should_exit = True
        thread.join()
        listening.socket.close()
        source.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pm.run("scenarios/dummy.yml", store=tmp_path / "store", quiet=True)
    return tmp_path / "store"


def port_of(address: str) -> int:
    return int(address.split("?", maxsplit=1)[0].rstrip("/").rpartition(":")[2])


def opened(browser: Browser, address: str, view: str) -> None:
    browser.open(address)
    browser.open(address.split("?", maxsplit=1)[0] + view)


def test_a_tab_goes_on_when_its_server_is_back(browser: Browser, folder: Path) -> None:
    with ExitStack() as servers:
        address = servers.enter_context(server(folder))
        opened(browser, address, "#/runs")
        browser.wait("document.querySelector('table.window .status.finished')")
        assert browser.js(NOTICE) is None
        servers.close()
        said = browser.wait(NOTICE)
        assert said == "The server has ended or cannot be reached. The page goes on when it is back."
        # another view is asked for meanwhile
        browser.js("location.hash = '#/documents'")
        # what was recorded meanwhile is shown
        pm.run("scenarios/dummy.yml", store=folder, quiet=True)
        servers.enter_context(server(folder, port_of(address)))
        browser.wait(f"({NOTICE}) === undefined")
        browser.wait("document.querySelector('textarea')")
        browser.js("location.hash = '#/runs'")
        browser.wait("document.querySelectorAll('table.window .status.finished').length === 2")
        assert browser.js("document.querySelectorAll('.problem').length") == 0
    browser.errors()


def test_a_tab_says_that_the_server_refuses_it(browser: Browser, folder: Path) -> None:
    with ExitStack() as servers:
        address = servers.enter_context(server(folder))
        opened(browser, address, "#/runs")
        browser.wait("document.querySelector('table.window .status.finished')")
        servers.close()
        servers.enter_context(server(folder, port_of(address), "b" * 64))
        browser.wait(f"({NOTICE})?.startsWith('The server at this address does not accept this page')")
        servers.close()
        browser.wait(f"({NOTICE})?.startsWith('The server has ended')")
        servers.enter_context(server(folder, port_of(address)))
        browser.wait(f"({NOTICE}) === undefined")
    browser.errors()


def test_a_tab_of_another_store_begins_anew(browser: Browser, folder: Path, tmp_path: Path) -> None:
    with ExitStack() as servers:
        address = servers.enter_context(server(folder))
        opened(browser, address, "#/runs")
        browser.wait("document.querySelector('table.window .status.finished')")
        browser.js("(window.before = true)")
        servers.close()
        browser.wait(NOTICE)
        servers.enter_context(server(tmp_path / "other", port_of(address)))
        browser.wait("window.before !== true && document.querySelector('main a[href=\"#/documents\"]')")
    browser.errors()


def test_an_action_is_not_repeated_for_a_server_that_was_away(browser: Browser, folder: Path) -> None:
    with ExitStack() as servers:
        address = servers.enter_context(server(folder))
        opened(browser, address, "#/documents")
        browser.wait("document.querySelector('textarea')")
        servers.close()
        browser.js("document.querySelector('[data-action=start]').click()")
        assert "may not have done this" in browser.wait(f"{SAID} !== 'Checking …' && {SAID}")
        servers.enter_context(server(folder, port_of(address)))
        browser.wait(f"({NOTICE}) === undefined")
        browser.wait(f"{SAID} === ''")
        browser.js("document.querySelector('[data-action=check]').click()")
        browser.wait(f"{SAID} !== 'Checking …' && {SAID}")
    browser.errors()


def test_a_run_that_has_not_begun_is_shown_when_it_has(browser: Browser, tmp_path: Path) -> None:
    with server(tmp_path / "later") as address:
        opened(browser, address, "#/run/latest")
        assert "has no run 'latest'" in browser.wait(PROBLEM)
        pm.run("scenarios/dummy.yml", store=tmp_path / "later", quiet=True)
        # a slow machine shows "dummy running" before
        browser.wait("document.querySelector('h1')?.textContent === 'dummy finished'")
        browser.wait(f"({PROBLEM}) === undefined")
    browser.errors()


def test_a_message_goes_when_its_cause_goes(
    browser: Browser, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = vars(Source)["store"].fget
    causes: list[str] = []

    def store(self: Source) -> Store:
        if causes:
            raise StoreError(causes[0])
        opened_store: Store = asked(self)
        return opened_store

    monkeypatch.setattr(Source, "store", property(store))
    with server(folder) as address:
        opened(browser, address, "#/runs")
        browser.wait("document.querySelector('table.window .status.finished')")
        causes.append("the disk is away")
        assert browser.wait(PROBLEM).startswith("the disk is away")
        causes.clear()
        browser.wait(f"({PROBLEM}) === undefined")
        assert browser.js("document.querySelectorAll('table.window .status.finished').length") == 1
        # nothing is shown before it is
        causes.append("the disk is away again")
        browser.js("location.hash = '#/run/latest'")
        assert browser.wait(PROBLEM).startswith("the disk is away again")
        causes.clear()
        browser.wait("document.querySelector('h1')?.textContent === 'dummy finished'")
        browser.wait(f"({PROBLEM}) === undefined")
    browser.errors()


def test_what_is_said_of_a_document_goes_with_its_text(browser: Browser, folder: Path) -> None:
    with server(folder) as address:
        opened(browser, address, "#/documents")
        browser.wait("document.querySelector('textarea')")
        browser.js(
            "((area) => { area.value = ''; area.dispatchEvent(new Event('input')); })(document.querySelector('textarea'))"
        )
        browser.js("document.querySelector('[data-action=check]').click()")
        browser.wait(f"{SAID} !== 'Checking …' && {SAID}")
        browser.js("document.querySelector('textarea').dispatchEvent(new Event('input'))")
        assert browser.js(SAID) == ""
    browser.errors()


def test_the_error_of_a_run_goes_when_it_is_resumed(
    browser: Browser, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state: dict[str, object] = {"status": "failed", "error": "ValueError: first"}
    assert data.get and actions.perform, "all resources and actions are registered"
    functions, action = resource._functions, actions.registry.action
    facts = functions["run", "{run}"]
    monkeypatch.setitem(functions, ("run", "{run}"), lambda *asked: {**facts(*asked), **state})  # type: ignore[dict-item]
    possible = {"cancel": False, "resume": True, "why": ""}
    monkeypatch.setitem(functions, ("run", "{run}", "actions"), lambda *asked: possible)

    def resumed(*asked: object) -> dict[str, object]:
        state.update(status="running", error=None)
        return {"done": "resumed"}

    monkeypatch.setitem(action._functions, ("run", "{run}", "resume"), resumed)
    with server(folder) as address:
        opened(browser, address, "#/run/latest")
        assert browser.wait(PROBLEM).startswith("ValueError: first")
        browser.js("document.querySelector('[data-action=resume]').click()")
        browser.wait(f"({PROBLEM}) === undefined")
        assert browser.js("document.querySelector('h1').textContent") == "dummy running"
        # the resumed run is followed: a new failure is shown, and its message is that of the new one
        state.update(status="failed", error="ValueError: second")
        browser.wait(f"({PROBLEM})?.startsWith('ValueError: second')")
    browser.errors()

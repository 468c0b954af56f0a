"""A server of the page on a free port, and a browser that looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.browser import CHROMIUM, DRIVER, NO_BROWSER, Browser
from support.page_server import served

from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.web.resources import Source
from palaestrai_mosaik.web.workplace import Workplace

Serve = Callable[[Source], str]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pytest.importorskip("selenium", reason="no selenium for the browser (extra 'test')")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip(NO_BROWSER)
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return what serves a source, and returns the first address with the token."""
    pytest.importorskip("uvicorn", reason="no server (extra 'web')")
    pytest.importorskip("starlette", reason="no server (extra 'web')")
    with ExitStack() as servers:
        yield lambda source: servers.enter_context(served(source))


@pytest.fixture
def opened(browser: Browser, serve: Serve, folder: Path) -> Iterator[Callable[[str], None]]:
    """Return what opens a view of the store in the test's ``folder``, whose page may act."""
    location = StoreLocation(str(folder))
    source = Source(location, workplace=Workplace(location))

    def show(view: str) -> None:
        start = serve(source)
        browser.open(start)
        browser.open(start.split("?", maxsplit=1)[0] + view)

    yield show
    source.close()

"""A server of the page on a free port, and a browser that looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from support.browser import CHROMIUM, DRIVER, NO_BROWSER, Browser
from support.page_server import served

from palaestrai_mosaik.web.resources import Source

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

"""A server of the page on a free port, and a browser that looks at it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from support.browser import CHROMIUM, DRIVER, NO_BROWSER, Browser

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
    import uvicorn

    from palaestrai_mosaik.web.serving import listen, make_server

    servers: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(source: Source) -> str:
        listening = listen("127.0.0.1", 0)
        server = make_server(source, listening.access)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening.socket]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        servers.append((server, thread))
        return listening.address

    yield start
    for server, thread in servers:
        server.should_exit = True
        thread.join(10)

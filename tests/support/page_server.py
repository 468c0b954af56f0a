"""A server of the page on a free port, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from .waiting import HANG, until

if TYPE_CHECKING:
    from palaestrai_mosaik.web.resources import Source


@contextmanager
def served(source: Source) -> Iterator[str]:
    """Serve ``source``; give the first address, which has the token."""
    from palaestrai_mosaik.web.server import listen, make_server

    listening = listen("127.0.0.1", 0)
    server = make_server(source, listening.access)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening.socket]}, daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert server.started, "the server does not start"
    try:
        yield listening.address
    finally:
        server.should_exit = True
        thread.join(HANG)

"""Serves the page until the user ends it. Needs the extra ``web``."""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.runner.interrupt import HANGUP, ending_signals, leave_terminal

from .access import Access, is_loopback, names_of
from .resources import Source
from .server import create_app

try:
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise ImportError(f"the page needs {error.name}: {install_extra('web')}") from error

#: number of further ports to try if a port is taken
_TRIED = 100
#: maximum number of simultaneous connections; more are refused
_CONNECTIONS = 100
#: seconds within which the head of a request must arrive
HEAD_TIMEOUT = 20.0
#: seconds to finish sending answers when the server ends
_GRACE = 2
#: hosts that stand for all addresses of the machine
_ALL = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Listening:
    """An open port, with the access to it.

    Attributes:
        socket: the listening socket.
        host: the address or name from the user.
        access: decides which requests are answered.
    """

    socket: socket.socket
    host: str
    access: Access

    @property
    def port(self) -> int:
        """The number of the port."""
        port: int = self.socket.getsockname()[1]
        return port

    @property
    def address(self) -> str:
        """The first address of the page, with the token."""
        name = socket.gethostname() if self.host in _ALL else self.host
        host = f"[{name}]" if ":" in name else name
        return f"http://{host}:{self.port}/?token={self.access.token}"

    def with_token(self, token: str) -> Listening:
        """Return a copy with another token."""
        return replace(self, access=replace(self.access, token=token))


def listen(host: str, port: int) -> Listening:
    """Listen on a port of ``host``, or on the next free one; ``0``: any port.

    Raises:
        PalaestraiMosaikError: this machine does not have that address, or no port is free.
    """
    if not 0 <= port <= 65535:
        raise PalaestraiMosaikError(f"--port {port}: a port is a number from 0 to 65535")
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise PalaestraiMosaikError(f"--host {host}: no such address: {error}") from None
    family, *_, address = addresses[0]
    for number in range(port, port + 1 if port == 0 else min(port + _TRIED, 65536)):
        listening = socket.socket(family, socket.SOCK_STREAM)
        # allow the port of a server that has just ended
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address[0], number, *address[2:]))
            listening.listen(_CONNECTIONS)
        except OSError as error:
            listening.close()
            if error.errno not in (errno.EADDRINUSE, errno.EACCES) or port == 0:
                raise PalaestraiMosaikError(
                    f"cannot listen on {host}, port {number}: {error.strerror}"
                ) from None
            continue
        machine = () if is_loopback(host) else (socket.gethostname(), socket.getfqdn())
        names = names_of(host, listening.getsockname()[1], machine)
        return Listening(listening, host, Access(names, any_address=host in _ALL))
    raise PalaestraiMosaikError(f"all ports from {port} to {number} are taken or closed to you; use --port 0")


class _Protocol(H11Protocol):
    """Closes connections without requests, so that many slow clients cannot keep others out for long."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._last: object = None
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle = self.cycle
        # no new request since the last check, and no answer in progress
        if cycle is self._last and (cycle is None or cycle.response_complete):
            self.transport.abort()
            return
        self._last = cycle
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._look)


class _Server(uvicorn.Server):
    """Ends on a signal without raising it again, and closes its resources."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], None], ready: Callable[[], None]):
        super().__init__(config)
        self._close = close
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {signum: signal.signal(signum, self._end) for signum in ending_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        if number == HANGUP:
            leave_terminal()
        else:
            self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # close first, so that actions stop waiting for their checks
        self._close()
        await super().shutdown(sockets)


def serve(source: Source, listening: Listening, ready: Callable[[], None] = lambda: None) -> None:
    """Serve ``source`` until a signal (SIGINT, SIGTERM, SIGHUP) ends the server; started processes continue.

    Args:
        source: the source of the page.
        listening: the port.
        ready: called when the page can be opened.
    """
    server = make_server(source, listening.access, ready)
    try:
        server.run([listening.socket])
    finally:
        listening.socket.close()
        source.close()


def make_server(source: Source, access: Access, ready: Callable[[], None] = lambda: None) -> uvicorn.Server:
    """Return a server that is not started yet."""
    app = create_app(source, access)

    def close() -> None:
        if source.workplace is not None:
            source.workplace.close()
        app.state.close()

    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        # an access log would contain the token; errors are in the package's own log
        access_log=False,
        log_config=None,
        log_level="critical",
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=int(HEAD_TIMEOUT),
        timeout_graceful_shutdown=_GRACE,
    )
    return _Server(config, close, ready)

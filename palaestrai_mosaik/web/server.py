"""Serves the page: the HTTP application, its access rules, and the process around it. Needs the extra web."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gzip
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from types import FrameType
from typing import Any, TypeVar

from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.installation import install_extra
from palaestrai_mosaik.runner.interrupt import HANGUP, ending_signals, leave_terminal

from .access import Access, is_loopback, names_of
from .actions import perform
from .answers import COMPRESSED_FROM, Answers
from .encoding import to_json
from .page import served_page, static, static_files
from .resources import READ_ONLY, ResourceError, Source

try:
    from starlette.applications import Starlette
    from starlette.datastructures import MutableHeaders
    from starlette.exceptions import HTTPException
    from starlette.middleware import Middleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import RedirectResponse, Response
    from starlette.routing import Route
    from starlette.types import ASGIApp, Message, Receive, Scope, Send
except ImportError as error:
    raise ImportError(f"the page needs {error.name}: {install_extra('web')}") from error

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: maximum size of a request's body in bytes, and seconds within which it must arrive
MAX_BODY = 8 * 2**20
BODY_TIMEOUT = 30.0
#: number of resources that are computed at the same time; few, to leave the cores to the runs
_READERS = 2
#: number of actions that are executed at the same time; they mostly wait for processes
_ACTORS = 8
#: by how much readers have a lower priority than runs (``nice``)
_NICE = 10
#: forwards to the page, so that the next request has this site as its origin
_ONWARDS = '<!DOCTYPE html><title>palaestrai-mosaik</title><meta http-equiv="refresh" content="0;url=./">'
_METHODS = ("GET", "HEAD", "POST")
_TYPES = {".js": "text/javascript", ".css": "text/css"}
#: headers of every answer; the page adds its own policy
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def create_app(source: Source, access: Access) -> Starlette:
    """Return the application that shows a store and performs the page's actions."""
    digest = _digest_of_files()
    page, policy = served_page(f"./static/{digest}/")
    answers = Answers(source, digest)
    readers = ThreadPoolExecutor(_READERS, "read", _lower_priority)
    actors = ThreadPoolExecutor(_ACTORS, "act")

    async def index(request: Request) -> Response:
        if "token" in request.query_params:
            answer: Response = RedirectResponse("/", status_code=303)
            if request.headers.get("sec-fetch-site") in ("cross-site", "same-site"):
                # the link is on another page: after a redirect, the browser would not send the cookie
                answer = Response(_ONWARDS, media_type="text/html")
            answer.set_cookie(access.cookie, access.token, httponly=True, samesite="strict", path="/")
            return answer
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if request.path_params["digest"] != digest or name not in static_files():
            return _refused(404, f"no file {name!r}")
        packed = _accepts_gzip(request) and len(static(name)) > COMPRESSED_FROM
        content = await _in(readers, partial(_packed, name)) if packed else static(name)
        # the address contains the digest of all files, so its content never changes
        headers = {"Cache-Control": "private, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        kind = _TYPES.get("." + name.rpartition(".")[2], "text/plain")
        return Response(content, headers=headers | _encoding(packed), media_type=kind)

    async def resource(request: Request) -> Response:
        path, query = request.path_params["path"], dict(request.query_params)
        packed = _accepts_gzip(request)
        tags = [tag.strip() for tag in request.headers.get("if-none-match", "").split(",")]
        answer = await _in(readers, lambda: answers.get(path, query, packed=packed, tags=tags))
        headers = {"ETag": answer.tag, "Cache-Control": "private, no-cache", "Vary": "Accept-Encoding"}
        if answer.content is None:
            return Response(status_code=304, headers=headers)
        headers |= _encoding(answer.packed)
        return Response(answer.content, headers=headers, media_type="application/json")

    async def action(request: Request) -> Response:
        path = request.path_params["path"]
        if source.workplace is None:
            return _refused(403, READ_ONLY)
        body = await _body(request)
        done = await _in(actors, lambda: to_json(perform(source, path, body)))
        return Response(done, media_type="application/json")

    routes = [
        Route("/", _safe(index), methods=["GET"]),
        Route("/static/{digest}/{name:path}", _safe(file), methods=["GET"]),
        Route("/api/{path:path}", _safe(resource), methods=["GET"]),
        Route("/api/{path:path}", _safe(action), methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _of_exception}
    app = Starlette(
        routes=routes, middleware=[Middleware(_Guard, access=access)], exception_handlers=handlers
    )
    app.router.redirect_slashes = False

    def close() -> None:
        for pool in (readers, actors):
            pool.shutdown(wait=False, cancel_futures=True)

    app.state.close = close
    return app


class _Guard:
    """Rejects requests from other origins before any other code sees them, and adds the security headers."""

    def __init__(self, app: ASGIApp, access: Access):
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            app = self._refusal(Request(scope)) or self._app
        except Exception:
            logger.exception("a request cannot be read")
            app = _refused(400, "the request cannot be read")
        await app(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        path, method = request.scope["path"], request.method
        if not self._access.answers(request.headers.get("host")):
            return _refused(421, "this server does not answer to that host name")
        if method not in _METHODS:
            methods = ", ".join(_METHODS)
            return _refused(405, f"the method must be one of {methods}", {"Allow": methods})
        first = path == "/" and method == "GET" and self._access.admits(request.query_params.get("token"))
        if not first and not self._access.admits(request.cookies.get(self._access.cookie)):
            return _refused(401, "open the address that the command printed: it has the token")
        if path != "/" and request.headers.get("sec-fetch-site", "same-origin") not in (
            "same-origin",
            "none",
        ):
            return _refused(403, "another site has asked for this")
        return self._refused_action(request) if method == "POST" else None

    def _refused_action(self, request: Request) -> Response | None:
        headers = request.headers
        if not self._access.is_own(headers.get("origin"), headers.get("host")):
            return _refused(403, "actions come from the page itself (header Origin)")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refused(415, "the body must be application/json")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > MAX_BODY:
            return _refused(413, f"the body may have {MAX_BODY:,} bytes")
        return None


def _safe(endpoint: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    """Return ``endpoint`` with error answers for its exceptions; they name the problem, but reveal no code."""

    async def answered(request: Request) -> Response:
        try:
            return await endpoint(request)
        except HTTPException as error:
            return _of_exception(request, error)
        except PalaestraiMosaikError as error:
            # the resource does not exist, or the action is not possible now
            missing = isinstance(error, ResourceError) or request.method != "POST"
            return _refused(404 if missing else 409, str(error))
        except ClientDisconnect:
            return Response(status_code=400)
        except OSError as error:
            # reading or writing the folder failed: a link, a file of another user, a full disk
            why = error.strerror or str(error)
            location = "" if error.filename is None else f"{error.filename}: "
            return _refused(409 if request.method == "POST" else 404, f"{location}{why}")
        except Exception as error:
            logger.exception("%s %r", request.method, request.url.path)
            return _refused(500, f"the server has failed ({type(error).__name__}); its log says why")

    return answered


def _of_exception(request: Request, error: HTTPException) -> Response:
    return _refused(error.status_code, error.detail, dict(error.headers or {}))


def _refused(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
    return Response(to_json({"error": message}), status, headers, "application/json")


async def _body(request: Request) -> dict[str, Any]:
    """Return the body of a request, a JSON object.

    Raises:
        HTTPException: the body is too large, too slow, or not a JSON object.
    """
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_TIMEOUT):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BODY:
                    raise HTTPException(413, f"the body may have {MAX_BODY:,} bytes", {"Connection": "close"})
    except TimeoutError:
        raise HTTPException(408, "the body did not arrive in time", {"Connection": "close"}) from None
    try:
        value = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise HTTPException(400, "the body must be a JSON object")
    return value


async def _in(pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(pool, work)


def _lower_priority() -> None:
    """Lower the priority of the calling thread below that of runs.

    This is limited to Linux; elsewhere, priorities belong to processes.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, 0, min(19, os.getpriority(os.PRIO_PROCESS, 0) + _NICE))


def _accepts_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def _encoding(packed: bool) -> dict[str, str]:
    return {"Content-Encoding": "gzip"} if packed else {}


@cache
def _packed(name: str) -> bytes:
    return gzip.compress(static(name), 6, mtime=0)


@cache
def _digest_of_files() -> str:
    """Return a digest of all files in ``static/``."""
    digest = sha256()
    for name in static_files():
        digest.update(f"{name}\0{len(static(name))}\0".encode() + static(name))
    return digest.hexdigest()[:16]


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
        self._last: Any = None
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        cycle: Any = self.cycle
        # no new request since the last check, and no answer in progress
        if cycle is self._last and (cycle is None or cycle.response_complete):
            self.transport.abort()
            return
        self._last = cycle
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._look)


class _Server(uvicorn.Server):
    """Ends on a signal without raising it again, and closes its resources."""

    should_exit: bool

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

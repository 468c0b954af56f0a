"""The server of the page: resources of a store over HTTP. Needs the extra ``web``."""

from __future__ import annotations

import gzip
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaestrai_mosaik.errors import PalaestraiMosaikError
from palaestrai_mosaik.installation import install_extra

from .data import get
from .encoding import to_json
from .page import served_page, static, static_files
from .resources import Source

try:
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import RedirectResponse, Response
    from starlette.routing import Route
except ImportError as error:
    raise ImportError(f"the page needs {error.name}: {install_extra('web')}") from error

logger = logging.getLogger(__name__)

#: answers that are longer are compressed
_COMPRESSED_FROM = 2_000
_TYPES = {".js": "text/javascript", ".css": "text/css"}
#: what every answer says to the browser, beside the page's own policy
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True)
class Access:
    """Who may use the server.

    Attributes:
        hosts: values of the header ``Host`` that are answered, such as ``127.0.0.1:8765``.
        token: the first address has it; the browser then keeps it as a cookie.
    """

    hosts: frozenset[str]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    @property
    def cookie(self) -> str:
        """The name of the cookie: servers at several ports of one host do not replace each other's."""
        return "palaestrai-mosaik-" + next(iter(sorted(self.hosts))).rpartition(":")[2]

    def admits(self, token: str | None) -> bool:
        """Whether a token is the one of this server."""
        return token is not None and hmac.compare_digest(token.encode(), self.token.encode())


def create_app(source: Source, access: Access) -> Starlette:
    """Return the application that shows what a store has."""
    page, policy = served_page("./static/")

    async def index(request: Request) -> Response:
        if access.admits(request.query_params.get("token")):
            answer: Response = RedirectResponse("/", status_code=303)
            answer.set_cookie(access.cookie, access.token, httponly=True, samesite="strict", path="/")
            return answer
        return Response(page, media_type="text/html", headers={"Content-Security-Policy": policy})

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in static_files():
            return _refused(404, f"no file {name!r}")
        suffix = "." + name.rpartition(".")[2]
        return _compressed(request, static(name), _TYPES.get(suffix, "text/plain"))

    async def answer_resource(request: Request) -> Response:
        path, query = request.path_params["path"], dict(request.query_params)
        content = await run_in_threadpool(lambda: to_json(get(source, path, query)))
        return _compressed(request, content, "application/json")

    routes = [
        Route("/", index),
        Route("/static/{name:path}", file),
        Route("/api/{path:path}", answer_resource),
    ]
    return Starlette(routes=[_guarded(route, access) for route in routes])


def _guarded(route: Route, access: Access) -> Route:
    """Return the route, which refuses requests from elsewhere and says what was wrong."""
    endpoint: Callable[[Request], Awaitable[Response]] = route.endpoint

    async def guarded(request: Request) -> Response:
        if request.headers.get("host") not in access.hosts:
            return _refused(421, "this server does not answer to that host name")
        known = access.admits(request.cookies.get(access.cookie))
        if not known and not (route.path == "/" and access.admits(request.query_params.get("token"))):
            return _refused(401, "open the address that the command printed: it has the token")
        try:
            response = await endpoint(request)
        except PalaestraiMosaikError as error:
            response = _refused(404, str(error))
        except Exception as error:
            logger.exception("%s", request.url.path)
            response = _refused(500, f"{type(error).__name__}: {error}")
        for name, value in _HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    return Route(route.path, guarded, methods=sorted(route.methods or ["GET"]))


def _refused(status: int, message: str) -> Response:
    return Response(to_json({"error": message}), status, _HEADERS, "application/json")


def _compressed(request: Request, content: bytes, kind: str) -> Response:
    headers: Mapping[str, Any] = {}
    if len(content) > _COMPRESSED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        content, headers = gzip.compress(content, 1), {"Content-Encoding": "gzip"}
    return Response(content, headers=dict(headers), media_type=kind)

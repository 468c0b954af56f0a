"""The HTML of the page, for a server, and as one file that opens without a server and without a network."""

from __future__ import annotations

import base64
import gzip
import html
import json
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path

from .encoding import to_json

_STATIC = Path(__file__).parent / "static"
ECHARTS = "vendor/echarts.min.js"
#: modules that others have made: name in import statements -> file in ``static/``
_LIBRARIES = {
    "preact": "vendor/preact.js",
    "preact/hooks": "vendor/preact-hooks.js",
    "@preact/signals": "vendor/preact-signals.js",
    "@preact/signals-core": "vendor/signals-core.js",
}

# unpacks the library and the resources, and starts the page
_START = """\
const unpack = async (id) => new Response(new Blob([Uint8Array.from(atob(document.getElementById(id).textContent),
  (c) => c.charCodeAt(0))]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
(async () => {
  window.palaestrai = { ...JSON.parse(document.getElementById("settings").textContent),
    resources: JSON.parse(await (await unpack("resources")).text()) };
  const script = document.createElement("script");
  script.src = URL.createObjectURL(new Blob([await unpack("echarts")], { type: "text/javascript" }));
  script.onload = () => import("web/app");
  document.head.append(script);
})();"""


@cache
def static(name: str) -> bytes:
    """Return the content of a file in ``static/``.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if name not in static_files():
        raise FileNotFoundError(name)
    return (_STATIC / name).read_bytes()


@cache
def static_files() -> tuple[str, ...]:
    """Return the names of all files in ``static/``, as paths below it."""
    return tuple(
        sorted(path.relative_to(_STATIC).as_posix() for path in _STATIC.rglob("*") if path.is_file())
    )


def modules() -> dict[str, str]:
    """Return the names of the JavaScript modules (``web/views/runs``, ``preact``) with their files in ``static/``."""
    scripts = [name for name in static_files() if name.endswith(".js") and not name.startswith("vendor/")]
    return {f"web/{name.removesuffix('.js')}": name for name in scripts} | _LIBRARIES


def source_hash(text: str) -> str:
    """Return the hash that permits an inline script in a Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


def _body(title: str) -> str:
    return (
        f'<header class="page"><strong>{html.escape(title)}</strong><nav aria-label="Views"></nav></header>\n'
        '<main><p class="quiet">Loading …</p></main>\n'
        "<noscript><p>This page needs JavaScript.</p></noscript>\n"
    )


def _head(title: str, more: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n{more}</head>\n"
    )


def served_page(base: str) -> tuple[str, str]:
    """Return the page that a server sends, and its Content-Security-Policy.

    Args:
        base: the address of the folder ``static/``; starts with ``./`` or a scheme, and ends with ``/``.
    """
    import_map = json.dumps({"imports": {name: base + file for name, file in modules().items()}})
    policy = (
        f"default-src 'none'; script-src 'self' {source_hash(import_map)}; style-src 'self'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    head = (
        '<link rel="icon" href="data:,">\n'
        f'<link rel="stylesheet" href="{base}style.css">\n'
        f'<script type="importmap">{import_map}</script>\n'
        f'<script src="{base}{ECHARTS}"></script>\n'
        f'<script type="module" src="{base}app.js"></script>\n'
    )
    title = "palaestrai-mosaik"
    return _head(title, head) + f"<body>\n{_body(title)}</body>\n</html>\n", policy


def single_file(title: str, home: str, carried: Mapping[str, object], home_title: str | None = None) -> str:
    """Return a self-contained page that shows the carried resources.

    Args:
        title: the title of the page.
        home: the view that opens first, such as ``#/run/ID``.
        carried: resources by their address (:func:`~.resources.address`). Numbers of arrays keep 7 digits.
        home_title: the text of the link that leads back to ``home``; ``None``: there are no other views.
    """

    def packed(data: bytes) -> str:
        # no timestamp, so that equal data give equal bytes
        return base64.b64encode(gzip.compress(data, 9, mtime=0)).decode()

    def as_url(file: str) -> str:
        return "data:text/javascript;base64," + base64.b64encode(static(file)).decode()

    import_map = json.dumps({"imports": {name: as_url(file) for name, file in modules().items()}})
    style = static("style.css").decode()
    policy = (
        f"default-src 'none'; script-src {source_hash(import_map)} {source_hash(_START)} data: blob:; "
        f"style-src {source_hash(style)}; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    settings = json.dumps({"home": home, "title": home_title}).replace("<", "\\u003c")
    head = (
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">\n'
        '<link rel="icon" href="data:,">\n'
        f"<style>{style}</style>\n"
        f'<script type="importmap">{import_map}</script>\n'
    )
    everything = to_json({"store": {"title": title, "design": None}, **carried}, single=True)
    body = (
        f'<script type="application/json" id="settings">{settings}</script>\n'
        f'<script type="text/plain" id="echarts">{packed(static(ECHARTS))}</script>\n'
        f'<script type="text/plain" id="resources">{packed(everything)}</script>\n'
        f"<script>{_START}</script>\n"
    )
    return _head(title, head) + f"<body>\n{_body(title)}{body}</body>\n</html>\n"

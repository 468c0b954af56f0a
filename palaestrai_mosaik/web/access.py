"""Access to the server: checks of the token, the host name and the origin of requests."""

from __future__ import annotations

import hmac
import ipaddress
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from palaestrai_mosaik.core.installation import DEFAULT_STORE
from palaestrai_mosaik.runner.user_key import sign
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.urls import database_url, masked

#: a header ``Host``: a name or an address, and an optional port
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{0,5}))?", re.ASCII | re.IGNORECASE)
#: the names by which a browser reaches a loopback server on the same machine
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True)
class Access:
    """Decides which requests the server answers.

    Attributes:
        hosts: accepted values of the header ``Host``: ``127.0.0.1:8765``, or a name without a port for all ports,
            because ``ssh -L`` may use another port. This rejects pages of other names that resolve to this server (DNS
            rebinding).
        token: the token. The first address contains it; the browser then keeps it as a cookie.
        any_address: whether any IP address is accepted as host. A server that listens on all addresses of a machine
            does not know which one a browser uses. Only names can be rebound, IP addresses cannot.
    """

    hosts: frozenset[str]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    any_address: bool = False

    @property
    def cookie(self) -> str:
        """The name of the cookie. It contains the port, so servers on one host do not overwrite each other's."""
        ports = sorted(port for host in self.hosts if (port := _split(host)[1]))
        return "-".join(["palaestrai-mosaik", *ports[:1]])

    def admits(self, token: str | None) -> bool:
        """Whether ``token`` is the token of this server."""
        return token is not None and hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def answers(self, host: str | None) -> bool:
        """Whether ``host``, a value of the header ``Host``, is accepted."""
        if host is None:
            return False
        host = host.lower()
        name = _split(host)[0]
        return bool(name) and (
            host in self.hosts
            or name in self.hosts
            or (self.any_address and _address(name.strip("[]")) is not None)
        )

    def is_own(self, origin: str | None, host: str | None) -> bool:
        """Whether ``origin``, a value of the header ``Origin``, is the page that ``host`` served."""
        return origin is not None and host is not None and origin.lower() == f"http://{host.lower()}"


def lasting_token(
    location: StoreLocation, design: Path | None, port: int, *, read_only: bool, modules: Sequence[str] | None
) -> str:
    """Return the token for the page of a store. It is the same after each restart, and is not stored.

    The token is a signature with this user's private key. It depends on the design, the port and the rights of the page, so the
    address of a read-only page does not permit starting anything on a later page.

    Args:
        location: the store.
        design: the folder of the design that the page shows; ``None``: it shows a store.
        port: the port at which the page is served.
        read_only: whether the page is read-only.
        modules: the modules that documents in the page may name; ``None``: all.

    Raises:
        PrivateKeyError: the key cannot be read or created.
        StoreError: the URL of the database cannot be read.
    """
    folder = os.path.realpath(location.folder or location.directory or DEFAULT_STORE)
    database = "" if location.folder is not None else masked(database_url(location.location))
    shown = None if design is None else os.path.realpath(design)
    rights = "read-only" if read_only else None if modules is None else sorted(modules)
    # this prefix never starts a checkpoint manifest, so one signature cannot be used as the other
    return sign(b"token of a page " + json.dumps([folder, database, shown, port, rights]).encode())


def names_of(host: str, port: int, machine: tuple[str, ...]) -> frozenset[str]:
    """Return the accepted values of the header ``Host`` for a server that listens on ``host``.

    Args:
        host: the address or name on which the server listens.
        port: its port.
        machine: the names of this machine, for a server that other machines can reach.
    """
    name = f"[{host}]" if ":" in host else host.lower()
    return frozenset(
        {f"{name}:{port}", name, *LOOPBACK, *(() if is_loopback(host) else map(str.lower, machine))}
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that listens on ``host``."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


def _split(host: str) -> tuple[str, str]:
    """Return the name and the port of a header ``Host``; two empty strings if it is malformed."""
    match = _HOST.fullmatch(host)
    return ("", "") if match is None else (match[1], match[2] or "")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None

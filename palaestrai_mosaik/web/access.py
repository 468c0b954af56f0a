"""Who may use the server: a token, names of the host, and where a request comes from."""

from __future__ import annotations

import hmac
import ipaddress
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from palaestrai_mosaik.locations import DEFAULT_STORE
from palaestrai_mosaik.runner.user_key import sign
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.urls import database_url, masked

#: a header ``Host``: a name or an address, and the port if it has one
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::([0-9]{0,5}))?", re.ASCII | re.IGNORECASE)
#: the names by which a browser on the same machine reaches a server that listens there
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True)
class Access:
    """Who may use the server.

    Attributes:
        hosts: values of the header ``Host`` that are answered: ``127.0.0.1:8765``, or a name without a port for all ports,
            since ``ssh -L`` may bring another one. A page of another name that was made to lead here (DNS rebinding)
            is not answered.
        token: the first address has it; the browser then keeps it as a cookie.
        any_address: whether each IP address is answered as host, too: a server that listens on all of a machine's does
            not know which of them a browser uses. No name can be rebound to what is no name.
    """

    hosts: frozenset[str]
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    any_address: bool = False

    @property
    def cookie(self) -> str:
        """The name of the cookie: servers at several ports of one host do not replace each other's."""
        ports = sorted(port for host in self.hosts if (port := _split(host)[1]))
        return "-".join(["palaestrai-mosaik", *ports[:1]])

    def admits(self, token: str | None) -> bool:
        """Whether a token is the one of this server."""
        return token is not None and hmac.compare_digest(token.encode(errors="replace"), self.token.encode())

    def answers(self, host: str | None) -> bool:
        """Whether requests to ``host`` (of the header) are answered."""
        if host is None:
            return False
        host = host.lower()
        name = _split(host)[0]
        return bool(name) and (
            host in self.hosts or name in self.hosts or (self.any_address and _is_address(name))
        )

    def is_own(self, origin: str | None, host: str | None) -> bool:
        """Whether ``origin`` (of the header) is the page that ``host`` has sent."""
        return origin is not None and host is not None and origin.lower() == f"http://{host.lower()}"


def lasting_token(
    location: StoreLocation, port: int, *, read_only: bool, modules: Sequence[str] | None
) -> str:
    """Return the token of a store's page: the same after each restart, and kept nowhere.

    It is made of this user's private key. A page at another port or with other rights has another one, so that who has the
    address of a page that only shows cannot start anything on a later one.

    Args:
        location: the store.
        port: the port at which the page is served.
        read_only: the page only shows.
        modules: the modules that documents in the page may name; ``None``: all.

    Raises:
        PrivateKeyError: the key cannot be read or created.
        StoreError: the URL of the database cannot be read.
    """
    folder = os.path.realpath(location.folder or location.directory or DEFAULT_STORE)
    database = "" if location.folder is not None else masked(database_url(location.location))
    rights = "read-only" if read_only else None if modules is None else sorted(modules)
    # what begins so is no manifest of a checkpoint: neither signature can be used in place of the other
    return sign(b"token of a page " + json.dumps([folder, database, port, rights]).encode())


def names_of(host: str, port: int, machine: tuple[str, ...]) -> frozenset[str]:
    """Return what the header ``Host`` may be where a server listens on ``host``.

    Args:
        host: the address or name that it listens on.
        port: its port.
        machine: the names of this machine, for a server that others reach.
    """
    shown = f"[{host}]" if ":" in host else host.lower()
    return frozenset(
        {f"{shown}:{port}", shown, *LOOPBACK, *(() if is_loopback(host) else map(str.lower, machine))}
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens on ``host``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _split(host: str) -> tuple[str, str]:
    """Return the name and the port of a header ``Host``, and two empty texts for any other text."""
    found = _HOST.fullmatch(host)
    return ("", "") if found is None else (found[1], found[2] or "")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True

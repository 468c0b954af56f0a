"""Checks connections to mosaik: only a simulator's own process, or one of the same user, may be a simulator.

mosaik starts the process of a simulator and accepts the first connection on loopback as its own. All users of a
machine can connect there. So each connection is looked up: on Linux, in the kernel's table of sockets and their
users; elsewhere, it must belong to a child process. Others are
refused, and mosaik continues to wait. This applies to every world in this process.
"""

from __future__ import annotations

import asyncio
import importlib
import ipaddress
import logging
import os
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

logger = logging.getLogger(__name__)

#: an address and a port
Address = tuple[str, int]
#: the kernel's tables of connections and their users, only on Linux
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
#: root has all permissions anyway: a simulator in a container, for instance, may run as root
_ROOT = 0
#: the kernel's state of an established connection; closed ones appear as those of root
_OPEN = "01"


def is_trusted(peer: Address, here: Address) -> bool:
    """Return whether the socket ``peer``, connected to the socket ``here``, may belong to a simulator."""
    if _TABLES[0].exists():
        return user_of(peer, here) in (os.geteuid(), os.getuid(), _ROOT)
    return any(_plain(connection) == (peer, here) for connection in _of_children())


def user_of(peer: Address, here: Address) -> int | None:
    """Return the user of the socket ``peer`` that is connected to ``here``; ``None`` if it was closed. On Linux."""
    for table in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue  # a system without IPv6
        for line in lines:
            fields = line.split()
            if fields[3] == _OPEN and _address(fields[1]) == peer and _address(fields[2]) == here:
                return int(fields[7])
    return None


def _address(text: str) -> Address:
    """Parse the kernel's format ``0100007F:1F90``."""
    host, _, port = text.partition(":")
    words = [int(host[start : start + 8], 16) for start in range(0, len(host), 8)]
    packed = struct.pack(f"={len(words)}I", *words)  # each word in native byte order
    return _text(str(ipaddress.ip_address(packed))), int(port, 16)


def _text(host: str) -> str:
    """Return an address in canonical form: IPv4-mapped IPv6 becomes IPv4."""
    address = ipaddress.ip_address(host.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _of_children() -> Iterator[Any]:
    for process in psutil.Process().children(recursive=True):
        try:
            yield from process.net_connections("tcp")
        except psutil.Error:
            continue


def _plain(connection: Any) -> tuple[Address, Address] | None:
    ends = connection.laddr, connection.raddr
    return tuple((_text(end.ip), end.port) for end in ends) if all(ends) else None  # type: ignore[return-value]


async def start_server(
    connected: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    *where: Any,
    **options: Any,
) -> asyncio.Server:
    """Listen like :func:`asyncio.start_server`; ``connected`` receives the first trusted connection."""
    is_connected = False

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal is_connected
        peer, here = (writer.get_extra_info(end) for end in ("peername", "sockname"))
        trusted = peer and here and is_trusted((_text(peer[0]), peer[1]), (_text(here[0]), here[1]))
        if not is_connected and trusted:
            is_connected = True
            await connected(reader, writer)
            return
        if not trusted:
            logger.warning("a connection that was not made by the simulator was refused: %s", peer)
        writer.close()

    return await asyncio.start_server(look, *where, **options)


class _Asyncio:
    """Replaces :mod:`asyncio` in mosaik's starter."""

    start_server = staticmethod(start_server)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def guard() -> None:
    """Make mosaik's starter of processes listen with :func:`start_server` from now on."""
    for name in ("mosaik.starters", "mosaik.simmanager"):  # since 3.6 / until 3.5
        try:
            module: Any = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        if hasattr(module, "asyncio"):
            module.asyncio = _Asyncio()
            return
    raise ImportError("this release of mosaik starts processes in a way that is not known here")

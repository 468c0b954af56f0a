"""Who has connected to mosaik: only a simulator's own process, or one of the same user, may be a simulator.

mosaik starts the process of a simulator and takes the first that connects on loopback for it. All users of a
machine can connect there. So each connection is looked up: on Linux, the kernel tells the user whose socket
is at the other end; elsewhere, it must be one of the processes that this one has started. Others are
refused, and mosaik waits on. That holds for every world of this process, whoever makes it.
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
#: what the kernel knows of connections, and of which user they are; Linux alone has it
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
#: who can do everything anyway: a simulator in a container, for instance, may be root's
_ROOT = 0
#: the kernel's state of a connection that is open at both ends; one that was closed it calls root's, whoever made it
_OPEN = "01"


def is_trusted(peer: Address, here: Address) -> bool:
    """Whether the socket ``peer``, which is connected to the socket ``here``, may be a simulator's."""
    if _TABLES[0].exists():
        return user_of(peer, here) in (os.geteuid(), os.getuid(), _ROOT)
    return any(_plain(connection) == (peer, here) for connection in _of_children())


def user_of(peer: Address, here: Address) -> int | None:
    """Return whose socket ``peer`` is that is connected to ``here``; ``None``: it was closed. On Linux."""
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
    """Return what the kernel writes as ``0100007F:1F90``."""
    host, _, port = text.partition(":")
    words = [int(host[place : place + 8], 16) for place in range(0, len(host), 8)]
    packed = struct.pack(f"={len(words)}I", *words)  # each word as it lies in memory
    return _text(str(ipaddress.ip_address(packed))), int(port, 16)


def _text(host: str) -> str:
    """Return an address in one spelling: IPv4 that is written as IPv6 is IPv4."""
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
    """Listen as :func:`asyncio.start_server` does; ``connected`` gets the first connection that is trusted."""
    found = False

    async def look(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal found
        peer, here = (writer.get_extra_info(end) for end in ("peername", "sockname"))
        known = peer and here and is_trusted((_text(peer[0]), peer[1]), (_text(here[0]), here[1]))
        if not found and known:
            found = True
            await connected(reader, writer)
            return
        if not known:
            logger.warning("a connection that was not made by the simulator was refused: %s", peer)
        writer.close()

    return await asyncio.start_server(look, *where, **options)


class _Asyncio:
    """What mosaik's starter takes for :mod:`asyncio`."""

    start_server = staticmethod(start_server)

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


def guard() -> None:
    """Let mosaik's starter of processes listen with :func:`start_server`, from now on."""
    for name in ("mosaik.starters", "mosaik.simmanager"):  # since 3.6, until 3.5
        try:
            module: Any = importlib.import_module(name)
        except ModuleNotFoundError:
            continue
        if hasattr(module, "asyncio"):
            module.asyncio = _Asyncio()
            return
    raise ImportError("this release of mosaik starts processes in a way that is not known here")

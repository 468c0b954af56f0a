"""Whoever else connects to mosaik, before a simulator does, is none."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import mosaik
import psutil
import pytest
from support.documents import agent, document, environment, phase
from support.simulators import SIMULATORS
from support.waiting import HANG

from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.simulation import peer_check

DESCRIBED = "palaestrai_mosaik.environment.described:DescribedCoSimulation"
NUMBER = "Box(0, 1, ())"
NOBODY = 65534

#: tells its address, and begins only when somebody else has connected
_LATE = """
import os, pathlib, runpy, sys, time
folder = pathlib.Path(sys.argv.pop(1))
(folder / "address.part").write_text(sys.argv[2])
os.rename(folder / "address.part", folder / "address")
while not (folder / "connected").stat().st_size:
    time.sleep(0.01)
sys.argv.pop(0)
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: connects as another user, and answers as a simulator would
_INTRUDER = """
import encodings.idna, os, pathlib, socket, sys, time
folder = pathlib.Path(sys.argv[1])
while not (folder / "address").exists():
    time.sleep(0.01)
host, _, port = (folder / "address").read_text().rpartition(":")
connected = open(folder / "connected", "w")
os.setgroups([]); os.setgid(65534); os.setuid(65534)
line = socket.create_connection((host, int(port)))
connected.write("x"); connected.flush()
line.settimeout(20.0)
try:
    print(repr(line.recv(10000)), flush=True)
except OSError as error:
    print(repr(error), flush=True)
"""


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="only root can become another user, and connect as him",
)
def test_another_user_who_connects_first_is_refused(tmp_path: Path) -> None:
    """He is told nothing, and the simulator that comes after him is the one that is run."""
    (tmp_path / "connected").touch()
    for name, text in (("late.py", _LATE), ("intruder.py", _INTRUDER)):
        (tmp_path / name).write_text(textwrap.dedent(text))
    cmd = f'"{sys.executable}" "{tmp_path / "late.py"}" "{tmp_path}" "{SIMULATORS / "slow_sim.py"}" %(addr)s'
    start = {"cmd": cmd, "timeout": 30.0, "params": {"raises": ""}}
    world = environment(
        "co",
        DESCRIBED,
        end=3,
        simulators={"s": start},
        entities=[{"uid": "m", "simulator": "s", "model": "Slow"}],
        sensors=[{"uid": "got", "entity": "m", "attribute": "got", "space": "Box(-99, 99, (3,))"}],
        actuators=[{"uid": "x", "entity": "m", "attribute": "x", "space": NUMBER, "value": 0.0}],
    )
    one = agent("a", sensors=["co.got"], actuators=["co.x"])
    intruder = subprocess.Popen(
        [sys.executable, str(tmp_path / "intruder.py"), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        result = execute(document(phase([world], [one])))
        told = intruder.communicate(timeout=HANG)[0]
    finally:
        intruder.kill()
        intruder.wait()
    assert [phase.episodes for phase in result.phases] == [1]
    # closed at once, or reset, without a word about the simulation
    assert told.strip() in ("b''", "ConnectionResetError(104, 'Connection reset by peer')")


def test_the_user_of_a_connection_is_known() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        for family in (socket.AF_INET, socket.AF_INET6):
            with socket.socket(family) as client:
                host = "127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1"
                try:
                    client.connect((host, server.getsockname()[1]))
                except OSError:
                    continue  # a system without IPv6
                accepted, peer = server.accept()
                with accepted:
                    here = accepted.getsockname()
                    if sys.platform == "linux":
                        assert peer_check.user_of(peer, here) == os.geteuid()
                        assert peer_check.is_trusted(peer, here)
                        assert peer_check.user_of((peer[0], 1), here) is None
                        assert not peer_check.is_trusted((peer[0], 1), here)


@pytest.mark.skipif(sys.platform != "linux", reason="what the kernel of Linux tells")
def test_a_connection_that_was_closed_is_nobodys() -> None:
    """The kernel calls it root's: somebody else could leave answers there, and close it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as client:
            client.sendall(b"answers")
        accepted, peer = server.accept()
        with accepted:
            time.sleep(0.5)  # until the kernel keeps no more than the addresses
            assert peer_check.user_of(peer, accepted.getsockname()) is None
            assert not peer_check.is_trusted(peer, accepted.getsockname())


def test_where_the_kernel_does_not_tell_a_process_of_ours_is_asked_for(monkeypatch) -> None:
    monkeypatch.setattr(peer_check, "_TABLES", (Path("/no/such/table"),))
    code = (
        "import socket, sys; s = socket.create_connection(('127.0.0.1', int(sys.argv[1]))); sys.stdin.read()"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        child = subprocess.Popen([sys.executable, "-c", code, str(port)], stdin=subprocess.PIPE)
        try:
            accepted, peer = server.accept()
            with accepted:
                try:
                    psutil.Process(child.pid).net_connections("tcp")
                except psutil.AccessDenied:
                    pytest.skip("this system does not tell the connections of one's own processes")
                assert peer_check.is_trusted(peer, accepted.getsockname())
        finally:
            child.communicate()
        # this process is none of those that it has started
        with socket.create_connection(("127.0.0.1", port)):
            accepted, peer = server.accept()
            with accepted:
                assert not peer_check.is_trusted(peer, accepted.getsockname())


def test_the_first_that_is_trusted_is_taken_and_no_other(monkeypatch) -> None:
    async def story() -> list[bytes]:
        taken: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # since Python 3.13, a writer that nobody keeps closes its connection
            taken.append((reader, writer))

        answers = iter([False, True, True])
        monkeypatch.setattr(peer_check, "is_trusted", lambda peer, here: next(answers))
        server = await peer_check.start_server(connected, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        ends = []
        for word in (b"stranger", b"simulator", b"second"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(word)
            ends.append(writer)
            if word != b"simulator":
                # what nobody has read is lost, and the line is reset
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
        for writer in ends:
            writer.close()
        server.close()
        words = [await reader.read() for reader, _ in taken]
        for _, writer in taken:
            writer.close()
        return words

    assert asyncio.run(story()) == [b"simulator"]


def test_worlds_of_ones_own_listen_so_too() -> None:
    """A world that nobody here has made, with a simulator in another process, asks who has connected."""
    asked: list[peer_check.Address] = []

    def look(peer: peer_check.Address, here: peer_check.Address) -> bool:
        asked.append(peer)
        return True

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(peer_check, "is_trusted", look)
        start = {"cmd": f'"{sys.executable}" "{SIMULATORS / "slow_sim.py"}" %(addr)s', "posix": True}
        with contextlib.closing(_World({"Slow": start})) as world:
            world.start("Slow")
    assert len(asked) == 1


class _World(mosaik.World):
    """A world that can be closed."""

    def close(self) -> None:
        self.shutdown()

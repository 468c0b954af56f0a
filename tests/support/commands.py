"""The package's commands as forks of one process, which has imported what they need.

A command that starts takes a second to import, with the grid four, and pages of the documentation have a hundred
of them. Here ``palaestrai-mosaik`` and ``arsenai`` are small programs that pass their arguments, directory,
environment and files to a server; it forks for each. That the commands that are installed do the same:
``tests/cli/test_processes.py``.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]

#: program -> the module with its ``main``
PROGRAMS = {"palaestrai-mosaik": "palaestrai_mosaik.cli.main", "arsenai": "palaestrai_mosaik.cli.arsenai"}
#: what commands import when they are at work
IMPORTED = (
    *PROGRAMS.values(),
    *(
        f"palaestrai_mosaik.{name}"
        for name in ("arsenai.analysis", "arsenai.design", "arsenai.execution", "runner", "store")
    ),
    *("SALib", "matplotlib.pyplot", "pandas", "palaestrai_mosaik.environment.grid"),
)

_CLIENT = """#!{python} -IS
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
request = {{"program": {program!r}, "arguments": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(server, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
sys.exit(int(server.recv(16) or b"1"))
"""


@contextlib.contextmanager
def commands() -> Iterator[Path]:
    """Serve the commands while the block goes on; yield the folder of the programs, which goes onto PATH."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    # (the name of a socket must be short, so this is no folder of pytest's)
    with tempfile.TemporaryDirectory(prefix="commands-") as folder:
        address, programs = Path(folder, "server"), Path(folder, "bin")
        programs.mkdir()
        for program in PROGRAMS:
            text = _CLIENT.format(python=sys.executable, address=str(address), program=program)
            (programs / program).write_text(text, encoding="utf-8")
            (programs / program).chmod(0o755)
        from support.processes import Program  # (the server has no folder of tests to import from)

        # the server ends when its standard input does, however this process ends
        with Program(
            [sys.executable, __file__, str(address)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as server:
            assert server.stdout is not None and server.stdout.read(1) == b".", "the server does not start"
            yield programs


def _serve(address: str) -> None:
    for module in IMPORTED:
        importlib.import_module(module)
    # of a program that is installed it is the folder of programs
    sys.path[0] = str(Path(sys.executable).parent)
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b".")
    while 0 not in select.select([listening, 0], [], [])[0]:
        client, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _attend(client)
        client.close()
    os._exit(0)  # what has been imported takes a second to go


def _attend(client: socket.socket) -> NoReturn:
    """Let one command run, and its client know how it has ended."""
    text, files, *_ = socket.recv_fds(client, 1 << 20, 3)
    while not text.endswith(b"\n"):
        text += client.recv(1 << 20)
    ended, end = os.pipe()
    child = os.fork()
    if child == 0:
        client.close()
        os.close(ended)
        _command(json.loads(text), files)
    os.close(end)
    for file in files:
        os.close(file)
    if client in select.select([client, ended], [], [])[0]:  # whoever waited is gone
        os.kill(child, signal.SIGTERM)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with contextlib.suppress(OSError):
        client.sendall(str(code if code >= 0 else 128 - code).encode())
    os._exit(0)


def _command(request: dict[str, Any], files: list[int]) -> NoReturn:
    code: object = 1
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    sys.argv = [request["program"], *request["arguments"]]
    try:
        sys.exit(importlib.import_module(PROGRAMS[request["program"]]).main())
    except SystemExit as error:
        code = error.code
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


if __name__ == "__main__":
    _serve(sys.argv[1])

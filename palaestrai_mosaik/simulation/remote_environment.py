"""An environment in another interpreter: this side of the connection to :mod:`.environment_host`.

So one world can have packages that cannot be installed together. The environment is a mosaik simulator in its own process;
both sides use mosaik's protocol over a socket on loopback. The world sees an ordinary environment:
the same simulator (:class:`~.bridge.EnvironmentSimulator`) holds set-points and asks for states, so the trajectories are
identical to those of the environment in this process.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from mosaik_api_v3.connection import FAILURE, REQUEST, encode

import palaestrai_mosaik
from palaestrai_mosaik import errors
from palaestrai_mosaik.environment.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.errors import ContractError, NameResolutionError, SimulatorError
from palaestrai_mosaik.experiment.classes import canonical_name, interpreter_refusal
from palaestrai_mosaik.importing import COMMANDS, limit, refusal
from palaestrai_mosaik.types.arrays import FloatVector

from . import peer_check
from .environment_host import MODEL, SETPOINTS, STATE
from .remote_values import (
    decoded,
    decoded_baseline,
    decoded_state,
    encoded,
    encoded_generator,
)

logger = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"
#: seconds that an interpreter may take until it connects: it imports numpy before, from a slow disk perhaps
_START = 120.0
#: seconds from one look at whether the process is there to the next, while nothing comes from it
_LOOK, _LOOK_AT_START = 1.0, 0.05
#: seconds that the process has to end by itself, and then once it is asked to
_PATIENCE, _TERMINATION = 10.0, 2.0
_LEAST = (3, 11)

#: a method, its arguments and its keywords
Request = tuple[str, Sequence[Any], Mapping[str, Any]]

#: What the other interpreter executes. Of the packages beside this one, it must not see any other: so this one alone is
#: made importable. The text itself is understood by any release of Python 3.
_PROGRAM = """
import sys
address, folder, least = sys.argv[1], sys.argv[2], (int(sys.argv[3]), int(sys.argv[4]))
def tell(message):
    import json, socket
    host, _, port = address.partition(":")
    data = json.dumps([2, 0, ["start", message]]).encode()
    line = socket.create_connection((host, int(port)))
    line.sendall(len(data).to_bytes(4, "big") + data)
    while line.recv(4096):
        pass
    sys.exit(1)
if sys.version_info[:2] < least:
    tell("it is Python %d.%d, and at least %d.%d is needed" % (sys.version_info[:2] + least))
try:
    import importlib.util
    spec = importlib.util.spec_from_file_location(
        "palaestrai_mosaik", folder + "/__init__.py", submodule_search_locations=[folder]
    )
    sys.modules["palaestrai_mosaik"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    from palaestrai_mosaik.simulation.environment_host import main
except ImportError as error:
    tell("it lacks a package: " + str(error))
sys.argv = ["environment_host", address]
main()
"""


class RemoteEnvironment(Environment):
    """The environment of the class ``name``, made with ``params`` by another Python interpreter.

    ``interpreter`` is a path, relative to the working directory, or a command that is looked for in the folders of
    ``PATH``. The process is started by :meth:`setup` and ended by :meth:`shutdown`; it ends by itself where this one does.

    Raises :class:`ContractError` where the interpreter cannot be started, :class:`SimulatorError` where the process has
    ended, or where the environment raises what is no error of this package. Others are raised as they are there.
    """

    def __init__(self, name: str, params: Mapping[str, Any], interpreter: str):
        self.name = name
        self.params = dict(params)
        self.interpreter = interpreter
        self._host: _Host | None = None
        self._frames = False
        self._time = 0
        #: the generator that the other side draws from
        self._given: np.random.Generator | None = None

    def enable_frames(self) -> None:
        # whether it can render is found out there
        self._frames = True

    def render(self) -> Any:
        (frame,) = self._running().ask("in its render", ("render", [], {}))
        return decoded(frame)

    def setup(self) -> EnvironmentBaseline:
        fault = refusal(COMMANDS)
        if fault is not None:
            raise NameResolutionError(interpreter_refusal(fault))
        host = self._host = _Host(self.uid, self.interpreter)
        own = vars(self).get("step_size")
        entity = {
            "uid": self.uid,
            "name": canonical_name(self.name),
            "params": encoded(self.params, "params"),
            "step_size": own,
            "frames": self._frames,
        }
        try:
            host.start()
            host.ask("while it is made", ("init", [self.uid], {"time_resolution": 1.0, "allowed": limit()}))
            host.ask("while it is made", ("create", [1, MODEL], entity))
            (described,) = host.ask("in its setup", ("setup", [], {}))
        except BaseException:
            self._host = None
            host.kill()
            raise
        self.step_size, self.ends = described["step_size"], described["ends"]
        self.hold_setpoints = described["hold_setpoints"]  # type: ignore[misc]  # that of another class
        self.without_effect = described["without_effect"]
        return decoded_baseline(described["baseline"])

    def reset(self) -> EnvironmentState:
        before: list[Request] = []
        if self.rng is not self._given:
            # it is drawn from there alone, and a reset within an episode goes on with it
            self._given = self.rng
            given = [self.worker, self.episode, encoded_generator(self.rng)]
            before.append(("begin", given, {}))
        return self._ask_for_state("in its reset", {}, before)

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        inputs = {self.uid: {SETPOINTS: {"world": encoded(setpoints, "set-points")}}}
        return self._ask_for_state("in its step", inputs)

    def state(self) -> Any:
        (kept,) = self._running().ask("in its state", ("keep", [], {}))
        return kept

    def restore(self, state: Any) -> None:
        self._running().ask("in its restore", ("restore", [state], {}))

    def shutdown(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.close()

    def _ask_for_state(
        self, during: str, inputs: Mapping[str, Any], before: Sequence[Request] = ()
    ) -> EnvironmentState:
        # all at once: each answer that is waited for costs a change from one process to the other and back
        step: Request = ("step", [self._time, inputs, 0], {})
        data: Request = ("get_data", [{self.uid: [STATE]}], {})
        found = self._running().ask(during, *before, step, data)[-1]
        self._time += self.step_size
        return decoded_state(found[self.uid][STATE])

    def _running(self) -> _Host:
        if self._host is None:
            raise SimulatorError(f"environment {self.uid!r} is not set up, or has been shut down")
        return self._host


class _Host:
    """The process of an environment, and the connection with it."""

    def __init__(self, uid: str, interpreter: str):
        self._who = f"environment {uid!r}"
        self._interpreter = interpreter
        self._path = find_interpreter(interpreter)
        self._numbers = itertools.count()
        #: requests that have not been answered
        self._unanswered = 0
        self._owner = os.getpid()
        self._line: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process, and wait until it has connected."""
        folder = str(Path(palaestrai_mosaik.__file__).parent)
        with socket.create_server((_LOOPBACK, 0)) as listener:
            address = f"{_LOOPBACK}:{listener.getsockname()[1]}"
            try:
                self._process = subprocess.Popen(
                    [self._path, "-c", _PROGRAM, address, folder, *map(str, _LEAST)],
                    stdin=subprocess.DEVNULL,
                    env=_variables(),
                    # Ctrl-C is for this process, which tells the other one
                    process_group=0 if os.name == "posix" else None,
                )
            except OSError as error:
                raise self._unfit(f"cannot be executed: {error.strerror}") from error
            self._line = self._accept(listener)
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._line.settimeout(_LOOK)

    def ask(self, during: str, *requests: Request) -> list[Any]:
        """Send ``requests`` (method, arguments, keywords) at once; return all answers.

        Raises what the first one raises, after all have been answered.
        """
        self._unanswered = len(requests)
        self._send(b"".join(encode([REQUEST, next(self._numbers), request]) for request in requests), during)
        answers = []
        failure: Exception | None = None
        for method, *_ in requests:
            kind, _, content = self._receive(during)
            self._unanswered -= 1
            if kind == FAILURE:
                failure = failure or self._error(method, content)
            answers.append(content)
        if failure is not None:
            raise failure
        return answers

    def close(self) -> None:
        """Let the environment shut down, and end the process."""
        if self._owner != os.getpid():
            return  # a copy in a process that was forked
        if self._line is None or self._unanswered or self._ended():
            self.kill()
            return
        try:
            self.ask("in its shutdown", ("close", [], {}))
            self._send(encode([REQUEST, next(self._numbers), ("stop", [], {})]), "at its end")
            assert self._process is not None
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            logger.warning("%s: its process has not ended by itself within %g s", self._who, _PATIENCE)
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process, with those that it has started, and forget it."""
        line, self._line = self._line, None
        if line is not None:
            line.close()
        process = self._process
        if process is None or self._owner != os.getpid():
            return
        for number in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
            if process.poll() is not None:
                return
            with contextlib.suppress(ProcessLookupError):
                if os.name == "posix":
                    os.killpg(process.pid, number)
                else:
                    process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_TERMINATION)

    def _accept(self, listener: socket.socket) -> socket.socket:
        """Return the connection of the process; others are refused."""
        listener.settimeout(_LOOK_AT_START)
        end = time.monotonic() + _START
        while time.monotonic() < end:
            try:
                line, peer = listener.accept()
            except TimeoutError:
                if self._ended():
                    raise self._not_started() from None
                continue
            if peer_check.is_trusted(peer, line.getsockname()):
                return line
            logger.warning("a connection that was not made by the process of %s was refused", self._who)
            line.close()
        raise self._unfit(f"has not connected within {_START:g} s")

    def _ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _send(self, data: bytes, during: str) -> None:
        assert self._line is not None
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._line.send(rest) :]
            except TimeoutError:
                if self._ended():
                    raise self._died(during) from None
            except OSError:
                raise self._died(during) from None

    def _receive(self, during: str) -> Any:
        length = int.from_bytes(self._read(4, during), "big")
        return json.loads(self._read(length, during))

    def _read(self, size: int, during: str) -> bytearray:
        """Return the next ``size`` bytes from the process."""
        assert self._line is not None
        data = bytearray(size)
        rest = memoryview(data)
        while rest:
            try:
                count = self._line.recv_into(rest)
            except TimeoutError:
                # its own children may hold the connection open
                if not self._ended():
                    continue
                count = 0
            except OSError:
                count = 0
            if not count:
                raise self._died(during)
            rest = rest[count:]
        return data

    def _died(self, during: str) -> SimulatorError:
        assert self._process is not None
        self._unanswered = 0
        where = f"the process of {self._who} ({self._interpreter})"
        try:
            how = describe_exit(self._process.wait(_TERMINATION))
        except subprocess.TimeoutExpired:
            return SimulatorError(f"{where} closed its connection, {during}")
        return SimulatorError(f"{where} was ended {how}, {during}")

    def _error(self, method: str, content: Sequence[Any]) -> Exception:
        """Return what is to be raised for the failure of a request."""
        kind, message = content[:2]
        if kind == "start":
            return self._unfit(f"cannot be used: {message}{_advice(self._path, message)}")
        if kind != "EncodedError":
            return SimulatorError(f"{self._who} ({self._interpreter}) raised {kind}: {message}")
        described = json.loads(message)
        making = method in ("create", "setup")
        where = f"in the interpreter {self._interpreter}"
        if described["ours"]:
            found = getattr(errors, described["type"], None)
            # of a document's errors, which carry more than that, the message is left
            made = ContractError if found in (None, errors.DocumentError) else found
            raised: Exception = made(f"{where}: {described['message']}" if making else described["message"])
            raised.add_note(f"raised {where}:\n{described['traceback']}")
            return raised
        if making:
            return SimulatorError(f"{where}: {described['place']}")
        return SimulatorError(
            f"{self._who} raised {described['type']}: {described['message']}, {where}\n{described['traceback']}"
        )

    def _unfit(self, fault: str) -> ContractError:
        return ContractError(f"interpreter: {self._interpreter!r} {fault}")

    def _not_started(self) -> Exception:
        """Return why the process has ended before it could connect."""
        assert self._process is not None
        how = describe_exit(self._process.wait())
        program = "import sys; print('Python', sys.version_info[0])"
        try:
            done = subprocess.run(
                [self._path, "-c", program],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_START,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            done = None
        if done is not None and done.returncode == 0 and done.stdout.startswith("Python "):
            return SimulatorError(
                f"the process of {self._who} ({self._interpreter}) was ended {how} at its start"
            )
        said = (done.stderr.strip() or done.stdout.strip()) if done is not None else ""
        return self._unfit(
            f"is no Python interpreter, or one that cannot start: it ended {how}"
            + (f", and said: {said.splitlines()[-1][:200]}" if said else "")
        )


def find_interpreter(name: str) -> str:
    """Return the path of the interpreter ``name``; see :class:`RemoteEnvironment`.

    Raises :class:`ContractError` where there is none, or it may not be executed.
    """
    expected = (
        f"expected is a Python interpreter (at least {_LEAST[0]}.{_LEAST[1]}), such as other/bin/python"
    )
    if os.sep not in name and "/" not in name:
        found = shutil.which(name)
        if found is not None:
            return found
        if not os.path.exists(name):
            raise ContractError(
                f"interpreter: there is no command {name!r} in the folders of PATH; {expected}"
            )
    path = Path(name).expanduser()
    if not path.exists():
        place = "" if path.is_absolute() else f" in the working directory {os.getcwd()}"
        raise ContractError(f"interpreter: there is no file {name!r}{place}; {expected}")
    if path.is_dir():
        inside = next((one for one in ("bin/python", "Scripts/python.exe") if (path / one).exists()), None)
        hint = "" if inside is None else f" (did you mean {os.path.join(name, inside)!r}?)"
        raise ContractError(f"interpreter: {name!r} is a folder{hint}; {expected}")
    if not os.access(path, os.X_OK):
        raise ContractError(f"interpreter: {name!r} may not be executed (chmod +x); {expected}")
    # not resolved: a virtual environment is known by the link in it
    return str(path.absolute())


def describe_exit(code: int) -> str:
    """Return how a process has ended: ``"with exit code 3"``, ``"by signal 9 (SIGKILL)"``."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"by signal {-code} ({signal.Signals(-code).name})"
    return f"with exit code {code}"


def _advice(path: str, message: str) -> str:
    """Return what to do about a package that the interpreter lacks."""
    if not message.startswith("it lacks a package"):
        return ""
    return f"; it needs numpy and mosaik-api-v3: {path} -m pip install numpy mosaik-api-v3"


def _variables() -> dict[str, str]:
    """Return the environment variables of the other interpreter.

    Folders that users have made importable here are so there, too; those of this installation must not be.
    """
    variables = dict(os.environ)
    variables.pop("PYTHONHOME", None)
    own = [f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    linked = set(_linked())
    folders = [
        entry
        for entry in map(os.path.abspath, filter(None, sys.path))
        if entry not in linked
        and not {"site-packages", "dist-packages"} & set(Path(entry).parts)
        and not entry.endswith(".zip")
        and not f"{entry}{os.sep}".startswith(tuple(own))
    ]
    variables["PYTHONPATH"] = os.pathsep.join(folders)
    return variables


def _linked() -> Iterator[str]:
    """Yield the folders that installed packages are linked from (``.pth``)."""
    for entry in {*site.getsitepackages(), *sys.path}:
        folder = Path(entry)
        if folder.name not in ("site-packages", "dist-packages") or not folder.is_dir():
            continue
        for file in folder.glob("*.pth"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                for line in file.read_text(encoding="utf-8").splitlines():
                    if line.strip() and not line.startswith(("#", "import ", "import\t")):
                        yield str((folder / line.strip()).resolve())

"""An environment in another interpreter: this side of the connection to :mod:`.environment_host`.

One world can thus use packages that cannot be installed together. The environment is a mosaik simulator in its own
process; both sides use mosaik's protocol over a socket on loopback. To the world it is an ordinary environment:
the same simulator (:class:`~.bridge.EnvironmentSimulator`) holds set-points and requests states, so the trajectories
are identical to those of the environment in this process.
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
from palaestrai_mosaik.core import errors
from palaestrai_mosaik.core.errors import ContractError, NameResolutionError, SimulatorError
from palaestrai_mosaik.core.importing import COMMANDS, limit, refusal
from palaestrai_mosaik.environment.environment import Environment, EnvironmentBaseline, EnvironmentState
from palaestrai_mosaik.experiment.class_names import canonical_name, interpreter_refusal
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
#: seconds for an interpreter to connect, after it has imported numpy, perhaps from a slow disk
_START = 120.0
#: seconds that an answer may take, as for a simulator with a command line
TIMEOUT = 60.0
#: seconds between two checks for the process, while no data arrive
_LOOK, _LOOK_AT_START = 1.0, 0.05
#: seconds for the process to end by itself, and after a request to terminate
_PATIENCE, _TERMINATION = 10.0, 2.0
_LEAST = (3, 11)

#: a method, its arguments and its keywords
Request = tuple[str, Sequence[Any], Mapping[str, Any]]

#: The program of the other interpreter. Packages installed beside this one must stay invisible, so only this one is
#: made importable. The program itself is valid in any release of Python 3.
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
    """An environment of the class ``name``, made with ``params`` by another Python interpreter.

    ``interpreter`` is a path, relative to the working directory, or a command in the folders of
    ``PATH``. The process is started by :meth:`setup` and ended by :meth:`shutdown`, or with this process.

    ``timeout``: seconds that an answer may take; ``None``: :data:`TIMEOUT`.

    Raises :class:`ContractError` if the interpreter cannot be started, :class:`SimulatorError` if the process has
    ended or does not answer, or for an exception of the environment from outside this package. Others are raised with
    their own type.
    """

    def __init__(self, name: str, params: Mapping[str, Any], interpreter: str, timeout: float | None = None):
        self.timeout = TIMEOUT if timeout is None else timeout
        self.name = name
        self.params = dict(params)
        self.interpreter = interpreter
        self._host: _Host | None = None
        self._frames = False
        self._time = 0
        #: the generator in use on the other side
        self._given: np.random.Generator | None = None

    def source_of(self, sensor: str | None) -> str:
        return f"{self.name} in the interpreter {self.interpreter}"

    def enable_frames(self) -> None:
        # the other side checks whether it can render
        self._frames = True

    def render(self) -> Any:
        (frame,) = self._running().ask("in its render", ("render", [], {}))
        return decoded(frame)

    def setup(self) -> EnvironmentBaseline:
        fault = refusal(COMMANDS)
        if fault is not None:
            raise NameResolutionError(interpreter_refusal(fault))
        host = self._host = _Host(self.uid, self.interpreter, self.timeout)
        step_size = vars(self).get("step_size")
        entity = {
            "uid": self.uid,
            "name": canonical_name(self.name),
            "params": encoded(self.params, "params"),
            "step_size": step_size,
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
            # only the other side draws from it, and a reset within an episode must not restart it
            self._given = self.rng
            arguments = [self.worker, self.episode, encoded_generator(self.rng)]
            before.append(("begin", arguments, {}))
        return self._ask_for_state("in its reset", {}, before)

    def step(self, setpoints: FloatVector) -> EnvironmentState:
        inputs = {self.uid: {SETPOINTS: {"world": encoded(setpoints, "set-points")}}}
        return self._ask_for_state("in its step", inputs)

    def state(self) -> Any:
        (stored,) = self._running().ask("in its state", ("keep", [], {}))
        return stored

    def restore(self, state: Any) -> None:
        self._running().ask("in its restore", ("restore", [state], {}))

    def shutdown(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            host.close()

    def _ask_for_state(
        self, during: str, inputs: Mapping[str, Any], before: Sequence[Request] = ()
    ) -> EnvironmentState:
        # all requests in one message, because each wait for an answer costs two context switches
        step: Request = ("step", [self._time, inputs, 0], {})
        data: Request = ("get_data", [{self.uid: [STATE]}], {})
        outputs = self._running().ask(during, *before, step, data)[-1]
        self._time += self.step_size
        return decoded_state(outputs[self.uid][STATE])

    def _running(self) -> _Host:
        if self._host is None:
            raise SimulatorError(f"environment {self.uid!r} is not set up, or has been shut down")
        return self._host


class _Host:
    """The process of an environment and the connection to it."""

    def __init__(self, uid: str, interpreter: str, timeout: float):
        self._timeout = timeout
        #: the monotonic time until which it has to answer
        self._until = 0.0
        self._who = f"environment {uid!r}"
        self._interpreter = interpreter
        self._path = find_interpreter(interpreter)
        self._numbers = itertools.count()
        #: number of unanswered requests
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
                    # Ctrl-C is handled by this process, which ends the other one
                    process_group=0 if os.name == "posix" else None,
                )
            except OSError as error:
                raise self._unfit(f"cannot be executed: {error.strerror}") from error
            self._line = self._accept(listener)
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._line.settimeout(min(_LOOK, self._timeout))

    def ask(self, during: str, *requests: Request) -> list[Any]:
        """Send ``requests`` (method, arguments, keywords) together, and return all answers.

        Raises the first exception after all have been answered.
        """
        self._unanswered = len(requests)
        self._until = time.monotonic() + self._timeout
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
        """Shut the environment down, and end the process."""
        if self._owner != os.getpid():
            return  # a copy in a forked process
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
        """End the process with its children, and forget it."""
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
        """Accept the process's connection; refuse others."""
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
        remaining = memoryview(data)
        while remaining:
            try:
                remaining = remaining[self._line.send(remaining) :]
            except TimeoutError:
                if self._ended():
                    raise self._died(during) from None
                self._refuse_if_late(during)
            except OSError:
                raise self._died(during) from None

    def _receive(self, during: str) -> Any:
        length = int.from_bytes(self._read(4, during), "big")
        return json.loads(self._read(length, during))

    def _read(self, size: int, during: str) -> bytearray:
        """Read the next ``size`` bytes from the process."""
        assert self._line is not None
        data = bytearray(size)
        remaining = memoryview(data)
        while remaining:
            try:
                count = self._line.recv_into(remaining)
            except TimeoutError:
                # children of the process may keep the connection open
                if not self._ended():
                    self._refuse_if_late(during)
                    continue
                count = 0
            except OSError:
                count = 0
            if not count:
                raise self._died(during)
            remaining = remaining[count:]
        return data

    def _refuse_if_late(self, during: str) -> None:
        """Raise :class:`SimulatorError` if the process should have answered by now; it is asked nothing more then."""
        if time.monotonic() > self._until:
            raise SimulatorError(
                f"{self._who} ({self._interpreter}) has not answered for {self._timeout:g} s, {during}; if it needs more "
                "time: timeout, beside interpreter"
            )

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
        """Build the exception for a failed request."""
        kind, message = content[:2]
        if kind == "start":
            return self._unfit(f"cannot be used: {message}{_advice(self._path, message)}")
        if kind != "EncodedError":
            return SimulatorError(f"{self._who} ({self._interpreter}) raised {kind}: {message}")
        described = json.loads(message)
        making = method in ("create", "setup")
        where = f"in the interpreter {self._interpreter}"
        if described["ours"]:
            error_class = getattr(errors, described["type"], None)
            # a document's errors carry further data, so only their message is passed on
            raised_class = ContractError if error_class in (None, errors.DocumentError) else error_class
            raised: Exception = raised_class(
                f"{where}: {described['message']}" if making else described["message"]
            )
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
        """Build the error for a process that ended before it could connect."""
        assert self._process is not None
        how = describe_exit(self._process.wait())
        program = "import sys; print('Python', sys.version_info[0])"
        try:
            trial = subprocess.run(
                [self._path, "-c", program],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_START,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            trial = None
        if trial is not None and trial.returncode == 0 and trial.stdout.startswith("Python "):
            return SimulatorError(
                f"the process of {self._who} ({self._interpreter}) was ended {how} at its start"
            )
        output = (trial.stderr.strip() or trial.stdout.strip()) if trial is not None else ""
        return self._unfit(
            f"is no Python interpreter, or one that cannot start: it ended {how}"
            + (f", and said: {output.splitlines()[-1][:200]}" if output else "")
        )


def find_interpreter(name: str) -> str:
    """Return the path of the interpreter ``name``; see :class:`RemoteEnvironment`.

    Raises :class:`ContractError` if it does not exist or is not executable.
    """
    expected = (
        f"expected is a Python interpreter (at least {_LEAST[0]}.{_LEAST[1]}), such as other/bin/python"
    )
    if os.sep not in name and "/" not in name:
        command = shutil.which(name)
        if command is not None:
            return command
        if not os.path.exists(name):
            raise ContractError(
                f"interpreter: there is no command {name!r} in the folders of PATH; {expected}"
            )
    path = Path(name).expanduser()
    if not path.exists():
        where = "" if path.is_absolute() else f" in the working directory {os.getcwd()}"
        raise ContractError(f"interpreter: there is no file {name!r}{where}; {expected}")
    if path.is_dir():
        inside = [program for program in ("bin/python", "Scripts/python.exe") if (path / program).exists()]
        hint = f" (did you mean {os.path.join(name, inside[0])!r}?)" if inside else ""
        raise ContractError(f"interpreter: {name!r} is a folder{hint}; {expected}")
    if not os.access(path, os.X_OK):
        raise ContractError(f"interpreter: {name!r} may not be executed (chmod +x); {expected}")
    # not resolved, because a virtual environment is identified by the link to its interpreter
    return str(path.absolute())


def describe_exit(code: int) -> str:
    """Describe the end of a process: ``"with exit code 3"``, ``"by signal 9 (SIGKILL)"``."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"by signal {-code} ({signal.Signals(-code).name})"
    return f"with exit code {code}"


def _advice(path: str, message: str) -> str:
    """Return the remedy for a package that the interpreter lacks."""
    if not message.startswith("it lacks a package"):
        return ""
    return f"; it needs numpy and mosaik-api-v3: {path} -m pip install numpy mosaik-api-v3"


def _variables() -> dict[str, str]:
    """Return the environment variables of the other interpreter.

    Folders that users have made importable here are so there as well, but not those of this installation.
    """
    variables = dict(os.environ)
    variables.pop("PYTHONHOME", None)
    installed = [
        f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ]
    linked = set(_linked())
    folders = [
        entry
        for entry in map(os.path.abspath, filter(None, sys.path))
        if entry not in linked
        and not {"site-packages", "dist-packages"} & set(Path(entry).parts)
        and not entry.endswith(".zip")
        and not f"{entry}{os.sep}".startswith(tuple(installed))
    ]
    variables["PYTHONPATH"] = os.pathsep.join(folders)
    return variables


def _linked() -> Iterator[str]:
    """Yield the folders linked by installed packages (``.pth``)."""
    for entry in {*site.getsitepackages(), *sys.path}:
        folder = Path(entry)
        if folder.name not in ("site-packages", "dist-packages") or not folder.is_dir():
            continue
        for file in folder.glob("*.pth"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                for line in file.read_text(encoding="utf-8").splitlines():
                    if line.strip() and not line.startswith(("#", "import ", "import\t")):
                        yield str((folder / line.strip()).resolve())

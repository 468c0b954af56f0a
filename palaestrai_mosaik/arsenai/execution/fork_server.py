"""The fork server: a process that imports the modules of runs once, and forks a process for each run.

It sets up environments once if this speeds up later set-ups, and executes a short run of this package's own classes
before it forks many processes (:func:`warm_up`). It has no threads, keeps no connection to a store, and runs no users'
code. A fork takes a few milliseconds, while a new interpreter needs a second (with the grid: four) to start and
import. The server and its runs end with the driver.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NoReturn

from sqlalchemy.orm import configure_mappers

from palaestrai_mosaik.core.errors import format_traceback
from palaestrai_mosaik.core.importing import load, only_modules
from palaestrai_mosaik.core.printing import write
from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.experiment.model import DOCUMENT_VERSION
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store.store import StoreLocation, package_versions

from .executor import PreloadedClass
from .job import Job
from .run_store import empty_database
from .task import GRACE, execute_jobs, exit_process

#: modules that every run imports, in addition to those imported here
_ALWAYS = (
    "mosaik",
    "numpy.ma",
    "numpy.random",
    "sqlalchemy.dialects.sqlite",
    "pyarrow.parquet",
    "palaestrai_mosaik.agent.library",
    "palaestrai_mosaik.runner.descriptions",
    "palaestrai_mosaik.simulation.conditions",
)
_POLL = 0.05
#: the start with this number triggers the warm-up, because a driver with that many starts will make more
_MANY = 4
#: the document of the warm-up run: one recorded step of this package's own classes
_WARM_UP_RUN: dict[str, Any] = {
    **{"uid": "rehearsal", "seed": 0, "version": DOCUMENT_VERSION},
    "schedule": [
        {
            "rehearsal": {
                "environments": [
                    {"environment": {"uid": "dummy", "name": "dummy", "params": {"max_iter": 1}}}
                ],
                "agents": [
                    {
                        "name": "dummy",
                        "brain": "dummy",
                        "muscle": "dummy",
                        "objective": "dummy",
                        "sensors": ["dummy.0"],
                        "actuators": ["dummy.0"],
                    }
                ],
                "phase_config": {"mode": "train", "workers": 1, "episodes": 1},
            }
        }
    ],
}
#: signals that a scheduler or a lost terminal may send to all processes of a task; ignored, to wait for the runs
_IGNORED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP)


class _Server:
    def __init__(self, connection: Connection, lifeline: int):
        self._connection, self._lifeline = connection, lifeline
        #: the driver's key of each live process, by process id
        self._keys: dict[int, int] = {}
        self._starts = 0
        self._wakeup, self._woken = os.pipe()
        for descriptor in (self._wakeup, self._woken):
            os.set_blocking(descriptor, False)

    def serve(self) -> None:
        # set_wakeup_fd needs an installed handler
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken)
        with contextlib.suppress(EOFError, OSError):
            while True:
                ready = wait([self._connection, self._wakeup])
                if self._wakeup in ready:
                    os.read(self._wakeup, 4096)
                if self._connection in ready:
                    self._handle_message(self._connection.recv())
                for ended in self._reap():
                    self._connection.send(ended)
        self._end_all()

    def _handle_message(self, message: tuple[str, int, Any]) -> None:
        what, key, content = message
        if what == "start":
            self._starts += 1
            if self._starts == _MANY:
                # a failure here also fails the runs, which report it
                with contextlib.suppress(Exception):
                    warm_up()
            self._start(key, content)
            return
        number, whole = content
        for pid, key_of_process in self._keys.items():
            if key_of_process == key:
                _send_signal(pid, number, whole=whole)

    def _start(self, key: int, jobs: Sequence[Job]) -> None:
        with warnings.catch_warnings():
            # Python warns of a thread of pyarrow's allocator, which is safe to fork
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid:
            self._keys[pid] = key
            return
        self._run(jobs)

    def _run(self, jobs: Sequence[Job]) -> NoReturn:
        try:
            # a process group of its own, so that the run's child processes can be killed with it
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, *_IGNORED_SIGNALS):
                signal.signal(number, signal.SIG_DFL)
            self._connection.close()
            os.close(self._wakeup)
            os.close(self._woken)
            exit_process(execute_jobs(jobs, self._lifeline))
        except BaseException as error:
            write(format_traceback(error), sys.stderr, end="")
        finally:
            os._exit(1)

    def _reap(self) -> list[tuple[int, int, int]]:
        """Return the key, exit code and id of every process that has ended."""
        processes = []
        while self._keys:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                break
            # kill its remaining children before its process id can be reused
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(ended.si_pid, signal.SIGKILL)
            _, status = os.waitpid(ended.si_pid, 0)
            code = os.waitstatus_to_exitcode(status)
            processes.append((self._keys.pop(ended.si_pid), code, ended.si_pid))
        return processes

    def _end_all(self) -> None:
        """Wait until the runs have ended after the loss of the driver, and kill those that have not."""
        until = time.monotonic() + GRACE + 1.0
        while self._keys and time.monotonic() < until:
            self._reap()
            time.sleep(_POLL)
        for pid in self._keys:
            _send_signal(pid, signal.SIGKILL, whole=True)


def _send_signal(pid: int, number: int, *, whole: bool) -> None:
    # the process is not reaped yet, so its id is still valid; its group may not exist yet
    if whole:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, number)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _prepare(module: str, name: str, params: dict[str, Any]) -> None:
    """Import a class; set up an environment once if this speeds up later set-ups.

    Modules of other packages in its parameters are left to the runs, which know their allowed modules.
    """
    with only_modules(()):
        loaded = load(f"{module}:{name}")
        if not (isinstance(loaded, type) and issubclass(loaded, World) and loaded.shares_setup):
            return
        environment = loaded(**params)
        try:
            environment.setup()
        finally:
            environment.shutdown()


def warm_up() -> None:
    """Execute a short run of this package's own classes, recorded in a temporary store.

    It fills the caches of SQLAlchemy and pyarrow and computes class attributes for all runs. Otherwise, each run would
    do so, which takes more than a tenth of the time of a short run.
    """
    with (
        only_modules(()),
        tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-") as folder,
        StoreLocation(folder).open(create=True, journal="delete") as store,
    ):
        execute(from_mapping(_WARM_UP_RUN, text=""), store=store)
    # see :func:`serve`
    gc.collect()
    gc.freeze()


def main() -> None:
    """Run the fork server in a new interpreter, with ``connection lifeline`` on the command line."""
    connection, lifeline = Connection(int(sys.argv[1])), int(sys.argv[2])
    sys.argv[1:] = []
    serve(connection, lifeline)


def serve(connection: Connection, lifeline: int) -> None:
    """Run the fork server until the driver is gone.

    Args:
        connection: the connection to the driver, which first sends the classes to prepare.
        lifeline: a file descriptor that is closed at the other end when the driver is gone.
    """
    for number in _IGNORED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    for module in _ALWAYS:
        importlib.import_module(module)
    try:
        parts: Sequence[PreloadedClass] = connection.recv()
    except (EOFError, OSError):
        return
    for part in parts:
        # the run that needs a missing or faulty part reports it
        with contextlib.suppress(Exception):
            _prepare(*part)
    # other work that is done once per process
    package_versions()
    configure_mappers()
    with contextlib.suppress(Exception):  # the runs report it
        empty_database()
    # all runs share the current objects; the garbage collector must not touch them, which would copy their pages
    gc.collect()
    gc.freeze()
    _Server(connection, lifeline).serve()

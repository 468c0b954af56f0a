"""The workplace of a page's actions: processes on this machine that outlive the server, and checks that end with it."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import PalaestraiMosaikError
from palaestrai_mosaik.core.installation import DEFAULT_STORE
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.urls import FILE, VARIABLE, is_database

#: folder for documents and logs of started processes, beside the folders of the runs
FOLDER = "started"
#: environment variable with the URL of the store, because command lines are publicly readable
_STORE_VARIABLE = "PALAESTRAI_MOSAIK_PAGE_STORE"
#: number of characters at a log's end that the page shows
_SHOWN = 8_000
#: maximum duration of a check in seconds
CHECK_TIMEOUT = 600.0
#: maximum number of processes that the page shows
_KEPT = 50


@dataclass
class Started:
    """A process that the page has started.

    Attributes:
        key: identifies the process in addresses.
        title: a readable description.
        log: the file with the output.
        run: the instance that the process resumes; ``None``: it starts a new one, or several.
        folder: the folder of the design that the process executes, if any.
    """

    key: str
    title: str
    log: Path
    process: subprocess.Popen[bytes]
    run: str | None = None
    folder: Path | None = None
    since: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def code(self) -> int | None:
        """The exit code; ``None`` while the process runs."""
        return self.process.poll()

    def printed(self) -> str:
        """Return the last part of the output."""
        try:
            with files.open_read(self.log) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _SHOWN))
                return file.read(_SHOWN).decode("utf-8", "replace")
        except OSError as error:
            return f"{self.log}: {error.strerror}"


class Workplace:
    """Starts processes for the page, each in its own session, with a log below the store.

    Args:
        location: the store for the runs.
        allow_modules: the modules that documents may name; ``None``: all.
    """

    def __init__(self, location: StoreLocation, allow_modules: Sequence[str] | None = None):
        self.location = location
        self.allow_modules = None if allow_modules is None else tuple(allow_modules)
        #: the base of relative paths in documents
        self.directory = Path.cwd()
        database = is_database(location.location)
        #: the folder of the store's files
        self.files = Path((location.directory or DEFAULT_STORE) if database else location.location).absolute()
        self._started: dict[str, Started] = {}
        self._checks: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def write(self, name: str, text: str) -> Path:
        """Write a document that will be executed; return its path."""
        path = self._new(name, ".yml")
        files.write_text(path, text)
        return path

    def start(
        self, title: str, arguments: Sequence[str], *, run: str | None = None, folder: Path | None = None
    ) -> Started:
        """Start ``python -m palaestrai_mosaik`` with these arguments and the store.

        The process outlives the server. :meth:`started` returns its exit code and output.
        """
        log = self._new(title, ".log")
        handle = files.open_log(log)
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "palaestrai_mosaik", *arguments, *self._store_arguments(folder)],
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                cwd=self.directory,
                env=self._environment(),
                start_new_session=True,
            )
        finally:
            os.close(handle)
        child = Started(secrets.token_hex(8), title, log, process, run, folder)
        with self._lock:
            self._started[child.key] = child
            ended_keys = [key for key, other in self._started.items() if other.code is not None]
            for key in ended_keys[: max(0, len(self._started) - _KEPT)]:
                del self._started[key]
        return child

    def started(self) -> list[Started]:
        """Return the started processes, newest first."""
        with self._lock:
            return list(reversed(self._started.values()))

    def check(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Run :mod:`.checking` in a process that ends with the server; return its answer.

        Raises:
            PalaestraiMosaikError: the process did not answer.
        """
        order = {**request, "allow_modules": self.allow_modules}
        with self._lock:
            if self._closed:
                raise PalaestraiMosaikError("the server ends")
            process = subprocess.Popen(
                [sys.executable, "-m", "palaestrai_mosaik.web.checking"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.directory,
                env=self._environment(),
                start_new_session=True,
            )
            self._checks.add(process)
        try:
            answer, printed = process.communicate(json.dumps(order).encode(), CHECK_TIMEOUT)
            result: dict[str, Any] = json.loads(answer)
        except subprocess.TimeoutExpired:
            _kill(process)
            process.communicate()
            raise PalaestraiMosaikError(
                f"the check took longer than {CHECK_TIMEOUT:g} s and was ended"
            ) from None
        except ValueError:
            lines = printed.decode("utf-8", "replace").strip().splitlines()[-1:]
            why = f": {lines[0]}" if lines else ""
            raise PalaestraiMosaikError(
                f"the process of the check ended with the exit code {process.returncode}{why}"
            ) from None
        finally:
            with self._lock:
                self._checks.discard(process)
        return result

    def close(self) -> None:
        """End the checks. Started processes continue."""
        with self._lock:
            self._closed = True
            for process in self._checks:
                _kill(process)

    def _new(self, name: str, suffix: str) -> Path:
        """Return the path of a new file, in a folder that is created if it is missing."""
        folder = self.files / FOLDER
        files.add_root(self.files)
        files.make_folder(self.files, parents=True)
        files.make_folder(folder)
        stem = "".join(letter if letter.isalnum() else "-" for letter in name.removesuffix(".yml"))[
            :40
        ].strip("-")
        return folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{stem or 'run'}-{secrets.token_hex(4)}{suffix}"

    def _environment(self) -> dict[str, str]:
        # the command itself sets the thread limits of its run
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        if self._has_url():
            environment[_STORE_VARIABLE] = self.location.location
        return environment

    def _has_url(self) -> bool:
        location = self.location.location
        return is_database(location) and not location.startswith((FILE, VARIABLE))

    def _store_arguments(self, folder: Path | None) -> list[str]:
        location = f"{VARIABLE}{_STORE_VARIABLE}" if self._has_url() else self.location.location
        if folder is not None and not is_database(location) and Path(location) == folder / "results":
            return []
        files_option = ["--files", str(self.files)] if is_database(location) and folder is None else []
        return ["--store", location, *files_option]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its children."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()

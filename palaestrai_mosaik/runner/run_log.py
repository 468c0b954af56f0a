"""The log of a run: it captures log records without changing the output of other handlers.

Loggers drop INFO by default. During a run, the level of this package's logger and of those of the document's modules is
lowered, and a handler there hides the additional records from other handlers. Warnings of all other loggers are
captured at the root.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from palaestrai_mosaik.core.errors import format_traceback
from palaestrai_mosaik.store.log import LogFile

_PACKAGE = __name__.partition(".")[0]
#: maximum number of lines buffered until the file is open
_MOST_WAITING = 10_000

_lock = threading.RLock()
#: the logs of this process's runs, usually one
_logs: list[RunLog] = []
#: by name, the handlers of loggers with a lowered level, and the number of runs that need each
_gates: dict[str, _Gate] = {}
_wanted: dict[str, int] = {}


class RunLog:
    """The log of a run. It captures the records logged in this process while its block is executed.

    These are records from INFO on of the package and of ``modules``, including submodules, and records from WARNING on
    of all other loggers. They are buffered until :meth:`open` is called.

    Args:
        modules: names of modules.
        who: a prefix for the name of each logger (``worker 2``).
    """

    def __init__(self, modules: Iterable[str] = (), who: str = ""):
        #: names of top-level loggers
        self.packages = tuple(sorted({_PACKAGE, *(name.partition(".")[0] for name in modules)}))
        self.directory: Path | None = None
        self._file: LogFile | None = None
        self._waiting: list[str] = []
        who = f"{who} " if who else ""
        self._format = logging.Formatter(f"%(asctime)s %(levelname)s {who}%(name)s: %(message)s")
        self._format.converter = time.gmtime
        self._format.default_time_format, self._format.default_msec_format = "%Y-%m-%dT%H:%M:%S", "%s.%03dZ"

    def __enter__(self) -> Self:
        with _lock:
            if not _logs:
                logging.getLogger().addHandler(_root)
            _logs.append(self)
            for name in self.packages:
                _wanted[name] = _wanted.get(name, 0) + 1
                if name not in _gates:
                    _gates[name] = _Gate(name)
        return self

    def __exit__(self, *error: object) -> None:
        with _lock:
            _logs.remove(self)
            for name in self.packages:
                _wanted[name] -= 1
                if not _wanted[name]:
                    del _wanted[name]
                    _gates.pop(name).remove()
            if not _logs:
                logging.getLogger().removeHandler(_root)
        if self._file is not None:
            self._file.close()

    def open(self, directory: Path) -> None:
        """Write to the instance's directory from now on, beginning with the buffered lines."""
        self.directory = directory
        self._file = LogFile(directory)
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._file.write("".join(waiting))

    def take(self, record: logging.LogRecord) -> None:
        """Write a record if its logger and level are captured."""
        is_ours = record.name.partition(".")[0] in self.packages
        if record.levelno >= (logging.INFO if is_ours else logging.WARNING):
            self._write(f"{self._format.format(record)}\n")

    def say(self, level: int, text: str) -> None:
        """Write a line of the run itself, which is not passed to any logger."""
        self._write(f"{self._format.format(_record(level, text))}\n")

    def failure(self, error: BaseException) -> None:
        """Write the traceback of a failed run."""
        self.say(logging.ERROR, "the run failed\n" + format_traceback(error).rstrip())

    def _write(self, text: str) -> None:
        if self._file is not None:
            self._file.write(text)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append(text)


class _Gate(logging.Handler):
    """Captures a logger's records, and passes on those that would be logged without a run."""

    def __init__(self, name: str):
        super().__init__()
        self._logger = logger = logging.getLogger(name)
        self._level, self._propagates = logger.level, logger.propagate
        self._shown = logger.getEffectiveLevel()
        if self._shown > logging.INFO:
            logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(self)

    def remove(self) -> None:
        """Restore the logger's settings, except for those changed by others in the meantime."""
        logger = self._logger
        logger.removeHandler(self)
        if self._shown > logging.INFO and logger.level == logging.INFO:
            logger.setLevel(self._level)
        logger.propagate = self._propagates

    def emit(self, record: logging.LogRecord) -> None:
        _take(self, record)
        if self._propagates and self._logger.parent is not None and self._was_enabled(record):
            self._logger.parent.callHandlers(record)

    def _was_enabled(self, record: logging.LogRecord) -> bool:
        """Return whether the record would be logged without a run."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger is not self._logger:
            if logger.level:
                return True  # the level was set explicitly
            logger = logger.parent
        return record.levelno >= self._shown or self._logger.level not in (logging.INFO, self._level)


class _Root(logging.Handler):
    """Captures records at the root. Also prints warnings, because Python does so only if there is no handler."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.name.partition(".")[0] not in _gates:
            _take(self, record)
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not _has_others(record.name):
            last.handle(record)


_root = _Root(logging.WARNING)


def _take(handler: logging.Handler, record: logging.LogRecord) -> None:
    with _lock:
        logs = list(_logs)
    try:
        for log in logs:
            log.take(record)
    except Exception:
        # for example, the message does not match its arguments
        handler.handleError(record)


def _has_others(name: str) -> bool:
    """Return whether a handler of another module receives the records of the logger ``name``."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, _Gate | _Root) for handler in logger.handlers):
            return True
        logger = logger.parent
    return False


def _record(level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord(f"{_PACKAGE}.run", level, "", 0, "%s", (text,), None)

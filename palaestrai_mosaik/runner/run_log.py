"""What is logged during a run goes to the log in its folder, and is shown as it would be without.

Python's loggers leave out INFO unless somebody asks for it. So the level of this package's logger, and of those of
the modules that a document names, is lowered during a run, and a handler there keeps from others what they would not
have got. Warnings of all other loggers are taken where they arrive at the root.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from palaestrai_mosaik.store.log import LogFile

_PACKAGE = __name__.partition(".")[0]
#: lines that wait for a file
_MOST_WAITING = 10_000

_lock = threading.RLock()
#: the logs of the runs of this process, usually one
_logs: list[RunLog] = []
#: by name, the handlers of the loggers that say more during a run, and how many runs want that
_gates: dict[str, _Gate] = {}
_wanted: dict[str, int] = {}


class RunLog:
    """The log of a run; while its block is executed, it takes what is logged in this process.

    Taken is what the package and ``modules`` (and those within them) log from INFO on, and what all others
    log from WARNING on. It waits in memory until :meth:`open` says where it goes.

    Args:
        modules: names of modules.
        who: stands before the name of each logger (``worker 2``).
    """

    def __init__(self, modules: Iterable[str] = (), who: str = ""):
        #: names of loggers that are directly below the root
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
        """Write into the folder of an instance from now on, beginning with what waits."""
        self.directory = directory
        self._file = LogFile(directory)
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._file.write("".join(waiting))

    def take(self, record: logging.LogRecord) -> None:
        """Write a record, if it belongs here."""
        own = record.name.partition(".")[0] in self.packages
        if record.levelno >= (logging.INFO if own else logging.WARNING):
            self._write(f"{self._format.format(record)}\n")

    def say(self, level: int, text: str) -> None:
        """Write a line of the run itself, which no logger shows."""
        self._write(f"{self._format.format(_record(level, text))}\n")

    def failure(self, error: BaseException) -> None:
        """Write why the run failed, with the traceback."""
        self.say(logging.ERROR, "the run failed\n" + "".join(traceback.format_exception(error)).rstrip())

    def _write(self, text: str) -> None:
        if self._file is not None:
            self._file.write(text)
        elif len(self._waiting) < _MOST_WAITING:
            self._waiting.append(text)


class _Gate(logging.Handler):
    """Takes what a logger says during a run, and hands on what it would have said without."""

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
        """Leave the logger as it was, but for what others have changed meanwhile."""
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
        """Whether there would be such a record without a run."""
        logger: logging.Logger | None = logging.getLogger(record.name)
        while logger is not None and logger is not self._logger:
            if logger.level:
                return True  # somebody has asked for it there
            logger = logger.parent
        return record.levelno >= self._shown or self._logger.level not in (logging.INFO, self._level)


class _Root(logging.Handler):
    """Takes what arrives at the root; Python prints warnings only where no handler is, so this does it, too."""

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
        # a message that does not fit its arguments, for instance
        handler.handleError(record)


def _has_others(name: str) -> bool:
    """Whether another handler than those of this module gets what the logger ``name`` says."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(not isinstance(handler, _Gate | _Root) for handler in logger.handlers):
            return True
        logger = logger.parent
    return False


def _record(level: int, text: str) -> logging.LogRecord:
    return logging.LogRecord(f"{_PACKAGE}.run", level, "", 0, "%s", (text,), None)

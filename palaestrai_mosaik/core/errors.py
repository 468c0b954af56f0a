"""All exceptions of this package, in one hierarchy.

::

    PalaestraiMosaikError
    ├── DocumentError            a document is unsound; lists all problems
    ├── NameResolutionError      a ``package.module:Class`` cannot be imported
    ├── SpaceError               a space is ill-defined, or its text cannot be parsed
    ├── ContractError            a user's class broke a contract (wrong shape, wrong type)
    │   ├── ActionError          a set-point lies outside its actuator's space
    │   └── RenderError          frames are requested of an environment that cannot render any
    ├── SimulationError          the co-simulation of an episode failed
    │   ├── SimulatorError       a mosaik simulator raised, died or stopped answering
    │   └── PowerFlowError       a power flow diverged and the document says to fail
    ├── BrainDumpError           a brain's dump is missing or damaged
    ├── CheckpointError          a checkpoint cannot be written, or the run cannot continue from it
    ├── StoreError               results cannot be written, opened or found
    ├── ExecutionError           the runs of a design folder cannot be executed
    │   └── SchedulerError       a cluster's scheduler does not answer, or refuses
    ├── RunInterrupted           the user ended the run (Ctrl-C); its recording is kept
    └── RunPruned                a search stopped the run early; its recording is kept

Errors of users' own code (a muscle that raises ``ValueError``) are not wrapped: they
stop the run, are recorded with their traceback, and reach the caller unchanged.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from palaestrai_mosaik.core.printing import abridge

#: exit codes of commands and of processes that execute runs, also in the records of runs
FINISHED, FAILED, UNSOUND, INTERRUPTED = 0, 1, 2, 130


class PalaestraiMosaikError(Exception):
    """Base of all errors that this package raises itself; messages are abridged, because they may quote long values."""

    def __init__(self, *args: object):
        super().__init__(*(abridge(arg) if isinstance(arg, str) else arg for arg in args))


@dataclass(frozen=True)
class Problem:
    """One fault of a document.

    ``path`` is the path of the fault inside the document (``schedule.0.phase_0.agents.1``),
    ``line`` is 1-based (``None`` if the document did not come from text).
    """

    message: str
    path: str = ""
    file: str = ""
    line: int | None = None

    def __post_init__(self) -> None:
        for name in ("message", "path", "file"):
            object.__setattr__(self, name, abridge(getattr(self, name)))

    def __str__(self) -> str:
        position = self.file
        if self.line is not None:
            position += f":{self.line}"
        prefix = ": ".join(part for part in (position, self.path) if part)
        return f"{prefix}: {self.message}" if prefix else self.message


class DocumentError(PalaestraiMosaikError):
    """A document is unsound. ``problems`` has all problems, in document order.

    ``partial`` has the readable parts of a run document, if any
    (:class:`~palaestrai_mosaik.experiment.PartialDocument`), for further checks.
    """

    def __init__(self, problems: Iterable[Problem], partial: Any = None):
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.partial = partial
        # each problem is abridged on its own
        Exception.__init__(self, "\n".join(str(p) for p in self.problems))


class NameResolutionError(PalaestraiMosaikError):
    """A class named in a document cannot be found."""


class SpaceError(PalaestraiMosaikError, ValueError):
    """A space is ill-defined, or the text of a space cannot be parsed."""


class ContractError(PalaestraiMosaikError):
    """A user's class does not keep its contract."""


class ActionError(ContractError, ValueError):
    """A set-point lies outside the space of its actuator."""


class RenderError(ContractError):
    """Frames are requested of an environment that cannot render any."""


class SimulationError(PalaestraiMosaikError):
    """The co-simulation of an episode failed."""


class SimulatorError(SimulationError):
    """A mosaik simulator raised, died, or stopped answering."""


class PowerFlowError(SimulationError):
    """A power flow diverged and the document says that this is a failure."""


class BrainDumpError(PalaestraiMosaikError):
    """A brain's dump is missing or damaged."""


class CheckpointError(PalaestraiMosaikError):
    """A checkpoint cannot be written, or the run cannot continue from it."""


class PrivateKeyError(CheckpointError):
    """The private key of this user, which signs checkpoints, cannot be read or created."""


class StoreError(PalaestraiMosaikError):
    """Results cannot be written, opened or found."""


class ExecutionError(PalaestraiMosaikError):
    """The runs of a design folder cannot be executed: another process executes them, or files do not fit."""


class SchedulerError(ExecutionError):
    """The scheduler of a cluster does not answer, or refuses a request."""


class RunInterrupted(PalaestraiMosaikError):
    """The user ended the run; its recording until then is kept."""


class RunPruned(PalaestraiMosaikError):
    """A search stopped the run early, because others are better; its recording until then is kept."""


def describe(error: BaseException) -> str:
    """Format an error's message; errors that this package does not raise itself get their class's name as a prefix."""
    text = abridge(str(error))
    return text if isinstance(error, PalaestraiMosaikError) else f"{type(error).__name__}: {text}"


def format_traceback(error: BaseException | traceback.TracebackException) -> str:
    """Format the traceback of an error, with messages abridged."""
    if isinstance(error, BaseException):
        error = traceback.TracebackException.from_exception(error)
    return "".join(f"{abridge(part.rstrip())}\n" for part in error.format())


def did_you_mean(name: str, allowed: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the nearest allowed name, or ``""``."""
    names = [str(a) for a in allowed]
    # a name that differs only in case may be too short to be a close match
    near = [word for word in names if word.lower() == str(name).lower()]
    near = near or get_close_matches(str(name), names, n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""

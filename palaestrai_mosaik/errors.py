"""Every exception of this package, one tree.

::

    PalaestraiMosaikError
    ├── DocumentError            a document is unsound; carries every problem found
    ├── NameResolutionError      a ``package.module:Class`` cannot be imported
    ├── SpaceError               a space is ill-defined, or its text cannot be parsed
    ├── ContractError            a user's class broke a contract (wrong shape, wrong type)
    │   ├── ActionError          a set-point lies outside its actuator's space
    │   └── RenderError          frames are requested of an environment that cannot render any
    ├── SimulationError          the co-simulation of an episode failed
    │   ├── SimulatorError       a mosaik simulator raised, died or stopped answering
    │   └── PowerFlowError       a power flow diverged and the document says to fail
    ├── BrainDumpError           a brain's dump is missing or damaged
    ├── CheckpointError          a checkpoint cannot be written, or the run cannot go on from it
    ├── StoreError               results cannot be written, opened or found
    ├── ExecutionError           the runs of a design folder cannot be executed
    │   └── SchedulerError       a cluster's scheduler does not answer, or refuses
    ├── RunInterrupted           the user ended the run (Ctrl-C); what was recorded is kept
    └── RunPruned                a search stopped the run early; what was recorded is kept

Errors of users' own code (a muscle that raises ``ValueError``) are not wrapped: they
stop the run, are recorded with their traceback, and reach the caller as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

#: exit codes of commands and of processes that execute runs, also in the records of runs
FINISHED, FAILED, UNSOUND, INTERRUPTED = 0, 1, 2, 130


class PalaestraiMosaikError(Exception):
    """Base of all errors that this package raises itself."""


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong in a document.

    ``path`` is the way to the place inside the document (``schedule.0.phase_0.agents.1``),
    ``line`` is 1-based (``None`` where the document did not come from text).
    """

    message: str
    path: str = ""
    file: str = ""
    line: int | None = None

    def __str__(self) -> str:
        place = self.file
        if self.line is not None:
            place += f":{self.line}"
        where = ": ".join(part for part in (place, self.path) if part)
        return f"{where}: {self.message}" if where else self.message


class DocumentError(PalaestraiMosaikError):
    """A document is unsound. ``problems`` holds all that was found, in document order.

    ``partial`` is what could be read of a run document nevertheless, if anything
    (:class:`~palaestrai_mosaik.experiment.PartialDocument`): further checks find more in it.
    """

    def __init__(self, problems: Iterable[Problem], partial: Any = None):
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.partial = partial
        super().__init__("\n".join(str(p) for p in self.problems))


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
    """A checkpoint cannot be written, or the run cannot go on from it."""


class StoreError(PalaestraiMosaikError):
    """Results cannot be written, opened or found."""


class ExecutionError(PalaestraiMosaikError):
    """The runs of a design folder cannot be executed: another process does, or files do not fit."""


class SchedulerError(ExecutionError):
    """The scheduler of a cluster cannot be asked, or refuses what it was asked for."""


class RunInterrupted(PalaestraiMosaikError):
    """The user ended the run; what was recorded until then is kept."""


class RunPruned(PalaestraiMosaikError):
    """A search stopped the run early, because others are better; what was recorded until then is kept."""


def did_you_mean(found: str, allowed: Iterable[str]) -> str:
    """Return ``" (did you mean 'x'?)"`` for the nearest allowed name, or ``""``."""
    names = [str(a) for a in allowed]
    # a name that is right but for its letters' case may be too short to be close
    near = [name for name in names if name.lower() == str(found).lower()]
    near = near or get_close_matches(str(found), names, n=1, cutoff=0.6)
    return f" (did you mean {near[0]!r}?)" if near else ""

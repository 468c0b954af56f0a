"""What the main process and its worker processes say to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .outbox import Batch
from .parts import WorkerPlan
from .worker import EpisodeReport, EpisodeTask

#: whose update it is: ``("muscle", uid)``, or ``("agent", name)`` where it is for all muscles of an agent
UpdateKey = tuple[str, str]


@dataclass(frozen=True)
class Start:
    """The first message of a phase. ``modules``: see :func:`~palaestrai_mosaik.importing.only_modules`."""

    plan: WorkerPlan
    learning: tuple[str, ...]
    recorded: bool
    modules: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Go:
    """Go on, with ``task`` if there is one. ``updates`` are pickled, ``filters`` are by agent."""

    task: EpisodeTask | None = None
    updates: dict[UpdateKey, bytes] = field(default_factory=dict)
    filters: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Rebuild:
    """Make environments and muscles anew."""


@dataclass(frozen=True)
class Save:
    """Return the worker's state."""


@dataclass(frozen=True)
class Restore:
    """Go on from a state."""

    state: bytes


@dataclass(frozen=True)
class End:
    """The phase is over: let everything go."""


@dataclass
class Answer:
    """What a worker process says: each message gets one, an episode as many as it takes.

    ``error`` is the pickled exception (``None`` where it cannot be pickled), ``trace`` its
    traceback. ``problem``: why there is no ``state``. ``globals_used``: a global random generator was used.
    """

    batch: Batch | None = None
    report: EpisodeReport | None = None
    state: bytes | None = None
    problem: str | None = None
    error: bytes | None = None
    trace: str | None = None
    globals_used: bool = False


class RemoteError(Exception):
    """The traceback of an exception in a worker process, as its text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"

"""The state of tasks as a scheduler reports it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from enum import StrEnum

from .submission import Submission


class TaskState(StrEnum):
    """What a scheduler says of a task."""

    #: it waits for its turn, for the first time or again
    QUEUED = "queued"
    RUNNING = "running"
    #: it ended by itself: with exit code 0, and with another one
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failed"
    CANCELLED = "cancelled"
    #: it ended because it was asked to, as its time limit was near
    ASKED_TO_END = "asked to end"
    #: the scheduler has forgotten it, so it is over, and how is unknown
    GONE = "gone"

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self not in (TaskState.QUEUED, TaskState.RUNNING)

    @property
    def failed(self) -> bool:
        """Whether it is over, and not as it was to be."""
        return self in (
            TaskState.FAILED,
            TaskState.TIMED_OUT,
            TaskState.OUT_OF_MEMORY,
            TaskState.NODE_FAILED,
        )


class Scheduler(ABC):
    """Tells what became of tasks, and ends them."""

    @abstractmethod
    def task_states(self, submission: Submission) -> dict[int, TaskState]:
        """Return the state of every task of ``submission``, by number.

        Raises :class:`~palaestrai_mosaik.errors.SchedulerError` where the scheduler does not answer.
        """

    @abstractmethod
    def cancel(
        self, submission: Submission, tasks: Collection[int] | None = None, *, now: bool = False
    ) -> None:
        """End all tasks of ``submission``, or these; what has ended is left. ``now``: what runs is killed.

        Raises :class:`~palaestrai_mosaik.errors.SchedulerError`.
        """

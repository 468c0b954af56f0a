"""The interface of schedulers, and the states of tasks that they report."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from enum import StrEnum

from .submission import Submission


class TaskState(StrEnum):
    """The state of a task, as reported by a scheduler."""

    #: the task waits for its first or next start
    QUEUED = "queued"
    RUNNING = "running"
    #: the task ended by itself, with exit code 0 (completed) or another one (failed)
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NODE_FAILED = "node failed"
    CANCELLED = "cancelled"
    #: the task ended on request, because its time limit was near
    ASKED_TO_END = "asked to end"
    #: the scheduler has forgotten the task, so it has ended in an unknown way
    GONE = "gone"

    @property
    def ended(self) -> bool:
        """Whether the task has ended."""
        return self not in (TaskState.QUEUED, TaskState.RUNNING)

    @property
    def failed(self) -> bool:
        """Whether the task has ended with a failure."""
        return self in (TaskState.FAILED, TaskState.TIMED_OUT, TaskState.OUT_OF_MEMORY, TaskState.NODE_FAILED)


class Scheduler(ABC):
    """Reports the states of tasks, and ends them."""

    @abstractmethod
    def task_states(self, submission: Submission) -> dict[int, TaskState]:
        """Return the state of every task of ``submission``, by number.

        Raises:
            SchedulerError: the scheduler does not answer.
        """

    @abstractmethod
    def cancel(
        self, submission: Submission, tasks: Collection[int] | None = None, *, now: bool = False
    ) -> None:
        """Cancel tasks that have not ended.

        Args:
            submission: the submission.
            tasks: the numbers of the tasks; ``None``: all tasks of the submission.
            now: kill running tasks.

        Raises:
            SchedulerError: the tasks cannot be cancelled.
        """

"""Hands runs of a design folder to Slurm, and leaves them there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from palaestrai_mosaik.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.errors import DocumentError
from palaestrai_mosaik.store.location import StoreLocation

from .choice import Which, choose, select_runs
from .cluster.submission import Submission, TaskRun
from .lock import FolderLock
from .settings import Settings
from .status import RunState, RunStatus, job_records, states_of
from .strays import stray_stores


@dataclass(frozen=True, slots=True)
class SubmitSummary:
    """What was submitted.

    ``submission`` is ``None`` where there was nothing to submit, or nothing should be (``dry_run``);
    ``runs`` are those of it. ``before``: how many others of the ``considered`` runs have each status.
    """

    submission: Submission | None
    runs: tuple[TaskRun, ...]
    considered: int
    before: dict[RunStatus, int]


def submit_missing(
    folder: DesignFolder,
    *,
    which: Which = "missing",
    rows: Collection[int] | None = None,
    store: str | None = None,
    settings: Settings,
    ignore_queue: bool = False,
    dry_run: bool = False,
) -> SubmitSummary:
    """Submit runs of ``folder`` to Slurm. What a live task already has is left out.

    ``which`` and ``rows`` are those of :func:`~palaestrai_mosaik.execution.run_folder`; ``store``:
    where results are collected (default: the folder's ``results``). ``ignore_queue``: what earlier
    submissions have is taken for gone, and Slurm not asked. ``dry_run``: nothing is submitted.

    Raises, with nothing submitted, :class:`~palaestrai_mosaik.errors.ExecutionError` where another
    process executes the folder, :class:`~palaestrai_mosaik.errors.SchedulerError` where Slurm does not
    answer, :class:`~palaestrai_mosaik.errors.DocumentError` where a file of the folder was edited.
    """
    from .cluster.collect import collect_folder
    from .cluster.submit import settle_submissions, submit_folder

    considered = select_runs(folder, rows)
    location = StoreLocation.of(folder.path / RESULTS, store)
    with FolderLock(folder.path):
        problems = folder.verify()
        if problems:
            raise DocumentError(problems)
        if not ignore_queue:
            settle_submissions(folder.path)
        if not dry_run and stray_stores(folder, job_records(folder)):
            # the runs that have their names now would hide them
            collect_folder(folder, location)
        states = states_of(folder, location, held=True, ask=not ignore_queue)
        choice = choose(states, which, considered)
        runs = tuple(task_run(state) for state in choice.chosen)
        submission = submit_folder(folder, runs, settings) if runs and not dry_run else None
    return SubmitSummary(submission, runs, choice.considered, choice.before)


def task_run(state: RunState) -> TaskRun:
    """Return the run of ``state`` for a task, as its next attempt."""
    planned = state.planned
    return TaskRun(planned.uid, planned.hash, planned.file, state.attempts + 1)

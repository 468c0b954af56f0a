"""A cluster task that works on a search, and proposes its settings itself.

It continues until the budget is spent, or its time limit is near. Then its runs stop at their next step, and it
releases their settings, so that another task, or this one after a restart, can continue them.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.design.growing import GrowingFolder
from palaestrai_mosaik.arsenai.execution import Settings
from palaestrai_mosaik.arsenai.execution.cluster.node import (
    TaskOutcome,
    clock,
    make_folders,
    newest_checkpoint,
    print_line,
    print_record,
)
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions
from palaestrai_mosaik.arsenai.execution.local import LocalExecutor
from palaestrai_mosaik.arsenai.execution.processes import DEFAULT_METHOD, StartMethod
from palaestrai_mosaik.arsenai.execution.settings import SlurmSettings
from palaestrai_mosaik.core.printing import count

from .search import Search, executed
from .stores import Worker


def execute_search_task(
    folder: Path,
    number: int,
    task: int,
    *,
    name: str | None,
    method: StartMethod = DEFAULT_METHOD,
    should_end: Callable[[], bool] = lambda: False,
) -> TaskOutcome:
    """Execute runs of settings that the search in ``folder`` proposes, and print the end of each.

    Args:
        folder: the design folder.
        number: number of the submission in it.
        task: number of the task in the submission.
        name: the scheduler's name of the task.
        method: start method of the processes of runs.
        should_end: called once a second; if it returns true, runs are asked to stop, and no others begin.

    Returns:
        The counts of the runs executed now; pruned runs count as finished.

    Raises:
        ExecutionError: the folder does not have the task, or Optuna is missing here.
    """
    submissions = Submissions(folder)
    submission = submissions.read(number, task=task)
    spec = DesignFolder.open(submissions.folder).spec
    make_folders(submissions.folder)
    began = clock(submissions.folder)
    settings = Settings(
        checkpoint_every=submission.checkpoint_every,
        allow_modules=submission.allow_modules,
        fail_fast=submission.fail_fast,
    )
    most = SlurmSettings.of(submission.settings).runs_per_task
    search = Search(
        spec,
        GrowingFolder(spec, submissions.folder),
        settings,
        Worker(None, own_store=True, task=name, most=most),
    )
    executor = LocalExecutor(
        submission.processes,
        timeout=submission.timeout or None,
        # The next run may depend on the end of this one.
        runs_per_process=1,
        preload=submission.preload,
        method=method,
        should_end=should_end,
    )
    print_line(
        f"task {task} of submission {number} of {submissions.folder}, on {socket.gethostname()}: "
        f"the search {spec.uid!r}, {count(len(search.records()), 'setting')} before"
    )
    ended: Counter[str] = Counter()
    try:
        for record in executed(search, executor):
            print_record(record)
            ended[record.status] += 1
            search.ended(record)
    finally:
        search.close()
    not_begun = int(executor.cancelled and search.ended_by is None and not ended["interrupted"])
    moved_on = ended.total() > ended["interrupted"]
    outcome = TaskOutcome(
        finished=ended["finished"] + ended["pruned"],
        failed=ended["failed"],
        interrupted=ended["interrupted"],
        left_out=len(executor.left_out),
        not_begun=not_begun,
        ended=executor.cancelled,
        moved_on=moved_on or any(newest_checkpoint(job) > began for job in search.started),
    )
    words = ", ".join(f"{n} {status}" for status, n in sorted(ended.items())) or "no run"
    ended_by = search.ended_by or (
        "other tasks may need what is left of the budget" if search.reserved else None
    )
    why = "" if ended_by is None else f"; nothing more to begin: {ended_by}"
    print_line(f"{words}{why}")
    return outcome

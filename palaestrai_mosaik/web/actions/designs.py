"""Resuming and cancelling the runs of a design from the page."""

from __future__ import annotations

import shlex
import signal
from typing import Any

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.arsenai.execution.cluster.submission import Submissions
from palaestrai_mosaik.arsenai.execution.cluster.submit import cancel_folder
from palaestrai_mosaik.core.printing import count

from ..resources import Query, Source, resource
from ..workplace import Started, Workplace
from .documents import allowed
from .registry import Body, Refused, action, workplace_of


@resource("design/actions")
def actions(source: Source, query: Query) -> dict[str, Any]:
    """Return which actions are possible: ``resume``, and ``cancel`` (tasks of a cluster, or processes of the page)."""
    workplace, folder = workplace_of(source), _folder(source)
    at_work = _at_work(workplace, folder)
    return {
        "resume": not at_work,
        "cancel": bool(at_work) or _has_tasks(folder),
        "key": at_work[0].key if at_work else None,
    }


@action("design/resume")
def resume(source: Source, body: Body) -> dict[str, Any]:
    """Execute the missing, failed and interrupted runs of the design; of a search, failed settings, too.

    This is ``arsenai resume --retry-failed``.
    """
    workplace, folder = workplace_of(source), _folder(source)
    at_work = _at_work(workplace, folder)
    if at_work:
        raise Refused(f"process {at_work[0].process.pid} executes the runs of this design already")
    path = str(folder.path.absolute())
    process = workplace.start(
        f"arsenai resume {folder.path.name}",
        ["arsenai", "resume", path, "--retry-failed", *allowed(workplace)],
        folder=folder.path.absolute(),
    )
    return {
        "done": f"process {process.process.pid} executes what is missing or has failed",
        "key": process.key,
    }


@action("design/cancel")
def cancel(source: Source, body: Body) -> dict[str, Any]:
    """End the cluster's tasks for the design, and the runs that the page executes."""
    workplace, folder = workplace_of(source), _folder(source)
    messages = []
    for started in _at_work(workplace, folder):
        started.process.send_signal(signal.SIGTERM)
        messages.append(f"process {started.process.pid} was asked to end")
    if _has_tasks(folder):
        ended = cancel_folder(folder.path)
        if ended.jobs:
            messages.append(f"cancelled {count(ended.running, 'running task')}, {ended.queued:,} queued")
    if not messages:
        name = shlex.quote(str(folder.path))
        raise Refused(
            "nothing to cancel: no cluster has tasks of this design, and this page executes none of its runs. "
            f"End another 'arsenai run {name}' where it was started"
        )
    return {"done": "; ".join(messages)}


def _folder(source: Source) -> DesignFolder:
    if source.folder is None:
        raise Refused("this page shows no design")
    return source.folder


def _at_work(workplace: Workplace, folder: DesignFolder) -> list[Started]:
    """Return the running processes that the page has started for the design."""
    path = folder.path.absolute()
    return [started for started in workplace.started() if started.folder == path and started.code is None]


def _has_tasks(folder: DesignFolder) -> bool:
    return any(submission.executor == "slurm" for submission in Submissions(folder.path).all())

"""Cancelling, resuming and labelling runs from the page."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError, PalaestraiMosaikError
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.experiment import loads
from palaestrai_mosaik.runner import earlier_run
from palaestrai_mosaik.store.cancellation import cancel_run, why_not_cancelled
from palaestrai_mosaik.store.labels import LabelChange, Labels

from ..resources import Query, Source, resource
from .documents import allowed
from .registry import Body, Refused, action, workplace_of

_RESUMED = ("interrupted", "lost", "failed")


@resource("run/{run}/actions")
def actions(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return whether a run can be cancelled and resumed, with the reason if it cannot."""
    facts = _facts(source, run)
    here = facts["host"] == socket.gethostname()
    cancel, resume, why = False, False, ""
    if facts["status"] in _RESUMED:
        try:
            _to_resume(source, facts)
            resume = True
        except PalaestraiMosaikError as error:
            why = str(error)
    elif facts["status"] == "running" and not here:
        why = f"it is executed on host {facts['host']!r}: cancel it there"
    elif facts["status"] == "running":
        why = why_not_cancelled(source.store, facts["run"], facts["pid"]) or ""
        cancel = not why
    return {"run": facts["run"], "cancel": cancel, "resume": resume, "why": why}


@action("run/{run}/cancel")
def cancel(source: Source, run: str, body: Body) -> dict[str, Any]:
    """Ask the process of a run to end, like Ctrl-C."""
    workplace_of(source)
    uid = source.store.find_run(run)
    pid = cancel_run(source.store, uid)
    return {
        "done": f"process {pid} was asked to end: run {uid} ends after this step, and keeps what was recorded"
    }


@action("run/{run}/resume")
def resume(source: Source, run: str, body: Body) -> dict[str, Any]:
    """Resume a run from its last checkpoint."""
    workplace = workplace_of(source)
    facts = _facts(source, run)
    if facts["status"] not in _RESUMED:
        raise Refused(f"run {facts['run']} is {facts['status']}; {', '.join(_RESUMED)} runs can be resumed")
    path = workplace.write(facts["document"], _to_resume(source, facts))
    arguments = ["start", str(path), "--resume", *allowed(workplace)]
    process = workplace.start(f"resume {facts['document']}", arguments, run=facts["run"])
    return {"done": f"run {facts['run']} is resumed by process {process.process.pid}", "key": process.key}


@action("run/{run}/label")
def label(source: Source, run: str, body: Body) -> dict[str, Any]:
    """Set the labels of a run, and answer with them: ``name``, ``tags``, ``note``.

    The body's ``name`` and ``note`` replace those of the run; ``""`` removes them, and if they are missing, they are
    kept. ``tags`` is a list of tags to add, ``untag`` of tags to remove. A text that is not allowed is refused with the
    reason; see :meth:`~palaestrai_mosaik.store.Store.label`.
    """
    (labels,) = _label(source, [run], body).values()
    return {"done": f"labelled run {source.store.find_run(run)}", **labels._asdict()}


@action("runs/label")
def label_runs(source: Source, body: Body) -> dict[str, Any]:
    """Set the labels of several ``runs``, a list of uids, like the action for one; they cannot get a name."""
    labels = _label(source, body.texts("runs"), body)
    return {
        "done": f"labelled {count(len(labels), 'run')}",
        "runs": {uid: each._asdict() for uid, each in labels.items()},
    }


def _label(source: Source, runs: Sequence[str], body: Body) -> dict[str, Labels]:
    workplace = workplace_of(source)
    change = LabelChange(
        body.optional_text("name"), body.texts("tags"), body.texts("untag"), body.optional_text("note")
    )
    with workplace.location.open() as store:
        return store.change_labels(runs, change)


def _facts(source: Source, run: str) -> dict[str, Any]:
    uid = source.store.find_run(run)
    facts = source.store.runs(uid).iloc[0]
    return {name: facts[name] for name in ("run", "document", "status", "host", "pid")}


def _to_resume(source: Source, facts: dict[str, Any]) -> str:
    """Return the text of the document for resuming a run.

    Raises:
        Refused: the run cannot be resumed.
    """
    uid, store = facts["run"], source.store
    stored = store.document_of(uid)
    try:
        document = loads(stored.text, f"{facts['document']}.yml")
    except DocumentError as error:
        raise Refused(f"run {uid} cannot be resumed: its document is not sound here: {error}") from None
    if document.hash != stored.hash:
        raise Refused(f"run {uid} cannot be resumed: this release reads its document in another way")
    previous = earlier_run(document, store)
    if previous is None or previous.instance != uid:
        newer = "another run" if previous is None else f"run {previous.instance} ({previous.status})"
        raise Refused(f"run {uid} cannot be resumed: {newer} of the same document is newer")
    if not previous.has_checkpoint:
        raise Refused(f"run {uid} cannot be resumed: it has no checkpoint")
    return stored.text

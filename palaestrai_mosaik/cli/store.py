"""``palaestrai-mosaik list``, ``label``, ``export``, ``delete`` and ``import``: the runs of a store."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core.errors import FAILED, FINISHED, PalaestraiMosaikError, did_you_mean
from palaestrai_mosaik.core.printing import Printable, count
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.labels import LabelChange
from palaestrai_mosaik.store.query.columns import matching_columns
from palaestrai_mosaik.store.query.members import Bodies
from palaestrai_mosaik.store.query.runs import short_ids
from palaestrai_mosaik.store.store import StoreLocation

from .common import read_note
from .output import (
    answer,
    byte_size,
    count_progress,
    duration,
    first_line,
    label_lines,
    rows_of,
    say,
    say_unless_quiet,
    table,
)

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.interop.palaestrai.results import Imported

#: by outcome of an import, its description in the summary
_IMPORTED = {
    "renewed": "brought up to date",
    "known": "were there already",
    "failed": "could not be imported",
}


#: columns of ``list`` that have no room on a narrow terminal first; the run's id has the time of its start
_LEAST = ("phases", "episodes", "duration", "steps", "started")


def list_runs(
    location: StoreLocation,
    *,
    status: Sequence[str] | None = None,
    document: str | None = None,
    since: datetime | None = None,
    last: int | None = None,
    tags: Sequence[str] = (),
    columns: Sequence[str] = (),
) -> int:
    """Print one line per run in the store, newest last.

    Args:
        location: the location of the store.
        status: only runs with one of these statuses.
        document: only runs of documents with a uid that matches this shell pattern.
        since: only runs that began at this time or later.
        last: only so many runs, the newest ones.
        tags: only runs with all of these tags.
        columns: patterns of further columns, see :func:`matching_columns`.
    """
    with location.look() as store:
        runs = store.runs(tags=tags)
        if status is not None:
            runs = runs[runs["status"].isin(status)]
        if document is not None:
            runs = runs[[fnmatchcase(uid, document) for uid in runs["document"]]]
        if since is not None:
            runs = runs[runs["started"] >= since]
        runs = runs if last is None else runs.tail(last)
        rows = store.run_rows(store.run_ids(list(runs["run"])).values()).set_index("run")
        runs = runs.join(rows[["objective", "agent", "fold"]], on="run")
        added = matching_columns(columns, store.columns()) if columns else []
        if added:
            ids = store.run_ids(runs["run"])
            values = store.run_values(added, ids.values()).loc[[ids[run] for run in runs["run"]]]
            runs = runs.join(values.set_index(runs.index))
        answer(runs)
        if not runs.empty:
            say(_run_table(runs, added))
        elif (status, document, since) == (None, None, None) and not tags:
            say(f"no runs in {store.directory}")
        else:
            say(f"no such runs in {store.directory}{_nearest_tag(store, tags)}")
    return FINISHED


def _nearest_tag(store: Store, tags: Sequence[str]) -> str:
    """Return a hint for the first of ``tags`` that no run has."""
    present = {tag for labels in store.runs()["tags"] for tag in labels} if tags else set()
    return next((did_you_mean(tag, sorted(present)) for tag in tags if tag not in present), "")


def _run_table(runs: pd.DataFrame, added: Sequence[str]) -> Printable:
    ids = short_ids(list(runs["run"]))
    headers = [
        *("run", "name", "document", "status", "started", "duration", "phases", "episodes", "steps"),
        *("objective", "of", *added, "error"),
    ]
    rows = [
        (
            ids[run.run],
            None if run.name is None else first_line(run.name, 30),
            first_line(run.document, 40),
            run.status,
            run.started.to_pydatetime(),
            duration(run.duration),
            run.phases,
            run.episodes,
            run.steps,
            *_objective(run),
            *(str(value) if isinstance(value, list) else value for value in values),
            first_line(run.error, 60) if isinstance(run.error, str) else None,
        )
        for run, values in zip(rows_of(runs), runs[[*added]].to_numpy(object), strict=True)
    ]
    return table(headers, rows, statuses="status", leaving=_LEAST, whole=("run", "status"))


def _objective(run: Any) -> tuple[float | None, str | None]:
    """Return the objective of a run in its last finished episode, and its statistic and agent."""
    if run.objective != run.objective:
        return None, None
    return run.objective, first_line(f"{'return' if run.fold == 'sum' else 'mean'} of {run.agent}", 30)


def label(
    location: StoreLocation,
    runs: Sequence[str],
    *,
    name: str | None,
    tags: Sequence[str],
    untag: Sequence[str],
    note: str | None,
) -> int:
    """Set name, tags and note of runs, and print them; see :meth:`Store.label`.

    Args:
        location: the location of the store.
        runs: which runs.
        name: the new name; "" removes it, ``None`` keeps it.
        tags: tags to add.
        untag: tags to remove.
        note: the new note; "-" reads it from standard input, "" removes it, ``None`` keeps it.
    """
    change = LabelChange(name, tags, untag, read_note(note))
    if not change:
        with location.look() as store:
            labels = {uid: store.labels(uid) for uid in dict.fromkeys(map(store.find_run, runs))}
    else:
        with location.open() as store:
            labels = store.change_labels(runs, change)
    answer([{"run": uid, **each._asdict()} for uid, each in labels.items()])
    for uid, each in labels.items():
        lines = [f"  {title:4}  {text}" for title, text in label_lines(each)]
        (say_unless_quiet if change else say)(uid, *(lines or ["  no labels"]))
    return FINISHED


def export(
    location: StoreLocation,
    run: str,
    directory: str,
    format: str,
    *,
    environment: str | None = None,
    body: Bodies | None = None,
) -> int:
    """Write a run, or only the steps of some bodies, as files to ``directory``; print their number and size."""
    with location.look() as store:
        with count_progress("export", "copied", "part") as progress:
            paths = store.export(
                run, directory, format, environment=environment, body=body, progress=progress
            )
        size = sum(path.stat().st_size for path in paths)
        say_unless_quiet(
            f"run {store.find_run(run)}: {count(len(paths), 'file')}, {byte_size(size)}, in {Path(directory)}"
        )
    return FINISHED


def delete(location: StoreLocation, runs: Sequence[str], *, yes: bool) -> int:
    """Delete runs with all their data, after confirmation by the user; return the exit code."""
    from palaestrai_mosaik.store.merge import delete_runs

    with location.open() as opened:
        table = opened.runs()
        uids = list(dict.fromkeys(opened.find_run(run) for run in runs))
        chosen = table[table["run"].isin(uids)]
        for run in rows_of(chosen):
            # the question needs this line even with --quiet
            (say_unless_quiet if yes else say)(
                f"{run.run} ({run.document}, {run.status}, {count(int(run.steps), 'step')})"
            )
        if not yes:
            if not sys.stdin.isatty():
                raise PalaestraiMosaikError("nothing was deleted: use --yes where nobody can be asked")
            say(f"delete {count(len(uids), 'run')} from {opened.directory}? [y/N] ", end="")
            if input().strip().lower() not in ("y", "yes"):
                say_unless_quiet("nothing was deleted")
                return FINISHED
        with count_progress("delete", "deleted") as progress:
            delete_runs(opened, uids, progress)
        say_unless_quiet(f"{count(len(uids), 'run')} deleted")
    return FINISHED


def import_palaestrai(source: str, location: StoreLocation, experiment_run: str | None) -> int:
    """Import the database at ``source``; return the exit code, 1 if an instance could not be imported."""
    from palaestrai_mosaik.interop.palaestrai.results import import_results
    from palaestrai_mosaik.runner.brains import keep_brain

    outcomes: Counter[str] = Counter()
    with location.open(create=True) as store, count_progress("import", "imported", unit="row") as progress:
        for imported in import_results(
            source, store, keep_brain, experiment_run=experiment_run, progress=progress
        ):
            outcomes[imported.outcome] += 1
            _print_import(imported)
        parts = [f"{count(outcomes['imported'], 'run')} imported into {store.directory}"]
        parts += [f"{outcomes[name]} {text}" for name, text in _IMPORTED.items() if outcomes[name]]
        say_unless_quiet(", ".join(parts))
    return FAILED if outcomes["failed"] else FINISHED


def _print_import(imported: Imported) -> None:
    if imported.problem is not None:
        say(f"{imported.run}  {imported.document}: not imported: {imported.problem}", error=True)
        return
    if imported.outcome == "known":
        return
    say_unless_quiet(f"{imported.run}  {imported.document}: {imported.status}, {count(imported.rows, 'row')}")
    say(*(f"  {note}" for note in imported.notes), error=True)

"""The runs of a store in the page: their list, progress and changes, and the head of each."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik import __version__
from palaestrai_mosaik.core.printing import shorten

from ..resources import Query, ResourceError, Source, resource
from .episodes import has_frames
from .grid import has_topology

if TYPE_CHECKING:
    import pandas as pd


@resource("store")
def store(source: Source, query: Query) -> dict[str, Any]:
    """Return the location of the runs, and the uid of the design if the page shows one."""
    return {
        "location": str(source.store.directory),
        "version": __version__,
        "design": None if source.folder is None else source.folder.spec.uid,
        "actions": source.workplace is not None,
    }


@resource("run/{run}")
def run(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the facts of a run that all of its views show at the top.

    ``name`` (or ``null``), ``tags`` (sorted) and ``note`` (or ``null``; with all of its lines) are the labels, which the
    action ``run/ID/label`` sets. ``views`` are the names of the tabs that have content.
    """
    uid = source.store.find_run(run)
    facts = source.store.runs(uid).iloc[0]
    drawn = ["agent"] if source.store.agents(uid)["actuators"].map(len).any() else []
    drawn += ["grid"] if has_topology(source.store, uid) else []
    drawn += ["frames"] if has_frames(source.store, uid) else []
    return {
        **{
            name: facts[name]
            for name in ("run", "document", "experiment", "status", "seed", "started", "ended")
        },
        "fold": source.store.fold(uid),
        **{name: facts[name] for name in ("duration", "episodes", "steps", "error", "hash", "packages")},
        **{name: facts[name] for name in ("name", "tags", "note")},
        "views": ["overview", "time", *drawn, "record"],
    }


#: columns of texts that many runs share; sent as the distinct texts, and an index per row
_SHARED = ("experiment", "status", "phase_name", "agent", "fold")
_NUMBERS = ("id", "phase", "phases", "episodes", "steps")
_FLOATS = ("started", "ended", "episodes_planned", "objective")
#: maximum number of runs per request
_MOST = 200
_POINTS = 40
#: maximum number of characters of a note in the list
_NOTE = 200


@resource("runs")
def runs(source: Source, query: Query) -> dict[str, Any]:
    """Return the table of runs in columns; NaN for unknown values.

    ``since`` (the ``cursor`` of an earlier answer) requests the runs that are new, have not ended, or have ended or got
    other labels since then; ``ids`` adds runs by id. Runs that a dead process has left behind count as ended. ``count`` is the
    number of all runs; a page whose own count differs must reload all runs.

    ``objective`` is the ``fold`` (``sum``, the return, or ``mean``) of the objective of ``agent`` in the last finished
    episode.

    ``rate`` (steps per second) and ``left`` (seconds) of a running run are those of its last episodes. ``labels`` has
    the labelled runs of the answer: ``rows`` (their indices), and for each ``name`` (or ``null``), ``tags`` (a list) and
    ``note`` (up to 200 characters, or ``null``). All other runs have none.
    """
    store = source.store
    ids: Collection[int] | None = None
    newest, ended, labelled = 0, 0.0, 0.0
    if "since" in query:
        newest, ended, labelled = _cursor(query["since"])
    # before the rows, which may be newer
    changed = store.changed_labels(_after(labelled))
    if "since" in query:
        requested = query.ids()
        later = _after(ended) if ended else None
        requested += [number for number, _ in changed]
        ids = {*store.changed_runs(newest, later), *requested}
    rows = store.run_rows(ids)
    if ids is not None:
        # a lost run does not change until it is resumed
        rows = rows[(rows["status"] != "lost") | rows["id"].isin(requested) | (rows["id"] > newest)]
    running = rows.loc[rows["status"] == "running", "id"].tolist()
    paces = store.paces(running, parts=False)
    columns = _columns(rows)
    for name in ("rate", "left"):
        by_id = {number: getattr(pace, name) for number, pace in paces.items()}
        columns[name] = np.array([by_id.get(number, math.nan) for number in rows["id"]], dtype=float)
    latest = max([newest, *rows["id"].tolist()[-1:]])
    last = np.nanmax([ended, *rows["ended"].tolist()])
    labelled = max([labelled, *(moment.timestamp() for _, moment in changed)])
    return {
        "cursor": f"{latest}-{last:.6f}-{labelled:.6f}",
        "count": store.count_runs(),
        "now": time.time(),
        **columns,
    }


@resource("sparklines")
def sparklines(source: Source, query: Query) -> dict[str, Any]:
    """Return about 40 values of the first agent's objective by episode for each of ``runs``."""
    return source.store.objective_curves(_asked(query), _POINTS)


@resource("paces")
def paces(source: Source, query: Query) -> dict[str, Any]:
    """Return the pace of unfinished ``runs``, with the steps of unfinished episodes.

    For each uid: ``steps`` (of unfinished episodes), ``rate`` (steps per second), ``left`` (seconds).
    """
    ids = source.store.run_ids(_asked(query))
    by_id = source.store.paces(ids.values())
    return {uid: by_id[number]._asdict() for uid, number in ids.items() if number in by_id}


def _asked(query: Query) -> Sequence[str]:
    runs = query.texts("runs")
    if len(runs) > _MOST:
        raise ResourceError(f"runs: expected at most {_MOST} runs, found {len(runs)}")
    return runs


def _cursor(text: str) -> tuple[int, float, float]:
    """Read the newest id, and the times of the last end and of the last change of labels."""
    try:
        newest, *moments = text.split("-")
        ended, labelled = map(float, moments)
        _after(ended), _after(labelled)
        return int(newest), ended, labelled
    except (ValueError, OverflowError, OSError):
        raise ResourceError(f"since: expected the cursor of an earlier answer, found {text!r}") from None


def _after(moment: float) -> datetime:
    """Return the time after ``moment``: databases store whole microseconds."""
    return datetime.fromtimestamp(moment + 1e-6, UTC)


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    columns: dict[str, Any] = {name: rows[name].to_numpy(np.int64) for name in _NUMBERS}
    columns |= {name: rows[name].to_numpy(float) for name in _FLOATS}
    columns |= {name: rows[name].tolist() for name in ("run", "document", "seed")}
    for name in _SHARED:
        numbers: dict[Any, int] = {}
        codes = [numbers.setdefault(text, len(numbers)) for text in rows[name].tolist()]
        columns[name] = {"texts": list(numbers), "codes": np.array(codes, dtype=np.int32)}
    # most runs have no error
    errors = rows.loc[rows["error"].notna(), "error"]
    columns["error"] = {
        "rows": np.flatnonzero(rows["error"].notna().to_numpy()),
        "texts": [next(iter(text.splitlines()), "") for text in errors],
    }
    texts = zip(rows["name"], rows["tags"], rows["note"], strict=True)
    has_labels = np.array([bool(name or tags or note) for name, tags, note in texts], dtype=bool)
    labelled = rows[has_labels]
    columns["labels"] = {
        "rows": np.flatnonzero(has_labels),
        "name": labelled["name"].tolist(),
        "tags": labelled["tags"].tolist(),
        "note": [None if note is None else shorten(note, _NOTE) for note in labelled["note"]],
    }
    return columns

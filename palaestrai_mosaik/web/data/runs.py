"""All runs of a store: what each is, how far it is, and which have changed."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from ..resources import Query, ResourceError, Source, resource

if TYPE_CHECKING:
    import pandas as pd

#: columns of texts that many runs share: sent as the different texts, and for each row the number of its one
_SHARED = ("experiment", "status", "phase_name")
_NUMBERS = ("id", "phase", "phases", "episodes", "steps")
_FLOATS = ("started", "ended", "episodes_planned", "objective")
#: how many runs may be asked for at once
_MOST = 200
_POINTS = 40


@resource("runs")
def runs(source: Source, query: Query) -> dict[str, Any]:
    """Return the table of runs in columns; NaN where something is not known.

    ``since`` (the ``cursor`` of an earlier answer) asks for the runs that are new, have not ended, or have ended since
    then; ``ids`` for further ones. Runs that a dead process has left behind count as ended. ``count`` is how many
    runs there are: one who has others has to ask for all.

    ``rate`` (steps per second) and ``left`` (seconds) of a running run are those of its last episodes.
    """
    store = source.store
    ids: Collection[int] | None = None
    known, ended = 0, 0.0
    if "since" in query:
        known, ended = _cursor(query["since"])
        asked = [int(text) for text in query.texts("ids") if text.isdecimal()]
        # (databases keep whole microseconds)
        later = datetime.fromtimestamp(ended + 1e-6, UTC) if ended else None
        ids = {*store.changed_runs(known, later), *asked}
    rows = store.run_rows(ids)
    if ids is not None:
        # what is lost does not change, until somebody resumes it
        rows = rows[(rows["status"] != "lost") | rows["id"].isin(asked) | (rows["id"] > known)]
    running = rows.loc[rows["status"] == "running", "id"].tolist()
    paces = store.paces(running, parts=False)
    columns = _columns(rows)
    for name in ("rate", "left"):
        found = {number: getattr(pace, name) for number, pace in paces.items()}
        columns[name] = np.array([found.get(number, math.nan) for number in rows["id"]], dtype=float)
    latest = max([known, *rows["id"].tolist()[-1:]])
    last = np.nanmax([ended, *rows["ended"].tolist()])
    return {
        "cursor": f"{latest}-{last:.6f}",
        "count": store.count_runs(),
        "now": time.time(),
        **columns,
    }


@resource("sparklines")
def sparklines(source: Source, query: Query) -> dict[str, Any]:
    """Return for each of ``runs`` at most some 40 values of the first agent's mean objective, by episodes."""
    return source.store.objective_curves(_asked(query), _POINTS)


@resource("paces")
def paces(source: Source, query: Query) -> dict[str, Any]:
    """Return how fast ``runs`` that have not ended are, with the steps of the episodes that still run.

    For each uid: ``steps`` (of unfinished episodes), ``rate`` (steps per second), ``left`` (seconds).
    """
    ids = source.store.run_ids(_asked(query))
    found = source.store.paces(ids.values())
    return {uid: found[number]._asdict() for uid, number in ids.items() if number in found}


def _asked(query: Query) -> Sequence[str]:
    asked = query.texts("runs")
    if len(asked) > _MOST:
        raise ResourceError(f"runs: expected at most {_MOST} runs, found {len(asked)}")
    return asked


def _cursor(text: str) -> tuple[int, float]:
    known, _, ended = text.partition("-")
    try:
        moment = float(ended)
        datetime.fromtimestamp(moment, UTC)
        return int(known), moment
    except (ValueError, OverflowError, OSError):
        raise ResourceError(f"since: expected the cursor of an earlier answer, found {text!r}") from None


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    columns: dict[str, Any] = {name: rows[name].to_numpy(np.int64) for name in _NUMBERS}
    columns |= {name: rows[name].to_numpy(float) for name in _FLOATS}
    columns |= {name: rows[name].tolist() for name in ("run", "document", "seed")}
    for name in _SHARED:
        numbers: dict[Any, int] = {}
        codes = [numbers.setdefault(text, len(numbers)) for text in rows[name].tolist()]
        columns[name] = {"texts": list(numbers), "codes": np.array(codes, dtype=np.int32)}
    # most runs have none
    errors = rows.loc[rows["error"].notna(), "error"]
    columns["error"] = {
        "rows": np.flatnonzero(rows["error"].notna().to_numpy()),
        "texts": [next(iter(text.splitlines()), "") for text in errors],
    }
    return columns

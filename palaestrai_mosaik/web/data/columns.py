"""Columns that users add to the list of runs: parameters that differ, and metrics."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from palaestrai_mosaik.store.query.columns import STEPS

from ..resources import Query, ResourceError, Source, resource

#: maximum number of columns per request
_MOST = 50
#: seconds for reading statistics from files per request
_SECONDS = 0.5
#: characters of names that keys leave as they are
_PLAIN = ".:*-_/"


@resource("runs/columns")
def columns(source: Source, query: Query) -> dict[str, Any]:
    """Return the columns that the list of runs can have.

    ``parameters`` are the paths at which documents of the store differ: ``key``, ``path``, ``runs`` (the number of runs
    that have it) and ``values`` (the number of different values). ``metrics`` are the objectives, rewards and statistics
    of agents: ``key``, ``kind`` (``objective``, ``reward`` or ``statistic``), ``agent``, ``name`` (empty for an
    objective) and ``folds``, how to take one value from the episodes of the last phase, the usual one first (``last``,
    ``best``, ``mean``, ``min``, ``max``). ``steps`` are the folds of the steps of an episode, the usual one first.

    A key is used in addresses as it is. That of a metric's column is ``KEY:FOLD``, or ``KEY:STEPS:FOLD``, as in
    ``objective.defender:sum:best``.
    """
    available = source.store.columns()
    return {
        "parameters": [
            {
                "key": _key(parameter.name),
                "path": parameter.name,
                "runs": parameter.runs,
                "values": parameter.values,
            }
            for parameter in available.parameters
        ],
        "metrics": [
            {"key": _key(metric.source), **metric._asdict(), "folds": metric.folds}
            for metric in available.metrics
        ],
        "steps": STEPS,
    }


@resource("runs/values")
def values(source: Source, query: Query) -> dict[str, Any]:
    """Return the values of runs in ``columns``, up to 50 keys separated by commas.

    ``ids`` restricts the answer to runs with these ids, as the resource ``runs`` has them: those that it has reported as
    changed. Without it, all runs are answered, oldest first. ``id`` has their ids, and ``columns`` by key the values in
    this order: numbers, with NaN for none, of a metric; texts, numbers, lists or ``null`` of a parameter.

    Statistics are read from files, those of ended runs once. ``pending`` are the ids of runs that are not read yet; the
    page shows no value for them, and asks again.
    """
    keys = list(dict.fromkeys(query.texts("columns")))
    if not 1 <= len(keys) <= _MOST:
        raise ResourceError(f"columns: expected 1 to {_MOST} columns, found {len(keys)}")
    ids = query.ids() if "ids" in query else None
    frame = source.store.run_values([unquote(key) for key in keys], ids, seconds=_SECONDS)
    return {
        "id": frame.index.to_numpy(np.int64),
        "columns": {
            key: frame[name].to_numpy() if frame[name].dtype == float else frame[name].tolist()
            for key, name in ((key, unquote(key)) for key in keys)
        },
        "pending": frame.attrs["pending"],
    }


def _key(name: str) -> str:
    """Return the name of a column without commas, which separate columns in a query."""
    return quote(name, safe=_PLAIN)

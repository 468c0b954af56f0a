"""The head of a run in the page."""

from __future__ import annotations

from typing import Any

from ..resources import Query, Source, resource
from .frames import has_frames
from .grid import has_topology


@resource("run/{run}")
def run(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the facts of a run that all of its views show at the top.

    ``views`` are the names of the tabs that have content.
    """
    uid = source.store.find_run(run)
    facts = source.store.runs(uid).iloc[0]
    drawn = ["grid"] if has_topology(source.store, uid) else []
    drawn += ["frames"] if has_frames(source.store, uid) else []
    return {
        **{
            name: facts[name]
            for name in ("run", "document", "experiment", "status", "seed", "started", "ended")
        },
        **{name: facts[name] for name in ("duration", "episodes", "steps", "error", "hash", "packages")},
        "views": ["overview", "time", *drawn, "record"],
    }

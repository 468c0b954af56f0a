"""The store in the page."""

from __future__ import annotations

from typing import Any

from palaestrai_mosaik import __version__

from ..resources import Query, Source, resource


@resource("store")
def store(source: Source, query: Query) -> dict[str, Any]:
    """Return the location of the runs, and the uid of the design if the page shows one."""
    return {
        "location": str(source.store.directory),
        "version": __version__,
        "design": None if source.folder is None else source.folder.spec.uid,
        "actions": source.workplace is not None,
    }

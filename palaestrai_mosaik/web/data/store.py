"""What the page shows of the store itself."""

from __future__ import annotations

from typing import Any

from palaestrai_mosaik import __version__

from ..resources import Query, Source, resource


@resource("store")
def store(source: Source, query: Query) -> dict[str, Any]:
    """Return where the runs are, and of which design, if the page shows one."""
    return {
        "location": str(source.store.directory),
        "version": __version__,
        "design": None if source.folder is None else source.folder.spec.uid,
        "actions": source.workplace is not None,
    }

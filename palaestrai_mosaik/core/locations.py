"""The default location of the store of results."""

from __future__ import annotations

import os

#: the environment variable with another default location
STORE_VARIABLE = "PALAESTRAI_MOSAIK_STORE"
#: a folder in the working directory
DEFAULT_STORE = "palaestrai-results"


def default_store() -> str:
    """Return the folder or URL of the default store."""
    return os.environ.get(STORE_VARIABLE) or DEFAULT_STORE

"""The source of a page: a store, the folder of a design, and the workplace for actions."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from palaestrai_mosaik.arsenai.design.folder import DesignFolder
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.database import MissingStoreError
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.urls import is_database

if TYPE_CHECKING:
    from .workplace import Workplace

#: seconds between two checks for a store that does not exist yet
_LOOK_AGAIN = 1.0


class Source:
    """The data that a page shows.

    Args:
        store: the store of the runs, opened for reading; or its location, if the store may not exist before the first
            run.
        folder: the folder of the design that has the runs, if a design is shown.
        workplace: executes the actions of the page; ``None``: the page only shows.
    """

    def __init__(
        self,
        store: Store | StoreLocation,
        folder: DesignFolder | None = None,
        workplace: Workplace | None = None,
    ):
        self.folder = folder
        self.workplace = workplace
        self._location = store if isinstance(store, StoreLocation) else None
        self._store = store if isinstance(store, Store) else None
        self._opening = threading.Lock()
        self._empty: Store | None = None
        self._empty_folder: tempfile.TemporaryDirectory[str] | None = None
        self._looked = 0.0

    @property
    def store(self) -> Store:
        """The store; an empty one until a store exists at the location.

        Raises:
            StoreError: the store exists, but cannot be opened.
        """
        return self._store or self._open()

    def look_again(self) -> None:
        """Look for the store at the next use of :attr:`store`, without waiting for the next check."""
        self._looked = float("-inf")

    def close(self) -> None:
        """Close the store."""
        for store in (self._store, self._empty):
            if store is not None:
                store.close()
        if self._empty_folder is not None:
            self._empty_folder.cleanup()

    def _open(self) -> Store:
        with self._opening:
            location = self._location
            if self._store is not None or location is None:
                assert self._store is not None
                return self._store
            if self._empty is None or time.monotonic() - self._looked > _LOOK_AGAIN:
                self._looked = time.monotonic()
                try:
                    self._store = location.look()
                    return self._store
                except MissingStoreError:
                    pass
            if self._empty is None:
                self._empty = self._make_empty(location)
            return self._empty

    def _make_empty(self, location: StoreLocation) -> Store:
        """Create an empty database in a temporary folder.

        Its folder of files is the one that the store will have; nothing is created at the location.
        """
        self._empty_folder = tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-")
        database = Path(self._empty_folder.name, "empty.db")
        files = location.directory if is_database(location.location) else location.location
        return Store(f"sqlite:///{database}", directory=files, create=True)

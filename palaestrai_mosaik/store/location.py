"""The location of the results of many runs, as plain data that can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .sqlite_files import Journal
from .store import Store
from .urls import absolute, is_database, shown


@dataclass(frozen=True, slots=True, repr=False)
class StoreLocation:
    """The location of a store: a folder or database, and a database's folder of files.

    ``location`` may contain a password, so use it only to open the store; print and write
    :attr:`shown` instead.
    """

    location: str
    directory: str | None = None

    @classmethod
    def of(cls, results: Path, store: str | Path | None = None) -> Self:
        """Locate ``store``, or else the folder ``results``, which also holds the files of a database.

        ``store`` is as for :class:`Store`.
        """
        files = str(results.absolute())
        if store is None:
            return cls(files)
        if isinstance(store, str) and is_database(store):
            # it may be opened from another working directory
            return cls(absolute(store), files)
        return cls(str(Path(store).absolute()))

    def __repr__(self) -> str:
        return f"StoreLocation({self.shown!r}, {self.directory!r})"

    @property
    def folder(self) -> Path | None:
        """The folder of the store; ``None`` for a database."""
        return None if is_database(self.location) else Path(self.location)

    @property
    def shown(self) -> str:
        """The location without a password."""
        return shown(self.location)

    def open(self, *, create: bool = False, journal: Journal = "wal") -> Store:
        """Open the store; a new one gets ``journal``. Raises :class:`~palaestrai_mosaik.core.errors.StoreError`."""
        return Store(self.location, directory=self.directory, create=create, journal=journal)

    def look(self) -> Store:
        """Open the store read-only. Raises :class:`~palaestrai_mosaik.core.errors.StoreError`."""
        return Store(self.location, directory=self.directory, read_only=True)

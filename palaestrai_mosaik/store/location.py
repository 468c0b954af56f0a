"""Where the results of many runs lie, as plain data that can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .database import Journal
from .store import Store
from .urls import FILE, is_database, shown


@dataclass(frozen=True, slots=True, repr=False)
class StoreLocation:
    """Where results go: a folder or database, and the folder of files that a database needs.

    ``location`` may hold a password, so use it only to open the store: what is printed or
    written anywhere is :attr:`shown`.
    """

    location: str
    directory: str | None = None

    @classmethod
    def of(cls, results: Path, given: str | Path | None = None) -> Self:
        """Return the store ``given``, or the folder ``results``, where also the files of a database lie.

        ``given`` is as for :class:`Store`.
        """
        files = str(results.absolute())
        if given is None:
            return cls(files)
        if isinstance(given, str) and is_database(given):
            if given.startswith(FILE):
                # whoever opens it may do so from another directory
                given = FILE + str(Path(given.removeprefix(FILE)).expanduser().absolute())
            return cls(given, files)
        return cls(str(Path(given).absolute()))

    def __repr__(self) -> str:
        return f"StoreLocation({self.shown!r}, {self.directory!r})"

    @property
    def folder(self) -> Path | None:
        """The folder that is the store; ``None`` where it is a database."""
        return None if is_database(self.location) else Path(self.location)

    @property
    def shown(self) -> str:
        """The location without a password."""
        return shown(self.location)

    def open(self, *, create: bool = False, journal: Journal = "wal") -> Store:
        """Open the store; a new one gets ``journal``. Raises :class:`~palaestrai_mosaik.errors.StoreError`."""
        return Store(self.location, directory=self.directory, create=create, journal=journal)

    def look(self) -> Store:
        """Open the store to be read. Raises :class:`~palaestrai_mosaik.errors.StoreError`."""
        return Store(self.location, directory=self.directory, read_only=True)

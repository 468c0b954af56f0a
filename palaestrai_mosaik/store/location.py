"""Where the results of many runs lie, as plain data that can be sent to another process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from .store import Store


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where results go: a folder or database URL, and the folder of files that a URL needs."""

    location: str
    directory: str | None = None

    @classmethod
    def of(cls, results: Path, given: str | Path | None = None) -> Self:
        """Return the store ``given``, or the folder ``results``, where also the files of a database lie."""
        files = str(results.absolute())
        if given is None:
            return cls(files)
        if "://" in str(given):
            return cls(str(given), files)
        return cls(str(Path(given).absolute()))

    def open(self, *, create: bool = False) -> Store:
        """Open the store. Raises :class:`~palaestrai_mosaik.errors.StoreError`."""
        return Store(self.location, directory=self.directory, create=create)

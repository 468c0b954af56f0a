"""Brains kept in the database of a store, for those who do not see its files."""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from typing import BinaryIO

from palaestrai_mosaik.agent.dumper import BrainDumper
from palaestrai_mosaik.errors import BrainDumpError, StoreError
from palaestrai_mosaik.store import Store


@dataclass(frozen=True)
class StoreBrainDumper(BrainDumper):
    """Keeps the dumps of ``agent`` in phase number ``phase`` of an instance (its uid).

    ``location`` and ``directory`` are those of the :class:`Store`. A ``snapshot`` has dumps
    of its own. The store is opened for each dump, so this object can be pickled and sent
    to other processes.
    """

    # it may hold a password
    location: str = field(repr=False)
    directory: str | None
    instance: str
    phase: int
    agent: str
    snapshot: str = ""

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        with Store(self.location, directory=self.directory, create=False) as store:
            store.keep_brain(
                self.instance, self.phase, self.agent, dump.read(), snapshot=self.snapshot, tag=tag
            )

    def load(self, tag: str = "") -> BinaryIO:
        try:
            with Store(self.location, directory=self.directory, read_only=True) as store:
                kept = store.brain(self.instance, self.phase, self.agent, snapshot=self.snapshot, tag=tag)
        except StoreError as error:
            raise BrainDumpError(str(error)) from error
        return BytesIO(kept)

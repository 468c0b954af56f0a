"""Checks that the next process that opens a store can read its runs.

A process that has an SQLite file open keeps writing to it after the file was deleted or truncated, and gets no error.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from sqlalchemy import text

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.printing import listed

from .database import Database
from .merge import check_rows, instance_states

if TYPE_CHECKING:
    from .store import Store

#: the prefix of messages with an error of :func:`check_recorded`
NOT_READ_BACK = "what was recorded cannot be read back"
#: up to this many runs, their rows are read; for more, SQLite checks the pages of its file, which takes less time
_READ = 20
#: the number of runs that a message names
_LISTED = 3


def check_recorded(store: Store, runs: Sequence[str]) -> None:
    """Check that the next process that opens the store will find these runs.

    The database is opened again by name.

    Args:
        store: the open store that recorded them.
        runs: uids of runs that have ended.

    Raises:
        StoreError: the database is gone or damaged, or lacks some of them.
    """
    if not runs:
        return
    with closing(store.database.open_again()) as database:
        database.repeat(lambda _: _check(database, store, runs))


def _check(database: Database, store: Store, runs: Sequence[str]) -> None:
    with database.reading() as session:
        recorded = {state.uid for state in instance_states(session, runs) if state.status != "running"}
        missing = [run for run in runs if run not in recorded]
        if missing:
            raise StoreError(
                f"the database {database.name} does not have the end of {listed(missing, _LISTED)}; execute them again"
            )
        if len(runs) <= _READ:
            for run in runs:
                check_rows(session, store.instance_directory(run), run)
        elif session.connection().dialect.name == "sqlite":
            result = session.scalar(text("PRAGMA quick_check(1)"))
            if result != "ok":
                raise StoreError(f"the database {database.name} is damaged: {result}")

"""Read-only access to palaestrAI's results database. palaestrAI need not be installed.

Tables and columns are reflected from the database, because releases of palaestrAI have added columns over time. All
queries see the database at the same moment.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store.sqlite_files import check_sqlite
from palaestrai_mosaik.store.urls import database_url, is_database, masked, without_passwords

#: by table, the required columns; others may be missing
_TABLES = {
    "experiments": ("id", "name"),
    "experiment_runs": ("id", "uid", "experiment_id", "document_json"),
    "experiment_run_instances": ("id", "uid", "created_at", "experiment_run_id"),
    "experiment_run_phases": ("id", "uid", "number", "mode", "configuration", "experiment_run_instance_id"),
    "environments": ("id", "uid", "worker_uid", "experiment_run_phase_id"),
    "agents": ("id", "name", "muscles", "configuration", "experiment_run_phase_id"),
    "world_states": ("id", "walltime", "simtime_ticks", "episode", "state_dump", "done", "environment_id"),
    "muscle_actions": (
        *("id", "walltime", "agent_id", "episode", "simtimes", "sensor_readings", "actuator_setpoints"),
        *("rewards", "objective", "done", "rollout_worker_uid"),
    ),
    "brain_states": ("id", "state", "tag", "agent_id"),
}
#: columns with palaestrAI's JSON, which are read as text for the module ``jsonpickle``
_JSON = frozenset(
    {"document_json", "configuration", "parameters", "static_model", "state_dump", "setpoints", "muscles"}
    | {
        "simtimes",
        "sensor_readings",
        "actuator_setpoints",
        "applied_actuator_setpoints",
        "rewards",
        "statistics",
    }
)
#: rows in memory at once, and maximum number of values in an IN (...), which databases limit
_ROWS, _TOGETHER = 1000, 10_000


class PalaestraiDatabase:
    """A results database of palaestrAI: an SQLite file, a URL, ``@FILE`` or ``env:NAME``.

    Raises :class:`StoreError` if it cannot be opened, is not palaestrAI's, or has the tables of another release.
    """

    def __init__(self, location: str):
        self._url = _url_of(location)
        #: the location without a password
        self.name = masked(self._url) if is_database(location) else str(Path(location).absolute())
        sqlite = self._url.get_backend_name() == "sqlite"
        options: dict[str, Any] = {} if sqlite else {"isolation_level": "REPEATABLE READ"}
        with self._errors_as_sentence("open"):
            self._engine = sa.create_engine(_read_only(self._url) if sqlite else self._url, **options)
            self._connection = self._engine.connect()
        try:
            with self._errors_as_sentence("read"):
                if sqlite:
                    self._connection.exec_driver_sql("BEGIN")  # so that all queries see the same state
                self._tables = self._reflected()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        if hasattr(self, "_connection"):
            self._connection.close()
        self._engine.dispose()

    def has(self, table: str, column: str) -> bool:
        """Return whether ``column`` exists in the release that created the database."""
        return column in self._tables[table].c

    def rows(self, table: str, column: str, values: Sequence[Any] | None = None) -> Iterator[Any]:
        """Yield the rows of ``table`` with one of the ``values`` in ``column`` (default: all rows), oldest first.

        Rows are fetched in batches. palaestrAI's JSON is returned as text.
        """
        source = self._tables[table]
        columns = [
            sa.cast(column_of, sa.Text).label(column_of.name) if column_of.name in _JSON else column_of
            for column_of in source.c
        ]
        question = sa.select(*columns).order_by(source.c.id)
        if values is None:
            return self._query(question, _ROWS)
        parts = [self._query(question.where(source.c[column].in_(chunk)), _ROWS) for chunk in _chunks(values)]
        return heapq.merge(*parts, key=lambda row: row.id)

    def ids(self, table: str, column: str) -> list[tuple[Any, Any]]:
        """Return id and ``column`` of each row of ``table``, oldest first, without reading other columns."""
        columns = self._tables[table].c
        question = sa.select(columns.id, columns[column]).order_by(columns.id)
        return [(row[0], row[1]) for row in self._query(question, _ROWS)]

    def count(self, table: str, column: str, values: Sequence[Any]) -> int:
        """Count the rows of ``table`` with one of the ``values`` in ``column``."""
        source = self._tables[table]
        question = sa.select(sa.func.count()).select_from(source)
        parts = (self._query(question.where(source.c[column].in_(chunk)), 1) for chunk in _chunks(values))
        return sum(int(row[0]) for part in parts for row in part)

    def newest_brains(self, agents: Sequence[int]) -> Iterator[Any]:
        """Yield the newest state of each tag of the agents: ``agent_id``, ``tag``, ``state``, number of ``states``."""
        states = self._tables["brain_states"]
        parts = []
        for chunk in _chunks(agents):
            newest = (
                sa.select(sa.func.max(states.c.id).label("id"), sa.func.count().label("states"))
                .where(states.c.agent_id.in_(chunk), states.c.state.is_not(None))
                .group_by(states.c.agent_id, states.c.tag)
                .subquery()
            )
            columns = (states.c.id, states.c.agent_id, states.c.tag, states.c.state, newest.c.states)
            question = sa.select(*columns).join(newest, newest.c.id == states.c.id).order_by(states.c.id)
            parts.append(self._query(question, 1))
        return heapq.merge(*parts, key=lambda row: row.id)

    def rows_if_present(self, table: str, column: str, value: Any) -> list[Any]:
        """Return rows of a table that only exists in some releases."""
        with self._errors_as_sentence("read"):
            if not sa.inspect(self._connection).has_table(table):
                return []
            source = sa.Table(table, sa.MetaData(), autoload_with=self._connection)
            return list(self._connection.execute(sa.select(source).where(source.c[column] == value)))

    def _query(self, question: sa.Select[Any], together: int) -> Iterator[Any]:
        with self._errors_as_sentence("read"):
            yield from self._connection.execute(question.execution_options(yield_per=together))

    def _reflected(self) -> dict[str, sa.Table]:
        names = set(sa.inspect(self._connection).get_table_names())
        if "run_documents" in names:
            raise StoreError(f"{self.name} is a store of this package already: nothing is to be imported")
        missing = sorted(_TABLES.keys() - names)
        if len(missing) == len(_TABLES):
            raise StoreError(f"{self.name} is no results database of palaestrAI: it has none of its tables")
        if missing:
            raise StoreError(self._other_release(f"it lacks {_some(missing, 'table')}"))
        metadata = sa.MetaData()
        tables = {
            name: sa.Table(name, metadata, autoload_with=self._connection, resolve_fks=False)
            for name in _TABLES
        }
        for name, columns in _TABLES.items():
            lacking = [column for column in columns if column not in tables[name].c]
            if lacking:
                raise StoreError(self._other_release(f"its table {name} lacks {_some(lacking, 'column')}"))
        return tables

    def _other_release(self, why: str) -> str:
        return (
            f"{self.name} was made by another release of palaestrAI than 3.5: {why}; "
            "let palaestrAI 3.5 upgrade it: palaestrai database-migrate"
        )

    @contextmanager
    def _errors_as_sentence(self, what: str) -> Iterator[None]:
        """Convert database errors and invalid dates or numbers to one-line :class:`StoreError` without passwords."""
        try:
            yield
        except (SQLAlchemyError, ImportError, ValueError, TypeError, OverflowError) as error:
            text = " ".join(str(getattr(error, "orig", None) or error).split())
            text = without_passwords(text, self._url)
            raise StoreError(f"cannot {what} the database {masked(self._url)}: {text}") from None


def _url_of(location: str) -> sa.URL:
    if is_database(location):
        return database_url(location)
    if not Path(location).is_file():
        raise StoreError(f"there is no database at {location}")
    return sa.URL.create("sqlite", database=location)


def _read_only(url: sa.URL) -> sa.URL:
    """Return a read-only URL of an SQLite file."""
    file = Path(str(url.database)).absolute()
    if not file.is_file():
        raise StoreError(f"there is no database at {file}")
    # SQLite keeps the logs beside the target of a link
    check_sqlite(file.resolve(), followed=True)
    query = {"mode": "ro", "uri": "true"}
    # a database in WAL mode that is not open: SQLite could not create the log in a read-only folder
    if not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists():
        query["immutable"] = "1"
    return url.set(database=f"file:{quote(str(file))}", query=query)


def _some(names: Sequence[str], kind: str) -> str:
    return f"the {kind}{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _chunks(values: Sequence[Any]) -> Iterator[list[Any]]:
    return (list(values[first : first + _TOGETHER]) for first in range(0, len(values), _TOGETHER))

"""palaestrAI's results database and the jsonpickle in its columns, read without executing anything."""

from __future__ import annotations

import base64
import heapq
import json
import math
import os
import re
import reprlib
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import numpy as np
import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.printing import shorten
from palaestrai_mosaik.store.sqlite_files import check_sqlite
from palaestrai_mosaik.store.urls import database_url, is_database, masked, without_passwords

_OBJECT, _STATE, _ID, _TUPLE = "py/object", "py/state", "py/id", "py/tuple"
#: maximum length of excerpts in messages
_SHOWN = 60
#: maximum nesting depth, and maximum number of values in one text after references are resolved
_DEEPEST, _MOST = 100, 10_000_000
#: numeric types as written by NumPy; ``numpy.dtype`` would evaluate others
_DTYPE = re.compile(r"[<>|=]?[fiub][1248]|bool|u?int(8|16|32|64)|float(16|32|64)")
_INT64 = 2**63


class Information(NamedTuple):
    """The value of a sensor, actuator or reward: numbers or nested lists; ``space`` is its text form."""

    uid: str
    value: Any
    space: str


def informations(text: str | None) -> list[Information]:
    """Decode a JSON list of information objects; without a text, return an empty list.

    Raises :class:`StoreError` for any other content.
    """
    data = _parsed(text)
    if data is None:
        return []
    if not isinstance(data, list):
        raise _unreadable(data, "expected is a list of sensors, actuators or rewards")
    if _ID in str(text):
        data = _Objects().restored(data)
    return [_information(item) for item in data]


def mapping(text: str | None, what: str) -> dict[str, Any]:
    """Decode a mapping as in :func:`plain`; without a text, return an empty mapping."""
    data = plain(text)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise _unreadable(data, f"expected is {what}, a mapping")
    return data


def plain(text: str | None) -> Any:
    """Decode other data of palaestrAI to plain data: objects become their state, no text becomes ``None``."""
    data = _parsed(text)
    return None if data is None else _plain(_Objects().restored(data))


def as_float(value: Any, what: str = "a number") -> float:
    """Convert a number to a float. Raises :class:`StoreError` for other types and too large numbers."""
    if not isinstance(value, int | float):
        raise _unreadable(value, f"expected is {what}")
    try:
        return float(value)
    except OverflowError:
        raise _unreadable(value, f"{what} of 64 bits cannot be so large") from None


def as_int(value: Any, what: str) -> int:
    """Convert a number to a 64-bit integer. Raises :class:`StoreError` if it is not one."""
    if not isinstance(value, int | float) or not -_INT64 <= value < _INT64 or value != int(value):
        raise _unreadable(value, f"expected is {what}, a whole number")
    return int(value)


def numbers(value: Any, depth: int = 0) -> Iterator[float]:
    """Yield the numbers in a value, in order, with NaN for missing ones.

    ``depth`` is the number of enclosing lists. Raises :class:`StoreError` if a value is not numeric.
    """
    _check_depth(value, depth)
    if isinstance(value, int | float):
        yield as_float(value)
    elif value is None:
        yield math.nan
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item, depth + 1)
    elif isinstance(value, dict) and "value" in value:
        yield from numbers(value["value"], depth + 1)
    elif isinstance(value, dict) and "values" in value:
        yield from numbers(_array(value), depth + 1)
    elif isinstance(value, dict) and _TUPLE in value:
        yield from numbers(value[_TUPLE], depth + 1)
    else:
        raise _unreadable(value, "expected is a number, a list of numbers, or a value of numpy")


def _parsed(text: str | None) -> Any:
    if not text:
        return None
    try:
        return json.loads(text)
    except (ValueError, TypeError) as error:
        raise _unreadable(text, str(error)) from error
    except RecursionError:
        raise _unreadable(text, f"more than {_DEEPEST} lists and objects are in one another") from None


def _check_depth(value: Any, depth: int) -> None:
    if depth > _DEEPEST:
        raise _unreadable(value, f"more than {_DEEPEST} lists and objects are in one another")


def _information(item: Any) -> Information:
    try:
        state = item[_STATE]
        uid, value, space = state["uid"], state["value"], state["space"]
    except (KeyError, TypeError, IndexError):
        raise _unreadable(item, "expected is an object with uid, value and space") from None
    if not isinstance(uid, str | int) or not isinstance(space, str):
        raise _unreadable(item, "expected is an object whose uid and space are text")
    return Information(str(uid), value, space)


def _array(data: dict[str, Any]) -> Any:
    """Return the values of a NumPy array; large arrays are compressed."""
    values = data["values"]
    if not isinstance(values, str):
        return values
    dtype, shape = str(data.get("dtype")), data.get("shape")
    if not _DTYPE.fullmatch(dtype):
        raise _unreadable(data, f"{dtype[:_SHOWN]} is no type of numbers")
    sizes: list[Any] = shape if isinstance(shape, list) else [shape]
    if not all(type(size) is int and size >= 0 for size in sizes) or math.prod(sizes) > _MOST:
        raise _unreadable(data, f"expected is a shape of at most {_MOST:,} numbers")
    try:
        kind = np.dtype(dtype)
        size = math.prod(sizes) * kind.itemsize
        # limit the output to one byte more than expected, as a protection against decompression bombs
        unpacked = zlib.decompressobj().decompress(base64.b64decode(values), size + 1)
        if len(unpacked) != size:
            raise _unreadable(data, f"it does not have the {size} bytes of its shape")
        array = np.frombuffer(unpacked, dtype=kind)
        if data.get("byteorder") == "S":
            array = array.byteswap()
        return array.reshape(sizes, order=data.get("order", "C")).tolist()
    except (ValueError, TypeError, zlib.error) as error:
        raise _unreadable(data, str(error)) from error


def _plain(value: Any, depth: int = 0) -> Any:
    _check_depth(value, depth)
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if _TUPLE in value:
        return _plain(value[_TUPLE], depth + 1)
    if _STATE in value:
        return _plain(value[_STATE], depth + 1)
    if str(value.get(_OBJECT, "")).startswith("numpy."):
        return _array(value) if "values" in value else value.get("value")
    return {key: _plain(item, depth + 1) for key, item in value.items() if key != _OBJECT}


class _Objects:
    """Resolves ``py/id`` references. Objects, mappings and lists are numbered in the order in which they begin."""

    def __init__(self) -> None:
        self._known: list[Any] = []
        #: the size of each object including references, or 0 while it is being read
        self._sizes: list[int] = []
        self._size = 0

    def restored(self, data: Any, depth: int = 0) -> Any:
        """Return ``data`` with resolved references. Raises :class:`StoreError` if an object contains itself."""
        _check_depth(data, depth)
        self._grow(1)
        if not isinstance(data, list | dict):
            return data
        if _ID in data and isinstance(data, dict):
            return self._referred(data)
        if _TUPLE in data and isinstance(data, dict):
            items = data[_TUPLE]
            if not isinstance(items, list):
                raise _unreadable(data, "expected is a list of what is in it")
            return [self.restored(item, depth + 1) for item in items]
        # reserve the index before reading the contents
        index, before = len(self._known), self._size
        self._known.append(None)
        self._sizes.append(0)
        restored: Any
        if isinstance(data, list):
            restored = [self.restored(item, depth + 1) for item in data]
        else:
            restored = {key: self.restored(item, depth + 1) for key, item in data.items()}
        self._known[index], self._sizes[index] = restored, self._size - before + 1
        return restored

    def _referred(self, data: dict[str, Any]) -> Any:
        index = data[_ID]
        if type(index) is not int or not 0 <= index < len(self._known):
            raise _unreadable(data, f"{len(self._known)} objects stand before it")
        if not self._sizes[index]:
            raise _unreadable(data, "it refers to what it is in")
        self._grow(self._sizes[index])
        return self._known[index]

    def _grow(self, size: int) -> None:
        self._size += size
        if self._size > _MOST:
            raise StoreError(f"cannot read more than {_MOST:,} values in one text")


def _unreadable(data: Any, why: str) -> StoreError:
    # abbreviated, because the data may be large or too deeply nested
    excerpt = data if isinstance(data, str) else reprlib.repr(data)
    return StoreError(f"cannot read {shorten(excerpt, _SHOWN)}: {why}")


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

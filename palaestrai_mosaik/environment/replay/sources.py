"""Sources of recorded sessions: npz and Parquet files, pools on disk, stores."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.lib.npyio import NpzFile

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import Array, IntVector

from .pool import SessionPool
from .sessions import (
    ENDS,
    NUMBERS,
    REWARDS,
    Field,
    Sessions,
    Signature,
    ends_of,
    entries,
    finals,
    offsets_of,
    reward_names,
)

if TYPE_CHECKING:
    import pyarrow as pa

_ARRAYS = ("observations", "actions", "rewards", "is_alive", "prev_memories", *ENDS)


def read_npz(path: str | Path) -> SessionPool:
    """Read the sessions of an npz file (``numpy.savez``).

    Its arrays have the names of the arguments of :meth:`.pool.SessionPool.load_sessions`:
    ``observations`` [session, tick, ...], ``actions``, ``rewards``, ``is_alive``, ``prev_memories``,
    ``terminated``, ``truncated``. Several observations, actions or memories are called
    ``observations.<name>`` and so on. Dtypes and shapes are those of the arrays.

    Raises :class:`ContractError` if the file is damaged, or its arrays are not such sequences.
    """
    arrays = _npz_arrays(path)
    _check_arrays(path, arrays)
    observed, acted, memories = (
        _named_arrays(arrays, kind) for kind in ("observations", "actions", "prev_memories")
    )
    rewards = arrays.get("rewards")
    try:
        signature = Signature.declared(
            _npz_fields("observation", observed),
            _npz_fields("action", acted),
            REWARDS if rewards is None else reward_names(rewards),
        )
        pool = SessionPool(signature.observations, signature.actions, signature.rewards)
        pool.load_sessions(
            list(observed.values()),
            list(acted.values()),
            rewards,
            arrays.get("is_alive"),
            list(memories.values()) or None,
            terminated=arrays.get("terminated"),
            truncated=arrays.get("truncated"),
        )
    except ContractError as error:
        raise ContractError(f"source: {path}: {error}") from error
    return pool


def _npz_arrays(path: str | Path) -> dict[str, Array]:
    try:
        loaded: Any = np.load(path, allow_pickle=False)
        if not isinstance(loaded, NpzFile):
            raise ContractError(
                f"source: {path} holds one array; expected is a file of several, written by numpy.savez"
            )
        with loaded as file:
            members = file.zip.infolist() if file.zip is not None else []
            _refuse_small(path, [path], sum(int(member.file_size) for member in members))
            return {name: file[name] for name in file.files}
    except MemoryError:
        raise ContractError(
            f"source: {path} is not read: an array of it does not fit into the memory"
        ) from None
    except (OSError, ValueError, SyntaxError, EOFError, BadZipFile, zlib.error, NotImplementedError) as error:
        raise ContractError(f"source: cannot read {path}: {files.reading_fault(error)}") from None


#: numbers of recordings may take this many bytes, or this many times the size of their files, whichever is more
_MOST_BYTES, _MOST_GROWTH = 2**30, 200


def _refuse_small(path: str | Path, paths: Sequence[str | Path], size: int) -> None:
    """Raise :class:`ContractError` if small files would take ``size`` bytes of memory."""
    on_disk = sum(Path(file).stat().st_size for file in paths)
    if size > max(_MOST_BYTES, _MOST_GROWTH * on_disk):
        raise ContractError(f"source: {path} is not read: its {on_disk:,} bytes would become {size:,}")


def _check_arrays(path: str | Path, arrays: Mapping[str, Array]) -> None:
    """Raise :class:`ContractError` for an array with another name, too few axes, or no numbers."""
    for name, array in arrays.items():
        kind = name.split(".", 1)[0]
        if kind not in _ARRAYS:
            raise ContractError(
                f"source: {path} has the array {name!r}{did_you_mean(name, _ARRAYS)}; expected are "
                f"{', '.join(_ARRAYS)}"
            )
        axes = ("session",) if kind in ("prev_memories", *ENDS) else ("session", "tick")
        if array.dtype.kind not in NUMBERS or array.ndim < len(axes) or 0 in array.shape[len(axes) :]:
            raise ContractError(
                f"source: {path}: {name} is {array.dtype} of shape {array.shape}, expected are numbers "
                f"[{', '.join(axes)}, ...]"
            )
        if name != kind and kind in arrays:
            raise ContractError(
                f"source: {path} has {kind!r} and {name!r}; either there is one, or all of them have names"
            )


def _named_arrays(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """Return the arrays of a kind by name; a single array may have the name ``""``."""
    if kind in arrays:
        return {"": arrays[kind]}
    return {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith(f"{kind}.")}


def _npz_fields(kind: str, arrays: Mapping[str, Array]) -> list[Field]:
    return [Field(name or kind, array.shape[2:], array.dtype) for name, array in arrays.items()]


Source = Mapping[str, Any]
Columns = Mapping[str, Array]

#: the columns that identify a session in a store's rows; any of them may be missing
SESSION_KEYS = ("phase", "agent", "evaluation", "worker", "episode", "body", "environment_episode")
#: key that separates rows of different folders, with a name that no file's column has
_FOLDER = "number of the folder"
#: placeholder for the number of a body or incarnation, in names shared by all of them
ANY_BODY = ".{body}."

#: the keys of a source that is a store
STORE_KEYS = ("store", "run", "instance", "phase", "agent", "body", "mode", "evaluation")
#: the kinds of sources that are files
FILE_KINDS = ("pool", "npz", "parquet")
_PARQUET_KEYS = ("observations", "actions", "rewards", "session", "tick", *ENDS)


def read_source(
    source: Source | SessionPool, read_store: Callable[[Source], SessionPool] | None = None
) -> SessionPool:
    """Read the sessions of ``source``, an entry of a document.

    Args:
        source: ``{pool: directory}`` (:meth:`SessionPool.save`), ``{npz: file}`` (:func:`read_npz`),
            ``{parquet: file, folder or pattern, ...}`` (:func:`read_parquet`), or ``{store: ..., run: ...,
            ...}``. A pool is returned unchanged.
        read_store: reads a source that is a store; ``None``: such a source is an error.

    Raises:
        ContractError: ``source`` has another form or cannot be read.
    """
    if isinstance(source, SessionPool):
        return source
    if not isinstance(source, Mapping):
        raise ContractError(f"source: a mapping is expected, found {source!r}")
    readers: dict[str, tuple[Callable[..., SessionPool], Sequence[str]]] = {
        "pool": (SessionPool.open, ()),
        "npz": (read_npz, ()),
        "parquet": (read_parquet, _PARQUET_KEYS),
    }
    for kind, (read, keys) in readers.items():
        if kind in source:
            check_keys(source, (kind, *keys))
            path, keywords = source[kind], {key: source[key] for key in keys if key in source}
            if not isinstance(path, str | Path):
                raise ContractError(f"source: {kind}: a path is expected, found {path!r}")
            return read(path, **keywords)
    if any(key in source for key in STORE_KEYS):
        if read_store is None:
            raise ContractError(
                "source: a store can be read where a run is executed; here, load its sessions with "
                "palaestrai_mosaik.runner.recorded_sessions.read_sessions"
            )
        return read_store(source)
    kinds = (*readers, *STORE_KEYS)
    hint = did_you_mean(next(iter(source), ""), kinds)
    raise ContractError(
        f"source: one of {', '.join(kinds)} is expected, found {listed(list(source), 8) or 'nothing'}{hint}"
    )


def has_files(source: Source | SessionPool) -> bool:
    """Return whether ``source`` can be read now: a pool, or files that exist."""
    if not isinstance(source, Mapping):
        return True
    kind = next((kind for kind in FILE_KINDS if kind in source), None)
    if kind is None:
        return False
    path = source[kind]
    # a value that is not a path is reported by the reader
    return not isinstance(path, str | Path) or Path(path).exists() or bool(glob(str(path)))


def check_keys(source: Source, keys: Sequence[str]) -> None:
    """Raise :class:`ContractError` if ``source`` has a key that is not in ``keys``."""
    for key in source:
        if key not in keys:
            raise ContractError(
                f"source: there is no key {key!r}{did_you_mean(key, keys)}; the keys are {', '.join(keys)}"
            )


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel of recorded rows: its name, the columns that hold its numbers, and its space."""

    name: str
    columns: tuple[str, ...]
    space: Space | None = None

    def field(self) -> Field:
        """Return its field at one tick: an array of its space's shape, or of one axis."""
        shape: tuple[int, ...] | None = None if self.space is None else self.space.shape
        if shape is None:
            shape = () if len(self.columns) == 1 else (len(self.columns),)
        # recorded values are floats, even those of integer spaces
        return Field(self.name, shape, np.dtype(np.float64), self.space)


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """Rows of one agent: a column for each key, number and flag.

    ``session``: the columns that identify a session; ``tick``: the column that orders a session's
    rows; ``rewards``: the column of each reward; ``terminated`` and ``truncated``: columns, or ``None`` if
    unknown.
    """

    columns: Columns
    observations: Sequence[Channel]
    actions: Sequence[Channel]
    rewards: Mapping[str, str]
    session: Sequence[str]
    tick: str
    terminated: str | None = None
    truncated: str | None = None

    def pool(self) -> SessionPool:
        """Group rows with equal keys into sessions, ordered by tick."""
        if not len(self.columns[self.tick]):
            raise ContractError("source: there are no rows")
        signature = Signature.declared(
            [channel.field() for channel in self.observations],
            [channel.field() for channel in self.actions],
            list(self.rewards),
        )
        order, lengths = self._order()
        lasts = np.cumsum(lengths) - 1
        by_tick = signature.packed("observation", self._values(self.observations, order))
        by_tick |= signature.packed("action", self._values(self.actions, order))
        rewards = [self.columns[name][order].astype(np.float64) for name in self.rewards.values()]
        by_tick["reward"] = np.stack(rewards, axis=1) if rewards else np.zeros((len(order), 0))
        last_seen = {name: by_tick[name][lasts] for name in signature.packed_columns("observation")}
        by_session = finals(last_seen)
        terminated, truncated = (
            None if name is None else self.columns[name][order][lasts].astype(bool)
            for name in (self.terminated, self.truncated)
        )
        by_session |= ends_of(
            np.zeros(len(lasts), dtype=bool) if terminated is None else terminated, truncated
        )
        return SessionPool.of(signature, Sessions(offsets_of(lengths), by_tick, by_session))

    def session_keys(self) -> list[tuple[Any, ...]]:
        """Return the key of each session of :meth:`pool`, its values in the columns of ``session``."""
        order, lengths = self._order()
        firsts = order[np.cumsum(lengths) - lengths]
        return list(zip(*(self.columns[name][firsts].tolist() for name in self.session), strict=True))

    def _values(self, channels: Sequence[Channel], order: IntVector) -> list[Array]:
        return [
            np.stack([self.columns[name][order].astype(np.float64) for name in channel.columns], axis=1)
            for channel in channels
        ]

    def _order(self) -> tuple[IntVector, IntVector]:
        keys = [np.unique(self.columns[name], return_inverse=True)[1] for name in self.session]
        order = np.lexsort([self.columns[self.tick], *reversed(keys)])
        sorted_keys = np.stack([key[order] for key in keys], axis=1) if keys else np.zeros((len(order), 0))
        new = np.append(True, (sorted_keys[1:] != sorted_keys[:-1]).any(axis=1))
        ticks = self.columns[self.tick][order]
        repeated = np.flatnonzero(~new[1:] & (ticks[1:] == ticks[:-1]))
        if len(repeated):
            row = order[repeated[0]]
            where = ", ".join(f"{name} {self.columns[name][row]}" for name in self.session) or "all rows"
            raise ContractError(
                f"source: {self.tick} {self.columns[self.tick][row]} is there twice in one session ({where}): name "
                "further columns that tell sessions apart, or read less at once"
            )
        return order, np.diff(np.append(np.flatnonzero(new), len(order)))


def read_parquet(  # noqa: PLR0913  (independent keys of a document, all optional)
    path: str | Path,
    observations: Mapping[str, Any] | Sequence[str] | None = None,
    actions: Mapping[str, Any] | Sequence[str] | None = None,
    rewards: Sequence[str] | None = None,
    session: Sequence[str] | None = None,
    tick: str = "step",
    terminated: str | None = None,
    truncated: str | None = None,
) -> SessionPool:
    """Read the sessions of Parquet files, which have a row for each tick.

    The defaults are the columns of a store's files: ``reading.*``, ``setpoint.*``, ``reward.*``, worker,
    episode and so on.

    Args:
        path: a file, a folder of files, or a pattern.
        observations: names of columns with one number each, or a mapping of names to lists of columns.
        actions: declared in the same way.
        rewards: names of columns.
        session: the columns that identify a session. By default, a session is also limited to one folder,
            because a store has a folder for each phase.
        tick: the column that orders a session's rows.
        terminated: the column that says in a session's last row if the world ended; ``None``: ``terminated``, if any.
        truncated: the column that says in a session's last row if time ran out; ``None``: ``truncated``, if any.

    Raises:
        ContractError: a column is missing, or a tick occurs twice in a session.
    """
    table, folders = _parquet_table(path)
    names = table.schema.names
    observed = _channels(path, "observations", observations, names, "reading")
    acted = _channels(path, "actions", actions, names, "setpoint")
    rewarded = _rewards(path, rewards, names)
    if session is None:
        keys = [name for name in SESSION_KEYS if name in names]
    else:
        keys = _named(path, "session", session)
    ends = [
        name if column is None and name in names else column
        for name, column in zip(ENDS, (terminated, truncated), strict=True)
    ]
    numbers = [column for channel in (*observed, *acted) for column in channel.columns]
    numbers += [*rewarded.values(), *_named(path, "tick", [tick])]
    for name, end in zip(ENDS, ends, strict=True):
        numbers += [] if end is None else _named(path, name, [end])
    _require_columns(path, names, (*numbers, *keys))
    if not observed:
        raise ContractError(f"source: {path}: name its observations; it has the columns {listed(names, 20)}")
    columns = {name: _numbers(table, name, path) for name in dict.fromkeys(numbers)}
    columns |= {name: _labels(table, name, path) for name in keys if name not in columns}
    if session is None and folders is not None:
        columns[_FOLDER] = folders
        keys.insert(0, _FOLDER)
    return RecordedRows(columns, observed, acted, rewarded, keys, tick, *ends).pool()


def plain_name(uid: str) -> str:
    """Return a channel's name without the placeholder for a body's number."""
    return uid.replace(ANY_BODY, ".")


def channels_of(names: Iterable[str], prefix: str) -> list[Channel]:
    """Return the channels with columns called ``<prefix>.<uid>``, or ``<prefix>.<uid>[i]``."""
    columns_of: dict[str, list[str]] = {}
    for name in names:
        if name.startswith(f"{prefix}."):
            uid = re.sub(r"\[\d+\]$", "", name.removeprefix(f"{prefix}."))
            columns_of.setdefault(uid, []).append(name)
    return [Channel(plain_name(uid), tuple(columns)) for uid, columns in columns_of.items()]


def _parquet_table(path: str | Path) -> tuple[pa.Table, Array | None]:
    """Read Parquet files; return also the number of each row's folder if there are several."""
    text = str(path)
    paths = sorted(glob(str(Path(text) / "*.parquet") if Path(text).is_dir() else text))
    if not paths:
        raise ContractError(f"source: there is no Parquet file at {path}")
    try:
        import pyarrow as arrow
        import pyarrow.dataset as ds

        data = ds.dataset(paths, format="parquet")
        metadata = [part.metadata for part in data.get_fragments()]
        groups = [part.row_group(i) for part in metadata for i in range(part.num_row_groups)]
        columns = (group.column(i) for group in groups for i in range(group.num_columns))
        _refuse_small(path, paths, 8 * sum(column.num_values for column in columns))
        table = data.to_table()
        parts = [(str(Path(part.path).parent), part.count_rows()) for part in data.get_fragments()]
    except (OSError, arrow.ArrowException) as error:
        raise ContractError(f"source: cannot read {path}: {error}") from error
    folders = list(dict.fromkeys(str(Path(file).parent) for file in paths))
    if len(folders) == 1:
        return table, None
    return table, np.repeat(*np.transpose([(folders.index(folder), rows) for folder, rows in parts]))


def _channels(
    path: str | Path,
    kind: str,
    declared: Mapping[str, Any] | Sequence[str] | None,
    names: Sequence[str],
    prefix: str,
) -> list[Channel]:
    """Return the declared channels, or those of all columns called ``<prefix>.<uid>``."""
    if declared is None:
        return channels_of(names, prefix)
    if not isinstance(declared, Mapping):
        return [Channel(name, (name,)) for name in _named(path, kind, declared)]
    channels = []
    for name, columns in declared.items():
        key = f"{kind}.{name}"
        several = (columns,) if isinstance(columns, str) else tuple(_named(path, key, columns))
        if not several:
            raise ContractError(f"source: {path}: {key}: name at least one column")
        channels.append(Channel(str(name), several))
    return channels


def _rewards(path: str | Path, declared: Sequence[str] | None, names: Sequence[str]) -> dict[str, str]:
    """Return the column of each reward."""
    if declared is None:
        return {plain_name(n.removeprefix("reward.")): n for n in names if n.startswith("reward.")}
    return {name: name for name in _named(path, "rewards", declared)}


def _require_columns(path: str | Path, names: Sequence[str], required: Iterable[str]) -> None:
    for name in required:
        if name not in names:
            raise ContractError(
                f"source: {path} has no column {name!r}{did_you_mean(name, names)}; it has: {listed(names, 20)}"
            )


def _named(path: str | Path, key: str, value: Any) -> list[str]:
    """Return the column names listed under a key of a source."""
    names = entries(f"source: {path}: {key}: names of columns", value)
    for name in names:
        if not isinstance(name, str):
            raise ContractError(f"source: {path}: {key}: the name of a column is expected, found {name!r}")
    return names


def _numbers(table: pa.Table, name: str, path: str | Path) -> Array:
    values = table.column(name)
    column: Array = values.to_numpy()
    if column.dtype.kind not in NUMBERS:
        gaps = f" (in row {values.is_null().index(True)} there is none)" if values.null_count else ""
        raise ContractError(f"source: {path}: column {name!r} holds {values.type}, not numbers{gaps}")
    return column


def _labels(table: pa.Table, name: str, path: str | Path) -> Array:
    """Return a column of numbers, text or dates that is only compared."""
    import pyarrow as arrow

    values = table.column(name)
    column: Array = values.to_numpy()
    if column.dtype.kind in NUMBERS:
        return column
    kind = values.type.value_type if arrow.types.is_dictionary(values.type) else values.type
    if arrow.types.is_nested(kind) or arrow.types.is_null(kind):
        raise ContractError(
            f"source: {path}: column {name!r} holds {values.type}, which does not tell sessions apart; allowed are "
            "numbers, text and dates"
        )
    if values.null_count:
        raise ContractError(
            f"source: {path}: column {name!r} has no value in row {values.is_null().index(True)}, so that its session "
            "is not known"
        )
    return column

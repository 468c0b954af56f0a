"""Where recorded sessions come from: npz and Parquet files, pools on disk, stores."""

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

from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.text import listed
from palaestrai_mosaik.types import Space
from palaestrai_mosaik.types.arrays import Array, IntVector

from .pool import SessionPool
from .sequences import finals, reward_names
from .sessions import NUMBERS, REWARDS, Field, Sessions, Signature, entries, offsets_of

if TYPE_CHECKING:
    import pyarrow as pa

_ARRAYS = ("observations", "actions", "rewards", "is_alive", "prev_memories", "terminated")


def read_npz(path: str | Path) -> SessionPool:
    """Return the sessions of an npz file (``numpy.savez``).

    Its arrays are called as the arguments of :meth:`.pool.SessionPool.load_sessions`:
    ``observations`` [session, tick, ...], ``actions``, ``rewards``, ``is_alive``, ``prev_memories``,
    ``terminated``. Where there are several observations or actions (memories), they are
    ``observations.<name>``, ... Dtypes and shapes are those of the arrays.

    Raises :class:`ContractError` where the file is damaged, or its arrays are not such sequences.
    """
    arrays = _npz_arrays(path)
    for name, array in arrays.items():
        kind = name.split(".", 1)[0]
        if kind not in _ARRAYS:
            raise ContractError(
                f"source: {path} has the array {name!r}{did_you_mean(name, _ARRAYS)}; expected are "
                f"{', '.join(_ARRAYS)}"
            )
        axes = ("session",) if kind in ("prev_memories", "terminated") else ("session", "tick")
        if array.dtype.kind not in NUMBERS or array.ndim < len(axes) or 0 in array.shape[len(axes) :]:
            raise ContractError(
                f"source: {path}: {name} is {array.dtype} of shape {array.shape}, expected are numbers "
                f"[{', '.join(axes)}, ...]"
            )
        if name != kind and kind in arrays:
            raise ContractError(
                f"source: {path} has {kind!r} and {name!r}; either there is one, or all of them have names"
            )
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
            list(observed.values()) if len(observed) > 1 else next(iter(observed.values())),
            list(acted.values()) if len(acted) > 1 else next(iter(acted.values()), None),
            rewards,
            arrays.get("is_alive"),
            list(memories.values()) or None,
            terminated=arrays.get("terminated"),
        )
    except ContractError as error:
        raise ContractError(f"source: {path}: {error}") from error
    return pool


def _npz_arrays(path: str | Path) -> dict[str, Array]:
    try:
        found: Any = np.load(path, allow_pickle=False)
        if not isinstance(found, NpzFile):
            raise ContractError(
                f"source: {path} holds one array; expected is a file of several, written by numpy.savez"
            )
        with found as file:
            return {name: file[name] for name in file.files}
    except (OSError, ValueError, SyntaxError, EOFError, BadZipFile, zlib.error, NotImplementedError) as error:
        raise ContractError(f"source: cannot read {path}: {error or type(error).__name__}") from error


def _named_arrays(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """Return the arrays of a kind by the names that they have (``""``: the only one has none)."""
    if kind in arrays:
        return {"": arrays[kind]}
    return {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith(f"{kind}.")}


def _npz_fields(kind: str, arrays: Mapping[str, Array]) -> list[Field]:
    return [Field(name or kind, array.shape[2:], array.dtype) for name, array in arrays.items()]


Source = Mapping[str, Any]
Columns = Mapping[str, Array]

#: the columns that identify a session in the rows of a store, as far as they are there
SESSION_KEYS = ("phase", "agent", "evaluation", "worker", "episode", "body", "environment_episode")
#: distinguishes rows of several folders; no column of a file is called so
_FOLDER = "number of the folder"
#: stands for the number of a body or incarnation in names that are for all of them
ANY_BODY = ".{body}."

#: the keys of a source that means a store
STORE_KEYS = ("store", "run", "instance", "phase", "agent", "body", "mode", "evaluation")
#: the kinds of sources that are files
FILE_KINDS = ("pool", "npz", "parquet")
_NPZ_KEYS = ("npz",)
_POOL_KEYS = ("pool",)
_PARQUET_KEYS = ("parquet", "observations", "actions", "rewards", "session", "tick", "terminated")


def read_source(
    source: Source | SessionPool, read_store: Callable[[Source], SessionPool] | None = None
) -> SessionPool:
    """Return the sessions that ``source`` in a document means.

    ``{pool: directory}`` (:meth:`SessionPool.save`), ``{npz: file}`` (:func:`read_npz`), ``{parquet:
    file, folder or pattern, ...}`` (:func:`read_parquet`), or ``{store: ..., run: ..., ...}``, for
    which ``read_store`` is asked. A pool stays as it is. Raises :class:`ContractError` if it is something else.
    """
    if isinstance(source, SessionPool):
        return source
    if not isinstance(source, Mapping):
        raise ContractError(f"source: a mapping is expected, found {source!r}")
    readers: dict[str, tuple[Callable[[Source], SessionPool], Sequence[str]]] = {
        "pool": (lambda given: SessionPool.open(given["pool"]), _POOL_KEYS),
        "npz": (lambda given: read_npz(given["npz"]), _NPZ_KEYS),
        "parquet": (_read_parquet, _PARQUET_KEYS),
    }
    for kind, (read, keys) in readers.items():
        if kind in source:
            check_keys(source, keys)
            if not isinstance(source[kind], str | Path):
                raise ContractError(f"source: {kind}: a path is expected, found {source[kind]!r}")
            return read(source)
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
    """Whether ``source`` can be read now: it is a pool, or files that are there."""
    if not isinstance(source, Mapping):
        return True
    kind = next((kind for kind in FILE_KINDS if kind in source), None)
    if kind is None:
        return False
    place = source[kind]
    # what is no path is reported by the reader
    return not isinstance(place, str | Path) or Path(place).exists() or bool(glob(str(place)))


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
        """Return what it is at one tick: an array of its space's shape, or of one axis."""
        shape: tuple[int, ...] | None = None if self.space is None else self.space.shape
        if shape is None:
            shape = () if len(self.columns) == 1 else (len(self.columns),)
        # what was recorded are floats, also those of whole numbers
        return Field(self.name, shape, np.dtype(np.float64), self.space)


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """Rows of one agent: a column for each key, number and flag.

    ``session``: the columns that identify a session; ``tick``: the one that orders a session's
    rows; ``terminated``: a column, or ``None`` where it is not known. ``rewards`` are columns.
    """

    columns: Columns
    observations: Sequence[Channel]
    actions: Sequence[Channel]
    rewards: Mapping[str, str]
    session: Sequence[str]
    tick: str
    terminated: str | None = None

    def pool(self) -> SessionPool:
        """Return the sessions: the rows that agree in all keys, ordered by tick."""
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
        by_session["terminated"] = (
            np.zeros(len(lasts), dtype=bool)
            if self.terminated is None
            else self.columns[self.terminated][order][lasts].astype(bool)
        )
        return SessionPool.of(signature, Sessions(offsets_of(lengths), by_tick, by_session))

    def session_keys(self) -> list[tuple[Any, ...]]:
        """Return what each session of :meth:`pool` has in the columns of ``session``."""
        order, lengths = self._order()
        firsts = order[np.cumsum(lengths) - lengths]
        return list(zip(*(self.columns[name][firsts].tolist() for name in self.session), strict=True))

    def _values(self, channels: Sequence[Channel], order: IntVector) -> list[Array]:
        return [
            np.stack([self.columns[name][order].astype(np.float64) for name in one.columns], axis=1)
            for one in channels
        ]

    def _order(self) -> tuple[IntVector, IntVector]:
        keys = [np.unique(self.columns[name], return_inverse=True)[1] for name in self.session]
        order = np.lexsort([self.columns[self.tick], *reversed(keys)])
        sorted_keys = np.stack([key[order] for key in keys], axis=1) if keys else np.zeros((len(order), 0))
        new = np.append(True, (sorted_keys[1:] != sorted_keys[:-1]).any(axis=1))
        ticks = self.columns[self.tick][order]
        twice = np.flatnonzero(~new[1:] & (ticks[1:] == ticks[:-1]))
        if len(twice):
            row = order[twice[0]]
            where = ", ".join(f"{name} {self.columns[name][row]}" for name in self.session) or "all rows"
            raise ContractError(
                f"source: {self.tick} {self.columns[self.tick][row]} is there twice in one session ({where}): name "
                "further columns that tell sessions apart, or read less at once"
            )
        return order, np.diff(np.append(np.flatnonzero(new), len(order)))


def read_parquet(
    path: str | Path,
    observations: Mapping[str, Any] | Sequence[str] | None = None,
    actions: Mapping[str, Any] | Sequence[str] | None = None,
    rewards: Sequence[str] | None = None,
    session: Sequence[str] | None = None,
    tick: str = "step",
    terminated: str | None = None,
) -> SessionPool:
    """Return the sessions of Parquet files: of one, of all in a folder, or of a pattern.

    There is a row for each tick. ``observations`` and ``actions`` name columns (each one
    number), or map a name to the list of its columns; ``rewards`` names columns; ``session`` those
    that tell sessions apart, ``tick`` the one that orders their rows, ``terminated`` the one whose
    last value says whether the world ended. The defaults are those of the files of a
    store: ``reading.*``, ``setpoint.*``, ``reward.*``, worker, episode and so on. Without ``session``, rows
    of different folders are never of one session: a store has one for each phase.

    Raises :class:`ContractError` where a column is missing, or a tick is twice in a session.
    """
    paths = _parquet_files(path)
    folders = list(dict.fromkeys(str(Path(one).parent) for one in paths))
    try:
        import pyarrow as arrow
        import pyarrow.dataset as ds

        data = ds.dataset(paths, format="parquet")
        names = data.schema.names
        table = data.to_table()
        parts = [
            (folders.index(str(Path(one.path).parent)), one.count_rows()) for one in data.get_fragments()
        ]
    except (OSError, arrow.ArrowException) as error:
        raise ContractError(f"source: cannot read {path}: {error}") from error
    observed, acted = (
        channels_of(names, prefix) if given is None else _given_channels(path, kind, given)
        for kind, prefix, given in (
            ("observations", "reading", observations),
            ("actions", "setpoint", actions),
        )
    )
    rewarded = (
        {plain_name(name.removeprefix("reward.")): name for name in names if name.startswith("reward.")}
        if rewards is None
        else {name: name for name in _named(path, "rewards", rewards)}
    )
    keys = (
        [one for one in SESSION_KEYS if one in names] if session is None else _named(path, "session", session)
    )
    ends = "terminated" if terminated is None and "terminated" in names else terminated
    numbers = [c for channel in (*observed, *acted) for c in channel.columns]
    numbers += [*rewarded.values(), *_named(path, "tick", [tick])]
    numbers += [] if ends is None else _named(path, "terminated", [ends])
    for name in (*numbers, *keys):
        if name not in names:
            raise ContractError(
                f"source: {path} has no column {name!r}{did_you_mean(name, names)}; it has: {listed(names, 20)}"
            )
    if not observed:
        raise ContractError(f"source: {path}: name its observations; it has the columns {listed(names, 20)}")
    columns = {name: _numbers(table, name, path) for name in dict.fromkeys(numbers)}
    columns |= {name: _labels(table, name, path) for name in keys if name not in columns}
    if session is None and len(folders) > 1:
        columns[_FOLDER] = np.repeat(*np.transpose(parts))
        keys.insert(0, _FOLDER)
    return RecordedRows(columns, observed, acted, rewarded, keys, tick, ends).pool()


def plain_name(uid: str) -> str:
    """Return the name of a channel without what stands for the number of a body."""
    return uid.replace(ANY_BODY, ".")


def channels_of(names: Iterable[str], prefix: str) -> list[Channel]:
    """Return the channels whose columns are called ``<prefix>.<uid>``, or ``<prefix>.<uid>[i]``."""
    found: dict[str, list[str]] = {}
    for name in names:
        if name.startswith(f"{prefix}."):
            uid = re.sub(r"\[\d+\]$", "", name.removeprefix(f"{prefix}."))
            found.setdefault(uid, []).append(name)
    return [Channel(plain_name(uid), tuple(columns)) for uid, columns in found.items()]


def _read_parquet(source: Source) -> SessionPool:
    keys = {key: value for key, value in source.items() if key != "parquet"}
    return read_parquet(source["parquet"], **keys)


def _parquet_files(path: str | Path) -> list[str]:
    text = str(path)
    found = sorted(glob(str(Path(text) / "*.parquet") if Path(text).is_dir() else text))
    if not found:
        raise ContractError(f"source: there is no Parquet file at {path}")
    return found


def _given_channels(path: str | Path, kind: str, given: Mapping[str, Any] | Sequence[str]) -> list[Channel]:
    if not isinstance(given, Mapping):
        return [Channel(name, (name,)) for name in _named(path, kind, given)]
    found = []
    for name, columns in given.items():
        key = f"{kind}.{name}"
        several = (columns,) if isinstance(columns, str) else tuple(_named(path, key, columns))
        if not several:
            raise ContractError(f"source: {path}: {key}: name at least one column")
        found.append(Channel(str(name), several))
    return found


def _named(path: str | Path, key: str, given: Any) -> list[str]:
    """Return the columns that a key of a source lists."""
    found = entries(f"source: {path}: {key}: names of columns", given)
    for name in found:
        if not isinstance(name, str):
            raise ContractError(f"source: {path}: {key}: the name of a column is expected, found {name!r}")
    return found


def _numbers(table: pa.Table, name: str, path: str | Path) -> Array:
    found = table.column(name)
    column: Array = found.to_numpy()
    if column.dtype.kind not in NUMBERS:
        gaps = f" (in row {found.is_null().index(True)} there is none)" if found.null_count else ""
        raise ContractError(f"source: {path}: column {name!r} holds {found.type}, not numbers{gaps}")
    return column


def _labels(table: pa.Table, name: str, path: str | Path) -> Array:
    """Return a column that is only compared: of numbers, text or dates."""
    import pyarrow as arrow

    found = table.column(name)
    column: Array = found.to_numpy()
    if column.dtype.kind in NUMBERS:
        return column
    kind = found.type.value_type if arrow.types.is_dictionary(found.type) else found.type
    if arrow.types.is_nested(kind) or arrow.types.is_null(kind):
        raise ContractError(
            f"source: {path}: column {name!r} holds {found.type}, which does not tell sessions apart; allowed are "
            "numbers, text and dates"
        )
    if found.null_count:
        raise ContractError(
            f"source: {path}: column {name!r} has no value in row {found.is_null().index(True)}, so that its session "
            "is not known"
        )
    return column

"""Where recorded sessions come from: npz and Parquet files, pools on disk, stores."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.errors import ContractError, did_you_mean, listed
from palaestrai_mosaik.types import Space

from .fields import REWARDS, Field, Signature
from .pool import SessionPool
from .sequences import dtype_of, finals
from .sessions import Array, IntVector, Sessions, offsets_of

if TYPE_CHECKING:
    import pyarrow as pa

Source = Mapping[str, Any]
Columns = Mapping[str, Array]

#: what tells one session from another in the rows of a store, as far as it is there
SESSION_KEYS = ("phase", "agent", "evaluation", "worker", "episode", "body", "environment_episode")
#: stands for the number of a body or incarnation in names that are for all of them
ANY_BODY = ".{body}."

#: the keys of a source that means a store
STORE_KEYS = ("store", "run", "instance", "phase", "agent", "body", "mode", "evaluation")
_NPZ_KEYS = ("npz",)
_POOL_KEYS = ("pool",)
_PARQUET_KEYS = ("parquet", "observations", "actions", "rewards", "session", "tick", "terminated")
_ARRAYS = ("observations", "actions", "rewards", "is_alive", "prev_memories", "terminated")


def read_source(
    source: Source | SessionPool, read_store: Callable[[Source], SessionPool] | None = None
) -> SessionPool:
    """Return the sessions that ``source`` in a document means.

    ``{pool: directory}`` (:meth:`SessionPool.save`), ``{npz: file}`` (:func:`read_npz`), ``{parquet:
    file, folder or pattern, ...}`` (:func:`read_parquet`), or ``{store: ..., run: ..., ...}``, for
    which ``read_store`` is asked. A pool stays as it is. Raises :class:`ContractError` if it is none of them.
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
            return read(source)
    if any(key in source for key in STORE_KEYS):
        if read_store is None:
            raise ContractError(
                "source: a store can be read where a run is executed; here, load its sessions with "
                "palaestrai_mosaik.run.sessions.read_sessions"
            )
        return read_store(source)
    kinds = (*readers, *STORE_KEYS)
    hint = did_you_mean(next(iter(source), ""), kinds)
    raise ContractError(
        f"source: one of {', '.join(kinds)} is expected, found {listed(list(source), 8)}{hint}"
    )


def check_keys(source: Source, keys: Sequence[str]) -> None:
    """Raise :class:`ContractError` if ``source`` has a key that is none of ``keys``."""
    for key in source:
        if key not in keys:
            raise ContractError(
                f"source: there is no key {key!r}{did_you_mean(key, keys)}; the keys are {', '.join(keys)}"
            )


def read_npz(path: str | Path) -> SessionPool:
    """Return the sessions of an npz file (``numpy.savez``).

    Its arrays are called as the arguments of :meth:`.pool.SessionPool.load_sessions`:
    ``observations`` [session, tick, ...], ``actions``, ``rewards``, ``is_alive``, ``prev_memories``,
    ``terminated``. Where there are several observations or actions (memories), they are
    ``observations.<name>``, ... Dtypes and shapes are those of the arrays.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise ContractError(f"source: cannot read {path}: {error}") from error
    for name in arrays:
        if name.split(".", 1)[0] not in _ARRAYS:
            raise ContractError(
                f"source: {path} has the array {name!r}{did_you_mean(name, _ARRAYS)}; expected are "
                f"{', '.join(_ARRAYS)}"
            )
    observed, acted, memories = (
        _called(arrays, kind) for kind in ("observations", "actions", "prev_memories")
    )
    rewards = arrays.get("rewards")
    width = 1 if rewards is None or rewards.ndim < 3 else rewards.shape[2]
    signature = Signature.declared(
        _npz_fields("observation", observed),
        _npz_fields("action", acted),
        REWARDS if width == 1 else [f"reward_{i}" for i in range(width)],
    )
    pool = SessionPool(signature.observations, signature.actions, signature.rewards)
    try:
        pool.load_sessions(
            list(observed.values()) if len(observed) > 1 else next(iter(observed.values())),
            list(acted.values()) if len(acted) > 1 else next(iter(acted.values()), None),
            rewards if width > 1 or rewards is None or rewards.ndim == 2 else rewards[..., 0],
            arrays.get("is_alive"),
            list(memories.values()) or None,
            terminated=arrays.get("terminated"),
        )
    except ContractError as error:
        raise ContractError(f"source: {path}: {error}") from error
    return pool


def _called(arrays: Columns, kind: str) -> dict[str, Array]:
    """Return the arrays of a kind by the names that they have (``""``: the only one has none)."""
    if kind in arrays:
        return {"": arrays[kind]}
    return {name.split(".", 1)[1]: array for name, array in arrays.items() if name.startswith(f"{kind}.")}


def _npz_fields(kind: str, arrays: Columns) -> list[Field]:
    return [Field(name or kind, array.shape[2:], dtype_of(array)) for name, array in arrays.items()]


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

    ``session``: the columns that tell sessions apart; ``tick``: the one that orders a session's
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
    store: ``reading.*``, ``setpoint.*``, ``reward.*``, worker, episode and so on.
    """
    paths = _parquet_files(path)
    try:
        import pyarrow as arrow
        import pyarrow.dataset as ds

        table = ds.dataset(paths, format="parquet").to_table()
    except (OSError, arrow.ArrowException) as error:
        raise ContractError(f"source: cannot read {path}: {error}") from error
    names = table.schema.names
    observed, acted = (
        channels_of(names, prefix) if given is None else _given_channels(given)
        for prefix, given in (("reading", observations), ("setpoint", actions))
    )
    rewarded = (
        {plain_name(name.removeprefix("reward.")): name for name in names if name.startswith("reward.")}
        if rewards is None
        else {name: name for name in rewards}
    )
    keys = [name for name in SESSION_KEYS if name in names] if session is None else list(session)
    ends = "terminated" if terminated is None and "terminated" in names else terminated
    needed = [c for channel in (*observed, *acted) for c in channel.columns]
    needed += [*rewarded.values(), *keys, tick, *([] if ends is None else [ends])]
    for name in needed:
        if name not in names:
            raise ContractError(
                f"source: {path} has no column {name!r}{did_you_mean(name, names)}; it has: {listed(names, 20)}"
            )
    if not observed:
        raise ContractError(f"source: {path}: name its observations; it has the columns {listed(names, 20)}")
    columns = {name: _numpy(table, name, path) for name in dict.fromkeys(needed)}
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


def _given_channels(given: Mapping[str, Any] | Sequence[str]) -> list[Channel]:
    if isinstance(given, Mapping):
        return [
            Channel(str(name), (columns,) if isinstance(columns, str) else tuple(columns))
            for name, columns in given.items()
        ]
    if isinstance(given, str):
        raise ContractError(f"source: a list of columns is expected, found {given!r}")
    return [Channel(name, (name,)) for name in given]


def _numpy(table: pa.Table, name: str, path: str | Path) -> Array:
    column: Array = table.column(name).to_numpy()
    if column.dtype.kind not in "fiub" and name not in SESSION_KEYS:
        raise ContractError(f"source: {path}: column {name!r} holds {column.dtype}, not numbers")
    return column

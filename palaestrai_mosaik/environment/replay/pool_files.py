"""Pools on disk: a directory of flat ``.npy`` columns, which are mapped into memory.

A pool has ``offsets.npy``, one plain npy file for each column of :class:`.sessions.Sessions`, and the
description ``pool.json``. It is written to a folder ``<name>.<random>.partial`` beside the directory, and
renamed when it is complete.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from tokenize import TokenError
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib.format import open_memmap

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.text import listed
from palaestrai_mosaik.types.arrays import Array

from .sequences import declared_memories, final_column
from .sessions import ENDS, NUMBERS, Sessions, Signature, offsets_of

_DESCRIPTION = "pool.json"
_FORMAT = 2
_HEADER = 256  # bytes; numpy wants a multiple of 64


class PoolWriter:
    """Writes a pool piece by piece, with one piece in memory at a time.

    ::

        with PoolWriter("recorded", pool.signature) as writer:
            for pool in pieces:
                writer.append(pool.sessions)

    At the end of the block the pool is in its directory, with all its data synced to disk. If the block
    raises, nothing is left.
    """

    def __init__(self, directory: str | Path, signature: Signature):
        self.directory = Path(directory)
        self.signature = signature
        self._lengths: list[Array] = []
        self._columns: dict[str, _ColumnFile] = {}
        _check_free(self.directory)
        self._folder = self.directory.with_name(f"{self.directory.name}.{secrets.token_hex(8)}.partial")

    def __enter__(self) -> Self:
        files.make_folder(self._folder, parents=True, exist_ok=False)
        return self

    def append(self, sessions: Sessions) -> None:
        """Append ``sessions``; all must have the same columns."""
        columns = {**sessions.by_tick, **sessions.by_session}
        if not self._columns:
            self._columns = {name: _ColumnFile(self._folder, name, array) for name, array in columns.items()}
        kinds = {name: (column.shape[1:], column.dtype) for name, column in columns.items()}
        expected = {name: (file.shape, file.dtype) for name, file in self._columns.items()}
        if kinds != expected:
            wrong = next(n for n in {**expected, **kinds} if kinds.get(n) != expected.get(n))
            raise ContractError(
                f"{self.directory}: {wrong} of these sessions is {kinds.get(wrong)}, that of the first ones is "
                f"{expected.get(wrong)}"
            )
        for name, column in columns.items():
            self._columns[name].append(column)
        self._lengths.append(sessions.lengths)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._finish()
        finally:
            for file in self._columns.values():
                file.close()
            files.discard_tree(self._folder)

    def _finish(self) -> None:
        if not any(map(len, self._lengths)):
            raise ContractError(f"{self.directory}: a pool needs at least one session")
        offsets = offsets_of(np.concatenate(self._lengths))
        last = _ColumnFile(self._folder, "offsets", offsets)
        last.append(offsets)
        rows = {}
        for name, file in {**self._columns, "offsets": last}.items():
            rows[name] = file.rows
            file.finish()
        text = json.dumps({"format": _FORMAT, **self.signature.described(), "rows": rows}, indent=1)
        files.write_text(self._folder / _DESCRIPTION, text + "\n")
        _check_free(self.directory)
        files.move(self._folder, self.directory)


class _ColumnFile:
    """An npy file that is written before its number of rows is known."""

    def __init__(self, folder: Path, name: str, like: Array):
        self.shape, self.dtype = like.shape[1:], like.dtype
        self.rows = 0
        self._file: BinaryIO = files.open_new(folder / f"{name}.npy")
        self._file.write(self._header())

    def append(self, rows: Array) -> None:
        self._file.write(np.ascontiguousarray(rows).data)
        self.rows += len(rows)

    def finish(self) -> None:
        self._file.seek(0)
        self._file.write(self._header())
        self._file.flush()
        os.fsync(self._file.fileno())
        self.close()

    def close(self) -> None:
        self._file.close()

    def _header(self) -> bytes:
        # version 1.0 of numpy's format, padded to a constant length
        keys = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.rows, *self.shape)}
        text = repr(keys).encode("ascii")
        return b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + text.ljust(_HEADER - 11) + b"\n"


def write_pool(directory: Path, signature: Signature, pieces: Iterable[Sessions]) -> None:
    """Write the ``pieces`` to a new pool at ``directory``."""
    with PoolWriter(directory, signature) as writer:
        for piece in pieces:
            writer.append(piece)


def open_pool(directory: Path) -> tuple[Signature, Sessions]:
    """Open the pool in ``directory``; its columns are mapped and not read yet.

    Raises :class:`ContractError` if the description is incomplete, or the columns do not
    match it.
    """
    description = _description(directory)
    path = directory / _DESCRIPTION
    missing = [key for key in ("observations", "actions", "rewards", "rows") if key not in description]
    if missing:
        raise ContractError(f"the pool is damaged: {path} has no {listed(missing, 4)}")
    try:
        observations, actions, rewards = (description[key] for key in ("observations", "actions", "rewards"))
        signature = Signature.declared(observations, actions, rewards, description.get("memories"))
    except ContractError as error:
        raise ContractError(f"the pool is damaged: {path}: {error}") from error
    rows = _rows(path, signature, description["rows"])
    columns = {name: _mapped(directory / f"{name}.npy", number) for name, number in rows.items()}
    offsets = np.array(columns["offsets"])  # read now, because every access to a session needs it
    _check_columns(directory, signature, offsets, columns)
    del columns["offsets"]
    sessions = Sessions(offsets, {name: columns.pop(name) for name in signature.columns()}, columns)
    try:
        declared = declared_memories(signature, sessions.by_session)
    except ContractError as error:
        raise ContractError(f"the pool is damaged: {path}: {error}") from error
    for name, column in declared.items():
        _check_dtype(directory / f"{name}.npy", columns[name].dtype, column.dtype)
    return signature, sessions


def _check_dtype(path: Path, actual: np.dtype[Any], expected: np.dtype[Any]) -> None:
    """Raise :class:`ContractError` if a column's dtype differs from the pool's description."""
    if actual != expected:
        raise ContractError(f"the pool is damaged: {path} is {actual}, expected is {expected}")


def _description(directory: Path) -> Mapping[str, Any]:
    if not directory.is_dir():
        raise ContractError(f"there is no pool of sessions at {directory}: it is no folder")
    path = directory / _DESCRIPTION
    try:
        description: Any = json.loads(files.read_given(path, follow=True))
    except FileNotFoundError:
        raise ContractError(
            f"{directory} is no whole pool of sessions: it has no {_DESCRIPTION}, which is written last"
        ) from None
    except (OSError, ValueError) as error:
        raise ContractError(f"{path} is damaged: {files.reading_fault(error)}") from None
    if not isinstance(description, dict) or description.get("format") != _FORMAT:
        raise ContractError(f"{path} is not the description of a pool of format {_FORMAT}")
    return description


def _rows(path: Path, signature: Signature, rows: Any) -> Mapping[str, int]:
    """Return the number of rows of each column that ``signature`` needs, and of each memory."""
    if not isinstance(rows, dict) or not all(type(n) is int and n >= 0 for n in rows.values()):
        raise ContractError(f"the pool is damaged: {path}: rows: a number for each column is expected")
    finals = map(final_column, signature.packed_columns("observation"))
    needed = ["offsets", *signature.columns(), *finals, *ENDS]
    memories = [f"memory.{i}" for i in range(len(rows) - len(needed))]
    if set(rows) != {*needed, *memories}:
        raise ContractError(
            f"the pool is damaged: {path}: rows: the columns {', '.join(needed)} (and memory.0, ...) are expected, "
            f"found {listed(list(rows), 20) or 'none'}"
        )
    return rows


def _mapped(path: Path, rows: int) -> Array:
    try:
        files.check_readable(path)
        column: Array = open_memmap(path, mode="r")
    except (OSError, ValueError, SyntaxError, TokenError) as error:
        raise ContractError(f"the pool is damaged: {path}: {files.reading_fault(error)}") from None
    if column.shape[:1] != (rows,):
        size = f"{len(column)} rows" if column.ndim else "a single number"
        raise ContractError(f"the pool is damaged: {path} has {size}, not {rows} rows")
    # every slice of the class memmap is slower; the plain array keeps the mapping alive
    return column.view(np.ndarray)


def _check_columns(
    directory: Path, signature: Signature, offsets: Array, columns: Mapping[str, Array]
) -> None:
    """Raise :class:`ContractError` unless the columns match ``signature`` and ``offsets``."""

    def check(name: str, fits: bool, expected: str) -> None:
        if not fits:
            actual = f"{columns[name].dtype} of shape {columns[name].shape}"
            raise ContractError(
                f"the pool is damaged: {directory / name}.npy is {actual}, expected is {expected}"
            )

    check(
        "offsets",
        offsets.dtype == np.int64 and offsets.ndim == 1 and len(offsets) > 1,
        "int64 with an entry for each session and one more",
    )
    ticks, sessions = len(columns["reward"]), len(offsets) - 1
    if offsets[0] != 0 or offsets[-1] != ticks or (np.diff(offsets) < 1).any():
        raise ContractError(
            f"the pool is damaged: {directory / 'offsets.npy'} must rise from 0 to the {ticks} rows of the other "
            f"columns, each session having at least one; it goes from {offsets[0]} to {offsets[-1]}"
        )
    expected = {
        "reward": ((ticks, len(signature.rewards)), np.dtype(np.float64)),
        **dict.fromkeys(ENDS, ((sessions,), np.dtype(bool))),
    }
    for kind in ("observation", "action"):
        for name, (width, dtype) in signature.packed_kinds(kind).items():
            expected[name] = ((ticks, width), dtype)
            if kind == "observation":
                expected[final_column(name)] = ((sessions, width), dtype)
    for name, (shape, dtype) in expected.items():
        column = columns[name]
        check(name, (column.shape, column.dtype) == (shape, dtype), f"{dtype} of shape {shape}")
    for name, column in columns.items():
        if name.startswith("memory."):
            check(
                name,
                len(column) == sessions and column.dtype.kind in NUMBERS,
                f"numbers with a row for each of {sessions} sessions",
            )


def _check_free(directory: Path) -> None:
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ContractError(f"{directory} is there already: write the pool to a new folder")

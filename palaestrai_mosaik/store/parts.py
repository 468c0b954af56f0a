"""Part files: one block of rows as a complete Parquet file, written and read.

A Parquet file is unreadable until its footer is written, so rows go into many complete
files: each is written aside and renamed. A reader that looks for
``part-*.parquet`` never sees a half-written one, neither while a run goes on nor after
it was killed.

Parts carry a checksum for each of their pages, which is verified whenever one is read: without, most
damage would be read as other numbers. (Parts of older releases have none; their digest in the
database says, see :mod:`.verify`.)

What has been recorded since the last part is in an open part (:mod:`.open_parts`), which is read with the others
as long as a phase goes on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError

from .models import to_json
from .open_parts import SUFFIX, is_open, read_open

if TYPE_CHECKING:
    import pyarrow as pa

#: the key of our entry in a part's Parquet metadata
METADATA_KEY = b"palaestrai_mosaik"


def part_files(folder: Path) -> list[Path]:
    """Return the complete parts of ``folder`` in the order in which they were written."""
    return sorted(folder.glob("part-*.parquet"), key=lambda path: (len(path.name), path.name))


def part_path(folder: Path, number: int) -> Path:
    """Return the path of part ``number`` of ``folder``."""
    return folder / f"part-{number:06d}.parquet"


def part_number(path: Path) -> int:
    """Return the number of the part at ``path``."""
    return int(path.stem.removeprefix("part-"))


def wall_folder(folder: Path) -> Path:
    """Return where the wall-clock of an agent's ``folder`` is: parts of the same rows."""
    return folder.with_name("wall-" + folder.name.removeprefix("agent-"))


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path``: afterwards the file is there as a whole, or not at all."""
    try:
        files.write_text(path, text)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error


class PartWriter:
    """Writes the parts of one stream.

    Integers are delta-encoded, text goes through a dictionary, and the bytes of floats are split into
    streams. Images are stored as they are: they are compressed already. ``row_group``: how many rows a reader
    gets at once (``None``: all of a part).
    """

    def __init__(self, folder: Path, metadata: Mapping[str, Any], row_group: int | None = None):
        self.folder = folder
        self._row_group = row_group
        self._metadata = {METADATA_KEY: to_json(dict(metadata)).encode()}

    def path(self, number: int) -> Path:
        """Return the path of part ``number``."""
        return part_path(self.folder, number)

    def write(self, number: int, columns: Mapping[str, pa.Array]) -> None:
        """Write part ``number``; one that has this number already is replaced.

        Raises :class:`StoreError`; nothing is left behind then.
        """
        import pyarrow as pa

        fields = [pa.field(name, array.type) for name, array in columns.items()]
        table = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
        path = part_path(self.folder, number)
        try:
            # not its parents: if they are gone, the store is, and must not come up again beside its database
            files.make_folder(self.folder)
            whole = pa.BufferOutputStream()
            self._write_table(table, whole)
            files.write_bytes(path, whole.getvalue(), durable=False)
        except (OSError, pa.ArrowException) as error:
            raise StoreError(f"cannot write {path}: {error}") from error

    def _write_table(self, table: pa.Table, stream: Any) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        encodings: dict[str, str] = {}
        texts: list[str] = []
        keys: list[str] = []
        compression: dict[str, str] = {}
        for field in table.schema:
            compression[field.name] = "none" if pa.types.is_binary(field.type) else "zstd"
            if pa.types.is_integer(field.type):
                encodings[field.name] = "DELTA_BINARY_PACKED"
                keys.append(field.name)
            elif pa.types.is_floating(field.type):
                encodings[field.name] = "BYTE_STREAM_SPLIT"
            elif pa.types.is_string(field.type):
                texts.append(field.name)
        with pq.ParquetWriter(
            stream,
            table.schema,
            compression=compression,
            use_dictionary=texts or False,
            column_encoding=encodings,
            # Minimum and maximum let readers skip parts; only the keys are searched by.
            write_statistics=keys,
            # Compressed numbers that are damaged are other numbers: readers must notice.
            write_page_checksum=True,
            # Parquet's own types suffice; Arrow's schema costs 100 bytes per column and part.
            store_schema=False,
        ) as writer:
            writer.write_table(table, row_group_size=self._row_group or max(1, table.num_rows))
            writer.add_key_value_metadata(self._metadata)


class UnreadableError(StoreError):
    """A file or folder could not be read, because of rights or a file system that does not answer: it may be whole."""


def whole_parts(folder: Path, count: Any = None) -> list[Path]:
    """Return all parts of a stream, in order.

    ``count``: how many the database says there are; no number, as long as the phase has not ended.
    Raises :class:`StoreError` where one is missing, :class:`UnreadableError` where that is unknown.
    """
    there = part_files(folder)
    # (pandas' and numpy's integers are none of int)
    known = int(count) if hasattr(count, "__index__") else len(there)
    have = set(there)
    paths = []
    # (one that is missing is found before a number that is none fills the memory)
    for number in range(known):
        path = part_path(folder, number)
        if path not in have:
            _refuse_unreadable(folder)
            raise StoreError(f"{path} is missing")
        if not path.is_file():
            raise StoreError(f"{path} is no file")
        paths.append(path)
    return paths


def parts_so_far(folder: Path, count: Any = None) -> list[Path]:
    """Return all parts of a stream as :func:`whole_parts` does, and its open part, if the phase has not ended."""
    paths = whole_parts(folder, count)
    if not hasattr(count, "__index__"):
        # (it may become a part at any time)
        newest = part_path(folder, len(paths))
        paths += [path for path in (newest.with_suffix(SUFFIX), newest) if path.is_file()][:1]
    return paths


def settled(path: Path) -> Path:
    """Return the path of the part that has taken the place of an open part, if one has; else ``path``."""
    return path if not is_open(path) or path.exists() else _closed(path)


def count_rows(path: Path) -> int:
    """Return how many rows a part says that it has, or an open part has. Raises :class:`StoreError`."""
    if is_open(path):
        rows = _open_rows(path)
        return 0 if rows is None else int(rows.num_rows)
    return int(open_part(path, lambda file: file.metadata.num_rows))


def _closed(path: Path) -> Path:
    """Return the path of the part that takes the place of an open part; of a part its own."""
    return path.with_suffix(".parquet")


def _open_rows(path: Path) -> pa.Table | None:
    """Return the rows of an open part; ``None`` for a part, also one that has just taken its place."""
    if not is_open(path):
        return None
    try:
        return read_open(path)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error


def open_part(path: Path, ask: Callable[[Any], Any]) -> Any:
    """Return what ``ask`` makes of the part, a :class:`pyarrow.parquet.ParquetFile`.

    Raises :class:`StoreError` where it is missing or damaged, :class:`UnreadableError` where that is unknown.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not path.is_file():
            _refuse_unreadable(path.parent)
            raise StoreError(f"{path} is missing")
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return ask(file)
    except (OSError, pa.ArrowException) as error:
        # (what pyarrow finds wrong in a file has no number of the system's)
        if getattr(error, "errno", None) is not None:
            raise UnreadableError(f"{path} cannot be read: {error}") from error
        raise StoreError(f"{path} is damaged: {' '.join(str(error).split())}") from error


def _refuse_unreadable(folder: Path) -> None:
    """Raise :class:`UnreadableError` where a folder is there, but what is in it cannot be listed."""
    try:
        os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise UnreadableError(f"{folder} cannot be read: {error.strerror}") from error


def open_parts(paths: Sequence[Path]) -> Any:
    """Return the parts of one stream as a :class:`pyarrow.dataset.Dataset`; reading it needs :func:`damage_reported`.

    The last of ``paths`` may be its open part. Raises :class:`StoreError`.
    """
    import pyarrow.dataset as ds

    rows = _open_rows(paths[-1])
    if rows is not None:
        rows = rows.drop_columns([name for name in rows.schema.names if name == "wall"])
    whole = [str(_closed(path)) for path in (paths if rows is None else paths[:-1])]
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=options)
    with damage_reported(paths):
        found = [ds.dataset(whole, format=form)] if whole else []
        found += [ds.dataset(rows)] if rows is not None else []
        return found[0] if len(found) == 1 else ds.dataset(found)


@contextmanager
def damage_reported(paths: Sequence[Path]) -> Iterator[None]:
    """Raise :class:`StoreError` with the name of the file where reading one of ``paths`` fails."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        for path in paths:
            if not is_open(path):
                open_part(path, lambda file: file.read())
        raise StoreError(f"the parts in {paths[0].parent} cannot be read together: {error}") from error


def read_parts(
    paths: Sequence[Path],
    expression: Callable[[Sequence[str]], Any],
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Return the wanted columns of some parts of one stream, in order.

    ``expression`` gives the filter, for the columns that there are. Raises :class:`StoreError`.
    """
    with damage_reported(paths):
        dataset = open_parts(paths)
        names = dataset.schema.names if columns is None else list(columns)
        return dataset.to_table(columns=names, filter=expression(dataset.schema.names))


def columns_of(paths: Sequence[Path]) -> list[str]:
    """Return the columns of a stream, of which ``paths`` are the parts. Raises :class:`StoreError`."""
    if not paths:
        return []
    if is_open(paths[0]):
        names: list[str] = open_parts(paths[:1]).schema.names
        return names
    try:
        state = paths[0].stat()
    except OSError:  # which opening it explains
        return list(_columns_of(paths[0], None))
    return list(_columns_of(paths[0], (state.st_mtime_ns, state.st_size)))


@lru_cache(maxsize=64)
def _columns_of(path: Path, state: tuple[int, int] | None) -> tuple[str, ...]:
    # (a part never changes; to open one of thousands of columns takes some 50 ms)
    return tuple(open_part(path, lambda file: file.schema_arrow.names))


def read_wall(paths: Sequence[Path], expression: Callable[[Sequence[str]], Any]) -> pa.Table:
    """Return the wall-clock of an agent's rows, which :func:`read_parts` reads from ``paths``.

    Of a run that goes on there may be more rows by now.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    rows = _open_rows(paths[-1]) if paths else None
    whole = [_closed(path) for path in (paths if rows is None else paths[:-1])]
    tables = []
    if whole:
        walls = wall_folder(whole[0].parent)
        tables.append(read_parts([walls / path.name for path in whole], expression, ["wall"]))
    if rows is not None:
        tables.append(ds.dataset(rows).to_table(columns=["wall"], filter=expression(rows.schema.names)))
    return pa.concat_tables(tables)

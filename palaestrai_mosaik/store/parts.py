"""Part files: one block of rows as a complete Parquet file, written and read.

A Parquet file is unreadable until its footer is written, so rows go into many complete
files: each is written under a temporary name and renamed. A reader that looks for
``part-*.parquet`` never sees an incomplete one, neither during a run nor after
it was killed.

Each page of a part has a checksum, which every read verifies: without it, most
damage would be read as other numbers.

Rows since the last part are in an open part (:mod:`.open_parts`), which is read with the others
until the phase has ended.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from errno import ELOOP
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError

from .models import to_json
from .open_parts import MOST_BYTES, SUFFIX, is_open, read_open

if TYPE_CHECKING:
    import pyarrow as pa

#: the maximum size of a part, a few times that of any part we write: a file of a few bytes can claim billions of
#: equal rows or texts
_MOST_ROWS = 200_000
_MOST_NUMBERS = 64 * 2**20
#: the number of rows in memory at once while a part is only checked
_PIECE = 100
#: a part may have this many rows, however wide they are
_WIDE_ROWS = 64
#: the key of our entry in a part's Parquet metadata
METADATA_KEY = b"palaestrai_mosaik"


def part_files(folder: Path) -> list[Path]:
    """List the complete parts of ``folder`` in order of writing."""
    return sorted(folder.glob("part-*.parquet"), key=lambda path: (len(path.name), path.name))


def part_path(folder: Path, number: int) -> Path:
    """Return the path of part ``number`` of ``folder``."""
    return folder / f"part-{number:06d}.parquet"


def part_number(path: Path) -> int:
    """Return the number of the part at ``path``."""
    return int(path.stem.removeprefix("part-"))


def wall_folder(folder: Path) -> Path:
    """Return the folder with the wall-clock times of an agent's ``folder``: parts of the same rows."""
    return folder.with_name("wall-" + folder.name.removeprefix("agent-"))


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` atomically. Raises :class:`StoreError`."""
    try:
        files.write_text(path, text)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error}") from error


class PartWriter:
    """Writes the parts of one stream.

    Integers are delta-encoded, text goes through a dictionary, and the bytes of floats are split into
    streams. Images are not compressed again.

    Args:
        folder: the folder of the parts.
        metadata: plain data for each part's Parquet metadata.
        row_group: the number of rows that a reader gets at once; ``None``: all of a part.
    """

    def __init__(self, folder: Path, metadata: Mapping[str, Any], row_group: int | None = None):
        self.folder = folder
        self._row_group = row_group
        self._metadata = {METADATA_KEY: to_json(dict(metadata)).encode()}

    def path(self, number: int) -> Path:
        """Return the path of part ``number``."""
        return part_path(self.folder, number)

    def write(self, number: int, columns: Mapping[str, pa.Array]) -> None:
        """Write part ``number``, or replace it.

        Raises :class:`StoreError`; no file is left behind then.
        """
        import pyarrow as pa

        fields = [pa.field(name, array.type) for name, array in columns.items()]
        table = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))
        path = part_path(self.folder, number)
        try:
            # without parents: if they are gone, the store is, and must not come back beside its database
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
            # Minimum and maximum let readers skip parts; readers filter by the keys only.
            write_statistics=keys,
            # Damaged compressed numbers are read as other numbers: readers must notice.
            write_page_checksum=True,
            # Parquet's own types suffice; Arrow's schema costs 100 bytes per column and part.
            store_schema=False,
        ) as writer:
            writer.write_table(table, row_group_size=self._row_group or max(1, table.num_rows))
            writer.add_key_value_metadata(self._metadata)


class UnreadableError(StoreError):
    """A file or folder could not be read, because of permissions or the file system; it may be intact."""


def whole_parts(folder: Path, count: Any = None) -> list[Path]:
    """List all complete parts of a stream, in order.

    Args:
        folder: the folder of the parts.
        count: the number of parts in the database; not an integer before the phase has ended.

    Raises:
        StoreError: a part is missing.
        UnreadableError: the folder cannot be read.
    """
    existing = part_files(folder)
    # integers of pandas and numpy are not instances of int
    expected = int(count) if hasattr(count, "__index__") else len(existing)
    present = set(existing)
    paths = []
    # a loop, because a wrong count could fill the memory; the first missing part ends it
    for number in range(expected):
        path = part_path(folder, number)
        if path not in present:
            _refuse_unreadable(folder)
            raise StoreError(f"{path} is missing")
        if not path.is_file():
            raise StoreError(f"{path} is no file")
        paths.append(path)
    return paths


def parts_so_far(folder: Path, count: Any = None) -> list[Path]:
    """List all parts of a stream like :func:`whole_parts`, and its open part, if the phase has not ended."""
    paths = whole_parts(folder, count)
    if not hasattr(count, "__index__"):
        # the open part may become a part at any time
        newest = part_path(folder, len(paths))
        paths += [path for path in (newest.with_suffix(SUFFIX), newest) if path.is_file()][:1]
    return paths


def settled(path: Path) -> Path:
    """Return the path of the part that replaced an open part, if one has; else ``path``."""
    return path if not is_open(path) or path.exists() else _closed(path)


def count_rows(path: Path) -> int:
    """Read the number of rows from the end of a part, or count those of an open part. Raises :class:`StoreError`."""
    if is_open(path):
        rows = _open_rows(path)
        return 0 if rows is None else int(rows.num_rows)
    return int(open_part(path, lambda file: file.metadata.num_rows))


def _closed(path: Path) -> Path:
    """Return the path of the part that will replace an open part; a part's own path otherwise."""
    return path.with_suffix(".parquet")


def _open_rows(path: Path) -> pa.Table | None:
    """Read the rows of an open part; ``None`` for a part, even if it has only just replaced the open part."""
    if not is_open(path):
        return None
    try:
        return read_open(path)
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error


def open_part(path: Path, ask: Callable[[Any], Any]) -> Any:
    """Return the result of ``ask`` for the part, a :class:`pyarrow.parquet.ParquetFile`.

    Raises :class:`StoreError` if the part is missing or damaged, :class:`UnreadableError` if that is unknown.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if not path.is_file():
            _refuse_unreadable(path.parent)
            raise StoreError(f"{path} is missing")
        with _opened(path) as opened, pq.ParquetFile(opened, page_checksum_verification=True) as file:
            _refuse_large(path, file.metadata, file.schema_arrow)
            return ask(file)
    except (OSError, pa.ArrowException) as error:
        # errors of pyarrow about the content have no errno
        if getattr(error, "errno", None) is not None:
            raise UnreadableError(f"{path} cannot be read: {error}") from error
        raise StoreError(f"{path} is damaged: {' '.join(str(error).split())}") from error


def _opened(path: Path) -> io.BufferedReader:
    """Open a part. Raises :class:`StoreError` if a link leads out of the store, else ``OSError``."""
    try:
        return files.open_read(path)
    except OSError as error:
        if error.errno == ELOOP:
            raise StoreError(f"{path} is not read: {error.strerror}") from None
        raise


def _refuse_large(path: Path, metadata: Any, schema: pa.Schema) -> None:
    """Raise :class:`StoreError` if a part's metadata claims more than any part we write; nothing is read.

    Columns of lists are refused, because a single row of them can have billions of equal numbers.
    """
    nested = next((field.name for field in schema if field.type.num_fields), None)
    if nested is not None:
        raise StoreError(
            f"{path} is not read: {nested} is a column of lists; parts have numbers and texts only"
        )
    rows, columns = metadata.num_rows, metadata.num_columns
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    whole = sum(group.total_byte_size for group in groups)
    many = rows > _WIDE_ROWS and 8 * rows * columns > _MOST_NUMBERS
    if rows > _MOST_ROWS or many or whole > MOST_BYTES:
        raise _too_large(path, f"{rows:,} rows of {columns:,} columns, {whole:,} bytes")


def _too_large(path: Path, content: str) -> StoreError:
    return StoreError(
        f"{path} is not read: it holds {content}; a part has at most {_MOST_ROWS:,} rows, {_MOST_NUMBERS // 8:,} numbers and "
        f"{MOST_BYTES:,} bytes"
    )


def _refuse_unreadable(folder: Path) -> None:
    """Raise :class:`UnreadableError` if a folder exists but cannot be listed."""
    try:
        os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise UnreadableError(f"{folder} cannot be read: {error.strerror}") from error


def open_parts(paths: Sequence[Path]) -> Any:
    """Open the parts of one stream as a :class:`pyarrow.dataset.Dataset`; read it within :func:`damage_reported`.

    The last of ``paths`` may be an open part. Raises :class:`StoreError`.
    """
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    rows = _open_rows(paths[-1])
    whole = [str(_closed(path)) for path in (paths if rows is None else paths[:-1])]
    with damage_reported(paths):
        for name in whole:
            _opened(Path(name)).close()
        # dictionaries: a repeated text takes its bytes only once
        schema = pq.read_schema(whole[0]) if whole else ()
        texts = [field.name for field in schema if _is_text(field.type)]
        datasets = []
        if whole:
            form = ds.ParquetFileFormat(
                read_options=ds.ParquetReadOptions(dictionary_columns=texts),
                default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
            )
            dataset = ds.dataset(whole, format=form)
            # the scan reuses this metadata
            for fragment in dataset.get_fragments():
                fragment.ensure_complete_metadata()
                _refuse_large(Path(fragment.path), fragment.metadata, fragment.physical_schema)
            datasets.append(dataset)
        if rows is not None:
            datasets.append(ds.dataset(_like_parts(rows, texts)))
        return datasets[0] if len(datasets) == 1 else ds.dataset(datasets)


def _like_parts(rows: pa.Table, texts: Sequence[str]) -> pa.Table:
    """Give the rows of an open part the columns of parts: no wall-clock times, dictionaries of ``texts``."""
    rows = rows.drop_columns([name for name in rows.schema.names if name == "wall"])
    for i, name in enumerate(rows.schema.names):
        if name in texts:
            rows = rows.set_column(i, name, rows.column(i).dictionary_encode())
    return rows


@contextmanager
def damage_reported(paths: Sequence[Path]) -> Iterator[None]:
    """Raise :class:`StoreError` with the name of the damaged file if reading ``paths`` fails."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        for path in paths:
            if not is_open(path):
                open_part(path, _read_pieces)
        raise StoreError(f"the parts in {paths[0].parent} cannot be read together: {error}") from error


def _read_pieces(file: Any) -> None:
    """Read a part piece by piece, and discard it."""
    for _ in file.iter_batches(batch_size=_PIECE):
        pass


def read_parts(
    paths: Sequence[Path],
    expression: Callable[[Sequence[str]], Any] | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Read rows of parts of one stream, in order.

    Args:
        paths: the parts.
        expression: builds the filter from the names of the stream's columns; ``None``: all rows.
        columns: the columns to read; ``None``: all.

    Raises:
        StoreError: a part is missing or damaged.
    """
    with damage_reported(paths):
        dataset = open_parts(paths)
        available = dataset.schema.names
        names = available if columns is None else list(columns)
        rows = None if expression is None else expression(available)
        return with_texts(dataset.to_table(columns=names, filter=rows), paths)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def with_texts(table: pa.Table, paths: Sequence[Path]) -> pa.Table:
    """Decode the dictionaries of a table from :func:`open_parts` to plain texts. Raises :class:`StoreError`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for i, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type):
            continue
        for chunk in table.column(i).chunks:
            lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
            size = pc.sum(pc.cast(lengths, pa.int64())).as_py() or 0
            if size > MOST_BYTES:
                raise _too_large(paths[0].parent, f"{size:,} bytes of {field.name} in a part")
        table = table.set_column(i, field.name, table.column(i).cast(field.type.value_type))
    return table


def columns_of(paths: Sequence[Path]) -> list[str]:
    """Read the column names of the stream with the parts ``paths``. Raises :class:`StoreError`."""
    if not paths:
        return []
    if is_open(paths[0]):
        names: list[str] = open_parts(paths[:1]).schema.names
        return names
    try:
        state = paths[0].stat()
    except OSError:  # opening it reports the reason
        return list(_columns_of(paths[0], None))
    return list(_columns_of(paths[0], (state.st_mtime_ns, state.st_size)))


@lru_cache(maxsize=64)
def _columns_of(path: Path, state: tuple[int, int] | None) -> tuple[str, ...]:
    # a part never changes; opening one with thousands of columns takes some 50 ms
    return tuple(open_part(path, lambda file: file.schema_arrow.names))


def episodes_in(path: Path) -> tuple[tuple[int, int, int], ...]:
    """Read the workers in a part, each with its first and its last episode. Raises :class:`StoreError`."""
    if is_open(path):
        return _read_episodes(path)
    try:
        state = path.stat()
    except OSError:  # opening it reports the reason
        return _read_episodes(path)
    return _episodes_in(path, (state.st_mtime_ns, state.st_size))


@lru_cache(maxsize=16384)
def _episodes_in(path: Path, state: tuple[int, int]) -> tuple[tuple[int, int, int], ...]:
    # a part never changes, and a view of a run asks again with each new part
    return _read_episodes(path)


def _read_episodes(path: Path) -> tuple[tuple[int, int, int], ...]:
    table = read_parts([path], columns=["worker", "episode"])
    grouped = table.group_by("worker").aggregate([("episode", "min"), ("episode", "max")])
    columns = (grouped[name].to_pylist() for name in ("worker", "episode_min", "episode_max"))
    return tuple(zip(*columns, strict=True))


def read_wall(paths: Sequence[Path], expression: Callable[[Sequence[str]], Any] | None = None) -> pa.Table:
    """Read the wall-clock times of an agent's rows, which :func:`read_parts` reads from ``paths``.

    During a run, there may be more rows by now.
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
        row_filter = None if expression is None else expression(rows.schema.names)
        tables.append(ds.dataset(rows).to_table(columns=["wall"], filter=row_filter))
    return pa.concat_tables(tables)

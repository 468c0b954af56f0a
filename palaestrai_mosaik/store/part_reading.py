"""Reading part files. What is missing or damaged is an error that names the file.

Parts carry a checksum for each of their pages, which is verified whenever one is read: without, most
damage would be read as other numbers. (Parts of older releases have none; their digest in the
database tells, see :mod:`.verify`.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.errors import StoreError

from .parts import part_files, part_path

if TYPE_CHECKING:
    import pyarrow as pa


class UnreadableError(StoreError):
    """A file or folder could not be read, because of rights or a file system that does not answer: it may be whole."""


def whole_parts(folder: Path, count: Any = None) -> list[Path]:
    """Return all parts of a stream, in order.

    ``count``: how many the database says there are; no number, as long as the phase has not ended.
    Raises :class:`StoreError` where one is missing, :class:`UnreadableError` where nobody can tell.
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


def open_part(path: Path, ask: Callable[[Any], Any]) -> Any:
    """Return what ``ask`` makes of the part, a :class:`pyarrow.parquet.ParquetFile`.

    Raises :class:`StoreError` where it is missing or damaged, :class:`UnreadableError` where nobody can tell.
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
    """Return the parts of one stream as a :class:`pyarrow.dataset.Dataset`; see :func:`damage_told`."""
    import pyarrow.dataset as ds

    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    form = ds.ParquetFileFormat(default_fragment_scan_options=options)
    return ds.dataset([str(path) for path in paths], format=form)


@contextmanager
def damage_told(paths: Sequence[Path]) -> Iterator[None]:
    """Raise :class:`StoreError` with the name of the file where reading one of ``paths`` fails."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException) as error:
        for path in paths:
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
    with damage_told(paths):
        dataset = open_parts(paths)
        names = dataset.schema.names if columns is None else list(columns)
        return dataset.to_table(columns=names, filter=expression(dataset.schema.names))


def columns_of(paths: Sequence[Path]) -> list[str]:
    """Return the columns of a stream, of which ``paths`` are the parts. Raises :class:`StoreError`."""
    names: list[str] = open_part(paths[0], lambda file: file.schema_arrow.names) if paths else []
    return names

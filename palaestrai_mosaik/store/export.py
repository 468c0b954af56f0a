"""Writes all of a run as plain files for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import StoreError, did_you_mean

from .lookup import inside
from .models import to_json
from .part_reading import open_part, read_parts, whole_parts
from .parts import write_text

if TYPE_CHECKING:
    import pandas as pd

    from .trajectories import Trajectories

#: by kind, phase, name and group of a stream: the numbers of the bodies or incarnations that are meant
Picked = Mapping[tuple[str, int, str, int], Sequence[int]]

FORMATS = ("parquet", "csv")
# The queries whose frames are written; of brains, all but the dumps.
_TABLES = (
    *("phases", "environments", "agents", "bodies", "channels", "streams"),
    *("episodes", "outcomes", "brains", "errors", "warnings"),
)


def export_run(
    store: Trajectories, run: str, directory: Path, format: str, picked: Picked | None = None
) -> list[Path]:
    """Write the tables and streams of ``run`` into ``directory``; return the files' paths.

    ``picked``: the only streams, and the numbers of bodies or incarnations in them.

    Raises :class:`StoreError` for an unknown run or format, a folder that is not empty,
    and when a file cannot be written.
    """
    if format not in FORMATS:
        hint = did_you_mean(format, FORMATS)
        raise StoreError(f"cannot export as {format!r}{hint}; the formats are {', '.join(FORMATS)}")
    uid = store.find_run(run)
    try:
        files.add_root(directory)
        files.make_folder(directory, parents=True)
        if any(directory.iterdir()):
            raise StoreError(f"the folder {directory} is not empty: export into a new one")
        return list(_export(store, uid, directory, format, picked))
    except OSError as error:
        raise StoreError(f"cannot export to {directory}: {error}") from error


def _export(
    store: Trajectories, uid: str, directory: Path, format: str, picked: Picked | None
) -> Iterable[Path]:
    runs = store.runs()
    found = runs[runs["run"] == uid].iloc[0]
    row = {str(key): None if missing else found[str(key)] for key, missing in found.isna().items()}
    for name, text in (
        ("run.json", to_json(row) + "\n"),
        ("document.json", to_json(store.document(uid)) + "\n"),
        ("document.yml", store.document_text(uid)),
    ):
        write_text(directory / name, text)
        yield directory / name
    both = {"evaluation": None}
    for title in _TABLES:
        query = getattr(store, title)
        frame: pd.DataFrame = query(uid, **(both if title in ("episodes", "outcomes") else {}))
        for name in ("params", "world_model", "sensors", "actuators", "rewards"):
            if name in frame:
                frame[name] = [None if value is None else to_json(value) for value in frame[name]]
        path = directory / f"{title}.{format}"
        if format == "csv":
            with files.writing_text(path, durable=False) as table:
                frame.to_csv(table, index=False)
        else:
            with files.writing(path, durable=False) as stream:
                frame.to_parquet(stream, index=False)
        yield path
    root = store.instance_directory(uid)
    streams = store.streams(uid)[["kind", "phase", "name", "group", "folder", "parts"]]
    for kind, phase, name, group, folder, count in streams.itertuples(index=False):
        # the wall-clock is that of the same rows
        key = ("agent" if kind == "wall" else kind, phase, name, group)
        parts = whole_parts(inside(root, folder), count)
        if parts and (picked is None or key in picked):
            path = inside(directory, f"{folder}.{format}")
            _join(parts, path, format, None if picked is None else picked[key])
            yield path


def _join(parts: list[Path], path: Path, format: str, numbers: Sequence[int] | None) -> None:
    """Write the rows of all ``parts`` (of bodies with these ``numbers``) to one file, a part in memory at a time."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    from .trajectories import Rows

    files.make_folder(path.parent, parents=True)
    schema = open_part(parts[0], lambda file: file.schema_arrow)
    with (
        files.writing(path, durable=False) as stream,
        csv.CSVWriter(stream, schema)
        if format == "csv"
        else pq.ParquetWriter(stream, schema, compression="zstd") as writer,
    ):
        for part in parts:
            writer.write_table(read_parts([part], Rows(numbers=numbers).expression).cast(schema))

"""Writes all of a run as plain files for other programs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.errors import StoreError, did_you_mean

from .models import to_json
from .parts import part_files, write_text

if TYPE_CHECKING:
    import pandas as pd

    from .trajectories import Trajectories

FORMATS = ("parquet", "csv")
# The queries whose frames are written; of brains, all but the dumps.
_TABLES = (
    *("phases", "environments", "agents", "channels", "streams"),
    *("episodes", "outcomes", "brains", "errors", "warnings"),
)


def export_run(store: Trajectories, run: str, directory: Path, format: str) -> list[Path]:
    """Write the tables and streams of ``run`` into ``directory``; return the files' paths.

    Raises :class:`StoreError` for an unknown run or format, a folder that is not empty,
    and when a file cannot be written.
    """
    if format not in FORMATS:
        hint = did_you_mean(format, FORMATS)
        raise StoreError(f"cannot export as {format!r}{hint}; the formats are {', '.join(FORMATS)}")
    uid = store.find_run(run)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise StoreError(f"the folder {directory} is not empty: export into a new one")
        return list(_export(store, uid, directory, format))
    except OSError as error:
        raise StoreError(f"cannot export to {directory}: {error}") from error


def _export(store: Trajectories, uid: str, directory: Path, format: str) -> Iterable[Path]:
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
            frame.to_csv(path, index=False)
        else:
            frame.to_parquet(path, index=False)
        yield path
    root = store.instance_directory(uid)
    for folder in store.streams(uid)["folder"]:
        parts = part_files(root / folder)
        if parts:
            path = directory / f"{folder}.{format}"
            _join(parts, path, format)
            yield path


def _join(parts: list[Path], path: Path, format: str) -> None:
    """Write the rows of all ``parts`` to one file, a part in memory at a time."""
    import pyarrow.parquet as pq
    from pyarrow import csv

    path.parent.mkdir(parents=True, exist_ok=True)
    schema = pq.read_schema(parts[0])
    if format == "csv":
        writer: Any = csv.CSVWriter(path, schema)
    else:
        writer = pq.ParquetWriter(path, schema, compression="zstd")
    with writer:
        for part in parts:
            writer.write_table(pq.ParquetFile(part).read())

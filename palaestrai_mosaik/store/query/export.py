"""Export of one run as plain files: its tables, its documents and its rows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback

from ..log import LOG
from ..models import to_json
from ..parts import parts_so_far, read_parts, write_text
from .brains import BrainQueries
from .lookup import inside
from .members import Bodies, DescriptionQueries, Members
from .runs import RunQueries
from .trajectories import RowRange

if TYPE_CHECKING:
    import pandas as pd

#: by kind, phase, name and group of a stream: the numbers of the selected bodies or incarnations
_Chosen = dict[tuple[str, int, str, int], Sequence[int]]

FORMATS = ("parquet", "csv")
#: the file in the folder of an unfinished export, with the run and the format
UNFINISHED = ".unfinished-export"
#: the kind of stream with the same rows, by which bodies and environments are selected
_SAME_ROWS = {"wall": "agent", "frames": "environment"}


class Export(RunQueries, Members, BrainQueries, DescriptionQueries):
    """Writes a run to files. Unknown names raise :class:`StoreError`."""

    def export(
        self,
        run: str,
        directory: str | Path,
        format: str = "parquet",
        *,
        environment: str | None = None,
        body: Bodies | None = None,
        progress: ProgressCallback | None = None,
    ) -> list[Path]:
        """Write all data of a run to files.

        Every table becomes a file, and so does every stream of steps, its parts joined. Each rendered frame becomes a
        PNG file: ``trajectories/phase-0/frames-UID/worker-0/episode-0/step-0.png``. Topologies
        are in ``topologies.json``, worlds in ``worlds.json``, the log in ``log.txt``, if there are any.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            directory: a new or empty folder, or that of the same export if it was killed: its files are written again.
            format: ``"parquet"`` or ``"csv"``.
            environment: uid of an environment: of the streams, only the rows of agents that :meth:`steps`
                would return for it, and the states around these bodies; ``None``: all.
            body: number or label of a body, or a list of them: only their rows, and the states around them;
                ``None``: all.
            progress: called with the number of parts read, and the total.

        Returns:
            The paths of the files.

        Raises:
            StoreError: the run, environment, body or format does not exist, the folder is not empty, or a
                file cannot be written.
        """
        chosen = None
        if environment is not None or body is not None:
            chosen = self._chosen(run, environment, body)
        if format not in FORMATS:
            hint = did_you_mean(format, FORMATS)
            raise StoreError(f"cannot export as {format!r}{hint}; the formats are {', '.join(FORMATS)}")
        uid = self.find_run(run)
        target = Path(directory)
        try:
            files.add_root(target)
            files.make_folder(target, parents=True)
            unfinished = target / UNFINISHED
            what = (
                to_json({"run": uid, "format": format, "environment": environment, "body": str(body)}) + "\n"
            )
            _begin(target, unfinished, what)
            paths = list(self._write(uid, target, format, chosen, progress))
            files.remove(unfinished)
            return paths
        except OSError as error:
            raise StoreError(f"cannot export to {target}: {error}") from error

    def _chosen(self, run: str, environment: str | None, body: Bodies | None) -> _Chosen:
        groups = self._body_groups(run, None, None, environment, body)
        chosen: _Chosen = {("agent", *group.key): tuple(group.numbers) for group in groups}
        for group in groups:
            for uid in group.environments:
                if environment in (None, uid):
                    key = ("environment", group.phase, uid, 0)
                    chosen[key] = (*chosen.get(key, ()), *group.incarnations(uid))
        return chosen

    def _write(
        self,
        uid: str,
        directory: Path,
        format: str,
        chosen: _Chosen | None,
        progress: ProgressCallback | None,
    ) -> Iterable[Path]:
        for name, text in self._texts(uid):
            write_text(directory / name, text)
            yield directory / name
        for title, table in self._tables(uid):
            path = directory / f"{title}.{format}"
            _write_table(table, path, format)
            yield path
        yield from self._write_streams(uid, directory, format, chosen, progress)

    def _texts(self, uid: str) -> Iterator[tuple[str, str]]:
        """Yield the name and the content of each text file."""
        run = self.runs(uid).iloc[0]
        row = {str(key): None if missing else run[str(key)] for key, missing in run.isna().items()}
        yield "run.json", to_json(row) + "\n"
        yield "document.json", to_json(self.document(uid)) + "\n"
        yield "document.yml", self.document_text(uid)
        log = self.log(uid)
        if log:
            yield LOG, log
        for title, descriptions in self._described(uid).items():
            if descriptions:
                yield f"{title}.json", to_json(descriptions) + "\n"

    def _tables(self, uid: str) -> Iterator[tuple[str, pd.DataFrame]]:
        """Yield the tables with a file each; of brains, without the dumps."""
        yield "phases", self.phases(uid)
        yield "environments", self.environments(uid)
        yield "agents", self.agents(uid)
        yield "bodies", self.bodies(uid)
        yield "channels", self.channels(uid)
        yield "streams", self.streams(uid)
        yield "episodes", self.episodes(uid, evaluation=None)
        yield "outcomes", self.outcomes(uid, evaluation=None)
        yield "brains", self.brains(uid)
        yield "errors", self.errors(uid)
        yield "warnings", self.warnings(uid)

    def _write_streams(
        self,
        uid: str,
        directory: Path,
        format: str,
        chosen: _Chosen | None,
        progress: ProgressCallback | None,
    ) -> Iterable[Path]:
        """Join the parts of each stream into one file, and write each frame to a file."""
        root = self.instance_directory(uid)
        streams = self.streams(uid)[["kind", "phase", "name", "group", "folder", "parts"]]
        selected = []
        for kind, phase, name, group, folder, count in streams.itertuples(index=False):
            # wall-clock times have the same rows as their agent
            key = (_SAME_ROWS.get(kind, kind), phase, name, group)
            parts = parts_so_far(inside(root, folder), count)
            if parts and (chosen is None or key in chosen):
                selected.append((kind == "frames", folder, parts, None if chosen is None else chosen[key]))
        # frames come last
        selected.sort(key=lambda stream: stream[0])
        counted = PartsProgress(progress, sum(len(parts) for _, _, parts, _ in selected))
        for are_frames, folder, parts, numbers in selected:
            if are_frames:
                yield from _images(parts, inside(directory, folder), counted)
            else:
                path = inside(directory, f"{folder}.{format}")
                _join(parts, path, format, numbers, counted)
                yield path


def _write_table(frame: pd.DataFrame, path: Path, format: str) -> None:
    """Write a table; lists and mappings in it become JSON."""
    for name in ("params", "world_model", "sensors", "actuators", "rewards"):
        if name in frame:
            frame[name] = [None if value is None else to_json(value) for value in frame[name]]
    if format == "csv":
        with files.writing_text(path, durable=False) as table:
            frame.to_csv(table, index=False)
    else:
        with files.writing(path, durable=False) as stream:
            frame.to_parquet(stream, index=False)


def _begin(target: Path, unfinished: Path, what: str) -> None:
    """Start or restart the export ``what`` into a folder. Raises :class:`StoreError` if it has other files."""
    if any(not files.is_temporary(name) for name in os.listdir(target)):
        try:
            before = files.read_text(unfinished)
        except FileNotFoundError:
            before = ""
        if before != what:
            left = " (it holds another export, which did not end)" if before else ""
            raise StoreError(f"the folder {target} is not empty{left}: export into a new one")
    for folder, _, names in os.walk(target):
        for name in filter(files.is_temporary, names):
            files.remove(Path(folder, name), missing_ok=True)
    write_text(unfinished, what)


def _images(parts: list[Path], root: Path, counted: PartsProgress) -> Iterable[Path]:
    """Write each frame of a stream to a file below ``root``, with one part in memory at a time."""
    for part in parts:
        table = read_parts([part])
        for row in table.to_pylist():
            suffix = f"-{row['environment_episode']}" if row["environment_episode"] else ""
            folder = root / f"worker-{row['worker']}" / f"episode-{row['episode']}{suffix}"
            files.make_folder(folder, parents=True)
            path = folder / f"step-{row['step']}.png"
            files.write_bytes(path, row["png"], durable=False)
            yield path
        counted.end()


def _join(
    parts: list[Path], path: Path, format: str, numbers: Sequence[int] | None, counted: PartsProgress
) -> None:
    """Write the rows of all ``parts`` (of bodies with these ``numbers``) to one file, with one part in memory at a
    time.
    """
    import pyarrow.parquet as pq
    from pyarrow import csv

    files.make_folder(path.parent, parents=True)
    tables = (read_parts([part], RowRange(numbers=numbers).expression) for part in parts)
    first = next(tables)
    with (
        files.writing(path, durable=False) as stream,
        csv.CSVWriter(stream, first.schema)
        if format == "csv"
        else pq.ParquetWriter(stream, first.schema, compression="zstd") as writer,
    ):
        for table in itertools.chain([first], tables):
            writer.write_table(table.cast(first.schema))
            counted.end()

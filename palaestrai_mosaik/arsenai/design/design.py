"""The public interface of designs: load a design, plan it with estimates from earlier executions, generate it."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import Problem
from palaestrai_mosaik.core.pages import HEIGHT, Page
from palaestrai_mosaik.core.progress import ProgressCallback

from .expansion import Expansion, run_uid, slug
from .folder import JOBS, OUTPUTS, RESULTS, STORES, DesignFolder
from .load import from_mapping, load
from .model import DesignSpec, described
from .rows import draw_rows, expand
from .search import examples
from .writer import Written, write_folder

#: size of a database without runs, in bytes
EMPTY_DATABASE = 188_416
#: largest number of runs to sample for estimates
_SAMPLE = 1000
#: folder of a store with one folder per execution of a run, and the pattern of its database's files
_INSTANCES, _DATABASE = "instances", "store.db*"


@dataclass(frozen=True, slots=True)
class Experience:
    """Averages over earlier runs of a design; None if unknown.

    Attributes:
        runs: number of earlier runs.
        seconds: median seconds per run.
        size: mean bytes per run.
        files: mean number of files and folders per run, as quotas count them.
        database: mean bytes per run in the database, which are a part of ``size``.
    """

    runs: int
    seconds: float | None = None
    size: int | None = None
    files: float | None = None
    database: int | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimated resources of a design's runs; None if unknown.

    Attributes:
        jobs: number of runs at a time.
        seconds_per_run: seconds per run.
        seconds: seconds of all runs.
        size: bytes of all results.
        source: source of ``seconds_per_run``, for people.
        files: number of files and folders of all results.
        database: bytes in the database, which are a part of ``size``.
    """

    jobs: int
    seconds_per_run: float | None
    seconds: float | None
    size: int | None
    source: str
    files: int | None = None
    database: int | None = None


def estimate(runs: int, jobs: int, seconds_per_run: float | None, experience: Experience) -> Estimate:
    """Estimate the resources of ``runs`` runs.

    Args:
        runs: number of runs.
        jobs: number of runs at a time.
        seconds_per_run: seconds per run; None takes those of earlier runs.
        experience: averages over earlier runs.
    """
    source = "as given"
    if seconds_per_run is None:
        seconds_per_run = experience.seconds
        source = f"median of {experience.runs} earlier" if seconds_per_run is not None else ""
    # runs of equal length start and end in rounds
    seconds = None if seconds_per_run is None else math.ceil(runs / jobs) * seconds_per_run
    size, files, database = (
        None if mean is None else round(mean * runs)
        for mean in (experience.size, experience.files, experience.database)
    )
    return Estimate(jobs, seconds_per_run, seconds, size, source, files, database)


def experience(folder: Path) -> Experience:
    """Measure the time and space of earlier runs, from the records in the design's folder.

    Only some of many runs are sampled. Sizes come from ``results`` or, before the first run, from the
    stores of single runs on a cluster. Those do not show the size of the database, because one run fits
    into the pages of an empty one.
    """
    records = sorted(name for name in _names(folder / JOBS) if name.endswith(".json"))
    every = math.ceil(len(records) / _SAMPLE) or 1
    seconds = list(_seconds(folder / JOBS / name for name in records[::every]))
    if not seconds:
        return Experience(0)
    results, stores = folder / RESULTS, folder / STORES
    instances = _instances(results)
    database = None
    if instances:
        size = sum(map(_bytes, results.glob(_DATABASE)))
        # a PostgreSQL database is not in the folder
        database = round(max(0, size - EMPTY_DATABASE) / len(instances)) if size else None
    else:
        instances = [instance for name in _names(stores)[:_SAMPLE] for instance in _instances(stores / name)]
    median, seen = statistics.median(seconds), instances[:_SAMPLE]
    if not seen:
        return Experience(len(seconds), median)
    files, size = map(sum, zip(*map(_entries_and_bytes, seen), strict=True))
    return Experience(
        len(seconds), median, round(size / len(seen)) + (database or 0), files / len(seen), database
    )


def _entries_and_bytes(folder: Path) -> tuple[int, int]:
    """Return the number of files and folders in ``folder``, including itself, and the bytes of the files."""
    entries = size = 0
    for path, _, names in os.walk(folder):
        entries += 1 + len(names)
        size += sum(_bytes(os.path.join(path, name)) for name in names)
    return entries, size


def _bytes(file: str | Path) -> int:
    try:
        return os.stat(file).st_size
    except FileNotFoundError:
        return 0  # renamed by a running run


def _instances(store: Path) -> list[Path]:
    return [store / _INSTANCES / name for name in _names(store / _INSTANCES)]


def _names(folder: Path) -> list[str]:
    """Return the entries of ``folder``, without hidden ones; empty if it does not exist."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _seconds(records: Iterable[Path]) -> Iterator[float]:
    for file in records:
        try:
            record = json.loads(files.read_text(file))
        except ValueError:
            continue  # an edited record; ignored, like one without seconds
        if isinstance(record, dict) and record.get("status") == "finished":
            seconds = record.get("seconds")
            if isinstance(seconds, float | int):
                yield seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a design.

    Attributes:
        spec: the design.
        drawn: number of points of the sample.
        rows: number of points that the constraints allow.
        documents: number of different run documents, which is the number of runs to execute.
        size: bytes of all documents.
        estimate: estimated resources of the runs.
        warnings: warnings of the design, the sampler and the documents.
    """

    spec: DesignSpec
    drawn: int
    rows: int
    documents: int
    size: int
    estimate: Estimate
    warnings: tuple[str, ...]

    @property
    def repetitions(self) -> int:
        """How often every row is executed, each time with another seed."""
        return self.spec.repetitions

    @property
    def runs(self) -> int:
        """The number of repetitions of all rows."""
        return self.rows * self.repetitions


def merge_warnings(
    design: tuple[Problem, ...], sample: tuple[str, ...], documents: tuple[Problem, ...]
) -> tuple[str, ...]:
    """Return all warnings as text, without those of documents that repeat a warning of the design."""
    messages = {problem.message for problem in design}
    new = [problem for problem in documents if problem.message not in messages]
    return tuple(dict.fromkeys(map(str, (*design, *sample, *new))))


class Design:
    """A valid design document (``spec``).

    ::

        folder = Design.load("design.yml").generate()
        for run in folder.documents:
            print(run.uid, folder.path / run.file)
    """

    def __init__(self, spec: DesignSpec):
        self.spec = spec

    @classmethod
    def load(cls, path: str | Path) -> Design:
        """Read a design document.

        Args:
            path: the file (YAML, UTF-8).

        Returns:
            The valid design.

        Raises:
            DocumentError: carries every problem found.
        """
        return cls(load(path))

    @classmethod
    def from_mapping(
        cls, data: Mapping[str, Any], source: str = "<mapping>", directory: Path | None = None
    ) -> Design:
        """Build a design from plain data.

        Args:
            data: the document as mappings, lists, numbers and texts.
            source: name of the document in messages.
            directory: folder that its paths to other files are relative to; None for the working directory.

        Returns:
            The valid design.

        Raises:
            DocumentError: carries every problem found.
        """
        return cls(from_mapping(data, source, directory))

    @property
    def folder(self) -> Path:
        """The default folder to generate into: named after the uid, in ``output``, or else in ``_outputs``."""
        return Path(self.spec.output or OUTPUTS, slug(self.spec.uid))

    def view(self, height: int = HEIGHT) -> Page:
        """Build the design's page for notebooks; the design must have been generated into :attr:`folder`.

        Args:
            height: height of the page in the notebook, in pixels.

        Returns:
            The page, which a notebook displays.

        Raises:
            DocumentError: it has not been generated there.
            StoreError: the store of the results cannot be opened.
        """
        from palaestrai_mosaik import view

        return view(self, height=height)

    def _repr_html_(self) -> str:
        """Describe the sampler, the factors and the outcomes for a notebook."""
        return described(self.spec)

    def plan(
        self,
        folder: str | Path | None = None,
        seconds_per_run: float | None = None,
        progress: ProgressCallback | None = None,
    ) -> Plan:
        """Count the runs and estimate their resources, without writing anything.

        Args:
            folder: folder of the generated design, with earlier runs; None for :attr:`folder`.
            seconds_per_run: seconds per run; None takes those of earlier runs in the folder, if there are any.
            progress: called with the number of runs done and their total.

        Returns:
            The numbers of rows, runs and documents, and the estimates in seconds and bytes.

        Raises:
            DocumentError: a run document is invalid.
        """
        spec = self.spec
        # for a search, examples of its settings
        expansion, rows = Expansion(spec), draw_rows(examples(spec))
        unique = size = 0
        for row in expand(rows, expansion):
            if row.first == row.number:
                unique += 1
                uid = run_uid(spec.uid, row.number, 0)
                text, _ = row.documents.document(uid, expansion.seed(row.name, 0))
                size += len(text.encode("utf-8"))
            if progress is not None:
                progress((row.number + 1) * spec.repetitions, rows.count * spec.repetitions)
        jobs = (spec.resolved.get("execution") or {}).get("jobs")
        jobs = jobs if isinstance(jobs, int) and jobs > 0 else available_cores()
        documents = unique * spec.repetitions
        earlier = experience(self.folder if folder is None else Path(folder))
        return Plan(
            spec,
            rows.drawn,
            rows.count,
            documents,
            size * spec.repetitions,
            estimate(documents, jobs, seconds_per_run, earlier),
            merge_warnings(spec.warnings, rows.sample.warnings, expansion.warnings),
        )

    def generate(
        self, folder: str | Path | None = None, force: bool = False, progress: ProgressCallback | None = None
    ) -> DesignFolder:
        """Write all run documents into a folder and return it.

        A folder that is up to date is not touched.

        Args:
            folder: the folder; None for :attr:`folder`.
            force: whether to replace another design in the folder.
            progress: called with the number of runs done and their total.

        Returns:
            The generated folder.

        Raises:
            DocumentError: the folder is refused, or a run document is invalid. Nothing is written then.
        """
        return DesignFolder.open(self.write(folder, force, progress).path)

    def write(
        self, folder: str | Path | None = None, force: bool = False, progress: ProgressCallback | None = None
    ) -> Written:
        """Generate like :meth:`generate`, without opening the folder.

        Args:
            folder: see :meth:`generate`.
            force: see :meth:`generate`.
            progress: see :meth:`generate`.

        Returns:
            How the folder changed, and the warnings about its documents.

        Raises:
            DocumentError: see :meth:`generate`.
        """
        path = self.folder if folder is None else Path(folder)
        return write_folder(self.spec, path, force=force, progress=progress)

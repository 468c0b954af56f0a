"""A design for use in programs: load it, plan it (with estimates from earlier executions), generate it."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import Problem
from palaestrai_mosaik.pages import HEIGHT, Page
from palaestrai_mosaik.progress import ProgressCallback

from .described import described
from .expansion import Expansion
from .folder import JOBS, OUTPUTS, RESULTS, STORES, DesignFolder
from .load import from_mapping, load
from .model import DesignSpec
from .rows import draw_rows, expand
from .run_names import run_uid, slug
from .search import examples
from .writer import Written, write_folder

#: bytes of a database without runs
EMPTY_DATABASE = 155_648
#: of so many runs at most the records and the files are looked at
_SAMPLE = 1000
#: the folder of a store with a folder for each execution of a run, and how its database is named
_INSTANCES, _DATABASE = "instances", "store.db*"


@dataclass(frozen=True, slots=True)
class Experience:
    """What earlier runs of a design took.

    Of one run: ``seconds`` (median), ``size`` (bytes, mean, of which ``database`` in SQL), ``files`` (mean,
    folders with them: what counts towards a quota). ``None`` where nothing is known.
    """

    runs: int
    seconds: float | None = None
    size: int | None = None
    files: float | None = None
    database: int | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the runs of a design take.

    ``seconds``: of the whole, with ``jobs`` at a time; ``seconds_per_run`` is what ``source``
    says; ``size``: bytes of all results, ``database`` of which in SQL, the others in ``files`` (with folders).
    ``None`` where nothing is known.
    """

    jobs: int
    seconds_per_run: float | None
    seconds: float | None
    size: int | None
    source: str
    files: int | None = None
    database: int | None = None


def estimate(runs: int, jobs: int, seconds_per_run: float | None, experience: Experience) -> Estimate:
    """Return what ``runs`` runs take; ``seconds_per_run`` goes before what is known by experience."""
    source = "as given"
    if seconds_per_run is None:
        seconds_per_run = experience.seconds
        source = f"median of {experience.runs} earlier" if seconds_per_run is not None else ""
    # runs of equal length start and end in rounds
    seconds = None if seconds_per_run is None else math.ceil(runs / jobs) * seconds_per_run
    size, files, database = (
        None if of_one is None else round(of_one * runs)
        for of_one in (experience.size, experience.files, experience.database)
    )
    return Estimate(jobs, seconds_per_run, seconds, size, source, files, database)


def experience(folder: Path) -> Experience:
    """Return the time and space that earlier runs took, from the records in the design's folder.

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
        # (a database of PostgreSQL is not in the folder)
        database = round(max(0, size - EMPTY_DATABASE) / len(instances)) if size else None
    else:
        instances = [one for name in _names(stores)[:_SAMPLE] for one in _instances(stores / name)]
    median, seen = statistics.median(seconds), instances[:_SAMPLE]
    if not seen:
        return Experience(len(seconds), median)
    files, size = map(sum, zip(*map(_entries_and_bytes, seen), strict=True))
    return Experience(
        len(seconds), median, round(size / len(seen)) + (database or 0), files / len(seen), database
    )


def _entries_and_bytes(folder: Path) -> tuple[int, int]:
    """Return how many files and folders ``folder`` is, itself included, and the bytes of the files."""
    entries = size = 0
    for path, _, names in os.walk(folder):
        entries += 1 + len(names)
        size += sum(_bytes(os.path.join(path, name)) for name in names)
    return entries, size


def _bytes(file: str | Path) -> int:
    try:
        return os.stat(file).st_size
    except FileNotFoundError:
        return 0  # a run that goes on has renamed it


def _instances(store: Path) -> list[Path]:
    return [store / _INSTANCES / name for name in _names(store / _INSTANCES)]


def _names(folder: Path) -> list[str]:
    """Return what is in ``folder``, nothing if it does not exist; what is being made is left out."""
    try:
        return [name for name in os.listdir(folder) if not name.startswith(".")]
    except (FileNotFoundError, NotADirectoryError):
        return []


def cores() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _seconds(records: Iterable[Path]) -> Iterator[float]:
    for file in records:
        try:
            record = json.loads(files.read_text(file))
        except ValueError:
            continue  # it was edited, as one without a number of seconds: it says nothing about time
        if isinstance(record, dict) and record.get("status") == "finished":
            seconds = record.get("seconds")
            if isinstance(seconds, float | int):
                yield seconds


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a design.

    Of the ``drawn`` points the constraints leave ``rows``; with ``repetitions`` each they are
    ``runs``, of which ``documents`` differ in more than their uid: so many are executed. The
    documents take ``size`` bytes. ``warnings`` are those of the design, the sampler, the documents.
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
        """How often every row is executed, with other seeds."""
        return self.spec.repetitions

    @property
    def runs(self) -> int:
        """Every repetition of every row."""
        return self.rows * self.repetitions


def merge_warnings(
    design: tuple[Problem, ...], sample: tuple[str, ...], documents: tuple[Problem, ...]
) -> tuple[str, ...]:
    """Return all warnings as text, without those of documents that repeat one of the design."""
    known = {problem.message for problem in design}
    new = [problem for problem in documents if problem.message not in known]
    return tuple(dict.fromkeys(map(str, (*design, *sample, *new))))


class Design:
    """A sound design document (``spec``).

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

        Raises:
            DocumentError: carries every problem found.
        """
        return cls(load(path))

    @classmethod
    def from_mapping(
        cls, data: Mapping[str, Any], source: str = "<mapping>", directory: Path | None = None
    ) -> Design:
        """Make a design of plain data.

        Args:
            data: the document as mappings, lists, numbers and texts.
            source: what messages call the document.
            directory: where its paths to other files start; ``None``: the working directory.

        Raises:
            DocumentError: carries every problem found.
        """
        return cls(from_mapping(data, source, directory))

    @property
    def folder(self) -> Path:
        """Where it is generated, unless told otherwise: named as its uid, in ``output``.

        Without ``output``, that is ``_outputs``.
        """
        return Path(self.spec.output or OUTPUTS, slug(self.spec.uid))

    def view(self, height: int = HEIGHT) -> Page:
        """Return the page of the design, which a notebook shows; it must have been generated into :attr:`folder`.

        Args:
            height: of the page in the notebook, in pixels.

        Raises:
            DocumentError: it has not been generated there.
            StoreError: the store of the results cannot be opened.
        """
        from palaestrai_mosaik import view

        return view(self, height=height)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the sampler, the factors and the outcomes."""
        return described(self.spec)

    def plan(
        self,
        folder: str | Path | None = None,
        seconds_per_run: float | None = None,
        progress: ProgressCallback | None = None,
    ) -> Plan:
        """Return how many runs there are and what they will take; nothing is written.

        Args:
            folder: the folder that the design is generated into, where earlier runs are looked for; ``None``:
                :attr:`folder`.
            seconds_per_run: how long a run takes; ``None``: what earlier runs in the folder took, if there
                are any.
            progress: is called with the number of runs done and of all; ``None``: nothing is.

        Raises:
            DocumentError: a run document is not sound.
        """
        spec = self.spec
        # (of a search, some that it might try)
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
        jobs = jobs if isinstance(jobs, int) and jobs > 0 else cores()
        documents = unique * spec.repetitions
        known = experience(self.folder if folder is None else Path(folder))
        return Plan(
            spec,
            rows.drawn,
            rows.count,
            documents,
            size * spec.repetitions,
            estimate(documents, jobs, seconds_per_run, known),
            merge_warnings(spec.warnings, rows.sample.warnings, expansion.warnings),
        )

    def generate(
        self, folder: str | Path | None = None, force: bool = False, progress: ProgressCallback | None = None
    ) -> DesignFolder:
        """Write all run documents into a folder and return it.

        A folder that is as the design makes it is left alone.

        Args:
            folder: the folder; ``None``: :attr:`folder`.
            force: replace another design in the folder.
            progress: is called with the number of runs done and of all; ``None``: nothing is.

        Raises:
            DocumentError: the folder is refused, or a run document is not sound. Then nothing is written.
        """
        return DesignFolder.open(self.write(folder, force, progress).path)

    def write(
        self, folder: str | Path | None = None, force: bool = False, progress: ProgressCallback | None = None
    ) -> Written:
        """Do what :meth:`generate` does, and return what became of the folder."""
        path = self.folder if folder is None else Path(folder)
        return write_folder(self.spec, path, force=force, progress=progress)

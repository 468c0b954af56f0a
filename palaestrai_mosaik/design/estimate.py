"""What executing a design will cost, by what is known of earlier executions of its folder."""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from palaestrai_mosaik import files

from .folder import JOBS, RESULTS, STORES

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
    # all runs alike: the last ones of a round begin and end together
    seconds = None if seconds_per_run is None else math.ceil(runs / jobs) * seconds_per_run
    size, files, database = (
        None if of_one is None else round(of_one * runs)
        for of_one in (experience.size, experience.files, experience.database)
    )
    return Estimate(jobs, seconds_per_run, seconds, size, source, files, database)


def experience(folder: Path) -> Experience:
    """Return what earlier runs in the folder of a design took, of which it keeps records.

    Of many runs some are looked at. What they need is read from ``results`` or, where there are none yet,
    from the stores that runs on a cluster have of their own. Those tell nothing of the database: in each,
    a run finds room in pages that are there without it.
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
    """Return what is in ``folder``, nothing where there is none; what is being made is left out."""
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

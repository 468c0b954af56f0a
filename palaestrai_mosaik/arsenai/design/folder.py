"""The folder of a design, which ``arsenai generate`` writes and all later steps read: its files, its rounds and its locks."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import shlex
import socket
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from errno import EAGAIN
from functools import cached_property
from pathlib import Path
from types import TracebackType, UnionType
from typing import IO, Any, NamedTuple, NoReturn, Self

import numpy as np

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import DocumentError, Problem
from palaestrai_mosaik.core.pages import HEIGHT, Page
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.experiment import content_digest, dumps
from palaestrai_mosaik.experiment import load as load_run

from .expansion import is_run_file
from .load import load
from .model import DesignSpec, described
from .samplers.sampler import Sample, unpack
from .settings import FOLDER, JOURNAL

#: keys of a round's measurements -> their types
_KINDS: Mapping[str, type | UnionType] = {
    **dict.fromkeys(("rows", "n", "runs", "holds", "lost"), int),
    **dict.fromkeys(("interval", "overlap"), int | float | None),
    **dict.fromkeys(("index", "factor", "outcome", "refused"), str),
}
#: keys in the manifest
ROUNDS, ENDED = "rounds", "rounds_ended"


@dataclass(frozen=True, slots=True)
class Rounds:
    """The rounds of a folder.

    Attributes:
        measured: for each round, in order: ``rows`` (of the design, including this round), and the measurements after
            their execution.
        ended: reason for adding no more rows; empty if they may be added.
    """

    measured: tuple[Mapping[str, Any], ...]
    ended: str = ""

    @property
    def number(self) -> int:
        """The number of rounds, including the one that has not been measured yet."""
        return len(self.measured)

    def entries(self) -> dict[str, Any]:
        """Convert the rounds to entries of a manifest."""
        return {ROUNDS: [dict(measurements) for measurements in self.measured], ENDED: self.ended}

    def lines(self) -> list[str]:
        """Describe each round's rows and measurements in a line."""
        return [
            f"round {number}: {_description(measurements)}"
            for number, measurements in enumerate(self.measured, start=1)
        ]


def _description(measured: Mapping[str, Any]) -> str:
    rows = count(int(measured["rows"]), "row")
    if "interval" in measured:
        if measured["interval"] is None:
            return f"{rows}, no indices of {measured['outcome']} yet: {measured['refused']}"
        of = (
            f" ({measured['index']} of {measured['factor']}, {measured['outcome']})"
            if "index" in measured
            else ""
        )
        return f"{rows}, widest interval ±{measured['interval']:.3g}{of}"
    if "holds" in measured:
        text = (
            f"{rows}, the condition holds in {measured['holds']:,} of {count(int(measured['runs']), 'run')}"
        )
        if measured.get("lost"):
            text += f" ({measured['lost']:,} more have no value)"
        if measured["overlap"] is not None:
            text += f", boxes have {100 * measured['overlap']:.0f} % in common with those of the round before"
        return text
    return f"{rows}, not all executed"


def rounds_in(manifest: Mapping[str, Any]) -> Rounds | None:
    """Read the rounds of a manifest; None if it has none, or was edited."""
    measured, ended = manifest.get(ROUNDS), manifest.get(ENDED)
    if not isinstance(measured, list) or not isinstance(ended, str) or not measured:
        return None
    sound = all(
        isinstance(measurements, dict) and type(measurements.get("rows")) is int and _is_sound(measurements)
        for measurements in measured
    )
    return Rounds(tuple(measured), ended) if sound else None


def _is_sound(measured: Mapping[str, Any]) -> bool:
    """Return whether a round's measurements have the types that :func:`_description` expects."""
    return all(isinstance(measured[key], _KINDS[key]) for key in _KINDS.keys() & measured.keys())


#: version of the folder's format
FORMAT = 1
DESIGN, TABLE, SAMPLE, MANIFEST, CHECKSUMS, RUNS = (
    "design.yml",
    "design.csv",
    "unit_sample.csv",
    "manifest.json",
    "SHA256SUMS",
    "runs",
)
#: default folder for the folders of designs
OUTPUTS = "_outputs"
#: files and folders that generating writes
GENERATED = (DESIGN, TABLE, SAMPLE, MANIFEST, CHECKSUMS, RUNS)
#: Folders that executing adds: the states of runs, and their results. Generating never touches them, because a run is
#: identified by the hash of its document in every design.
JOBS, RESULTS = "jobs", "results"
#: Files that executing on a cluster adds: the latest submitted script, the assignment of runs to tasks, and one store
#: per run, which ``arsenai collect`` merges into ``results``.
SCRIPT, SUBMISSIONS, STORES = "submit.sbatch", "submissions", "stores"
#: folder that a search adds: the design that confirms its best settings
CONFIRM = "confirm"
#: Folders that analyses add. They belong to one design, and are removed if another one replaces it.
ANALYSIS, REPORT = "analysis", "report"
#: Folders for the former files while generating exchanges them: while these are moved out, and while the new ones are
#: moved in.
REPLACING, REPLACED = ".replacing", ".replaced"
#: columns of ``design.csv`` before those of the factors
COLUMNS = ("row", "repetition", "uid", "run", "file", "seed", "hash")
_MISSING_PART = "this part of the design's folder is missing; {}"
#: keys of the manifest's counts
COUNTS = ("drawn", "rejected", "rows", "repetitions", "runs", "documents", "duplicates")


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One repetition of one row of the design, both numbered from 0.

    ``run`` is the uid of the run to execute: the run itself, or that of an earlier row with the same document
    except for the uid. ``file`` (relative to the folder), ``seed`` and ``hash`` describe the document of ``run``.
    """

    uid: str
    row: int
    repetition: int
    seed: int
    hash: str
    run: str
    file: str


class DesignFolder:
    """A generated folder, opened.

    Attributes:
        path: the folder.
        spec: the design.
        manifest: the manifest, as plain data.
        runs: every repetition of every row, in order.
    """

    def __init__(self, path: Path, spec: DesignSpec, manifest: dict[str, Any], runs: tuple[PlannedRun, ...]):
        self.path = path
        self.spec = spec
        self.manifest = manifest
        self.runs = runs
        #: cache of contents of documents, by hash
        self._contents: dict[str, str] = {}

    @classmethod
    def open(cls, path: str | Path) -> DesignFolder:
        """Open the folder at ``path``.

        The run documents are not read: see :meth:`verify`.

        Args:
            path: the folder.

        Returns:
            The folder, with its runs.

        Raises:
            DocumentError: this is no such folder, it has a newer format, is incomplete, or its parts do not match.
        """
        path = Path(path)
        try:
            trust(path)
        except OSError as error:
            refuse(path, f"cannot be opened: {error.strerror}")
        manifest = read_manifest(path)
        missing = [name for name in GENERATED if not (path / name).exists()]
        if DESIGN in missing:
            refuse(path / DESIGN, _MISSING_PART.format("generate the design anew"))
        spec = load(path / DESIGN)
        for name in missing:
            if spec.search is None:
                refuse(path / name, _MISSING_PART.format("generate the design anew"))
            if name != RUNS:
                # A search has all of it in its journal, and writes documents again when it goes on.
                refuse(path / name, _MISSING_PART.format(_written_again(path)))
        written = manifest["design"]["hash"]
        if spec.hash != written:
            refuse(
                path / DESIGN,
                f"the design was edited since the folder was generated (hash {spec.hash[:12]}, the "
                f"folder's is {written[:12]}); put the edit into a design of your own and generate that",
            )
        return cls(path, spec, manifest, _planned_runs(path, spec, manifest))

    def refreshed(self) -> DesignFolder:
        """Return the folder in its present state; this object if its manifest is the same.

        A search or another round may have added rows in the meantime. The design is read again only if its file has
        changed.

        Raises:
            DocumentError: the folder does not begin with these rows any more.
        """
        manifest = read_manifest(self.path)
        if manifest == self.manifest:
            return self
        if manifest["design"]["hash"] != self.manifest["design"]["hash"]:
            refuse(self.path, "the folder holds another design since it was opened; open it again")
        # a continued search may have another budget
        text = dumps(dict(self.spec.resolved))
        same = files.read_text(self.path / DESIGN) == text
        spec = self.spec if same else load(self.path / DESIGN)
        runs = _planned_runs(self.path, spec, manifest)
        if runs[: len(self.runs)] != self.runs:
            refuse(self.path / TABLE, "the rows are others since the folder was opened; open it again")
        folder = DesignFolder(self.path, spec, manifest, runs)
        folder._contents = self._contents
        return folder

    @property
    def documents(self) -> tuple[PlannedRun, ...]:
        """The runs to execute: those that are no duplicates of earlier ones."""
        return tuple(run for run in self.runs if run.run == run.uid)

    @property
    def rounds(self) -> Rounds | None:
        """The rounds in which rows were added, or None if all rows were drawn at once."""
        return rounds_in(self.manifest)

    @cached_property
    def sample(self) -> Sample:
        """The points of the rows.

        Raises:
            DocumentError: the points cannot be read, or do not match the manifest.
        """
        return read_sample(self.path, self.manifest, growing=self.spec.search is not None)

    def contents(self, hashes: Collection[str]) -> dict[str, str]:
        """Return the contents of the documents with these hashes, by hash; unknown ones are left out.

        See :func:`~palaestrai_mosaik.experiment.content_digest`. The documents are built again from the design, because
        this is faster than reading them. Those that this version builds differently are read.

        Args:
            hashes: hashes of run documents.

        Returns:
            For each hash, the digest of the document without its uid.
        """
        from .expansion import Expansion

        missing = set(hashes) - self._contents.keys()
        by_row: dict[int, list[PlannedRun]] = {}
        for run in self.documents:
            if run.hash in missing:
                by_row.setdefault(run.row, []).append(run)
        expansion, values = Expansion(self.spec), self.values() if by_row else []
        for row, runs in by_row.items():
            documents = None
            with suppress(DocumentError):
                documents = expansion.row(values[row], row)
            for run in runs:
                content = None
                if documents is not None and documents.hash(run.uid, run.seed) == run.hash:
                    content = documents.content(run.seed)
                content = content or _content(self.path / run.file, run.hash)
                if content is not None:
                    self._contents[run.hash] = content
        return {hash_: self._contents[hash_] for hash_ in hashes if hash_ in self._contents}

    def values(self, first: int = 0) -> list[dict[str, Any]]:
        """Return the values of the factors by name: level values, labels of choices.

        An inactive factor has the value :data:`~palaestrai_mosaik.arsenai.design.model.INACTIVE`.

        Args:
            first: the first row.

        Returns:
            One mapping per row, from ``first`` on.
        """
        from .decode import decode

        return decode(self.spec, self.sample.unit[first:])

    def missing_documents(self) -> list[str]:
        """Return the files of run documents that are missing, relative to the folder."""
        try:
            names = set(files.list_names(self.path / RUNS))
        except FileNotFoundError:
            names = set()
        return [run.file for run in self.documents if Path(run.file).name not in names]

    def view(self, height: int = HEIGHT) -> Page:
        """Build the design's page for notebooks: states, outcomes, indices and comparisons.

        The results are those in the folder; for others, see ``Results.view``.

        Args:
            height: height of the page in the notebook, in pixels.

        Returns:
            The page, which a notebook displays.

        Raises:
            StoreError: the store of the results cannot be opened.
        """
        from palaestrai_mosaik import view

        return view(self, height=height)

    def _repr_html_(self) -> str:
        """Describe the folder, its number of runs and its factors for a notebook."""
        counts = self.manifest["counts"]
        facts = f"{self.path}: {count(counts['rows'], 'row')}, {count(counts['runs'], 'run')}"
        return described(self.spec, facts)

    def verify(self) -> list[Problem]:
        """Return the differences from the generated state: files that are missing, edited or too many.

        A run document with edited text but the same meaning is no problem.

        Raises:
            DocumentError: this is no longer the folder of a design.
        """
        if read_manifest(self.path) != self.manifest:
            message = "the folder was generated anew since it was opened; open it again"
            return [Problem(message, file=str(self.path))]
        problems = []
        sums = dict(read_checksums(self.path / CHECKSUMS))
        hashes = {run.file: run.hash for run in self.documents}
        for name in sorted({*hashes, DESIGN, TABLE, SAMPLE} - sums.keys()):
            problems.append(Problem(f"{name} is not named here", file=str(self.path / CHECKSUMS)))
        for name, written in sums.items():
            file = self.path / name
            try:
                digest = hashlib.sha256(files.read_bytes(file)).hexdigest()
            except OSError as error:
                problems.append(Problem(f"cannot be read: {error.strerror}", file=str(file)))
                continue
            if digest != written:
                problems += _edited(file, hashes.get(name))
        folder = self.path / RUNS
        try:
            names = sorted(files.list_names(folder))
        except OSError as error:
            return [*problems, Problem(f"cannot be listed: {error.strerror}", file=str(folder))]
        return problems + [
            Problem("no run of the design has this document", file=str(folder / name))
            for name in names
            if f"{RUNS}/{name}" not in hashes
        ]


def _edited(file: Path, hash_: str | None) -> list[Problem]:
    """Return the problems of a file with other bytes than generated.

    Args:
        file: the file.
        hash_: hash of the generated run document; None if the file is no run document.
    """
    if hash_ is not None:
        try:
            edited_hash = load_run(file).hash
        except DocumentError as error:
            return list(error.problems)
        if edited_hash == hash_:
            return []
        return [
            Problem(
                f"edited since it was generated: its hash is {edited_hash[:12]}, the design's is {hash_[:12]}",
                file=str(file),
            )
        ]
    return [Problem("edited since it was generated", file=str(file))]


def _content(file: Path, hash_: str) -> str | None:
    """Return the content of the document in ``file``, or None if its hash is another."""
    with suppress(DocumentError):
        document = load_run(file)
        if document.hash == hash_:
            return content_digest(document.canonical)
    return None


def refuse(file: Path, message: str) -> NoReturn:
    """Raise a :class:`DocumentError` about ``file``."""
    raise DocumentError([Problem(message, file=str(file))])


def _written_again(path: Path) -> str:
    """Return the advice for a missing table or manifest of a search's folder."""
    before = (
        "" if (path / DESIGN).exists() else f"put a copy of the design's document back as {DESIGN}, then "
    )
    return (
        f"{before}to write it again: {shlex.join(['arsenai', 'tune', str(path / DESIGN), '-o', str(path)])}"
    )


def _has(part: Any, **kinds: type) -> bool:
    """Return whether a part of a manifest is a mapping with values of these types."""
    return isinstance(part, dict) and all(type(part.get(key)) is kind for key, kind in kinds.items())


def _is_blocks(part: Any) -> bool:
    lengths = part if isinstance(part, list) else [part]
    return all(type(length) is int and length > 0 for length in lengths)


#: checks of the parts of a manifest that readers rely on
_PARTS: dict[str, Callable[[Any], bool]] = {
    "versions": _has,
    "design": lambda part: _has(part, uid=str, hash=str),
    "sampler": lambda part: _has(part, arguments=dict, warnings=list) and _is_blocks(part.get("blocks")),
    "axes": lambda part: isinstance(part, list) and all(_has(axis, name=str) for axis in part),
    "counts": lambda part: _has(part, **dict.fromkeys(COUNTS, int)),
}


def read_manifest(path: Path) -> dict[str, Any]:
    """Read the manifest of the folder at ``path``.

    Raises:
        DocumentError: there is no manifest, it was edited, or generating was interrupted.
    """
    if (path / REPLACED).exists() or (path / REPLACING).exists():
        refuse(path, "generating a design into this folder was cut off; do it again")
    file, manifest = path / MANIFEST, _manifest_data(path)
    form = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(form, int) or isinstance(form, bool) or not isinstance(manifest.get("design"), dict):
        refuse(file, "not the manifest of a design: it names no format and design")
    if form > FORMAT:
        refuse(
            file, f"the folder has format {form}, this version reads up to {FORMAT}: made by a newer version"
        )
    damaged = [key for key, sound in _PARTS.items() if not sound(manifest.get(key))]
    if damaged:
        refuse(
            file,
            f"the manifest of the design was edited: {', '.join(repr(key) for key in damaged)} is not as "
            "generating writes it; put the former text back, or generate the design into another folder",
        )
    return dict(manifest)


def _manifest_data(path: Path) -> Any:
    try:
        return json.loads(files.read_text(path / MANIFEST))
    except FileNotFoundError:
        if (path / FOLDER / JOURNAL).is_file():
            refuse(
                path / MANIFEST,
                _MISSING_PART.format(
                    f"it names the search's design and counts its rows and runs; {_written_again(path)}"
                ),
            )
        reason = f"there is no {MANIFEST} in it" if path.is_dir() else "there is no such folder"
        refuse(path, f"not the folder of a generated design: {reason}")
    except NotADirectoryError:
        refuse(path, "this is a file; generate its design first (arsenai generate), or name the folder")
    except OSError as error:
        refuse(path / MANIFEST, f"cannot be read: {error.strerror}")
    except ValueError:
        refuse(path / MANIFEST, "not the manifest of a design: no JSON")


def read_sample(path: Path, manifest: Mapping[str, Any], *, growing: bool = False) -> Sample:
    """Read the points of the rows of a design's folder.

    Args:
        path: the folder.
        manifest: its manifest.
        growing: whether the file may have more rows than the manifest, because a search is adding them.

    Raises:
        DocumentError: the file cannot be read, or does not match the manifest.
    """
    axes = [axis["name"] for axis in manifest["axes"]]
    unit = _read_unit(path / SAMPLE, axes)
    rows = manifest["counts"]["rows"]
    if growing:
        unit = unit[:rows]
    if len(unit) != rows:
        refuse(path / SAMPLE, f"{len(unit)} rows stand here, {rows} were generated")
    sampler = manifest["sampler"]
    try:
        block = unpack(sampler["blocks"], len(unit))
    except ValueError as error:
        refuse(path / MANIFEST, str(error))
    return Sample(unit, block, sampler["arguments"], tuple(sampler["warnings"]))


def _planned_runs(path: Path, spec: DesignSpec, manifest: Mapping[str, Any]) -> tuple[PlannedRun, ...]:
    """Read the runs of the folder at ``path``; their number is that of the manifest."""
    runs = tuple(_read_runs(path / TABLE))
    planned = manifest["counts"]["runs"]
    if spec.search is not None:
        # a search may be adding rows now, and updates the manifest last
        runs = runs[:planned]
    if len(runs) != planned:
        refuse(path / TABLE, f"{len(runs)} runs stand here, {planned} were generated")
    return runs


def _read_runs(file: Path) -> Iterator[PlannedRun]:
    try:
        with files.open_text(file, newline="") as stream:
            lines = csv.reader(stream)
            header = next(lines, [])
            if tuple(header[: len(COLUMNS)]) != COLUMNS:
                refuse(file, f"the table of a design begins with {','.join(COLUMNS)}")
            for row, repetition, uid, run, name, seed, hash_, *_ in lines:
                if not is_run_file(name):
                    refuse(file, f"{name!r} in line {lines.line_num} is no file in {RUNS}/")
                yield PlannedRun(uid, int(row), int(repetition), int(seed), hash_, run, name)
    except OSError as error:
        refuse(file, f"cannot be read: {error.strerror}")
    except ValueError:
        refuse(file, f"line {lines.line_num} is no line of the table of a design")


def _read_unit(file: Path, axes: list[str]) -> np.ndarray:
    try:
        with files.open_text(file, newline="") as stream:
            lines = csv.reader(stream)
            header = next(lines, [])
            if header != ["row", *axes]:
                refuse(file, f"the columns must be row, {', '.join(axes)}")
            points = [[float(cell) for cell in line[1:]] for line in lines]
            unit = np.array(points, dtype=np.float64).reshape(len(points), len(axes))
    except (OSError, ValueError) as error:
        refuse(file, f"not a table of numbers: {error}")
    return unit


def read_checksums(file: Path) -> Iterator[tuple[str, str]]:
    """Yield name and SHA-256 (hex) of every file in the list ``file``.

    Raises:
        DocumentError: the list cannot be read, or names a file outside of its folder.
    """
    try:
        lines = files.read_text(file).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        refuse(file, f"not a list of checksums: {error}")
    for line in lines:
        digest, _, name = line.partition("  ")
        try:
            files.inside(file.parent, name)
        except ValueError:
            refuse(file, f"{name!r} lies outside of the folder")
        yield name, digest


def trust(folder: Path) -> Path:
    """Trust a design folder that the user has named, and return its absolute path; see :func:`files.add_root`.

    The folder that confirms a search is a place in the folder of that search, also where the user names it, and in a
    process that executes its runs and knows no other folder.

    Raises:
        OSError: the folder is below another root, and reached through a link there.
    """
    path = Path(folder).absolute()
    if path.name == CONFIRM and (path.parent / MANIFEST).exists():
        files.add_root(path.parent)
    return files.add_root(path)


# --- locks --------------------------------------------------------------------------------

#: offset of the locked byte, beyond the contents: Windows blocks reading of locked bytes
_LOCKED_AT = 1 << 20


class Holder(NamedTuple):
    """The process that holds a lock: its host, pid, start of the lock (UTC, ISO 8601) and purpose."""

    host: str
    pid: int
    since: str
    used: str


class FileLock:
    """A lock on the file ``path``, held by the operating system.

    It is released as soon as its process ends, even if that is killed; only then is the file left behind.
    The contents of the file are informative only. ``used`` begins the sentence that other processes show, which
    ends with the holder: "is being executed by".

    Entering it creates the file's folder, but no parents. Raises ``BlockingIOError`` if another process
    holds the lock (``strerror`` names it), ``OSError`` if the file cannot be written.
    """

    def __init__(self, path: Path, used: str):
        self.path = path
        self._used = used
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        files.make_folder(self.path.parent)
        while self._file is None:
            file = os.fdopen(files.open_update(self.path), "a+", encoding="utf-8")
            if not _lock(file):
                file.close()
                raise BlockingIOError(EAGAIN, self._holder(), str(self.path))
            if _is_at(file, self.path):
                self._file = file
            else:  # the last holder has removed the file in the meantime
                file.close()
        try:
            self._write_holder()
        except OSError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._file is not None
        # Remove it while locked, because it may belong to another process afterwards. Windows keeps open files.
        with suppress(OSError):
            files.remove(self.path)
        self._file.close()
        self._file = None

    def _write_holder(self) -> None:
        assert self._file is not None
        since = datetime.now(UTC).isoformat(timespec="milliseconds")
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": since, "used": self._used}
        self._file.truncate(0)
        json.dump(holder, self._file)
        self._file.flush()

    def holder(self) -> Holder | None:
        """Return the last holder according to the file, or None without one; the process may have ended."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            entry = json.loads(files.read_text(self.path))
            return Holder(str(entry["host"]), int(entry["pid"]), str(entry["since"]), str(entry["used"]))
        return None

    def _holder(self) -> str:
        holder = self.holder()
        if holder is None:
            return "is in use by another process"
        return f"{holder.used} process {holder.pid} on host {holder.host} since {holder.since}"


def execution_lock(folder: Path, used: str = "is being executed by") -> FileLock:
    """Return the lock of the design folder ``folder``; while it is held, documents do not change."""
    return FileLock(folder / JOBS / ".lock", used)


def _lock(file: IO[str]) -> bool:
    """Lock an open file, and return False if another process holds the lock."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(_LOCKED_AT)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False

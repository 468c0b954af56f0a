"""Writes the folder of a design atomically.

The files are written to a hidden folder. If the target does not exist, the hidden folder is renamed.
Otherwise files are exchanged one by one: the former files are moved to a hidden folder,
and moved back if anything fails. If another design is replaced, its ``analysis/`` and ``report/`` are removed,
too; ``results/``, ``jobs/`` and all other files are never touched. If the process is killed during the exchange,
the next attempt sees from the hidden folder's name how to restore the former files.

Two locks are held: the generating lock of the target from first to last, so that hidden folders
can only be leftovers; and the execution lock while files are exchanged.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal, TextIO

from palaestrai_mosaik import __version__
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import Problem
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.core.progress import ProgressCallback
from palaestrai_mosaik.experiment import dumps

from . import folder
from .expansion import Expansion, run_file, run_uid
from .folder import (
    ENDED,
    GENERATED,
    REPLACED,
    REPLACING,
    ROUNDS,
    DesignFolder,
    FileLock,
    PlannedRun,
    Rounds,
    execution_lock,
    read_checksums,
    read_manifest,
    read_sample,
    refuse,
    rounds_in,
)
from .load import load
from .model import INACTIVE, NO_IDENTITY_OF_SAMPLER, Axis, DesignSpec, Factor
from .rows import ExpandedRow, SampledRows, draw_rows, expand
from .samplers import in_rounds
from .samplers.sampler import Sample, pack

Outcome = Literal["new", "replaced", "updated", "unchanged"]
#: largest number of files named in a message
_NAMED = 5
#: files and folders that are removed if another design is replaced
_FORMER = (*GENERATED, folder.ANALYSIS, folder.REPORT)
#: libraries that determine the numbers of a sample
_LIBRARIES = ("numpy", "scipy", "SALib")
#: suffix of the names of hidden folders and locks
_HIDDEN = ".generating"
#: largest number of characters of the target's name in them, because it may have the maximum length already
_LONGEST = 40


@dataclass(frozen=True, slots=True)
class Written:
    """The result of writing a folder.

    Attributes:
        path: the folder.
        outcome: how the folder changed. ``"updated"``: the design is the same, except for its output folder or its
            execution.
        warnings: warnings about its documents.
    """

    path: Path
    outcome: Outcome
    warnings: tuple[Problem, ...]


def write_folder(
    spec: DesignSpec, path: Path, *, force: bool, progress: ProgressCallback | None = None
) -> Written:
    """Write the folder of ``spec`` to ``path``.

    If the folder of the same design exists, only the keys ``output`` and ``execution`` of
    its ``design.yml`` are updated. The folder of another design, or one with other files than this design generates, is
    replaced only with ``force``; analyses of another design are removed with it.

    Args:
        spec: the design.
        path: the folder.
        force: whether to replace an existing folder.
        progress: called with the number of runs written so far, and their total.

    Raises:
        DocumentError: replacing was refused, a document is invalid, or another process generates into the folder or
            executes it. Nothing has changed then.
    """
    if spec.search is not None:
        refuse(
            Path(spec.source), "a search proposes its settings one by one: arsenai tune, in place of generate"
        )
    try:
        # where the user has named a link, the folder that it points to is meant
        target = files.real_root(path)
        _holds_design(target)  # not even a lock is put into anything else
        with _parents(target), ExitStack() as held:
            parent = target if target.is_dir() else target.parent
            held.enter_context(_lock(parent, target))
            _check(target, spec, force)
            expansion = Expansion(spec)
            rows, rounds = _kept_rows(target, spec) or _new_rows(spec)
            with _scratch(parent, target) as scratch:
                _fill(scratch, rows, rounds, expansion, progress)
                # the target may have been created in the meantime
                if parent != target and target.is_dir():
                    held.enter_context(_lock(target, target))
                outcome = _put_in_place(scratch, target, spec, force)
    except BlockingIOError as error:
        refuse(path, f"the folder {error.strerror}: wait for it, or end it")
    except OSError as error:
        refuse(path, f"the folder cannot be written: {error.strerror or error}")
    return Written(path, outcome, expansion.warnings)


def grow_folder(grown: DesignFolder, rows: SampledRows, rounds: Rounds) -> DesignFolder:
    """Add the rows of another round to the folder of a design, and return it. Existing rows do not change.

    Args:
        grown: the folder.
        rows: all of its rows, the former ones first.
        rounds: its rounds, including that of the new rows.

    Raises:
        DocumentError: a document is invalid, or another process generates into the folder or executes it. Nothing
            has changed then.
    """
    try:
        target = files.real_root(grown.path)
        with _lock(target, target), _scratch(target, target) as scratch:
            if read_manifest(target) != grown.manifest:
                refuse(
                    target, "the folder was generated again, or has grown, since it was opened; open it again"
                )
            if rows.count == grown.manifest["counts"]["rows"]:
                # only the state of the rounds has changed
                text = manifest_text(grown.manifest | rounds.entries())
                files.write_text(target / folder.MANIFEST, text, durable=False)
            else:
                _fill(scratch, rows, rounds, Expansion(grown.spec))
                with _not_executed(target):
                    _exchange(scratch, target, GENERATED)
    except BlockingIOError as error:
        refuse(grown.path, f"the folder {error.strerror}: wait for it, or end it")
    except OSError as error:
        refuse(grown.path, f"the folder cannot be written: {error.strerror or error}")
    return DesignFolder.open(grown.path)


def _new_rows(spec: DesignSpec) -> tuple[SampledRows, Rounds | None]:
    rows = draw_rows(spec)
    return rows, Rounds(({"rows": rows.count},)) if in_rounds(spec) else None


def _kept_rows(target: Path, spec: DesignSpec) -> tuple[SampledRows, Rounds | None] | None:
    """Return the rows of a folder of this design that has grown, because it must not shrink; None if it has not grown.

    If ``until`` has changed, whether to add more rows is decided again.
    """
    if not (target / folder.MANIFEST).is_file():
        return None
    former = read_manifest(target)
    rounds = rounds_in(former)
    if former["design"]["hash"] != spec.hash or rounds is None or rounds.number == 1:
        return None
    checksum = dict(read_checksums(target / folder.CHECKSUMS)).get(folder.SAMPLE)
    if not (target / folder.SAMPLE).is_file() or _digest(target / folder.SAMPLE) != checksum:
        refuse(
            target / folder.SAMPLE,
            f"the rows of {rounds.number} rounds stood here, and the file was edited or is missing; put it back, or "
            "generate the design into another folder (-o) and execute that with the store of this one: what was "
            "executed is not executed again",
        )
    counts = former["counts"]
    sample = read_sample(target, former)
    if (target / folder.DESIGN).is_file() and load(target / folder.DESIGN).resolved != spec.resolved:
        rounds = replace(rounds, ended="")
    return SampledRows(sample, counts["drawn"]), rounds


def _holds_design(target: Path) -> bool:
    """Return whether the target holds a design's folder. Refuse anything but that, an empty folder or none."""
    if not os.path.lexists(target):
        return False
    if not target.is_dir():
        refuse(target, "there is a file of this name; name a folder")
    entries = sorted(entry.name for entry in target.iterdir() if not _is_hidden(entry.name))
    if not entries:
        return False
    if not {folder.MANIFEST, REPLACING, REPLACED}.intersection(entries):
        refuse(
            target,
            f"the folder is not empty and no design's folder ({listed(entries, _NAMED)}); name another one",
        )
    return True


def _check(target: Path, spec: DesignSpec, force: bool) -> bool:
    """Refuse a target that must not be written to, and return whether it holds a design."""
    if os.path.lexists(target / REPLACING) or os.path.lexists(target / REPLACED):
        for path in (target / REPLACING, target / REPLACED):
            _refuse_foreign(path)
        with _not_executed(target):
            _recover(target)
    if not _holds_design(target):
        return False
    if not force:
        refuse_another(
            target,
            read_manifest(target)["design"],
            spec,
            "Name another folder (-o), or replace it with --force (its analysis/ and report/ go, its results/ and jobs/ "
            "stay)",
        )
    return True


def refuse_another(path: Path, design: Mapping[str, Any], spec: DesignSpec, advice: str) -> None:
    """Refuse the folder of ``design``, the entry of a manifest, if it is another one than ``spec``."""
    if design["hash"] != spec.hash:
        refuse(
            path,
            f"the folder holds another design: {design['uid']!r} with hash {design['hash'][:12]}, this is "
            f"{spec.uid!r} with hash {spec.hash[:12]}. {advice}",
        )


# ----- contents


def manifest(
    spec: DesignSpec,
    rows: SampledRows,
    first_rows: Mapping[int, int],
    documents: int,
    rounds: Rounds | None = None,
) -> dict[str, Any]:
    """Build the manifest as plain data.

    It depends only on the design, except for ``versions`` and, if there are rounds, on the outcomes of earlier rounds.

    Args:
        spec: the design.
        rows: the sampled rows.
        first_rows: for each row with the same documents as an earlier row, the number of that row.
        documents: number of run documents.
        rounds: the rounds in which rows were added, if there are any.
    """
    runs = rows.count * spec.repetitions
    options = {key: value for key, value in spec.sampler.options.items() if key != NO_IDENTITY_OF_SAMPLER}
    return {
        "format": folder.FORMAT,
        "versions": {
            "palaestrai_mosaik": __version__,
            "python": ".".join(map(str, sys.version_info[:2])),
            **{name.lower(): version(name) for name in _LIBRARIES},
        },
        "design": {"uid": spec.uid, "hash": spec.hash, "seed": spec.seed, "version": spec.version},
        "seeds": {"policy": spec.seed_policy},
        "sampler": {
            "name": spec.sampler.name,
            "n": spec.sampler.n,
            "options": options,
            "arguments": dict(rows.sample.arguments),
            "warnings": list(rows.sample.warnings),
            "blocks": pack(rows.sample.block),
        },
        **(rounds.entries() if rounds is not None else {}),
        "axes": [_axis(axis) for axis in spec.axes],
        "counts": {
            "drawn": rows.drawn,
            "rejected": rows.drawn - rows.count,
            "rows": rows.count,
            "repetitions": spec.repetitions,
            "runs": runs,
            "documents": documents,
            "duplicates": runs - documents,
        },
        "duplicates": {str(row): first for row, first in first_rows.items()},
    }


def _axis(axis: Axis) -> dict[str, Any]:
    return {"name": axis.name, "factors": [factor.name for factor in axis.factors], "group": axis.group}


def manifest_text(data: Mapping[str, Any]) -> str:
    """Format a manifest as JSON text, one entry per line."""
    lines = []
    for key, value in data.items():
        if isinstance(value, list):
            items = ",\n".join(f"    {_compact(item)}" for item in value)
            lines.append(f"  {_compact(key)}: [\n{items}\n  ]")
        else:
            lines.append(f"  {_compact(key)}: {_compact(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


class Register:
    """What the files of a design folder say about its rows: the table, the checksums, and counts for the manifest.

    Args:
        spec: the design.
        table: stream that ``design.csv`` is written to.
    """

    def __init__(self, spec: DesignSpec, table: TextIO):
        self._spec = spec
        self._columns = [(factor.name, _labels_of(factor)) for factor in spec.factors]
        self._table = csv.writer(table, lineterminator="\n")
        self._table.writerow([*folder.COLUMNS, *(name for name, _ in self._columns)])
        self._sums: list[str] = []
        self._first_rows: dict[int, int] = {}
        self._documents = 0

    @cached_property
    def design(self) -> str:
        """The text of the design's document."""
        return dumps(dict(self._spec.resolved))

    def add(self, row: ExpandedRow, expansion: Expansion, write: Callable[[PlannedRun, bytes], None]) -> None:
        """Add the runs of a row, and write their documents with ``write``."""
        cells = [label(row.values[name]) for name, label in self._columns]
        if row.first != row.number:
            self._first_rows[row.number] = row.first
        for run, data in planned_runs(expansion, row):
            if data is not None:
                write(run, data)
                self._sums.append(_sum(run.file, data))
                self._documents += 1
            self._table.writerow([*_run_cells(run), *cells])

    def write(self, path: Path, rows: SampledRows, rounds: Rounds | None = None) -> None:
        """Write the sample, the checksums and, last, the manifest into a folder that has the design and its table."""
        sample = _sample_text(self._spec, rows.sample)
        files.write_text(path / folder.SAMPLE, sample, durable=False)
        sums = [
            *self._sums,
            f"{_digest(path / folder.TABLE)}  {folder.TABLE}\n",
            _sum(folder.DESIGN, self.design.encode("utf-8")),
            _sum(folder.SAMPLE, sample.encode("utf-8")),
        ]
        files.write_text(path / folder.CHECKSUMS, "".join(sums), durable=False)
        content = manifest(self._spec, rows, self._first_rows, self._documents, rounds)
        files.write_text(path / folder.MANIFEST, manifest_text(content), durable=False)


def _sum(name: str, data: bytes) -> str:
    return f"{hashlib.sha256(data).hexdigest()}  {name}\n"


#: cells of a run in the table
_run_cells = attrgetter(*folder.COLUMNS)


def _fill(
    scratch: Path,
    rows: SampledRows,
    rounds: Rounds | None,
    expansion: Expansion,
    progress: ProgressCallback | None = None,
) -> None:
    """Write all files of a folder into ``scratch``."""
    spec = expansion.spec
    files.make_folder(scratch / folder.RUNS)
    with (
        files.writing_text(scratch / folder.TABLE, durable=False) as stream,
        files.new_files(scratch / folder.RUNS) as write_file,
    ):
        register = Register(spec, stream)
        for row in expand(rows, expansion):
            register.add(row, expansion, lambda run, data: write_file(run.file.rpartition("/")[2], data))
            if progress is not None:
                progress((row.number + 1) * spec.repetitions, rows.count * spec.repetitions)
    files.write_text(scratch / folder.DESIGN, register.design, durable=False)
    register.write(scratch, rows, rounds)


def planned_runs(expansion: Expansion, row: ExpandedRow) -> Iterator[tuple[PlannedRun, bytes | None]]:
    """Yield the runs of a row, each with its document; None instead of a duplicate document."""
    design, documents = expansion.spec.uid, row.documents
    for repetition in range(expansion.spec.repetitions):
        uid, first = run_uid(design, row.number, repetition), run_uid(design, row.first, repetition)
        seed = expansion.seed(row.name, repetition)
        text = None
        if row.first == row.number:
            text, digest = documents.document(uid, seed)
        else:
            digest = documents.hash(first, seed)
        file = run_file(design, row.first, repetition)
        run = PlannedRun(uid, row.number, repetition, seed, digest, first, file)
        yield run, None if text is None else text.encode("utf-8")


def _labels_of(factor: Factor) -> Callable[[Any], str]:
    """Build the function that formats a factor's values for the table: labels of levels, or numbers."""
    if factor.kind != "levels" or factor.choice is not None:
        return lambda value: "" if value is INACTIVE else str(value)
    by_level = {repr(level): label for level, label in zip(factor.levels, factor.labels, strict=True)}
    return lambda value: "" if value is INACTIVE else by_level[repr(value)]


def _sample_text(spec: DesignSpec, sample: Sample) -> str:
    lines = [",".join(map(_quoted, ("row", *(axis.name for axis in spec.axes))))]
    for number, point in enumerate(sample.unit.tolist()):
        lines.append(",".join((str(number), *map(repr, point))))
    return "\n".join(lines) + "\n"


def _quoted(name: str) -> str:
    special = any(character in name for character in ',"\r\n')
    return '"' + name.replace('"', '""') + '"' if special else name


def _digest(file: Path) -> str:
    with files.open_read(file) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# ----- the target, locks and hidden folders


def _is_hidden(name: str) -> bool:
    return name.startswith(".") and name.endswith(_HIDDEN)


def _hidden(target: Path) -> str:
    """Return the prefix of the names of hidden folders and locks, which is unique to the target."""
    name = target.name
    if len(name) > _LONGEST:
        digest = hashlib.sha256(os.fsencode(name)).hexdigest()[:10]
        name = f"{name[:_LONGEST]}-{digest}"
    return f".{name}."


def _lock(parent: Path, target: Path) -> FileLock:
    return FileLock(parent / f"{_hidden(target)}lock{_HIDDEN}", "is being generated by")


@contextmanager
def _parents(target: Path) -> Iterator[None]:
    """Create the folders above the target, and remove them again if the block raises."""
    created = [parent for parent in (target.parent, *target.parent.parents) if not parent.exists()]
    try:
        files.make_folder(target.parent, parents=True)
        yield
    except BaseException:
        for parent in created:
            with suppress(OSError):  # another process has put something into it
                files.remove_folder(parent)
        raise


@contextmanager
def _scratch(parent: Path, target: Path) -> Iterator[Path]:
    """Yield a new folder in a hidden one on the target's file system; the hidden folder is removed in the end.

    Hidden folders of the same target are removed, too: the lock is held, so they are leftovers of killed processes.
    """
    begin = _hidden(target)
    leftover = re.compile(rf"{re.escape(begin)}[a-z0-9_]{{8}}{re.escape(_HIDDEN)}")
    for entry in [entry for entry in parent.iterdir() if leftover.fullmatch(entry.name)]:
        files.remove_tree(entry)
    hidden = files.make_hidden(parent, begin, _HIDDEN)
    try:
        # the hidden folder is private to its owner, the target has the permissions of any other folder
        scratch = hidden / "new"
        files.make_folder(scratch)
        yield scratch
    finally:
        files.discard_tree(hidden)


def _put_in_place(scratch: Path, target: Path, spec: DesignSpec, force: bool) -> Outcome:
    if not _check(target, spec, force):
        if os.path.lexists(target):
            _exchange(scratch, target, GENERATED)
        else:
            files.move(scratch, target)
        return "new"
    changed = _differences(scratch, target)
    if not changed:
        return "unchanged"
    if read_manifest(target)["design"]["hash"] != spec.hash:
        outcome: Outcome = "replaced"
        former: tuple[str, ...] = _FORMER
    else:
        outcome = "updated" if _only_settings(changed, scratch, target) else "replaced"
        former = GENERATED
        if outcome == "replaced" and not force:
            refuse(
                target,
                f"the folder is of this design, but {len(changed)} of its files are not as it makes them "
                f"({listed(changed, _NAMED)}): edited, or of another version. Replace them with --force",
            )
    with _not_executed(target):
        _exchange(scratch, target, former)
    return outcome


@contextmanager
def _not_executed(target: Path) -> Iterator[None]:
    """Hold the execution lock, so that no document changes under a run."""
    lock = execution_lock(target, "is being generated anew by")
    created = not lock.path.parent.exists()
    try:
        with lock:
            yield
    finally:
        if created:
            with suppress(OSError):
                files.remove_folder(lock.path.parent)


def _differences(scratch: Path, target: Path) -> list[str]:
    """Return the generated files that differ; the versions that generated them may differ."""
    names = {name for name in GENERATED if name not in (folder.MANIFEST, folder.RUNS)}
    for path in (scratch, target):
        if (path / folder.RUNS).is_dir():
            names |= {f"{folder.RUNS}/{name}" for name in os.listdir(path / folder.RUNS)}
    changed = [name for name in sorted(names) if _bytes(scratch / name) != _bytes(target / name)]
    former, new = read_manifest(target), read_manifest(scratch)
    # the state of the rounds follows from the rows
    no_difference: dict[str, Any] = {"versions": None, ROUNDS: None, ENDED: None}
    if former | no_difference != new | no_difference:
        changed.append(folder.MANIFEST)
    return changed


def _only_settings(changed: list[str], scratch: Path, target: Path) -> bool:
    """Return whether only keys outside of the design's identity differ, and the former files are unedited."""
    if not {folder.DESIGN, folder.CHECKSUMS}.issuperset(changed) or not (target / folder.CHECKSUMS).is_file():
        return False
    former, new = (dict(read_checksums(path / folder.CHECKSUMS)) for path in (target, scratch))
    unedited = (target / folder.DESIGN).is_file() and former.get(folder.DESIGN) == _digest(
        target / folder.DESIGN
    )
    return unedited and {**former, folder.DESIGN: ""} == {**new, folder.DESIGN: ""}


def _bytes(file: Path) -> bytes | None:
    return files.read_bytes(file) if file.is_file() else None


def _exchange(scratch: Path, target: Path, former: tuple[str, ...]) -> None:
    """Replace the files named ``former`` in ``target`` by those of ``scratch``: all or none."""
    replacing, replaced = target / REPLACING, target / REPLACED
    try:
        files.make_folder(replacing, exist_ok=False)
        for name in former:
            if os.path.lexists(target / name):
                files.move(target / name, replacing / name)
        files.move(replacing, replaced)
        for name in GENERATED:
            files.move(scratch / name, target / name)
        files.move(replaced, scratch / REPLACED)
    except BaseException:
        _recover(target)
        raise


def _recover(target: Path) -> None:
    """Move back the files that an interrupted exchange has moved out."""
    replacing, replaced = target / REPLACING, target / REPLACED
    for path in (replaced, replacing):
        _refuse_foreign(path)
    if replaced.exists():
        for name in GENERATED:
            files.remove_tree(target / name)
        files.move(replaced, replacing)
    if replacing.exists():
        for name in os.listdir(replacing):
            files.move(replacing / name, target / name)
        files.remove_folder(replacing)


def _refuse_foreign(path: Path) -> None:
    """Refuse to move files that no exchange has left behind."""
    if not os.path.lexists(path):
        return
    foreign = "a link" if path.is_symlink() else "no folder" if not path.is_dir() else ""
    if not foreign:
        other = sorted(set(os.listdir(path)) - set(_FORMER))
        foreign = f"a folder with {listed(other, _NAMED)}" if other else ""
    if foreign:
        refuse(path, f"this is {foreign}, and nothing that generating a design leaves behind: move it away")

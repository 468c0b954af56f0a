"""Collects the results of single runs in one store, while other runs are executing.

A run on a cluster records into its own store, which no other process opens during the run.
This module copies ended runs to the common store, each only once. The own stores are kept
unless their removal is requested.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from palaestrai_mosaik.arsenai.design.folder import JOBS, RESULTS, STORES, DesignFolder, FileLock
from palaestrai_mosaik.arsenai.design.settings import read_journal
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ExecutionError, StoreError
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback
from palaestrai_mosaik.runner.checkpoint import FOLDER as CHECKPOINTS
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.merge import (
    DAMAGE_NOTE,
    DamagedStore,
    InstanceState,
    StoreReader,
    check_rows,
    copy_labels,
    copy_rows,
    has_files_of,
    instance_states,
    instance_uids,
    is_damage,
    lock,
    marked_status,
    place_files,
    remove_rows,
    same_files,
)
from palaestrai_mosaik.store.parts import write_text
from palaestrai_mosaik.store.process import LOCK
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.store import StoreLocation
from palaestrai_mosaik.store.verify import marked_damaged, verify

from ..job import JobRecord, Marker, held, now, with_suffix
from ..status import LostResults, load_run_states

#: number of stores per commit, because a commit takes milliseconds
_TOGETHER = 50
#: files that are not copied, because an interrupted run is resumed in its own store
_LEFT = frozenset({CHECKPOINTS, LOCK})
#: final statuses of runs that are not executed again
_OVER = ("finished", "pruned")
#: suffix of a store during its removal; names of runs' files never begin with a dot
_REMOVED = ".removed"
#: errors of the target, not of a run's own store
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


@dataclass
class Collected:
    """The result of :func:`collect_folder`.

    Attributes:
        runs: the number of runs copied now, by the status of their newest instance.
        before: the number of runs copied before.
        going_on: the number of runs that have not ended.
        empty: the number of runs that ended before their first record.
        damaged: the errors of stores that could not be copied, by path.
        kept: the reasons why stores of finished runs could not be removed, by path.
        removed: the number of removed stores.
        files: the number of files in them.
        freed: the bytes freed, without files that the target shares.
    """

    runs: Counter[str] = field(default_factory=Counter)
    before: int = 0
    going_on: int = 0
    empty: int = 0
    damaged: dict[Path, str] = field(default_factory=dict)
    kept: dict[Path, str] = field(default_factory=dict)
    removed: int = 0
    files: int = 0
    freed: int = 0


class _Ended(NamedTuple):
    """The end of a run and its instance, from the record or from the marker of the newest instance."""

    status: str
    instance: str | None
    record: JobRecord | None


@dataclass
class _RunStore:
    """The own store of a run; ``uids``: its instances, the oldest first; ``in_target``: the target has them."""

    path: Path
    uids: list[str]
    ended: _Ended | None = None
    in_target: bool = False

    def folder(self, uid: str) -> Path:
        """Return the folder of an instance."""
        return self.path / INSTANCES / uid


class _Chosen(NamedTuple):
    """A store to copy: its instances missing in the target, and the ``status`` of the newest."""

    run_store: _RunStore
    missing: list[str]
    status: str


class _StillRunning(Exception):
    """The run was started again after its end had been detected."""


def collect_folder(
    folder: DesignFolder,
    location: StoreLocation | None = None,
    *,
    remove: bool = False,
    progress: ProgressCallback | None = None,
) -> Collected:
    """Copy the results of runs of ``folder`` that have ended on a cluster to one store.

    An unreadable store of a run does not stop the others: the result reports it. A damaged one gets
    the file :data:`~palaestrai_mosaik.store.merge.DAMAGE_NOTE`, so that its run counts as lost, until
    the store can be collected.

    Args:
        folder: the design folder.
        location: the common store; ``None``: the folder's ``results``.
        remove: remove the stores of finished runs after all of their contents were copied and verified.
        progress: called with the number of stores done, and their total.

    Raises:
        ExecutionError: another process collects the folder's runs, or results of a search were collected into another
            store before.
        StoreError: the common store cannot be written; the stores copied so far stay in it.
    """
    location = location or StoreLocation.of(folder.path / RESULTS)
    root = folder.path.absolute()
    collected = Collected()
    if not (root / STORES).is_dir():
        return collected
    if folder.spec.search is not None:
        states = load_run_states(folder, location, ask=False)
        LostResults.of(folder.path, states, location).check_store(location, "nothing was collected")
    with held(FileLock(root / STORES / ".lock", "is being collected by"), root):
        for remainder in (root / STORES).glob(f".*{_REMOVED}"):  # left by a killed process
            files.remove_tree(remainder)
        run_stores = _run_stores(root, collected)
        if run_stores:
            with location.open(create=True) as target:
                collecting = _Collecting(root, target, location.shown, collected, remove, _needed(folder))
                collecting.all(run_stores, progress)
    return collected


def _run_stores(root: Path, collected: Collected) -> list[_RunStore]:
    """Return the own stores of runs in a design folder, the oldest first; note those that cannot be listed."""
    run_stores = []
    for path in (root / STORES).iterdir():
        if path.name[0] == "." or path.is_symlink() or not path.is_dir():
            continue
        try:
            run_stores.append(_RunStore(path, instance_uids(path)))
        except OSError as error:
            collected.damaged[path] = str(error)
    # uids begin with the time
    return sorted(run_stores, key=lambda run_store: (run_store.uids[:1], run_store.path))


def _needed(folder: DesignFolder) -> frozenset[str]:
    """Return the names of stores of unsettled settings, which a search may still read."""
    if folder.spec.search is None:
        return frozenset()
    settled = {setting.number for setting in read_journal(folder.path).settings if setting.state != "running"}
    return frozenset(Path(run.file).stem for run in folder.documents if run.row not in settled)


class _Collecting:
    """Copies stores of runs to ``target``, the store at ``location``, in batches."""

    def __init__(
        self,
        root: Path,
        target: Store,
        location: str,
        collected: Collected,
        remove: bool,
        needed: Collection[str],
    ):
        self._root, self._target, self._location = root, target, location
        self._collected, self._remove = collected, remove
        #: the stores that are not removed
        self._needed = needed
        self._reader = StoreReader()

    def all(self, run_stores: Sequence[_RunStore], progress: ProgressCallback | None) -> None:
        """Copy all stores, and report the progress."""
        counted = PartsProgress(progress, len(run_stores))
        with closing(self._reader):
            for first in range(0, len(run_stores), _TOGETHER):
                batch = run_stores[first : first + _TOGETHER]
                self._copy(batch)
                if self._remove:
                    for run_store in batch:
                        try:
                            self._remove_finished(run_store)
                        except (StoreError, ExecutionError, OSError) as error:
                            self._collected.kept[run_store.path] = str(error)
                counted.end(len(batch))

    def _copy(self, some: Sequence[_RunStore]) -> None:
        """Copy missing instances: all files, then all rows."""
        uids = [uid for run_store in some for uid in run_store.uids]
        states = self._states_in_target(uids)
        with self._target.database.reading() as session:
            marked = marked_damaged(session, uids)
        chosen: list[_Chosen] = []
        for run_store in some:
            with self._reporting(run_store.path):
                choice = self._choose(run_store, states, marked)
                if choice is not None:
                    chosen.append(choice)
        self._remove_rows([uid for choice in chosen for uid in choice.missing if uid in states])
        placed: list[_Chosen] = []
        for choice in chosen:
            with self._reporting(choice.run_store.path):
                for uid in choice.missing:
                    place_files(choice.run_store.folder(uid), self._target.instance_directory(uid), _LEFT)
                placed.append(choice)
        if placed:
            self._copy_rows(placed)

    def _remove_rows(self, uids: Sequence[str]) -> None:
        """Remove the rows of these instances from the target."""
        if uids:
            with self._target.database.writing() as session:
                for uid in uids:
                    remove_rows(session, uid)

    def _states_in_target(self, uids: Sequence[str]) -> dict[str, InstanceState]:
        """Return the states of those instances that are in the target."""
        with self._target.database.reading() as session:
            return {state.uid: state for state in instance_states(session, uids)}

    def _choose(
        self, run_store: _RunStore, in_target: Mapping[str, InstanceState], marked: Collection[str]
    ) -> _Chosen | None:
        """Return what to copy of the store; if there is nothing, count the reason.

        Args:
            run_store: the store.
            in_target: the states of those instances that are in the target.
            marked: the instances in the target that are marked as damaged.
        """
        ended = run_store.ended = last_ended(self._root, run_store.path)
        if ended is None:
            self._collected.going_on += 1
            return None
        if not run_store.uids and ended.instance is None:
            self._collected.empty += 1
            return None
        if not self._executed_again(run_store):
            choice = self._missing(run_store, in_target, marked)
            if choice is not None:
                return choice
            run_store.in_target = True
            _forget_damage(run_store.path)
        self._collected.before += 1
        return None

    def _missing(
        self, run_store: _RunStore, in_target: Mapping[str, InstanceState], marked: Collection[str]
    ) -> _Chosen | None:
        """Return the instances that the target lacks, or has in another state; ``None`` if there are none."""
        finished = all(uid in in_target and in_target[uid].status == "finished" for uid in run_store.uids)
        if run_store.uids and finished and not self._without_files(run_store):
            return None
        states = self._states(run_store)
        run_store.uids = [state.uid for state in states]
        gone = self._without_files(run_store)
        missing = [
            state.uid for state in states if in_target.get(state.uid) != state.over() or state.uid in gone
        ]
        self._check_rows(run_store, [uid for uid in missing if uid in in_target])
        # the target may have hard links to the same files
        self._verify(run_store, [uid for uid in missing if uid in marked])
        return _Chosen(run_store, missing, states[-1].over().status) if missing else None

    def _check_rows(self, run_store: _RunStore, uids: Sequence[str]) -> None:
        """Check the rows of these instances, because unreadable ones must not replace those in the target."""
        if uids:
            with self._reader.reading(run_store.path) as session:
                for uid in uids:
                    check_rows(session, run_store.folder(uid), uid)

    def _executed_again(self, run_store: _RunStore) -> bool:
        """Whether the store was found damaged, and the run has since finished in the target."""
        uid = None if run_store.ended is None else run_store.ended.instance
        if uid is None or uid in run_store.uids or not (run_store.path / DAMAGE_NOTE).exists():
            return False
        state = self._states_in_target([uid]).get(uid)
        return state is not None and state.status == "finished"

    def _verify(self, run_store: _RunStore, uids: Sequence[str]) -> None:
        """Verify these instances in the store of a run. Raises :class:`DamagedStore`."""
        if not uids:
            return
        with Store(run_store.path, create=False) as store:
            for uid in uids:
                report = verify(store, uid)
                if report.damage:
                    raise DamagedStore(f"damaged like its copy in the results: {report.damage[0]}")
                if report.unread:
                    raise StoreError(report.unread[0])

    def _states(self, run_store: _RunStore) -> list[InstanceState]:
        """Return the states of the instances in the store of a run."""
        try:
            with self._reader.reading(run_store.path) as session:
                states = instance_states(session)
        except SQLAlchemyError as error:
            if is_damage(error):
                raise DamagedStore(f"the store {run_store.path} is damaged: {error}") from error
            raise StoreError(f"the store {run_store.path} cannot be read: {error}") from error
        if not states:
            raise DamagedStore(f"the store {run_store.path} has no instance")
        for state in states:
            if state.uid not in run_store.uids:
                raise DamagedStore(f"the store {run_store.path} has no folder of its instance {state.uid!r}")
        return states

    def _without_files(self, run_store: _RunStore) -> set[str]:
        """Return the instances with files that are missing or different in the target."""
        in_target = self._target.instance_directory
        return {uid for uid in run_store.uids if not has_files_of(run_store.folder(uid), in_target(uid))}

    def _copy_rows(self, placed: Sequence[_Chosen]) -> None:
        copied = []
        with self._target.database.writing() as target:
            lock(target)
            for choice in placed:
                run_store = choice.run_store
                with self._reporting(run_store.path):
                    with self._reader.reading(run_store.path) as source, target.begin_nested():
                        # another process may have collected a copy of the folder while we waited for the lock
                        in_target = {state.uid: state for state in instance_states(target, choice.missing)}
                        for state in instance_states(source, choice.missing):
                            if in_target.get(state.uid) == state.over():
                                continue
                            if state.uid in in_target:
                                remove_rows(target, state.uid)
                            copy_rows(source, run_store.folder(state.uid), target, state.uid)
                        if last_ended(self._root, run_store.path) != run_store.ended:
                            raise _StillRunning
                    copied.append(choice)
        for choice in copied:
            choice.run_store.in_target = True
            self._collected.runs[choice.status] += 1
            _forget_damage(choice.run_store.path)

    def _remove_finished(self, run_store: _RunStore) -> None:
        """Remove the store of a finished run after verifying its copy in the target.

        Raises :class:`StoreError` if the copy is incomplete or damaged.
        """
        if not run_store.in_target or run_store.ended is None or run_store.ended.status not in _OVER:
            return
        if run_store.path.name in self._needed:
            return
        self._verify_copy(run_store)
        self._copy_labels(run_store)
        if run_store.ended.record is not None:
            record = replace(run_store.ended.record, store=self._location)
            record.write(with_suffix(self._root / JOBS / run_store.path.name, ".json"))
        gone = run_store.path.with_name(f".{run_store.path.name}{_REMOVED}")
        files.move(run_store.path, gone)
        for folder, _, names in os.walk(gone):
            statuses = [os.lstat(os.path.join(folder, name)) for name in names]
            self._collected.files += len(statuses)
            self._collected.freed += sum(status.st_size for status in statuses if status.st_nlink == 1)
        files.remove_tree(gone)
        self._collected.removed += 1

    def _verify_copy(self, run_store: _RunStore) -> None:
        """Raise :class:`StoreError` if the copy of a finished run's store is incomplete or damaged."""
        states = self._states_in_target(run_store.uids).values()
        folders = [(run_store.folder(uid), self._target.instance_directory(uid)) for uid in run_store.uids]
        whole = len(states) == len(run_store.uids) and any(state.status in _OVER for state in states)
        if not whole or not all(same_files(*pair, _LEFT) for pair in folders):
            raise StoreError(f"{self._target.directory} does not have all of it")
        for uid in run_store.uids:
            # the outcomes in the database were copied together with the steps
            report = verify(self._target, uid, outcomes=False)
            if report.damage or report.unread:
                raise StoreError((*report.damage, *report.unread)[0])

    def _copy_labels(self, run_store: _RunStore) -> None:
        """Copy labels that were set in the store of a run after it was collected."""
        with self._reader.reading(run_store.path) as source, self._target.database.writing() as target:
            lock(target)
            copy_labels(source, run_store.path, target, run_store.uids)

    @contextmanager
    def _reporting(self, path: Path) -> Iterator[None]:
        """Report errors of one store, and continue with the others."""
        try:
            yield
        except _StillRunning:
            self._collected.going_on += 1
        except OSError as error:
            if error.errno in _FULL:
                raise StoreError(f"cannot write to {self._target.directory}: {error}") from error
            self._collected.damaged[path] = str(error)
        except StoreError as error:
            self._collected.damaged[path] = str(error)
            if isinstance(error, DamagedStore):
                self._note(path, str(error))
        except (IntegrityError, DataError) as error:  # its full text includes all values of the row
            self._collected.damaged[path] = f"{self._target.database.name} does not take it: {error.orig}"

    def _note(self, path: Path, damage: str) -> None:
        """Write a note of the damage to the store, unless its run was started again."""
        note = path / DAMAGE_NOTE
        if last_ended(self._root, path) is None or note.exists():
            return
        try:
            write_text(note, f"found damaged, {now()}: {damage}\n")
        except StoreError as error:
            self._collected.damaged[path] += f"; {error}"


def _forget_damage(path: Path) -> None:
    """Remove the note about damage that has been repaired."""
    note = path / DAMAGE_NOTE
    if note.exists():
        files.remove(note)


def last_ended(root: Path, store: Path) -> _Ended | None:
    """Return the end of the run with the own store ``store``; ``None`` if it is executing, or its end is unknown."""
    path = root / JOBS / store.name
    record, marker = JobRecord.read(with_suffix(path, ".json")), Marker.read(with_suffix(path, ".running"))
    if marker is not None:
        # the run may have ended without a record, but only its next execution can determine this
        is_current = record is not None and record.hash == marker.hash and record.attempt >= marker.attempt
        if not is_current:
            return None
    if record is not None:
        return _Ended(record.status, record.instance, record)
    newest = instance_uids(store)[-1:]
    status = marked_status(store / INSTANCES / newest[0]) if newest else None
    return None if status is None else _Ended(status, newest[0], None)

"""Fills a store from the stores of single runs, while other runs go on.

A run on a cluster records into a store of its own, and nobody else opens that as long as it goes on.
Here, what has ended is copied into one store for all: once, however often this is called. What it
was copied from stays, unless it is asked to be removed.
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sqlalchemy.exc import DataError, IntegrityError, SQLAlchemyError

from palaestrai_mosaik import files
from palaestrai_mosaik.design.folder import JOBS, RESULTS, STORES, DesignFolder, FileLock
from palaestrai_mosaik.errors import ExecutionError, StoreError
from palaestrai_mosaik.run.checkpoint import FOLDER as CHECKPOINTS
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.location import StoreLocation
from palaestrai_mosaik.store.merge import (
    DAMAGE_NOTE,
    DamagedStore,
    InstanceState,
    StoreReader,
    check_rows,
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
from palaestrai_mosaik.store.query.lookup import INSTANCES
from palaestrai_mosaik.store.verify import marked_damaged, verify

from ..job import JobRecord, Marker, now, with_suffix

#: stores whose rows are committed together: a commit costs milliseconds
_TOGETHER = 50
#: what stays behind: a run that was interrupted goes on in its own store
_LEFT = frozenset({CHECKPOINTS})
#: how a store is called while it is removed; no run's files have a dot at their beginning
_REMOVED = ".removed"
#: these are the fault of the target, not of the store of a run
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

#: told how many stores of how many have been looked at
Progress = Callable[[int, int], None]


@dataclass
class Collected:
    """What :func:`collect_folder` found in the stores of single runs, and did.

    ``runs``: those whose results were copied now, by how their newest instance ended; ``before``:
    how many were there already; ``going_on``: how many have not ended; ``empty``: how many ended
    before anything was recorded. ``damaged``: what is wrong with the stores that could not be
    copied, by their path. ``kept``: why stores of finished runs were not removed, where they were to
    be, by their path. ``removed``: how many stores were removed, with ``files`` files;
    ``freed``: the bytes that are free now (what the target shares with them is not).
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
    """How a run ended, and as which instance: as its record says, or its newest instance's marker."""

    status: str
    instance: str | None
    record: JobRecord | None


@dataclass
class _RunStore:
    """The store of one run; ``uids``: its instances, the oldest first; ``there``: the target has them."""

    path: Path
    uids: list[str]
    ended: _Ended | None = None
    there: bool = False

    def folder(self, uid: str) -> Path:
        """Return the folder of an instance."""
        return self.path / INSTANCES / uid


class _Chosen(NamedTuple):
    """One that is copied: these instances, of which the newest has this ``status``."""

    own: _RunStore
    missing: list[str]
    status: str


class _StillRunning(Exception):
    """The run was begun again after it was found to be over."""


def collect_folder(
    folder: DesignFolder,
    location: StoreLocation | None = None,
    *,
    remove: bool = False,
    progress: Progress | None = None,
) -> Collected:
    """Copy the results of the runs of ``folder`` that have ended on a cluster into one store.

    ``location``: that store (default: the folder's ``results``). ``remove``: the stores of finished
    runs are removed as soon as all that is in them is there, and was read again to see that it is whole.

    Raises :class:`ExecutionError` where another process collects the folder's runs, and
    :class:`StoreError` where the store cannot be written; what was copied until then stays. A
    store of a run that cannot be read stops nobody: the result tells it. One that is damaged gets
    the file :data:`~palaestrai_mosaik.store.merge.DAMAGE_NOTE`, by which its run counts as lost; it goes
    again as soon as the store can be collected after all.
    """
    location = location or StoreLocation.of(folder.path / RESULTS)
    root = folder.path.absolute()
    found = Collected()
    if not (root / STORES).is_dir():
        return found
    with _lock(root):
        for left in (root / STORES).glob(f".*{_REMOVED}"):  # by a process that was killed
            files.remove_tree(left)
        owns = []
        for path in (root / STORES).iterdir():
            if path.name[0] == "." or path.is_symlink() or not path.is_dir():
                continue
            try:
                owns.append(_RunStore(path, instance_uids(path)))
            except OSError as error:
                found.damaged[path] = str(error)
        owns.sort(key=lambda own: (own.uids[:1], own.path))  # uids begin with the time
        if owns:
            with location.open(create=True) as target:
                _Collecting(root, target, found, remove).all(owns, progress or (lambda done, total: None))
    return found


@contextmanager
def _lock(root: Path) -> Iterator[None]:
    with ExitStack() as stack:
        try:
            stack.enter_context(FileLock(root / STORES / ".lock", "is being collected by"))
        except BlockingIOError as error:
            raise ExecutionError(f"the folder {root} {error.strerror}: wait for it") from None
        except OSError as error:
            raise ExecutionError(f"cannot write to {root / STORES}: {error.strerror}") from error
        yield


class _Collecting:
    """Copies stores of runs into ``target``, some at a time."""

    def __init__(self, root: Path, target: Store, found: Collected, remove: bool):
        self._root, self._target, self._found, self._remove = root, target, found, remove
        self._reader = StoreReader()

    def all(self, owns: Sequence[_RunStore], progress: Progress) -> None:
        """Copy all; say how far it is."""
        with closing(self._reader):
            for first in range(0, len(owns), _TOGETHER):
                some = owns[first : first + _TOGETHER]
                self._copy(some)
                if self._remove:
                    for own in some:
                        try:
                            self._remove_finished(own)
                        except (StoreError, OSError) as error:
                            self._found.kept[own.path] = str(error)
                progress(first + len(some), len(owns))

    def _copy(self, some: Sequence[_RunStore]) -> None:
        """Copy what is missing: all files, then all rows."""
        uids = [uid for own in some for uid in own.uids]
        known = self._known(uids)
        with self._target.database.reading() as session:
            marked = marked_damaged(session, uids)
        chosen: list[_Chosen] = []
        for own in some:
            with self._reporting(own.path):
                chosen += self._choose(own, known, marked)
        changed = [uid for one in chosen for uid in one.missing if uid in known]
        if changed:
            with self._target.database.writing() as session:
                for uid in changed:
                    remove_rows(session, uid)
        placed: list[_Chosen] = []
        for one in chosen:
            with self._reporting(one.own.path):
                for uid in one.missing:
                    place_files(one.own.folder(uid), self._target.instance_directory(uid), _LEFT)
                placed.append(one)
        if placed:
            self._copy_rows(placed)

    def _known(self, uids: Sequence[str]) -> dict[str, InstanceState]:
        """Return the states of these instances in the target, as far as they are there."""
        with self._target.database.reading() as session:
            return {state.uid: state for state in instance_states(session, uids)}

    def _choose(
        self, own: _RunStore, known: Mapping[str, InstanceState], marked: Collection[str]
    ) -> Iterator[_Chosen]:
        """Yield what there is to copy, if anything; else count why there is nothing.

        ``known`` has the instances that the target has, ``marked`` are those of them in which damage was found.
        """
        own.ended = last_ended(self._root, own.path)
        if own.ended is None:
            self._found.going_on += 1
            return
        if not own.uids and own.ended.instance is None:
            self._found.empty += 1
            return
        if self._executed_again(own):
            self._found.before += 1
            return
        finished = [uid for uid in own.uids if uid in known and known[uid].status == "finished"]
        if not own.uids or finished != own.uids or self._without_files(own):
            states = self._states(own)
            own.uids = [state.uid for state in states]
            gone = self._without_files(own)
            missing = [one.uid for one in states if known.get(one.uid) != one.over() or one.uid in gone]
            changed = [uid for uid in missing if uid in known]
            if changed:
                # what is there already is not given up for what cannot be read
                with self._reader.reading(own.path) as session:
                    for uid in changed:
                        check_rows(session, own.folder(uid), uid)
            # the files in the target may be these very ones
            self._verify(own, [uid for uid in missing if uid in marked])
            if missing:
                yield _Chosen(own, missing, states[-1].over().status)
                return
        own.there = True
        self._found.before += 1
        _forget_damage(own.path)

    def _executed_again(self, own: _RunStore) -> bool:
        """Whether the store was found damaged, and the run has finished in the target since."""
        uid = None if own.ended is None else own.ended.instance
        if uid is None or uid in own.uids or not (own.path / DAMAGE_NOTE).exists():
            return False
        found = self._known([uid]).get(uid)
        return found is not None and found.status == "finished"

    def _verify(self, own: _RunStore, uids: Sequence[str]) -> None:
        """Read all that the store has of these instances. Raises :class:`DamagedStore`."""
        if not uids:
            return
        with Store(own.path, create=False) as store:
            for uid in uids:
                found = verify(store, uid)
                if found.damage:
                    raise DamagedStore(f"damaged like its copy in the results: {found.damage[0]}")
                if found.unread:
                    raise StoreError(found.unread[0])

    def _states(self, own: _RunStore) -> list[InstanceState]:
        """Return the states of the instances in the store of a run."""
        try:
            with self._reader.reading(own.path) as session:
                states = instance_states(session)
        except SQLAlchemyError as error:
            if is_damage(error):
                raise DamagedStore(f"the store {own.path} is damaged: {error}") from error
            raise StoreError(f"the store {own.path} cannot be read: {error}") from error
        if not states:
            raise DamagedStore(f"the store {own.path} has no instance")
        for state in states:
            if state.uid not in own.uids:
                raise DamagedStore(f"the store {own.path} has no folder of its instance {state.uid!r}")
        return states

    def _without_files(self, own: _RunStore) -> set[str]:
        """Return those of the instances whose files are not the same in the target."""
        there = self._target.instance_directory
        return {uid for uid in own.uids if not has_files_of(own.folder(uid), there(uid))}

    def _copy_rows(self, placed: Sequence[_Chosen]) -> None:
        copied = []
        with self._target.database.writing() as target:
            lock(target)
            for one in placed:
                own = one.own
                with self._reporting(own.path):
                    with self._reader.reading(own.path) as source, target.begin_nested():
                        # those of a copy of the folder may have been collected while we waited for the lock
                        there = {state.uid: state for state in instance_states(target, one.missing)}
                        for state in instance_states(source, one.missing):
                            if there.get(state.uid) == state.over():
                                continue
                            if state.uid in there:
                                remove_rows(target, state.uid)
                            copy_rows(source, own.folder(state.uid), target, state.uid)
                        if last_ended(self._root, own.path) != own.ended:
                            raise _StillRunning
                    copied.append(one)
        for one in copied:
            one.own.there = True
            self._found.runs[one.status] += 1
            _forget_damage(one.own.path)

    def _remove_finished(self, own: _RunStore) -> None:
        """Remove the store of a run that has finished, if all that is in it is in the target, and whole there.

        Raises :class:`StoreError` where it is not.
        """
        if not own.there or own.ended is None or own.ended.status != "finished":
            return
        states = self._known(own.uids).values()
        folders = [(own.folder(uid), self._target.instance_directory(uid)) for uid in own.uids]
        whole = len(states) == len(own.uids) and any(state.status == "finished" for state in states)
        if not whole or not all(same_files(*pair, _LEFT) for pair in folders):
            raise StoreError(f"{self._target.directory} does not have all of it")
        for uid in own.uids:
            # (the sums of the database have just been there with the steps, or were before)
            found = verify(self._target, uid, outcomes=False)
            if found.damage or found.unread:
                raise StoreError((*found.damage, *found.unread)[0])
        gone = own.path.with_name(f".{own.path.name}{_REMOVED}")
        files.move(own.path, gone)
        for folder, _, names in os.walk(gone):
            told = [os.lstat(os.path.join(folder, name)) for name in names]
            self._found.files += len(told)
            self._found.freed += sum(one.st_size for one in told if one.st_nlink == 1)
        files.remove_tree(gone)
        self._found.removed += 1

    @contextmanager
    def _reporting(self, path: Path) -> Iterator[None]:
        """Let what is wrong with one store be told, and nothing else stop."""
        try:
            yield
        except _StillRunning:
            self._found.going_on += 1
        except OSError as error:
            if error.errno in _FULL:
                raise StoreError(f"cannot write to {self._target.directory}: {error}") from error
            self._found.damaged[path] = str(error)
        except StoreError as error:
            self._found.damaged[path] = str(error)
            if isinstance(error, DamagedStore):
                self._note(path, str(error))
        except (IntegrityError, DataError) as error:  # (its own text has all values of the row)
            self._found.damaged[path] = f"{self._target.database.name} does not take it: {error.orig}"

    def _note(self, path: Path, damage: str) -> None:
        """Leave a note of the damage in the store, unless its run was begun again."""
        note = path / DAMAGE_NOTE
        if last_ended(self._root, path) is None or note.exists():
            return
        try:
            write_text(note, f"found damaged, {now()}: {damage}\n")
        except StoreError as error:
            self._found.damaged[path] += f"; {error}"


def _forget_damage(path: Path) -> None:
    """Remove the note of a damage that was mended."""
    note = path / DAMAGE_NOTE
    if note.exists():
        files.remove(note)


def last_ended(root: Path, store: Path) -> _Ended | None:
    """Return how the run ended whose own store is at ``store``; ``None`` if it goes on, or nobody knows."""
    path = root / JOBS / store.name
    record, marker = JobRecord.read(with_suffix(path, ".json")), Marker.read(with_suffix(path, ".running"))
    if marker is not None:
        # one that ended without a record is over, too, but only who executes it again says so
        same = record is not None and record.hash == marker.hash and record.attempt >= marker.attempt
        if not same:
            return None
    if record is not None:
        return _Ended(record.status, record.instance, record)
    newest = instance_uids(store)[-1:]
    status = marked_status(store / INSTANCES / newest[0]) if newest else None
    return None if status is None else _Ended(status, newest[0], None)

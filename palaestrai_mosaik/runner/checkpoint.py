"""Checkpoints of runs: a run that was stopped or killed resumes from its newest one.

A checkpoint is a folder in the instance's directory with two files. ``state.pickle`` has brains, memories, muscles,
conditions and counters between two rounds of episodes. ``manifest.json`` has the position in the store, the hash of
the document, versions, the SHA-256 of the state, and the user's signature. The folder is written under a temporary
name, flushed to disk and renamed, so it is either complete or missing. The newest two are kept, in case one is
damaged.

The state is a pickle of user-defined objects, and unpickling executes code. A store may be downloaded, or writable by
other users. Therefore each checkpoint is signed with a key of its user, and only checkpoints with that signature are
read (:mod:`.user_key`). To resume runs of another machine or of a colleague, copy the file of the key.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import CheckpointError, DocumentError, StoreError
from palaestrai_mosaik.experiment import RunDocument, content_digest, loads

from .user_key import VARIABLE, is_signed, key_file, sign

if TYPE_CHECKING:
    from palaestrai_mosaik.store import InstanceRecorder, Store

#: the folder with the checkpoints, in the instance's directory
FOLDER = "checkpoints"
#: the default interval between two checkpoints, in seconds
INTERVAL = 60.0
_STATE, _MANIFEST = "state.pickle", "manifest.json"
_FORMAT = 4
_KEPT = 2
#: seconds until the first checkpoint; the interval grows from this value
_FIRST = 5.0
#: the maximum share of the run time that is spent on writing checkpoints
_SHARE = 0.05
#: an interrupted run writes another checkpoint if the last one took less than this, in seconds
_QUICK = 2.0


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint read from disk; ``mark`` is the position in the store (:meth:`InstanceRecorder.mark`)."""

    path: Path
    mark: dict[str, Any]
    pickled: bytes

    def state(self) -> Any:
        """Unpickle the state. Its signature has been verified."""
        try:
            return pickle.loads(self.pickled)
        except Exception as error:
            raise CheckpointError(f"the checkpoint {self.path} cannot be read: {error!r}") from error


class Checkpoints:
    """The checkpoints of one instance.

    Args:
        directory: the instance's directory.
        hash: the hash of the document.
        versions: the versions of packages, from :func:`versions`.
        interval: the longest interval between two checkpoints in seconds, unless writing takes long; 0 disables
            checkpoints.
    """

    def __init__(self, directory: Path, hash: str, versions: dict[str, str], interval: float):
        self._folder = directory / FOLDER
        self._hash = hash
        self._versions = versions
        self._interval = interval
        self._began = time.monotonic()
        self._due = self._began + min(interval, _FIRST)
        self._took = 0.0

    def is_due(self, *, ending: bool = False) -> bool:
        """Return whether to write a checkpoint now; if the run is ``ending``, always unless the last one took long."""
        if self._interval <= 0:
            return False
        return time.monotonic() >= self._due or (ending and self._took < _QUICK)

    def stop(self) -> None:
        """Disable further checkpoints."""
        self._interval = 0.0

    def write(self, state: Any, mark: dict[str, Any], started: float) -> None:
        """Write a checkpoint and delete the older ones.

        Args:
            state: the state of the run, to be pickled.
            mark: the position in the store.
            started: the monotonic time at which collecting state and mark began.

        Raises:
            CheckpointError: if the state cannot be pickled, the key cannot be used, or the files cannot be written.
                No partial checkpoint is left behind.
        """
        self._put_off(started)
        try:
            pickled = pickle.dumps(state, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise CheckpointError(f"the state cannot be pickled: {error}") from error
        manifest = {
            "format": _FORMAT,
            "document": self._hash,
            "versions": self._versions,
            "state": _digest(pickled),
            "store": mark,
        }
        # the first line of the manifest has the digest and the signature of the second
        body = json.dumps(manifest).encode()
        head = f"{_digest(body)} {sign(body)}\n".encode()
        earlier = _newest_first(self._folder)
        number = int(earlier[0].name) + 1 if earlier else 0
        # remove the remains of a process that was killed while writing
        for stray in self._folder.glob(".*"):
            files.discard_tree(stray)
        temporary = files.temporary_path(self._folder / _STATE)
        try:
            # do not create the instance's directory: if it is gone, the store is gone
            files.make_folder(self._folder)
            files.make_folder(temporary, exist_ok=False)
            files.write_bytes(temporary / _STATE, pickled)
            files.write_bytes(temporary / _MANIFEST, head + body)
            files.move(temporary, self._folder / f"{number:06d}")
        except OSError as error:
            files.discard_tree(temporary)
            raise CheckpointError(f"cannot write a checkpoint to {self._folder}: {error}") from error
        for old in earlier[_KEPT - 1 :]:
            files.discard_tree(old)
        self._put_off(started)

    def _put_off(self, started: float) -> None:
        now = time.monotonic()
        self._took = now - started
        # growing intervals: a run killed in its first minute loses at most half of its work
        interval = min(self._interval, max(_FIRST, now - self._began))
        self._due = now + max(interval, self._took / _SHARE)

    def clear(self) -> None:
        """Remove all checkpoints after the run has finished."""
        files.discard_tree(self._folder)


def whole_checkpoints(directory: Path, hash: str, versions: dict[str, str]) -> Iterator[Checkpoint]:
    """Yield the undamaged checkpoints of an instance, newest first.

    Args:
        directory: the instance's directory.
        hash: the hash of the document, which must be unchanged.
        versions: the versions of packages, which must be unchanged because they could change the results.

    Raises:
        CheckpointError: if all checkpoints are missing or damaged, or one belongs to another document, other versions
            or another user.
    """
    folder = directory / FOLDER
    paths = _newest_first(folder)
    if not paths:
        raise CheckpointError(f"there is no checkpoint in {folder}")
    damaged: list[str] = []
    for path in paths:
        manifest, is_own = _read_manifest(path)
        pickled = b""
        with suppress(OSError):
            pickled = files.read_bytes(path / _STATE)
        if manifest is None or manifest["state"] != _digest(pickled):
            damaged.append(path.name)
            continue
        why = _why_not(path, manifest, is_own, hash, versions)
        if why is not None:
            raise CheckpointError(why)
        yield Checkpoint(path, manifest["store"], pickled)
    if len(damaged) == len(paths):
        raise CheckpointError(f"no checkpoint in {folder} is whole: {', '.join(damaged)}")


def why_unusable(directory: Path, hash: str, versions: dict[str, str]) -> str | None:
    """Return why :func:`whole_checkpoints` would refuse the newest checkpoint, or ``None`` if it would not.

    Only manifests are read. The state may still be damaged.
    """
    folder = directory / FOLDER
    for path in _newest_first(folder):
        try:
            manifest, is_own = _read_manifest(path)
        except CheckpointError as error:  # the key cannot be used
            return str(error)
        if manifest is not None:
            return _why_not(path, manifest, is_own, hash, versions)
    return f"no checkpoint in {folder} is whole"


def _why_not(
    path: Path, manifest: dict[str, Any], is_own: bool, hash: str, versions: dict[str, str]
) -> str | None:
    """Return why an undamaged checkpoint cannot be used, or ``None`` if it can."""
    if manifest["format"] != _FORMAT:
        return f"{path} has the format {manifest['format']}, not {_FORMAT}"
    if not is_own:
        return (
            f"{path} was written by another user, or on another computer: it is not signed with the key in "
            f"{key_file()}. To read it would run whatever it says; if you trust it, get a copy of the key that "
            f"it was signed with, and name it in {VARIABLE}"
        )
    if manifest["document"] != hash:
        return f"{path} belongs to a document with the hash {manifest['document'][:16]}, not {hash[:16]}"
    then = manifest["versions"]
    changed = [
        f"{name}: {then.get(name, 'none')} then, {versions.get(name, 'none')} now"
        for name in sorted(then.keys() | versions.keys())
        if versions.get(name) != then.get(name)
    ]
    return f"{path} was written with other versions ({'; '.join(changed)})" if changed else None


def _read_manifest(path: Path) -> tuple[dict[str, Any] | None, bool]:
    """Return a checkpoint's manifest, ``None`` if damaged, and whether this user's signature is valid."""
    with suppress(OSError):
        head, _, body = files.read_bytes(path / _MANIFEST).partition(b"\n")
        digest, _, signature = head.decode("ascii", "replace").partition(" ")
        if _digest(body) == digest:
            return json.loads(body), is_signed(body, signature)
    return None, False


def discard_newer(checkpoint: Checkpoint) -> None:
    """Remove the checkpoints that are newer than ``checkpoint``."""
    for path in _newest_first(checkpoint.path.parent):
        if int(path.name) > int(checkpoint.path.name):
            files.discard_tree(path)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def has_checkpoints(directory: Path) -> bool:
    """Return whether the instance in ``directory`` has checkpoints, damaged or not."""
    return bool(_newest_first(directory / FOLDER))


def _newest_first(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, damaged or not."""
    with suppress(OSError):
        numbers = sorted(
            (int(entry.name) for entry in folder.iterdir() if entry.name.isdigit()), reverse=True
        )
        return [folder / f"{number:06d}" for number in numbers]
    return []


@dataclass(frozen=True)
class Earlier:
    """An earlier run of a document.

    Attributes:
        instance: the uid of the run.
        status: its status, such as ``interrupted``.
        has_checkpoint: whether it can be resumed.
    """

    instance: str
    status: str
    has_checkpoint: bool


def earlier_run(document: RunDocument, store: Store) -> Earlier | None:
    """Find the run of a document that would be resumed.

    This is the newest run if it has finished or is still running. Otherwise, it is the newest run with a checkpoint
    since the last finished one, or the newest run if none has a checkpoint.

    Args:
        document: the document, with the same hash as when the run began.
        store: the open store to search.

    Returns:
        the run, or ``None`` if the document was never run.
    """
    runs = store.runs()
    runs = runs[runs["hash"] == document.hash]
    if runs.empty:
        return None
    instances = list(zip(runs["run"], runs["status"], strict=True))
    newest, status = instances[-1]
    run = newest
    if status not in ("finished", "running"):
        # only the newest run can block resuming; older ones that still count as running are treated as lost
        lost = [(uid, status.replace("running", "lost")) for uid, status in instances]
        run = resumable(store, lost) or newest
    return Earlier(run, dict(instances)[run], has_checkpoints(store.instance_directory(run)))


def resumable(store: Store, instances: Sequence[tuple[str, str]]) -> str | None:
    """Return the uid of the newest of a document's instances that can be resumed, or ``None``.

    ``instances`` has pairs of uid and status, the newest last. An instance can be resumed if it has a checkpoint and
    no newer instance has finished or is still running.
    """
    for uid, status in reversed(instances):
        if status in ("finished", "running"):
            return None
        if has_checkpoints(store.instance_directory(uid)):
            return uid
    return None


def document_of_instance(document: RunDocument, store: Store, instance: str) -> RunDocument:
    """Return the document with which ``instance`` began: the stored one if only uids differ, else ``document``.

    The uid must be the stored one, because names of existing files, such as brain dumps, contain it.
    """
    stored = store.document_of(instance)
    if stored.hash == document.hash:
        return document
    with suppress(DocumentError):
        begun = loads(stored.text, document.source)
        if content_digest(begun.canonical) == content_digest(document.canonical):
            return begun
    return document


def reopen(document: RunDocument, store: Store, instance: str) -> tuple[InstanceRecorder, dict[str, Any]]:
    """Reset the store to the newest usable checkpoint of ``instance``.

    Returns:
        the recorder that continues the instance, and the state.

    Raises:
        CheckpointError: if there is no usable checkpoint. The store is unchanged then.
        StoreError: if the store cannot be reset to any checkpoint. It is unchanged then.
    """
    problem: Exception | None = None
    for checkpoint in whole_checkpoints(store.instance_directory(instance), document.hash, versions()):
        try:
            state = checkpoint.state()
            recorder = store.resume_run(instance, checkpoint.mark)
        except (CheckpointError, StoreError) as error:
            problem = problem or error
            continue
        discard_newer(checkpoint)
        recorder.warning(f"resumed from checkpoint {int(checkpoint.path.name)}")
        return recorder, state
    assert problem is not None
    raise problem


def versions() -> dict[str, str]:
    """Return the versions of packages that must not change between a run and its resumption."""
    # imported here because worker processes need no store
    from palaestrai_mosaik.store.store import package_versions

    return package_versions()

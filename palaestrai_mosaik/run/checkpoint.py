"""Checkpoints: a run that was stopped or killed goes on where all its workers stood last.

A checkpoint is a folder below the instance's directory: ``state.pickle`` (brains, memories,
muscles, conditions, counters, between two rounds of episodes) and ``manifest.json`` (what
the store held then, the document's hash, versions, the SHA-256 of it all, and its user's
signature). It is written aside, flushed to the disk and renamed, so there is a whole one or
none. The newest two are kept: if one turns out to be damaged, the other one serves.

The state is a pickle of users' own objects. Reading one executes what it says, so only what this
user has signed is read (:mod:`.checkpoint_key`).
"""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import CheckpointError

from .checkpoint_key import VARIABLE, is_signed, key_file, sign

FOLDER = "checkpoints"
#: seconds between two checkpoints, unless told otherwise
INTERVAL = 60.0
_STATE, _MANIFEST = "state.pickle", "manifest.json"
_FORMAT = 3
_KEPT = 2
#: writing may take this share of the time at most
_SHARE = 0.05


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint as it was read; ``mark`` is the store's (:meth:`InstanceRecorder.mark`)."""

    path: Path
    mark: dict[str, Any]
    pickled: bytes

    def state(self) -> Any:
        """Return the state. This unpickles what this user has signed: see above."""
        try:
            return pickle.loads(self.pickled)
        except Exception as error:
            raise CheckpointError(f"the checkpoint {self.path} cannot be read: {error!r}") from error


class Checkpoints:
    """The checkpoints of one instance. ``interval`` is in seconds; 0 means none."""

    def __init__(self, directory: Path, hash: str, versions: dict[str, str], interval: float):
        self._folder = directory / FOLDER
        self._hash = hash
        self._versions = versions
        self._interval = interval
        self._due = time.monotonic() + interval

    @property
    def due(self) -> bool:
        """Whether it is time for another one."""
        return self._interval > 0 and time.monotonic() >= self._due

    def stop(self) -> None:
        """Write no more."""
        self._interval = 0.0

    def write(self, state: Any, mark: dict[str, Any], started: float) -> None:
        """Write a checkpoint, and let older ones go.

        ``started``: the monotonic time at which collecting state and mark began.

        Raises :class:`CheckpointError` if something of the state cannot be pickled, there is no
        key to sign it, or the files cannot be written; nothing is left behind then.
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
        # the first line says what the second one must be, and who says so
        body = json.dumps(manifest).encode()
        head = f"{_digest(body)} {sign(body)}\n".encode()
        numbers = _numbers(self._folder)
        number = numbers[-1] + 1 if numbers else 0
        # left by a process that was killed while it wrote
        for stray in self._folder.glob(".*"):
            files.discard_tree(stray)
        temporary = files.aside(self._folder / _STATE)
        try:
            # not the instance's directory: if that is gone, the store is
            files.make_folder(self._folder)
            files.make_folder(temporary, exist_ok=False)
            files.write_bytes(temporary / _STATE, pickled)
            files.write_bytes(temporary / _MANIFEST, head + body)
            files.move(temporary, self._folder / f"{number:06d}")
        except OSError as error:
            files.discard_tree(temporary)
            raise CheckpointError(f"cannot write a checkpoint to {self._folder}: {error}") from error
        for old in numbers[: len(numbers) + 1 - _KEPT]:
            files.discard_tree(self._folder / f"{old:06d}")
        self._put_off(started)

    def _put_off(self, started: float) -> None:
        now = time.monotonic()
        self._due = now + max(self._interval, (now - started) / _SHARE)

    def clear(self) -> None:
        """Remove all: the run is finished."""
        files.discard_tree(self._folder)


def whole_checkpoints(directory: Path, hash: str, versions: dict[str, str]) -> Iterator[Checkpoint]:
    """Yield the whole checkpoints of the instance in ``directory``, newest first.

    Raises :class:`CheckpointError` where there is none, or where they are of another
    document or other versions, with which the result would differ, or signed by somebody else.
    """
    folder = directory / FOLDER
    numbers = _numbers(folder)
    if not numbers:
        raise CheckpointError(f"there is no checkpoint in {folder}")
    damaged: list[str] = []
    for number in reversed(numbers):
        path = folder / f"{number:06d}"
        try:
            manifest, mine = _read_manifest(path)
            pickled = files.read_bytes(path / _STATE)
        except OSError:
            manifest, mine, pickled = None, False, b""
        if manifest is None or manifest["state"] != _digest(pickled):
            damaged.append(path.name)
            continue
        why = _why_not(path, manifest, mine, hash, versions)
        if why is not None:
            raise CheckpointError(why)
        yield Checkpoint(path, manifest["store"], pickled)
    if len(damaged) == len(numbers):
        raise CheckpointError(f"no checkpoint in {folder} is whole: {', '.join(damaged)}")


def why_unusable(directory: Path, hash: str, versions: dict[str, str]) -> str | None:
    """Return why :func:`whole_checkpoints` would refuse what is there; ``None`` if it would not.

    Only what is said of the state is read, not the state: it may be damaged all the same.
    """
    folder = directory / FOLDER
    for number in reversed(_numbers(folder)):
        path = folder / f"{number:06d}"
        try:
            manifest, mine = _read_manifest(path)
        except OSError:
            continue
        except CheckpointError as error:  # of the key
            return str(error)
        if manifest is not None:
            return _why_not(path, manifest, mine, hash, versions)
    return f"no checkpoint in {folder} is whole"


def _why_not(
    path: Path, manifest: dict[str, Any], mine: bool, hash: str, versions: dict[str, str]
) -> str | None:
    """Return why a checkpoint that is whole cannot be used, if so."""
    if manifest["format"] != _FORMAT:
        return f"{path} has the format {manifest['format']}, not {_FORMAT}"
    if not mine:
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
    """Return the manifest of a checkpoint, ``None`` if it is damaged, and whether this user has signed it.

    Raises :class:`OSError` where it cannot be read.
    """
    head, _, body = files.read_bytes(path / _MANIFEST).partition(b"\n")
    digest, _, signature = head.decode("ascii", "replace").partition(" ")
    if _digest(body) != digest:
        return None, False
    manifest: dict[str, Any] = json.loads(body)
    return manifest, is_signed(body, signature)


def discard_newer(checkpoint: Checkpoint) -> None:
    """Remove checkpoints that are newer than the one that a run goes on from."""
    for number in _numbers(checkpoint.path.parent):
        if number > int(checkpoint.path.name):
            files.discard_tree(checkpoint.path.parent / f"{number:06d}")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def has_checkpoints(directory: Path) -> bool:
    """Whether the instance in ``directory`` has a checkpoint, whole or not."""
    return bool(_numbers(directory / FOLDER))


def _numbers(folder: Path) -> list[int]:
    with suppress(OSError):
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdigit())
    return []

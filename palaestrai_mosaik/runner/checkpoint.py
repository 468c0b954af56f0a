"""Checkpoints: a run that was stopped or killed resumes where all its workers last stood.

A checkpoint is a folder below the instance's directory: ``state.pickle`` (brains, memories,
muscles, conditions, counters, between two rounds of episodes) and ``manifest.json`` (what
the store held then, the document's hash, versions, the SHA-256 of it all, and its user's
signature). It is written under another name, flushed to the disk and renamed, so it is complete
or missing. The newest two are kept: if one is damaged, the other one is used.

The state is a pickle of users' own objects, and reading a pickle executes code. A store may come from
elsewhere, or others may be able to write to it. So a checkpoint is signed with a key that only its user
has, and no other one is read. The key is created when it is first needed, in ``$PALAESTRAI_MOSAIK_KEY``,
else ``$XDG_DATA_HOME/palaestrai_mosaik/checkpoint.key``, else
``~/.local/share/palaestrai_mosaik/checkpoint.key``. To resume runs of another machine, or of a colleague,
copy that file.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import pickle
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import CheckpointError, DocumentError, StoreError
from palaestrai_mosaik.experiment import RunDocument, content_digest, loads

if TYPE_CHECKING:
    from palaestrai_mosaik.store import InstanceRecorder, Store

#: the environment variable that names the file of the key
VARIABLE = "PALAESTRAI_MOSAIK_KEY"
_BYTES = 32
#: the folder of an instance's directory that holds its checkpoints
FOLDER = "checkpoints"
#: seconds between two checkpoints by default
INTERVAL = 60.0
_STATE, _MANIFEST = "state.pickle", "manifest.json"
_FORMAT = 3
_KEPT = 2
#: writing may take this share of the time at most
_SHARE = 0.05


def key_file() -> Path:
    """Return where the key is, or will be. Raises :class:`CheckpointError` for a user without a home."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    # (what is not absolute does not count, by the specification of these folders)
    base = Path(os.environ.get("XDG_DATA_HOME") or "")
    try:
        if not base.is_absolute():
            base = Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise CheckpointError(
            f"checkpoints need a key to sign them, and there is no home to keep it in ({error}); name a file "
            f"in the environment variable {VARIABLE}"
        ) from error
    return base / "palaestrai_mosaik" / "checkpoint.key"


def sign(data: bytes) -> str:
    """Return the signature of ``data``, hexadecimal; a missing key is made.

    Raises :class:`CheckpointError` where it cannot be read or made.
    """
    file = key_file()
    if not os.path.exists(file):  # (where it may not be looked for, the error is that of making it)
        _make(file)
    return hmac.new(_read(file), data, hashlib.sha256).hexdigest()


def is_signed(data: bytes, signature: str) -> bool:
    """Whether ``signature`` is this user's of ``data``. Raises :class:`CheckpointError` as :func:`sign`."""
    file = key_file()
    return os.path.exists(file) and hmac.compare_digest(
        hmac.new(_read(file), data, hashlib.sha256).hexdigest().encode(), signature.encode()
    )


@cache
def _read(file: Path) -> bytes:
    try:
        with files.open_text(file, encoding="ascii") as stream:
            if os.name == "posix":
                _check(file, os.fstat(stream.fileno()))
            key = bytes.fromhex(stream.read())
    except OSError as error:
        raise CheckpointError(
            f"the key of checkpoints {file} cannot be read: {error.strerror}; another file may be named in "
            f"the environment variable {VARIABLE}"
        ) from error
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise CheckpointError(f"{file} is not a checkpoint key: {_BYTES} bytes in hexadecimal digits")
    return key


def _check(file: Path, status: os.stat_result) -> None:
    # (root can read all keys, and exchange them)
    if status.st_uid not in (0, os.geteuid()):
        raise CheckpointError(
            f"the key of checkpoints {file} belongs to another user, who could sign what you would run: make a "
            "copy of your own, if you trust this user"
        )
    if status.st_mode & 0o077:
        raise CheckpointError(
            f"the key of checkpoints {file} may be read or written by others: chmod 600 {file}, or delete "
            "it (earlier checkpoints then cannot be used)"
        )
    # (by the name that was given, and where that leads to)
    for folder in dict.fromkeys((*file.absolute().parents, *Path(os.path.realpath(file)).parents)):
        if _is_open_to_others(folder.stat()):
            raise CheckpointError(
                f"the key of checkpoints {file} can be replaced by others, who may write to {folder}: "
                f"chmod go-w {folder}, or name a file elsewhere in the environment variable {VARIABLE}"
            )


def _is_open_to_others(folder: os.stat_result) -> bool:
    """Whether others than this user and root can rename what this user has in a folder."""
    if folder.st_uid not in _trusted_owners():
        return True
    if folder.st_mode & stat.S_ISVTX:  # (/tmp: only owners rename)
        return False
    by_group = bool(folder.st_mode & stat.S_IWGRP) and not _is_private_group(folder.st_gid)
    return by_group or bool(folder.st_mode & stat.S_IWOTH)


def _trusted_owners() -> set[int]:
    """Return this user and root; in a container without rights of root also nobody, who is the host's root there."""
    owners = {0, os.geteuid()}
    with suppress(OSError, ValueError):
        if files.read_text("/proc/self/uid_map").split() != ["0", "0", "4294967295"]:
            owners.add(int(files.read_text("/proc/sys/kernel/overflowuid")))
    return owners


def _is_private_group(gid: int) -> bool:
    """Whether the group is this user's alone, as many systems give one to each user."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}


def _make(file: Path) -> None:
    temporary = files.temporary_path(file)
    try:
        files.make_folder(file.parent, parents=True, private=True)
        try:
            files.write_bytes(temporary, f"{secrets.token_hex(_BYTES)}\n".encode("ascii"), private=True)
            # whole or not at all; if another process was faster, its key is the key
            with suppress(FileExistsError):
                files.link(temporary, file)
        finally:
            files.remove(temporary, missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"checkpoints need a key to sign them, and {file} cannot be written: {error.strerror}; another "
            f"file may be named in the environment variable {VARIABLE}"
        ) from error


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
        """Write a checkpoint, and delete older ones.

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
        temporary = files.temporary_path(self._folder / _STATE)
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

    Raises :class:`CheckpointError` where no checkpoint is found, or where they are of another
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
            manifest, is_own = _read_manifest(path)
            pickled = files.read_bytes(path / _STATE)
        except OSError:
            manifest, is_own, pickled = None, False, b""
        if manifest is None or manifest["state"] != _digest(pickled):
            damaged.append(path.name)
            continue
        why = _why_not(path, manifest, is_own, hash, versions)
        if why is not None:
            raise CheckpointError(why)
        yield Checkpoint(path, manifest["store"], pickled)
    if len(damaged) == len(numbers):
        raise CheckpointError(f"no checkpoint in {folder} is whole: {', '.join(damaged)}")


def why_unusable(directory: Path, hash: str, versions: dict[str, str]) -> str | None:
    """Return why :func:`whole_checkpoints` would refuse what is there; ``None`` if it would not.

    Only the manifest is read, not the state, which may still be damaged.
    """
    folder = directory / FOLDER
    for number in reversed(_numbers(folder)):
        path = folder / f"{number:06d}"
        try:
            manifest, is_own = _read_manifest(path)
        except OSError:
            continue
        except CheckpointError as error:  # of the key
            return str(error)
        if manifest is not None:
            return _why_not(path, manifest, is_own, hash, versions)
    return f"no checkpoint in {folder} is whole"


def _why_not(
    path: Path, manifest: dict[str, Any], is_own: bool, hash: str, versions: dict[str, str]
) -> str | None:
    """Return why a checkpoint that is whole cannot be used, if so."""
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
    """Remove checkpoints that are newer than the one from which a run resumes."""
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


@dataclass(frozen=True)
class Earlier:
    """An earlier run of a document: its instance, status, and whether it has checkpoints."""

    instance: str
    status: str
    has_checkpoint: bool


def earlier_run(document: RunDocument, store: Store) -> Earlier | None:
    """Return the run of a document that would be resumed.

    The newest one counts if it has finished or still runs. Otherwise it is the newest with a checkpoint of
    all that are newer than the last finished one; if none has any, the newest.

    Args:
        document: the document, which must be unchanged since then.
        store: the open store to look in.

    Returns:
        That run, or ``None`` if the document never ran.
    """
    runs = store.runs()
    runs = runs[runs["hash"] == document.hash]
    if runs.empty:
        return None
    instances = list(zip(runs["run"], runs["status"], strict=True))
    newest, status = instances[-1]
    found = None
    if status not in ("finished", "running"):
        # (of those that still run, only the newest is in the way)
        found = resumable(store, [(uid, status.replace("running", "lost")) for uid, status in instances])
    found = found or newest
    return Earlier(found, dict(instances)[found], has_checkpoints(store.instance_directory(found)))


def resumable(store: Store, instances: Sequence[tuple[str, str]]) -> str | None:
    """Return which of the instances of one document (uid, status) can be resumed, if any.

    ``instances``: the newest last. It is the newest that has a checkpoint of all that are newer than the last
    one that finished or still runs.
    """
    for uid, status in reversed(instances):
        if status in ("finished", "running"):
            return None
        if has_checkpoints(store.instance_directory(uid)):
            return uid
    return None


def document_of_instance(document: RunDocument, store: Store, instance: str) -> RunDocument:
    """Return ``document`` as ``instance`` was begun with it, which may have been under another uid.

    What it has kept until now (dumps of brains, for instance) has that uid in its names.
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
    """Take the store back to the newest checkpoint of ``instance`` that it can go on from.

    Return the recorder and the state. Raises :class:`CheckpointError` or
    :class:`StoreError`, with nothing changed, where there is no such checkpoint.
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
    """Return the versions that a resumed run must share with its beginning."""
    # here, because worker processes need no store
    from palaestrai_mosaik.store.store import package_versions

    return package_versions()

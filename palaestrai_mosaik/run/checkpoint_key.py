"""The key that signs a user's checkpoints: what others have written is not unpickled.

To read a checkpoint is to run what it says. A store may have come from elsewhere, or others may be
able to write to it; so a checkpoint is signed with a key that only its user has, and resume takes
no other one. The key is made when it is first needed, in ``$PALAESTRAI_MOSAIK_KEY``, else
``$XDG_DATA_HOME/palaestrai_mosaik/checkpoint.key``, else
``~/.local/share/palaestrai_mosaik/checkpoint.key``. Who shall go on with the runs of another
machine, or of a colleague, gets a copy of the file.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import stat
from contextlib import suppress
from functools import cache
from pathlib import Path

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import CheckpointError

#: the environment variable that names the file of the key
VARIABLE = "PALAESTRAI_MOSAIK_KEY"
_BYTES = 32


def key_file() -> Path:
    """Return where the key is, or will be. Raises :class:`CheckpointError` for a user without a home."""
    if own := os.environ.get(VARIABLE):
        return Path(own)
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
    """Return the signature of ``data``, hexadecimal; the key is made if there is none.

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
        raise CheckpointError(f"{file} is no key of checkpoints: {_BYTES} bytes in hexadecimal digits")
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
            "it (then no earlier checkpoint is taken)"
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
    temporary = files.aside(file)
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

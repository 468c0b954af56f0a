"""The private key of this user: it signs checkpoints, and makes the tokens of pages.

The key is created on first use, at ``$PALAESTRAI_MOSAIK_KEY``, else ``$XDG_DATA_HOME/palaestrai_mosaik/checkpoint.key``,
else ``~/.local/share/palaestrai_mosaik/checkpoint.key``. Only this user can read the file, and nobody else can replace it.
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

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import PrivateKeyError

#: the environment variable with the path of the key file
VARIABLE = "PALAESTRAI_MOSAIK_KEY"
_BYTES = 32


def key_file() -> Path:
    """Return the path of the key file, which may not exist yet.

    Raises:
        PrivateKeyError: if the user has no home directory.
    """
    if path := os.environ.get(VARIABLE):
        return Path(path)
    # the XDG specification ignores relative paths
    base = Path(os.environ.get("XDG_DATA_HOME") or "")
    try:
        if not base.is_absolute():
            base = Path.home() / ".local" / "share"
    except RuntimeError as error:
        raise PrivateKeyError(
            f"there is no home to keep the private key in ({error}); name a file in the environment variable "
            f"{VARIABLE}"
        ) from error
    return base / "palaestrai_mosaik" / "checkpoint.key"


def sign(data: bytes) -> str:
    """Return the hexadecimal HMAC-SHA256 of ``data``, creating the key if it is missing.

    Raises:
        PrivateKeyError: if the key cannot be read or created.
    """
    file = key_file()
    if not os.path.exists(file):  # also False without permission; then creating it raises the error
        _make(file)
    return hmac.new(_read(file), data, hashlib.sha256).hexdigest()


def is_signed(data: bytes, signature: str) -> bool:
    """Return whether ``signature`` is this user's signature of ``data``.

    Raises:
        PrivateKeyError: if the key exists but cannot be read.
    """
    file = key_file()
    return os.path.exists(file) and hmac.compare_digest(
        hmac.new(_read(file), data, hashlib.sha256).hexdigest().encode(), signature.encode()
    )


@cache
def _read(file: Path) -> bytes:
    try:
        with files.open_text(file, encoding="ascii", follow=True) as stream:
            if os.name == "posix":
                _check(file, os.fstat(stream.fileno()))
            key = bytes.fromhex(stream.read())
    except OSError as error:
        raise PrivateKeyError(
            f"the private key {file} cannot be read: {error.strerror}; another file may be named in "
            f"the environment variable {VARIABLE}"
        ) from error
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise PrivateKeyError(f"{file} is not a private key: {_BYTES} bytes in hexadecimal digits")
    return key


def _check(file: Path, status: os.stat_result) -> None:
    # root can read and replace any key anyway
    if status.st_uid not in (0, os.geteuid()):
        raise PrivateKeyError(
            f"the private key {file} belongs to another user, who could sign what you would run: make a "
            "copy of your own, if you trust this user"
        )
    if status.st_mode & 0o077:
        raise PrivateKeyError(
            f"the private key {file} may be read or written by others: chmod 600 {file}, or delete "
            "it (earlier checkpoints and addresses of pages then cannot be used)"
        )
    # check the path both as written and with its links resolved
    for folder in dict.fromkeys((*file.absolute().parents, *Path(os.path.realpath(file)).parents)):
        if _is_open_to_others(folder.stat()):
            raise PrivateKeyError(
                f"the private key {file} can be replaced by others, who may write to {folder}: "
                f"chmod go-w {folder}, or name a file elsewhere in the environment variable {VARIABLE}"
            )


def _is_open_to_others(folder: os.stat_result) -> bool:
    """Return whether a user other than this one and root can rename files in a folder."""
    if folder.st_uid not in _trusted_owners():
        return True
    if folder.st_mode & stat.S_ISVTX:  # only owners may rename, as in /tmp
        return False
    by_group = bool(folder.st_mode & stat.S_IWGRP) and not _is_private_group(folder.st_gid)
    return by_group or bool(folder.st_mode & stat.S_IWOTH)


def _trusted_owners() -> set[int]:
    """Return the ids of this user and root, and of the overflow user, the host's root in a rootless container."""
    owners = {0, os.geteuid()}
    with suppress(OSError, ValueError):
        if files.read_text("/proc/self/uid_map").split() != ["0", "0", "4294967295"]:
            owners.add(int(files.read_text("/proc/sys/kernel/overflowuid")))
    return owners


def _is_private_group(gid: int) -> bool:
    """Return whether the group is this user's private group."""
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
            # link a complete file into place; if another process was faster, its key wins
            with suppress(FileExistsError):
                files.link(temporary, file)
        finally:
            files.remove(temporary, missing_ok=True)
    except OSError as error:
        raise PrivateKeyError(
            f"the private key {file} cannot be written: {error.strerror}; another file may be named in the "
            f"environment variable {VARIABLE}"
        ) from error

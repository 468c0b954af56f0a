"""File access: only this module writes, moves or deletes files.

A folder may come from elsewhere, or other users may be able to write to it: any name in it may be a link,
a pipe, or a second name of a file elsewhere. No name in a folder leads out of it:

- A file is written under an unguessable temporary name, and renamed: it appears
  completely or not at all. An existing file of its name is replaced, and never written to.
- Each folder on the way is opened without following links. From a *root* on (:func:`add_root`), which is a folder
  that the user has named and that may be reached through links, a link is refused, even one that
  appears during the access. This also holds for reading. A folder below a root is a place in it, and never becomes a
  root that is reached through links. Outside of all roots, only the folder of the file itself is trusted.
- A file that must be changed in place (a log, a lock, a database) must not have a second name.
- Only regular files are read: reading a pipe or a device might block forever.

All functions raise ``OSError``, with the obstacle in ``strerror``.
"""

from __future__ import annotations

import csv
import io
import os
import re
import secrets
import shutil
import stat
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from errno import EEXIST, EINVAL, ELOOP, ENOENT, ENOTDIR
from json import JSONDecodeError
from pathlib import Path, PurePath
from typing import BinaryIO, TextIO
from zipfile import BadZipFile

#: exceptions with a message that is a position and a rule, and at most one byte of the file
_QUOTING_NOTHING = (UnicodeDecodeError, JSONDecodeError, csv.Error, BadZipFile, zlib.error, EOFError)

_FLAGS = os.O_CLOEXEC if hasattr(os, "O_CLOEXEC") else getattr(os, "O_NOINHERIT", 0)
_FLAGS |= getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
#: do not wait for the other end of a pipe
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
#: write a file that must not exist
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _FLAGS
#: open a folder without permission to list it
_FOLDER = _FLAGS | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)
#: whether names can be resolved relative to an open folder; elsewhere (Windows) each folder is checked and then
#: named again, which does not protect from an exchange in between
_HAS_DIR_FD = bool(_NOFOLLOW) and {os.open, os.mkdir, os.rename, os.unlink, os.stat, os.link} <= (
    os.supports_dir_fd
)
#: link a symbolic link itself, not its target
_LINK = {"follow_symlinks": False} if os.link in os.supports_follow_symlinks else {}
_ASIDE = re.compile(r"\.[0-9a-f]{16}\.tmp")
#: attempts for a file that other processes keep exchanging
_TRIES = 100

_roots: set[str] = set()


def add_root(folder: str | Path) -> Path:
    """Trust a folder that the user has named, and the way to it; links below it are refused from now on.

    A folder below a root is a place in that root: a link on the way to it is refused.

    Args:
        folder: the folder, which may be missing.

    Returns:
        The absolute path of the folder.

    Raises:
        OSError: the folder is below a root, and reached through a link.
    """
    path = Path(folder).absolute()
    if ".." in path.parts:
        path = Path(os.path.realpath(path))
    if _is_below_root(path):
        with suppress(FileNotFoundError, NotADirectoryError), _place(path / "x"):
            pass
    _roots.add(str(path))
    return path


def real_root(folder: str | Path) -> Path:
    """Trust a folder like :func:`add_root`, and resolve its links.

    Two names of one folder give the same path, so a file beside the folder is found under both. A path below
    a root has no links.

    Args:
        folder: the folder, which may be missing.

    Returns:
        The path without links.

    Raises:
        OSError: the folder is below a root, and reached through a link.
    """
    path = add_root(folder)
    return path if _is_below_root(path) else add_root(os.path.realpath(path))


def temporary_path(path: str | Path) -> Path:
    """Make an unused, unguessable path beside ``path``."""
    return Path(path).with_name(_temporary_name())


def is_temporary(name: str) -> bool:
    """Whether this is a temporary name of :func:`writing`; the writer may have been killed."""
    return _ASIDE.fullmatch(name) is not None


def inside(folder: str | Path, name: object) -> Path:
    """Join ``folder`` and ``name``, which comes from a database, a table or a list.

    Raises ``ValueError`` if the result is outside of ``folder``, or ``name`` is not a path: its source is not trusted.
    """
    path = PurePath(name) if isinstance(name, str) else PurePath()
    if not path.parts or ".." in path.parts or path.anchor or "\0" in str(path):
        raise ValueError(f"{name!r} is not a path in {folder}")
    return Path(folder, path)


# ----- writing


@contextmanager
def writing(path: str | Path, *, durable: bool = True, private: bool = False) -> Iterator[BinaryIO]:
    """Open a new file that replaces ``path`` at the end of the block, unless that raises.

    Args:
        path: the file.
        durable: flush the file to the disk before it replaces ``path``.
        private: only this user may read it.
    """
    with _place(path) as (at, name):
        _refuse_special(name, at, path)
        new = _aside(path, at)
        handle = os.open(
            new,
            os.O_RDWR | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _FLAGS,
            0o600 if private else 0o666,
            dir_fd=at,
        )
        try:
            with os.fdopen(handle, "w+b") as file:
                yield file
                file.flush()
                if durable:
                    os.fsync(file.fileno())
            os.replace(new, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=at)
            raise


@contextmanager
def writing_text(path: str | Path, *, durable: bool = True) -> Iterator[TextIO]:
    """Open a new UTF-8 text file without translation of line ends; otherwise like :func:`writing`."""
    with writing(path, durable=durable) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield text
        text.detach()


def write_bytes(path: str | Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
    """Write ``data`` to ``path`` atomically; see :func:`writing`."""
    with writing(path, durable=durable, private=private) as file:
        file.write(data)


def write_text(path: str | Path, text: str, *, durable: bool = True) -> None:
    """Write ``text`` to ``path`` atomically, in UTF-8; see :func:`writing`."""
    write_bytes(path, text.encode("utf-8"), durable=durable)


def open_new(path: str | Path) -> BinaryIO:
    """Create a file and open it for writing; an existing file is refused."""
    with _place(path) as (at, name):
        return os.fdopen(os.open(name, _NEW, 0o666, dir_fd=at), "wb")


@contextmanager
def new_files(folder: str | Path) -> Iterator[Callable[[str, bytes], None]]:
    """Yield a function that writes a new file (its name and data) in ``folder``, which stays open for all of them.

    An existing file is refused, as by :func:`open_new`.
    """
    with _place(Path(folder, "x")) as (at, _):

        def add(name: str, data: bytes) -> None:
            if at is None or PurePath(name).name != name:
                with open_new(Path(folder, name)) as file:
                    file.write(data)
                return
            handle = os.open(name, _NEW, 0o666, dir_fd=at)
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(handle, left) :]
            finally:
                os.close(handle)

        yield add


def open_append(path: str | Path) -> int:
    """Open or create a file for appending; return the file descriptor.

    A link is refused, and so is a file with a second name.
    """
    return _open_in_place(path, os.O_WRONLY | os.O_APPEND)


def append_bytes(path: str | Path, data: bytes) -> None:
    """Append ``data`` to an existing file; see :func:`open_append`. A missing file is an error."""
    if not os.path.lexists(path):
        raise FileNotFoundError(ENOENT, os.strerror(ENOENT), str(path))
    handle = open_append(path)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(handle, left) :]
    finally:
        os.close(handle)


def open_update(path: str | Path) -> int:
    """Open or create a file for reading and writing, like :func:`open_append`."""
    return _open_in_place(path, os.O_RDWR | os.O_APPEND)


def truncate(path: str | Path, size: int) -> None:
    """Truncate a file to ``size`` bytes."""
    descriptor = open_update(path)
    try:
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def open_log(path: str | Path) -> int:
    """Open a file for appending; return the file descriptor. A link or special file of its name is removed first."""
    for _ in range(_TRIES):
        try:
            return open_append(path)
        except FileExistsError:
            with _place(path) as (at, name), suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
    raise _exchanged(path)


# ----- folders, and existing files


def make_folder(
    path: str | Path, *, parents: bool = False, exist_ok: bool = True, private: bool = False
) -> None:
    """Create a folder.

    Args:
        path: the folder.
        parents: create its parents, too.
        exist_ok: accept an existing folder; otherwise raise ``FileExistsError``.
        private: give only this user access to new folders.
    """
    path = Path(path)
    if parents and not path.parent.is_dir():
        make_folder(path.parent, parents=True, private=private)
    mode = 0o700 if private else 0o777
    # a folder that the user has named may be a link
    followed = not _is_below_root(path) and (parents or str(path.absolute()) in _roots)
    if followed and exist_ok and path.is_dir():
        return
    with _place(path) as (at, name):
        try:
            os.mkdir(name, mode, dir_fd=at)
        except FileExistsError:
            if not exist_ok:
                raise
            _refuse_other_than_folder(name, at, path)


def make_hidden(folder: Path, begin: str, end: str) -> Path:
    """Create a folder with an unguessable name in ``folder``, accessible only to this user; return its path."""
    for _ in range(_TRIES):
        path = folder / f"{begin}{secrets.token_hex(4)}{end}"
        with _place(path) as (at, name), suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=at)
            return path
    raise _exchanged(folder)


def remove(path: str | Path, *, missing_ok: bool = False) -> None:
    """Remove a file or a link, not the link's target."""
    try:
        with _place(path) as (at, name):
            os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        if not missing_ok:
            raise


def remove_tree(path: str | Path) -> None:
    """Remove a file, a link (not its target), or a folder with all its files, if there is one at ``path``."""
    with suppress(FileNotFoundError), _place(path) as (at, name):
        if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=at)
        elif at is None:
            shutil.rmtree(name)
        else:
            shutil.rmtree(name, dir_fd=at)


def discard_tree(path: str | Path) -> None:
    """Remove ``path`` like :func:`remove_tree`, but ignore errors."""
    with suppress(OSError):
        remove_tree(path)


def remove_folder(path: str | Path) -> None:
    """Remove an empty folder."""
    with _place(path) as (at, name):
        os.rmdir(name, dir_fd=at)


def move(source: str | Path, target: str | Path) -> None:
    """Rename ``source`` to ``target``; an existing file is replaced."""
    with _place(source) as (from_, old), _place(target) as (to, new):
        os.replace(old, new, src_dir_fd=from_, dst_dir_fd=to)


def link(source: str | Path, target: str | Path) -> None:
    """Create ``target`` as a hard link to the file ``source``. Raises ``FileExistsError`` if the name is taken."""
    with _place(source) as (from_, old), _place(target) as (to, new):
        os.link(old, new, src_dir_fd=from_, dst_dir_fd=to, **_LINK)


def copy_file(source: str | Path, target: str | Path) -> None:
    """Create ``target`` as a hard link to the file ``source``, or else as a copy."""
    with _place(source) as (from_, old), _place(target) as (to, new):
        status = os.stat(old, dir_fd=from_, follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            raise _no_file(source, status)
        with suppress(OSError):  # another file system, or one without links
            os.link(old, new, src_dir_fd=from_, dst_dir_fd=to, **_LINK)
            return
    with open_read(source) as whole, open_new(target) as copy:
        shutil.copyfileobj(whole, copy, 1 << 20)


def touch(path: str | Path) -> None:
    """Set the mtime of an existing file, or of a link itself, to now."""
    with _place(path) as (at, name):
        if at is None:
            os.utime(name)
        else:
            os.utime(name, dir_fd=at, follow_symlinks=False)


def file_system_time(path: str | Path) -> float:
    """Read the clock of the file system of ``path``, by creating a temporary file beside it."""
    with _place(path) as (at, _):
        new = _aside(path, at)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _FLAGS
        handle = os.open(new, flags, 0o666, dir_fd=at)
        try:
            return os.fstat(handle).st_mtime
        finally:
            os.close(handle)
            with suppress(OSError):
                os.unlink(new, dir_fd=at)


# ----- reading, and files that other libraries open


def open_read(path: str | Path, *, follow: bool = False) -> io.BufferedReader:
    """Open a file for reading.

    Args:
        path: the file.
        follow: follow links below a root, for an input file that a document names.

    Raises:
        OSError: there is no such file, or it is a pipe or a device (without waiting for it), or a link below a root is
            in the way.
    """
    held = not follow and _is_below_root(Path(path))
    with _place(path) if held else nullcontext((None, os.fspath(path))) as (at, name):
        # opening a device may have side effects
        status = os.stat(name, dir_fd=at, follow_symlinks=not held)
        if held and stat.S_ISLNK(status.st_mode):
            raise _is_link(path, _split(path)[0])
        if not stat.S_ISREG(status.st_mode):
            raise _no_file(path, status)
        flags = os.O_RDONLY | _NONBLOCK | _FLAGS | (_NOFOLLOW if held else 0)
        handle = os.open(name, flags, dir_fd=at)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise _no_file(path, status)
    return os.fdopen(handle, "rb")


def open_text(
    path: str | Path, *, encoding: str = "utf-8", newline: str | None = None, follow: bool = False
) -> TextIO:
    """Open a file for reading as text; see :func:`open_read`."""
    return io.TextIOWrapper(open_read(path, follow=follow), encoding=encoding, newline=newline)


def read_bytes(path: str | Path) -> bytes:
    """Read a file; see :func:`open_read`."""
    with open_read(path) as file:
        return file.read()


def read_text(path: str | Path, *, errors: str = "strict") -> str:
    """Read a text file, with ``\\n`` for each line end; see :func:`open_read`."""
    with io.TextIOWrapper(open_read(path), encoding="utf-8", errors=errors) as file:
        return file.read()


def read_given(path: str | Path, *, follow: bool = False) -> bytes:
    """Read a file, or a pipe that the shell has made for the user (``/dev/stdin``, ``<(...)``).

    See :func:`open_read`.
    """
    if Path(path).is_relative_to("/dev"):
        return Path(path).read_bytes()
    with open_read(path, follow=follow) as file:
        return file.read()


def reading_fault(error: Exception) -> str:
    """Explain why a file cannot be read, without quoting its content, which may be a secret.

    Exceptions of parsers quote the offending text, so most are described by their class only. Raise the message
    ``from None``: a traceback would show the exception again.

    Args:
        error: the exception of opening or parsing the file.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return (
        str(error)
        if isinstance(error, _QUOTING_NOTHING)
        else f"its content is not valid ({type(error).__name__})"
    )


def list_names(folder: str | Path) -> list[str]:
    """List the names in a folder, in any order.

    Raises:
        OSError: there is no such folder, or a link below a root is in the way.
    """
    if not _is_below_root(Path(folder)):
        return os.listdir(folder)
    try:
        with _place(Path(folder) / "any") as (at, _):
            if at is None:
                return os.listdir(folder)
            # a descriptor that only leads to files cannot be listed
            listed = os.open(".", os.O_RDONLY | _FLAGS, dir_fd=at)
            try:
                return os.listdir(listed)
            finally:
                os.close(listed)
    except OSError as error:
        error.filename = str(folder)
        raise


def check_readable(path: str | Path) -> None:
    """Raise unless ``path`` is a file, or a link to one: for libraries that open files by themselves."""
    open_read(path, follow=True).close()


def check_in_place(path: str | Path) -> None:
    """Raise if a library that writes to ``path`` itself would write to another file. A missing file is no error."""
    with suppress(FileNotFoundError), _place(path) as (at, name):
        _refuse_in_place(os.stat(name, dir_fd=at, follow_symlinks=False), path)


# ----- implementation


def _split(path: str | Path) -> tuple[Path, tuple[str, ...]]:
    """Return the folder below which no link is followed, and the remaining names."""
    whole = Path(path).absolute()
    root = next((parent for parent in reversed(whole.parents) if str(parent) in _roots), whole.parent)
    names = whole.parts[len(root.parts) :]
    if not names or ".." in names:
        raise OSError(EINVAL, "no name of a file", str(path))
    return root, names


def _is_below_root(path: Path) -> bool:
    return any(str(parent) in _roots for parent in path.absolute().parents)


@contextmanager
def _place(path: str | Path) -> Iterator[tuple[int | None, str]]:
    """Yield the open folder of ``path``, and its name there; if folders cannot be held open, ``None`` and the path."""
    root, (*folders, name) = _split(path)
    if not _HAS_DIR_FD:
        whole = root
        for folder in folders:
            whole /= folder
            _refuse_other_than_folder(str(whole), None, whole, root)
        yield None, str(whole / name)
        return
    at = os.open(root, _FOLDER)
    try:
        for folder in folders:
            try:
                below = os.open(folder, _FOLDER | _NOFOLLOW, dir_fd=at)
            except FileNotFoundError:
                raise
            except OSError:
                _refuse_other_than_folder(folder, at, path, root)
                raise
            os.close(at)
            at = below
        yield at, name
    except OSError as error:
        # report the full path, not the name in the open folder
        if error.filename == name or is_temporary(str(error.filename)):
            error.filename = str(path)
        raise
    finally:
        os.close(at)


def _temporary_name() -> str:
    return f".{secrets.token_hex(8)}.tmp"


def _aside(path: str | Path, at: int | None) -> str:
    return _temporary_name() if at is not None else str(temporary_path(path))


def _open_in_place(path: str | Path, flags: int) -> int:
    flags |= os.O_CREAT | _NOFOLLOW | _NONBLOCK | _FLAGS
    with _place(path) as (at, name):
        for _ in range(_TRIES):
            # opening a device may have side effects
            with suppress(FileNotFoundError):
                _refuse_in_place(os.stat(name, dir_fd=at, follow_symlinks=False), path)
            try:
                handle = os.open(name, flags, 0o666, dir_fd=at)
            except OSError as error:
                if error.errno == ELOOP:  # it has become a link
                    continue
                raise
            status = os.fstat(handle)
            if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                return handle
            os.close(handle)
    raise _exchanged(path)


def _refuse_in_place(status: os.stat_result, path: str | Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise _no_file(path, status, FileExistsError)
    if status.st_nlink > 1:
        raise FileExistsError(
            EEXIST,
            f"{Path(path).name} is a hard link: the same file has another name, too; delete or copy it",
            str(path),
        )


def _refuse_special(name: str, at: int | None, path: str | Path) -> None:
    """Refuse to replace a pipe, a device, or a link to one: the data would not reach its reader."""
    for follow in (False, True):
        try:
            status = os.stat(name, dir_fd=at, follow_symlinks=follow)
        except OSError:  # it is missing, or a broken link
            return
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise _no_file(path, status)


def _refuse_other_than_folder(name: str, at: int | None, path: str | Path, root: Path | None = None) -> None:
    """Raise if this is not a folder; ``root`` is the root of a folder on the way to ``path``."""
    status = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        raise _is_link(path, root, Path(name).name)
    if not stat.S_ISDIR(status.st_mode):
        message = f"{Path(name).name} is no folder"
        if root is None:
            raise FileExistsError(EEXIST, message, str(path))
        raise NotADirectoryError(ENOTDIR, message, str(path))


def _is_link(path: str | Path, root: Path | None, name: str = "") -> OSError:
    where = "" if root is None else f" below {root}"
    return OSError(
        ELOOP, f"{name or Path(path).name} is a link, and links{where} are not followed", str(path)
    )


_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def _no_file(path: str | Path, status: os.stat_result, kind: type[OSError] = OSError) -> OSError:
    noun = next((noun for is_one, noun in _KINDS if is_one(status.st_mode)), "a device")
    number = EEXIST if kind is FileExistsError else EINVAL
    return kind(number, f"{Path(path).name} is {noun}, not a file", str(path))


def _exchanged(path: str | Path) -> OSError:
    return OSError(ENOENT, f"{Path(path).name} is being exchanged by others again and again", str(path))

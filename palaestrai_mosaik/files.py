"""The one home of files: whoever writes, moves or deletes a file does it here.

A folder may come from somebody else, or others may be able to write to it: of the names in it, any may be a link,
a pipe, or a second name of a file elsewhere. Nothing that lies in a folder leads out of it:

- A file is written aside, under a name that nobody can guess, and renamed into place: it is there as a
  whole or not at all. What had its name is replaced, and never written to.
- Each folder on the way is opened, not followed: from a *root* on (:func:`add_root`), which is a folder that the
  user has named and that may be reached through links, a link is refused, also one that
  appears while we are at it. Outside of all roots only the folder of the file itself is trusted.
- What must be written to in place (logs, locks, databases) is a file without a second name, or refused.
- What is read is a file: a pipe or a device would be waited for, perhaps forever.

All functions raise ``OSError``, with a ``strerror`` that says what is in the way.
"""

from __future__ import annotations

import io
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import EEXIST, EINVAL, ELOOP, ENOENT
from pathlib import Path, PurePath
from typing import BinaryIO, TextIO

_FLAGS = os.O_CLOEXEC if hasattr(os, "O_CLOEXEC") else getattr(os, "O_NOINHERIT", 0)
_FLAGS |= getattr(os, "O_BINARY", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
#: without waiting for the other end of a pipe
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
#: to write a file that must not be there
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _FLAGS
#: to go through a folder one need not be allowed to list it
_FOLDER = _FLAGS | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)
#: whether names can be looked up in a folder that is held open; elsewhere (Windows) each folder is looked at, and then
#: named again, which is no help against whoever exchanges it in between
_HAS_DIR_FD = bool(_NOFOLLOW) and {os.open, os.mkdir, os.rename, os.unlink, os.stat, os.link} <= (
    os.supports_dir_fd
)
#: a link is given another name itself, not what it leads to
_LINK = {"follow_symlinks": False} if os.link in os.supports_follow_symlinks else {}
_ASIDE = re.compile(r"\.[0-9a-f]{16}\.tmp")
#: looks at a file that others exchange again and again
_TRIES = 100

_roots: set[str] = set()


def add_root(folder: str | Path) -> None:
    """Trust ``folder``, which the user has named, and the way to it; links below it are refused from now on."""
    _roots.add(str(Path(folder).absolute()))


def temporary_path(path: str | Path) -> Path:
    """Return a name beside ``path`` that nobody uses, and nobody can guess."""
    return Path(path).with_name(_temporary_name())


def is_temporary(name: str) -> bool:
    """Whether this is the name of a file that was to take another one's place; its writer may have been killed."""
    return _ASIDE.fullmatch(name) is not None


def inside(folder: str | Path, name: object) -> Path:
    """Return the path of ``name``, which a database, a table or a list says, in ``folder``.

    Raises ``ValueError`` where it leads out of there, or is no name: what says it may come from elsewhere.
    """
    path = PurePath(name) if isinstance(name, str) else PurePath()
    if not path.parts or ".." in path.parts or path.anchor or "\0" in str(path):
        raise ValueError(f"{name!r} is not a path in {folder}")
    return Path(folder, path)


# ----- writing


@contextmanager
def writing(path: str | Path, *, durable: bool = True, private: bool = False) -> Iterator[BinaryIO]:
    """Give a new file that takes the place of ``path`` at the end of the block, if that does not raise.

    ``durable``: it is on the disk then; ``private``: only this user may read it.
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
    """Give a new file for text, in UTF-8, whose line ends are as they are written; else as :func:`writing`."""
    with writing(path, durable=durable) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        yield text
        text.detach()


def write_bytes(path: str | Path, data: bytes, *, durable: bool = True, private: bool = False) -> None:
    """Put ``data`` in place at ``path``; see :func:`writing`."""
    with writing(path, durable=durable, private=private) as file:
        file.write(data)


def write_text(path: str | Path, text: str, *, durable: bool = True) -> None:
    """Put ``text`` in place at ``path``, in UTF-8; see :func:`writing`."""
    write_bytes(path, text.encode("utf-8"), durable=durable)


def open_new(path: str | Path) -> BinaryIO:
    """Open a new file to write to it; what has its name is refused."""
    with _place(path) as (at, name):
        return os.fdopen(os.open(name, _NEW, 0o666, dir_fd=at), "wb")


@contextmanager
def new_files(folder: str | Path) -> Iterator[Callable[[str, bytes], None]]:
    """Give a function that writes a new file (its name and data) in ``folder``, which is held open for all of them.

    What has its name is refused, as :func:`open_new` does.
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
    """Open a file to append to it, or make it; return the file descriptor.

    A link in its place is refused, and so is a file that has a second name.
    """
    return _open_in_place(path, os.O_WRONLY | os.O_APPEND)


def append_bytes(path: str | Path, data: bytes) -> None:
    """Append ``data`` to a file that is there; see :func:`open_append`. Nothing is made where there is none."""
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
    """Open a file to read and write it, or make it, as :func:`open_append` does."""
    return _open_in_place(path, os.O_RDWR | os.O_APPEND)


def truncate(path: str | Path, size: int) -> None:
    """Cut a file off after ``size`` bytes."""
    descriptor = open_update(path)
    try:
        os.ftruncate(descriptor, size)
    finally:
        os.close(descriptor)


def open_log(path: str | Path) -> int:
    """Open a file to append to it; return the file descriptor. Whatever else has its name is removed."""
    for _ in range(_TRIES):
        try:
            return open_append(path)
        except FileExistsError:
            with _place(path) as (at, name), suppress(FileNotFoundError):
                os.unlink(name, dir_fd=at)
    raise _exchanged(path)


# ----- folders, and what has a name already


def make_folder(
    path: str | Path, *, parents: bool = False, exist_ok: bool = True, private: bool = False
) -> None:
    """Make a folder; with ``parents`` those above it, too. One that is there is no error, unless that is wanted.

    ``private``: what is made is for this user alone.
    """
    path = Path(path)
    if parents and not path.parent.is_dir():
        make_folder(path.parent, parents=True, private=private)
    mode = 0o700 if private else 0o777
    # what the user has named may be a link
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
    """Make a folder for this user alone in ``folder``, whose name nobody can guess; return its path."""
    for _ in range(_TRIES):
        path = folder / f"{begin}{secrets.token_hex(4)}{end}"
        with _place(path) as (at, name), suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=at)
            return path
    raise _exchanged(folder)


def remove(path: str | Path, *, missing_ok: bool = False) -> None:
    """Remove a file, or a link, not what it leads to."""
    try:
        with _place(path) as (at, name):
            os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        if not missing_ok:
            raise


def remove_tree(path: str | Path) -> None:
    """Remove whatever is at ``path``, if anything: a folder with all that is in it; of a link the link."""
    with suppress(FileNotFoundError), _place(path) as (at, name):
        if not stat.S_ISDIR(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=at)
        elif at is None:
            shutil.rmtree(name)
        else:
            shutil.rmtree(name, dir_fd=at)


def discard_tree(path: str | Path) -> None:
    """Remove whatever is at ``path``, as far as that is possible."""
    with suppress(OSError):
        remove_tree(path)


def remove_folder(path: str | Path) -> None:
    """Remove an empty folder."""
    with _place(path) as (at, name):
        os.rmdir(name, dir_fd=at)


def move(source: str | Path, target: str | Path) -> None:
    """Give what is at ``source`` the name ``target``; a file there is replaced."""
    with _place(source) as (from_, old), _place(target) as (to, new):
        os.replace(old, new, src_dir_fd=from_, dst_dir_fd=to)


def link(source: str | Path, target: str | Path) -> None:
    """Give the file ``source`` the name ``target``, too. Raises ``FileExistsError`` where something has it."""
    with _place(source) as (from_, old), _place(target) as (to, new):
        os.link(old, new, src_dir_fd=from_, dst_dir_fd=to, **_LINK)


def copy_file(source: str | Path, target: str | Path) -> None:
    """Make ``target``, where nothing is, the file ``source``: another name of it, or else a copy."""
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
    """Set the time of a file that is there to now; of a link that of the link."""
    with _place(path) as (at, name):
        if at is None:
            os.utime(name)
        else:
            os.utime(name, dir_fd=at, follow_symlinks=False)


def file_system_time(path: str | Path) -> float:
    """Return what time it is by the clock of the file system of ``path``: a file beside it is made for that."""
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


def open_read(path: str | Path) -> io.BufferedReader:
    """Open a file to read it; a pipe or a device is refused, and not waited for."""
    # (to open a device may do something)
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise _no_file(path, status)
    handle = os.open(path, os.O_RDONLY | _NONBLOCK | _FLAGS)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise _no_file(path, status)
    return os.fdopen(handle, "rb")


def open_text(path: str | Path, *, encoding: str = "utf-8", newline: str | None = None) -> TextIO:
    """Open a file to read it as text; see :func:`open_read`."""
    return io.TextIOWrapper(open_read(path), encoding=encoding, newline=newline)


def read_bytes(path: str | Path) -> bytes:
    """Return what is in a file; see :func:`open_read`."""
    with open_read(path) as file:
        return file.read()


def read_text(path: str | Path, *, errors: str = "strict") -> str:
    """Return the text in a file, with ``\\n`` for each line end; see :func:`open_read`."""
    with io.TextIOWrapper(open_read(path), encoding="utf-8", errors=errors) as file:
        return file.read()


def read_given(path: str | Path) -> bytes:
    """Return what is in a file, or in a pipe that the shell has made for the user (``/dev/stdin``, ``<(...)``)."""
    if Path(path).is_relative_to("/dev"):
        return Path(path).read_bytes()
    return read_bytes(path)


def check_readable(path: str | Path) -> None:
    """Raise unless there is a file, or a link to one: for libraries that open what they read by themselves."""
    open_read(path).close()


def check_in_place(path: str | Path) -> None:
    """Raise where a library that writes to ``path`` itself would write to another file. None there is no error."""
    with suppress(FileNotFoundError), _place(path) as (at, name):
        _refuse_in_place(os.stat(name, dir_fd=at, follow_symlinks=False), path)


# ----- how


def _split(path: str | Path) -> tuple[Path, tuple[str, ...]]:
    """Return the folder from which on no link is followed, and the names from there."""
    whole = Path(path).absolute()
    root = next((one for one in reversed(whole.parents) if str(one) in _roots), whole.parent)
    names = whole.parts[len(root.parts) :]
    if not names or ".." in names:
        raise OSError(EINVAL, "no name of a file", str(path))
    return root, names


def _is_below_root(path: Path) -> bool:
    return any(str(one) in _roots for one in path.absolute().parents)


@contextmanager
def _place(path: str | Path) -> Iterator[tuple[int | None, str]]:
    """Give the open folder of ``path``, and its name there; where folders cannot be held, ``None`` and the path."""
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
        # what was named in an open folder is told with it
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
            # (to open a device may do something)
            with suppress(FileNotFoundError):
                _refuse_in_place(os.stat(name, dir_fd=at, follow_symlinks=False), path)
            try:
                handle = os.open(name, flags, 0o666, dir_fd=at)
            except OSError as error:
                if error.errno == ELOOP:  # a link since
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
    """Refuse to replace a pipe, a device, or a link to one: nobody would read what is written."""
    for follow in (False, True):
        try:
            status = os.stat(name, dir_fd=at, follow_symlinks=follow)
        except OSError:  # nothing is there, or a link that leads nowhere
            return
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode) or stat.S_ISDIR(status.st_mode)):
            raise _no_file(path, status)


def _refuse_other_than_folder(name: str, at: int | None, path: str | Path, root: Path | None = None) -> None:
    status = os.stat(name, dir_fd=at, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        where = f" below {root}" if root is not None else ""
        raise OSError(ELOOP, f"{Path(name).name} is a link, and links{where} are not followed", str(path))
    if not stat.S_ISDIR(status.st_mode):
        raise FileExistsError(EEXIST, f"{Path(name).name} is no folder", str(path))


_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISLNK, "a link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def _no_file(path: str | Path, status: os.stat_result, kind: type[OSError] = OSError) -> OSError:
    what = next((what for is_one, what in _KINDS if is_one(status.st_mode)), "a device")
    number = EEXIST if kind is FileExistsError else EINVAL
    return kind(number, f"{Path(path).name} is {what}, not a file", str(path))


def _exchanged(path: str | Path) -> OSError:
    return OSError(ENOENT, f"{Path(path).name} is being exchanged by others again and again", str(path))

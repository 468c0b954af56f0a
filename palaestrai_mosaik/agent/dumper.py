"""Storage of brains, as bytes under a tag."""

from __future__ import annotations

import hashlib
import re
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import BrainDumpError, did_you_mean
from palaestrai_mosaik.core.printing import listed

#: longest file name; file systems allow 255 bytes, and a prefix and a suffix are added
_LONGEST = 180
_SNAPSHOT = "snapshot-"
_MAGIC = "palaestrai-mosaik-brain"
_HEAD = re.compile(_MAGIC.encode() + rb" sha256=([0-9a-f]{64}) bytes=([0-9]+)")


class BrainDumper(ABC):
    """Stores the dumps of one agent in one phase; a brain may write several, by ``tag``."""

    @abstractmethod
    def save(self, dump: BinaryIO, tag: str = "") -> None:
        """Store a dump.

        Args:
            dump: a binary stream; its content from the current position on is stored.
            tag: distinguishes several dumps of one brain; empty for none.
        """

    def save_all(self, dumps: Mapping[str, bytes]) -> None:
        """Store all dumps of a model, by tag.

        A dumper may replace all existing dumps atomically: a reader then finds either the
        old ones or the new ones, never a mixture.

        Args:
            dumps: the contents by tag.
        """
        for tag, dump in dumps.items():
            self.save(BytesIO(dump), tag)

    @abstractmethod
    def load(self, tag: str = "") -> BinaryIO:
        """Return a dump as a binary stream.

        Args:
            tag: the tag with which it was saved; empty for none.

        Raises:
            BrainDumpError: there is no such dump, or it is damaged; the message names the existing ones.
        """

    @staticmethod
    def store_brain_dump(dump: BinaryIO, dumpers: Sequence[BrainDumper], tag: str = "") -> None:
        """Save a dump with every dumper.

        Args:
            dump: a binary stream; its content from the current position on is stored.
            dumpers: the ``_dumpers`` of a brain.
            tag: distinguishes several dumps of one brain; empty for none.
        """
        start = dump.tell()
        for dumper in dumpers:
            dump.seek(start)
            dumper.save(dump, tag)

    @staticmethod
    def load_brain_dump(dumpers: Sequence[BrainDumper], tag: str = "") -> BinaryIO:
        """Return the dump of the first dumper that has it, as a binary stream.

        Args:
            dumpers: the ``_dumpers`` of a brain or a muscle.
            tag: the tag with which it was saved; empty for none.

        Raises:
            BrainDumpError: no dumper has the dump, or it is damaged, even if another dumper has an intact one.
        """
        failures = []
        for dumper in dumpers:
            try:
                return dumper.load(tag)
            except DamagedBrainDump:
                raise
            except BrainDumpError as error:
                failures.append(str(error))
        raise BrainDumpError("; ".join(failures) or "there is nowhere to load a brain from (no 'load')")


class DamagedBrainDump(BrainDumpError):
    """The dump exists, but its content differs from the written one."""


class FileBrainDumper(BrainDumper):
    """Stores dumps as files ``<base>/<experiment run>/<phase>/<agent>/brain.bin``.

    A dump with a tag is ``brain-<tag>.bin``; those of a snapshot lie in a folder ``snapshot-<name>`` below
    the agent's. A file begins with one line of text that gives the SHA-256 and the length of the dump, which
    follows; :meth:`load` checks both. A file is replaced as a whole, and so is the folder of a snapshot by
    :meth:`save_all`. An empty file ``phase.<number>`` in the phase's folder records the phase's number in its
    run.

    Args:
        base: the folder of all dumps.
        experiment_run: the uid of the run document.
        phase: the name of the phase.
        agent: the name of the agent.
        snapshot: the name of a snapshot; empty for none.
        number: the number of the phase, from 0; ``None`` if unknown.

    Raises:
        BrainDumpError: the folder of all dumps is in a folder of results, and reached through a link there.
    """

    def __init__(
        self,
        base: str | Path,
        experiment_run: str,
        phase: str,
        agent: str,
        snapshot: str = "",
        number: int | None = None,
    ):
        self.base = Path(base)
        try:
            files.add_root(self.base)
        except OSError as error:
            raise BrainDumpError(f"no brain dumps in {str(base)!r}: {error.strerror}") from error
        self._place: tuple[tuple[str, str], ...] = (
            ("experiment run", experiment_run),
            ("phase", phase),
            ("agent", agent),
        )
        if snapshot:
            self._place += (("snapshot", snapshot),)
        self.directory = self.base.joinpath(*(_folder(kind, name) for kind, name in self._place))
        #: old folder while :meth:`save_all` replaces it; names have no dots
        self._old = self.directory.with_name(f"{self.directory.name}.old")
        self._is_snapshot = bool(snapshot)
        self._number = number

    @staticmethod
    def phases_with_number(base: str | Path, experiment_run: str, number: int) -> list[str]:
        """Return the names of the phases that had this number when their brains were saved.

        Args:
            base: the folder of all dumps.
            experiment_run: the uid of the run document.
            number: the number of the phase, from 0.
        """
        run = Path(base) / _folder("experiment run", experiment_run)
        folders = _folders(run) if run.is_dir() else []
        return [_name("phase", folder.name) for folder in folders if (folder / f"phase.{number}").is_file()]

    def _note_number(self) -> None:
        """Record the number of the phase in its folder, so that it can be loaded by number."""
        if self._number is None:
            return
        phase = self.base.joinpath(*(_folder(kind, name) for kind, name in self._place[:2]))
        mark = phase / f"phase.{self._number}"
        for other in phase.glob("phase.*"):
            if other != mark:
                # the run document has changed since then
                files.remove(other, missing_ok=True)
        if not mark.is_file():
            files.write_bytes(mark, b"", durable=False)

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        files.make_folder(self.directory, parents=True)
        files.write_bytes(self.directory / _file(tag), _with_header(dump.read()), durable=False)
        self._note_number()

    def save_all(self, dumps: Mapping[str, bytes]) -> None:
        if not self._is_snapshot:
            # the same folder also holds the snapshots
            super().save_all(dumps)
            return
        new, old = files.temporary_path(self.directory), self._old
        files.make_folder(new, parents=True)
        try:
            for tag, dump in dumps.items():
                files.write_bytes(new / _file(tag), _with_header(dump), durable=False)
            if self.directory.is_dir():
                # a process killed after the next line may have left an old folder
                files.discard_tree(old)
                files.move(self.directory, old)
            files.move(new, self.directory)
        finally:
            files.discard_tree(new)
        files.discard_tree(old)
        self._note_number()

    def load(self, tag: str = "") -> BinaryIO:
        folder = self.directory
        if self._old.is_dir() and not folder.is_dir():
            # a process saving the dumps was killed between its last two steps
            folder = self._old
        path = folder / _file(tag)
        if not path.is_file():
            raise BrainDumpError(f"no brain dump {str(path)!r}: {self._what_exists(tag)}")
        try:
            head, _, content = files.read_bytes(path).partition(b"\n")
        except OSError as error:
            raise self._damaged(path, f"it cannot be read: {error.strerror}") from error
        header = _HEAD.fullmatch(head)
        if header is None:
            raise self._damaged(path, f"it does not begin with {_MAGIC!r} and a SHA-256")
        digest, length = header[1].decode(), int(header[2])
        if len(content) != length:
            raise self._damaged(path, f"it holds {len(content)} bytes, {length} were written")
        actual = hashlib.sha256(content).hexdigest()
        if actual != digest:
            raise self._damaged(path, f"its SHA-256 is {actual}, but {digest} was written")
        return BytesIO(content)

    def _damaged(self, path: Path, why: str) -> DamagedBrainDump:
        return DamagedBrainDump(
            f"the brain dump of agent {self._place[2][1]!r} is damaged: {str(path)!r}: {why}"
        )

    def _what_exists(self, tag: str) -> str:
        """Describe the first missing part of the dump's path, and its alternatives."""
        if not self.base.is_dir():
            return f"there is no folder {str(self.base)!r}"
        folder = self.base
        for kind, name in self._place:
            following = folder / _folder(kind, name)
            if not following.is_dir():
                names = [_name(kind, entry.name) for entry in _folders(folder)]
                return f"{str(folder)!r} has no {kind} {name!r}{_alternatives(name, names)}"
            folder = following
        tags = [_name("tag", entry.stem) for entry in folder.glob("brain*.bin")]
        snapshots = [_name("snapshot", e.name) for e in _folders(folder) if e.name.startswith(_SNAPSHOT)]
        result = f"{str(folder)!r} has no dump {_tagged(tag)}{_alternatives(tag, tags)}"
        return result + (f"; it has the snapshots {_listed(snapshots)}" if snapshots else "")


def dump_arrays(arrays: Mapping[str, ArrayLike], dumpers: Sequence[BrainDumper], tag: str = "") -> None:
    """Save named arrays and numbers with every dumper, as an ``npz`` archive.

    The same arrays give the same bytes.

    Args:
        arrays: arrays of numbers, booleans or text by name.
        dumpers: the ``_dumpers`` of a brain or a muscle.
        tag: distinguishes several dumps of one brain; empty for none.

    Raises:
        ValueError: a value is not an array of numbers, booleans or text.
        TypeError: an element of ``dumpers`` is not a dumper.
    """
    if not isinstance(dumpers, Sequence):
        raise TypeError(
            f"dump_arrays takes the dumpers of a brain, self._dumpers; found a {type(dumpers).__name__}"
        )
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        for name in sorted(arrays):
            array = np.asarray(arrays[name], order="C")
            if array.dtype.hasobject:
                raise ValueError(f"{name!r} is no array of numbers, booleans or text: {arrays[name]!r}")
            content = BytesIO()
            np.lib.format.write_array(content, array, allow_pickle=False)
            # a constant date and system, so that bytes depend on the content only
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.create_system = 3
            file.writestr(entry, content.getvalue())
    archive.seek(0)
    BrainDumper.store_brain_dump(archive, dumpers, tag)


def load_arrays(dumpers: Sequence[BrainDumper], tag: str = "") -> dict[str, npt.NDArray[Any]]:
    """Return the arrays saved by :func:`dump_arrays`; numbers become arrays without dimensions.

    Nothing is unpickled.

    Args:
        dumpers: the dumpers to try, one after the other.
        tag: the tag that the dump was saved with.

    Raises:
        BrainDumpError: there is no such dump, or it holds something else.
        TypeError: an element of ``dumpers`` is not a dumper.
    """
    if not isinstance(dumpers, Sequence):
        raise TypeError(
            f"load_arrays takes the dumpers of a brain or a muscle, self._dumpers; found a {type(dumpers).__name__}"
        )
    dump = BrainDumper.load_brain_dump(dumpers, tag)
    try:
        with np.load(dump, allow_pickle=False) as archive:
            arrays = dict(archive)
        # numpy returns other files of an archive as bytes
        foreign = [name for name, value in arrays.items() if not isinstance(value, np.ndarray)]
        if foreign:
            raise ValueError(f"{foreign[0]!r} is no array")
        return arrays
    # A single array is not an archive (TypeError, AttributeError); damaged data may declare an
    # array larger than any memory.
    except (
        ValueError,
        TypeError,
        AttributeError,
        OSError,
        EOFError,
        MemoryError,
        OverflowError,
        zipfile.BadZipFile,
    ) as error:
        raise BrainDumpError(
            f"the brain dump {_tagged(tag)} holds no named arrays (npz): {files.reading_fault(error)}"
        ) from None


def _with_header(content: bytes) -> bytes:
    """Prepend the header line to ``content``."""
    head = f"{_MAGIC} sha256={hashlib.sha256(content).hexdigest()} bytes={len(content)}\n"
    return head.encode() + content


def _file(tag: str) -> str:
    return f"brain-{_file_name(tag)}.bin" if tag else "brain.bin"


def _folders(folder: Path) -> list[Path]:
    """Return the folders with names in ``folder``, without temporary and old ones."""
    return [entry for entry in folder.iterdir() if entry.is_dir() and "." not in entry.name]


def _file_name(name: str) -> str:
    """Return ``name`` as one harmless path component, distinct for distinct names."""
    # a YAML text may contain half of a surrogate pair, which is not a character
    safe = quote(name.encode("utf-8", "surrogatepass"), safe=" ").replace(".", "%2E")
    if len(safe) > _LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        safe = f"{safe[: _LONGEST - 33]}-{digest[:32]}"
    # the empty name; no quoted name is a lone percent sign
    return safe or "%"


def _folder(kind: str, name: str) -> str:
    return (_SNAPSHOT if kind == "snapshot" else "") + _file_name(name)


def _name(kind: str, file_name: str) -> str:
    """Return the name encoded in that of a folder, or of a file without its suffix."""
    if kind == "snapshot":
        file_name = file_name.removeprefix(_SNAPSHOT)
    elif kind == "tag":
        file_name = file_name.removeprefix("brain").removeprefix("-")
    return unquote(file_name)


def _tagged(tag: str) -> str:
    return f"with the tag {tag!r}" if tag else "without a tag"


def _alternatives(name: str, names: list[str]) -> str:
    return f"{did_you_mean(name, names)}; it has {_listed(names)}"


def _listed(names: list[str]) -> str:
    return listed([repr(name) if name else "one without a tag" for name in sorted(names)], 10) or "none"

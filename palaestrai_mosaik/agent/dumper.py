"""Where brains are kept: bytes under a tag."""

from __future__ import annotations

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from palaestrai_mosaik.errors import BrainDumpError

#: file systems allow 255 bytes; a prefix and an ending are added
_LONGEST = 180


class BrainDumper(ABC):
    """Keeps the dumps of one agent in one phase; a brain may write several, by ``tag``."""

    @abstractmethod
    def save(self, dump: BinaryIO, tag: str = "") -> None:
        """Keep what ``dump`` holds from its current position on."""

    @abstractmethod
    def load(self, tag: str = "") -> BinaryIO:
        """Return the dump; :class:`BrainDumpError` says what was looked for and what exists."""

    @staticmethod
    def store_brain_dump(dump: BinaryIO, dumpers: Sequence[BrainDumper], tag: str = "") -> None:
        """Save ``dump`` with every dumper."""
        start = dump.tell()
        for dumper in dumpers:
            dump.seek(start)
            dumper.save(dump, tag)

    @staticmethod
    def load_brain_dump(dumpers: Sequence[BrainDumper], tag: str = "") -> BinaryIO:
        """Return the dump of the first dumper that has it."""
        failures = []
        for dumper in dumpers:
            try:
                return dumper.load(tag)
            except BrainDumpError as error:
                failures.append(str(error))
        raise BrainDumpError("; ".join(failures) or "there is nowhere to load a brain from (no 'load')")


class FileBrainDumper(BrainDumper):
    """Keeps dumps as files ``<base>/<experiment run>/<phase>/<agent>/brain.bin``.

    A dump with a tag is ``brain-<tag>.bin``.
    """

    def __init__(self, base: str | Path, experiment_run: str, phase: str, agent: str):
        self.directory = Path(base).joinpath(*(_file_name(p) for p in (experiment_run, phase, agent)))

    def save(self, dump: BinaryIO, tag: str = "") -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        path = self._path(tag)
        temporary = path.with_suffix(f".tmp{os.getpid()}")
        try:
            temporary.write_bytes(dump.read())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def load(self, tag: str = "") -> BinaryIO:
        path = self._path(tag)
        if not path.is_file():
            raise BrainDumpError(f"no brain dump {str(path)!r} ({self._what_exists()})")
        return BytesIO(path.read_bytes())

    def _path(self, tag: str) -> Path:
        return self.directory / (f"brain-{_file_name(tag)}.bin" if tag else "brain.bin")

    def _what_exists(self) -> str:
        directory = self.directory
        while not directory.is_dir() and directory != directory.parent:
            directory = directory.parent
        names = sorted(entry.name for entry in directory.iterdir())[:10]
        return f"{str(directory)!r} holds {', '.join(names) or 'nothing'}"


def _file_name(name: str) -> str:
    """Return ``name`` as one harmless path component, distinct for distinct names."""
    safe = quote(name, safe=" ").replace(".", "%2E")
    if len(safe) > _LONGEST:
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        safe = f"{safe[: _LONGEST - 33]}-{digest[:32]}"
    # no quoted name is a lone percent sign
    return safe or "%"

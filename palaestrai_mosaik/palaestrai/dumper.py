"""What palaestrAI's brains and muscles see of our dumpers."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

import palaestrai.agent

from palaestrai_mosaik.agent import BrainDumper
from palaestrai_mosaik.agent.dumper import DamagedBrainDump
from palaestrai_mosaik.errors import BrainDumpError

#: the tag of the dump that holds the files of a brain which only knows ``store_model(path)``
FILES = "files"


class PalaestraiDumper(palaestrai.agent.BrainDumper):
    """palaestrAI's dumper that writes to, and reads from, the dumpers that ``ours`` returns.

    palaestrAI's functions catch what a dumper raises, and go on without a brain. So this one keeps
    note of it, for :meth:`check_saved` and :meth:`loading` to raise it.
    """

    def __init__(self, ours: Callable[[], Sequence[BrainDumper]], agent: str, run: str = "", phase: int = 0):
        place = palaestrai.agent.BrainLocation(
            agent_name=agent, experiment_run_uid=run, experiment_run_phase=phase, repeat=1
        )
        super().__init__(dump_to=place, load_from=place)
        self._ours = ours
        self._failures: list[Exception] = []
        self._found = False

    def save(self, brain_state: BinaryIO, tag: str | None = None) -> None:
        """Save with all dumpers."""
        try:
            BrainDumper.store_brain_dump(brain_state, self._ours(), tag or "")
        except Exception as error:
            self._failures.append(error)
            raise

    def load(self, tag: str | None = None) -> BinaryIO:
        """Return the dump of the first dumper that has it."""
        try:
            dump = BrainDumper.load_brain_dump(self._ours(), tag or "")
        except BrainDumpError as error:
            self._failures.append(error)
            raise
        self._found = True
        return dump

    def _load(self, source_locator: Any, tag: str | None = None) -> BinaryIO:
        return self.load(tag)

    def check_saved(self) -> None:
        """Raise what went wrong with saving since the last check."""
        if self._failures:
            error = self._failures[0]
            self._failures = []
            raise error

    @contextmanager
    def loading(self, *, required: bool = True) -> Iterator[None]:
        """Let a block load what it wants.

        Raises :class:`BrainDumpError` if all that was asked for is missing, unless that is not
        ``required``, or the block fails without what is missing, or a dump is damaged. A brain may
        look for a dump that need not be there, so one that is missing is none.
        """
        self._failures, self._found = [], False
        try:
            yield
        except Exception as error:
            if self._failures:
                raise self._failures[0] from error
            raise
        failures, self._failures = self._failures, []
        for failure in failures:
            if (required and not self._found) or isinstance(failure, DamagedBrainDump):
                raise failure

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._brain_destination}>"


# palaestrAI registers each class of dumpers, to make one of it for every agent that it runs itself
palaestrai.agent.BrainDumper._registered_dumpers.remove(PalaestraiDumper)


def store_files(write: Callable[[Path], Any], dumpers: Sequence[BrainDumper]) -> None:
    """Keep the files that ``write`` puts into a folder, as one dump."""
    archive = io.BytesIO()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                # it tells what is in it, not when it was made
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), (1980, 1, 1, 0, 0, 0))
                entry.create_system = 3
                file.writestr(entry, path.read_bytes())
    archive.seek(0)
    BrainDumper.store_brain_dump(archive, dumpers, FILES)


def load_files(read: Callable[[Path], Any], dumpers: Sequence[BrainDumper]) -> None:
    """Let ``read`` read the files that :func:`store_files` has kept."""
    dump = BrainDumper.load_brain_dump(dumpers, FILES)
    try:
        with TemporaryDirectory() as name, zipfile.ZipFile(dump) as file:
            # names that lead out of the folder are made harmless
            file.extractall(name)
            read(Path(name))
    except zipfile.BadZipFile as error:
        raise BrainDumpError(f"the brain dump with the tag {FILES!r} holds no files: {error}") from error

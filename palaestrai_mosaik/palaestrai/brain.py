"""Brains that are written for palaestrAI."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, cast

import palaestrai.agent

from palaestrai_mosaik.agent import BodyInformation, Brain, BrainDumper
from palaestrai_mosaik.agent.dumper import DamagedBrainDump
from palaestrai_mosaik.errors import BrainDumpError
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.vectors import Layout

from .base import Adapted, MuscleData, numeric_statistics, their_mode
from .filter import AdaptedFilter, post_processed, pre_processed
from .memory import BrainMemory, LazyMemory
from .translate import PalaestraiChannels

#: rows that palaestrAI's memory keeps, unless the brain says how many
BRAIN_MEMORY = 100_000
_BASE = palaestrai.agent.Brain


class AdaptedBrain(Adapted, Brain):
    """Runs a brain of palaestrAI; subclasses have its class in :attr:`wrapped_class`.

    It is made when it is set up, and loads its model before its ``setup``, as in palaestrAI. The muscles' first
    model is what ``thinking`` returns without data from a muscle. Nothing that it does, or that its
    dumpers do, fails silently.
    """

    _mode: Mode = Mode.TRAIN
    _loads: bool = False
    _place: tuple[str, str, int] = ("", "", 0)
    _evaluations: int = 0
    #: the filters of palaestrAI's kind, which are called when the memory has the row, as in palaestrAI
    filters: Sequence[AdaptedFilter] = ()
    _filters_muscle_data = _continues = True

    def __init__(self, **params: Any):
        super().__init__(**params)
        self._their_memory = LazyMemory(BRAIN_MEMORY)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        wrapped: Any = cls.wrapped_class
        if wrapped.load is _BASE.load and wrapped.load_model is _BASE.load_model:
            # a run that wants to load with it gets the error that it cannot
            cls.load = Brain.load  # type: ignore[method-assign]

    def _introduce(self, loads: bool, run: str, instance: str, phase: int) -> None:
        """Take note of whether it is to load a model, and of the run: its uid, instance and phase."""
        self._loads = loads
        self._place = (run, instance, phase)

    def _memory_for(self, channels: Channels, body: BodyInformation) -> BrainMemory:
        """Return what takes the rows of bodies like ``body``, for the one memory of the brain."""
        seen = Layout.of(body.sensors)
        return BrainMemory(channels, self._their_memory, seen)

    @property
    def mode(self) -> Mode:
        """Whether the brain learns (train) or not (test)."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode = mode
        if hasattr(self, "part"):
            self.part.mode = their_mode(mode)

    def setup(self) -> None:
        run, _, phase = self._place
        self._make(self.seed)
        part, memory = self.part, self._their_memory
        if part._memory.size_limit != palaestrai.agent.Memory().size_limit:
            memory.size_limit = part._memory.size_limit
        part._seed, part._name, part._memory = self.seed, self.name, memory
        part.mode = their_mode(self._mode)
        sensors = Layout([s.uid for s in self.sensors], [s.space.bound(self.rng) for s in self.sensors])
        actuators = Layout([a.uid for a in self.actuators], [a.space.bound(self.rng) for a in self.actuators])
        part.sensors = PalaestraiChannels(sensors, palaestrai.agent.SensorInformation).empty()
        part.actuators = PalaestraiChannels(actuators, palaestrai.agent.ActuatorInformation).empty()
        self._dumper = PalaestraiDumper(self._ours, self.name, run, phase)
        part._dumpers = [self._dumper]
        if self._loads and type(self).load is not Brain.load:
            self._load()
        for one in self.filters:
            one._join(brain=part)
        with self._thoughts():
            part.setup()

    def _own_filters(self, filters: Sequence[Any]) -> None:
        self.filters = filters

    def _test_model(self) -> Any:
        return self.initial_update()

    def initial_update(self) -> Any:
        for memory in self.memories:
            cast(BrainMemory, memory).replaying = False
        try:
            with self._thoughts():
                return _update(self.part.thinking(self.bodies[0].muscles[0], None))
        except Exception as error:
            error.add_note(
                f"{self.wrapped_class.__name__}.thinking was asked for the muscles' first model, as palaestrAI does it: with "
                "None as the data from the muscle"
            )
            raise

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        if not cast(BrainMemory, self.memory_of(muscle_id)).handed_on:
            return None
        data = data_from_muscle.data if isinstance(data_from_muscle, MuscleData) else data_from_muscle
        if self.filters:
            muscle_id, data = pre_processed(self.filters, muscle_id, data)
        with self._thoughts():
            update = self.part.thinking(muscle_id, data)
        if self.filters:
            update = post_processed(self.filters, update)
        return _update(update)

    def pretrain(self) -> None:
        """Learn from what is replayed; as in palaestrAI, it is forgotten then, and nothing goes to the muscles."""
        with self._thoughts():
            self.part.pretrain()
        self._their_memory.clear()

    def evaluated(self, metrics: Mapping[str, float]) -> Mapping[str, float] | None:
        run, instance, phase = self._place
        number, self._evaluations = self._evaluations, self._evaluations + 1
        with self._thoughts():
            result = self.part.evaluate_rollouts(run, instance, phase, self.name, number)
        return None if result is None else dict(result.metrics)

    def load(self) -> None:
        """It was done in :meth:`setup`."""

    def store(self) -> None:
        wrapped: Any = self.wrapped_class
        with self._thoughts():
            if wrapped.store is not _BASE.store:
                self.part.store()
            elif wrapped.store_model is not _BASE.store_model:
                store_files(self.part.store_model, self._dumpers)

    def _ours(self) -> Sequence[BrainDumper]:
        """Return where dumps are kept at this moment."""
        return self._dumpers

    def _load(self) -> None:
        wrapped: Any = self.wrapped_class
        with self._dumper.loading(), self.generators:
            if wrapped.load is _BASE.load:
                load_files(self.part.load_model, self._dumpers)
            else:
                self.part.load()

    @contextmanager
    def _thoughts(self) -> Iterator[None]:
        """Let the brain work with its own global generators, and report its statistics.

        Raises what its dumpers could not save.
        """
        try:
            with self.generators:
                yield
        finally:
            # reported without a row, it goes with the next one; the part may report it again with that
            if self.part._statistics:
                for key, value in numeric_statistics(self.part.pop_statistics()):
                    self.add_statistics(key, value, allow_overwrite=True)
        self._dumper.check_saved()


def _update(answer: Any) -> Any:
    """Return what ``thinking`` of a brain of palaestrAI has given for its muscles.

    There, what is false is no update; the truth value of arrays and frames says nothing, if they have one.
    """
    return answer if hasattr(answer, "__array__") or answer else None


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
        look for a dump that need not be there, so a missing dump is not an error.
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
                # equal contents give equal bytes, without the date
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

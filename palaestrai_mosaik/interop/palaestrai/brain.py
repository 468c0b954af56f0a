"""Brains written for palaestrAI."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, cast

import palaestrai.agent

from palaestrai_mosaik.agent import BodyInformation, Brain, BrainDumper, Muscle, is_update
from palaestrai_mosaik.agent.dumper import DamagedBrainDump
from palaestrai_mosaik.core.errors import BrainDumpError
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.types.vectors import Layout

from .base import Adapted, MuscleData, numeric_statistics, their_mode
from .filter import AdaptedFilter
from .memory import BrainMemory, LazyMemory
from .translate import PalaestraiChannels

#: default number of rows in palaestrAI's memory
BRAIN_MEMORY = 100_000
_BASE = palaestrai.agent.Brain


class AdaptedBrain(Adapted, Brain):
    """Runs a palaestrAI brain; subclasses have its class in :attr:`wrapped_class`.

    The brain is created in :meth:`setup`, and loads its model before its own ``setup``, as in palaestrAI. The muscles'
    first model is the result of ``thinking`` without data from a muscle. Errors of the brain and its dumpers are
    raised, not ignored.
    """

    _loads: bool = False
    _place: tuple[str, str, int] = ("", "", 0)
    _evaluations: int = 0
    #: palaestrAI filters, called once the memory has the row, as in palaestrAI
    filters: Sequence[AdaptedFilter] = ()
    _filters_muscle_data = _continues = True

    def __init__(self, **params: Any):
        super().__init__(**params)
        self._their_memory = LazyMemory(BRAIN_MEMORY)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        wrapped: Any = cls.wrapped_class
        if wrapped.load is _BASE.load and wrapped.load_model is _BASE.load_model:
            # so that a run with 'load' reports that the brain cannot load
            cls.load = Brain.load  # type: ignore[method-assign]

    def _introduce(self, loads: bool, run: str, instance: str, phase: int) -> None:
        """Store whether a model is to be loaded, and the run's uid, instance and phase."""
        self._loads = loads
        self._place = (run, instance, phase)

    def _memory_for(self, channels: Channels, body: BodyInformation) -> BrainMemory:
        """Create the memory for rows of bodies like ``body``; all of them fill the brain's single memory."""
        sensors = Layout.of(body.sensors)
        return BrainMemory(channels, self._their_memory, sensors)

    def _switch(self, mode: Any) -> None:
        self.part.mode = mode

    def setup(self) -> None:
        run, _, phase = self._place
        self._make(self.seed)
        part, memory = self.part, self._their_memory
        if part._memory.size_limit != palaestrai.agent.Memory().size_limit:
            memory.size_limit = part._memory.size_limit
        part._seed, part._name, part._memory = self.seed, self.name, memory
        self._switch(their_mode(self._mode))
        sensors = Layout([s.uid for s in self.sensors], [s.space.bound(self.rng) for s in self.sensors])
        actuators = Layout([a.uid for a in self.actuators], [a.space.bound(self.rng) for a in self.actuators])
        part.sensors = PalaestraiChannels(sensors, palaestrai.agent.SensorInformation).empty()
        part.actuators = PalaestraiChannels(actuators, palaestrai.agent.ActuatorInformation).empty()
        self._dumper = PalaestraiDumper(self, self.name, run, phase)
        part._dumpers = [self._dumper]
        if self._loads and type(self).load is not Brain.load:
            self._load()
        for item in self.filters:
            item._join(brain=part)
        with self._thoughts():
            part.setup()

    def _own_filters(self, filters: Sequence[Any]) -> None:
        self.filters = filters

    def _test_model(self) -> Any:
        model = self.initial_update()
        return model if is_update(model) else None

    def initial_update(self) -> Any:
        for memory in self.memories:
            cast(BrainMemory, memory).replaying = False
        try:
            with self._thoughts():
                return self.part.thinking(self.bodies[0].muscles[0], None)
        except Exception as error:
            error.add_note(
                f"{self.wrapped_class.__name__}.thinking was asked for the muscles' first model, as palaestrAI does it: with "
                "None as the data from the muscle"
            )
            raise

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        if not cast(BrainMemory, self.memory_of(muscle_id)).has_objective:
            return None
        data = data_from_muscle.data if isinstance(data_from_muscle, MuscleData) else data_from_muscle
        for item in self.filters:
            with item.generators:
                muscle_id, data = item.part.brain_pre_process(muscle_id, data)
        with self._thoughts():
            update = self.part.thinking(muscle_id, data)
        for item in reversed(self.filters):
            with item.generators:
                update = item.part.brain_post_process(update)
        return update

    def pretrain(self) -> None:
        """Learn from replayed rows; as in palaestrAI, clear the memory afterwards and send no update."""
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
        """Do nothing: :meth:`setup` has loaded the model."""

    def store(self) -> None:
        wrapped: Any = self.wrapped_class
        with self._thoughts():
            if wrapped.store is not _BASE.store:
                self.part.store()
            elif wrapped.store_model is not _BASE.store_model:
                store_files(self.part.store_model, self._dumpers)

    def _load(self) -> None:
        wrapped: Any = self.wrapped_class
        with self._dumper.loading(), self.generators:
            if wrapped.load is _BASE.load:
                load_files(self.part.load_model, self._dumpers)
            else:
                self.part.load()

    @contextmanager
    def _thoughts(self) -> Iterator[None]:
        """Run a block with the brain's global generators, then report its statistics.

        Raises errors of its dumpers.
        """
        try:
            with self.generators:
                yield
        finally:
            # statistics without a row belong to the next row, and may be overwritten there
            if self.part._statistics:
                for key, value in numeric_statistics(self.part.pop_statistics()):
                    self.add_statistics(key, value, allow_overwrite=True)
        self._dumper.check_saved()


#: the tag of the dump with the files of a brain that only implements ``store_model(path)``
FILES = "files"


class PalaestraiDumper(palaestrai.agent.BrainDumper):
    """A palaestrAI dumper that delegates to the dumpers of ``owner``.

    palaestrAI's functions catch a dumper's errors and continue without a brain. This class records the errors, and
    :meth:`check_saved` and :meth:`loading` raise them.
    """

    def __init__(self, owner: Brain | Muscle, agent: str, run: str = "", phase: int = 0):
        location = palaestrai.agent.BrainLocation(
            agent_name=agent, experiment_run_uid=run, experiment_run_phase=phase, repeat=1
        )
        super().__init__(dump_to=location, load_from=location)
        self._owner = owner
        self._failures: list[Exception] = []
        self._found = False

    def save(self, brain_state: BinaryIO, tag: str | None = None) -> None:
        """Save with all dumpers."""
        try:
            BrainDumper.store_brain_dump(brain_state, self._owner._dumpers, tag or "")
        except Exception as error:
            self._failures.append(error)
            raise

    def load(self, tag: str | None = None) -> BinaryIO:
        """Return the dump of the first dumper that has one."""
        try:
            dump = BrainDumper.load_brain_dump(self._owner._dumpers, tag or "")
        except BrainDumpError as error:
            self._failures.append(error)
            raise
        self._found = True
        return dump

    def _load(self, source_locator: Any, tag: str | None = None) -> BinaryIO:
        return self.load(tag)

    def check_saved(self) -> None:
        """Raise the first error of saving since the last check."""
        if self._failures:
            error = self._failures[0]
            self._failures = []
            raise error

    @contextmanager
    def loading(self, *, required: bool = True) -> Iterator[None]:
        """Run a block that loads dumps.

        A brain may try to load optional dumps, so a missing dump alone is no error. Raises :class:`BrainDumpError` if
        all requested dumps are missing and one is ``required``, if the block fails after a missing dump, or if a dump
        is damaged.
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


# palaestrAI would create an object of each registered dumper class for each of its agents
palaestrai.agent.BrainDumper._registered_dumpers.remove(PalaestraiDumper)


def store_files(write: Callable[[Path], Any], dumpers: Sequence[BrainDumper]) -> None:
    """Save the files that ``write`` creates in a folder, as one dump."""
    archive = io.BytesIO()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(folder)
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
            for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                # without the date, equal contents give equal bytes
                entry = zipfile.ZipInfo(path.relative_to(folder).as_posix(), (1980, 1, 1, 0, 0, 0))
                entry.create_system = 3
                file.writestr(entry, path.read_bytes())
    archive.seek(0)
    BrainDumper.store_brain_dump(archive, dumpers, FILES)


def load_files(read: Callable[[Path], Any], dumpers: Sequence[BrainDumper]) -> None:
    """Load the files saved by :func:`store_files` with ``read``."""
    dump = BrainDumper.load_brain_dump(dumpers, FILES)
    try:
        with TemporaryDirectory() as name, zipfile.ZipFile(dump) as file:
            # extractall sanitises names that lead out of the folder
            file.extractall(name)
            read(Path(name))
    except zipfile.BadZipFile as error:
        raise BrainDumpError(f"the brain dump with the tag {FILES!r} holds no files: {error}") from error

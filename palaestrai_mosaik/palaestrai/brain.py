"""Brains that are written for palaestrAI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, cast

import palaestrai.agent

from palaestrai_mosaik.agent import BodyInformation, Brain, BrainDumper
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.vectors import Layout

from .dumper import PalaestraiDumper, load_files, store_files
from .filter import AdaptedFilter, post_processed, pre_processed
from .memory import BrainMemory, LazyMemory
from .parts import Adapted, Carried, figures, their_mode
from .translate import PalaestraiChannels

#: rows that palaestrAI's memory keeps, unless the brain says how many
BRAIN_MEMORY = 100_000
_BASE = palaestrai.agent.Brain


class AdaptedBrain(Adapted, Brain):
    """Runs a brain of palaestrAI; subclasses have its class in :attr:`theirs`.

    It is made when it is set up, and loads its model before its ``setup``, as there. The muscles' first
    model is what ``thinking`` returns without data from a muscle. Nothing that it does, or that its
    dumpers do, fails silently.
    """

    _mode: Mode = Mode.TRAIN
    _loads: bool = False
    _place: tuple[str, str, int] = ("", "", 0)
    _evaluations: int = 0
    #: the filters of palaestrAI's kind, which are called when the memory has the row, as there
    filters: Sequence[AdaptedFilter] = ()

    def __init__(self, **params: Any):
        super().__init__(**params)
        self._their_memory = LazyMemory(BRAIN_MEMORY)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        theirs: Any = cls.theirs
        if theirs.load is _BASE.load and theirs.load_model is _BASE.load_model:
            # a run that wants to load with it is told that it cannot
            cls.load = Brain.load  # type: ignore[method-assign]

    def introduce(self, loads: bool, run: str, instance: str, phase: int) -> None:
        """Take note of whether it is to load a model, and of the run: its uid, instance and phase."""
        self._loads = loads
        self._place = (run, instance, phase)

    def memory_for(self, channels: Channels, body: BodyInformation) -> BrainMemory:
        """Return what takes the rows of bodies like ``body``, for the one memory of the brain."""
        seen = Layout([one.uid for one in body.sensors], [one.space for one in body.sensors])
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
            one.belongs_to(brain=part)
        with self._thoughts():
            part.setup()

    def initial_update(self) -> Any:
        for memory in self.memories:
            cast(BrainMemory, memory).replaying = False
        try:
            with self._thoughts():
                return _update(self.part.thinking(self.bodies[0].muscles[0], None))
        except Exception as error:
            error.add_note(
                f"{self.theirs.__name__}.thinking was asked for the muscles' first model, as palaestrAI does it: with "
                "None as the data from the muscle"
            )
            raise

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        if not cast(BrainMemory, self.memory_of(muscle_id)).handed_on:
            return None
        data = data_from_muscle.data if isinstance(data_from_muscle, Carried) else data_from_muscle
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
        theirs: Any = self.theirs
        with self._thoughts():
            if theirs.store is not _BASE.store:
                self.part.store()
            elif theirs.store_model is not _BASE.store_model:
                store_files(self.part.store_model, self._dumpers)

    def _ours(self) -> Sequence[BrainDumper]:
        """Return where dumps are kept at this moment."""
        return self._dumpers

    def _load(self) -> None:
        theirs: Any = self.theirs
        with self._dumper.loading(), self.streams:
            if theirs.load is _BASE.load:
                load_files(self.part.load_model, self._dumpers)
            else:
                self.part.load()

    @contextmanager
    def _thoughts(self) -> Iterator[None]:
        """Let the brain work with its own global generators, and report what it tells about itself.

        Raises what its dumpers could not save.
        """
        try:
            with self.streams:
                yield
        finally:
            # told without a row, it goes with the next one; the part may tell it again with that
            if self.part._statistics:
                for key, value in figures(self.part.pop_statistics()):
                    self.add_statistics(key, value, allow_overwrite=True)
        self._dumper.check_saved()


def _update(answer: Any) -> Any:
    """Return what ``thinking`` of a brain of palaestrAI has given for its muscles.

    There, what is false is no update; the truth value of arrays and frames says nothing, if they have one.
    """
    return answer if hasattr(answer, "__array__") or answer else None

"""Muscles and objectives written for palaestrAI."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import palaestrai.agent

from palaestrai_mosaik.agent import Memory, Muscle, Objective
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.simulation.body import MUSCLE_MEMORY
from palaestrai_mosaik.simulation.connections import Channels
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout, SensorReadings

from .base import COMPUTED_NAN, Adapted, MuscleData, numeric_statistics, their_mode
from .brain import PalaestraiDumper
from .filter import AdaptedFilter
from .memory import LazyMemory, RolloutMemory
from .translate import PalaestraiChannels, vector_of

#: immutable types, which need no copy
_PLAIN = (int, float, str, bytes, bool, type(None))


class AdaptedMuscle(Adapted, Muscle):
    """Runs a palaestrAI muscle; subclasses have its class in :attr:`wrapped_class`.

    The muscle is created in :meth:`setup`. Its ``uid`` is the agent's name, as in palaestrAI. ``prepare_model`` is
    called before its own ``setup``, in test mode only. If the muscle has a palaestrAI brain (:attr:`taught`), it also
    gets the brain's model before a test, so a missing dump is no error. Its global generators are reseeded for every
    episode.
    """

    agent: str = ""
    seed: int = 0
    loads: bool = False
    taught: bool = False
    #: the palaestrAI filters between the muscle and its environments
    filters: Sequence[AdaptedFilter] = ()
    _seen: Layout | None = None
    _offered: Layout | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        wrapped: Any = cls.wrapped_class
        if wrapped.prepare_model is palaestrai.agent.Muscle.prepare_model:
            # so that a run with 'load' reports that the muscle cannot load
            cls.prepare_model = Muscle.prepare_model  # type: ignore[method-assign]

    @classmethod
    def _expects_updates(cls) -> bool:
        return False

    def _introduce(self, agent: str, seed: int, *, loads: bool, taught: bool) -> None:
        """Set the agent, the seed, and whether the muscle loads a model and has a palaestrAI brain."""
        self.agent, self.seed, self.loads, self.taught = agent, seed, loads, taught

    def _memory_for(self, channels: Channels) -> RolloutMemory:
        """Create the memory of a body with this muscle."""
        return rollout_memory(channels, self.uid)

    @property
    def rng(self) -> np.random.Generator:
        """The generator of the episode; the spaces of sensors and actuators sample from it."""
        return self._rng

    @rng.setter
    def rng(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.generators.reseed(int(rng.integers(2**62)))
        self._seen = None

    def setup(self) -> None:
        self._make(self.seed)
        part = self.part
        part._uid = self.agent
        self._switch(their_mode(self._mode))
        part._memory = cast(RolloutMemory, self._memory).mirror
        self._dumper = PalaestraiDumper(self, self.agent)
        part._model_loaders = [self._dumper] if self.loads else []
        if self.loads and self._mode is Mode.TEST:
            with self._dumper.loading(required=not self.taught), self.generators:
                part.prepare_model()
        for item in self.filters:
            item._join(muscle=part)
        with self.generators:
            part.setup()

    def prepare_model(self) -> None:
        """Do nothing: :meth:`setup` has loaded the model."""

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        readings, available = cast(SensorReadings, sensors), cast(ActuatorSetpoints, actuators_available)
        if self._seen is not readings._layout or self._offered is not available._layout:
            self._lay_out(readings._layout, available._layout)
        part = self.part
        with self.generators:
            answer = part.propose_actions(self._their_sensors(readings.vector), self._their_actuators.empty())
        source = f"agent {self.agent!r}: {self.wrapped_class.__name__}.propose_actions"
        if isinstance(answer, tuple) and len(answer) != 2:
            raise ContractError(
                f"{source} gave {answer!r}; allowed are (actuators, data) and a list of actuators"
            )
        setpoints, data = answer if isinstance(answer, tuple) else (answer, None)
        available.vector = vector_of(available._layout, setpoints, source)
        self._report()
        if self.filters and self.taught:
            data = MuscleData(data)
            for item in self.filters:
                item.carried = data
        return available, data

    def _own_filters(self, filters: Sequence[Any]) -> None:
        self.filters = filters

    def _take_model(self, model: Any) -> None:
        self.update(model)

    def update(self, update: Any) -> None:
        # palaestrAI's brain is in another process, so muscles never share an update: copy it
        copied = update if isinstance(update, _PLAIN) else pickle.loads(pickle.dumps(update))
        with self.generators:
            self.part.update(copied)

    def reset(self) -> None:
        with self.generators:
            self.part.reset()

    def teardown(self) -> None:
        with self.generators:
            self.part.teardown()

    def _report(self) -> None:
        if self.part._statistics:
            for key, value in numeric_statistics(self.part.pop_statistics()):
                self.add_statistics(key, value)

    def _lay_out(self, sensors: Layout, actuators: Layout) -> None:
        self._seen, self._offered = sensors, actuators
        self._their_sensors = PalaestraiChannels(sensors.bound(self._rng), palaestrai.agent.SensorInformation)
        self._their_actuators = PalaestraiChannels(actuators, palaestrai.agent.ActuatorInformation)


def rollout_memory(channels: Channels, tag: str) -> RolloutMemory:
    """Create the memory of a body with a palaestrAI muscle or objective."""
    return RolloutMemory(channels, LazyMemory(MUSCLE_MEMORY), MUSCLE_MEMORY, tag)


class AdaptedObjective(Adapted, Objective):
    """Runs a palaestrAI objective; subclasses have its class in :attr:`wrapped_class`.

    If the objective is ``None`` or an empty array, a palaestrAI brain does not get the row. If it is NaN, the brain
    gets it. The objective's global generators are reseeded for every episode.
    """

    agent: str = ""
    seed: int = 0
    #: the muscle of the body, which has the generator of the episode
    muscle: Muscle

    def _introduce(self, agent: str, seed: int, muscle: Muscle) -> None:
        self.agent, self.seed, self.muscle = agent, seed, muscle

    def _memory_for(self, channels: Channels) -> RolloutMemory:
        """Create the memory of a body with this objective."""
        return rollout_memory(channels, self.agent)

    def setup(self, reward_names: Sequence[str]) -> None:
        self._make(self.seed)

    def internal_reward(self, memory: Memory, **kwargs: Any) -> float | None:
        self.generators.renew(self.muscle.rng, "objective")
        with self.generators:
            answer = self.part.internal_reward(cast(RolloutMemory, memory).mirror)
        if answer is None or (isinstance(answer, np.ndarray) and not answer.size):
            return None
        try:
            value = float(answer if np.ndim(answer) == 0 else np.asarray(answer).item())
        except (TypeError, ValueError):
            raise ContractError(
                f"{self.wrapped_class.__name__}.internal_reward of agent {self.agent!r} must return a number, an array with "
                f"one or none, or None, not {answer!r}"
            ) from None
        return COMPUTED_NAN if math.isnan(value) else value

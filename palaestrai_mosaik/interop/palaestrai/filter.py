"""Filters written for palaestrAI."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import palaestrai.agent

from palaestrai_mosaik.agent import Experience
from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from .base import Adapted, MuscleData, their_mode
from .translate import PalaestraiChannels, our_space, vector_of

_BASE = palaestrai.agent.Filter
_METHODS = ("muscle_pre_process", "muscle_post_process", "brain_pre_process", "brain_post_process")


class AdaptedFilter(Adapted, Filter):
    """Runs a palaestrAI filter; subclasses have its class in :attr:`wrapped_class`.

    The filtered channels are determined by applying an object of the class once, to readings of 0 (or the nearest
    value in the space); they must not change afterwards. The actual filter has a reference to its muscle or brain if
    that is palaestrAI's, or else to a stand-in for the muscle that only has the mode. As in palaestrAI, its learned
    state is neither shared nor saved.
    """

    #: data from the muscle to the brain, if both are palaestrAI's
    carried: MuscleData | None = None
    _has_owner = True
    _seed: int = 0
    #: whether a palaestrAI brain calls the filter, once its memory has the row
    _called_by_brain: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # skip the methods that the filter does not override
        for name in _METHODS:
            if getattr(cls.wrapped_class, name) is getattr(_BASE, name):
                setattr(cls, name, getattr(Filter, name))

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        self._outside = sensors, actuators
        self._stand_in = SimpleNamespace(mode=their_mode(self.mode), uid="", name="")
        self._sensors = PalaestraiChannels(sensors, palaestrai.agent.SensorInformation)
        self._actuators = PalaestraiChannels(actuators, palaestrai.agent.ActuatorInformation, gaps=True)
        self._make(0)
        self._set_up(self._stand_in)
        middle = np.clip(0.0, sensors.low, sensors.high)
        with self.generators:
            processed = self.part.muscle_pre_process(self._sensors(middle), self._actuators.empty())
        self._inside = _layout(processed[0]), _layout(processed[1])
        self._proposed = PalaestraiChannels(self._inside[1], palaestrai.agent.ActuatorInformation, gaps=True)
        return self._inside

    def _introduce(self, seed: int) -> None:
        """Store the seed of the global generators."""
        self._seed = seed

    def _join(self, muscle: Any = None, brain: Any = None) -> None:
        """Create the actual filter for a palaestrAI muscle or brain, or with neither, for one of ours."""
        self._called_by_brain = brain is not None
        self._make(self._seed)
        self._set_up(self._stand_in if muscle is brain is None else muscle, brain)

    def _switch(self, mode: Any) -> None:
        self._stand_in.mode = mode

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        with self.generators:
            sensors, _ = self.part.muscle_pre_process(self._sensors(readings), self._actuators.empty())
        return vector_of(self._inside[0], sensors, self._source)

    def muscle_post_process(self, setpoints: FloatVector) -> FloatVector:
        carried = self.carried or MuscleData(None)
        with self.generators:
            infos, carried.data = self.part.muscle_post_process(self._proposed(setpoints), carried.data)
        return vector_of(self._outside[1], infos, self._source)

    def brain_pre_process(self, experience: Experience) -> Experience:
        if self._called_by_brain:
            return experience
        with self.generators:
            muscle, data = self.part.brain_pre_process(experience.muscle, experience.data)
        return replace(experience, muscle=muscle, data=data)

    def brain_post_process(self, update: Any) -> Any:
        if self._called_by_brain:
            return update
        with self.generators:
            return self.part.brain_post_process(update)

    @property
    def _source(self) -> str:
        return f"filter {self.wrapped_class.__name__}"

    def _set_up(self, muscle: Any, brain: Any = None) -> None:
        self.part.muscle, self.part.brain = muscle, brain
        with self.generators:
            self.part.setup()


def _layout(infos: Sequence[Any]) -> Layout:
    return Layout([str(info.uid) for info in infos], [our_space(info.space) for info in infos])

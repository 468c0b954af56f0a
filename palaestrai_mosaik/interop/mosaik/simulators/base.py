"""The base class of our simulators, and the sum of their inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mosaik_api_v3
import numpy as np

from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import SimulationError

Inputs = Mapping[str, Mapping[str, Mapping[str, Any]]]

#: a model: whether a scenario creates it, its parameters, its attributes
Model = tuple[bool, Sequence[str], Sequence[str]]


class TimeBased(mosaik_api_v3.Simulator):
    """A time-based simulator that steps itself every ``step_size`` ticks; subclasses :meth:`compute`."""

    MODELS: ClassVar[Mapping[str, Model]]
    METHODS: ClassVar[Sequence[str]] = ()

    def __init__(self) -> None:
        models = {
            name: {"public": public, "params": list(params), "attrs": list(attributes)}
            for name, (public, params, attributes) in self.MODELS.items()
        }
        meta = {
            "api_version": "3.0",
            "type": "time-based",
            "models": models,
            "extra_methods": list(self.METHODS),
        }
        super().__init__(meta)
        self.step_size = 900
        #: length of a tick in seconds
        self.time_resolution = 1.0
        #: the values of the entities, by entity and attribute
        self.outputs: dict[str, dict[str, Any]] = {}
        self._rng: np.random.Generator | None = None

    def init(  # type: ignore[override]  # mosaik calls it with what the scenario gives
        self, sid: str, time_resolution: float = 1.0, step_size: int = 900, seed: int | None = None
    ) -> Any:
        """Set the lengths of a tick and of a step, and the seed.

        Args:
            sid: mosaik's id of the simulator.
            time_resolution: seconds of a tick.
            step_size: ticks of a step, an integer of at least 1.
            seed: seed of :attr:`rng`, an integer. Write ``"{seed}"`` in a run document.

        Raises:
            SimulationError: an argument is invalid.
        """
        if not isinstance(step_size, int) or isinstance(step_size, bool) or step_size < 1:
            raise SimulationError(
                f"{sid}: step_size is a whole number of ticks, at least 1, not {step_size!r}"
            )
        if seed is not None:
            if not isinstance(seed, int) or isinstance(seed, bool):
                raise SimulationError(f"{sid}: seed is a whole number, not {seed!r}")
            self._rng = seeding.generator(seed)
        self.step_size, self.time_resolution = step_size, time_resolution
        return self.meta

    @property
    def rng(self) -> np.random.Generator:
        """The simulator's own random generator.

        Raises:
            SimulationError: the simulator has no seed.
        """
        if self._rng is None:
            raise SimulationError(
                f"{type(self).__name__} draws random numbers and has no seed: give it the parameter 'seed', in a "
                "run document 'seed: \"{seed}\"'"
            )
        return self._rng

    @property
    def seconds(self) -> float:
        """The length of a step in seconds."""
        return self.step_size * self.time_resolution

    def step(self, time: int, inputs: Inputs, max_advance: int) -> int:
        self.compute(time, inputs)
        return time + self.step_size

    def compute(self, time: int, inputs: Inputs) -> None:
        """Compute the :attr:`outputs` of ``time``."""
        raise NotImplementedError

    def get_data(self, outputs: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
        return {eid: {name: self.outputs[eid][name] for name in names} for eid, names in outputs.items()}


def total(inputs: Mapping[str, Mapping[str, Any]], name: str) -> float | None:
    """Return the sum of an entity's inputs at an attribute, or ``None`` without inputs.

    Raises :class:`SimulationError` for a value that is not a number.
    """
    senders = {source: value for source, value in inputs.get(name, {}).items() if value is not None}
    if not senders:
        return None
    for source, value in senders.items():
        if not isinstance(value, int | float):
            raise SimulationError(f"{name} from {source} is no number: {value!r}")
    return float(sum(senders.values()))

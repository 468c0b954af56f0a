"""The dummy agent, which uses every part of the agent API and learns nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent.brain import Brain
from palaestrai_mosaik.agent.dumper import BrainDumper
from palaestrai_mosaik.agent.memory import Memory
from palaestrai_mosaik.agent.muscle import BatchMuscle, BatchObjective, BatchReadings, BatchRows
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import BrainDumpError
from palaestrai_mosaik.types import ActuatorInformation, Discrete, Mode, SensorInformation, Space
from palaestrai_mosaik.types.arrays import FloatMatrix


class DummyBrain(Brain):
    """Counts the actions of its muscle, and stores the count in its dump.

    Args:
        store_path: additional directory for the dumps, read by the framework and not by the brain;
            ``None`` for none.
    """

    def __init__(self, store_path: str | None = None):
        self.store_path = store_path
        self.count = 0

    def thinking(self, muscle_id: str, data_from_muscle: Any) -> Any:
        self.count = 0 if data_from_muscle is None else int(data_from_muscle) + 1
        # a count of 0 is no update
        return self.count or None

    def load(self) -> None:
        self.count = _count_in(BrainDumper.load_brain_dump(self._dumpers), self.name)

    def store(self) -> None:
        BrainDumper.store_brain_dump(BytesIO(json.dumps({"count": self.count}).encode()), self._dumpers)


class DummyMuscle(BatchMuscle):
    """Samples the space of every actuator.

    Args:
        count_upwards: whether actuators with a :class:`Discrete` space count upwards, modulo the size of the
            space, instead.
    """

    def __init__(self, count_upwards: bool = False):
        self.count_upwards = count_upwards
        self.iter = 0

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        for actuator in actuators_available:
            actuator.value = self._value(actuator.space)
        return actuators_available, self.iter

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, list[int]]:
        setpoints = np.empty((len(batch.bodies), batch.actuators.size))
        for row, body in zip(setpoints, batch.bodies.tolist(), strict=True):
            for space, part in zip(batch.actuators.spaces, batch.actuators.slices, strict=True):
                row[part] = space.flatten(self._value(space, self.rngs[body]))
        return setpoints, [self.iter] * len(setpoints)

    def _value(self, space: Space, rng: np.random.Generator | None = None) -> Any:
        if self.count_upwards and isinstance(space, Discrete):
            return space.start + self.iter % space.n
        return space.sample(rng)

    def prepare_model(self) -> None:
        """In a test, continue the count of a dummy brain; in train mode, its updates do so.

        A muscle that does not count needs no model, and may belong to a brain of any kind.
        """
        if self.count_upwards and self.mode is Mode.TEST:
            self.iter = _count_in(self.load(), self.uid)

    def update(self, update: Any) -> None:
        self.iter = update


def _count_in(dump: BinaryIO, name: str) -> int:
    """Read the count from the dump of a dummy brain."""
    try:
        return int(json.loads(dump.read())["count"])
    except (ValueError, KeyError, TypeError) as error:
        raise BrainDumpError(
            f"the dump of dummy brain {name!r} is damaged: {files.reading_fault(error)}"
        ) from None


class DummyObjective(BatchObjective):
    """Sums the rewards that the environment gave for the last action."""

    def internal_reward(self, memory: Memory, **kwargs: Any) -> float:
        return float(sum(memory.tail(1).rewards[-1].tolist()))

    def internal_rewards(self, rows: BatchRows) -> npt.ArrayLike:
        return np.array([float(sum(row)) for row in rows.rewards.tolist()])

"""The contract of an environment, which agents act in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import RenderError
from palaestrai_mosaik.core.importing import class_name
from palaestrai_mosaik.types import ActuatorInformation, RewardInformation, SensorInformation, Topology
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector
from palaestrai_mosaik.types.vectors import initial_values

#: values of several environments: a list with an entry, or an array with a row, for each
Rows = Sequence[Any] | npt.NDArray[Any]


@dataclass(slots=True)
class EnvironmentBaseline:
    """The declaration of an environment, made once before anything runs.

    Attributes:
        sensors: the sensors, with their initial readings.
        actuators: the actuators; a value, if any, is the set-point that holds until an agent sends
            another.
        rewards: the rewards that the environment itself computes, in the order of
            :attr:`EnvironmentState.rewards`.
        start: the date of tick 0.
        world_model: any static description to be stored.
        topology: the connections of its parts, with the sensors and actuators of each, to be stored and drawn.
    """

    sensors: Sequence[SensorInformation]
    actuators: Sequence[ActuatorInformation]
    rewards: Sequence[RewardInformation] = ()
    start: datetime | None = None
    world_model: Any = None
    topology: Topology | None = None


@dataclass(slots=True)
class EnvironmentState:
    """One state of an environment.

    Attributes:
        readings: the readings of all sensors in the order of the baseline, each flattened
            (:meth:`Space.flatten`) and concatenated; shape ``(n_readings,)``, float64. A float64 array is
            passed on by reference, so an environment must create a new one for each state; a list, or an array
            of another dtype, is converted. All are finite, except that NaN marks a missing value of a sensor
            declared with ``may_be_missing``.
        rewards: one finite float for each declared reward. No agent receives those of an episode's first state,
            which may be NaN.
        terminated: the environment itself ended (in Gymnasium's sense).
        truncated: time ran out.
        world_state: anything else to store, JSON-serialisable or made so by the document's
            ``state_transformer``.
    """

    readings: FloatVector
    rewards: Sequence[float] | FloatVector = field(default_factory=tuple)
    terminated: bool = False
    truncated: bool = False
    world_state: Any = None


class Together(Protocol):
    """Steps several environments of one class together and returns their results as rows.

    For environments that step faster together than one by one (:meth:`Environment.together`).
    """

    #: index of the environment being stepped, for the note at its exception
    at: int

    def step(
        self, places: Sequence[int], setpoints: FloatMatrix
    ) -> tuple[Rows, Rows, Sequence[bool], Sequence[bool]]:
        """Step some of the environments.

        Args:
            places: their indices.
            setpoints: a read-only row for each.

        Returns:
            Readings, rewards, terminated and truncated, each with an entry (or an array's row) per
            environment, equal to the result of :meth:`Environment.step`. The arrays are not written to again.
        """


class World(ABC):
    """The base of all environments: identity, clock, randomness, life cycle.

    The constructor receives the document's ``params``. The framework then sets
    :attr:`uid`, calls :meth:`setup` once, and before every episode sets a fresh
    :attr:`rng`, which depends only on seed, phase, uid, worker and episode.
    """

    #: mosaik ticks from one state to the next
    step_size: int = 1
    #: the ``uid`` in the document
    uid: str = ""
    #: the environment's own random generator, new for every episode
    rng: np.random.Generator
    #: parameters without effect, each with the reason; checking a document warns of them
    without_effect: Mapping[str, str] = {}
    #: the result of :meth:`setup`
    baseline: EnvironmentBaseline | None = None
    #: how to allow NaN in a sensor's readings, for error messages; empty if it cannot be allowed
    missing_remedy: str = "declare its sensor with may_be_missing=True"
    #: whether the environment itself can end an episode
    ends: bool = True
    #: whether rewards accumulate over an episode, as in a game: lists and figures then open with an episode's sum, the
    #: return, instead of its mean
    rewards_accumulate: bool = False
    #: whether :meth:`setup` speeds up later setups of the process (by caching files, for example) and
    #: leaves no thread and no open file: such an environment is set up once before processes are forked
    #: for many runs
    shares_setup: ClassVar[bool] = False
    #: worker index and episode number of the running episode
    worker: int = 0
    episode: int = 0

    @abstractmethod
    def setup(self) -> EnvironmentBaseline:
        """Prepare the environment and return its baseline. Called once."""

    def state(self) -> Any:
        """Return the state that outlasts an episode, to be pickled, or ``None``.

        It is part of a run's checkpoints. Override it only if something is kept between episodes.
        """
        return None

    def restore(self, state: Any) -> None:
        """Continue from the result of :meth:`state`, after :meth:`setup` in another process."""

    def takes_reward(self, reward: Any) -> bool:
        """Return whether the environment computes the document's ``reward`` itself and keeps the object.

        Called before :meth:`setup`. If true, the baseline and the states include the reward.
        """
        return False

    def source_of(self, sensor: str | None) -> str:
        """Name the source of a sensor's readings (``None``: of the rewards), for error messages."""
        return class_name(type(self))

    def enable_frames(self) -> None:
        """Prepare for :meth:`render`; called before :meth:`setup`, only if the document requests frames.

        Raises:
            RenderError: the environment cannot render frames.
        """
        if type(self).render is World.render:
            raise RenderError(
                f"environment {self.uid!r} cannot render frames: its class {type(self).__name__} has no method "
                "'render'. Give it one that returns a uint8 array (height, width, 3), or remove 'frames' from its entry"
            )

    def render(self) -> Any:
        """Return a picture of the newest state, to be stored: Gymnasium's ``rgb_array``.

        Called after :meth:`enable_frames`, for the states that the document requests. It must not draw random
        numbers, nor change anything that later states depend on.

        Returns:
            A uint8 array (height, width, 3) of red, green and blue, or ``None`` if this state has no picture.
        """
        return None

    def shutdown(self) -> None:
        """Release what :meth:`setup` acquired. Called once, also after a failure."""


class Environment(World):
    """An environment implemented by one class. ``setup`` and ``step`` are mandatory.

    :meth:`reset` returns the state at tick 0 of an episode; at every later multiple
    of :attr:`step_size` the framework calls :meth:`step` with the set-points in force.
    """

    #: an actuator without a new set-point keeps its last one (else it reads NaN)
    hold_setpoints: ClassVar[bool] = True

    def reset(self) -> EnvironmentState:
        """Start a new episode and return its first state.

        Override it if the environment has state.

        Returns:
            The state at tick 0, by default the readings and rewards of the baseline.
        """
        baseline = self.setup() if self.baseline is None else self.baseline
        parts = [s.space.flatten(s.value) for s in baseline.sensors]
        readings = np.concatenate(parts) if parts else np.empty(0)
        return EnvironmentState(readings, initial_values(baseline.rewards))

    @abstractmethod
    def step(self, setpoints: npt.NDArray[Any]) -> EnvironmentState:
        """Advance by :attr:`step_size` ticks and return the new state.

        Args:
            setpoints: shape ``(n_setpoints,)``, read-only: the flattened set-points of all actuators in the
                order of the baseline. float64, with NaN for actuators that never received a set-point; int64
                if all actuators are integers (``Discrete``, for instance) and each has a set-point.

        Returns:
            The new state, with new arrays.
        """

    @classmethod
    def together(cls, copies: Sequence[Any]) -> Together | None:
        """Return an object that steps ``copies`` of this class faster than one by one.

        Args:
            copies: the environments, after their :meth:`setup`.

        Returns:
            The object, or ``None`` if there is no faster way, as by default.
        """
        return None


class Reward(ABC):
    """Computes one or more named rewards from an environment's state.

    If the document names one for an environment, it replaces the environment's own
    rewards. The constructor receives the document's ``params``.
    """

    def setup(self, baseline: EnvironmentBaseline) -> Sequence[RewardInformation]:
        """Declare the rewards and look up sensors by uid. Called once.

        Args:
            baseline: the environment's baseline.

        Returns:
            The rewards, by default one that is called like the class and has no bounds.
        """
        from palaestrai_mosaik.types import Box

        return [RewardInformation(0.0, Box(-np.inf, np.inf, shape=()), type(self).__name__)]

    def _join(self, environment: World) -> None:
        """Hook for adapters, called before the environment is set up."""

    @abstractmethod
    def __call__(self, state: EnvironmentState) -> Sequence[float] | FloatVector | float:
        """Return one float for each declared reward (a bare float if there is one)."""


class EnvironmentStateTransformer(ABC):
    """Changes an environment's state before it is stored, not the state that agents see."""

    def setup(self, baseline: EnvironmentBaseline) -> None:
        """Inspect the environment's baseline; called once, before the first state.

        Args:
            baseline: the environment's baseline.
        """

    def _join(self, environment: World) -> None:
        """Hook for adapters, called before the environment is set up."""

    @abstractmethod
    def __call__(self, environment_state: EnvironmentState) -> EnvironmentState:
        """Return the state to store, a new object: do not modify the argument."""

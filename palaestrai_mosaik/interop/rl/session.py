"""Episodes of a run document in which the caller controls some of the agents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.experiment import AnyDocument, ClassSpec, as_document
from palaestrai_mosaik.simulation.body import Body, Row
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout

from .driver import Driver, Options, checked_seed, choose, find_phase

#: the reward name that selects the objective of the document's agent
OBJECTIVE = "objective"


class ExternalMuscle(Muscle):
    """Represents the caller: sets the caller's decision."""

    decision: FloatVector

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        assert isinstance(actuators_available, ActuatorSetpoints)
        actuators_available.vector = self.decision
        return actuators_available, None


@dataclass(slots=True)
class Turn:
    """The acting players, and the results of the caller's players since the last turn.

    ``time``: mosaik's ticks since the start of the episode. ``acting``: the players that act now, in
    the document's order; empty if the episode is ``over``, or if some players have ended and the
    others do not act at this time. By player: ``readings`` of those that act or have just ended;
    ``rewards`` of those whose last action was rewarded since the last turn, with its ``infos``:
    ``objective``, ``rewards`` by name (all of the environments') and ``time``; ``terminated`` and
    ``truncated`` of those that have just ended.
    """

    time: int
    over: bool
    acting: tuple[str, ...] = ()
    readings: dict[str, FloatVector] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    terminated: dict[str, bool] = field(default_factory=dict)
    truncated: dict[str, bool] = field(default_factory=dict)
    infos: dict[str, dict[str, Any]] = field(default_factory=dict)


class Player:
    """A body that the caller controls.

    ``name``: that of its agent, with ``@<number>`` if the agent has ``bodies``. ``sensors`` and
    ``actuators``: its channels, after the agent's filters.
    """

    def __init__(self, body: Body, reward: str):
        self.body = body
        self.name, self.agent = body.name, body.agent
        self.sensors: Layout = body.muscle_sensors
        self.actuators: Layout = body.muscle_actuators
        self.reward_names: Sequence[str] = body.channels.rewards
        self._column = reward_column(reward, self.reward_names, self.name)
        self._row: Row | None = None
        self._out = False

    def begin(self) -> None:
        """Reset for a new episode."""
        self._row = None
        self._out = False

    def report(self, turn: Turn) -> None:
        """Add the results since the last turn to ``turn``."""
        body, name = self.body, self.name
        row = body.closed
        if row is not None and row is not self._row:
            self._row = row
            turn.rewards[name] = self._reward(row)
            turn.infos[name] = {
                "time": turn.time,
                OBJECTIVE: row.objective,
                "rewards": dict(zip(self.reward_names, row.rewards.tolist(), strict=True)),
            }
            add_info(turn.infos[name], body)
        out = body.out or turn.over
        if out and not self._out:
            turn.terminated[name], turn.truncated[name] = body.ends()
            readings = body.channels.readings()
            turn.readings[name] = readings if body.filters is None else body.filters.pre(readings)
        self._out = out

    def observe(self) -> FloatVector:
        """Return the readings that it acts on."""
        return self.body.look_ahead()

    def decide(self, setpoints: npt.ArrayLike) -> None:
        """Set the set-points (set-points,) of the next action. Raises :class:`ActionError`."""
        vector = np.array(setpoints, dtype=np.float64)
        if vector.shape != (self.actuators.size,):
            raise ContractError(
                f"the set-points of {self.name!r} have shape {vector.shape}, expected ({self.actuators.size},)"
            )
        self.actuators.check(vector)
        self.body.muscle.decision = vector  # type: ignore[attr-defined]

    def _reward(self, row: Row) -> float:
        if self._column is not None:
            return float(row.rewards[self._column])
        if math.isnan(row.objective) and self.body.objective is not None and not np.isnan(row.rewards).any():
            # the objective has no value for this row; a NaN among the rewards is passed on
            return 0.0
        return row.objective


def add_info(info: dict[str, Any], body: Body) -> None:
    """Add the infos of a body's environments to ``info``.

    ``infos`` has those of all environments with an info, by uid. If there is only one, and its info is not one of
    several agents, its entries (``cost``, ``is_success``) are also added directly, without replacing others.
    """
    infos: dict[str, Any] = {}
    direct: Mapping[str, Any] = {}
    for handle in body.handles:
        state = handle.state.world_state if handle.state is not None else None
        if not isinstance(state, Mapping):
            continue
        for key in ("info", "infos"):
            if isinstance(state.get(key), Mapping):
                infos[handle.uid] = _with_arrays(state[key])
                direct = infos[handle.uid] if key == "info" else {}
    if infos:
        for key, value in direct.items() if len(infos) == 1 else ():
            info.setdefault(key, value)
        info["infos"] = infos


def _with_arrays(info: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored info with its lists converted back to arrays."""
    return {
        key: np.asarray(value)
        if isinstance(value, list)
        else _with_arrays(value)
        if isinstance(value, Mapping)
        else value
        for key, value in info.items()
    }


def reward_column(reward: str, names: Sequence[str], who: str) -> int | None:
    """Return the index of ``reward`` among ``names``; ``None`` for the objective of ``who``."""
    if reward == OBJECTIVE:
        return None
    indices = [i for i, name in enumerate(names) if name == reward or name.endswith(f".{reward}")]
    if len(indices) == 1:
        return indices[0]
    if indices:
        raise ContractError(f"several rewards of {who!r} are called {reward!r}: {', '.join(names)}")
    allowed = [OBJECTIVE, *names]
    raise ContractError(
        f"{who!r} has no reward {reward!r}{did_you_mean(reward, allowed)}; there is {', '.join(allowed)}"
    )


class Session:
    """Runs the episodes of one phase, in which the caller controls some agents.

    ``document``: a file, plain data, or a loaded document. ``phase``: its name or number (``None``:
    the first one). ``learners``: the caller's agents (``None``: all). Their ``filters`` remain
    between them and the environments, but do not learn; their objective is the reward, unless ``reward`` names
    one of an environment. Nothing is recorded.

    The other agents act in the mode of the phase. ``options`` has their learning, their store, and the seed.

    Only one episode runs at a time. It is ended, with its simulators, when the session is closed or
    garbage-collected, or when the interpreter exits.

    Raises :class:`DocumentError` if the document cannot be run, :class:`ContractError` for unknown names.
    """

    def __init__(
        self,
        document: AnyDocument,
        *,
        phase: str | int | None = None,
        learners: Sequence[str] | None = None,
        reward: str = OBJECTIVE,
        options: Options | None = None,
    ):
        self.document = as_document(document)
        phase_spec = find_phase(self.document, phase)
        names = [spec.name for spec in phase_spec.agents]
        controlled = names if learners is None else [choose(names, name, "agent") for name in learners]
        muscle = ClassSpec(f"{__name__}:{ExternalMuscle.__name__}")
        self._driver = Driver(self.document, phase_spec, dict.fromkeys(controlled, muscle), options)
        self._driver.close_with(self)
        self._external_control = self._driver.external_control
        self.phase = self._driver.phase
        try:
            bodies = [body for body in self._driver.worker.bodies if body in self._external_control.bodies]
            self.players = {body.name: Player(body, reward) for body in bodies if isinstance(body, Body)}
        except BaseException:
            self.close()
            raise
        self._turn = Turn(0, True)

    @property
    def taking_turns(self) -> bool:
        """Whether agents act one after the other."""
        return self._driver.coordinator.taking_turns

    @property
    def over(self) -> bool:
        """Whether no episode is running: none has begun, it has ended, or it has failed."""
        return self._driver.over

    def reset(self, seed: int | None = None) -> Turn:
        """Start the next episode; return its first turn.

        Episodes are numbered from 0, and their random streams are those of the run's episodes. With
        ``seed`` they restart at 0, with the streams of the document with that seed; the memories of muscles
        and objectives are cleared.

        Raises :class:`ContractError` if a player has ended before it could act.
        """
        seed = None if seed is None else checked_seed(seed)
        for player in self.players.values():
            player.begin()
        self._driver.reset(seed)
        turn = self._next()
        if turn.terminated:
            self._driver.end()
            raise ContractError(
                f"episode {self._driver.episode} of {', '.join(turn.terminated)} was over with its first state, before there "
                "was anything to decide"
            )
        return turn

    def step(self, setpoints: Mapping[str, npt.ArrayLike]) -> Turn:
        """Perform the actions of the acting players; return the next turn.

        ``setpoints``: for each of them, a vector (set-points,) in the order of its actuators; NaN means no new
        set-point. Raises :class:`ActionError` if one lies outside its space; the turn then continues.
        """
        if self.over:
            raise ContractError("the episode is over, or was never begun: reset first")
        acting = self._turn.acting
        if len(setpoints) != len(acting) or not all(name in setpoints for name in acting):
            raise ContractError(
                f"it is the turn of {', '.join(acting) or 'nobody'}, but there are set-points of "
                f"{', '.join(map(str, setpoints)) or 'nobody'}"
            )
        for name in acting:
            self.players[name].decide(setpoints[name])
        self._driver.advance()
        return self._next()

    def state(self) -> FloatVector:
        """Return the newest readings of all sensors of all environments, concatenated."""
        if self._driver.episode < 0:
            raise ContractError("there is no state before the first reset")
        parts = [
            handle.vector[..., : handle.n_readings].reshape(-1) for handle in self._driver.coordinator.handles
        ]
        return np.concatenate(parts)

    def state_bounds(self) -> tuple[FloatVector, FloatVector]:
        """Return the lowest and the highest possible values of :meth:`state`."""
        # the sensors of a batched environment repeat for each incarnation
        layouts = [handle.sensors for handle in self._driver.coordinator.handles for _ in handle.names]
        return np.concatenate([layout.low for layout in layouts]), np.concatenate(
            [layout.high for layout in layouts]
        )

    def close(self) -> None:
        """End the running episode and release everything."""
        self._driver.close()

    def _next(self) -> Turn:
        over = self._driver.over
        turn = self._turn = Turn(self._driver.coordinator.time, over)
        for player in self.players.values():
            player.report(turn)
        if not over:
            turn.acting = tuple(body.name for body in self._external_control.acting)
            for name in turn.acting:
                turn.readings[name] = self.players[name].observe()
        return turn

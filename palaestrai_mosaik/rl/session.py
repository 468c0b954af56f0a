"""Episodes of a run document in which the caller decides for some of the agents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.experiment import AnyDocument, ClassSpec, as_document
from palaestrai_mosaik.simulation.body import Body, Row
from palaestrai_mosaik.types import ActuatorInformation, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout

from .driver import Driver, Options, checked_seed, choose, find_phase

#: the reward that is the objective of the document's agent
OBJECTIVE = "objective"


class ExternalMuscle(Muscle):
    """Stands for the caller: sets what he has decided."""

    decision: FloatVector

    def propose_actions(
        self, sensors: Sequence[SensorInformation], actuators_available: Sequence[ActuatorInformation]
    ) -> tuple[Sequence[ActuatorInformation], Any]:
        assert isinstance(actuators_available, ActuatorSetpoints)
        actuators_available.vector = self.decision
        return actuators_available, None


@dataclass(slots=True)
class Turn:
    """Whose turn it is, and what has happened to the caller's players since the last one.

    ``time``: mosaik's ticks since the beginning of the episode. ``acting``: the players that act now, in
    the document's order; none, if the episode is ``over``, or if some of its players have ended and the
    others do not act at this time. By player: ``readings`` of those that act and of those whose episode has
    just ended; ``rewards`` of those whose last action was rewarded since the last turn, with ``infos`` of
    it: ``objective``, ``rewards`` by name (all that the environments say) and ``time``; ``terminated`` and
    ``truncated`` (never both) of those whose episode has just ended.
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
    """A body that the caller decides for.

    ``name``: that of its agent, with ``@<number>`` if the agent has ``bodies``. ``sensors`` and
    ``actuators``: what the agent's filters, if it has some, show of them.
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
        """Forget the last episode."""
        self._row = None
        self._out = False

    def report(self, turn: Turn) -> None:
        """Add to ``turn`` what has happened since the last one."""
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
            ended = any(handle.terminated for handle in body.handles)
            turn.terminated[name], turn.truncated[name] = ended, not ended
            readings = body.channels.readings()
            turn.readings[name] = readings if body.filters is None else body.filters.pre(readings)
        self._out = out

    def observe(self) -> FloatVector:
        """Return what it acts on."""
        return self.body.look_ahead()

    def decide(self, setpoints: npt.ArrayLike) -> None:
        """Take the set-points (set-points,) of the next action. Raises :class:`ActionError`."""
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
            # the objective has no value for this row; of a reward that is NaN, nothing is hidden
            return 0.0
        return row.objective


def add_info(info: dict[str, Any], body: Body) -> None:
    """Add to what a player is ``told`` what the environments of its channels say in their infos.

    ``infos`` has those of all that say something, by uid. If it is only one, and about no agent of its own, what it
    says is also added as it is (``cost``, ``is_success``), but for keys that are there already.
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
    """Return a stored info with arrays again where lists stand for them."""
    return {
        key: np.asarray(value)
        if isinstance(value, list)
        else _with_arrays(value)
        if isinstance(value, Mapping)
        else value
        for key, value in info.items()
    }


def reward_column(reward: str, names: Sequence[str], who: str) -> int | None:
    """Return the place of ``reward`` among the ``names`` of rewards; ``None`` for the objective of ``who``."""
    if reward == OBJECTIVE:
        return None
    found = [i for i, name in enumerate(names) if name == reward or name.endswith(f".{reward}")]
    if len(found) == 1:
        return found[0]
    if found:
        raise ContractError(f"several rewards of {who!r} are called {reward!r}: {', '.join(names)}")
    allowed = [OBJECTIVE, *names]
    raise ContractError(
        f"{who!r} has no reward {reward!r}{did_you_mean(reward, allowed)}; there is {', '.join(allowed)}"
    )


class Session:
    """Runs the episodes of one phase, in which the caller decides for some agents.

    ``document``: a file, plain data, or a document that was read. ``phase``: its name or number (``None``:
    the first one). ``learners``: the agents that are the caller's (``None``: all). Their ``filters`` stay
    between them and the environments, but do not learn; their objective is the reward, or ``reward`` names
    one that an environment gives. ``seed`` replaces the document's. Nothing is recorded.

    The others act in the mode of the phase. ``options`` says whether they learn, and where they load from.

    Only one episode goes on at a time. What goes on when the session is closed, collected as garbage, or
    left by the interpreter is ended, with its simulators.

    Raises :class:`DocumentError` where the document cannot be run, :class:`ContractError` for names that it
    does not have.
    """

    def __init__(
        self,
        document: AnyDocument,
        *,
        phase: str | int | None = None,
        learners: Sequence[str] | None = None,
        seed: int | None = None,
        reward: str = OBJECTIVE,
        options: Options | None = None,
    ):
        self.document = as_document(document)
        options = Options() if options is None else options
        if seed is not None:
            options = replace(options, seed=seed)
        found = find_phase(self.document, phase)
        names = [spec.name for spec in found.agents]
        own = names if learners is None else [choose(names, name, "agent") for name in learners]
        muscle = ClassSpec(f"{__name__}:{ExternalMuscle.__name__}")
        self._driver = Driver(self.document, found, dict.fromkeys(own, muscle), options)
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
        """Whether there is no episode that could go on: none has begun, it has ended, or something has failed."""
        return self._driver.over

    def reset(self, seed: int | None = None) -> Turn:
        """Begin the next episode; return its first turn.

        Episodes are numbered from 0, and their random streams are those of the run's episodes. With
        ``seed`` they begin at 0 again, with the streams that the document would have with that seed; what
        muscles and objectives remember of earlier episodes is forgotten.

        Raises :class:`ContractError` where one of the players has ended before it could act.
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
        """Let the players act whose turn it is; return the next turn.

        ``setpoints``: for each of them, a vector (set-points,) in the order of its actuators; NaN: no new
        set-point. Raises :class:`ActionError` where one lies outside its space; the turn is not over then.
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
        """Return the newest readings of all sensors of all environments, one after the other."""
        if self._driver.episode < 0:
            raise ContractError("there is no state before the first reset")
        parts = [
            handle.vector[..., : handle.n_readings].reshape(-1) for handle in self._driver.coordinator.handles
        ]
        return np.concatenate(parts)

    def state_bounds(self) -> tuple[FloatVector, FloatVector]:
        """Return the lowest and the highest values that :meth:`state` may have."""
        # a batched environment has the sensors of one incarnation, again and again
        layouts = [handle.sensors for handle in self._driver.coordinator.handles for _ in handle.names]
        return np.concatenate([one.low for one in layouts]), np.concatenate([one.high for one in layouts])

    def close(self) -> None:
        """End the episode that goes on, and let everything go."""
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

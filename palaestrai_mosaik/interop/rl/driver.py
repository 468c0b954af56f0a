"""Episodes of a run document in which the caller controls some of the agents."""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.core.errors import ContractError, StoreError, did_you_mean
from palaestrai_mosaik.experiment import (
    AgentSpec,
    AnyDocument,
    ClassSpec,
    PhaseSpec,
    RunDocument,
    as_document,
)
from palaestrai_mosaik.runner.brains import BrainKeeper, brain_keeper
from palaestrai_mosaik.runner.factory import WorkerPlan, all_conditions, call_all, make_handles
from palaestrai_mosaik.runner.interrupt import Interrupt
from palaestrai_mosaik.runner.learners import check_executions, make_learner
from palaestrai_mosaik.runner.preflight import Inspection
from palaestrai_mosaik.runner.recorded_sessions import ReplayContext, StoredSessions
from palaestrai_mosaik.runner.worker import EpisodeReport, EpisodeTask, Worker
from palaestrai_mosaik.runner.worker_pool import deliver
from palaestrai_mosaik.simulation.body import Body, Row
from palaestrai_mosaik.simulation.body_placement import place_bodies
from palaestrai_mosaik.simulation.external_control import ExternalControl
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.simulation.values import Tally
from palaestrai_mosaik.types import ActuatorInformation, Mode, SensorInformation
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import ActuatorSetpoints, Layout

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store


T = TypeVar("T")


def find_phase(document: RunDocument, phase: str | int | None) -> PhaseSpec:
    """Return a phase by name or number; by default the first one."""
    names = [spec.name for spec in document.phases]
    if phase is None:
        return document.phases[0]
    if isinstance(phase, str) and phase in names:
        return document.phases[names.index(phase)]
    if isinstance(phase, int) and not isinstance(phase, bool) and 0 <= phase < len(names):
        return document.phases[phase]
    listed = ", ".join(f"{i}: {name!r}" for i, name in enumerate(names))
    raise ContractError(
        f"run {document.uid!r} has no phase {phase!r}{did_you_mean(str(phase), names)}; it has {listed}"
    )


@dataclass(frozen=True)
class Options:
    """Options of the caller.

    Args:
        others_learn: whether, in train mode, agents other than the caller's also learn, and improve with each
            episode. Otherwise they act with their loaded (or initial) model, in the mode of the phase.
        store: the store that they load from. An agent that loads the model of an earlier phase of the same
            document loads it from the newest execution in the store.
        seed: replaces the document's; ``None``: the document's.
    """

    others_learn: bool = False
    store: Store | None = None
    seed: int | None = None


class Driver:
    """Runs episodes of ``phase`` of ``document`` in this thread, and stops at every turn of the caller's agents.

    ``outside`` has the muscle that represents the caller in each of the caller's agents; their brains
    and muscles in the document are not even imported. :meth:`reset` and :meth:`advance` return when one of their
    bodies must act, when one of them has ended, or when the episode is over.

    A forked process must not use an inherited driver. Closing it warns of values that were
    outside of their spaces.

    Raises :class:`DocumentError` if the document cannot be run.
    """

    def __init__(
        self,
        document: RunDocument,
        phase: PhaseSpec,
        outside: Mapping[str, ClassSpec],
        options: Options | None = None,
    ):
        self._process = os.getpid()
        self._turns: Iterator[None] | None = None
        self._endings: list[Callable[[], None]] = []
        #: counts of values outside of their spaces, by environment
        self._values: dict[str, Tally] = {}
        self.closed = False
        options = Options() if options is None else options
        #: the seed of the run, and the number of its newest episode
        self.seed = document.seed if options.seed is None else checked_seed(options.seed)
        self.episode = -1
        store = options.store
        agents = [
            _externally_controlled(spec, outside[spec.name])
            if spec.name in outside
            else _loading_from_instance(spec, phase, document, store)
            for spec in phase.agents
        ]
        phase = replace(phase, agents=tuple(agents), workers=1)
        try:
            self._set_up(document, phase, options, frozenset(outside))
        except BaseException:
            self.close()
            raise

    def _set_up(
        self, document: RunDocument, phase: PhaseSpec, options: Options, outside: frozenset[str]
    ) -> None:
        stored = StoredSessions.of(options.store)
        inspection = Inspection(_with_one_phase(document, phase), stored)
        inspection.raise_problems()
        self._endings.append(inspection.environments.close)
        (phase,) = inspection.phases
        check_executions([phase], document, options.store)
        keepers = self._keepers(document, phase, options.store)
        learners: dict[str, Learner] = {}
        handle_list = [inspection.environments.handle(spec) for spec in phase.environments]
        for spec in phase.agents if phase.mode is Mode.TRAIN else ():
            groups = place_bodies(spec, handle_list)[0]
            context = ReplayContext(document, phase, None)
            learner = make_learner(spec, context, keepers[spec.name], groups, options.store)
            if learner is not None:
                learners[spec.name] = learner
        plan = WorkerPlan(phase, document.conditions, document.seed, 0, keepers, stored)
        phase_conditions, of_run = all_conditions(phase, document.conditions)
        self.interrupt = Interrupt()
        handles = make_handles(phase.environments, stored, inspection.environments.take)
        self.worker = Worker(plan, handles, learners, [*phase_conditions, *of_run], self.interrupt, None)
        self._endings.append(self.worker.close)
        self.worker.on_report = self._report
        deliver(self.worker, learners)
        if not options.others_learn:
            for body in self.worker.bodies:
                body.learner = None
        self.phase = phase
        self.coordinator = self.worker.coordinator
        self.external_control = ExternalControl(
            [body for body in self.worker.bodies if body.agent in outside]
        )
        self.coordinator.external_control = self.external_control
        self._loop = asyncio.new_event_loop()
        self._endings.append(self._loop.close)

    def _keepers(
        self, document: RunDocument, phase: PhaseSpec, store: Store | None
    ) -> dict[str, BrainKeeper]:
        # without access to brains, create no folder, which a killed process would leave behind
        folder = Path(os.devnull, "of-no-brain")
        if any(spec.brain is not None or spec.load is not None for spec in phase.agents):
            temporary = tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-")
            self._endings.append(temporary.cleanup)
            folder = Path(temporary.name)
        return {spec.name: brain_keeper(spec, phase, document, folder, store) for spec in phase.agents}

    def close_with(self, owner: object) -> None:
        """Close when ``owner`` is garbage-collected, or when the process ends."""
        # unlike weakref.finalize, also at the end of multiprocessing's processes, such as those of AsyncVectorEnv
        Finalize(owner, self.close, exitpriority=100)

    def reset(self, seed: int | None = None) -> None:
        """End the running episode and start the next one.

        With ``seed``, it is episode 0 of a run with that seed, and the memories of muscles and objectives are
        cleared.
        """
        self._check()
        self.end()
        if seed is None:
            self.episode += 1
        else:
            self.seed, self.episode = seed, 0
            for body in self.worker.bodies:
                if body.memory is not None:
                    body.memory.clear()
        self._turns = self.worker.turns(EpisodeTask(self.episode, seed=self.seed), self._loop)
        self.advance()

    def advance(self) -> None:
        """Continue to the next turn; the caller must have decided for all acting bodies.

        Raises the exception that has stopped the episode, which is then over.
        """
        self._check()
        turns = self._turns
        if turns is None:
            raise ContractError("the episode is over, or was never begun: reset first")
        try:
            over = next(turns, True)
        except BaseException:
            self._turns = None
            raise
        if over:
            self._turns = None

    @property
    def over(self) -> bool:
        """Whether no episode is running."""
        return self._turns is None

    def end(self) -> None:
        """End the running episode, if any, and all that it has started."""
        turns, self._turns = self._turns, None
        if turns is not None:
            # a generator
            turns.close()  # type: ignore[attr-defined]

    def close(self) -> None:
        """Release everything, once; do nothing in a forked process."""
        if self.closed or os.getpid() != self._process:
            return
        self.closed = True
        call_all([self.end, self._warn, *reversed(self._endings)])

    def _report(self, report: EpisodeReport) -> None:
        for uid, tally in report.values.items():
            self._values.setdefault(uid, Tally()).add(tally)

    def _warn(self) -> None:
        for tally in self._values.values():
            for sentence in tally.sentences():
                warnings.warn(sentence, UserWarning, stacklevel=2)

    def _check(self) -> None:
        if self.closed:
            raise ContractError("it is closed: make another one")
        if os.getpid() != self._process:
            raise ContractError("it was made in another process, before this one was forked: make it here")


def _externally_controlled(spec: AgentSpec, muscle: ClassSpec) -> AgentSpec:
    """Return the agent with the caller as its muscle."""
    bodies = tuple(replace(body, muscle=muscle) for body in spec.bodies)
    return replace(spec, muscle=muscle, brain=None, load=None, replay=(), snapshots=None, bodies=bodies)


def _loading_from_instance(
    spec: AgentSpec, phase: PhaseSpec, document: RunDocument, store: Store | None
) -> AgentSpec:
    """Return an agent of the document; a model from its own run is loaded from an earlier execution."""
    load = spec.load
    if load is None or "instance" in load or "base" in load:
        return spec
    if load.get("experiment_run", document.uid) != document.uid:
        return spec
    if store is None:
        raise StoreError(
            f"agent {spec.name!r} loads what it has learned in an earlier phase of this run, and nothing is executed "
            f"before phase {phase.name!r} here: say with 'store' where an execution of run {document.uid!r} is kept, or "
            "let this agent be one of yours"
        )
    instance = store.find_instance(document.uid).uid
    return replace(spec, load={"phase": phase.index - 1, **load, "instance": instance})


def _with_one_phase(document: RunDocument, phase: PhaseSpec) -> RunDocument:
    """Return the document with this phase alone, and the origins of all its parts."""
    here = ("phases", phase.index)
    origins = {
        ("phases", 0, *path[2:]) if path[:2] == here else path: origin
        for path, origin in document.origins.items()
        if path[0] != "phases" or path[:2] == here
    }
    return replace(document, phases=(phase,), origins=origins)


def choose(names: Sequence[str], wanted: str, what: str) -> str:
    """Return ``wanted`` if it is one of ``names``; ``what`` is their kind, for the message."""
    if wanted not in names:
        raise ContractError(
            f"there is no {what} {wanted!r}{did_you_mean(wanted, names)}; there is {', '.join(names) or 'none'}"
        )
    return wanted


def check_copy(running: bool) -> None:
    """Raise :class:`ContractError` for a copy or pickle of an environment during a ``running`` episode.

    Simulators cannot be copied, and a restarted copy would silently lose the episode.
    """
    if running:
        raise ContractError(
            "an episode is running, and a copy or a pickle cannot go on with it: copy before the first reset, after "
            "the end of an episode, or make another environment of the same document"
        )


def check_options(made_by: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise :class:`ContractError` for an option that is not a keyword of ``made_by``."""
    parameters = inspect.signature(made_by).parameters.values()
    allowed = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
    for name in options:
        choose(allowed, name, "option")


def refuse_options(options: Mapping[str, Any] | None) -> None:
    """Raise :class:`ContractError` for options of a reset, because there are none."""
    if options:
        raise ContractError(f"there are no options of a reset, but {', '.join(options)} is given")


def checked_seed(seed: Any) -> int:
    """Return ``seed`` as an int. It must be an integer of at least 0, as in Gymnasium; numpy's are allowed."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ContractError(f"seed must be a whole number of at least 0, not {seed!r}")
    return int(seed)


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

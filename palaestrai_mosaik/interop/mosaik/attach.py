"""Attaches agents to worlds that a script builds and runs, and keeps their rows in memory.

For the engine, the learners and the store, the scenario is a run document.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.agent import FileBrainDumper, Memory
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.environment.environment import Reward
from palaestrai_mosaik.experiment import AgentSpec, ClassSpec, EnvironmentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.experiment.canonical import digest
from palaestrai_mosaik.experiment.model import DOCUMENT_VERSION, SimulationSpec
from palaestrai_mosaik.runner.brains import BrainKeeper
from palaestrai_mosaik.runner.descriptions import agent_record, environment_record
from palaestrai_mosaik.runner.factory import GivenPart, WorkerPlan, call_all, unused_model_warning
from palaestrai_mosaik.runner.interrupt import Interrupt
from palaestrai_mosaik.runner.learners import make_learner, refused_update_warning, store_model
from palaestrai_mosaik.runner.recorded_sessions import ReplayContext
from palaestrai_mosaik.runner.worker import EpisodeReport, EpisodeTask, Recording, Worker
from palaestrai_mosaik.runner.worker_pool import deliver
from palaestrai_mosaik.simulation.body import Body
from palaestrai_mosaik.simulation.body_placement import place_bodies
from palaestrai_mosaik.simulation.environment_handle import AgentSink, EnvironmentHandle, EnvironmentSink
from palaestrai_mosaik.simulation.event_loop import clean_up
from palaestrai_mosaik.simulation.frames import FrameSink
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.simulation.scheduler import run_method
from palaestrai_mosaik.simulation.values import Tally
from palaestrai_mosaik.store.records import BodyRecord, EnvironmentRecord, channel_columns
from palaestrai_mosaik.types import Mode, SimulationFlowControl
from palaestrai_mosaik.types.arrays import AgentRows, EnvironmentRows, FloatVector

from .agent import Agent, Sensors, load_of, part_of
from .world import (
    WORLD,
    Readings,
    RewardFunction,
    Rewards,
    Run,
    Scenario,
    check_wanted,
    found_in,
    run_episode,
    whole,
)

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store
    from palaestrai_mosaik.store.recorder import Status


#: the name of the only phase
PHASE = "scenario"


def describe(
    agents: Sequence[Agent], scenario: Scenario, uid: str, seed: int, mode: Mode, taking_turns: bool
) -> RunDocument:
    """Create the run document of a scenario. Its canonical form is only stored, and cannot be loaded."""
    names = [agent.name for agent in agents]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ContractError(f"there are two agents {name!r}")
    specs = tuple(_agent(agent, scenario, uid) for agent in agents)
    _check_unshared(specs)
    controller = "taking_turns" if taking_turns else "vanilla"
    environment = EnvironmentSpec(
        WORLD, f"{Scenario.__module__}:{Scenario.__name__}", step_size=scenario.step_size
    )
    phase = PhaseSpec(
        index=0,
        name=PHASE,
        environments=(environment,),
        agents=specs,
        simulation=SimulationSpec(controller, controller),  # type: ignore[arg-type]  # one of the two
        mode=mode,
    )
    canonical: dict[str, Any] = {
        "uid": uid,
        "seed": seed,
        "version": DOCUMENT_VERSION,
        "scenario": {
            "step_size": scenario.step_size,
            "mode": mode.value,
            "controller": controller,
            "agents": [_agent_entry(spec) for spec in specs],
        },
    }
    return RunDocument(
        uid, seed, DOCUMENT_VERSION, (phase,), (), canonical, digest(canonical), "a script", text=""
    )


def _agent(agent: Agent, scenario: Scenario, uid: str) -> AgentSpec:
    muscle = part_of(agent.name, "muscle", agent.muscle)
    if muscle is None:
        raise ContractError(f"agent {agent.name!r} has no muscle")
    sensors, actuators = scenario.owned[agent.name]
    if not sensors and not actuators:
        raise ContractError(f"agent {agent.name!r} has neither sensors nor actuators")
    return AgentSpec(
        agent.name,
        muscle,
        part_of(agent.name, "brain", agent.brain),
        part_of(agent.name, "objective", agent.objective),
        sensors,
        actuators,
        load_of(agent, uid, PHASE),
    )


def _check_unshared(specs: Sequence[AgentSpec]) -> None:
    """Raise :class:`ContractError` if two agents share an object."""
    owners: dict[int, str] = {}
    for spec in specs:
        for what, part in (("muscle", spec.muscle), ("brain", spec.brain), ("objective", spec.objective)):
            if isinstance(part, GivenPart) and owners.setdefault(id(part.part), spec.name) != spec.name:
                raise ContractError(
                    f"agents {owners[id(part.part)]!r} and {spec.name!r} have the same object as {what}: give each "
                    "one of its own, or the class"
                )


def _agent_entry(spec: AgentSpec) -> Mapping[str, Any]:
    parts: dict[str, ClassSpec | None] = {
        "muscle": spec.muscle,
        "brain": spec.brain,
        "objective": spec.objective,
    }
    classes = {
        what: {"name": part.name, "params": part.params} for what, part in parts.items() if part is not None
    }
    return {
        "name": spec.name,
        **classes,
        "sensors": list(spec.sensors),
        "actuators": list(spec.actuators),
        "load": spec.load,
    }


#: Ctrl-C, as raised by Python and as forwarded by asyncio
_INTERRUPTIONS = (KeyboardInterrupt, asyncio.CancelledError)


class Agents:
    """Agents of a scenario, which keep their learned state from world to world.

    Each run of a world to which they are attached is an episode. Use them in a ``with`` block, or call :meth:`close`
    after the last run.

    Args:
        agents: one :class:`Agent`, or several, in the order in which they act at the same time.
        step_size: ticks between two actions.
        rewards: see :func:`attach_agents`, which describes all arguments in detail. If ``None``, no rewards.
        ends: a function of the readings that returns whether the world ends. If ``None``, only ``until`` ends a run.
        sensors: additional sensors for ``rewards`` and ``ends``, which no agent observes.
        seed: the seed of all randomness of the agents.
        mode: ``train`` if brains learn, or ``test``.
        taking_turns: whether agents act one after the other instead of all at once.
        store: an open store for the results, or ``None``.
        name: the name of the run in the store, and in the folder of :meth:`dump`.

    Raises:
        ContractError: if an argument is invalid.
    """

    def __init__(  # noqa: PLR0913 (what a document says in many lines)
        self,
        agents: Agent | Sequence[Agent],
        *,
        step_size: int = 1,
        rewards: Rewards | None = None,
        ends: Callable[[Readings], bool] | None = None,
        sensors: Sensors | None = None,
        seed: int = 0,
        mode: Mode | str = "train",
        taking_turns: bool = False,
        store: Store | None = None,
        name: str = "scenario",
    ):
        members = _members(agents)
        seed = whole("seed", seed)
        reward, functions = _rewards(rewards)
        self.mode = _mode(mode)
        #: the reports of all runs, oldest first
        self.results: list[EpisodeReport] = []
        self._scenario = Scenario(members, sensors or {}, step_size, functions, ends)
        self._handle = EnvironmentHandle(self._scenario, reward)
        self._document = describe(members, self._scenario, name, seed, self.mode, taking_turns)
        (phase,) = self._document.phases
        keepers = {spec.name: BrainKeeper([], _loaded_from(spec.load)) for spec in phase.agents}
        groups = {spec.name: place_bodies(spec, [self._handle])[0] for spec in phase.agents}
        context = ReplayContext(self._document, phase, None)
        self._learners: dict[str, Learner] = {}
        for spec in phase.agents:
            warning = unused_model_warning(spec, self.mode)
            if warning:
                warnings.warn(warning, UserWarning, stacklevel=3)
            learner = make_learner(spec, context, keepers[spec.name], groups[spec.name], None)
            if learner is not None:
                self._learners[spec.name] = learner
        records = {spec.name: agent_record(spec, groups[spec.name]) for spec in phase.agents}
        world = environment_record(phase.environments[0], self._handle)
        self._store = None
        recording = None
        if store is not None:
            document = self._document
            self._store = store.begin_run(
                uid=document.uid,
                document=document.canonical,
                text=document.text,
                hash=document.hash,
                seed=seed,
                version=document.version,
            )
            recording = self._store.begin_phase(
                0,
                phase.name,
                mode=self.mode.value,
                workers=1,
                episodes=None,
                controller=phase.simulation.controller,
                environments=[world],
                agents=list(records.values()),
            )
        self._recording = recording
        self._rows = RecordedRows(
            {agent: Table(record.bodies[0]) for agent, record in records.items()}, Table(world), recording
        )
        plan = WorkerPlan(phase, (), seed, 0, keepers)
        learning = self._learners if self.mode is Mode.TRAIN else {}
        self._worker = Worker(plan, [self._handle], learning, [], Interrupt(), self._rows)
        self._worker.on_report = self._report
        deliver(self._worker, learning)
        self._counts = {False: 0, True: 0}
        #: the number of values outside of their spaces
        self._values = Tally()
        #: the first error of a run or of the ``with`` block
        self._failure: BaseException | None = None
        #: the task of the current or last run
        self._running: asyncio.Task[Any] | None = None
        self._closed = False

    def attach(self, world: Any, entities: Any = (), *, mode: Mode | str | None = None) -> Agents:
        """Attach the agents to a world for its next run.

        Args:
            world: a ``mosaik.World`` or ``AsyncWorld`` that has not been run.
            entities: the entities with the agents' sensors and actuators, or their parents. Not needed for the entities
                with which the agents were created.
            mode: ``"test"`` to run agents in train mode without learning. If ``None``, the agents' own mode.

        Returns:
            This object.

        Raises:
            ContractError: if an entity or attribute does not exist, or the world already has agents.
        """
        self._check_open()
        evaluation = self.mode is Mode.TRAIN and _mode(mode or self.mode) is Mode.TEST
        if mode is not None and self.mode is Mode.TEST and _mode(mode) is Mode.TRAIN:
            raise ContractError("these agents were made in test mode, without what learning needs")
        inner = getattr(world, "_async_world", world)
        if not hasattr(inner, "entity_graph"):
            raise ContractError(f"agents are attached to a mosaik.World or AsyncWorld, found {world!r}")
        found_entities = found_in(entities)
        available = found_entities or found_in(list(self._scenario.entities.values()))
        check_wanted(self._scenario.wanted, available)
        used = {name: available[name] for name, _, _ in self._scenario.wanted}
        if "run" in vars(inner):
            raise ContractError("agents are attached to this world already: attach all of them at once")

        async def with_agents(until: int, *args: Any, **options: Any) -> None:
            self._check_open()
            # mosaik runs a world only once
            del inner.run
            run = run_method(inner)
            self._running = asyncio.current_task()
            try:
                await self._run(inner, used, evaluation, until, lambda: run(until, *args, **options))
            except BaseException as error:
                self._failure = self._failure or error
                raise

        inner.run = with_agents
        if inner is not world:
            self._guard(world)
        return self

    async def _run(
        self, world: Any, entities: Mapping[str, Any], evaluation: bool, until: int, run: Run
    ) -> None:
        """Run mosaik's asynchronous ``world`` with the agents, by calling ``run``."""
        self._scenario.begins(until)
        task = EpisodeTask(self._counts[evaluation], evaluation=evaluation)
        self._counts[evaluation] += 1
        interruption: BaseException | None = None
        with self._worker.running(task) as running:
            try:
                await run_episode(running.episode, world, entities, run)
            except _INTERRUPTIONS as error:
                if self._worker.coordinator.episode != task.number:
                    raise
                # the episode has begun, so its report must be completed first
                interruption = error
        if interruption is not None:
            raise interruption

    def _guard(self, world: Any) -> None:
        """Make the synchronous ``world`` clean up its tasks and simulators if a run fails."""
        run = world.run

        def guarded(*args: Any, **options: Any) -> Any:
            del world.run
            try:
                return run(*args, **options)
            except BaseException as error:
                self._failure = self._failure or error
                if not world.loop.is_closed():
                    if self._running is not None and not self._running.done():
                        # asyncio raises Ctrl-C at once, without cancelling its tasks
                        clean_up(world.loop, self._running)
                    world.shutdown()
                raise

        world.run = guarded

    @property
    def result(self) -> EpisodeReport:
        """The report of the last run."""
        if not self.results:
            raise ContractError("there is no result yet: run the world")
        return self.results[-1]

    @property
    def outcomes(self) -> Mapping[str, Mapping[str, Any]]:
        """Sum, mean, minimum and maximum of objective and rewards of each agent in the last run."""
        return self.result.outcomes

    def memory(self, agent: str | None = None) -> Memory:
        """Return the memory of a learning agent's brain, or of another agent's muscle.

        Args:
            agent: the name of an agent; may be omitted if there is only one.
        """
        name = self._named(agent)
        if name in self._learners:
            return self._learners[name].brain.memory
        (body,) = self._worker.coordinator.agents[name]
        assert isinstance(body, Body)
        return body.memory

    def frame(self, agent: str | None = None) -> pd.DataFrame:
        """Return all steps of an agent in all runs, with one row per action and its results.

        The columns are ``episode``, ``evaluation``, ``step``, ``time`` (of the action, in ticks), ``reading.ID``,
        ``setpoint.ID``, ``reward.ID``, ``objective``, ``terminated`` and ``truncated``.

        Args:
            agent: the name of an agent; may be omitted if there is only one.
        """
        return self._rows.tables[self._named(agent)].frame()

    def states(self) -> pd.DataFrame:
        """Return the sensors' values in all states of the world in all runs, with one row per state.

        The columns are those of :meth:`frame`, without set-points and objective.
        """
        return self._rows.environment_table.frame()

    def dump(self, base: str | PathLike[str]) -> None:
        """Save the learned state of all brains in the folder ``base``, for ``Agent(load=base)``."""
        uid = self._document.uid
        for name, learner in self._learners.items():
            store_model(learner, FileBrainDumper(Path(base).absolute(), uid, PHASE, name))

    def close(self) -> None:
        """Release the agents and finish the run in the store. Further calls have no effect."""
        if self._closed:
            return
        self._closed = True
        endings = [self._worker.close, self._warn]
        if self._store is not None:
            store, failure = self._store, self._failure
            status: Status = "finished" if failure is None else "failed"
            if isinstance(failure, _INTERRUPTIONS):
                status = "interrupted"
            endings.append(lambda: store.finish(status, failure))
        call_all(endings)
        for spec in self._document.phases[0].agents:
            refused = spec.name in self._learners and refused_update_warning(spec, self._learners[spec.name])
            if refused:
                warnings.warn(refused, UserWarning, stacklevel=2)

    def __enter__(self) -> Agents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._failure = self._failure or error
        self.close()

    def _report(self, report: EpisodeReport) -> None:
        self.results.append(report)
        self._values.add(report.values[WORLD])
        if report.ended_by in ("environments", ""):
            report.ended_by = "ends" if self._handle.terminated else "until"
            report.flow = SimulationFlowControl.CONTINUE
        if self._recording is not None:
            report.record(self._recording)

    def _warn(self) -> None:
        for sentence in self._values.sentences():
            if self._store is not None:
                self._store.warning(sentence)
            warnings.warn(sentence, UserWarning, stacklevel=2)

    def _named(self, agent: str | None) -> str:
        names = list(self._rows.tables)
        if agent is None and len(names) == 1:
            return names[0]
        if agent not in names:
            raise ContractError(
                f"there is no agent {agent!r}{did_you_mean(str(agent), names)}; there is {', '.join(names)}"
            )
        return agent

    def _check_open(self) -> None:
        if self._closed:
            raise ContractError("these agents are closed: make them anew")


def attach_agents(world: Any, agents: Agent | Sequence[Agent], entities: Any = (), **options: Any) -> Agents:
    """Add agents to a mosaik world before it is run.

    Every ``step_size`` ticks, agents observe attributes of entities with their values at that time. Observations must
    not depend on actions at the same time. Set-points reach an entity one tick later, with its next step. The last
    readings before ``until`` complete the last rows, without another action.

    Args:
        world: a ``mosaik.World`` or ``AsyncWorld`` that has not been run. Its ``run`` raises errors of the agents and,
            unlike mosaik's own, errors of remote simulators.
        agents: one :class:`Agent`, or several, in the order in which they act at the same time.
        entities: see :meth:`Agents.attach`. Only needed if sensors and actuators are given by full ids.
        step_size: ticks between two actions (an integer), less than ``until``.
        rewards: the rewards after each action: a function of the :class:`Readings` (for a reward named ``reward``),
            functions by name, or a :class:`~palaestrai_mosaik.environment.Reward`.
        ends: a function of the readings that returns whether the world ends (*terminated*). If it returns true, the
            run ends at once. To make this possible, simulators without a connection to the agents wait for them.
            Without this function, ``until`` ends the run (*truncated*).
        sensors: additional sensors for ``rewards`` and ``ends``, which no agent observes, in the form of an agent's
            ``sensors``.
        seed: the seed of all randomness of the agents. With equal seeds and worlds, results are identical.
        mode: ``train`` if brains learn, or ``test``.
        taking_turns: whether agents act one after the other, one per step, instead of all at once.
        store: an open :class:`~palaestrai_mosaik.store.Store` for the results, or ``None``.
        name: the name of the run in the store, and in the folder of :meth:`Agents.dump`.

    Returns:
        The attached agents, with their results after the run.

    Raises:
        ContractError: if an argument is invalid, or an entity or attribute does not exist.
    """
    attached = Agents(agents, **options)
    try:
        return attached.attach(world, entities)
    except BaseException:
        attached.close()
        raise


def _members(agents: Any) -> list[Agent]:
    members = [agents] if isinstance(agents, Agent) else agents
    if not isinstance(members, Sequence) or isinstance(members, str) or not members:
        raise ContractError(f"agents are an Agent or several of them, found {agents!r}")
    for member in members:
        if not isinstance(member, Agent):
            raise ContractError(f"agents are an Agent or several of them, found {member!r} among them")
        if not isinstance(member.name, str) or not member.name:
            raise ContractError(f"an agent's name is a text, found {member.name!r}")
    return list(members)


def _rewards(rewards: Rewards | None) -> tuple[Reward | None, Mapping[str, RewardFunction]]:
    if rewards is None:
        return None, {}
    if isinstance(rewards, Reward):
        return rewards, {}
    functions = rewards if isinstance(rewards, Mapping) else {"reward": rewards}
    for name, function in functions.items():
        if not callable(function):
            raise ContractError(f"reward {name!r} is no function of the readings, but {function!r}")
    return None, functions


def _mode(value: Mode | str) -> Mode:
    names = [mode.value for mode in Mode]
    if not isinstance(value, Mode) and value not in names:
        raise ContractError(f"mode is {' or '.join(names)}, found {value!r}{did_you_mean(str(value), names)}")
    return Mode(value)


def _loaded_from(load: Mapping[str, str] | None) -> list[FileBrainDumper]:
    if load is None:
        return []
    run, phase, agent, snapshot = (load[key] for key in ("experiment_run", "phase", "agent", "snapshot"))
    return [FileBrainDumper(Path(load["base"]).absolute(), run, phase, agent, snapshot)]


class Table:
    """The rows of an agent or the environment, which are also passed to the stream ``also``, if set."""

    def __init__(self, record: BodyRecord | EnvironmentRecord):
        self._columns = channel_columns("reading", record.sensors)
        self._objective = isinstance(record, BodyRecord)
        if isinstance(record, BodyRecord):
            self._columns += channel_columns("setpoint", record.actuators)
            self._columns += [f"reward.{name}" for name in record.rewards]
        else:
            self._columns += channel_columns("reward", record.rewards)
        self._keys: list[tuple[int, bool, int, int]] = []
        self._values: list[FloatVector] = []
        self._rest: list[tuple[float, bool, bool]] = []
        #: whether the next rows belong to an evaluation
        self.evaluation = False
        self.also: Any = None

    def append(self, worker: int, episode: int, step: int, time: int, *rest: Any) -> None:
        """Add a row: see :class:`AgentSink` and :class:`EnvironmentSink`."""
        self._keys.append((episode, self.evaluation, step, time))
        if self._objective:
            readings, setpoints, rewards, objective, terminated, truncated, *_ = rest
            self._values.append(np.concatenate([readings, setpoints, rewards]))
        else:
            readings, rewards, terminated, truncated, *_ = rest
            objective = np.nan
            self._values.append(np.concatenate([readings, rewards]))
        self._rest.append((objective, terminated, truncated))
        if self.also is not None:
            self.also.append(worker, episode, step, time, *rest)

    def append_rows(self, rows: AgentRows | EnvironmentRows) -> None:
        """Raise an error: agents of a scenario never have several bodies."""
        raise ContractError(f"a scenario has one body for each agent, and no {type(rows).__name__}")

    def frame(self) -> pd.DataFrame:
        """Return all rows as a data frame."""
        import pandas as pd

        keys = ["episode", "evaluation", "step", "time"]
        frame = pd.DataFrame(self._keys, columns=keys)
        values = np.array(self._values).reshape(len(self._keys), len(self._columns))
        rest = pd.DataFrame(self._rest, columns=["objective", "terminated", "truncated"])
        if not self._objective:
            rest = rest.drop(columns="objective")
        return pd.concat([frame, pd.DataFrame(values, columns=self._columns), rest], axis=1)


class RecordedRows:
    """Keeps all rows of a scenario in memory, and passes them to the store's recording ``also``, if any."""

    def __init__(self, tables: Mapping[str, Table], environment: Table, also: Recording | None):
        self.tables, self.environment_table = tables, environment
        self._also = also

    def agent(self, name: str, evaluation: bool = False, group: int = 0) -> AgentSink:
        """Return the table for an agent's next rows."""
        table = self.tables[name]
        table.evaluation = evaluation
        table.also = None if self._also is None else self._also.agent(name, evaluation, group)
        return table

    def environment(self, uid: str, evaluation: bool = False) -> EnvironmentSink:
        """Return the table for the next states."""
        table = self.environment_table
        table.evaluation = evaluation
        table.also = None if self._also is None else self._also.environment(uid, evaluation)
        return table

    def frames(self, uid: str, evaluation: bool = False) -> FrameSink:
        """Return the store's stream of frames. A scenario's environment has none."""
        assert self._also is not None
        return self._also.frames(uid, evaluation)

    def statistic(self, *row: Any, evaluation: bool) -> None:
        """Pass a figure to the store; it is not part of the tables."""
        if self._also is not None:
            self._also.statistic(*row, evaluation=evaluation)

    def world(self, data: Mapping[str, Any]) -> None:
        """Pass the world to the store. Attached agents do not describe the user's world."""
        if self._also is not None:
            self._also.world(data)

"""Agents that take part in worlds which a script builds and runs, and the rows kept of them in memory."""

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
from palaestrai_mosaik.environment.environment import Reward
from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.runner.brains import BrainKeeper
from palaestrai_mosaik.runner.descriptions import agent_record, environment_record
from palaestrai_mosaik.runner.factory import WorkerPlan, call_all, unused_model_warning
from palaestrai_mosaik.runner.interrupt import Interrupt
from palaestrai_mosaik.runner.learners import make_learner, store_model
from palaestrai_mosaik.runner.replay import ReplayContext
from palaestrai_mosaik.runner.worker import EpisodeReport, EpisodeTask, Recording, Worker
from palaestrai_mosaik.runner.worker_pool import deliver
from palaestrai_mosaik.simulation.body import Body
from palaestrai_mosaik.simulation.body_placement import place_bodies
from palaestrai_mosaik.simulation.environment_handle import AgentStream, EnvironmentHandle, EnvironmentStream
from palaestrai_mosaik.simulation.event_loop import clean_up
from palaestrai_mosaik.simulation.frames import FrameSink
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.simulation.scheduler import run_method
from palaestrai_mosaik.store.records import BodyRecord, EnvironmentRecord, channel_columns
from palaestrai_mosaik.types import Mode, SimulationFlowControl
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.rows import AgentRows, EnvironmentRows

from .agent import Agent, Sensors
from .document import PHASE, describe
from .environment import Readings, RewardFunction, Rewards, Scenario, check_wanted, found_in, whole
from .episode import Run, run_episode

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store
    from palaestrai_mosaik.store.recorder import Status


#: Ctrl-C, as it is raised, and as asyncio hands it on
_INTERRUPTIONS = (KeyboardInterrupt, asyncio.CancelledError)


class Agents:
    """Agents of a scenario: what they have learned stays from world to world.

    Each run of a world that they are attached to is an episode. Use them in a ``with`` block, or
    :meth:`close` them after the last run.

    Args:
        agents: one :class:`Agent`, or several; where they act at the same time, in this order.
        step_size: ticks from one action to the next.
        rewards: as for :func:`attach_agents`, which says more about all of these; ``None``: none.
        ends: a function of the readings that says whether the world has come to its end; ``None``: only
            ``until`` ends a run.
        sensors: what ``rewards`` and ``ends`` read, and no agent sees; ``None``: nothing.
        seed: of all randomness of the agents.
        mode: ``train``: brains learn; ``test``: they do not.
        taking_turns: agents act one after the other instead of all at once.
        store: an open store that keeps the results, too; ``None``: none.
        name: what the run is called there, and in the folder of :meth:`dump`.

    Raises:
        ContractError: an argument is not what it should be.
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
        own, functions = _rewards(rewards)
        self.mode = _mode(mode)
        #: how the runs went so far, oldest first
        self.results: list[EpisodeReport] = []
        self._scenario = Scenario(members, sensors or {}, step_size, functions, ends)
        self._handle = EnvironmentHandle(self._scenario, own)
        self._document = describe(members, self._scenario, name, seed, self.mode, taking_turns)
        (phase,) = self._document.phases
        keepers = {spec.name: BrainKeeper([], _loaded_from(spec.load)) for spec in phase.agents}
        groups = {spec.name: place_bodies(spec, [self._handle])[0] for spec in phase.agents}
        standpoint = ReplayContext(self._document, phase, None)
        self._learners: dict[str, Learner] = {}
        for spec in phase.agents:
            warning = unused_model_warning(spec, self.mode)
            if warning:
                warnings.warn(warning, UserWarning, stacklevel=3)
            learner = make_learner(spec, standpoint, keepers[spec.name], groups[spec.name], None)
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
        #: what has ended a run, or the ``with`` block, first
        self._failure: BaseException | None = None
        #: what runs the world, or ran the last one
        self._running: asyncio.Task[Any] | None = None
        self._closed = False

    def attach(self, world: Any, entities: Any = (), *, mode: Mode | str | None = None) -> Agents:
        """Let the agents take part in the next run of a world.

        Args:
            world: a ``mosaik.World`` or ``AsyncWorld`` that was not run yet.
            entities: those that sensors and actuators are attributes of, or their parents, if they are not
                the very ones that the agents were made with.
            mode: ``"test"`` for a run in which agents that are made to train do not learn; ``None``: the mode
                that they were made with.

        Returns:
            These agents.

        Raises:
            ContractError: an entity or attribute does not exist, or the world has agents already.
        """
        self._check_open()
        evaluation = self.mode is Mode.TRAIN and _mode(mode or self.mode) is Mode.TEST
        if mode is not None and self.mode is Mode.TEST and _mode(mode) is Mode.TRAIN:
            raise ContractError("these agents were made in test mode, without what learning needs")
        inner = getattr(world, "_async_world", world)
        if not hasattr(inner, "entity_graph"):
            raise ContractError(f"agents are attached to a mosaik.World or AsyncWorld, found {world!r}")
        given = found_in(entities)
        known = given or found_in(list(self._scenario.entities.values()))
        check_wanted(self._scenario.wanted, known)
        used = {name: known[name] for name, _, _ in self._scenario.wanted}
        if "run" in vars(inner):
            raise ContractError("agents are attached to this world already: attach all of them at once")

        async def with_agents(until: int, *args: Any, **options: Any) -> None:
            self._check_open()
            # mosaik runs a world once
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
        """Run ``world`` (mosaik's asynchronous one) by ``run``, with the agents in it."""
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
                # it has begun, so there is something to report
                interruption = error
        if interruption is not None:
            raise interruption

    def _guard(self, world: Any) -> None:
        """Let ``world`` (mosaik's synchronous one) end its tasks and simulators also after a run that has failed."""
        run = world.run

        def guarded(*args: Any, **options: Any) -> Any:
            del world.run
            try:
                return run(*args, **options)
            except BaseException as error:
                self._failure = self._failure or error
                if not world.loop.is_closed():
                    if self._running is not None and not self._running.done():
                        # asyncio lets Ctrl-C out at once, and leaves everything else standing
                        clean_up(world.loop, self._running)
                    world.shutdown()
                raise

        world.run = guarded

    @property
    def result(self) -> EpisodeReport:
        """How the last run went."""
        if not self.results:
            raise ContractError("there is no result yet: run the world")
        return self.results[-1]

    @property
    def outcomes(self) -> Mapping[str, Mapping[str, Any]]:
        """Sum, mean, min and max of objective and rewards of each agent in the last run."""
        return self.result.outcomes

    def memory(self, agent: str | None = None) -> Memory:
        """Return what a learning agent's brain remembers, or what the muscle of another one does.

        Args:
            agent: name of an agent; ``None``: the only one.
        """
        name = self._named(agent)
        if name in self._learners:
            return self._learners[name].brain.memory
        (body,) = self._worker.coordinator.agents[name]
        assert isinstance(body, Body)
        return body.memory

    def frame(self, agent: str | None = None) -> pd.DataFrame:
        """Return all steps of an agent, of all runs: a row for each action, with what followed from it.

        Columns: ``episode``, ``evaluation``, ``step``, ``time`` (of the action), ``reading.ID``,
        ``setpoint.ID``, ``reward.ID``, ``objective``, ``terminated``, ``truncated``.

        Args:
            agent: name of an agent; ``None``: the only one.
        """
        return self._rows.tables[self._named(agent)].frame()

    def states(self) -> pd.DataFrame:
        """Return all states of the world, of all runs, as far as they are sensors: a row for each.

        Columns as in :meth:`frame`, without set-points and objective.
        """
        return self._rows.environment_table.frame()

    def dump(self, base: str | PathLike[str]) -> None:
        """Keep what all brains have learned in the folder ``base``, for ``Agent(load=base)``."""
        uid = self._document.uid
        for name, learner in self._learners.items():
            store_model(learner, FileBrainDumper(Path(base).absolute(), uid, PHASE, name))

    def close(self) -> None:
        """Let the agents go, and finish what the store has of them. Called once; more often does nothing."""
        if self._closed:
            return
        self._closed = True
        endings = [self._worker.close]
        if self._store is not None:
            store, failure = self._store, self._failure
            status: Status = "finished" if failure is None else "failed"
            if isinstance(failure, _INTERRUPTIONS):
                status = "interrupted"
            endings.append(lambda: store.finish(status, failure))
        call_all(endings)

    def __enter__(self) -> Agents:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._failure = self._failure or error
        self.close()

    def _report(self, report: EpisodeReport) -> None:
        self.results.append(report)
        if report.ended_by in ("environments", ""):
            report.ended_by = "ends" if self._handle.terminated else "until"
            report.flow = SimulationFlowControl.CONTINUE
        if self._recording is not None:
            report.record(self._recording)

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
    """Add agents to a mosaik world, before it is run; return what knows how they did.

    They see the attributes of entities every ``step_size`` ticks, as they are at that time (so what
    they read must not depend on what they set within one time), and what they set reaches entities one tick
    later, with the entity's next step. The last readings before ``until`` close their last rows; nobody
    acts on them.

    Args:
        world: a ``mosaik.World`` or ``AsyncWorld`` that was not run yet. Its ``run`` raises what the agents
            raise, and, unlike mosaik's own, also what has failed in a remote simulator.
        agents: one :class:`Agent`, or several; where they act at the same time, in this order.
        entities: see :meth:`Agents.attach`. Not needed where sensors and actuators name entities, not full
            ids.
        step_size: ticks from one action to the next (a whole number), less than ``until``.
        rewards: what agents are told after each action: a function of the :class:`Readings` (its reward is
            named ``reward``), functions by name, or a :class:`~palaestrai_mosaik.environment.Reward`.
        ends: a function of the readings that says whether the world has come to its end (*terminated*). The
            world's run then ends at once; simulators that nothing connects with the agents wait for them, so
            that they do not run ahead. Without it, ``until`` ends the run (*truncated*).
        sensors: what ``rewards`` and ``ends`` read, and no agent sees; written as an agent's ``sensors``.
        seed: of all randomness of the agents; same seed, same world: same results, byte for byte.
        mode: ``train``: brains learn. ``test``: they do not.
        taking_turns: agents act one after the other, one at each step, instead of all at once.
        store: an open :class:`~palaestrai_mosaik.store.Store` that shall keep the results, too.
        name: what the run is called there, and in the folder of :meth:`Agents.dump`.

    Raises:
        ContractError: where something that is named is not there, or is not what it should be.
    """
    made = Agents(agents, **options)
    try:
        return made.attach(world, entities)
    except BaseException:
        made.close()
        raise


def _members(given: Any) -> list[Agent]:
    members = [given] if isinstance(given, Agent) else given
    if not isinstance(members, Sequence) or isinstance(members, str) or not members:
        raise ContractError(f"agents are an Agent or several of them, found {given!r}")
    for one in members:
        if not isinstance(one, Agent):
            raise ContractError(f"agents are an Agent or several of them, found {one!r} among them")
        if not isinstance(one.name, str) or not one.name:
            raise ContractError(f"an agent's name is a text, found {one.name!r}")
    return list(members)


def _rewards(given: Rewards | None) -> tuple[Reward | None, Mapping[str, RewardFunction]]:
    if given is None:
        return None, {}
    if isinstance(given, Reward):
        return given, {}
    functions = given if isinstance(given, Mapping) else {"reward": given}
    for name, function in functions.items():
        if not callable(function):
            raise ContractError(f"reward {name!r} is no function of the readings, but {function!r}")
    return None, functions


def _mode(given: Mode | str) -> Mode:
    names = [mode.value for mode in Mode]
    if not isinstance(given, Mode) and given not in names:
        raise ContractError(f"mode is {' or '.join(names)}, found {given!r}{did_you_mean(str(given), names)}")
    return Mode(given)


def _loaded_from(load: Mapping[str, str] | None) -> list[FileBrainDumper]:
    if load is None:
        return []
    where = (load[key] for key in ("experiment_run", "phase", "agent", "snapshot"))
    return [FileBrainDumper(Path(load["base"]).absolute(), *where)]


class Table:
    """The rows of an agent, or of the environment; they are handed on to ``also``, where it is set."""

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
        #: whether the rows that come are those of an evaluation
        self.evaluation = False
        self.also: Any = None

    def append(self, worker: int, episode: int, step: int, time: int, *rest: Any) -> None:
        """Add a row: see :class:`AgentStream` and :class:`EnvironmentStream`."""
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
        """Never called: no agent of a scenario has many bodies."""
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
    """Keeps all rows of a scenario, and hands them on to ``store``'s recording, where there is one."""

    def __init__(self, tables: Mapping[str, Table], environment: Table, also: Recording | None):
        self.tables, self.environment_table = tables, environment
        self._also = also

    def agent(self, name: str, evaluation: bool = False, group: int = 0) -> AgentStream:
        """See :class:`~palaestrai_mosaik.runner.worker.Recording`."""
        table = self.tables[name]
        table.evaluation = evaluation
        table.also = None if self._also is None else self._also.agent(name, evaluation, group)
        return table

    def environment(self, uid: str, evaluation: bool = False) -> EnvironmentStream:
        """See :class:`~palaestrai_mosaik.runner.worker.Recording`."""
        table = self.environment_table
        table.evaluation = evaluation
        table.also = None if self._also is None else self._also.environment(uid, evaluation)
        return table

    def frames(self, uid: str, evaluation: bool = False) -> FrameSink:
        """Return the store's stream of frames; a scenario requests none of the environments that it has by itself."""
        assert self._also is not None
        return self._also.frames(uid, evaluation)

    def statistic(self, *row: Any, evaluation: bool) -> None:
        """Hand a figure on to the store: it is no part of the tables."""
        if self._also is not None:
            self._also.statistic(*row, evaluation=evaluation)

    def world(self, data: Mapping[str, Any]) -> None:
        """Hand the world on to the store; where agents are attached, it is the user's, and is not described."""
        if self._also is not None:
            self._also.world(data)

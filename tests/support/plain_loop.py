"""What a run document must give, as plain loops over the objects that it names.

Written from ``docs/timing.md``, ``docs/flow-control.md``, ``docs/workers.md``, ``docs/filters.md`` and
``docs/own-agent.md``, and not from the engine: no world of mosaik, no schedule, no store. Read
:meth:`Episode.run` first. Documents are written out (ids of all sensors and actuators, classes with ``params``),
as :mod:`support.random_documents` draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field, replace
from importlib import import_module
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import numpy as np
from support.loop_parts import journal

from palaestrai_mosaik.agent.dumper import BrainDumper
from palaestrai_mosaik.agent.filter import FilterChain
from palaestrai_mosaik.agent.memory import Experience, Memory
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.types import (
    ActuatorInformation,
    Discrete,
    Mode,
    SensorInformation,
    SimulationFlowControl,
)
from palaestrai_mosaik.types.vectors import Layout

CONTINUE = SimulationFlowControl.CONTINUE


def make(entry: Any) -> Any:
    """Return an object of the class that an entry of a document names."""
    module, _, name = entry["name"].partition(":")
    return getattr(import_module(module), name)(**deepcopy(entry.get("params", {})))


@dataclass
class Row:
    """One action of a body, and what followed it."""

    step: int
    time: int
    environment_episode: int
    readings: Any
    setpoints: Any
    observations: Any
    actions: Any
    data: Any
    rewards: Any
    news: Any = None
    objective: float = np.nan
    terminated: bool = False
    truncated: bool = False

    @property
    def done(self) -> bool:
        return self.terminated or self.truncated


class Site:
    """An environment, or one incarnation of a batched one: both have a clock and a timeline."""

    def __init__(self, entry: dict[str, Any], number: int | None):
        inner = entry["environment"]
        self.environment, self.number = inner["uid"], number
        self.uid = inner["uid"] if number is None else f"{inner['uid']}.{number}"
        self.place = make(inner if number is None else inner["params"])
        self.place.uid = self.uid
        self.step_size = inner.get("step_size", 1)
        self.place.step_size = self.step_size
        self.offers = self.place.setup()
        self.place.baseline = self.offers
        values = [a.value if self.place.hold_setpoints else None for a in self.offers.actuators]
        self.initial = [np.nan if value is None else float(value) for value in values]
        self.whole = all(isinstance(a.space, Discrete) for a in self.offers.actuators)

    def begin(self) -> None:
        """Begin the phase's episode."""
        self.episode, self.endings, self.states = 0, 0, 0
        self._reset()

    def _reset(self) -> None:
        # set-points of an earlier episode are no longer in force
        self.held = list(self.initial)
        state = self.place.reset()
        if self.number is not None:
            # incarnations have rewards for steps only
            state.rewards = [0.0] * len(state.rewards)
        self._show(state)
        #: the newest state is the first one of an episode; it may also be its last one
        self.begins = True

    def advance(self) -> None:
        """Come to the next state: a step, or the first state of the next episode."""
        self.states += 1
        if self.over:
            self.episode += 1
            self._reset()
            return
        known = self.whole and self.held and not np.isnan(self.held).any()
        self._show(self.place.step(np.array(self.held, dtype=np.int64 if known else np.float64)))
        self.begins = False
        if not self.place.hold_setpoints:
            self.held = [np.nan] * len(self.held)

    def _show(self, state: Any) -> None:
        self.state = state
        self.over = state.terminated or state.truncated
        self.endings += self.over


class Offered(list):  # type: ignore[type-arg]
    """The channels that a muscle sees; ``vector`` has their values."""

    vector: Any = None


class Body:
    """One muscle with its sensors and actuators."""

    def __init__(self, agent: Agent, entry: dict[str, Any], number: int, worker: Worker, named: bool):
        self.agent, self.number = agent, number
        self.names = (agent.name, number) if named else (agent.name,)
        self.muscle, self.objective = make(entry["muscle"]), None
        if entry.get("objective"):
            self.objective = make(entry["objective"])
        self.sensors = [channel(worker.sites, uid, "sensors") for uid in entry["sensors"]]
        self.actuators = [channel(worker.sites, uid, "actuators") for uid in entry["actuators"]]
        read = {id(site) for site, _ in self.sensors}
        used = read | {id(site) for site, _ in self.actuators}
        self.sites = [site for site in worker.sites if id(site) in used]
        #: a new state of one of these makes it act
        self.watched = [site for site in self.sites if id(site) in (read or used)]
        sensors = Layout(entry["sensors"], [site.offers.sensors[i].space for site, i in self.sensors])
        actuators = Layout(entry["actuators"], [site.offers.actuators[i].space for site, i in self.actuators])
        self.filters = FilterChain([make(f) for f in entry.get("filters") or []], sensors, actuators)
        self.master = FilterChain([make(f) for f in entry.get("filters") or []], sensors, actuators)
        self.memory = Memory()
        self.muscle._memory = self.memory
        self.muscle.uid = ".".join(map(str, (agent.name, worker.index, *self.names[1:])))

    def begin(self) -> None:
        """Begin the phase's episode."""
        self.row: Row | None = None
        self.last: Row | None = None
        self.final: Any = None
        self.steps, self.over, self.episode = 0, False, 0
        self.filters.reset()

    def readings(self) -> Any:
        return np.array([site.state.readings[i] for site, i in self.sensors])

    def look(self) -> Any:
        """Return what the muscle sees through its filters."""
        return self.filters.pre(self.readings())

    def act(self, time: int, observations: Any) -> None:
        """Choose set-points, and put them in force for the next step of each environment."""
        spaces, uids = self.filters.sensors.spaces, self.filters.sensors.uids
        sensors = Offered(
            SensorInformation(v, s, u) for v, s, u in zip(observations, spaces, uids, strict=True)
        )
        sensors.vector = observations
        spaces, uids = self.filters.actuators.spaces, self.filters.actuators.uids
        offered = Offered(ActuatorInformation(None, s, u) for s, u in zip(spaces, uids, strict=True))
        actions, data = self.muscle.propose_actions(sensors, offered)
        chosen = [np.nan if one.value is None else float(one.value) for one in actions]
        vector = np.array(chosen if offered.vector is None else offered.vector)
        setpoints = self.filters.post(vector)
        for (site, i), value in zip(self.actuators, setpoints, strict=True):
            if not np.isnan(value):
                site.held[i] = value
        rewards = np.zeros(sum(len(site.offers.rewards) for site in self.sites))
        self.row = Row(
            self.steps, time, self.episode, self.readings(), setpoints, observations, vector, data, rewards
        )  # fmt: skip
        self.steps += 1

    def collect(self, fresh: list[Site]) -> None:
        """Add the rewards of new states to the open row."""
        if self.row is not None:
            new = [
                np.array(s.state.rewards) if s in fresh else np.zeros(len(s.offers.rewards))
                for s in self.sites
            ]
            self.row.rewards = self.row.rewards + np.concatenate(new)

    def close(self, log: Recorder) -> Row:
        """Complete the open row with its objective."""
        row = self.row
        assert row is not None
        self.memory.append(
            row.readings, row.setpoints, row.rewards, row.data, muscle=self.muscle.uid,
            observations=row.observations, actions=row.actions,
        )  # fmt: skip
        value = float(row.rewards.sum())
        if self.objective is not None:
            answer = self.objective.internal_reward(self.memory)
            value = np.nan if answer is None else float(answer)
        row.objective = value
        self.memory.close(value)
        if not np.isnan(value):
            log.objectives[self.agent.name].append((row.time, self.number, value))
        self.row, self.last = None, row
        log.rows.append((self.agent.name, self.number, row))
        return row

    def end(self) -> bool:
        """End the body's episode; return whether it has a row for that, which is marked as the last one."""
        self.over, row = True, self.last
        if row is None or row.done:
            return False
        self.final = self.look()
        row.terminated = any(site.state.terminated for site in self.sites)
        row.truncated = any(site.state.truncated for site in self.sites) or not row.terminated
        # what it would have seen next is for the brain alone
        self.memory.mark_end(terminated=row.terminated, truncated=row.truncated, muscle=self.muscle.uid)
        return True


def channel(sites: list[Site], uid: str, kind: str) -> tuple[Site, int]:
    """Return the site of a sensor or an actuator, and its place there."""
    for site in sites:
        for i, one in enumerate(getattr(site.offers, kind)):
            if uid == f"{site.uid}.{one.uid}":
                return site, i
    raise KeyError(uid)


class Kept(BrainDumper):
    """Keeps the dumps of one agent in one phase, and what its filters have learned."""

    def __init__(self, filters: dict[str, Any]) -> None:
        self.dump, self.filters = b"", filters

    def save(self, dump: Any, tag: str = "") -> None:
        self.dump = dump.read()

    def load(self, tag: str = "") -> Any:
        return BytesIO(self.dump)


class Agent:
    """A brain, and the muscles of all workers."""

    def __init__(self, entry: dict[str, Any], seed: int, phase: str, mode: Mode):
        self.entry, self.name, self.mode = entry, entry["name"], mode
        self.bodies: list[Body] = []
        self.brain = make(entry["brain"]) if entry.get("brain") else None
        #: the newest update of the brain, by muscle; None: for all
        self.news: dict[str | None, Any] = {}
        self.said: dict[str | None, Any] = {}
        if self.brain is not None:
            self.brain.name, self.brain.mode = self.name, mode
            self.brain.seed = seeding.integer_seed(seed, phase, "brain", self.name)
            self.brain.rng = seeding.generator(seed, phase, "brain", self.name)

    def groups(self) -> list[dict[str, Any]]:
        """Return an entry for each body, with what it takes from the agent."""
        if "bodies" not in self.entry:
            return [self.entry]
        own = {key: self.entry.get(key) for key in ("muscle", "objective", "filters", "sensors", "actuators")}
        bodies = []
        for group in self.entry["bodies"]:
            for k in range(group.get("count", 1)):
                body = own | group
                for kind in ("sensors", "actuators"):
                    number = str(group.get("first", 0) + k)
                    body[kind] = [uid.replace("{body}", number) for uid in body[kind]]
                bodies.append(body)
        return bodies

    def remember(self, shapes: list[tuple[int, int, int]], muscles: list[str]) -> None:
        """Give the brain a memory for each size of its rows."""
        memories: dict[Any, Memory] = {}
        for shape in shapes:
            memories.setdefault(shape, Memory())
        if self.brain is not None:
            self.brain._memory = memories[shapes[0]]
            self.brain._memories = {m: memories[s] for m, s in zip(muscles, shapes, strict=True)}

    def think(self, body: Body, row: Row | None, final: Any, ahead: Any, waiting: int, log: Recorder) -> None:
        """Let the brain learn from a row; without one, its last row of the body ended the episode."""
        if self.brain is None or self.mode is not Mode.TRAIN:
            return
        master = self.bodies[0].master
        if row is None:
            last = body.last
            assert last is not None
            self.brain.memory_of(body.muscle.uid).mark_end(
                terminated=last.terminated, truncated=last.truncated, muscle=body.muscle.uid, final_observations=final
            )  # fmt: skip
            return
        master.learn(row.news)
        experience = Experience(
            body.muscle.uid, row.readings, row.setpoints, row.rewards, row.objective, row.data, row.observations,
            row.actions, row.terminated, row.truncated, final if row.done else None, row.step,
        )  # fmt: skip
        experience = master.brain_pre(replace(experience))
        self.brain.memory_of(body.muscle.uid).append_experience(experience)
        self.brain.next_observations = final if row.done else ahead
        self.brain.rows_waiting = waiting
        update = self.brain.thinking(body.muscle.uid, row.data)
        for key, value in self.brain.pop_statistics().items():
            log.statistics.append((self.name, row.step, key, value))
        if update:
            self.news[None if self.brain.shared_updates else body.muscle.uid] = master.brain_post(update)

    def tell(self) -> None:
        """Give the muscles the newest update that they have not had."""
        for body in self.bodies:
            for whose in (None, body.muscle.uid):
                if whose in self.news:
                    body.muscle.update(self.news[whose])
            body.filters.set_state(body.master.state())
        self.said |= self.news
        self.news = {}


@dataclass
class Recorder:
    """What one episode must leave in the store."""

    rows: list[Any] = field(default_factory=list)
    states: list[Any] = field(default_factory=list)
    statistics: list[Any] = field(default_factory=list)
    steps: int = 0
    time: int = 0
    flow: SimulationFlowControl = CONTINUE
    ended_by: str = ""
    objectives: dict[str, Any] = field(default_factory=dict)

    def values(self) -> dict[str, Any]:
        """Return the objective values of each agent, in the order of its actions."""
        return {name: np.array([row[2] for row in sorted(rows)]) for name, rows in self.objectives.items()}


class Worker:
    """The environments, the muscles and the conditions of one worker."""

    def __init__(self, phase: Phase, index: int, conditions: list[Any]):
        self.phase, self.index, self.conditions = phase, index, conditions
        self.history: list[dict[str, float]] = []
        #: why it runs no further episode
        self.done = ""
        self.anew = False
        self.build()

    def build(self) -> None:
        """Create environments and muscles."""
        self.sites = []
        for entry in self.phase.document["environments"]:
            batch = entry["environment"]["params"].get("batch")
            for number in [None] if batch is None else range(batch):
                self.sites.append(Site(entry, number))
        self.bodies = []
        for agent in self.phase.agents:
            named = "bodies" in agent.entry
            for number, entry in enumerate(agent.groups()):
                self.bodies.append(Body(agent, entry, number, self, named))
        self.began = False

    def prepare(self, update: bool = True) -> None:
        """Set the muscles up."""
        for body in self.bodies:
            names = [f"{site.uid}.{r.uid}" for site in body.sites for r in site.offers.rewards]
            if body.objective is not None:
                body.objective.setup(names)
            body.muscle.mode = body.filters.mode = self.phase.mode
            body.muscle.setup()
            if body.agent.entry.get("load") is not None:
                body.muscle._dumpers = [self.phase.loaded(body.agent)]
                body.muscle.prepare_model()
            said = body.agent.said
            whose = body.muscle.uid if body.muscle.uid in said else None
            if whose in said:
                body.muscle.update(said[whose])
            body.filters.set_state(body.master.state())


class Episode:
    """One episode of one worker."""

    def __init__(self, worker: Worker, number: int, mode: Mode, evaluation: bool):
        self.worker, self.number, self.mode = worker, number, mode
        self.sites, self.bodies, self.phase = worker.sites, worker.bodies, worker.phase
        self.kind = "evaluation" if evaluation else "episode"
        self.log = Recorder(objectives={agent.name: [] for agent in self.phase.agents})
        self.turns = self.phase.document["simulation"]["name"] == "taking_turns"
        self.restarts = any(c.environments_reset for c in worker.conditions)
        self.learn: Callable[..., None] = lambda *row: None

    def run(self) -> Iterator[None]:
        """Run it; yield after every tick at which something happened."""
        self.begin()
        time, fresh = 0, list(self.sites)
        while True:
            self.note(fresh, time)
            closed = self.close_rows(fresh)
            self.resume(fresh)
            flow = self.ask(time)
            if flow is not CONTINUE or (all(site.over for site in self.sites) and not self.restarts):
                self.finish(fresh, closed, flow, time)
                return
            acting = self.who_acts(fresh)
            ahead = {b: b.look() for b in acting if b.muscle.looks_ahead and not self.turns}
            self.think(closed, ahead)
            for body in acting:
                body.act(time, ahead[body] if body in ahead else body.look())
                for key, value in body.muscle.pop_statistics().items():
                    self.log.statistics.append((body.agent.name, body.row.step, key, value))
            yield
            time, fresh = self.step(time)

    def begin(self) -> None:
        worker = self.worker
        path = (self.phase.seed, self.phase.name, "worker", worker.index, self.kind, self.number)
        for site in self.sites:
            own = () if site.number is None else (site.number,)
            site.place.rng = seeding.generator(*path, "environment", site.environment, *own)
            site.place.worker, site.place.episode = worker.index, self.number
            site.begin()
        for body in self.bodies:
            body.muscle.rng = seeding.generator(*path, "agent", *body.names)
            body.muscle.mode = body.filters.mode = self.mode
            if worker.began:
                body.muscle.reset()
            body.begin()
        worker.began = True
        #: for turns: who acts next, and which environments have a new state since the last action
        self.next, self.moved = 0, list(self.sites)

    def note(self, fresh: list[Site], time: int) -> None:
        """Record the new states, and with those of a batch its incarnations that have ended: they get nothing."""
        stepping = {site.environment for site in fresh}
        for site in self.sites:
            if site.environment in stepping and site not in fresh:
                site.states += 1
                site.state = replace(site.state, rewards=[0.0] * len(site.state.rewards))
            if site.environment in stepping:
                what = (site.environment, site.number or 0, site.states, time, site.episode, site.state)
                self.log.states.append(what)

    def step(self, time: int) -> tuple[int, list[Site]]:
        """Go on to the next tick at which an environment has a new state."""
        moving = [site for site in self.sites if not site.over or self.restarts]
        while True:
            time += 1
            fresh = [site for site in moving if time % site.step_size == 0]
            if fresh:
                break
        for site in fresh:
            site.advance()
        self.log.steps += 1
        return time, fresh

    def close_rows(self, fresh: list[Site]) -> list[Body]:
        """Close the open rows of those who see something new."""
        closed = []
        for body in self.bodies:
            body.collect(fresh)
            if body.row is not None and any(site in fresh for site in body.watched):
                body.close(self.log)
                closed.append(body)
            gone = [site.over for site in body.watched]
            over = any(gone) if self.restarts else all(gone)
            if over and not body.over and body.end() and body not in closed:
                self.mark(body)
        return closed

    def ask(self, time: int) -> SimulationFlowControl:
        """Ask all conditions in order; the first one with the strongest answer is the reason."""
        objectives = self.log.values()
        view = SimpleNamespace(
            worker=self.worker.index, episode=self.number, time=time, environments_reset=self.restarts,
            ended={site.uid: (site.state.terminated, site.state.truncated) for site in self.sites},
            endings={site.uid: site.endings for site in self.sites}, objectives=objectives.__getitem__,
        )  # fmt: skip
        strongest = CONTINUE
        for condition in self.worker.conditions:
            answer = condition.episode_flow_control(view)
            if answer > strongest:
                strongest, self.log.ended_by = answer, reason_of(condition)
        return strongest

    def resume(self, fresh: list[Site]) -> None:
        """Begin the next episode of each body whose environments go on again."""
        for body in self.bodies:
            if len(body.watched) == 1:
                # an episode that is over with its first state counts, too
                body.episode = body.watched[0].episode
            if self.restarts and body.over and not any(site.over for site in body.watched):
                body.over = False
                if len(body.watched) > 1:
                    body.episode += 1
                body.muscle.reset()
                body.filters.reset()

    def who_acts(self, fresh: list[Site]) -> list[Body]:
        """Return the bodies that act now, in document order."""
        able = []
        for body in self.bodies:
            gone = [site.over for site in body.watched]
            if any(gone) if self.restarts else all(gone):
                continue
            able.append(body)
        if not self.turns:
            return [body for body in able if any(site in fresh for site in body.watched)]
        self.moved += fresh
        if not all(site in self.moved or (site.over and not self.restarts) for site in self.sites):
            return []
        # a turn in which nobody can act passes, too
        agents, self.moved = self.phase.agents, []
        for k in range(len(agents)):
            agent = agents[(self.next + k) % len(agents)]
            acting = [body for body in able if body.agent is agent]
            if acting:
                self.next = (self.next + k + 1) % len(agents)
                return acting
        return []

    def mark(self, body: Body) -> None:
        """Mark a row as the last one that the brain has learned from."""
        if self.mode is Mode.TRAIN:
            self.learn(body.agent, body, None, body.final, None, self.log)

    def think(self, closed: list[Body], ahead: dict[Body, Any]) -> None:
        """Let the brains learn from the closed rows: first those that ended an episode, then by number."""
        if self.mode is not Mode.TRAIN:
            return
        for agent in self.phase.agents:
            own = [body for body in closed if body.agent is agent]
            for body in sorted(own, key=lambda b: (not b.last.done, b.number)):
                # what its filters have learned until now goes with the row
                body.last.news = body.filters.news()
                self.learn(agent, body, body.last, body.final, ahead.get(body), self.log)

    def finish(self, fresh: list[Site], closed: list[Body], flow: SimulationFlowControl, time: int) -> None:
        """End the episode: its final state reaches every agent as the rewards of its last row."""
        for body in self.bodies:
            if body.row is not None:
                body.close(self.log)
                closed.append(body)
            if not body.over and body.end() and body not in closed:
                self.mark(body)
        self.think(closed, {})
        log = self.log
        log.time, log.flow = time, max(flow, SimulationFlowControl.RESET)
        log.ended_by = log.ended_by or "environments"
        log.objectives = log.values()


def reason_of(condition: Any) -> str:
    return type(condition).__name__


class Phase:
    """One phase: its workers run episodes in rounds until something ends it."""

    def __init__(self, name: str, document: dict[str, Any], run: Run):
        self.name, self.document, self.run_, self.seed = name, document, run, run.document["seed"]
        config = document["phase_config"]
        self.mode = Mode(config.get("mode", "train"))
        self.limit, self.every = config.get("episodes"), config.get("evaluate_every", 0)
        self.count, self.sync = config.get("workers", 1), config.get("sync_every", 32)
        self.agents = [Agent(entry, self.seed, name, self.mode) for entry in document["agents"]]
        self.reason = ""
        self.episodes: list[Any] = []

    def conditions(self) -> tuple[list[Any], int]:
        """Return new conditions, and how many of them are of the phase."""
        own = [make(entry) for entry in self.document["simulation"]["conditions"]]
        run = [make(entry) for entry in self.run_.document["run_config"]["conditions"]]
        for condition in run:
            condition.of_run = True
        for condition in [*own, *run]:
            condition.beside([*own, *run])
        return [*own, *run], len(own)

    def loaded(self, agent: Agent) -> Any:
        return self.run_.kept[agent.name]

    def run(self) -> SimulationFlowControl:
        asked, n_own = self.conditions()
        self.asked = asked[n_own:]
        self.workers = [
            Worker(self, w, asked if self.count == 1 else self.conditions()[0]) for w in range(self.count)
        ]
        self.introduce()
        for worker in self.workers:
            worker.prepare()
        flow, round_, evaluations = CONTINUE, 0, 0
        while flow < SimulationFlowControl.STOP_PHASE:
            running = [w for w in self.workers if not w.done]
            if not running:
                reasons = {w.done for w in self.workers}
                self.reason = reasons.pop() if len(reasons) == 1 else "episodes"
                break
            logs = self.round(running, round_, self.mode, evaluation=False)
            round_ += 1
            for worker, log in zip(running, logs, strict=True):
                flow = max(flow, self.judge(worker, log, logs, running, round_ - 1))
            if flow is SimulationFlowControl.SHUTDOWN:
                break
            if self.every and self.mode is Mode.TRAIN and round_ % self.every == 0:
                logs = self.round(running, evaluations, Mode.TEST, evaluation=True)
                flow = max(flow, self.evaluated(running, logs, evaluations))
                evaluations += 1
        for agent in self.agents:
            if agent.brain is not None:
                self.run_.kept[agent.name] = kept = Kept(agent.bodies[0].master.state())
                agent.brain._dumpers = [kept]
                agent.brain.store()
        for worker in self.workers:
            for body in worker.bodies:
                body.muscle.teardown()
        return flow

    def introduce(self) -> None:
        """Set brains up, load them, and let them learn from what is replayed."""
        for agent in self.agents:
            bodies = [body for worker in self.workers for body in worker.bodies if body.agent is agent]
            agent.bodies = bodies
            for body in bodies:
                body.master = bodies[0].master
            if agent.brain is None:
                continue
            shapes = []
            for body in bodies:
                rewards = sum(len(site.offers.rewards) for site in body.sites)
                shapes.append((len(body.sensors), len(body.actuators), rewards))
            agent.remember(shapes, [body.muscle.uid for body in bodies])
            agent.brain.setup()
            if agent.entry.get("load") is not None:
                agent.brain._dumpers = [self.loaded(agent)]
                agent.brain.load()
                bodies[0].master.set_state(self.loaded(agent).filters)
            if self.mode is not Mode.TRAIN:
                continue
            update = None
            if agent.entry.get("replay"):
                self.run_.replay(agent, bodies[0])
                update = agent.brain.pretrain()
            if update is None:
                update = agent.brain.initial_update()
            if update:
                agent.said[None] = update

    def round(self, running: list[Worker], number: int, mode: Mode, evaluation: bool) -> list[Recorder]:
        """Run an episode of each worker, and let the brains learn."""
        for worker in running:
            if worker.anew:
                worker.anew = False
                for body in worker.bodies:
                    body.muscle.teardown()
                worker.build()
                for agent in self.agents:
                    agent.bodies = [b for w in self.workers for b in w.bodies if b.agent is agent]
                    for body in agent.bodies:
                        body.master = agent.bodies[0].master
                worker.prepare()
        episodes = [Episode(worker, number, mode, evaluation) for worker in running]
        if self.count == 1:
            self.alone(episodes[0])
        else:
            self.together(episodes)
        for worker, episode in zip(running, episodes, strict=True):
            self.episodes.append((evaluation, worker.index, number, episode.log))
        return [episode.log for episode in episodes]

    def alone(self, episode: Episode) -> None:
        """One worker: the brain learns from a row at once."""
        rows: list[Any] = []
        episode.learn = lambda *row: rows.append(row)
        think = episode.think

        def think_and_tell(*args: Any) -> None:
            think(*args)
            for agent, body, row, final, ahead, log in rows:
                agent.think(body, row, final, ahead, 0, log)
            rows.clear()
            for agent in self.agents:
                agent.tell()

        episode.think = think_and_tell  # type: ignore[method-assign]
        for _ in episode.run():
            pass

    def together(self, episodes: list[Episode]) -> None:
        """Several workers: after some steps of each, the brains learn from the rows of one after the other."""
        running = {}
        for k, episode in enumerate(episodes):
            rows: list[Any] = []
            episode.learn = lambda *row, rows=rows: rows.append(row)
            running[k] = (episode, episode.run(), rows)
        alive = dict(running)
        while alive:
            for k, (episode, steps, _) in list(alive.items()):
                target = episode.log.steps + self.sync
                for _ in steps:
                    if episode.log.steps >= target:
                        break
                else:
                    del alive[k]
            waiting = [row for _, _, rows in running.values() for row in rows]
            for i, (agent, body, row, final, ahead, log) in enumerate(waiting):
                left = sum(later[0] is agent and later[2] is not None for later in waiting[i + 1 :])
                agent.think(body, row, final, ahead, left, log)
            for _, _, rows in running.values():
                rows.clear()
            for agent in self.agents:
                agent.tell()

    def judge(
        self, worker: Worker, log: Recorder, logs: list[Recorder], running: list[Worker], number: int
    ) -> SimulationFlowControl:
        """Ask the conditions of the run about an episode."""
        if worker is running[0]:
            for one, its in zip(running, logs, strict=True):
                means = {n: float(np.mean(v)) if len(v) else float("nan") for n, v in its.objectives.items()}
                one.history.append(means)
        last = SimpleNamespace(
            worker=worker.index, episode=number, steps=log.steps, flow=log.flow, ended_by=log.ended_by,
            objectives=log.objectives,
        )  # fmt: skip
        last.mean_objective = lambda agent: worker.history[-1][agent]
        view = SimpleNamespace(
            mode=self.mode, workers=self.count, episodes=self.limit, agents=[a.name for a in self.agents],
            last=last, history=[w.history for w in self.workers],
        )  # fmt: skip
        strongest, reason = log.flow, log.ended_by
        for condition in self.asked:
            answer = condition.phase_flow_control(view)
            if answer > strongest:
                strongest, reason = answer, reason_of(condition)
        if strongest >= SimulationFlowControl.STOP_PHASE:
            self.reason = self.reason or reason
        elif strongest is SimulationFlowControl.STOP_SIMULATION:
            worker.done = reason
        elif self.limit is not None and len(worker.history) >= self.limit:
            worker.done = "episodes"
        else:
            worker.anew = strongest is SimulationFlowControl.RESTART
        return strongest if strongest >= SimulationFlowControl.STOP_PHASE else CONTINUE

    def evaluated(self, workers: list[Worker], logs: list[Recorder], number: int) -> SimulationFlowControl:
        """Tell brains and conditions about an evaluation."""
        metrics: dict[str, dict[str, float]] = {}
        for agent in self.agents:
            values = [log.objectives[agent.name] for log in logs]
            metrics[agent.name] = {
                "objective": float(np.mean([np.mean(v) if len(v) else np.nan for v in values])),
                "objective_sum": float(np.mean([np.sum(v) if len(v) else np.nan for v in values])),
                "steps": float(np.mean([log.steps for log in logs])),
            }
            if agent.brain is not None:
                metrics[agent.name] |= agent.brain.evaluated(dict(metrics[agent.name])) or {}
        view = SimpleNamespace(
            mode=self.mode, workers=self.count, episodes=self.limit, agents=[a.name for a in self.agents],
            number=number, outcomes=[], metrics=metrics,
        )  # fmt: skip
        strongest = CONTINUE
        for condition in self.asked:
            answer = condition.evaluation_flow_control(view)
            if answer > strongest:
                strongest = answer
                if answer >= SimulationFlowControl.STOP_PHASE:
                    self.reason = self.reason or reason_of(condition)
        return strongest if strongest >= SimulationFlowControl.STOP_PHASE else CONTINUE


class Run:
    """A whole document."""

    def __init__(self, document: dict[str, Any]):
        self.document = document
        self.kept: dict[str, Kept] = {}
        self.phases: list[Phase] = []

    def run(self) -> None:
        content: dict[str, Any] = {}
        for item in self.document["schedule"]:
            ((name, own),) = item.items()
            content = cascade(content, own or {})
            phase = Phase(name, content, self)
            self.phases.append(phase)
            if phase.run() is SimulationFlowControl.SHUTDOWN:
                return

    def replay(self, agent: Agent, body: Body) -> None:
        """Fill the brain's memory with the rows of earlier phases."""
        for entry in agent.entry["replay"]:
            for _ in range(entry.get("repeat", 1)):
                for number, phase in enumerate(self.phases[:-1]):
                    if entry.get("phase") in (None, number):
                        self._replay(phase, agent, body)

    def _replay(self, phase: Phase, agent: Agent, body: Body) -> None:
        for evaluation, worker, _, log in sorted(phase.episodes, key=lambda e: (e[1], e[2])):
            if evaluation:
                continue
            for name, _, row in log.rows:
                if name == agent.name:
                    agent.brain.memory.append_experience(
                        Experience(
                            f"replay {name}.{worker}", row.readings, row.setpoints, row.rewards, row.objective, None,
                            row.readings, row.setpoints, row.terminated, row.truncated, None, row.step,
                        )
                    )  # fmt: skip


def cascade(earlier: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return a phase with what it inherits from the phase before it."""
    result = {
        "environments": list(earlier.get("environments", [])), "agents": list(earlier.get("agents", [])),
        "simulation": earlier.get("simulation", {}) | own.get("simulation", {}),
        "phase_config": earlier.get("phase_config", {}) | own.get("phase_config", {}),
    }  # fmt: skip
    for entry in own.get("environments", []):
        uids = [e["environment"]["uid"] for e in result["environments"]]
        replace_or_add(result["environments"], entry, entry["environment"]["uid"], uids)
    for entry in own.get("agents", []):
        names = [a["name"] for a in result["agents"]]
        known = result["agents"][names.index(entry["name"])] if entry["name"] in names else {}
        replace_or_add(result["agents"], known | entry, entry["name"], names)
    return result


def replace_or_add(entries: list[Any], entry: Any, key: str, keys: list[str]) -> None:
    if key in keys:
        entries[keys.index(key)] = entry
    else:
        entries.append(entry)


def expected(document: dict[str, Any]) -> tuple[Run, list[Any]]:
    """Run a document by plain loops; return the run, and what its parts saw."""
    journal.clear()
    run = Run(document)
    run.run()
    seen = list(journal)
    journal.clear()
    return run, seen

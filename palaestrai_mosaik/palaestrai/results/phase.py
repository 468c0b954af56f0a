"""One phase of palaestrAI's results, recorded as one of ours: rows of agents, states, episodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from palaestrai_mosaik.store.phase_recorder import PhaseRecorder
from palaestrai_mosaik.store.recorder import InstanceRecorder
from palaestrai_mosaik.store.records import AgentRecord, BodyRecord, EnvironmentRecord

from .database import PalaestraiDatabase
from .jsonpickle import Information, as_float, as_int, informations, mapping, plain
from .rows import (
    EVALUATE,
    Channels,
    EpisodeNumbering,
    Layout,
    Muscles,
    NewChannel,
    ends_of,
    moment,
    tick_of,
    workers_of,
)

_NAN = math.nan


@dataclass
class _Moments:
    """Sum, number, least and greatest of the values that are there."""

    sum: float = 0.0
    count: int = 0
    min: float = math.inf
    max: float = -math.inf

    def add(self, value: float) -> None:
        if not math.isnan(value):
            self.sum += value
            self.count += 1
            self.min = min(self.min, value)
            self.max = max(self.max, value)

    def told(self) -> dict[str, float]:
        if not self.count:
            return dict.fromkeys(("sum", "mean", "min", "max"), _NAN)
        return {"sum": self.sum, "mean": self.sum / self.count, "min": self.min, "max": self.max}


@dataclass
class _Episode:
    first: datetime
    last: datetime
    ticks: int = 0
    done: bool = False
    #: rows by agent and states by environment
    rows: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, tuple[_Moments, dict[str, _Moments]]] = field(default_factory=dict)

    def saw(self, walltime: datetime, time: int, done: bool) -> None:
        self.first, self.last = min(self.first, walltime), max(self.last, walltime)
        self.ticks, self.done = max(self.ticks, time), self.done or done


class EpisodeKey(NamedTuple):
    """Which episode of a phase it is."""

    worker: int
    episode: int
    evaluation: bool


class PhaseImport:
    """Reads the rows of palaestrAI's phases that have one number, and records them as one phase.

    Evaluations are a phase of their own there. ``notes`` counts what could not be recorded, ``read`` is
    told how many rows were read.
    """

    def __init__(
        self,
        database: PalaestraiDatabase,
        phases: Sequence[Any],
        layout: Layout,
        notes: Counter[str],
        read: Callable[[int], None],
    ):
        self.number = as_int(phases[0].number, "the number of a phase")
        #: by number of the row of palaestrAI's phase: whether it is an evaluation
        self._evaluates = {row.id: row.mode == EVALUATE for row in phases}
        first = next((row for row in phases if row.mode != EVALUATE), phases[0])
        self.name, self.mode = str(first.uid), "test" if first.mode == "test" else "train"
        self._config = mapping(first.configuration, f"the configuration of phase {self.name!r}")
        self._database, self._layout, self._notes, self._read = database, layout, notes, read
        ids = list(self._evaluates)
        self._agents = _by(database.rows("agents", "experiment_run_phase_id", ids), "name")
        self._environments = _by(database.rows("environments", "experiment_run_phase_id", ids), "uid")
        #: what became of the episodes, once they were recorded
        self.episodes: dict[EpisodeKey, _Episode] = {}
        #: at how many steps an agent that has actuators set none of them
        self.silent: Counter[str] = Counter()
        self._recorder: PhaseRecorder | None = None

    @property
    def row_id(self) -> int:
        """The number of the row of the phase that was recorded."""
        assert self._recorder is not None
        return self._recorder.row_id

    @property
    def agent_ids(self) -> dict[int, str]:
        """The agents' names by the numbers of their rows."""
        return {row.id: name for name, rows in self._agents.items() for row in rows}

    def record(self, recorder: InstanceRecorder, controller: str, reason: str) -> None:
        """Record the phase. Raises :class:`NewChannel` where it must be done again with more columns."""
        self._look()
        workers = self._config.get("workers", self._config.get("worker"))
        episodes = self._config.get("episodes")
        self._recorder = recorder.begin_phase(
            self.number,
            self.name,
            mode=self.mode,
            workers=as_int(workers, "the number of workers") if isinstance(workers, int) else 1,
            episodes=as_int(episodes, "the number of episodes") if isinstance(episodes, int) else None,
            controller=controller,
            environments=[self._environment(uid) for uid in self._environments],
            agents=[self._agent(name) for name in self._agents],
        )
        for uid, rows in self._environments.items():
            self._record_states(uid, rows)
        for name, rows in self._agents.items():
            self._record_actions(name, rows)
        self._record_episodes()
        self._recorder.finish(reason)

    def is_over(self) -> bool:
        """Whether every worker's last episode was done."""
        last: dict[int, EpisodeKey] = {}
        for key in sorted(self.episodes):
            if not key.evaluation:
                last[key.worker] = key
        return bool(last) and all(self.episodes[key].done for key in last.values())

    def _look(self) -> None:
        """Learn the channels from the first row of each owner."""
        for uid, rows in self._environments.items():
            first = self._first("world_states", "environment_id", rows)
            if first is not None:
                self._channels("environment", uid, "sensor").learn(informations(first.state_dump))
                if self._database.has("world_states", "setpoints"):
                    self._channels("environment", uid, "actuator").learn(informations(first.setpoints))
        for name, rows in self._agents.items():
            first = self._first("muscle_actions", "agent_id", rows)
            if first is not None:
                self._channels("agent", name, "sensor").learn(informations(first.sensor_readings))
                self._channels("agent", name, "actuator").learn(informations(first.actuator_setpoints))
                self._channels("agent", name, "reward").learn(self._rewards(first))

    def _channels(self, what: str, name: str, kind: str) -> Channels:
        return self._layout.channels(self.number, what, name, kind)

    def _environment(self, uid: str) -> EnvironmentRecord:
        row = self._environments[uid][0]
        params = plain(getattr(row, "parameters", None))
        if isinstance(params, dict):
            # these are not the user's, and others in every execution
            params = {key: value for key, value in params.items() if key not in ("uid", "broker_uri", "seed")}
        return EnvironmentRecord(
            uid=uid,
            name=str(getattr(row, "type", None) or ""),
            params=params,
            sensors=self._channels("environment", uid, "sensor").records(),
            actuators=self._channels("environment", uid, "actuator").records(),
            world_model=plain(getattr(row, "static_model", None)),
        )

    def _agent(self, name: str) -> AgentRecord:
        config = plain(self._agents[name][0].configuration)
        config = config if isinstance(config, dict) else {}
        brain, muscle, objective = (_class(config.get(part)) for part in ("brain", "muscle", "objective"))
        alone = list(self._environments)
        body = BodyRecord(
            environment=alone[0] if len(alone) == 1 else None,
            muscle=muscle,
            objective=objective,
            sensors=self._channels("agent", name, "sensor").records(),
            actuators=self._channels("agent", name, "actuator").records(),
            rewards=self._channels("agent", name, "reward").columns(),
            proposed=(self.number, name) in self._layout.proposing,
        )
        return AgentRecord(name, brain, muscle, objective, [body])

    def _record_states(self, uid: str, rows: Sequence[Any]) -> None:
        assert self._recorder is not None
        workers = workers_of(rows, self._evaluates)
        channels, cuts = self._channels("environment", uid, "sensor"), EpisodeNumbering()
        for row in self._rows("world_states", "environment_id", rows):
            worker, evaluation = workers[row.environment_id]
            tick, done = row.simtime_ticks, bool(row.done)
            tick = None if tick is None else as_int(tick, "the time of a world state")
            number, step = cuts.place((worker, evaluation), row.episode, tick, done)
            time = step + 1 if tick is None else tick
            readings = channels.vector(informations(row.state_dump))
            stamp, walltime = getattr(row, "simtime_timestamp", None), moment(row.walltime)
            state = None if stamp is None else {"simtime_timestamp": stamp.isoformat()}
            stream = self._recorder.environment(uid, evaluation)
            # (the state before the first step is not recorded there)
            stream.append(worker, number, step + 1, time, readings, (), done, False, state)
            episode = self._episode(EpisodeKey(worker, number, evaluation), walltime)
            episode.saw(walltime, time, done)
            episode.states[uid] += 1

    def _record_actions(self, name: str, rows: Sequence[Any]) -> None:
        assert self._recorder is not None
        muscles = Muscles(rows, self._evaluates)
        sensors, actuators, told = (
            self._channels("agent", name, k) for k in ("sensor", "actuator", "reward")
        )
        proposing, cuts = (self.number, name) in self._layout.proposing, EpisodeNumbering()
        rewards_of, walls = told.columns(), dict[Any, datetime]()
        for row in self._rows("muscle_actions", "agent_id", rows):
            worker, evaluation = muscles.worker(row)
            done, tick = bool(row.done), tick_of(row.simtimes)
            number, step = cuts.place((worker, evaluation), row.episode, tick, done)
            key, time = EpisodeKey(worker, number, evaluation), step if tick is None else tick
            wished, applied = row.actuator_setpoints, getattr(row, "applied_actuator_setpoints", None)
            if applied not in (None, "null", wished) and not proposing:
                self._layout.proposing.add((self.number, name))
                raise NewChannel
            wishes = informations(wished)
            self.silent[name] += not wishes and len(actuators) > 0
            proposed = actuators.vector(wishes)
            setpoints = (
                proposed if applied in (None, "null", wished) else actuators.vector(informations(applied))
            )
            rewards = told.vector(self._rewards(row))
            objective = _NAN if row.objective is None else as_float(row.objective, "an objective")
            walltime = moment(row.walltime)
            wall = (walltime - walls[key]).total_seconds() if key in walls else _NAN
            walls = {one: at for one, at in walls.items() if one.worker != worker} | {key: walltime}
            self._recorder.agent(name, evaluation).append(
                *(worker, number, step, time),
                *(sensors.vector(informations(row.sensor_readings)), setpoints, rewards, objective),
                *ends_of(row, done),
                wall,
                proposed=proposed if proposing else None,
            )
            episode = self._episode(key, walltime)
            episode.saw(walltime, time, done)
            episode.rows[name] += 1
            fresh = (_Moments(), {reward: _Moments() for reward in rewards_of})
            own, each = episode.outcomes.setdefault(name, fresh)
            own.add(objective)
            for moments, value in zip(each.values(), rewards, strict=True):
                moments.add(value)
            self._record_statistics(name, key, step, row)

    def _record_statistics(self, name: str, key: EpisodeKey, step: int, row: Any) -> None:
        assert self._recorder is not None
        found = mapping(getattr(row, "statistics", None), "what an agent tells about itself")
        for what, value in found.items():
            figure = _figure(value)
            if figure is None:
                self._notes[f"statistic {what!r} of agent {name!r} that is no number"] += 1
            else:
                self._recorder.statistic(name, key.worker, key.episode, step, what, figure, key.evaluation)

    def _record_episodes(self) -> None:
        assert self._recorder is not None
        for key in sorted(self.episodes):
            one = self.episodes[key]
            self._recorder.episode(
                key.worker,
                key.episode,
                steps=max((one.states or one.rows).values()),
                ticks=one.ticks,
                ended_by="done" if one.done else "not recorded",
                flow="RESET" if one.done else "CONTINUE",
                duration=(one.last - one.first).total_seconds(),
                agents={
                    name: {"objective": own.told(), "rewards": {r: m.told() for r, m in each.items()}}
                    for name, (own, each) in one.outcomes.items()
                },
                evaluation=key.evaluation,
            )

    def _rewards(self, row: Any) -> list[Information]:
        """Return the rewards of a row, named as here: with the environment, where there is one only."""
        found = informations(row.rewards)
        if len(self._environments) != 1:
            return found
        (uid,) = self._environments
        return [o if o.uid.startswith(f"{uid}.") else o._replace(uid=f"{uid}.{o.uid}") for o in found]

    def _episode(self, key: EpisodeKey, walltime: datetime) -> _Episode:
        found = self.episodes.get(key)
        if found is None:
            found = self.episodes[key] = _Episode(walltime, walltime)
        return found

    def _first(self, table: str, column: str, owners: Sequence[Any]) -> Any:
        each = (next(self._database.rows(table, column, [owner.id]), None) for owner in owners)
        return next((row for row in each if row is not None), None)

    def _rows(self, table: str, column: str, owners: Sequence[Any]) -> Iterator[Any]:
        for owner in owners:  # one by one: databases have them in order by an index
            for row in self._database.rows(table, column, [owner.id]):
                self._read(1)
                yield row


def _by(rows: Iterable[Any], name: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(str(getattr(row, name)), []).append(row)
    return found


def _figure(value: Any) -> float | None:
    """Return a statistic as one number: of several, their mean."""
    several = list(value.values()) if isinstance(value, dict) else value
    several = several if isinstance(several, list) else [several]
    if not several or not all(isinstance(one, int | float) for one in several):
        return None
    try:
        return math.fsum(several) / len(several)
    except ValueError:  # of both infinities
        return _NAN
    except OverflowError:
        return None


def _class(part: Any) -> str | None:
    return str(part["name"]) if isinstance(part, dict) and part.get("name") else None

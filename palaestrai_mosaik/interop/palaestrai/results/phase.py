"""One phase of palaestrAI's results, recorded as a phase of the store.

The first classes determine the channels, the numbers of episodes and workers, and the dates; :class:`PhaseImport`
records the rows.

palaestrAI restarts its count of episodes when a simulation restarts, and some releases do not count at all. Therefore,
an episode ends if a row is done, if its number changes, or if the simulated time decreases. Episodes are numbered from
0 for each worker.

Instances and, since 3.5, the ends of phases are dated in UTC by the database. Rows are dated in the machine's local
time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from palaestrai_mosaik.core.errors import SpaceError, StoreError
from palaestrai_mosaik.store.recorder import InstanceRecorder, PhaseRecorder
from palaestrai_mosaik.store.records import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord
from palaestrai_mosaik.types import Space

from .database import Information, PalaestraiDatabase, as_float, as_int, informations, mapping, numbers, plain

_NAN = math.nan


#: the mode of an evaluation
EVALUATE = "evaluate"
_EARLIEST, _LATEST = datetime.min + timedelta(days=2), datetime.max - timedelta(days=2)
#: the owner of channels: phase, kind of owner, name of the agent or uid of the environment, kind of channel
_Owner = tuple[int, str, str, str]


class NewChannel(Exception):
    """A row has a new channel, so the recording must be repeated with a column for it."""


class Channels:
    """The growing set of channels of one kind in the rows of an agent or environment."""

    def __init__(self) -> None:
        self._spaces: dict[str, tuple[str, int]] = {}
        self._slices: dict[str, slice] = {}
        self._empty: list[float] = []

    def __len__(self) -> int:
        return len(self._spaces)

    def learn(self, row: Iterable[Information]) -> None:
        """Add the channels of a row that are new or larger than before."""
        for information in row:
            previous = self._spaces.get(information.uid)
            size = max(1, sum(1 for _ in numbers(information.value)))
            if previous is None or size > previous[1]:
                self._spaces[information.uid] = (_space_text(information.space), size)
        self._empty, self._slices = [], {}
        for uid, (_, size) in self._spaces.items():
            self._slices[uid] = slice(len(self._empty), len(self._empty) + size)
            self._empty += [math.nan] * size

    def vector(self, row: Sequence[Information]) -> list[float]:
        """Return the numbers of all channels, with NaN for those that the row lacks.

        Raises :class:`NewChannel` if the row has new or larger channels, which are added.
        """
        result = self._empty.copy()
        for information in row:
            part, value = self._slices.get(information.uid), information.value
            size = 0 if part is None else part.stop - part.start
            if part is not None and size == 1 and type(value) in (int, float):
                result[part.start] = value if type(value) is float else as_float(value)
                continue
            flat = list(numbers(value))
            if part is None or len(flat) > size:
                self.learn(row)
                raise NewChannel
            result[part.start : part.start + len(flat)] = flat
        return result

    def records(self) -> list[ChannelRecord]:
        """Return the records of the channels for the store."""
        return [ChannelRecord(uid, space, size) for uid, (space, size) in self._spaces.items()]

    def columns(self) -> list[str]:
        """Return a name for each number."""
        sizes = [(uid, size) for uid, (_, size) in self._spaces.items()]
        return [uid if size == 1 else f"{uid}[{i}]" for uid, size in sizes for i in range(size)]


class Layout:
    """The columns of the streams of an instance, which are kept when its recording is repeated."""

    def __init__(self) -> None:
        self._channels: dict[_Owner, Channels] = {}
        #: agents (phase, name) with set-points that differ from the applied ones
        self.proposing: set[tuple[int, str]] = set()

    def channels(self, *owner: Any) -> Channels:
        """Return the channels of a phase, ``agent`` or ``environment``, its name, and a kind of channel."""
        return self._channels.setdefault(owner, Channels())


class EpisodeNumbering:
    """Numbers the episodes of each stream of rows, and their steps."""

    def __init__(self) -> None:
        self._last: dict[Any, tuple[Any, int | None, bool]] = {}
        self._at: dict[Any, tuple[int, int]] = {}

    def position(self, stream: Any, episode: Any, tick: int | None, done: bool) -> tuple[int, int]:
        """Return the episode's number, and the number of its earlier rows."""
        last = self._last.get(stream)
        number, step = self._at.get(stream, (0, -1))
        if last is None:
            number, step = 0, 0
        elif last[2] or last[0] != episode or (tick is not None and last[1] is not None and tick < last[1]):
            number, step = number + 1, 0
        else:
            step += 1
        self._last[stream], self._at[stream] = (episode, tick, done), (number, step)
        return number, step


class WorkerNumbers:
    """Assigns muscles to workers by their order in the list of an agent's muscles."""

    def __init__(self, rows: Sequence[Any], evaluates: Mapping[int, bool]):
        self._evaluation = {row.id: evaluates[row.experiment_run_phase_id] for row in rows}
        self._muscles: dict[bool, list[str]] = {False: [], True: []}
        for row in rows:
            muscles = plain(row.muscles)
            self._muscles[self._evaluation[row.id]] += muscles if isinstance(muscles, list) else []

    def worker(self, row: Any) -> tuple[int, bool]:
        """Return the worker's number, and whether it evaluates."""
        evaluation = self._evaluation[row.agent_id] or getattr(row, "mode", None) == EVALUATE
        muscles, muscle = self._muscles[evaluation], row.rollout_worker_uid
        if muscle not in muscles:
            muscles.append(muscle)
        return muscles.index(muscle), evaluation


def workers_of(rows: Iterable[Any], evaluates: Mapping[int, bool]) -> dict[int, tuple[int, bool]]:
    """Return the worker of each copy of an environment, in the order of their creation."""
    counts: Counter[bool] = Counter()
    workers = {}
    for row in rows:
        evaluation = evaluates[row.experiment_run_phase_id]
        workers[row.id] = (counts[evaluation], evaluation)
        counts[evaluation] += 1
    return workers


def tick_of(simtimes: str | None) -> int | None:
    """Return the latest of the environments' times, or ``None`` without environments."""
    times = []
    for uid, time in mapping(simtimes, "the times of the environments").items():
        if not isinstance(time, dict):
            raise StoreError(f"the time of environment {uid!r} cannot be read: it is no mapping")
        if time.get("simtime_ticks") is not None:
            times.append(as_int(time["simtime_ticks"], f"the time of environment {uid!r}"))
    return max(times, default=None)


def as_date(date: Any) -> datetime:
    """Return a date with a time zone, by default UTC. Raises :class:`StoreError` if ``date`` is not a date."""
    # two days from the limits, so that a change of the time zone cannot overflow
    if not isinstance(date, datetime) or not _EARLIEST <= date.replace(tzinfo=None) <= _LATEST:
        raise StoreError(f"cannot read {date!r}: expected is a date")
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def termination_of(row: Any, done: bool) -> tuple[bool, bool]:
    """Return whether a row is terminated and truncated; rows of old releases only have ``done``."""
    terminated, truncated = getattr(row, "terminated", None), getattr(row, "truncated", None)
    if terminated is None and truncated is None:
        return done, False
    return bool(terminated), bool(truncated)


def _space_text(text: str) -> str:
    """Return a space's text in our form, or unchanged if it cannot be parsed."""
    try:
        return str(Space.from_string(text))
    except SpaceError:
        return text


#: time zones are multiples of this step
_STEP = timedelta(minutes=15)
#: existing time zones other than whole hours from -12 to 14 (IANA Time Zone Database, 2025)
_BETWEEN = (-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)
_ZONES = [timedelta(hours=hours) for hours in (*range(-12, 15), *_BETWEEN)]
#: maximum distance of a zone computed from the end of a phase to an existing zone
_NEAR = timedelta(minutes=5)


def zone_of(started: datetime, first: datetime, ends: Sequence[tuple[datetime, datetime]]) -> timedelta:
    """Estimate the offset of the rows' local time from UTC.

    If phases have ended, it is derived from the end of the last row and of the phase, which are seconds apart.
    Otherwise, it is the existing zone for which the first row follows the start most closely. In that case, a run with
    a late first row may be assigned to a wrong zone.

    Args:
        started: the date of the instance's creation, in UTC.
        first: the date of its first row, in local time.
        ends: for each ended phase, the date of its last row in local time, and its end in UTC.
    """
    # rows precede the end of their phase, so the maximum is the closest
    if ends:
        apart = max(last - ended for last, ended in ends)
        zone = round(apart / _STEP) * _STEP
        if zone in _ZONES and abs(apart - zone) <= _NEAR:
            return zone
    # by the database's clock, the row may slightly precede the instance
    before = [zone for zone in _ZONES if zone <= first - started + timedelta(minutes=1)]
    return max(before, default=_ZONES[0])


@dataclass
class _Summary:
    """Sum, mean, minimum and maximum of the values that are not NaN."""

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

    def summary(self) -> dict[str, float]:
        if not self.count:
            return dict.fromkeys(("sum", "mean", "min", "max"), _NAN)
        return {"sum": self.sum, "mean": self.sum / self.count, "min": self.min, "max": self.max}


@dataclass
class _Episode:
    first: datetime
    last: datetime
    ticks: int = 0
    done: bool = False
    #: numbers of rows by agent, and of states by environment
    rows: Counter[str] = field(default_factory=Counter)
    states: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, tuple[_Summary, dict[str, _Summary]]] = field(default_factory=dict)

    def add_row(self, walltime: datetime, time: int, done: bool) -> None:
        self.first, self.last = min(self.first, walltime), max(self.last, walltime)
        self.ticks, self.done = max(self.ticks, time), self.done or done

    def add_outcome(self, agent: str, objective: float, rewards: Mapping[str, float]) -> None:
        """Count a row of an agent, with its objective and rewards."""
        self.rows[agent] += 1
        total, by_reward = self.outcomes.setdefault(agent, (_Summary(), {}))
        total.add(objective)
        for name, value in rewards.items():
            by_reward.setdefault(name, _Summary()).add(value)


class EpisodeKey(NamedTuple):
    """Identifies an episode of a phase."""

    worker: int
    episode: int
    evaluation: bool


class PhaseImport:
    """Records all palaestrAI phases with the same number as one phase.

    In palaestrAI, evaluations are separate phases. ``notes`` counts data that cannot be recorded. ``read`` is called
    with numbers of read rows.
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
        #: by id of palaestrAI's phase, whether it is an evaluation
        self._evaluates = {row.id: row.mode == EVALUATE for row in phases}
        first = next((row for row in phases if row.mode != EVALUATE), phases[0])
        self.name, self.mode = str(first.uid), "test" if first.mode == "test" else "train"
        self._config = mapping(first.configuration, f"the configuration of phase {self.name!r}")
        self._database, self._layout, self._notes, self._read = database, layout, notes, read
        ids = list(self._evaluates)
        self._agents = _grouped(database.rows("agents", "experiment_run_phase_id", ids), "name")
        self._environments = _grouped(database.rows("environments", "experiment_run_phase_id", ids), "uid")
        #: the recorded episodes
        self.episodes: dict[EpisodeKey, _Episode] = {}
        #: by agent with actuators, the number of steps in which it set none
        self.silent: Counter[str] = Counter()
        self._recorder: PhaseRecorder | None = None

    @property
    def row_id(self) -> int:
        """The id of the recorded phase."""
        assert self._recorder is not None
        return self._recorder.row_id

    @property
    def agent_ids(self) -> dict[int, str]:
        """The agents' names by id."""
        return {row.id: name for name, rows in self._agents.items() for row in rows}

    def record(self, recorder: InstanceRecorder, controller: str, reason: str) -> None:
        """Record the phase. Raises :class:`NewChannel` if it must be repeated with more columns."""
        self._learn_channels()
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
        """Return whether every worker's last episode is done."""
        last: dict[int, EpisodeKey] = {}
        for key in sorted(self.episodes):
            if not key.evaluation:
                last[key.worker] = key
        return bool(last) and all(self.episodes[key].done for key in last.values())

    def _learn_channels(self) -> None:
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
            # generated parameters, which differ between executions
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
        brain, muscle, objective = (
            _class_name(config.get(part)) for part in ("brain", "muscle", "objective")
        )
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
            number, step = cuts.position((worker, evaluation), row.episode, tick, done)
            time = step + 1 if tick is None else tick
            readings = channels.vector(informations(row.state_dump))
            stamp, walltime = getattr(row, "simtime_timestamp", None), as_date(row.walltime)
            state = None if stamp is None else {"simtime_timestamp": stamp.isoformat()}
            stream = self._recorder.environment(uid, evaluation)
            # palaestrAI does not record the state before the first step
            stream.append(worker, number, step + 1, time, readings, (), done, False, state)
            episode = self._episode(EpisodeKey(worker, number, evaluation), walltime)
            episode.add_row(walltime, time, done)
            episode.states[uid] += 1

    def _record_actions(self, name: str, rows: Sequence[Any]) -> None:
        assert self._recorder is not None
        muscles = WorkerNumbers(rows, self._evaluates)
        sensors, actuators, reward_channels = (
            self._channels("agent", name, k) for k in ("sensor", "actuator", "reward")
        )
        proposing, cuts = (self.number, name) in self._layout.proposing, EpisodeNumbering()
        reward_names = reward_channels.columns()
        #: by worker, the episode and the date of its newest row
        newest: dict[int, tuple[EpisodeKey, datetime]] = {}
        for row in self._rows("muscle_actions", "agent_id", rows):
            worker, evaluation = muscles.worker(row)
            done, tick = bool(row.done), tick_of(row.simtimes)
            number, step = cuts.position((worker, evaluation), row.episode, tick, done)
            key, time = EpisodeKey(worker, number, evaluation), step if tick is None else tick
            wished, applied = row.actuator_setpoints, getattr(row, "applied_actuator_setpoints", None)
            differs = applied not in (None, "null", wished)
            if differs and not proposing:
                self._layout.proposing.add((self.number, name))
                raise NewChannel
            wishes = informations(wished)
            self.silent[name] += not wishes and len(actuators) > 0
            proposed = actuators.vector(wishes)
            setpoints = actuators.vector(informations(applied)) if differs else proposed
            rewards = reward_channels.vector(self._rewards(row))
            objective = _NAN if row.objective is None else as_float(row.objective, "an objective")
            walltime = as_date(row.walltime)
            last_key, last_date = newest.get(worker, (None, walltime))
            newest[worker] = key, walltime
            wall = (walltime - last_date).total_seconds() if key == last_key else _NAN
            self._recorder.agent(name, evaluation).append(
                *(worker, number, step, time),
                *(sensors.vector(informations(row.sensor_readings)), setpoints, rewards, objective),
                *termination_of(row, done),
                wall,
                proposed=proposed if proposing else None,
            )
            episode = self._episode(key, walltime)
            episode.add_row(walltime, time, done)
            episode.add_outcome(name, objective, dict(zip(reward_names, rewards, strict=True)))
            self._record_statistics(name, key, step, row)

    def _record_statistics(self, name: str, key: EpisodeKey, step: int, row: Any) -> None:
        assert self._recorder is not None
        statistics = mapping(getattr(row, "statistics", None), "what an agent tells about itself")
        for what, value in statistics.items():
            figure = _mean_of(value)
            if figure is None:
                self._notes[f"statistic {what!r} of agent {name!r} that is no number"] += 1
            else:
                self._recorder.statistic(name, key.worker, key.episode, step, what, figure, key.evaluation)

    def _record_episodes(self) -> None:
        assert self._recorder is not None
        for key in sorted(self.episodes):
            episode = self.episodes[key]
            self._recorder.episode(
                key.worker,
                key.episode,
                steps=max((episode.states or episode.rows).values()),
                ticks=episode.ticks,
                ended_by="done" if episode.done else "not recorded",
                flow="RESET" if episode.done else "CONTINUE",
                duration=(episode.last - episode.first).total_seconds(),
                agents={
                    name: {
                        "objective": total.summary(),
                        "rewards": {r: m.summary() for r, m in each.items()},
                    }
                    for name, (total, each) in episode.outcomes.items()
                },
                evaluation=key.evaluation,
            )

    def _rewards(self, row: Any) -> list[Information]:
        """Return the rewards of a row, prefixed with the environment if there is only one."""
        rewards = informations(row.rewards)
        if len(self._environments) != 1:
            return rewards
        (uid,) = self._environments
        return [o if o.uid.startswith(f"{uid}.") else o._replace(uid=f"{uid}.{o.uid}") for o in rewards]

    def _episode(self, key: EpisodeKey, walltime: datetime) -> _Episode:
        episode = self.episodes.get(key)
        if episode is None:
            episode = self.episodes[key] = _Episode(walltime, walltime)
        return episode

    def _first(self, table: str, column: str, owners: Sequence[Any]) -> Any:
        each = (next(self._database.rows(table, column, [owner.id]), None) for owner in owners)
        return next((row for row in each if row is not None), None)

    def _rows(self, table: str, column: str, owners: Sequence[Any]) -> Iterator[Any]:
        for owner in owners:  # one by one, because an index provides the order
            for row in self._database.rows(table, column, [owner.id]):
                self._read(1)
                yield row


def _grouped(rows: Iterable[Any], name: str) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(str(getattr(row, name)), []).append(row)
    return groups


def _mean_of(value: Any) -> float | None:
    """Return the mean of a statistic, or ``None`` if it is not numeric."""
    values = list(value.values()) if isinstance(value, dict) else value
    values = values if isinstance(values, list) else [values]
    if not values or not all(isinstance(item, int | float) for item in values):
        return None
    try:
        return math.fsum(values) / len(values)
    except ValueError:  # infinities of both signs
        return _NAN
    except OverflowError:
        return None


def _class_name(part: Any) -> str | None:
    return str(part["name"]) if isinstance(part, dict) and part.get("name") else None

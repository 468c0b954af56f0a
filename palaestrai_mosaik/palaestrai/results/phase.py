"""One phase of palaestrAI's results, recorded as one of ours.

First what its rows mean: their channels, the numbers of episodes and workers, and their dates; then
:class:`PhaseImport`, which records them.

palaestrAI counts episodes from 0 again when a simulation restarts, and in some releases not at all. So
an episode ends where a row says that it is done, where its number changes, or where the simulated
time falls back, and is numbered here from 0, for each worker.

An instance, and the end of each phase, are dated in UTC (by the database, and since 3.5), rows in the
local time of the machine.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from palaestrai_mosaik.errors import SpaceError, StoreError
from palaestrai_mosaik.store.phase_recorder import PhaseRecorder
from palaestrai_mosaik.store.recorder import InstanceRecorder
from palaestrai_mosaik.store.records import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord
from palaestrai_mosaik.types import Space

from .database import PalaestraiDatabase
from .jsonpickle import Information, as_float, as_int, informations, mapping, numbers, plain

_NAN = math.nan


#: the mode of an evaluation
EVALUATE = "evaluate"
_EARLIEST, _LATEST = datetime.min + timedelta(days=2), datetime.max - timedelta(days=2)
#: the owner of channels: phase, kind of owner, name of the agent or uid of the environment, kind
_Owner = tuple[int, str, str, str]


class NewChannel(Exception):
    """A row has a channel that no earlier row had: the recording must restart with a column for it."""


class Channels:
    """The channels of one kind that the rows of an agent or environment have; they grow."""

    def __init__(self) -> None:
        self._spaces: dict[str, tuple[str, int]] = {}
        self._places: dict[str, slice] = {}
        self._empty: list[float] = []

    def __len__(self) -> int:
        return len(self._spaces)

    def learn(self, found: Iterable[Information]) -> bool:
        """Know these channels; return whether any was new, or larger than before."""
        grown = False
        for one in found:
            known = self._spaces.get(one.uid)
            size = max(1, sum(1 for _ in numbers(one.value)))
            if known is None or size > known[1]:
                self._spaces[one.uid] = (_space_text(one.space), size)
                grown = True
        if grown:
            self._empty, self._places = [], {}
            for uid, (_, size) in self._spaces.items():
                self._places[uid] = slice(len(self._empty), len(self._empty) + size)
                self._empty += [math.nan] * size
        return grown

    def vector(self, found: Sequence[Information]) -> list[float]:
        """Return the numbers of all channels, NaN for those that are not among ``found``.

        Raises :class:`NewChannel` where these need more room; then they are known.
        """
        result = self._empty.copy()
        for one in found:
            place, value = self._places.get(one.uid), one.value
            if place is not None and type(value) in (int, float) and place.stop - place.start == 1:
                result[place.start] = value if type(value) is float else as_float(value)
                continue
            flat = list(numbers(value))
            if place is None or len(flat) > place.stop - place.start:
                self.learn(found)
                raise NewChannel
            result[place.start : place.start + len(flat)] = flat
        return result

    def records(self) -> list[ChannelRecord]:
        """Return the channels as the store keeps them."""
        return [ChannelRecord(uid, space, size) for uid, (space, size) in self._spaces.items()]

    def columns(self) -> list[str]:
        """Return one name for each number."""
        sizes = [(uid, size) for uid, (_, size) in self._spaces.items()]
        return [uid if size == 1 else f"{uid}[{i}]" for uid, size in sizes for i in range(size)]


class Layout:
    """What columns the streams of an instance have. It is kept where its recording begins again."""

    def __init__(self) -> None:
        self._channels: dict[_Owner, Channels] = {}
        #: agents (phase, name) that would have done something else than was done
        self.proposing: set[tuple[int, str]] = set()

    def channels(self, *owner: Any) -> Channels:
        """Return the channels of an owner: phase, ``agent`` or ``environment``, its name, the kind."""
        return self._channels.setdefault(owner, Channels())


class EpisodeNumbering:
    """Numbers the episodes of each stream of rows, and the steps in them."""

    def __init__(self) -> None:
        self._last: dict[Any, tuple[Any, int | None, bool]] = {}
        self._at: dict[Any, tuple[int, int]] = {}

    def place(self, stream: Any, episode: Any, tick: int | None, done: bool) -> tuple[int, int]:
        """Return the number of the episode, and how many rows of it came before."""
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
    """Which worker a muscle is of: their order in the list that an agent has of them."""

    def __init__(self, rows: Sequence[Any], evaluates: Mapping[int, bool]):
        self._evaluation = {row.id: evaluates[row.experiment_run_phase_id] for row in rows}
        self._known: dict[bool, list[str]] = {False: [], True: []}
        for row in rows:
            muscles = plain(row.muscles)
            self._known[self._evaluation[row.id]] += muscles if isinstance(muscles, list) else []

    def worker(self, row: Any) -> tuple[int, bool]:
        """Return the number of the worker, and whether it evaluates."""
        evaluation = self._evaluation[row.agent_id] or getattr(row, "mode", None) == EVALUATE
        known, muscle = self._known[evaluation], row.rollout_worker_uid
        if muscle not in known:
            known.append(muscle)
        return known.index(muscle), evaluation


def workers_of(rows: Iterable[Any], evaluates: Mapping[int, bool]) -> dict[int, tuple[int, bool]]:
    """Return for each copy of an environment its worker, in the order in which they were made."""
    counts: Counter[bool] = Counter()
    found = {}
    for row in rows:
        evaluation = evaluates[row.experiment_run_phase_id]
        found[row.id] = (counts[evaluation], evaluation)
        counts[evaluation] += 1
    return found


def tick_of(simtimes: str | None) -> int | None:
    """Return the time of the environment that is the furthest; ``None`` without environments."""
    times = []
    for uid, one in mapping(simtimes, "the times of the environments").items():
        if not isinstance(one, dict):
            raise StoreError(f"the time of environment {uid!r} cannot be read: it is no mapping")
        if one.get("simtime_ticks") is not None:
            times.append(as_int(one["simtime_ticks"], f"the time of environment {uid!r}"))
    return max(times, default=None)


def as_date(date: Any) -> datetime:
    """Return a date of a row with a zone; in UTC where it has no zone. Raises :class:`StoreError` for what is no date."""
    # (a day at both ends is for zones)
    if not isinstance(date, datetime) or not _EARLIEST <= date.replace(tzinfo=None) <= _LATEST:
        raise StoreError(f"cannot read {date!r}: expected is a date")
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def termination_of(row: Any, done: bool) -> tuple[bool, bool]:
    """Return terminated and truncated; older rows know only that it is done."""
    terminated, truncated = getattr(row, "terminated", None), getattr(row, "truncated", None)
    if terminated is None and truncated is None:
        return done, False
    return bool(terminated), bool(truncated)


def _space_text(text: str) -> str:
    """Return a space's text as it is written here; what cannot be read stays."""
    try:
        return str(Space.from_string(text))
    except SpaceError:
        return text


#: zones differ by such steps
_STEP = timedelta(minutes=15)
#: the zones in use that are not whole hours from -12 to 14 (IANA Time Zone Database, 2025)
_BETWEEN = (-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)
_ZONES = [timedelta(hours=hours) for hours in (*range(-12, 15), *_BETWEEN)]
#: a zone is taken from the end of a phase if it lies that near to one in use
_NEAR = timedelta(minutes=5)


def zone_of(started: datetime, first: datetime, ends: Sequence[tuple[datetime, datetime]]) -> timedelta:
    """Return by how much the dates of rows are before those of UTC.

    ``started``: when the instance was made, in UTC; ``first``: the date of its first row. ``ends``: for
    each phase that has ended, the date of its last row, and when palaestrAI says that it has ended, in
    UTC: they lie seconds apart. Where there is none of these, the zone is the one in use with the
    first row the nearest after the start. Then a run of which the first row came late may be
    taken for one of another zone.
    """
    # rows come before the end, so the least of these is the nearest
    if ends:
        apart = max(last - ended for last, ended in ends)
        zone = round(apart / _STEP) * _STEP
        if zone in _ZONES and abs(apart - zone) <= _NEAR:
            return zone
    # (by the clock of the database, the row may be a moment before the instance)
    before = [zone for zone in _ZONES if zone <= first - started + timedelta(minutes=1)]
    return max(before, default=_ZONES[0])


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

    def as_mapping(self) -> dict[str, float]:
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

    def add_row(self, walltime: datetime, time: int, done: bool) -> None:
        self.first, self.last = min(self.first, walltime), max(self.last, walltime)
        self.ticks, self.done = max(self.ticks, time), self.done or done


class EpisodeKey(NamedTuple):
    """Which episode of a phase it is."""

    worker: int
    episode: int
    evaluation: bool


class PhaseImport:
    """Reads the rows of palaestrAI's phases that have one number, and records them as one phase.

    Evaluations are a phase of their own there. ``notes`` counts what could not be recorded, ``read`` gets
    how many rows were read.
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
        self._agents = _grouped(database.rows("agents", "experiment_run_phase_id", ids), "name")
        self._environments = _grouped(database.rows("environments", "experiment_run_phase_id", ids), "uid")
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
        """Whether every worker's last episode was done."""
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
            number, step = cuts.place((worker, evaluation), row.episode, tick, done)
            time = step + 1 if tick is None else tick
            readings = channels.vector(informations(row.state_dump))
            stamp, walltime = getattr(row, "simtime_timestamp", None), as_date(row.walltime)
            state = None if stamp is None else {"simtime_timestamp": stamp.isoformat()}
            stream = self._recorder.environment(uid, evaluation)
            # (the state before the first step is not recorded there)
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
        rewards_of, walls = reward_channels.columns(), dict[Any, datetime]()
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
            rewards = reward_channels.vector(self._rewards(row))
            objective = _NAN if row.objective is None else as_float(row.objective, "an objective")
            walltime = as_date(row.walltime)
            wall = (walltime - walls[key]).total_seconds() if key in walls else _NAN
            walls = {one: at for one, at in walls.items() if one.worker != worker} | {key: walltime}
            self._recorder.agent(name, evaluation).append(
                *(worker, number, step, time),
                *(sensors.vector(informations(row.sensor_readings)), setpoints, rewards, objective),
                *termination_of(row, done),
                wall,
                proposed=proposed if proposing else None,
            )
            episode = self._episode(key, walltime)
            episode.add_row(walltime, time, done)
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
            figure = _mean_of(value)
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
                    name: {
                        "objective": own.as_mapping(),
                        "rewards": {r: m.as_mapping() for r, m in each.items()},
                    }
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


def _grouped(rows: Iterable[Any], name: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for row in rows:
        found.setdefault(str(getattr(row, name)), []).append(row)
    return found


def _mean_of(value: Any) -> float | None:
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


def _class_name(part: Any) -> str | None:
    return str(part["name"]) if isinstance(part, dict) and part.get("name") else None

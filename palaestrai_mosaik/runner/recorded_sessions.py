"""Sessions recorded in a store, replayed into the memories of brains or by environments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.core.errors import ContractError, StoreError, did_you_mean
from palaestrai_mosaik.core.importing import limit
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.environment.replay import SessionPool, SessionPoolEnvironment
from palaestrai_mosaik.environment.replay.sessions import ENDS
from palaestrai_mosaik.environment.replay.sources import (
    ANY_BODY,
    STORE_KEYS,
    Channel,
    RecordedRows,
    check_keys,
    plain_name,
)
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.experiment.model import BODY_NUMBER, ReplaySpec
from palaestrai_mosaik.simulation.body_placement import BodyGroup
from palaestrai_mosaik.types import Space

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import ChannelRecord, InstanceRecorder, Store


_NO_STORE = "a run without a store has no trajectories to replay"
_ENDS = ["objective", "terminated", "truncated"]
_PLACES = ["body", "environment_episode"]


def recorded_phases(
    store: Store,
    instance: str,
    agent: str | None,
    phase: int | str | None = None,
    mode: str | None = None,
    before: int | None = None,
) -> tuple[str, list[int]]:
    """Find the phases of an execution in which an agent took part.

    Args:
        store: the open store.
        instance: the uid of the execution.
        agent: the agent; ``None`` if there is only one.
        phase: only this phase (number or name).
        mode: only phases in this mode, ``train`` or ``test``.
        before: only phases with a smaller number.

    Returns:
        The name of the agent, and the numbers of the phases.

    Raises:
        StoreError: if there is no such phase or agent.
    """
    table = _phases(store, instance, phase)
    if before is not None:
        table = table[table["phase"] < before]
    if mode is not None:
        modes = sorted(set(table["mode"]))
        table = table[table["mode"] == mode]
        if table.empty:
            raise StoreError(f"no such phase of instance {instance} is in {mode} mode, only {modes}")
    agents = store.agents(instance)
    agents = agents[agents["phase"].isin(table["phase"])]
    names = sorted(set(agents["agent"]))
    if agent is None and len(names) == 1:
        agent = names[0]
    numbers: list[int] = agents.loc[agents["agent"] == agent, "phase"].tolist()
    if agent is None or not numbers:
        problem = "name an agent of" if agent is None else f"there is no agent {agent!r} in"
        near, allowed = did_you_mean(agent or "", names), ", ".join(names) or "none"
        raise StoreError(
            f"{problem} {_phases_text(instance, list(table['phase']))}{near}; there are: {allowed}"
        )
    return agent, numbers


def _phases(store: Store, instance: str, phase: int | str | None) -> pd.DataFrame:
    """Return the table of an instance's phases, or of the single ``phase`` (number or name)."""
    table = store.phases(instance)
    if phase is None:
        return table
    phases = [f"{i} {name!r}" for i, name in zip(table["phase"], table["name"], strict=True)]
    hint = did_you_mean(str(phase), table["name"])
    table = table[(table["phase"] == phase) | (table["name"] == phase)]
    if table.empty:
        raise StoreError(
            f"instance {instance} has no phase {phase!r}{hint}; it has: {', '.join(phases) or 'none'}"
        )
    return table


def _phases_text(instance: str, phases: list[int]) -> str:
    """Return a description of some phases of an instance, for messages."""
    return f"phase{'s' if len(phases) > 1 else ''} {listed(phases, 20) or 'none'} of instance {instance}"


@dataclass(frozen=True)
class ReplayContext:
    """The position of a replaying agent: its phase of a document, executed as ``instance``."""

    document: RunDocument
    phase: PhaseSpec
    instance: str | None


def replay(
    memory: Memory | Sequence[Memory],
    agent: AgentSpec,
    groups: Sequence[BodyGroup],
    context: ReplayContext,
    store: Store | None,
) -> int:
    """Append the trajectories of ``agent.replay`` to ``memory``.

    The rows are training episodes, source by source, repeated ``repeat`` times, sorted by phase, group of bodies,
    worker, body, episode and step. Each row has the readings, set-points and rewards of the agent's first group with
    the channels of the replayed bodies, before any filter. In the channel names of identical bodies, ``{body}`` stands
    for the number. The objective is the stored one. Muscles are named ``replay-<source>.<worker>``, or
    ``replay-<source>.<worker>.<body>`` if the agent has several bodies.

    The last row of an episode is marked as its end. If the recording is incomplete, it is marked as truncated. If a
    body's environment restarts independently, this applies to the environment's episode. Final observations are not
    stored, so ``next_observations`` is NaN there. The memory keeps its size limit, which a brain may set in its
    ``setup``.

    A source without ``experiment_run`` and ``instance`` refers to an earlier phase of the current execution if it has
    such a phase, or else to the newest finished execution of the run.

    Args:
        memory: one memory for all groups, or one for each.
        agent: the agent.
        groups: the groups of the agent's bodies, in order.
        context: the document, the phase, and the current execution.
        store: the open store, or ``None``.

    Returns:
        The number of appended rows.

    Raises:
        StoreError: with the position in the document, if there is no store, if it lacks the run, the phase, the agent,
            a channel or any rows, or if a channel's size differs from that of the agent's channel.
    """
    document, phase = context.document, context.phase
    memories = [memory] * len(groups) if isinstance(memory, Memory) else memory
    targets = _make_targets(groups, memories)
    position = [spec.name for spec in phase.agents].index(agent.name)
    count = 0
    for i, source in enumerate(agent.replay):
        try:
            if store is None:
                raise StoreError(_NO_STORE)
            count += _Source(source, agent.name, targets, context, store).append_to(i)
        except StoreError as error:
            where = ("phases", phase.index, "agents", position, "replay", i)
            raise StoreError(str(document.problem(str(error), *where))) from error
    return count


def find_instance(source: ReplaySpec, document: str, store: Store | None) -> str:
    """Return the uid of the execution that ``source`` refers to, by default a run of ``document`` (its uid).

    Raises :class:`StoreError` if no execution exists, or if none has finished and ``source`` names no instance.
    """
    if store is None:
        raise StoreError(_NO_STORE)
    if source.instance is not None:
        return store.find_instance(source.experiment_run, source.instance).uid
    run = source.experiment_run or document
    execution = store.find_instance(run)
    if execution.status != "finished":
        raise StoreError(
            f"no instance of the experiment run {run!r} has finished: the newest one, {execution.uid}, is "
            f"{execution.status}"
        )
    return execution.uid


@dataclass(frozen=True)
class _Target:
    """A group of the agent's own bodies, with its memory and channels."""

    memory: Memory
    sensors: Sequence[ChannelRecord]
    actuators: Sequence[ChannelRecord]
    rewards: Sequence[ChannelRecord]


class _Source:
    """One entry of ``replay``."""

    def __init__(
        self,
        spec: ReplaySpec,
        agent: str,
        target: Sequence[_Target],
        context: ReplayContext,
        store: Store,
    ):
        self._spec = spec
        self._agent = spec.agent or agent
        self._targets = target
        self._context = context
        self._store = store

    def append_to(self, number: int) -> int:
        """Append the rows of this source, the ``number``-th; return how many there were."""
        run, before = self._instance()
        spec = self._spec
        phases = recorded_phases(self._store, run, self._agent, spec.phase, spec.mode, before)[1]
        frames = [frame for phase in phases for frame in self._read(run, phase)]
        count = sum(len(frame) for frame in frames)
        if not count:
            raise StoreError(f"agent {self._agent!r} has no training steps in {_phases_text(run, phases)}")
        for _ in range(self._spec.repeat):
            for frame in frames:
                frame.append_to(f"replay-{number}")
        return count * self._spec.repeat

    def _instance(self) -> tuple[str, int | None]:
        """Return the instance, and the phase before which to search, or ``None`` for all phases."""
        spec, context = self._spec, self._context
        if spec.instance is None and spec.experiment_run is None and context.instance is not None:
            before = context.document.phases[: context.phase.index]
            if before if spec.phase is None else any(spec.phase in (p.index, p.name) for p in before):
                return context.instance, context.phase.index
        return find_instance(spec, context.document.uid, self._store), None

    def _read(self, run: str, phase: int) -> Iterator[_Trajectories]:
        """Yield the trajectories of each group of the replayed agent's bodies."""
        channels = self._store.channels(run, phase)
        channels = channels[channels["agent"] == self._agent]
        bodies = self._store.bodies(run, phase, self._agent)
        several = int(bodies["count"].sum()) > 1
        for number, first, count in bodies[["group", "first", "count"]].itertuples(index=False):
            memory, names = self._columns(channels[channels["group"] == number])
            columns = list(dict.fromkeys([*(name for part in names for name in part), *_ENDS, *_PLACES]))
            frame = self._store.steps(
                run, phase, self._agent, columns=columns, body=range(first, first + count)
            )
            yield _Trajectories(memory, frame, names, several)

    def _columns(self, table: pd.DataFrame) -> tuple[Memory, tuple[list[str], list[str], list[str]]]:
        """Return the memory of the agent's matching group, and its columns of readings, set-points and rewards."""
        problems = []
        for target in self._targets:
            try:
                return target.memory, (
                    _columns(table, "sensor", self._spec.sensors, target.sensors),
                    _columns(table, "actuator", self._spec.actuators, target.actuators),
                    _columns(table, "reward", None, target.rewards),
                )
            except StoreError as error:
                problems.append(error)
        raise problems[0]


class _Trajectories:
    """The steps of one group of an agent's bodies in one phase, sorted by worker and body."""

    def __init__(
        self,
        memory: Memory,
        frame: pd.DataFrame,
        names: tuple[list[str], list[str], list[str]],
        several: bool,
    ):
        keys = ["worker", "body", "episode", "environment_episode"]
        frame = frame.sort_values([*keys, "step"], kind="stable")
        self._memory = memory
        self._several = several
        self._values = [frame[part].to_numpy(np.float64) for part in names]
        self._objective: npt.NDArray[np.float64] = frame["objective"].to_numpy(np.float64)
        self._workers: npt.NDArray[np.int64] = frame["worker"].to_numpy(np.int64)
        self._bodies: npt.NDArray[np.int64] = frame["body"].to_numpy(np.int64)
        episodes = frame[keys].to_numpy(np.int64)
        last = np.append((episodes[1:] != episodes[:-1]).any(axis=1), True)[: len(frame)]
        self._terminated: npt.NDArray[np.bool_] = frame["terminated"].to_numpy(np.bool_)
        # an incompletely recorded episode counts as truncated
        self._truncated: npt.NDArray[np.bool_] = frame["truncated"].to_numpy(np.bool_) | (
            last & ~self._terminated
        )

    def __len__(self) -> int:
        return len(self._objective)

    def append_to(self, source: str) -> None:
        """Append the rows to the memory of the matching bodies."""
        memory = self._memory
        ends = self._terminated | self._truncated
        columns = (self._objective, self._workers, self._bodies, ends, self._terminated, self._truncated)
        for readings, setpoints, rewards, objective, worker, body, end, terminated, truncated in zip(
            *self._values, *(column.tolist() for column in columns), strict=True
        ):
            muscle = f"{source}.{worker}.{body}" if self._several else f"{source}.{worker}"
            memory.append(readings, setpoints, rewards, None, objective, muscle=muscle)
            if end:
                memory.mark_end(terminated=terminated, truncated=truncated, muscle=muscle)


def _make_targets(groups: Sequence[BodyGroup], memories: Sequence[Memory]) -> list[_Target]:
    # imported here because a run without a store needs neither
    from palaestrai_mosaik.store import ChannelRecord

    from .descriptions import body_record

    return [
        _Target(memory, body.sensors, body.actuators, [ChannelRecord(name, "", 1) for name in body.rewards])
        for memory, body in zip(memories, map(body_record, groups), strict=True)
    ]


def _columns(
    table: pd.DataFrame, kind: str, projection: Sequence[str] | None, target: Sequence[ChannelRecord]
) -> list[str]:
    """Return the stored columns for the agent's ``target`` channels of a ``kind``.

    ``table`` lists the channels of the replayed bodies. ``projection`` names the channels to take; by default, they
    have the names of the agent's own.
    """
    from palaestrai_mosaik.store.records import channel_columns

    uids = [channel.uid for channel in target] if projection is None else projection
    if len(uids) != len(target):
        names = [channel.uid for channel in target]
        raise StoreError(f"replay names {len(uids)} {kind}s, but the agent has {len(target)}: {names}")
    of_kind = table[table["kind"] == kind]
    stored = dict(zip(of_kind["uid"], of_kind["size"].tolist(), strict=True))
    prefix = {"sensor": "reading", "actuator": "setpoint", "reward": "reward"}[kind]
    names = []
    for uid, channel in zip(uids, target, strict=True):
        if uid not in stored:
            hint = did_you_mean(uid, stored)
            raise StoreError(
                f"no {kind} {uid!r} was recorded{hint}; there are: {', '.join(stored) or 'none'}"
            )
        if stored[uid] != channel.size:
            raise StoreError(
                f"{kind} {uid!r} was recorded with {stored[uid]} numbers, but {channel.uid!r} has {channel.size}"
            )
        names += channel_columns(prefix, [replace(channel, uid=uid)])
    return names


#: the columns that identify a session, in sort order
_SESSION = ("phase", "evaluation", "worker", "episode", "body", "environment_episode")


@dataclass(frozen=True)
class StoredSessions:
    """Reads the sessions of sources that refer to a store. It can be sent to other processes.

    Args:
        location: the location of the :class:`Store` for sources that name none; ``None`` for the default store.
        directory: its directory.
        instance: the current execution, for sources that name no run.
        phase: the current phase's number; only earlier phases of ``instance`` are read.
    """

    # not in the repr, because it may contain a password
    location: str | None = field(default=None, repr=False)
    directory: str | None = None
    instance: str | None = None
    phase: int | None = None

    @classmethod
    def of(
        cls, store: Store | None, recorder: InstanceRecorder | None = None, phase: int | None = None
    ) -> StoredSessions:
        """Create a reader of ``store`` for the execution that ``recorder`` records."""
        instance = None if recorder is None else recorder.uid
        if store is None:
            return cls(instance=instance, phase=phase)
        location = store.database.engine.url.render_as_string(hide_password=False)
        return cls(location, str(store.directory), instance, phase)

    def __call__(self, source: Mapping[str, Any]) -> SessionPool:
        """Read the sessions of ``source``: see :func:`read_sessions`."""
        from palaestrai_mosaik.store import Store

        check_keys(source, STORE_KEYS)
        query = {key: value for key, value in source.items() if key != "store"}
        if "run" not in query and "instance" not in query:
            if self.instance is None:
                raise StoreError(
                    "source: it names neither run nor instance, so it means an earlier phase of the run itself; declare "
                    "observations and actions, so that it is not read before that phase has been recorded"
                )
            query |= {"instance": self.instance, "before": self.phase}
        location, directory = self.location, self.directory
        if source.get("store") is not None:
            location, directory = _location_of(source), None
        with Store(location, directory=directory, read_only=True) as store:
            return read_sessions(store, **query)


#: for use outside of runs, such as checking a document
DEFAULT_SESSIONS = StoredSessions()


def connect(domain: World, stored: StoredSessions) -> None:
    """Let ``domain`` read from stores if it replays sessions."""
    if isinstance(domain, SessionPoolEnvironment):
        domain.read_store = stored


def check_sessions(domain: World) -> None:
    """Raise :class:`ContractError` if ``domain`` replays sessions but its source cannot be used."""
    if isinstance(domain, SessionPoolEnvironment):
        if isinstance(domain.source, Mapping) and domain.source.get("store") is not None:
            _location_of(domain.source)
        domain.check_sessions()


def _location_of(source: Mapping[str, Any]) -> str:
    """Return the store of ``source``, without a password, because documents are copied to stores and reports."""
    from palaestrai_mosaik.store.urls import check_named, holds_password, shown

    location = str(source["store"])
    if holds_password(location):
        raise ContractError(
            f"source: store: {shown(location)} holds a password, which must not stand in a document: keep the URL in "
            "a file (store: '@FILE') or an environment variable (store: 'env:NAME')"
        )
    if limit() is not None:
        check_named(location)
    return location


def read_sessions(  # noqa: PLR0913  (independent filters, all optional)
    store: Store,
    run: str | None = None,
    instance: str | None = None,
    phase: int | str | None = None,
    agent: str | None = None,
    body: int | str | Sequence[int | str] | None = None,
    mode: str | None = None,
    evaluation: bool | None = False,
    before: int | None = None,
) -> SessionPool:
    """Read the recorded episodes of an agent. Each episode of each of its bodies becomes a session.

    Observations and actions have the names of the agent's sensors and actuators (without the number of an incarnation
    if several bodies share a name), and their spaces. All values are float64. If all sensors belong to one
    environment, a session ends with the environment's state after the last action. Sessions are sorted by phase,
    worker, episode and body; a phase's evaluations follow its training episodes.

    Args:
        store: the open store.
        run: the uid of a document; its newest finished execution is read.
        instance: the uid of an execution, instead of ``run`` or in addition to it.
        phase: only this phase (number or name).
        agent: the agent; may be omitted if there was only one.
        body: only these bodies (a number, a label, or several).
        mode: only phases in this mode, ``train`` or ``test``.
        evaluation: whether to read evaluations or training episodes; ``None`` for both.
        before: only phases with a smaller number.

    Raises:
        StoreError: if the execution, phase, agent or body does not exist, or the bodies' channels differ.
    """
    if run is None and instance is None:
        raise StoreError("name a run or an instance")
    uid = find_instance(ReplaySpec(experiment_run=run, instance=instance), "", store)
    name, phases = recorded_phases(store, uid, agent, phase, mode, before)
    both = [False, True] if evaluation is None else [evaluation]
    pieces = [_Piece(store, uid, number, name, body, flag) for number in phases for flag in both]
    pieces = [piece for piece in pieces if len(piece.frame)]
    if not pieces:
        raise StoreError(f"agent {name!r} has no steps in {_phases_text(uid, phases)}")
    for piece in pieces[1:]:
        if piece.channels != pieces[0].channels:
            raise StoreError(
                f"agent {name!r} has other channels in phase {piece.phase} than in phase {pieces[0].phase}: name "
                "one phase"
            )
    tables = [piece.rows() for piece in pieces]
    names = tables[0].columns
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in names}
    rows = replace(tables[0], columns=columns)
    finals: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}
    for piece in pieces:
        finals |= piece.last_states()
    return _with_finals(rows.pool(), [finals.get(key) for key in rows.session_keys()])


class _Piece:
    """The steps of one agent in one phase, either of training or of evaluation."""

    def __init__(
        self,
        store: Store,
        run: str,
        phase: int,
        agent: str,
        body: int | str | Sequence[int | str] | None,
        evaluation: bool,
    ):
        self.phase = phase
        self._store, self._run, self._agent, self._evaluation = store, run, agent, evaluation
        columns = ["body", "environment_episode"]
        everything = store.steps(run, phase, agent, evaluation=evaluation, body=body)
        numbers = store.steps(run, phase, agent, evaluation=evaluation, body=body, columns=columns)
        self.frame = everything.assign(
            phase=phase, evaluation=evaluation, **{name: numbers[name] for name in columns}
        )
        present = set(self.frame["body"])
        groups = store.bodies(run, phase, agent)
        stop = groups["first"] + groups["count"]
        self._groups = groups[
            [any(a <= b < z for b in present) for a, z in zip(groups["first"], stop, strict=True)]
        ]
        channels = store.channels(run, phase)
        offered = channels[channels["environment"].notna() & (channels["kind"] == "sensor")]
        #: the environment of each sensor
        self._owners: dict[str, str] = dict(zip(offered["uid"], offered["environment"], strict=True))
        self._owned = channels[channels["agent"] == agent]

    @cached_property
    def channels(self) -> dict[str, list[tuple[str, str, int]]]:
        """Name, space and size of the agent's channels by kind."""
        kinds = [
            {kind: self._channels_of(group, kind) for kind in ("sensor", "actuator", "reward")}
            for group in self._groups["group"]
        ]
        if any(other != kinds[0] for other in kinds[1:]):
            firsts = ", ".join(map(str, self._groups["first"]))
            raise StoreError(
                f"the bodies of agent {self._agent!r} in phase {self.phase} have different channels: pick some that "
                f"are identical with 'body' (they begin with {firsts})"
            )
        return kinds[0]

    def _channels_of(self, group: int, kind: str) -> list[tuple[str, str, int]]:
        """Return name, space and size of the channels of a group of bodies."""
        rows = self._owned[(self._owned["group"] == group) & (self._owned["kind"] == kind)]
        return list(rows[["uid", "space", "size"]].itertuples(index=False, name=None))

    def rows(self) -> RecordedRows:
        """Return the steps as rows of sessions."""
        observed, acted = (
            [_channel(prefix, *channel) for channel in self.channels[kind]]
            for prefix, kind in (("reading", "sensor"), ("setpoint", "actuator"))
        )
        rewards = {plain_name(uid): f"reward.{uid}" for uid, _, _ in self.channels["reward"]}
        columns = [c for channel in (*observed, *acted) for c in channel.columns]
        columns += [*rewards.values(), *_SESSION, "step", *ENDS]
        return RecordedRows(
            {name: self.frame[name].to_numpy() for name in columns},
            *(observed, acted, rewards),
            _SESSION,
            "step",
            *ENDS,
        )

    def last_states(self) -> dict[tuple[Any, ...], npt.NDArray[np.float64]]:
        """Return the readings after the last action of each session, if recorded."""
        result: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}
        lasts = self.frame.groupby(list(_SESSION))["time"].max()
        group: Any
        for group in self._groups.itertuples(index=False):
            # bodies may share an incarnation, but a body in several environments has no single state
            owner, uids, incarnation_named = self._observed(group)
            if owner is None:
                result |= self._last_by_body(group, lasts)
                continue
            seats = group.incarnations or [0] * group.count
            seats = seats if incarnation_named is None else [incarnation_named] * group.count
            bodies: dict[int, list[int]] = {}
            for index, seat in enumerate(seats if len(seats) == group.count else []):
                bodies.setdefault(seat, []).append(int(group.first) + index)
            for key, row in self._states_of(group, owner, uids).items():
                worker, episode, incarnation, turn = key
                for body in bodies.get(incarnation, ()):
                    session = (self.phase, self._evaluation, worker, episode, body, turn)
                    if session in lasts.index and row[0] > lasts[session]:
                        result[session] = row[1:]
        return result

    def _last_by_body(self, group: Any, lasts: pd.Series) -> dict[tuple[Any, ...], npt.NDArray[np.float64]]:
        """Return the last states of bodies with separate channels in an ordinary environment."""
        result: dict[tuple[Any, ...], npt.NDArray[np.float64]] = {}
        sensors = [uid for uid, _, _ in self._channels_of(group.group, "sensor")]
        for index in range(group.count):
            uids = [uid.replace(BODY_NUMBER, str(group.number + index)) for uid in sensors]
            candidates = {self._owners.get(uid) for uid in uids}
            owner = candidates.pop() if len(candidates) == 1 else None
            if owner is None:
                break
            for (worker, episode, _, turn), row in self._states_of(group, owner, uids).items():
                session = (self.phase, self._evaluation, worker, episode, int(group.first) + index, turn)
                if session in lasts.index and row[0] > lasts[session]:
                    result[session] = row[1:]
        return result

    def _observed(self, group: Any) -> tuple[str | None, list[str], int | None]:
        """Find the environment with all sensors of a group's bodies.

        Returns:
            the environment, or ``None`` if there are several; the sensors' uids in all its incarnations; the
            incarnation in the sensors' names, or ``None``.
        """
        sensors = [_place_of(uid, self._owners) for uid, _, _ in self._channels_of(group.group, "sensor")]
        if len({(owner, number) for owner, _, number in sensors}) != 1:
            return None, [], None
        return sensors[0][0], [uid for _, uid, _ in sensors], sensors[0][2]

    def _states_of(
        self, group: Any, owner: str, uids: Sequence[str]
    ) -> dict[tuple[int, ...], npt.NDArray[np.float64]]:
        """Return time and readings of the last state of each episode in the environment ``owner``."""
        sizes = [size for _, _, size in self._channels_of(group.group, "sensor")]
        columns = [
            name
            for uid, size in zip(uids, sizes, strict=True)
            for name in _channel("reading", uid, "", size).columns
        ]
        extra_keys = ["incarnation", "environment_episode"]
        states = self._store.environment_states(
            *(self._run, self.phase, owner),
            evaluation=self._evaluation,
            columns=[*columns, *extra_keys],
        )
        keys = ["worker", "episode", *extra_keys]
        last = states.sort_values("step", kind="stable").groupby(keys).tail(1)
        values = last[["time", *columns]].to_numpy(np.float64)
        return {tuple(key): row for key, row in zip(last[keys].to_numpy().tolist(), values, strict=True)}


def _place_of(uid: str, owners: Mapping[str, str]) -> tuple[str | None, str, int | None]:
    """Return a channel's environment, its uid there, and the incarnation in its name, or ``None``."""
    if uid in owners:
        return owners[uid], uid, None
    for owner in dict.fromkeys(owners.values()):
        number, _, name = uid.removeprefix(f"{owner}.").partition(".")
        common = f"{owner}{ANY_BODY}{name}"
        if uid.startswith(f"{owner}.") and number.isdecimal() and owners.get(common) == owner:
            return owner, common, int(number)
    return None, uid, None


def _channel(prefix: str, uid: str, space: str, size: int) -> Channel:
    from palaestrai_mosaik.store import ChannelRecord
    from palaestrai_mosaik.store.records import channel_columns

    columns = channel_columns(prefix, [ChannelRecord(uid, space, size)])
    return Channel(plain_name(uid), tuple(columns), Space.from_string(space) if space else None)


def _with_finals(pool: SessionPool, finals: Sequence[npt.NDArray[np.float64] | None]) -> SessionPool:
    """Add the known final observations to the sessions of a pool."""
    sessions = pool.sessions
    recorded = {i: final for i, final in enumerate(finals) if final is not None}
    if not recorded:
        return pool
    # all observations are float64, so they are in one column
    after = sessions.by_session["final.0"].copy()
    after[list(recorded)] = np.stack(list(recorded.values()))
    return SessionPool.of(
        pool.signature, replace(sessions, by_session={**sessions.by_session, "final.0": after})
    )

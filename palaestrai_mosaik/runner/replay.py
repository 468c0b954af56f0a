"""Fills a brain's memory with recorded trajectories, the ``replay`` of a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.core.text import listed
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.experiment.model import ReplaySpec
from palaestrai_mosaik.simulation.body_placement import BodyGroup

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import ChannelRecord, Store


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
    table = store.phases(instance)
    if phase is not None:
        phases = [f"{i} {name!r}" for i, name in zip(table["phase"], table["name"], strict=True)]
        hint = did_you_mean(str(phase), table["name"])
        table = table[(table["phase"] == phase) | (table["name"] == phase)]
        if table.empty:
            raise StoreError(
                f"instance {instance} has no phase {phase!r}{hint}; it has: {', '.join(phases) or 'none'}"
            )
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
        phases_text = described(instance, list(table["phase"]))
        problem = (
            f"name an agent of {phases_text}"
            if agent is None
            else f"there is no agent {agent!r} in {phases_text}"
        )
        raise StoreError(
            f"{problem}{did_you_mean(agent or '', names)}; there are: {', '.join(names) or 'none'}"
        )
    return agent, numbers


def described(instance: str, phases: list[int]) -> str:
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
        run, phases = self._phases()
        frames = [frame for phase in phases for frame in self._read(run, phase)]
        count = sum(len(frame) for frame in frames)
        if not count:
            raise StoreError(f"agent {self._agent!r} has no training steps in {described(run, phases)}")
        for _ in range(self._spec.repeat):
            for frame in frames:
                frame.append_to(f"replay-{number}")
        return count * self._spec.repeat

    def _phases(self) -> tuple[str, list[int]]:
        """Return the instance, and the numbers of the phases in which the agent took part."""
        spec = self._spec
        run, before = self._instance()
        return run, recorded_phases(self._store, run, self._agent, spec.phase, spec.mode, before)[1]

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

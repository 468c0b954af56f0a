"""Fills a brain's memory with recorded trajectories: what ``replay`` in the document says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.errors import StoreError, did_you_mean
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.experiment.model import ReplaySpec
from palaestrai_mosaik.simulation.body_placement import BodyGroup
from palaestrai_mosaik.text import listed

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
    """Return an agent, and the numbers of the phases of ``instance`` in which it took part.

    ``phase`` (number or name) and ``mode`` (train or test) pick some, ``before``: only those with
    a smaller number. ``agent`` may be ``None`` where there was only one. Raises
    :class:`StoreError` where there is no such phase or agent.
    """
    table = store.phases(instance)
    if phase is not None:
        known = [f"{i} {name!r}" for i, name in zip(table["phase"], table["name"], strict=True)]
        hint = did_you_mean(str(phase), table["name"])
        table = table[(table["phase"] == phase) | (table["name"] == phase)]
        if table.empty:
            raise StoreError(
                f"instance {instance} has no phase {phase!r}{hint}; it has: {', '.join(known) or 'none'}"
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
        place = described(instance, list(table["phase"]))
        problem = f"name an agent of {place}" if agent is None else f"there is no agent {agent!r} in {place}"
        raise StoreError(
            f"{problem}{did_you_mean(agent or '', names)}; there are: {', '.join(names) or 'none'}"
        )
    return agent, numbers


def described(instance: str, phases: list[int]) -> str:
    """Return how some phases of an instance are called in messages."""
    return f"phase{'s' if len(phases) > 1 else ''} {listed(phases, 20) or 'none'} of instance {instance}"


@dataclass(frozen=True)
class ReplayContext:
    """Where the agent that replays stands: its phase of a document, executed as ``instance``."""

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
    """Append what ``agent.replay`` names to ``memory``; return the number of rows.

    ``memory`` is one for all ``groups`` of the agent's bodies, or one for each of them.

    Training episodes are taken, source after source, ``repeat`` times each, ordered by phase,
    group of bodies, worker, body, episode and step. Each row has as many readings, set-points and
    rewards as a row of the first of the agent's own groups whose channels the replayed bodies
    have, before any filter. (In the names of channels of several identical bodies, ``{body}`` stands
    for the number.) The objective is the stored one. The muscles are called ``replay-<source>.<worker>``, those of an
    agent with several bodies ``replay-<source>.<worker>.<body>``. The last row of an episode (of
    the body's environment, where that begins again on its own) is marked as its end, also where
    the recording broke off (truncated). What was seen after it is not stored, so there
    ``next_observations`` is NaN. The memory keeps its size limit, which a brain may set in its
    ``setup``.

    A source without ``experiment_run`` and ``instance`` is an earlier phase of this very
    execution, if such a phase is meant; otherwise the newest finished execution of the run.

    Raises :class:`StoreError`, with the place in the document, if there is no store, if it
    does not have the run, the phase, the agent, a channel or any row, or if a channel has
    not the size of the agent's own.
    """
    document, phase = context.document, context.phase
    memories = [memory] * len(groups) if isinstance(memory, Memory) else memory
    places = _make_targets(groups, memories)
    position = [one.name for one in phase.agents].index(agent.name)
    count = 0
    for i, source in enumerate(agent.replay):
        try:
            if store is None:
                raise StoreError(_NO_STORE)
            count += _Source(source, agent.name, places, context, store).append_to(i)
        except StoreError as error:
            where = ("phases", phase.index, "agents", position, "replay", i)
            raise StoreError(str(document.problem(str(error), *where))) from error
    return count


def find_instance(source: ReplaySpec, document: str, store: Store | None) -> str:
    """Return the uid of the other execution that ``source`` means, in a run of ``document`` (its uid).

    Raises :class:`StoreError` if no run is found, or none of those found has finished.
    """
    if store is None:
        raise StoreError(_NO_STORE)
    if source.instance is not None:
        return store.find_instance(source.experiment_run, source.instance).uid
    run = source.experiment_run or document
    found = store.find_instance(run)
    if found.status != "finished":
        raise StoreError(
            f"no instance of the experiment run {run!r} has finished: the newest one, {found.uid}, is "
            f"{found.status}"
        )
    return found.uid


@dataclass(frozen=True)
class _Target:
    """A group of the agent's own bodies: its memory and its channels."""

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
        """Append the rows of this source, which is the ``number``-th."""
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
        """Return an instance, and the number of the phase before which to look (``None``: all)."""
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
            wanted = list(dict.fromkeys([*(name for part in names for name in part), *_ENDS, *_PLACES]))
            frame = self._store.steps(
                run, phase, self._agent, columns=wanted, body=range(first, first + count)
            )
            yield _Trajectories(memory, frame, names, several)

    def _columns(self, table: pd.DataFrame) -> tuple[Memory, tuple[list[str], list[str], list[str]]]:
        """Return the columns of readings, set-points and rewards that stand for one of the agent's own groups."""
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
    """The steps of one group of an agent's bodies in one phase: worker after worker, body after body."""

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
        # an episode that was not recorded to its end was cut there
        self._truncated: npt.NDArray[np.bool_] = frame["truncated"].to_numpy(np.bool_) | (
            last & ~self._terminated
        )

    def __len__(self) -> int:
        return len(self._objective)

    def append_to(self, source: str) -> None:
        """Append the rows to the memory of bodies that are like these."""
        memory = self._memory
        ends = self._terminated | self._truncated
        columns = (self._objective, self._workers, self._bodies, ends, self._terminated)
        for readings, setpoints, rewards, objective, worker, body, end, terminated in zip(
            *self._values, *(column.tolist() for column in columns), strict=True
        ):
            muscle = f"{source}.{worker}.{body}" if self._several else f"{source}.{worker}"
            memory.append(readings, setpoints, rewards, None, objective, muscle=muscle)
            if end:
                memory.mark_end(terminated=terminated, truncated=not terminated, muscle=muscle)


def _make_targets(groups: Sequence[BodyGroup], memories: Sequence[Memory]) -> list[_Target]:
    # here, because a run without a store needs neither
    from palaestrai_mosaik.store import ChannelRecord

    from .descriptions import body_record

    return [
        _Target(memory, body.sensors, body.actuators, [ChannelRecord(name, "", 1) for name in body.rewards])
        for memory, body in zip(memories, map(body_record, groups), strict=True)
    ]


def _columns(
    table: pd.DataFrame, kind: str, projection: Sequence[str] | None, target: Sequence[ChannelRecord]
) -> list[str]:
    """Return the stored columns that stand for the agent's ``target`` channels of a ``kind``.

    ``table`` lists the channels of the bodies that are replayed; ``projection`` names those to
    take (``None``: the ones called as the agent's own).
    """
    from palaestrai_mosaik.store.records import channel_columns

    wanted = [channel.uid for channel in target] if projection is None else projection
    if len(wanted) != len(target):
        names = [channel.uid for channel in target]
        raise StoreError(f"replay names {len(wanted)} {kind}s, but the agent has {len(target)}: {names}")
    of_kind = table[table["kind"] == kind]
    stored = dict(zip(of_kind["uid"], of_kind["size"].tolist(), strict=True))
    prefix = {"sensor": "reading", "actuator": "setpoint", "reward": "reward"}[kind]
    names = []
    for uid, channel in zip(wanted, target, strict=True):
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

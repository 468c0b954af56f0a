"""Fills a brain's memory with stored trajectories: what ``replay`` in the document says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.errors import StoreError, did_you_mean
from palaestrai_mosaik.experiment import AgentSpec, PhaseSpec, RunDocument
from palaestrai_mosaik.experiment.model import ReplaySpec
from palaestrai_mosaik.simulation.channels import Channels
from palaestrai_mosaik.types.vectors import Layout

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

_NO_STORE = "a run without a store has no trajectories to replay"
_ENDS = ["objective", "terminated", "truncated"]


@dataclass(frozen=True)
class Standpoint:
    """Where the agent that replays stands: its phase of a document, executed as ``instance``."""

    document: RunDocument
    phase: PhaseSpec
    instance: str | None


def replay(
    memory: Memory, agent: AgentSpec, channels: Channels, standpoint: Standpoint, store: Store | None
) -> int:
    """Append what ``agent.replay`` names to ``memory``; return the number of rows.

    Training episodes are taken, source after source, ``repeat`` times each, ordered by phase,
    worker, episode and step. ``channels`` are those of ``agent``: each row has as many
    readings, set-points and rewards as a row of its own, before any filter. The objective is
    the stored one. The muscles are called ``replay-<source>.<worker>``. The last row of an
    episode is marked as its end, also where the recording broke off (truncated). What was
    seen after it is not stored, so there ``next_observations`` is NaN. The memory keeps its
    size limit, which a brain may set in its ``setup``.

    A source without ``experiment_run`` and ``instance`` is an earlier phase of this very
    execution, if such a phase is meant; otherwise the newest finished execution of the run.

    Raises :class:`StoreError`, with the place in the document, if there is no store, if it
    does not have the run, the phase, the agent, a channel or any row, or if a channel has
    not the size of the agent's own.
    """
    document, phase = standpoint.document, standpoint.phase
    position = [one.name for one in phase.agents].index(agent.name)
    count = 0
    for i, source in enumerate(agent.replay):
        try:
            if store is None:
                raise StoreError(_NO_STORE)
            count += _Source(source, agent.name, channels, standpoint, store).append_to(memory, i)
        except StoreError as error:
            where = ("phases", phase.index, "agents", position, "replay", i)
            raise StoreError(str(document.problem(str(error), *where))) from error
    return count


def find_instance(source: ReplaySpec, document: str, store: Store | None) -> str:
    """Return the uid of the other execution that ``source`` means, in a run of ``document`` (its uid).

    Raises :class:`StoreError` if there is none, or none that has finished.
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


class _Source:
    """One entry of ``replay``."""

    def __init__(
        self, spec: ReplaySpec, agent: str, channels: Channels, standpoint: Standpoint, store: Store
    ):
        self._spec = spec
        self._agent = spec.agent or agent
        self._channels = channels
        self._standpoint = standpoint
        self._store = store

    def append_to(self, memory: Memory, number: int) -> int:
        """Append the rows of this source, which is the ``number``-th."""
        run, phases = self._phases()
        frames = [self._read(run, phase) for phase in phases]
        count = sum(len(frame) for frame in frames)
        if not count:
            raise StoreError(f"agent {self._agent!r} has no training steps in {self._described(run, phases)}")
        for _ in range(self._spec.repeat):
            for frame in frames:
                frame.append_to(memory, f"replay-{number}")
        return count * self._spec.repeat

    def _phases(self) -> tuple[str, list[int]]:
        """Return the instance, and the numbers of the phases in which the agent took part."""
        spec = self._spec
        run, before = self._instance()
        table = self._store.phases(run)
        if spec.phase is not None:
            chosen = table[(table["phase"] == spec.phase) | (table["name"] == spec.phase)]
            if chosen.empty:
                known = ", ".join(
                    f"{i} {name!r}" for i, name in zip(table["phase"], table["name"], strict=True)
                )
                hint = did_you_mean(str(spec.phase), table["name"])
                raise StoreError(
                    f"instance {run} has no phase {spec.phase!r}{hint}; it has: {known or 'none'}"
                )
            table = chosen
        if before is not None:
            table = table[table["phase"] < before]
        if spec.mode is not None:
            modes = sorted(set(table["mode"]))
            table = table[table["mode"] == spec.mode]
            if table.empty:
                raise StoreError(f"no such phase of instance {run} is in {spec.mode} mode, only {modes}")
        agents = self._store.agents(run)
        agents = agents[agents["phase"].isin(table["phase"])]
        numbers = agents.loc[agents["agent"] == self._agent, "phase"].tolist()
        if not numbers:
            names = sorted(set(agents["agent"]))
            raise StoreError(
                f"there is no agent {self._agent!r} in {self._described(run, list(table['phase']))}"
                f"{did_you_mean(self._agent, names)}; there are: {', '.join(names) or 'none'}"
            )
        return run, numbers

    def _instance(self) -> tuple[str, int | None]:
        """Return an instance, and the number of the phase before which to look (``None``: all)."""
        spec, here = self._spec, self._standpoint
        if spec.instance is None and spec.experiment_run is None and here.instance is not None:
            before = here.document.phases[: here.phase.index]
            if before if spec.phase is None else any(spec.phase in (p.index, p.name) for p in before):
                return here.instance, here.phase.index
        return find_instance(spec, here.document.uid, self._store), None

    def _read(self, run: str, phase: int) -> _Trajectories:
        table = self._store.channels(run, phase)
        table = table[table["agent"] == self._agent]
        sensors, actuators = self._channels.sensors, self._channels.actuators
        readings = _columns(table, "sensor", self._spec.sensors, sensors)
        setpoints = _columns(table, "actuator", self._spec.actuators, actuators)
        rewards = _columns(table, "reward", None, self._channels.rewards)
        wanted = list(dict.fromkeys([*readings, *setpoints, *rewards, *_ENDS]))
        frame = self._store.steps(run, phase, self._agent, columns=wanted)
        return _Trajectories(frame, readings, setpoints, rewards)

    def _described(self, run: str, phases: Sequence[int]) -> str:
        listed = ", ".join(map(str, phases)) or "none"
        return f"phase{'s' if len(phases) > 1 else ''} {listed} of instance {run}"


class _Trajectories:
    """The steps of one agent in one phase, worker after worker, episode after episode."""

    def __init__(self, frame: pd.DataFrame, readings: list[str], setpoints: list[str], rewards: list[str]):
        frame = frame.sort_values(["worker", "episode", "step"], kind="stable")
        self._values = [frame[names].to_numpy(np.float64) for names in (readings, setpoints, rewards)]
        self._objective: npt.NDArray[np.float64] = frame["objective"].to_numpy(np.float64)
        self._workers: npt.NDArray[np.int64] = frame["worker"].to_numpy(np.int64)
        episodes = frame[["worker", "episode"]].to_numpy(np.int64)
        last = np.append((episodes[1:] != episodes[:-1]).any(axis=1), True)[: len(frame)]
        self._terminated: npt.NDArray[np.bool_] = frame["terminated"].to_numpy(np.bool_)
        # an episode that was not recorded to its end was cut there
        self._truncated: npt.NDArray[np.bool_] = frame["truncated"].to_numpy(np.bool_) | (
            last & ~self._terminated
        )

    def __len__(self) -> int:
        return len(self._objective)

    def append_to(self, memory: Memory, source: str) -> None:
        ends = self._terminated | self._truncated
        columns = (self._objective, self._workers, ends, self._terminated)
        for readings, setpoints, rewards, objective, worker, end, terminated in zip(
            *self._values, *(column.tolist() for column in columns), strict=True
        ):
            muscle = f"{source}.{worker}"
            memory.append(readings, setpoints, rewards, None, objective, muscle=muscle)
            if end:
                memory.mark_end(terminated=terminated, truncated=not terminated, muscle=muscle)


def _columns(
    table: pd.DataFrame, kind: str, projection: Sequence[str] | None, own: Layout | Sequence[str]
) -> list[str]:
    """Return the stored columns that stand for the agent's ``own`` channels of a ``kind``.

    ``table`` lists the channels of the agent that is replayed; ``projection`` names those to
    take (``None``: the ones called as the agent's own).
    """
    from palaestrai_mosaik.store import ChannelRecord
    from palaestrai_mosaik.store.records import channel_columns

    uids, sizes = (
        (own.uids, [s.size for s in own.spaces]) if isinstance(own, Layout) else (own, [1] * len(own))
    )
    wanted = uids if projection is None else projection
    if len(wanted) != len(uids):
        raise StoreError(f"replay names {len(wanted)} {kind}s, but the agent has {len(uids)}: {list(uids)}")
    of_kind = table[table["kind"] == kind]
    stored = dict(zip(of_kind["uid"], of_kind["size"].tolist(), strict=True))
    prefix = {"sensor": "reading", "actuator": "setpoint", "reward": "reward"}[kind]
    names: list[str] = []
    for uid, own_uid, size in zip(wanted, uids, sizes, strict=True):
        if uid not in stored:
            hint = did_you_mean(uid, stored)
            raise StoreError(
                f"no {kind} {uid!r} was recorded{hint}; there are: {', '.join(stored) or 'none'}"
            )
        if stored[uid] != size:
            raise StoreError(
                f"{kind} {uid!r} was recorded with {stored[uid]} numbers, but {own_uid!r} has {size}"
            )
        names += channel_columns(prefix, [ChannelRecord(uid, "", size)])
    return names

"""Recorders: what a run hands its results to, one for the instance and one per phase."""

from __future__ import annotations

import traceback as tracebacks
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from sqlalchemy import insert, update

from palaestrai_mosaik.errors import StoreError, did_you_mean

from .models import (
    Agent,
    Channel,
    Environment,
    Episode,
    Failure,
    Instance,
    Outcome,
    Phase,
    Stream,
    Warned,
    to_json,
)
from .parts import write_text
from .records import AgentRecord, ChannelRecord, EnvironmentRecord, slug
from .streams import AgentStream, EnvironmentStream, StatisticsStream

if TYPE_CHECKING:
    from .database import Database

#: the file that an instance's directory holds once the run has ended, whatever its status
MARKER = "complete.json"
#: the folder of an instance's directory that holds the streams
TRAJECTORIES = "trajectories"

# Episodes are committed together: a commit costs about a millisecond, a short episode less.
_EPISODES_PER_COMMIT = 200
_SECONDS_PER_COMMIT = 1.0
_MOMENTS = ("sum", "mean", "min", "max")

Status = Literal["finished", "failed", "interrupted"]
S = TypeVar("S")
AnyStream = AgentStream | EnvironmentStream | StatisticsStream


def _now() -> datetime:
    return datetime.now(UTC)


class InstanceRecorder:
    """Records one execution of a run document. Made by :meth:`Store.begin_run`."""

    def __init__(self, database: Database, *, row_id: int, uid: str, hash: str, directory: Path):
        #: the instance's uid; sorts by time
        self.uid = uid
        #: the folder of this instance; others may add to it (brain dumps, for instance)
        self.directory = directory
        self._database = database
        self._id = row_id
        self._hash = hash
        self._phases: list[PhaseRecorder] = []
        self._finished = False

    def begin_phase(  # noqa: PLR0913  (the phase's row)
        self,
        index: int,
        name: str,
        *,
        mode: str,
        workers: int,
        episodes: int | None,
        controller: str,
        environments: Sequence[EnvironmentRecord],
        agents: Sequence[AgentRecord],
    ) -> PhaseRecorder:
        """Record that a phase begins, and with what; return its recorder.

        ``index`` counts the phases of the schedule from 0, ``mode`` is ``"train"`` or
        ``"test"``, ``controller`` names the simulation controller.
        """
        self._refuse_if_finished()
        row = Phase(
            instance_id=self._id,
            number=index,
            name=name,
            mode=mode,
            workers=workers,
            episodes=episodes,
            controller=controller,
            started=_now(),
        )
        phase = PhaseRecorder(self, self._database, index, environments, agents)
        phase._begin(row)
        self._phases.append(phase)
        return phase

    def warning(self, text: str) -> None:
        """Record a warning."""
        with self._database.writing() as session:
            session.add(Warned(instance_id=self._id, text=text, time=_now()))

    def finish(self, status: Status, error: BaseException | None = None) -> None:
        """Write what is still in memory, the status, the error, and at last the marker.

        Raises :class:`StoreError` if the data cannot be written; the run is then recorded
        as failed, with both errors, as far as the database still takes it.
        """
        self._refuse_if_finished()
        self._finished = True
        failures = [] if error is None else [error]
        problem: StoreError | None = None
        open_phases = [phase for phase in self._phases if not phase.finished]
        failed_in = open_phases[-1].row_id if open_phases else None
        for phase in open_phases:
            try:
                phase.finish(status)
            except StoreError as write_error:
                problem, status = write_error, "failed"
                failures.append(write_error)
        with self._database.writing() as session:
            ended = {"status": status, "ended": _now()}
            session.execute(update(Instance).where(Instance.id == self._id).values(ended))
            for failure in failures:
                session.add(
                    Failure(
                        instance_id=self._id,
                        phase_id=failed_in,
                        kind=type(failure).__qualname__,
                        message=str(failure),
                        traceback="".join(tracebacks.format_exception(failure)),
                        time=_now(),
                    )
                )
        if problem is not None:
            raise problem
        digests = {key: digest for phase in self._phases for key, digest in phase.digests().items()}
        marker = {"uid": self.uid, "hash": self._hash, "status": status, "digests": digests}
        write_text(self.directory / MARKER, to_json(marker) + "\n")

    def _refuse_if_finished(self) -> None:
        if self._finished:
            raise StoreError(f"the run {self.uid} is finished: nothing can be recorded any more")


class PhaseRecorder:
    """Records one phase. Made by :meth:`InstanceRecorder.begin_phase`."""

    def __init__(
        self,
        instance: InstanceRecorder,
        database: Database,
        index: int,
        environments: Sequence[EnvironmentRecord],
        agents: Sequence[AgentRecord],
    ):
        self.row_id = 0
        self.finished = False
        self._database = database
        self._environment_records = environments
        self._agent_records = agents
        self._root = instance.directory / TRAJECTORIES / f"phase-{index}"
        self._index = index
        self._agents: dict[str, AgentStream] = {}
        self._environments: dict[str, EnvironmentStream] = {}
        self._statistics = self._make_statistics()
        self._agent_ids: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._outcomes: list[dict[str, Any]] = []
        # How many of both a commit took that has not returned.
        self._sent: tuple[int, int] | None = None
        self._committed = float("-inf")

    def agent(self, name: str) -> AgentStream:
        """Return the stream of the agent ``name``, always the same object."""
        return self._find(self._agents, "agent", name)

    def environment(self, uid: str) -> EnvironmentStream:
        """Return the stream of the environment ``uid``, always the same object."""
        return self._find(self._environments, "environment", uid)

    def statistic(self, agent: str, worker: int, episode: int, step: int, key: str, value: float) -> None:
        """Record that ``agent`` had ``key`` = ``value`` after ``step`` of an episode."""
        self._statistics.append(agent, worker, episode, step, key, value)

    def episode(  # noqa: PLR0913  (the episode's row)
        self,
        worker: int,
        episode: int,
        *,
        steps: int,
        ticks: int,
        ended_by: str,
        flow: str,
        duration: float,
        agents: Mapping[str, Mapping[str, Any]],
    ) -> None:
        """Record the end of an episode and what it gave the agents.

        ``agents`` gives for each name ``{"objective": m, "rewards": {name: m, ...}}``
        where ``m`` has the keys ``sum``, ``mean``, ``min`` and ``max``. ``duration`` is
        in seconds. Episodes reach the database about once a second.
        """
        key = {"phase_id": self.row_id, "worker": worker, "episode": episode}
        outcomes = [
            {**key, **row} for name, given in agents.items() for row in self._outcome_rows(name, given)
        ]
        self._episodes.append(
            key
            | {
                "steps": steps,
                "ticks": ticks,
                "ended_by": ended_by,
                "flow": flow,
                "duration": duration,
                "ended": _now(),
            }
        )
        self._outcomes += outcomes
        late = monotonic() - self._committed >= _SECONDS_PER_COMMIT
        if late or len(self._episodes) >= _EPISODES_PER_COMMIT:
            self._commit_episodes()

    def finish(self, reason: str) -> None:
        """Write what is still in memory; ``reason`` says why the phase ended."""
        if self.finished:
            raise StoreError(f"phase {self._index} is finished already")
        self.finished = True
        problem: StoreError | None = None
        for _, stream in self._streams():
            try:
                stream.flush()
            except StoreError as error:  # the other streams may still be saved
                problem = problem or error
        self._commit_episodes()
        with self._database.writing() as session:
            for folder, stream in self._streams():
                whole = stream.rows == stream.rows_written
                written = {
                    "rows": stream.rows_written,
                    "parts": stream.parts,
                    "digest": stream.digest() if whole else None,
                }
                where = (Stream.phase_id == self.row_id, Stream.folder == folder)
                session.execute(update(Stream).where(*where).values(written))
            ended = {"ended": _now(), "reason": reason}
            session.execute(update(Phase).where(Phase.id == self.row_id).values(ended))
        if problem is not None:
            raise problem

    def digests(self) -> dict[str, str]:
        """Return the digest of every stream that has rows: ``{"phase-0/agent-a": "..."}``."""
        start = len(TRAJECTORIES) + 1
        return {folder[start:]: stream.digest() for folder, stream in self._streams() if stream.rows}

    def _begin(self, phase: Phase) -> None:
        with self._database.writing() as session:
            session.add(phase)
            session.flush()
            self.row_id = phase.id
            environments = [
                Environment(
                    phase_id=phase.id,
                    uid=record.uid,
                    name=record.name,
                    params=record.params,
                    world_model=record.world_model,
                    start=record.start.isoformat() if record.start else None,
                    step_size=record.step_size,
                )
                for record in self._environment_records
            ]
            agents = [
                Agent(
                    phase_id=phase.id,
                    name=record.name,
                    brain=record.brain,
                    muscle=record.muscle,
                    objective=record.objective,
                )
                for record in self._agent_records
            ]
            session.add_all([*environments, *agents])
            session.flush()
            self._agent_ids = {agent.name: agent.id for agent in agents}
            channels: list[dict[str, Any]] = []
            for environment, record in zip(environments, self._environment_records, strict=True):
                owner = {"phase_id": phase.id, "environment_id": environment.id, "agent_id": None}
                channels += _channel_rows(owner, record.sensors, record.actuators, record.rewards)
            for agent, told in zip(agents, self._agent_records, strict=True):
                owner = {"phase_id": phase.id, "environment_id": None, "agent_id": agent.id}
                rewards = [ChannelRecord(name, "", 1) for name in told.rewards]
                channels += _channel_rows(owner, told.sensors, told.actuators, rewards)
            if channels:
                session.execute(insert(Channel), channels)
            session.add_all(self._make_streams())

    def _make_streams(self) -> Iterator[Stream]:
        taken: set[str] = set()
        for record in self._agent_records:
            name = slug(record.name, taken)
            taken.add(name)
            folder, wall = self._root / f"agent-{name}", self._root / f"wall-{name}"
            self._agents[record.name] = AgentStream(
                folder, wall, record, self._metadata("agent", record.name), self._commit_episodes
            )
            yield self._stream_row("agent", record.name, folder)
            yield self._stream_row("wall", record.name, wall)
        taken.clear()
        for environment in self._environment_records:
            name = slug(environment.uid, taken)
            taken.add(name)
            folder = self._root / f"environment-{name}"
            self._environments[environment.uid] = EnvironmentStream(
                folder, environment, self._metadata("environment", environment.uid), self._commit_episodes
            )
            yield self._stream_row("environment", environment.uid, folder)
        yield self._stream_row("statistics", "", self._root / "statistics")

    def _make_statistics(self) -> StatisticsStream:
        folder = self._root / "statistics"
        return StatisticsStream(folder, self._metadata("statistics", ""), self._commit_episodes)

    def _metadata(self, kind: str, name: str) -> dict[str, Any]:
        # No uid, no date: the parts of two runs of one document and seed can be compared.
        return {"kind": kind, "name": name, "phase": self._index}

    def _stream_row(self, kind: str, name: str, folder: Path) -> Stream:
        relative = folder.relative_to(self._root.parents[1]).as_posix()
        return Stream(phase_id=self.row_id, kind=kind, name=name, folder=relative)

    def _streams(self) -> Iterator[tuple[str, AnyStream]]:
        streams: list[AnyStream] = [*self._agents.values(), *self._environments.values(), self._statistics]
        for stream in streams:
            yield stream.folder.relative_to(self._root.parents[1]).as_posix(), stream

    def _find(self, streams: dict[str, S], kind: str, name: str) -> S:
        try:
            return streams[name]
        except KeyError:
            hint = did_you_mean(name, streams) or f"; there are {', '.join(streams) or 'none'}"
            raise StoreError(f"phase {self._index} has no {kind} {name!r}{hint}") from None

    def _outcome_rows(self, name: str, given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if name not in self._agent_ids:
            self._find(self._agents, "agent", name)
        results = [("objective", "", given["objective"])]
        results += [("reward", reward, moments) for reward, moments in given["rewards"].items()]
        for kind, reward, moments in results:
            yield {
                "agent_id": self._agent_ids[name],
                "kind": kind,
                "name": reward,
                **{moment: float(moments[moment]) for moment in _MOMENTS},
            }

    def _commit_episodes(self) -> None:
        if self._sent is not None:
            self._forget_sent(*self._sent)
        if self._episodes:
            self._sent = (len(self._episodes), len(self._outcomes))
            with self._database.writing() as session:
                session.execute(insert(Episode), self._episodes)
                if self._outcomes:
                    session.execute(insert(Outcome), self._outcomes)
            self._episodes, self._outcomes, self._sent = [], [], None
        self._committed = monotonic()

    def _forget_sent(self, episodes: int, outcomes: int) -> None:
        # The last commit failed, or Ctrl-C struck: perhaps before it was done, perhaps after.
        first = self._episodes[0]
        with self._database.reading() as session:
            arrived = session.get(Episode, (first["phase_id"], first["worker"], first["episode"]))
        if arrived is not None:
            del self._episodes[:episodes]
            del self._outcomes[:outcomes]
        self._sent = None


def _channel_rows(
    owner: Mapping[str, int | None],
    sensors: Sequence[ChannelRecord],
    actuators: Sequence[ChannelRecord],
    rewards: Sequence[ChannelRecord],
) -> Iterator[dict[str, Any]]:
    for kind, channels in (("sensor", sensors), ("actuator", actuators), ("reward", rewards)):
        for position, channel in enumerate(channels):
            yield {
                **owner,
                "kind": kind,
                "position": position,
                "uid": channel.uid,
                "space": channel.space or None,
                "size": channel.size,
            }

"""Records a run: its phases, episodes, rows, brains, errors and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError, format_traceback
from palaestrai_mosaik.core.printing import abridge

from .database import reads
from .models import (
    TOPOLOGY,
    WORLD,
    Agent,
    Body,
    Channel,
    Environment,
    Episode,
    Failure,
    Instance,
    Outcome,
    Phase,
    SafeText,
    SharedDescription,
    Stream,
    Warned,
    description_ids,
    to_json,
    utc_now,
)
from .open_parts import OpenPartUpdates
from .parts import write_text
from .process import RunLock
from .records import AgentRecord, BodyRecord, ChannelRecord, EnvironmentRecord
from .row_stream import Kept
from .streams import (
    TRAJECTORIES,
    AgentStream,
    AnyStream,
    EnvironmentStream,
    FrameStream,
    StreamSet,
    is_digested,
)

if TYPE_CHECKING:
    from .database import Database


# Episodes are committed together: a commit costs about a millisecond, a short episode less.
_EPISODES_PER_COMMIT = 200
_SECONDS_PER_COMMIT = 1.0
_MOMENTS = ("sum", "mean", "min", "max")
_EPISODE_KEY = ("phase_id", "worker", "episode", "evaluation")


class PhaseRecorder:
    """Records one phase. Made by :meth:`InstanceRecorder.begin_phase`."""

    def __init__(
        self,
        database: Database,
        directory: Path,
        index: int,
        environments: Sequence[EnvironmentRecord],
        agents: Sequence[AgentRecord],
    ):
        self.row_id = 0
        self.finished = False
        self.database = database
        self._environment_records = environments
        self._agent_records = agents
        self._directory = directory
        self._index = index
        self._training = self._make_streams(evaluation=False)
        self._evaluation: StreamSet | None = None
        self._agent_ids: dict[str, int] = {}
        self._episodes: list[dict[str, Any]] = []
        self._outcomes: list[dict[str, Any]] = []
        #: a world that is not in the database yet
        self._world: SharedDescription | None = None
        # The numbers of episodes and outcomes in a commit that has not returned.
        self._sent: tuple[int, int] | None = None
        self._committed = float("-inf")
        self._begun = monotonic()
        self._updates = OpenPartUpdates(self._all_streams)

    def agent(self, name: str, evaluation: bool = False, group: int = 0) -> AgentStream:
        """Return the stream of a group of bodies of an agent, always the same object.

        Args:
            name: name of the agent.
            evaluation: the stream of the evaluation episodes, which is separate.
            group: number of the group.

        Raises:
            StoreError: there is no such agent or group.
        """
        return self._streams_of(evaluation).agent(name, group)

    def environment(self, uid: str, evaluation: bool = False) -> EnvironmentStream:
        """Return the stream of an environment, always the same object.

        Args:
            uid: uid of the environment.
            evaluation: the stream of its evaluation episodes.

        Raises:
            StoreError: there is no such environment.
        """
        return self._streams_of(evaluation).environment(uid)

    def frames(self, uid: str, evaluation: bool = False) -> FrameStream:
        """Return the stream of frames of an environment, always the same object.

        Args:
            uid: uid of the environment.
            evaluation: the stream of its evaluation episodes.

        Raises:
            StoreError: there is no such environment with frames.
        """
        return self._streams_of(evaluation).frames(uid)

    def statistic(
        self,
        agent: str,
        worker: int,
        episode: int,
        step: int,
        key: str,
        value: float,
        evaluation: bool = False,
    ) -> None:
        """Record the value of a statistic that an agent reported.

        Args:
            agent: name of the agent.
            worker: number of the worker.
            episode: number of the episode.
            step: number of the step after which it was reported.
            key: name of the statistic.
            value: its value.
            evaluation: the episode is an evaluation episode.
        """
        self._streams_of(evaluation).statistics.append(agent, worker, episode, step, key, value)

    def world(self, data: Mapping[str, Any]) -> None:
        """Record the world of the phase: plain data, which runs with the same world share.

        It is committed with the first episodes, or after a second if the first takes longer.

        Args:
            data: the graph of the world's simulators, entities and connections.
        """
        self._world = SharedDescription.of(WORLD, dict(data))

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
        evaluation: bool = False,
    ) -> None:
        """Record the end of an episode and the agents' outcomes. Episodes are committed about once a second.

        Args:
            worker: number of the worker.
            episode: number of the episode; every worker counts its episodes from 0, evaluation episodes separately.
            steps: number of steps.
            ticks: duration in mosaik ticks.
            ended_by: what ended the episode.
            flow: name of the simulation flow control at its end.
            duration: in seconds.
            agents: maps each name to ``{"objective": m, "rewards": {name: m, ...}}``, where ``m`` has the keys
                ``sum``, ``mean``, ``min`` and ``max``.
            evaluation: this is an evaluation episode.

        Raises:
            StoreError: there is no such agent, or the database cannot be written to.
        """
        key = {"phase_id": self.row_id, "worker": worker, "episode": episode, "evaluation": evaluation}
        outcomes = [
            {**key, **row} for name, results in agents.items() for row in self._outcome_rows(name, results)
        ]
        row = {"steps": steps, "ticks": ticks, "ended_by": ended_by, "flow": flow, "duration": duration}
        self._episodes.append(key | row | {"ended": utc_now()})
        self._outcomes += outcomes
        # the next episode may take as long as this one
        late = monotonic() + duration - self._committed >= _SECONDS_PER_COMMIT
        if late or len(self._episodes) >= _EPISODES_PER_COMMIT:
            self._commit_episodes()

    def finish(self, reason: str) -> None:
        """Write all that is still in memory, and record the end of the phase.

        Args:
            reason: why the phase ended.

        Raises:
            StoreError: the phase is finished already, or the data cannot be written.
        """
        if self.finished:
            raise StoreError(f"phase {self._index} is finished already")
        self.finished = True
        self._updates.stop()
        problem: StoreError | None = None
        for _, stream in self._streams():
            try:
                stream.flush()
            except StoreError as error:  # the other streams may still be saved
                problem = problem or error
        self._commit_episodes()
        ended = {"ended": utc_now(), "reason": reason}

        def write(session: Session) -> None:
            for folder, stream in self._streams():
                whole = stream.rows == stream.rows_written
                written = {
                    "rows": stream.rows_written,
                    "parts": stream.parts,
                    "digest": stream.digest() if whole else None,
                }
                where = (Stream.phase_id == self.row_id, Stream.folder == folder)
                session.execute(update(Stream).where(*where).values(written))
            session.execute(update(Phase).where(Phase.id == self.row_id).values(ended))

        self.database.write(write)
        if problem is not None:
            raise problem

    def digests(self) -> dict[str, str]:
        """Return the digest of every stream that has rows: ``{"phase-0/agent-a": "..."}``."""
        return digests_of(self._stream_states())

    def mark(self) -> dict[str, Any]:
        """Flush the memory, and return the state of the recording as plain JSON data.

        ``streams`` has ``rows``, ``parts`` and ``digest`` by folder; ``episodes`` lists
        whether an evaluation, worker, last episode and number of episodes.
        """
        if not self.finished:
            for _, stream in self._streams():
                stream.flush()
            self._commit_episodes()
        return {
            "phase": self._index,
            "finished": self.finished,
            "evaluation": self._evaluation is not None,
            "streams": self._stream_states(),
            "episodes": self._count_episodes(),
        }

    @reads
    def _count_episodes(self) -> list[list[Any]]:
        key = (Episode.evaluation, Episode.worker)
        counted = select(*key, func.max(Episode.episode), func.count()).group_by(*key).order_by(*key)
        with self.database.reading() as session:
            return [list(row) for row in session.execute(counted.where(Episode.phase_id == self.row_id))]

    def _stream_states(self) -> dict[str, dict[str, Any]]:
        return {
            folder: {"rows": stream.rows, "parts": stream.parts, "digest": stream.digest()}
            for folder, stream in self._streams()
        }

    def _go_on(self, row_id: int, mark: Mapping[str, Any], kept: Mapping[str, Kept]) -> None:
        """Continue the phase that was open at ``mark``."""
        self.row_id = row_id
        agents, uids = self._members()
        recorded = {"agents": list(agents), "environments": uids}
        current = {
            "agents": [record.name for record in self._agent_records],
            "environments": [record.uid for record in self._environment_records],
        }
        for kind, names in recorded.items():
            same = list(map(self._as_stored, current[kind]))
            if names != same:
                raise StoreError(
                    f"phase {self._index} was recorded with the {kind} {', '.join(names)}; "
                    f"now they are {', '.join(same)}"
                )
        self._agent_ids = dict(zip(current["agents"], agents.values(), strict=True))
        if mark["evaluation"]:
            self._evaluation = self._make_streams(evaluation=True)
        for folder, stream in self._streams():
            stream.restore(kept[folder])
        self._updates.start()

    @reads
    def _members(self) -> tuple[dict[str, int], list[str]]:
        """Select the ids of the agents by name, and the uids of the environments, with names as stored."""
        with self.database.reading() as session:
            agents = select(Agent.name, Agent.id).where(Agent.phase_id == self.row_id).order_by(Agent.id)
            uids = select(Environment.uid).where(Environment.phase_id == self.row_id).order_by(Environment.id)
            return dict(session.execute(agents).all()), list(session.scalars(uids))

    def _as_stored(self, name: str) -> str:
        """Escape a name as the database does."""
        return str(SafeText().process_bind_param(name, self.database.engine.dialect))

    def _begin(self, row: Mapping[str, Any]) -> None:
        """Insert the phase's ``row``, and the rows of its members."""

        topologies = [
            None if record.topology is None else SharedDescription.of(TOPOLOGY, record.topology.to_data())
            for record in self._environment_records
        ]

        def write(session: Session) -> int:
            ids = description_ids(
                session, [description for description in topologies if description is not None]
            )
            phase = Phase(**row)
            session.add(phase)
            session.flush()
            environments = [
                Environment(
                    phase_id=phase.id,
                    start=record.start.isoformat() if record.start else None,
                    topology_id=None if topology is None else ids[topology.hash],
                    **_fields(record, "uid", "name", "params", "world_model", "step_size", "incarnations"),
                    rewards_accumulate=record.rewards_accumulate,
                )
                for record, topology in zip(self._environment_records, topologies, strict=True)
            ]
            agents = [
                Agent(phase_id=phase.id, **_fields(record, "name", "brain", "muscle", "objective"))
                for record in self._agent_records
            ]
            session.add_all([*environments, *agents])
            session.flush()
            channels: list[dict[str, Any]] = []
            for environment, record in zip(environments, self._environment_records, strict=True):
                owner = {"phase_id": phase.id, "environment_id": environment.id, "agent_id": None}
                channels += _channel_rows(
                    owner | {"body_group": 0}, record.sensors, record.actuators, record.rewards
                )
            bodies: list[dict[str, Any]] = []
            for agent, described in zip(agents, self._agent_records, strict=True):
                owner = {"phase_id": phase.id, "environment_id": None, "agent_id": agent.id}
                for body in described.bodies:
                    bodies.append(_body_row(phase.id, agent.id, body))
                    rewards = [ChannelRecord(name, "", 1) for name in body.rewards]
                    channels += _channel_rows(
                        owner | {"body_group": body.group}, body.sensors, body.actuators, rewards
                    )
            if bodies:
                session.execute(insert(Body), bodies)
            if channels:
                session.execute(insert(Channel), channels)
            session.execute(insert(Stream), self._training.table(phase.id))
            return phase.id

        def written(session: Session) -> int | None:
            numbered = (Phase.instance_id == row["instance_id"], Phase.number == row["number"])
            return session.scalar(select(Phase.id).where(*numbered))

        self.row_id = self.database.write(write, written)
        ids = self._members()[0].values()
        self._agent_ids = dict(zip((record.name for record in self._agent_records), ids, strict=True))
        self._updates.start()

    def _make_streams(self, *, evaluation: bool) -> StreamSet:
        return StreamSet(
            self._directory,
            self._index,
            self._environment_records,
            self._agent_records,
            self._commit_late,
            evaluation=evaluation,
        )

    def _streams_of(self, evaluation: bool) -> StreamSet:
        if not evaluation:
            return self._training
        if self._evaluation is None:
            streams = self._make_streams(evaluation=True)

            def write(session: Session) -> int:
                session.execute(insert(Stream), streams.table(self.row_id))
                return self.row_id

            def written(session: Session) -> int | None:
                of_them = (Stream.phase_id == self.row_id, Stream.evaluation)
                return session.scalar(select(Stream.phase_id).where(*of_them).limit(1))

            self.database.write(write, written)
            self._evaluation = streams
        return self._evaluation

    def _streams(self) -> Iterator[tuple[str, AnyStream]]:
        yield from self._training
        if self._evaluation is not None:
            yield from self._evaluation

    def _all_streams(self) -> list[AnyStream]:
        return [stream for _, stream in self._streams()]

    def _outcome_rows(self, name: str, outcome: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        if name not in self._agent_ids:
            self._training.agent(name)  # raises an error that lists the names
        results = [("objective", "", outcome["objective"])]
        results += [("reward", reward, moments) for reward, moments in outcome["rewards"].items()]
        for kind, reward, moments in results:
            yield {
                "agent_id": self._agent_ids[name],
                "kind": kind,
                "name": reward,
                **{moment: float(moments[moment]) for moment in _MOMENTS},
            }

    def _commit_late(self) -> None:
        """Commit if results have waited for a second, while an episode goes on."""
        waits = self._episodes or self._world is not None
        if waits and monotonic() - max(self._committed, self._begun) >= _SECONDS_PER_COMMIT:
            self._commit_episodes()

    def _commit_episodes(self) -> None:
        if self._sent is not None:
            self._forget_sent(*self._sent)
        world = self._world
        if self._episodes or world is not None:
            self._sent = (len(self._episodes), len(self._outcomes)) if self._episodes else None

            def write(session: Session) -> bool:
                if world is not None:
                    ids = description_ids(session, [world])
                    statement = update(Phase).where(Phase.id == self.row_id).values(world_id=ids[world.hash])
                    session.execute(statement)
                if self._episodes:
                    session.execute(insert(Episode), self._episodes)
                if self._outcomes:
                    session.execute(insert(Outcome), self._outcomes)
                return True

            self.database.write(write, lambda session: self._have_arrived(session) or None)
            self._episodes, self._outcomes, self._sent, self._world = [], [], None, None
        self._committed = monotonic()

    def _forget_sent(self, episodes: int, outcomes: int) -> None:
        # The last commit failed or was interrupted by Ctrl-C: before it was done, or after.
        def look(_: bool) -> bool:
            with self.database.reading() as session:
                return self._have_arrived(session)

        if self.database.repeat(look):
            del self._episodes[:episodes]
            del self._outcomes[:outcomes]
        self._sent = None

    def _have_arrived(self, session: Session) -> bool:
        """Whether the database has the first of the episodes in memory; then it has all that were sent."""
        if not self._episodes:
            return False
        first = self._episodes[0]
        return session.get(Episode, tuple(first[key] for key in _EPISODE_KEY)) is not None


def digests_of(streams: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the digests of all streams with rows but frames: ``{"phase-0/agent-a": "..."}``."""
    start = len(TRAJECTORIES) + 1
    return {
        folder[start:]: state["digest"]
        for folder, state in streams.items()
        if state["rows"] and is_digested(folder)
    }


def _fields(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _body_row(phase: int, agent: int, body: BodyRecord) -> dict[str, Any]:
    row: dict[str, Any] = {"phase_id": phase, "agent_id": agent, "body_group": body.group}
    row["incarnations"] = None if body.incarnations is None else list(body.incarnations)
    columns = ("name", "first", "count", "number", "environment", "muscle", "objective", "proposed")
    return row | _fields(body, *columns)


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
                "unit": channel.unit,
            }


#: the file in an instance's directory that marks that the run has ended, whatever its status
MARKER = "complete.json"
#: the marker's name until the end is in the database; if the process is killed in between, the file keeps it. It
#: counts only if the database says how the run ended.
PENDING_MARKER = f"{MARKER}.pending"

Status = Literal["finished", "failed", "interrupted", "pruned", "lost"]


def wait_for_others(session: Session, instance: int) -> None:
    """Wait until no other transaction writes rows of the instance.

    After a lost connection, the server may still be executing the transaction.
    """
    session.execute(select(Instance.id).where(Instance.id == instance).with_for_update())


def read_marker(directory: Path) -> str:
    """Read the marker of an instance that has ended according to the database. Raises ``OSError``."""
    try:
        return files.read_text(directory / MARKER)
    except FileNotFoundError:
        return files.read_text(directory / PENDING_MARKER)


def put_marker(directory: Path) -> None:
    """Rename the pending marker, if there is one, after the end is in the database. Raises :class:`StoreError`."""
    try:
        with suppress(FileNotFoundError):
            files.move(directory / PENDING_MARKER, directory / MARKER)
    except OSError as error:
        raise StoreError(f"cannot write {directory / MARKER}: {error}") from error


class InstanceRecorder:
    """Records one execution of a run document.

    :meth:`Store.begin_run` and :meth:`Store.resume_run` create it. For a resumed run, ``marked`` has the phases that
    had begun at the mark, and ``kept`` the contents of the streams, by folder.
    """

    def __init__(
        self,
        database: Database,
        row_id: int,
        uid: str,
        hash: str,
        directory: Path,
        *,
        marked: Sequence[dict[str, Any]] = (),
        kept: Mapping[str, Kept] | None = None,
    ):
        #: the instance's uid; uids sort by time
        self.uid = uid
        #: the folder of this instance; other modules may add files, such as brain dumps
        self.directory = directory
        self.database = database
        self._id = row_id
        self._hash = hash
        self._phases: list[PhaseRecorder] = []
        # Phases of the mark, by number, that have ended or are not reopened yet.
        self._marked = {phase["phase"]: phase for phase in marked}
        self._kept = kept or {}
        self._finished = False
        self._lock = RunLock(directory)

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
        """Record the start of a phase and its members; return its recorder.

        Args:
            index: number of the phase in the schedule, from 0.
            name: name of the phase.
            mode: ``"train"`` or ``"test"``.
            workers: number of workers.
            episodes: number of episodes of each worker; ``None``: no limit.
            controller: name of the simulation controller.
            environments: the environments, in order.
            agents: the agents, in order.

        Raises:
            StoreError: the run has been finished, or the database cannot be written to.
        """
        self._refuse_if_finished()
        phase = PhaseRecorder(self.database, self.directory, index, environments, agents)
        row = {"name": name, "mode": mode, "workers": workers, "episodes": episodes, "controller": controller}
        phase._begin({"instance_id": self._id, "number": index, "started": utc_now(), **row})
        self._phases.append(phase)
        return phase

    def reopen_phase(
        self, index: int, environments: Sequence[EnvironmentRecord], agents: Sequence[AgentRecord]
    ) -> PhaseRecorder:
        """Return a recorder that continues the phase that was open at the mark.

        Args:
            index: number of the phase in the schedule, from 0.
            environments: the environments, as in :meth:`begin_phase`.
            agents: the agents, as in :meth:`begin_phase`.

        Raises:
            StoreError: no phase with this number was open, or its environments or agents have changed.
        """
        self._refuse_if_finished()
        marked = self._marked.get(index)
        if marked is None or marked["finished"]:
            open_ones = [str(number) for number, phase in self._marked.items() if not phase["finished"]]
            raise StoreError(
                f"phase {index} of the run {self.uid} was not open at the mark; open was "
                f"{', '.join(open_ones) or 'none'}"
            )
        row_id = self._phase_id(index)
        phase = PhaseRecorder(self.database, self.directory, index, environments, agents)
        phase._go_on(row_id, marked, self._kept)
        del self._marked[index]
        self._phases.append(phase)
        return phase

    def mark(self) -> dict[str, Any]:
        """Flush the memory, and return the state of the recording as plain JSON data.

        :meth:`Store.resume_run` continues from here.

        Raises:
            StoreError: the run is finished, or the data cannot be written.
        """
        self._refuse_if_finished()
        phases = [*self._marked.values(), *(phase.mark() for phase in self._phases)]
        return {"instance": self.uid, "warnings": self._count_warnings(), "phases": phases}

    def warning(self, text: str) -> None:
        """Record a warning.

        Args:
            text: its text; a very long one is abridged.

        Raises:
            StoreError: the database cannot be written to.
        """
        text, time = abridge(text), utc_now()

        def write(session: Session) -> bool:
            session.add(Warned(instance_id=self._id, text=text, time=time))
            return True

        def written(session: Session) -> bool | None:
            wait_for_others(session, self._id)
            same = (Warned.instance_id == self._id, Warned.time == time, Warned.text == text)
            return True if session.scalar(select(Warned.id).where(*same)) is not None else None

        self.database.write(write, written)

    def finish(self, status: Status, error: BaseException | None = None) -> None:
        """Write all that is still in memory, the pending marker, the status and the error; then rename the marker.

        With this order, a run that has ended in the database has a marker, even if the process is killed.

        Args:
            status: how the run ended.
            error: the error that ended it, which is recorded with its traceback.

        Raises:
            StoreError: the data cannot be written; the run is then recorded as failed, with both errors, if the
                database still accepts it.
        """
        self._refuse_if_finished()
        self._finished = True
        try:
            self._finish(status, error)
        finally:
            self._lock.release()

    def _finish(self, status: Status, error: BaseException | None) -> None:
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
        if problem is None:
            try:
                self._write_marker(status)
            except StoreError as write_error:
                problem, status = write_error, "failed"
                failures.append(write_error)
        self._end(status, failures, failed_in)
        if problem is not None:
            raise problem
        put_marker(self.directory)

    def _write_marker(self, status: Status) -> None:
        digests: dict[str, str] = {}
        for marked in self._marked.values():
            digests |= digests_of(marked["streams"])
        for phase in self._phases:
            digests |= phase.digests()
        marker = {"uid": self.uid, "hash": self._hash, "status": status, "digests": digests}
        write_text(self.directory / PENDING_MARKER, to_json(marker) + "\n")

    def _end(self, status: Status, failures: Sequence[BaseException], phase: int | None) -> None:
        ended = utc_now()

        def write(session: Session) -> bool:
            values = {"status": status, "ended": ended}
            session.execute(update(Instance).where(Instance.id == self._id).values(values))
            for failure in failures:
                session.add(
                    Failure(
                        instance_id=self._id,
                        phase_id=phase,
                        kind=type(failure).__qualname__,
                        message=abridge(str(failure)),
                        traceback=format_traceback(failure),
                        time=ended,
                    )
                )
            return True

        def written(session: Session) -> bool | None:
            wait_for_others(session, self._id)
            recorded = session.scalar(select(Instance.ended).where(Instance.id == self._id))
            return True if recorded == ended else None

        self.database.write(write, written)

    @reads
    def _phase_id(self, number: int) -> int:
        with self.database.reading() as session:
            numbered = (Phase.instance_id == self._id, Phase.number == number)
            return session.scalars(select(Phase.id).where(*numbered)).one()

    @reads
    def _count_warnings(self) -> int:
        with self.database.reading() as session:
            warnings = select(func.count()).select_from(Warned).where(Warned.instance_id == self._id)
            return session.scalar(warnings) or 0

    def _refuse_if_finished(self) -> None:
        if self._finished:
            raise StoreError(f"the run {self.uid} is finished: nothing can be recorded any more")

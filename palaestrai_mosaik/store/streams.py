"""The streams of a phase: steps of agents and environments, statistics of agents, and rendered frames."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.types.arrays import AgentRows, EnvironmentRows

from .models import to_json
from .open_parts import KEYS, arrow_column, binary_column, text_column
from .parts import PartWriter, wall_folder
from .records import AgentRecord, BodyRecord, EnvironmentRecord, channel_columns, distinct, slug
from .row_stream import (
    AGENT_HEADER,
    ENVIRONMENT_HEADER,
    PART_ROWS,
    Line,
    ListDigest,
    ListStream,
    RowStream,
    StatisticsDigest,
    Vector,
)

if TYPE_CHECKING:
    import pyarrow as pa


#: a part is full with this many frames, or bytes of images
_PART_FRAMES = 2_000
_PART_BYTES = 16 * 2**20
#: the number of frames that are read together if only some of a part are needed
_ROW_GROUP = 50
_KEYS = struct.Struct("<iqqiq")
#: the first bytes of every PNG image
_PNG = b"\x89PNG\r\n\x1a\n"


class Frame(NamedTuple):
    """A rendered state: the keys of its row, as in the environment's stream, and a PNG image."""

    worker: int
    episode: int
    step: int
    time: int
    environment_episode: int
    png: bytes


class FrameDigest(ListDigest):
    """The digest of frames, to verify the files; it is not part of the run's digests."""

    def add(self, frames: Iterable[tuple[int, int, int, int, int, bytes]]) -> None:
        """Update the digest with frames, each with the fields of :class:`Frame`."""
        for worker, episode, step, time, environment_episode, png in frames:
            keys = _KEYS.pack(episode, step, time, environment_episode, len(png))
            self._of(worker).update(keys + png)


class FrameStream(ListStream[Frame]):
    """The rendered frames of one environment in one phase."""

    def __init__(self, folder: Path, metadata: dict[str, Any], on_look: Callable[[], None]):
        writer = PartWriter(folder, metadata, row_group=_ROW_GROUP)
        super().__init__(writer, _PART_FRAMES, FrameDigest(), on_look)
        self._bytes = 0

    def append(
        self, worker: int, episode: int, step: int, time: int, environment_episode: int, png: bytes
    ) -> None:
        """Record a frame of a state.

        Raises :class:`StoreError` if ``png`` is not a PNG image, or a part cannot be written.
        """
        if not png.startswith(_PNG):
            raise StoreError(f"{self.folder.name}: a frame must be a PNG image")
        self._look(full=self._bytes >= _PART_BYTES)
        if not self._records:
            self._bytes = 0
        self._records.append(Frame(worker, episode, step, time, environment_episode, png))
        self._bytes += len(png)

    def _columns(self, records: Sequence[Frame]) -> dict[str, pa.Array]:
        workers, episodes, steps, times, environment_episodes, images = zip(*records, strict=True)
        return {
            "worker": arrow_column(np.array(workers, dtype=np.int16)),
            "episode": arrow_column(np.array(episodes, dtype=np.int32)),
            "step": arrow_column(np.array(steps, dtype=np.int64)),
            "time": arrow_column(np.array(times, dtype=np.int64)),
            "environment_episode": arrow_column(np.array(environment_episodes, dtype=np.int32)),
            # for sums of sizes without reading images
            "bytes": arrow_column(np.array([len(image) for image in images], dtype=np.int32)),
            "png": binary_column(images),
        }


_AGENT_COLUMNS = (
    *("step", "time", "body", "environment_episode"),
    *("objective", "terminated", "truncated"),
)
_ENVIRONMENT_COLUMNS = ("incarnation", "environment_episode", "terminated", "truncated")


class AgentStream(RowStream):
    """The steps of one agent's identical bodies in one phase: readings, set-points and rewards.

    Wall-clock times go to a separate folder, so that the trajectories of two runs of
    the same document and seed can be compared byte by byte.
    """

    def __init__(
        self,
        folder: Path,
        wall_folder: Path,
        record: BodyRecord,
        metadata: dict[str, Any],
        on_look: Callable[[], None],
    ):
        readings = channel_columns("reading", record.sensors)
        setpoints = channel_columns("setpoint", record.actuators)
        proposed = channel_columns("proposed", record.actuators) if record.proposed else []
        rewards = [f"reward.{name}" for name in record.rewards]
        super().__init__(
            PartWriter(folder, metadata),
            AGENT_HEADER,
            distinct([*readings, *setpoints, *proposed, *rewards]),
            on_look,
            "body",
        )
        self._wall_writer = PartWriter(wall_folder, metadata)
        self._wall = np.empty(self._pace.capacity, dtype="<f4")
        self._fields["wall"] = self._wall
        self._sizes = (len(readings), len(setpoints), len(rewards))
        self._setpoints_at = self._cells + len(readings)
        self._proposed_at = self._setpoints_at + len(setpoints)
        self._rewards_at = self._proposed_at + len(proposed)
        self._proposes = record.proposed
        matrices = {"readings": len(readings), "setpoints": len(setpoints)}
        matrices |= {"proposed": len(proposed)} if record.proposed else {}
        self._matrices = matrices | {"rewards": len(rewards)}

    def append(  # noqa: PLR0913  (one row; an object to carry it would cost more)
        self,
        worker: int,
        episode: int,
        step: int,
        time: int,
        readings: Vector,
        setpoints: Vector,
        rewards: Vector,
        objective: float,
        terminated: bool,
        truncated: bool,
        wall: float,
        body: int = 0,
        environment_episode: int = 0,
        proposed: Vector | None = None,
    ) -> None:
        """Record one step of one body. The vectors are copied.

        Args:
            worker: number of the worker.
            episode: number of the phase's episode.
            step: number of the step in the episode.
            time: of the step, in mosaik ticks.
            readings: flattened values of the sensors (n,), in the order of the record.
            setpoints: flattened values of the actuators (m,), in the order of the record.
            rewards: values of the record's rewards, in its order.
            objective: value of the objective; NaN if there is none.
            terminated: the body's episode has terminated.
            truncated: the body's episode was truncated.
            wall: seconds that the step took.
            body: number of the body.
            environment_episode: how often the body's environment has restarted in this episode.
            proposed: the set-points that the agent itself would have chosen (m,), exactly if the record has
                ``proposed``.

        Raises:
            StoreError: a vector has another size, or a part cannot be written.
        """
        row = self._filled
        if row >= self._limit:
            row = self._look()
        try:
            if (len(readings), len(setpoints), len(rewards)) != self._sizes:
                raise ValueError("wrong number of values")  # numpy would repeat a single one
            if self._proposes is (proposed is None):
                raise ValueError(self._wrong_proposal())
            self._owner[row] = body
            self._owner_episode[row] = environment_episode
            self._struct.pack_into(
                self._bytes,
                row * self._row_bytes,
                step,
                time,
                episode,
                worker,
                terminated,
                truncated,
                objective,
            )
            values = self._block[row]
            values[self._cells : self._setpoints_at] = readings
            values[self._setpoints_at : self._proposed_at] = setpoints
            if proposed is not None:
                if len(proposed) != self._sizes[1]:
                    raise ValueError(f"{len(proposed)} proposed set-points instead of {self._sizes[1]}")
                values[self._proposed_at : self._rewards_at] = proposed
            values[self._rewards_at :] = rewards
        except (struct.error, ValueError, TypeError) as error:
            vectors = zip(
                ("readings", "setpoints", "rewards"), (readings, setpoints, rewards), self._sizes, strict=True
            )
            raise self._refuse(error, vectors) from error
        self._wall[row] = wall
        self._filled = row + 1

    def append_rows(self, rows: AgentRows) -> None:
        """Record the rows of several bodies, like one :meth:`append` per body.

        Args:
            rows: the rows, one per body of this group that acted.

        Raises:
            StoreError: the rows have other shapes than the record of the group, or cannot be written.
        """
        if self._proposes is (rows.proposed is None):
            raise StoreError(f"{self.folder.name}: cannot record these rows: {self._wrong_proposal()}")
        self._check_rows(rows, _AGENT_COLUMNS, self._matrices)
        self._append(
            {name: getattr(rows, name) for name in ("worker", "episode", "wall")},
            {name: getattr(rows, name) for name in _AGENT_COLUMNS},
            [getattr(rows, name) for name in self._matrices],
        )

    def _wrong_proposal(self) -> str:
        return f"the record says that there are {'' if self._proposes else 'no '}proposed set-points"

    def _write(self, columns: dict[str, pa.Array]) -> None:
        wall = {name: columns[name] for name in (*KEYS, *self._owners)} | {
            "wall": arrow_column(self._wall[: self._filled])
        }
        # Wall-clock first: a part of the trajectory, once visible, then has its wall part.
        self._wall_writer.write(self.parts, wall)
        super()._write(columns)

    def _packed(self, start: int, end: int) -> dict[str, pa.Array]:
        return super()._packed(start, end) | {"wall": arrow_column(self._wall[start:end])}


class EnvironmentStream(RowStream):
    """The states of one environment in one phase."""

    def __init__(
        self,
        folder: Path,
        record: EnvironmentRecord,
        metadata: dict[str, Any],
        on_look: Callable[[], None],
    ):
        readings = channel_columns("reading", record.sensors)
        rewards = channel_columns("reward", record.rewards)
        super().__init__(
            PartWriter(folder, metadata),
            ENVIRONMENT_HEADER,
            distinct([*readings, *rewards]),
            on_look,
            "incarnation",
        )
        self._sizes = (len(readings), len(rewards))
        self._matrices = {"readings": len(readings), "rewards": len(rewards)}
        self._rewards_at = self._cells + len(readings)

    def append(  # noqa: PLR0913  (one row, as for agents)
        self,
        worker: int,
        episode: int,
        step: int,
        time: int,
        readings: Vector,
        rewards: Vector,
        terminated: bool,
        truncated: bool,
        state: Any = None,
        incarnation: int = 0,
        environment_episode: int = 0,
    ) -> None:
        """Record one state of one incarnation. The vectors are copied.

        Args:
            worker: number of the worker.
            episode: number of the phase's episode.
            step: number of the step in the episode.
            time: of the state, in mosaik ticks.
            readings: flattened values of all sensors (n,), in the order of the record.
            rewards: flattened values of the rewards, in the order of the record.
            terminated: the environment's episode has terminated.
            truncated: the environment's episode was truncated.
            state: further data that can be serialised as JSON, or ``None``.
            incarnation: number of the incarnation.
            environment_episode: how often the environment has restarted in this episode.

        Raises:
            StoreError: a vector has another size, the state has no JSON form, or a part cannot be written.
        """
        row = self._filled
        if row >= self._limit:
            row = self._look()
        try:
            if (len(readings), len(rewards)) != self._sizes:
                raise ValueError("wrong number of values")  # numpy would repeat a single one
            self._owner[row] = incarnation
            self._owner_episode[row] = environment_episode
            self._struct.pack_into(
                self._bytes, row * self._row_bytes, step, time, episode, worker, terminated, truncated
            )
            values = self._block[row]
            values[self._cells : self._rewards_at] = readings
            values[self._rewards_at :] = rewards
        except (struct.error, ValueError, TypeError) as error:
            vectors = zip(("readings", "rewards"), (readings, rewards), self._sizes, strict=True)
            raise self._refuse(error, vectors) from error
        if state is not None:
            self._states[row] = to_json(state)
        self._filled = row + 1

    def append_rows(self, rows: EnvironmentRows) -> None:
        """Record the states of several incarnations, like one :meth:`append` per incarnation.

        Args:
            rows: the states, one per incarnation.

        Raises:
            StoreError: the states have other shapes than the record of the environment, or cannot be written.
        """
        self._check_rows(rows, _ENVIRONMENT_COLUMNS, self._matrices)
        self._append(
            {name: getattr(rows, name) for name in ("worker", "episode", "time", "step")},
            {name: getattr(rows, name) for name in _ENVIRONMENT_COLUMNS},
            [rows.readings, rows.rewards],
        )

    def _columns(self) -> dict[str, pa.Array]:
        return super()._columns() | {"state": self._state_column(0, self._filled)}

    def _packed(self, start: int, end: int) -> dict[str, pa.Array]:
        return super()._packed(start, end) | {"state": self._state_column(start, end)}

    def _state_column(self, start: int, end: int) -> pa.Array:
        return text_column(self._states.get(row) for row in range(start, end))


class StatisticsStream(ListStream[Line]):
    """The statistics that agents report, in long format."""

    def __init__(self, folder: Path, metadata: dict[str, Any], on_look: Callable[[], None]):
        super().__init__(PartWriter(folder, metadata), PART_ROWS, StatisticsDigest(), on_look)

    def append(self, agent: str, worker: int, episode: int, step: int, key: str, value: float) -> None:
        """Record the value of the statistic ``key`` that ``agent`` reported after ``step``."""
        self._look()
        try:
            self._records.append((agent, int(worker), int(episode), int(step), str(key), float(value)))
        except (TypeError, ValueError) as error:
            raise StoreError(f"statistic {key!r} of agent {agent!r}: {value!r} is not a number") from error

    def _columns(self, records: Sequence[Line]) -> dict[str, pa.Array]:
        agents, workers, episodes, steps, keys, values = zip(*records, strict=True)
        return {
            "agent": text_column(agents),
            "worker": arrow_column(np.array(workers, dtype=np.int16)),
            "episode": arrow_column(np.array(episodes, dtype=np.int32)),
            "step": arrow_column(np.array(steps, dtype=np.int64)),
            "key": text_column(keys),
            "value": arrow_column(np.array(values, dtype=np.float64)),
        }


#: the folder of an instance's directory that holds the streams
TRAJECTORIES = "trajectories"
#: the folder of a phase's folder that holds the streams of its evaluations
EVALUATION = "evaluation"

S = TypeVar("S")
AnyStream = AgentStream | EnvironmentStream | StatisticsStream | FrameStream
#: the prefix of folders with frames
_FRAMES = "frames-"


def is_digested(folder: str) -> bool:
    """Whether the rows in a stream's ``folder`` are part of the run's digests; frames are not."""
    return not folder.rpartition("/")[2].startswith(_FRAMES)


class StreamSet:
    """The streams of a phase: one for each group of an agent's bodies, for each environment, and for statistics.

    A rendered environment has another stream for its frames.

    ``directory`` is the instance's, which must exist. A stream's folder is created with its first part.
    """

    def __init__(
        self,
        directory: Path,
        phase: int,
        environments: Sequence[EnvironmentRecord],
        agents: Sequence[AgentRecord],
        on_look: Callable[[], None],
        *,
        evaluation: bool = False,
    ):
        self.evaluation = evaluation
        self._directory = directory
        self._phase = phase
        root = directory / TRAJECTORIES / f"phase-{phase}"
        if evaluation:
            root = root / EVALUATION
        if not directory.is_dir():
            raise StoreError(f"{directory} is gone: the store was moved or deleted while the run went on")
        try:
            files.make_folder(root, parents=True)
        except OSError as error:
            raise StoreError(f"cannot make {root}: {error}") from error
        self._agents: dict[str, list[AgentStream]] = {}
        self._environments: dict[str, EnvironmentStream] = {}
        self._frames: dict[str, FrameStream] = {}
        taken: set[str] = set()
        for record in agents:
            groups = self._agents[record.name] = []
            for body in record.bodies:
                # the stream of an agent without bodies has the agent's name
                alone = body.name is None and body.count == 1 and len(record.bodies) == 1
                label = record.name if alone else f"{record.name}-bodies-{body.group}"
                name = slug(label, taken)
                taken.add(name)
                metadata = self._metadata("agent", record.name) | ({} if alone else {"group": body.group})
                folder = root / f"agent-{name}"
                groups.append(AgentStream(folder, wall_folder(folder), body, metadata, on_look))
        taken.clear()
        for environment in environments:
            name = slug(environment.uid, taken)
            taken.add(name)
            folder, metadata = root / f"environment-{name}", self._metadata("environment", environment.uid)
            self._environments[environment.uid] = EnvironmentStream(folder, environment, metadata, on_look)
            if environment.frames:
                metadata = self._metadata("frames", environment.uid)
                self._frames[environment.uid] = FrameStream(root / f"{_FRAMES}{name}", metadata, on_look)
        self.statistics = StatisticsStream(root / "statistics", self._metadata("statistics", ""), on_look)

    def agent(self, name: str, group: int = 0) -> AgentStream:
        """Return the stream of a group of bodies of the agent ``name``, always the same object."""
        groups = self._find(self._agents, "agent", name)
        if not 0 <= group < len(groups):
            raise StoreError(
                f"phase {self._phase}: agent {name!r} has no group {group!r} of bodies, only 0 to {len(groups) - 1}"
            )
        return groups[group]

    def environment(self, uid: str) -> EnvironmentStream:
        """Return the stream of the environment ``uid``, always the same object."""
        return self._find(self._environments, "environment", uid)

    def frames(self, uid: str) -> FrameStream:
        """Return the stream of the frames of the environment ``uid``, always the same object."""
        return self._find(self._frames, "rendered environment", uid)

    def table(self, phase_id: int) -> list[dict[str, Any]]:
        """Build the rows of the ``streams`` table: one for each folder of part files."""
        folders: list[tuple[str, str, Path, int]] = []
        for name, groups in self._agents.items():
            for group, stream in enumerate(groups):
                folders.append(("agent", name, stream.folder, group))
                folders.append(("wall", name, wall_folder(stream.folder), group))
        folders += [("environment", uid, source.folder, 0) for uid, source in self._environments.items()]
        folders += [("frames", uid, source.folder, 0) for uid, source in self._frames.items()]
        folders.append(("statistics", "", self.statistics.folder, 0))
        shared = {"phase_id": phase_id, "evaluation": self.evaluation}
        return [
            shared | {"kind": kind, "name": name, "body_group": group, "folder": self._relative(folder)}
            for kind, name, folder, group in folders
        ]

    def __iter__(self) -> Iterator[tuple[str, AnyStream]]:
        """Yield every stream with its folder, relative to the instance's directory."""
        agents = chain.from_iterable(self._agents.values())
        others: Iterator[AnyStream] = chain(
            self._environments.values(), self._frames.values(), [self.statistics]
        )
        for stream in chain(agents, others):
            yield self._relative(stream.folder), stream

    def _relative(self, folder: Path) -> str:
        return folder.relative_to(self._directory).as_posix()

    def _metadata(self, kind: str, name: str) -> dict[str, Any]:
        # No uid, no date: the parts of two runs of one document and seed can be compared.
        metadata = {"kind": kind, "name": name, "phase": self._phase}
        return metadata | {"evaluation": True} if self.evaluation else metadata

    def _find(self, streams: dict[str, S], kind: str, name: str) -> S:
        try:
            return streams[name]
        except KeyError:
            hint = did_you_mean(name, streams) or f"; there are {', '.join(streams) or 'none'}"
            raise StoreError(f"phase {self._phase} has no {kind} {name!r}{hint}") from None

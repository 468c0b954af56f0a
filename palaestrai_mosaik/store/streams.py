"""Streams of rows: what an agent or an environment did, step by step."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.types.rows import AgentRows, EnvironmentRows

from .models import to_json
from .parts import PartWriter, arrow_column, text_column
from .records import BodyRecord, EnvironmentRecord, channel_columns, distinct
from .row_stream import AGENT_HEADER, ENVIRONMENT_HEADER, KEYS, RowStream, Vector

if TYPE_CHECKING:
    import pyarrow as pa

_AGENT_COLUMNS = (
    *("step", "time", "body", "environment_episode"),
    *("objective", "terminated", "truncated"),
)
_ENVIRONMENT_COLUMNS = ("incarnation", "environment_episode", "terminated", "truncated")


class AgentStream(RowStream):
    """The steps of one agent's alike bodies in one phase: what they read, set and were rewarded with.

    Wall-clock times go to a folder of their own, so that the trajectories of two runs of
    the same document and seed can be compared byte by byte.
    """

    def __init__(
        self,
        folder: Path,
        wall_folder: Path,
        record: BodyRecord,
        metadata: dict[str, Any],
        on_part: Callable[[], None],
    ):
        readings = channel_columns("reading", record.sensors)
        setpoints = channel_columns("setpoint", record.actuators)
        proposed = channel_columns("proposed", record.actuators) if record.proposed else []
        rewards = [f"reward.{name}" for name in record.rewards]
        super().__init__(
            PartWriter(folder, metadata),
            AGENT_HEADER,
            distinct([*readings, *setpoints, *proposed, *rewards]),
            on_part,
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

        ``readings`` and ``setpoints`` are the flattened values of the sensors and
        actuators in the order of the record, ``rewards`` those that it names;
        ``proposed`` are the set-points that the agent would have given, where the record
        says that there are such; ``time`` is in mosaik ticks, ``wall`` in seconds. Raises
        :class:`StoreError` for vectors of another size, and when a part cannot be written.
        """
        row = self._filled
        if row >= self._limit:
            row = self._look()
        try:
            if (len(readings), len(setpoints), len(rewards)) != self._sizes:
                raise ValueError("wrong number of values")  # numpy would repeat a single one
            if self._proposes is (proposed is None):
                raise ValueError(self._wrong_proposal())
            self._place[row] = body
            self._own_episode[row] = environment_episode
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
            raise self._wrong(readings, setpoints, rewards, error) from error
        self._wall[row] = wall
        self._filled = row + 1

    def append_rows(self, rows: AgentRows) -> None:
        """Record the rows of several bodies, as one :meth:`append` for each of them would."""
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

    def _wrong(self, readings: Vector, setpoints: Vector, rewards: Vector, error: Exception) -> StoreError:
        r, s, w = self._sizes
        return self._refuse(error, readings=(readings, r), setpoints=(setpoints, s), rewards=(rewards, w))

    def _write(self, columns: dict[str, pa.Array]) -> None:
        wall = {name: columns[name] for name in (*KEYS, *self._whose)} | {
            "wall": arrow_column(self._wall[: self._filled])
        }
        # Wall-clock first: a part of the trajectory, once visible, then has its wall part.
        self._wall_writer.write(self.parts, wall)
        super()._write(columns)


class EnvironmentStream(RowStream):
    """The states of one environment in one phase."""

    def __init__(
        self,
        folder: Path,
        record: EnvironmentRecord,
        metadata: dict[str, Any],
        on_part: Callable[[], None],
    ):
        readings = channel_columns("reading", record.sensors)
        rewards = channel_columns("reward", record.rewards)
        super().__init__(
            PartWriter(folder, metadata),
            ENVIRONMENT_HEADER,
            distinct([*readings, *rewards]),
            on_part,
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
        """Record one state of one incarnation. The vectors are copied; ``state`` must be JSON-able, or ``None``.

        ``readings`` holds the flattened values of all sensors in the order of the record.
        Raises :class:`StoreError` for vectors of another size, a state without a JSON
        form, and when a part cannot be written.
        """
        row = self._filled
        if row >= self._limit:
            row = self._look()
        try:
            if (len(readings), len(rewards)) != self._sizes:
                raise ValueError("wrong number of values")  # numpy would repeat a single one
            self._place[row] = incarnation
            self._own_episode[row] = environment_episode
            self._struct.pack_into(
                self._bytes, row * self._row_bytes, step, time, episode, worker, terminated, truncated
            )
            values = self._block[row]
            values[self._cells : self._rewards_at] = readings
            values[self._rewards_at :] = rewards
        except (struct.error, ValueError, TypeError) as error:
            raise self._wrong(readings, rewards, error) from error
        if state is not None:
            self._states[row] = to_json(state)
        self._filled = row + 1

    def append_rows(self, rows: EnvironmentRows) -> None:
        """Record the states of several incarnations, as one :meth:`append` for each of them would."""
        self._check_rows(rows, _ENVIRONMENT_COLUMNS, self._matrices)
        self._append(
            {name: getattr(rows, name) for name in ("worker", "episode", "time", "step")},
            {name: getattr(rows, name) for name in _ENVIRONMENT_COLUMNS},
            [rows.readings, rows.rewards],
        )

    def _wrong(self, readings: Vector, rewards: Vector, error: Exception) -> StoreError:
        r, w = self._sizes
        return self._refuse(error, readings=(readings, r), rewards=(rewards, w))

    def _columns(self) -> dict[str, pa.Array]:
        states = text_column(self._states.get(row) for row in range(self._filled))
        return super()._columns() | {"state": states}

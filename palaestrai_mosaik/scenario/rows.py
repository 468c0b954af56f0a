"""What agents and their world did, kept in memory for the script: tables of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ContractError
from palaestrai_mosaik.run.worker import Recording
from palaestrai_mosaik.simulation.ports import AgentStream, EnvironmentStream
from palaestrai_mosaik.store.records import BodyRecord, EnvironmentRecord, channel_columns
from palaestrai_mosaik.types.rows import AgentRows, EnvironmentRows

if TYPE_CHECKING:
    import pandas as pd

FloatVector = npt.NDArray[np.float64]


class Table:
    """The rows of an agent, or of the environment; they are handed on to ``also``, where it is set."""

    def __init__(self, record: BodyRecord | EnvironmentRecord):
        self._columns = channel_columns("reading", record.sensors)
        self._objective = isinstance(record, BodyRecord)
        if isinstance(record, BodyRecord):
            self._columns += channel_columns("setpoint", record.actuators)
            self._columns += [f"reward.{name}" for name in record.rewards]
        else:
            self._columns += channel_columns("reward", record.rewards)
        self._keys: list[tuple[int, bool, int, int]] = []
        self._values: list[FloatVector] = []
        self._rest: list[tuple[float, bool, bool]] = []
        #: whether the rows that come are those of an evaluation
        self.evaluation = False
        self.also: Any = None

    def append(self, worker: int, episode: int, step: int, time: int, *rest: Any) -> None:
        """Add a row: see :class:`AgentStream` and :class:`EnvironmentStream`."""
        self._keys.append((episode, self.evaluation, step, time))
        if self._objective:
            readings, setpoints, rewards, objective, terminated, truncated, *_ = rest
            self._values.append(np.concatenate([readings, setpoints, rewards]))
        else:
            readings, rewards, terminated, truncated, *_ = rest
            objective = np.nan
            self._values.append(np.concatenate([readings, rewards]))
        self._rest.append((objective, terminated, truncated))
        if self.also is not None:
            self.also.append(worker, episode, step, time, *rest)

    def append_rows(self, rows: AgentRows | EnvironmentRows) -> None:
        """Never called: no agent of a scenario has many bodies."""
        raise ContractError(f"a scenario has one body for each agent, and no {type(rows).__name__}")

    def frame(self) -> pd.DataFrame:
        """Return all rows as a data frame."""
        import pandas as pd

        keys = ["episode", "evaluation", "step", "time"]
        frame = pd.DataFrame(self._keys, columns=keys)
        values = np.array(self._values).reshape(len(self._keys), len(self._columns))
        rest = pd.DataFrame(self._rest, columns=["objective", "terminated", "truncated"])
        if not self._objective:
            rest = rest.drop(columns="objective")
        return pd.concat([frame, pd.DataFrame(values, columns=self._columns), rest], axis=1)


class Rows:
    """Keeps all rows of a scenario, and hands them on to ``store``'s recording, where there is one."""

    def __init__(self, tables: Mapping[str, Table], environment: Table, also: Recording | None):
        self.tables, self.environment_table = tables, environment
        self._also = also

    def agent(self, name: str, evaluation: bool = False, group: int = 0) -> AgentStream:
        """See :class:`~palaestrai_mosaik.run.worker.Recording`."""
        table = self.tables[name]
        table.evaluation = evaluation
        table.also = None if self._also is None else self._also.agent(name, evaluation, group)
        return table

    def environment(self, uid: str, evaluation: bool = False) -> EnvironmentStream:
        """See :class:`~palaestrai_mosaik.run.worker.Recording`."""
        table = self.environment_table
        table.evaluation = evaluation
        table.also = None if self._also is None else self._also.environment(uid, evaluation)
        return table

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
        """Hand a figure on to the store: it is no part of the tables."""
        if self._also is not None:
            self._also.statistic(agent, worker, episode, step, key, value, evaluation)

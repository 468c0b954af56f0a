"""A muscle that follows a script: set-points from a CSV file."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from palaestrai_mosaik.agent.muscle import ArrayMuscle, BatchReadings
from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.types.arrays import FloatMatrix, IndexVector
from palaestrai_mosaik.types.vectors import Layout

from .channel_names import without_number

AtEnd = Literal["hold", "repeat", "error"]

#: name of the first column: the number of actions, or a time with ``interval`` units per action
_INDEX = ("step", "time")
#: placeholder for the number of a body, as in a document
_BODY = "{body}"
#: actuators that a message names
_LISTED = 8


class ScriptedMuscle(ArrayMuscle):
    """Plays the set-points of a CSV ``file`` from the start of each episode.

    The first column is ``step`` (number of the action in the episode, from 0) or ``time``;
    each other column is the uid of one of the agent's actuators, and each of those has one. In
    a column's name, ``{body}`` stands for any number, so that bodies can share a script. The incarnation
    of a column is ignored (see :mod:`.channel_names`), unless there are columns of several.
    A row holds until the next one; nothing is set before the first one, nor by an empty cell.

    Args:
        file: path, relative to the working directory.
        interval: with a column ``time``, the time between two actions.
        at_end: after the last row: ``hold`` it; ``repeat`` the script from its start, with the last row
            lasting for one action; or raise an ``error``.
    """

    def __init__(self, file: str, *, interval: float = 1.0, at_end: AtEnd = "hold"):
        if at_end not in get_args(AtEnd):
            allowed = get_args(AtEnd)
            raise ContractError(
                f"at_end: {at_end!r} is none of {', '.join(allowed)}{did_you_mean(at_end, allowed)}"
            )
        if not 0 < interval < math.inf:
            raise ContractError(f"interval must be positive, not {interval}")
        self.file, self.at_end = str(file), at_end
        self._interval = float(interval)
        #: the number of each body's next action
        self._actions = np.zeros(1, dtype=np.int64)
        self._table: FloatMatrix | None = None

    def setup(self) -> None:
        self._columns, self._lines, rows = _read(Path(self.file))
        if self._columns[0] == "step":
            self._interval = 1.0
        self._rows = np.array(rows, dtype=np.float64)
        name, times = self._columns[0], self._rows[:, 0]
        for line, time, before in zip(self._lines, times, [-math.inf, *times], strict=False):
            if not before < time < math.inf:
                raise ContractError(
                    f"{self.file}:{line}: {name} {time:g} is not above {before:g}, the row before"
                )
            if name == "step" and (time < 0 or time != int(time)):
                raise ContractError(f"{self.file}:{line}: step {time:g} is not a whole number from 0 on")
            if not 0 <= time / self._interval < 2**53:
                raise ContractError(
                    f"{self.file}:{line}: {name} {time:g} is none of an episode with the interval {self._interval:g}"
                )
        #: the first action of each row; the tolerance is for rounded quotients
        self._begins = np.ceil(times / self._interval - 1e-9).astype(np.int64)

    def reset(self) -> None:
        self._actions = np.zeros_like(self._actions)

    def reset_bodies(self, bodies: IndexVector) -> None:
        self._actions[bodies] = 0

    def propose_batch(self, batch: BatchReadings) -> tuple[FloatMatrix, None]:
        if self._table is None:
            self._table = self._arranged(batch.actuators)
        if len(self._actions) != len(self.rngs):
            self._actions = np.zeros(len(self.rngs), dtype=np.int64)
        actions, last = self._actions[batch.bodies], int(self._begins[-1])
        self._actions[batch.bodies] += 1
        if self.at_end == "error" and actions.max() > last:
            raise ContractError(
                f"{self.file}: the script of {self.uid!r} ends with action {last} of an episode, but there is "
                f"an action {actions.max()}"
            )
        if self.at_end == "repeat":
            actions %= last + 1
        # index 0 sets nothing, for actions before the first row
        return self._table[np.searchsorted(self._begins, actions, side="right")], None

    def _arranged(self, actuators: Layout) -> FloatMatrix:
        """Return the set-points in the order of the actuators, shape (1 + rows, actuators).

        The first row sets nothing.
        """
        uids, spaces = actuators.uids, actuators.spaces
        columns = self._columns_of(uids)
        for uid, space in zip(uids, spaces, strict=True):
            if uid not in columns:
                raise ContractError(f"{self.file}: actuator {uid!r} of {self.uid!r} has no column")
            if space.size != 1:
                raise ContractError(f"{self.file}: actuator {uid!r} takes several numbers: {space}")
        table = self._rows[:, [columns[uid] for uid in uids]]
        for line, row in zip(self._lines, table, strict=True):
            for uid, space, value in zip(uids, spaces, row, strict=True):
                if not math.isnan(value) and not space.contains(value):
                    raise ContractError(f"{self.file}:{line}: {value:g} for {uid!r} is not in {space}")
        return np.concatenate([np.full((1, table.shape[1]), np.nan), table])

    def _columns_of(self, uids: Sequence[str]) -> dict[str, int]:
        """Return the index of the column of each actuator that has one."""
        columns: dict[str, int] = {}
        for i, name in enumerate(self._columns[1:], 1):
            pattern = re.escape(name).replace(re.escape(_BODY), r"\d+")
            matching = [uid for uid in uids if re.fullmatch(pattern, uid)]
            if not matching:
                free = [uid for uid in uids if uid not in (*columns, *self._columns)]
                matching = [uid for uid in free if without_number(uid) == without_number(name)]
            if not matching:
                raise ContractError(
                    f"{self.file}:1: column {i + 1} is no actuator of {self.uid!r}{did_you_mean(name, uids)}; its "
                    f"actuators are {listed(uids, _LISTED)}"
                )
            columns |= dict.fromkeys(matching, i)
        return columns


def _read(path: Path) -> tuple[list[str], list[int], list[list[float]]]:
    """Return the column names, and the line and numbers (NaN for an empty cell) of each row.

    Messages name line and column but quote no cell, because a document may name a file that is no script.
    """
    try:
        with files.open_text(path, encoding="utf-8-sig", newline="", follow=True) as stream:
            reader = csv.reader(stream)
            lines = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ContractError(
            f"the script {str(path)!r} cannot be read: {files.reading_fault(error)}"
        ) from None
    columns = lines[0][1] if lines else []
    if not columns or columns[0] not in _INDEX:
        raise ContractError(f"{path}:1: the first column must be called step or time")
    for i, name in enumerate(columns):
        first = columns.index(name)
        if first < i:
            raise ContractError(f"{path}:1: columns {first + 1} and {i + 1} have the same name")
    if len(lines) == 1:
        raise ContractError(f"{path}: there are no rows below the column names")
    numbers = [_row(f"{path}:{line}", columns, cells) for line, cells in lines[1:]]
    return columns, [line for line, _ in lines[1:]], numbers


def _row(where: str, columns: Sequence[str], cells: Sequence[str]) -> list[float]:
    """Return the numbers of a row; ``where`` is its line in messages."""
    if len(cells) != len(columns):
        raise ContractError(f"{where}: {len(cells)} cells, but {len(columns)} columns")
    numbers = []
    for i, (name, cell) in enumerate(zip(columns, cells, strict=True), 1):
        try:
            numbers.append(float(cell) if cell or name in _INDEX else math.nan)
        except ValueError:
            raise ContractError(f"{where}: column {i} holds no number") from None
    return numbers

"""Profiles: the powers of loads, generators and storages without agents, step by step.

Kept as the table of profiles that it comes from (a few dozen columns) and multiplied out
for the step that is asked for; the matrix of all elements of a year would be ten times
the size.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.types.arrays import FloatVector

#: the quantities of each step, in the order of :meth:`Profiles.at`
QUANTITIES = ("load_p", "load_q", "sgen_p", "storage_p")


@dataclass(frozen=True, slots=True)
class Assignment:
    """The elements' values are ``table[step, columns] * factors``; both shape ``(n_elements,)``.

    Column -1 means no profile: the value is the factor at every step.
    """

    columns: npt.NDArray[np.int64]
    factors: FloatVector


class Profiles:
    """Profiles of the elements of one grid.

    Args:
        table: relative values, shape ``(n_steps, n_profiles)``.
        assignments: one :class:`Assignment` for each of :data:`QUANTITIES`: MW, or Mvar for ``load_q``.
        first: date of the first row; rows follow each other without gaps (standard time).
        resolution: seconds from one row to the next.
    """

    def __init__(
        self,
        table: npt.NDArray[np.float64],
        assignments: dict[str, Assignment],
        first: datetime,
        resolution: int = 900,
    ):
        self.table = np.ascontiguousarray(table, dtype=np.float64)
        self.assignments = {name: assignments[name] for name in QUANTITIES}
        self.first = first
        self.resolution = resolution
        #: rows of the table; a table without columns (all constant) never ends
        self.steps: int | None = len(self.table) if self.table.shape[1] else None
        #: of all elements: the column of the table, negative where the power is constant, and the factor
        self.columns = np.concatenate([a.columns for a in self.assignments.values()])
        self.factors = np.concatenate([a.factors for a in self.assignments.values()])
        self._constant = self.columns < 0
        self._columns = np.where(self._constant, 0, self.columns)
        ends = np.cumsum([len(a.columns) for a in self.assignments.values()])
        #: where each of :data:`QUANTITIES` stands in :attr:`columns` and :attr:`factors`
        self.parts = [slice(int(end - len(a.columns)), int(end)) for a, end in zip(
            self.assignments.values(), ends, strict=True)]  # fmt: skip
        self._any_constant = bool(self._constant.any())

    def at(self, step: int) -> tuple[FloatVector, FloatVector, FloatVector, FloatVector]:
        """Return ``load_p, load_q, sgen_p, storage_p`` of row ``step`` (new arrays).

        Raises :class:`IndexError` outside ``0 .. steps - 1``.
        """
        if self.steps is None:
            values = self.factors.copy()
        else:
            if not 0 <= step < self.steps:
                raise IndexError(f"profiles have steps 0 to {self.steps - 1}, step {step} was asked for")
            values = self.table[step].take(self._columns)
            if self._any_constant:
                values[self._constant] = 1.0
            values *= self.factors
        load_p, load_q, sgen_p, storage_p = self.parts
        return values[load_p], values[load_q], values[sgen_p], values[storage_p]

    def date_of(self, step: int) -> datetime:
        """Return the date of row ``step``."""
        return self.first + timedelta(seconds=self.resolution * step)

    def step_of(self, date: datetime) -> int:
        """Return the row that ``date`` falls on.

        Raises :class:`ValueError` where it lies outside the table or between two rows.
        """
        step, rest = divmod((date.replace(tzinfo=None) - self.first).total_seconds(), self.resolution)
        if rest:
            raise ValueError(f"{date} is not a multiple of {self.resolution} s after {self.first}")
        if step < 0 or (self.steps is not None and step >= self.steps):
            last = self.date_of(self.steps - 1) if self.steps is not None else "ever after"
            raise ValueError(f"{date} is outside the profiles, which go from {self.first} to {last}")
        return int(step)

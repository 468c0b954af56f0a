"""Profiles: the powers of loads, generators and storages without agents, step by step.

The table of profiles (a few dozen columns) is stored, and elements are computed from it for one step
at a time; the matrix of all elements of a year would be ten times the size.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from palaestrai_mosaik.core.errors import SimulationError, did_you_mean
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.environment.batch import slices_of
from palaestrai_mosaik.types.arrays import FloatVector

#: the quantities of each step, in the order of :meth:`Profiles.at`
QUANTITIES = ("load_p", "load_q", "sgen_p", "storage_p", "gen_p")


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
        #: of all elements: the column of the table, negative for constant power, and the factor
        self.columns = np.concatenate([a.columns for a in self.assignments.values()])
        self.factors = np.concatenate([a.factors for a in self.assignments.values()])
        self._constant = self.columns < 0
        self._columns = np.where(self._constant, 0, self.columns)
        #: slice of each of :data:`QUANTITIES` in :attr:`columns` and :attr:`factors`
        self.parts = slices_of([a.columns.shape for a in self.assignments.values()])
        self._any_constant = bool(self._constant.any())

    def at(self, step: int) -> tuple[FloatVector, FloatVector, FloatVector, FloatVector, FloatVector]:
        """Return ``load_p, load_q, sgen_p, storage_p, gen_p`` of row ``step`` (new arrays).

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
        load_p, load_q, sgen_p, storage_p, gen_p = self.parts
        return values[load_p], values[load_q], values[sgen_p], values[storage_p], values[gen_p]

    def date_of(self, step: int) -> datetime:
        """Return the date of row ``step``."""
        return self.first + timedelta(seconds=self.resolution * step)

    def step_of(self, date: datetime) -> int:
        """Return the row of ``date``.

        Raises :class:`ValueError` if it lies outside the table or between two rows.
        """
        step, remainder = divmod((date.replace(tzinfo=None) - self.first).total_seconds(), self.resolution)
        if remainder:
            raise ValueError(f"{date} is not a multiple of {self.resolution} s after {self.first}")
        if step < 0 or (self.steps is not None and step >= self.steps):
            last = self.date_of(self.steps - 1) if self.steps is not None else "ever after"
            raise ValueError(f"{date} is outside the profiles, which go from {self.first} to {last}")
        return int(step)


#: row 0 of every SimBench profile
_SIMBENCH_FIRST = datetime(2016, 1, 1)
_GENERATORS = ("powerplants", "renewables")
#: quantity -> table and column of the net, tables of its profiles, suffix of their names
_FOLLOWED: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "load_p": ("load", "p_mw", ("load",), "_pload"),
    "load_q": ("load", "q_mvar", ("load",), "_qload"),
    "sgen_p": ("sgen", "p_mw", _GENERATORS, ""),
    "storage_p": ("storage", "p_mw", ("storage",), ""),
    "gen_p": ("gen", "p_mw", _GENERATORS, ""),
}
#: tables of net.profiles
_TABLES = ("load", *_GENERATORS, "storage")
#: tables of the net with a profile column; an external grid's is ignored, as in SimBench, since its power is a result
_FOLLOWERS = ("load", "sgen", "storage", "gen", "ext_grid")
#: largest number of problems in a message
_MOST_PROBLEMS = 5


def profiles_of(net: Any) -> Profiles:
    """Take SimBench-style profiles (``net.profiles`` and ``profile`` columns) out of ``net``.

    Both are removed from the net. The values are those of
    ``simbench.get_absolute_values``, times the element's ``scaling``. Elements without a profile
    keep their constant power. Raises :class:`~palaestrai_mosaik.core.errors.SimulationError` naming the
    profiles that cannot be applied.
    """
    tables = net.pop("profiles", None) or {}
    problems = _not_followed(net, tables)
    numbers: dict[tuple[str, str], int] = {}
    columns: list[npt.NDArray[np.float64]] = []

    def place_of(profile: str, kinds: tuple[str, ...], who: str) -> int:
        kind = next((kind for kind in kinds if profile in tables.get(kind, ())), None)
        if kind is None:
            allowed = [name for kind in kinds for name in tables.get(kind, ()) if name != "time"]
            text = (
                f"{who} follows the profile {profile!r}, but there is none{did_you_mean(profile, allowed)}; "
            )
            text += f"allowed are the columns of net.profiles' {' and '.join(kinds)}: "
            problems.append(text + (listed(allowed, _MOST_PROBLEMS) or "it has none"))
            return -1
        if (kind, profile) not in numbers:
            numbers[kind, profile] = len(columns)
            columns.append(tables[kind][profile].to_numpy(dtype=float))
        return numbers[kind, profile]

    assignments = {}
    for quantity, (element, column, kinds, suffix) in _FOLLOWED.items():
        table = net[element]
        profiles = table["profile"] if "profile" in table else [None] * len(table)
        places = [
            -1 if pd.isna(profile) else place_of(f"{profile}{suffix}", kinds, f"{element}-{index}.{column}")
            for index, profile in zip(table.index, profiles, strict=True)
        ]
        factors = (table[column] * table["scaling"]).to_numpy(dtype=float)
        assignments[quantity] = Assignment(np.array(places, dtype=np.int64), factors)
    if problems:
        more = len(problems) - _MOST_PROBLEMS
        text = "; ".join(problems[:_MOST_PROBLEMS]) + (f"; and {more} more" if more > 0 else "")
        raise SimulationError(f"the net's profiles cannot be applied: {text}")
    for element in _FOLLOWERS:
        net[element].drop(columns="profile", errors="ignore", inplace=True)
    table = np.stack(columns, axis=1) if columns else np.empty((0, 0))
    return Profiles(table, assignments, _SIMBENCH_FIRST)


def _not_followed(net: Any, tables: Any) -> list[str]:
    """Return the problems of profiles that no element can follow."""
    problems = [
        f"net.profiles has a table {name!r}{did_you_mean(str(name), _TABLES)}; allowed are {', '.join(_TABLES)}"
        for name, table in tables.items()
        if name not in _TABLES and len(table)
    ]
    for name, table in net.items():
        if name in _FOLLOWERS or not isinstance(table, pd.DataFrame) or "profile" not in table:
            continue
        problems += [
            f"{name}-{index} names the profile {profile!r}, but a {name} cannot follow one; "
            f"allowed are {', '.join(table for table in _FOLLOWERS if table != 'ext_grid')}"
            for index, profile in table["profile"].dropna().items()
        ]
    return problems

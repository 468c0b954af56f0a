"""Columns of a run over time: their owners, patterns, units and calendar."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.store import BodyChoice
from palaestrai_mosaik.store.query.trajectories import NUMBERS

from .colours import numbers_of_agents

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: units by the endings of names in power systems
UNITS = {
    "pu": "p.u.",
    "loading": "%",
    "percent": "%",
    "mw": "MW",
    "mvar": "Mvar",
    "mwh": "MWh",
    "kw": "kW",
    "kwh": "kWh",
    "kvar": "kvar",
    "mva": "MVA",
    "kva": "kVA",
    "hz": "Hz",
    "kv": "kV",
    "ka": "kA",
    "degree": "degree",
}
_KEYS = {
    *("phase", "agent", "environment", "worker", "episode", "step", "time", "state"),
    *("environment_episode", *NUMBERS),
}
#: prefixes of the uids of channels
PREFIXES = ("reading.", "setpoint.", "reward.")
# the index of a value in a vector
_INDEX = re.compile(r"\[[\d, ]*\]$")


@dataclass(frozen=True)
class Clock:
    """Turns ticks into dates."""

    start: np.datetime64
    seconds_per_tick: float

    def dates(self, ticks: Any) -> Any:
        """Return the dates of an array of ticks, to the millisecond (``datetime64[ms]``)."""
        return self.start + (ticks * (1000.0 * self.seconds_per_tick)).astype("timedelta64[ms]")


@dataclass(frozen=True)
class Moment:
    """An episode to plot over time; ``unfinished`` says how far it came, if the run failed or was interrupted in it."""

    phase: int
    phase_name: str
    worker: int
    episode: int
    evaluation: bool = False
    unfinished: str = ""

    def __str__(self) -> str:
        worker = f", worker {self.worker}" if self.worker else ""
        kind = "evaluation episode" if self.evaluation else "episode"
        ended = f" ({self.unfinished})" if self.unfinished else ""
        return f"phase {self.phase_name!r}, {kind} {self.episode}{worker}{ended}"

    @property
    def rows(self) -> dict[str, Any]:
        """The arguments of queries that select the rows of the episode."""
        return {"worker": self.worker, "episode": self.episode, "evaluation": self.evaluation}


@dataclass(frozen=True)
class RowSource:
    """A stream of rows and its columns.

    Attributes:
        owner: an agent or environment.
        read: queries rows.
        columns: the names of the columns.
        units: the units that sensors declare, by their uids.
        colour: the number of the agent's colour; ``None``: an environment.
    """

    owner: str
    read: Callable[..., pd.DataFrame]
    columns: tuple[str, ...]
    units: Mapping[str, str] = field(default_factory=dict)
    colour: int | None = None

    def unit(self, column: str) -> str | None:
        """Return the unit of a column: the one that its sensor declares, or else the one in its name."""
        name = bare(column)
        return self.units.get(name) or self.units.get(_INDEX.sub("", name)) or unit_of(column)


def sources_of(
    store: Store, run: str, phase: int, choice: BodyChoice, incarnation: int | None = None
) -> list[RowSource]:
    """Return the streams of rows of a phase: of its environments, unless an agent is selected, and of its agents.

    Args:
        store: the open store.
        run: the run, as :meth:`Store.find_run` takes it.
        phase: number of the phase.
        choice: the bodies to include.
        incarnation: number of an incarnation of batched environments; ``None``: all.

    Raises:
        StoreError: there is no such run, phase, agent, environment, body or incarnation.
    """
    sources = []
    units, colours = store.units(run, phase), numbers_of_agents(store, run)
    agents = list(dict.fromkeys(store.bodies(run, phase, choice.agent, **choice.filters)["agent"]))
    if choice.agent is None:
        for uid in store.environments(run, phase)["environment"]:
            if choice.environment in (None, uid):
                read = partial(
                    store.environment_states,
                    *(run, phase, str(uid)),
                    body=choice.body,
                    incarnation=incarnation,
                )
                sources.append(RowSource(str(uid), read, _columns(read), units))
    for name in agents:
        read = partial(store.steps, run, phase, str(name), **choice.filters)
        sources.append(RowSource(str(name), read, _columns(read), units, colours[str(name)]))
    return sources


def _columns(read: Callable[..., pd.DataFrame]) -> tuple[str, ...]:
    return tuple(name for name in map(str, read(stop=0)) if name not in _KEYS)


def unit_of(column: str) -> str | None:
    """Return the unit in a column's name (``...vm_pu-3``: p.u.), or ``None``."""
    for part in reversed(column.replace("-", ".").replace("[", ".").split(".")):
        unit = UNITS.get(part.rpartition("_")[2].lower())
        if unit is not None:
            return unit
    return None


def clock_of(store: Store, run: str, phase: int | str) -> Clock | None:
    """Return the calendar of the first environment of ``phase`` that has one.

    An environment has a calendar if it gives the date of tick 0 and the length of a tick, as
    ``seconds_per_tick`` in its ``world_model``: the store itself knows only ticks.
    """
    for row in store.environments(run, phase).itertuples(index=False):
        seconds = row.world_model.get("seconds_per_tick") if isinstance(row.world_model, dict) else None
        if row.start and seconds:
            start = datetime.fromisoformat(row.start).replace(tzinfo=None)
            return Clock(np.datetime64(start, "ms"), float(seconds))
    return None


def bare(column: str) -> str:
    """Return a column's name without the prefix for a reading, a set-point or a reward."""
    kind, dot, name = column.partition(".")
    return name if kind + dot in PREFIXES else column


def matching(columns: Sequence[str], pattern: str) -> set[str]:
    """Return the columns that match a pattern; a bare name selects readings, if any match."""
    # The brackets in 'vm_pu[3]' are literal, not a set of characters.
    literal = pattern.replace("[", "[[]")
    readings = {c for c in columns if c.startswith("reading.") and fnmatchcase(bare(c), literal)}
    return readings | {c for c in columns if fnmatchcase(c, literal)} or {
        c for c in columns if fnmatchcase(bare(c), literal)
    }


def nothing_matches(where: object, pattern: str, offered: Sequence[str]) -> StoreError:
    """Build the error for a pattern that matches none of the columns ``offered``."""
    listed = ", ".join(offered[:8]) + (f", ... ({len(offered)} in all)" if len(offered) > 8 else "")
    hint = did_you_mean(pattern, [*map(bare, offered), *offered])
    return StoreError(f"{where} has nothing that matches {pattern!r}{hint}; it has: {listed or 'nothing'}")

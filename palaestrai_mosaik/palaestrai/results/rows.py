"""The rows of palaestrAI's tables: their channels, episodes, workers, and the zone of their times.

palaestrAI counts episodes anew where a simulation begins again, and in some releases not at all. So
an episode ends where a row says that it is done, where its number changes, or where the simulated
time falls back, and is numbered here from 0, for each worker.

An instance, and the end of each phase, are dated in UTC (by the database, and since 3.5), rows by the clock
on the wall.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from palaestrai_mosaik.errors import SpaceError, StoreError
from palaestrai_mosaik.store.records import ChannelRecord
from palaestrai_mosaik.types import Space

from .jsonpickle import Information, as_float, as_int, mapping, numbers, plain

#: the mode of an evaluation
EVALUATE = "evaluate"
_EARLIEST, _LATEST = datetime.min + timedelta(days=2), datetime.max - timedelta(days=2)
#: whose channels: phase, what it is of, name of the agent or uid of the environment, kind
_Owner = tuple[int, str, str, str]


class NewChannel(Exception):
    """A row has a channel that none before had: the streams must be begun again, with a column for it."""


class Channels:
    """The channels of one kind that the rows of an agent or environment have; they grow."""

    def __init__(self) -> None:
        self._spaces: dict[str, tuple[str, int]] = {}
        self._places: dict[str, slice] = {}
        self._empty: list[float] = []

    def __len__(self) -> int:
        return len(self._spaces)

    def learn(self, found: Iterable[Information]) -> bool:
        """Know these channels; return whether any was new, or larger than before."""
        grown = False
        for one in found:
            known = self._spaces.get(one.uid)
            size = max(1, sum(1 for _ in numbers(one.value)))
            if known is None or size > known[1]:
                self._spaces[one.uid] = (_space_text(one.space), size)
                grown = True
        if grown:
            self._empty, self._places = [], {}
            for uid, (_, size) in self._spaces.items():
                self._places[uid] = slice(len(self._empty), len(self._empty) + size)
                self._empty += [math.nan] * size
        return grown

    def vector(self, found: Sequence[Information]) -> list[float]:
        """Return the numbers of all channels, NaN for those that are not among ``found``.

        Raises :class:`NewChannel` where these need more room; then they are known.
        """
        result = self._empty.copy()
        for one in found:
            place, value = self._places.get(one.uid), one.value
            if place is not None and type(value) in (int, float) and place.stop - place.start == 1:
                result[place.start] = value if type(value) is float else as_float(value)
                continue
            flat = list(numbers(value))
            if place is None or len(flat) > place.stop - place.start:
                self.learn(found)
                raise NewChannel
            result[place.start : place.start + len(flat)] = flat
        return result

    def records(self) -> list[ChannelRecord]:
        """Return the channels as the store keeps them."""
        return [ChannelRecord(uid, space, size) for uid, (space, size) in self._spaces.items()]

    def columns(self) -> list[str]:
        """Return one name for each number."""
        sizes = [(uid, size) for uid, (_, size) in self._spaces.items()]
        return [uid if size == 1 else f"{uid}[{i}]" for uid, size in sizes for i in range(size)]


class Layout:
    """What columns the streams of an instance have. It is kept where its recording begins again."""

    def __init__(self) -> None:
        self._channels: dict[_Owner, Channels] = {}
        #: agents (phase, name) that would have done something else than was done
        self.proposing: set[tuple[int, str]] = set()

    def channels(self, *owner: Any) -> Channels:
        """Return the channels of an owner: phase, ``agent`` or ``environment``, its name, the kind."""
        return self._channels.setdefault(owner, Channels())


class EpisodeNumbering:
    """Numbers the episodes of each stream of rows, and the steps in them."""

    def __init__(self) -> None:
        self._last: dict[Any, tuple[Any, int | None, bool]] = {}
        self._at: dict[Any, tuple[int, int]] = {}

    def place(self, whose: Any, episode: Any, tick: int | None, done: bool) -> tuple[int, int]:
        """Return the number of the episode, and how many rows of it came before."""
        last = self._last.get(whose)
        number, step = self._at.get(whose, (0, -1))
        if last is None:
            number, step = 0, 0
        elif last[2] or last[0] != episode or (tick is not None and last[1] is not None and tick < last[1]):
            number, step = number + 1, 0
        else:
            step += 1
        self._last[whose], self._at[whose] = (episode, tick, done), (number, step)
        return number, step


class Muscles:
    """Which worker a muscle is of: their order in the list that an agent has of them."""

    def __init__(self, rows: Sequence[Any], evaluates: Mapping[int, bool]):
        self._evaluation = {row.id: evaluates[row.experiment_run_phase_id] for row in rows}
        self._known: dict[bool, list[str]] = {False: [], True: []}
        for row in rows:
            muscles = plain(row.muscles)
            self._known[self._evaluation[row.id]] += muscles if isinstance(muscles, list) else []

    def worker(self, row: Any) -> tuple[int, bool]:
        """Return the number of the worker, and whether it evaluates."""
        evaluation = self._evaluation[row.agent_id] or getattr(row, "mode", None) == EVALUATE
        known, muscle = self._known[evaluation], row.rollout_worker_uid
        if muscle not in known:
            known.append(muscle)
        return known.index(muscle), evaluation


def workers_of(rows: Iterable[Any], evaluates: Mapping[int, bool]) -> dict[int, tuple[int, bool]]:
    """Return for each copy of an environment its worker, in the order in which they were made."""
    counts: Counter[bool] = Counter()
    found = {}
    for row in rows:
        evaluation = evaluates[row.experiment_run_phase_id]
        found[row.id] = (counts[evaluation], evaluation)
        counts[evaluation] += 1
    return found


def tick_of(simtimes: str | None) -> int | None:
    """Return the time of the environment that is the furthest; ``None`` where none tells one."""
    times = []
    for uid, one in mapping(simtimes, "the times of the environments").items():
        if not isinstance(one, dict):
            raise StoreError(f"the time of environment {uid!r} cannot be read: it is no mapping")
        if one.get("simtime_ticks") is not None:
            times.append(as_int(one["simtime_ticks"], f"the time of environment {uid!r}"))
    return max(times, default=None)


def moment(date: Any) -> datetime:
    """Return a date of a row with a zone; where it has none, UTC. Raises :class:`StoreError` for what is none."""
    # (a day at both ends is for zones)
    if not isinstance(date, datetime) or not _EARLIEST <= date.replace(tzinfo=None) <= _LATEST:
        raise StoreError(f"cannot read {date!r}: expected is a date")
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)


def ends_of(row: Any, done: bool) -> tuple[bool, bool]:
    """Return terminated and truncated; older rows know only that it is done."""
    terminated, truncated = getattr(row, "terminated", None), getattr(row, "truncated", None)
    if terminated is None and truncated is None:
        return done, False
    return bool(terminated), bool(truncated)


def _space_text(text: str) -> str:
    """Return a space's text as it is written here; what cannot be read stays."""
    try:
        return str(Space.from_string(text))
    except SpaceError:
        return text


#: zones differ by such steps
_STEP = timedelta(minutes=15)
#: the zones in use that are not whole hours from -12 to 14 (IANA Time Zone Database, 2025)
_BETWEEN = (-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75)
_ZONES = [timedelta(hours=hours) for hours in (*range(-12, 15), *_BETWEEN)]
#: a zone is taken from the end of a phase if it lies that near to one in use
_NEAR = timedelta(minutes=5)


def zone_of(started: datetime, first: datetime, ends: Sequence[tuple[datetime, datetime]]) -> timedelta:
    """Return by how much the dates of rows are before those of UTC.

    ``started``: when the instance was made, in UTC; ``first``: the date of its first row. ``ends``: for
    each phase that has ended, the date of its last row, and when palaestrAI says that it has ended, in
    UTC: they lie seconds apart. Where there is none of these, the zone is the one in use with the
    first row the nearest after the start. Then a run of which the first row came late may be
    taken for one of another zone.
    """
    # rows come before the end, so the least of these is the nearest
    if ends:
        apart = max(last - ended for last, ended in ends)
        zone = round(apart / _STEP) * _STEP
        if zone in _ZONES and abs(apart - zone) <= _NEAR:
            return zone
    # (by the clock of the database, the row may be a moment before the instance)
    before = [zone for zone in _ZONES if zone <= first - started + timedelta(minutes=1)]
    return max(before, default=_ZONES[0])

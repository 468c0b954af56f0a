"""Finding bodies: by agent, environment and number or label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.errors import StoreError, listed

from .lookup import unknown
from .members import Members

if TYPE_CHECKING:
    import pandas as pd

#: bodies: a number, a label, or several of both
Bodies = int | str | Sequence[int | str]

_MOST = 20


@dataclass(frozen=True, slots=True)
class BodyChoice:
    """Which bodies: all, those of an agent, in an environment, with a number or label (or several)."""

    agent: str | None = None
    environment: str | None = None
    body: Bodies | None = None

    @property
    def around(self) -> dict[str, Any]:
        """Environment and bodies, as arguments of the queries."""
        return {"environment": self.environment, "body": self.body}

    def __bool__(self) -> bool:
        """Whether some of an agent's bodies are picked."""
        return self.environment is not None or self.body is not None


@dataclass(frozen=True, slots=True)
class BodyGroup:
    """Alike bodies of an agent in a phase; ``numbers`` are those that are meant.

    ``places`` gives for each environment around them the number of its incarnation in which
    the first body sits, and whether the others sit in those that follow it. ``several``: the
    agent has more than one body.
    """

    phase: int
    agent: str
    group: int
    name: str | None
    environment: str | None
    numbers: range | tuple[int, ...]
    whole: range
    places: dict[str, tuple[int, bool]]
    several: bool

    def incarnations(self, environment: str) -> set[int]:
        """Return in which incarnations of ``environment`` the bodies sit."""
        if environment not in self.places:
            return set()
        first, following = self.places[environment]
        return {first + (number - self.whole.start if following else 0) for number in self.numbers}


class Coordinates(Members):
    """Finds bodies. Unknown names raise :class:`StoreError`."""

    def bodies(
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        environment: str | None = None,
        body: Bodies | None = None,
    ) -> pd.DataFrame:
        """Return one row per phase and group of alike bodies of an agent: of those that are meant.

        Columns: ``phase``, ``agent``, ``group``, ``name`` (a label, or ``None``), ``first`` and
        ``count`` (the bodies are ``first`` up to ``first + count - 1``), ``environment`` (``None``:
        a body that spans several), ``number`` (of the first body in names of channels, and of its
        incarnation in a batched environment), ``muscle``, ``objective``, ``proposed`` (whether what
        the agent would have done is recorded), ``sensors``, ``actuators``, ``rewards`` (lists of
        uids; in those of several bodies, ``{body}`` stands for the number).
        """
        rows = self._bodies(run, phase, agent)
        meant = {(g.phase, g.agent, g.group) for g in self._groups(run, phase, agent, environment, body)}
        keys = rows[["phase", "agent", "group"]].itertuples(index=False, name=None)
        return rows[np.array([key in meant for key in keys], dtype=bool)].reset_index(drop=True)

    def _groups(
        self,
        run: str,
        phase: int | str | None,
        agent: str | None = None,
        environment: str | None = None,
        body: Bodies | None = None,
    ) -> list[BodyGroup]:
        """Return the groups of bodies that are meant, in order of phase, agent and group."""
        self._check_member(run, phase, "agent", agent)
        self._check_member(run, phase, "environment", environment)
        found = self._all_groups(run, phase, agent)
        place = f"run {run!r}" if phase is None else f"phase {phase!r} of run {run!r}"
        whose = place if agent is None else f"agent {agent!r} in {place}"
        if environment is not None:
            around = [name for one in found for name in one.places]
            found = [one for one in found if environment in one.places]
            if not found and agent is not None:
                there = listed(sorted(set(around)), _MOST)
                raise StoreError(
                    f"{whose} has no body in {environment!r}; it has bodies in: {there or 'none'}"
                )
        return found if body is None else _with_bodies(found, body, whose)

    def _all_groups(self, run: str, phase: int | str | None, agent: str | None) -> list[BodyGroup]:
        rows = self._bodies(run, phase, agent)
        if rows.empty:
            return []
        environments = self.environments(run, phase)
        known = environments.set_index(["phase", "environment"])["incarnations"].to_dict()
        offered: dict[int, dict[str, str]] = {}
        spanning = rows["environment"].isna()
        if spanning.any():
            channels = self.channels(run, phase)
            channels = channels[
                channels["environment"].notna() & channels["kind"].isin(["sensor", "actuator"])
            ]
            for number, uid, owner in channels[["phase", "uid", "environment"]].itertuples(index=False):
                offered.setdefault(number, {})[uid] = owner
        counts = rows.groupby(["phase", "agent"])["count"].sum().to_dict()
        result = []
        row: Any
        for row in rows.itertuples(index=False):
            if row.environment is not None:
                batched = int(known.get((row.phase, row.environment), 1)) > 1
                places = {row.environment: (int(row.number) if batched else 0, batched)}
            else:
                owners = offered.get(row.phase, {})
                uids = [*row.sensors, *row.actuators]
                places = dict.fromkeys((owners[uid] for uid in uids if uid in owners), (0, False))
            whole = range(int(row.first), int(row.first) + int(row.count))
            several = int(counts[row.phase, row.agent]) > 1
            result.append(
                BodyGroup(
                    *(int(row.phase), str(row.agent), int(row.group), row.name, row.environment),
                    *(whole, whole, places, several),
                )
            )
        return result


def numbers_of(wanted: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Return the numbers that are ``wanted``, of 0 up to ``count``; ``what`` names them in errors."""
    try:
        found = tuple(map(index, wanted if isinstance(wanted, Iterable) else [wanted]))
    except TypeError:
        raise StoreError(f"{what} {wanted!r}: expected is a number, or several") from None
    for number in found:
        if not 0 <= number < count:
            raise StoreError(f"there is no {what} {number}: they are 0 to {count - 1}")
    return found


def _with_bodies(groups: Sequence[BodyGroup], body: Bodies, whose: str) -> list[BodyGroup]:
    wanted = [body] if isinstance(body, str) or not isinstance(body, Iterable) else list(body)
    chosen: dict[int, set[int]] = {}
    for one in wanted:
        try:
            number = None if isinstance(one, str) else index(one)
        except TypeError:
            raise StoreError(f"body {one!r}: expected is a number or a label, or a list of them") from None
        known = False
        for i, group in enumerate(groups):
            meant = group.whole if number is None else (number,)
            if group.name == one if number is None else number in group.whole:
                chosen.setdefault(i, set()).update(meant)
                known = True
        if not known:
            raise _no_body(groups, one, whose)
    return [
        groups[i]
        if len(numbers) == len(groups[i].whole)
        else replace(groups[i], numbers=tuple(sorted(numbers)))
        for i, numbers in sorted(chosen.items())
    ]


def _no_body(groups: Sequence[BodyGroup], wanted: int | str, whose: str) -> StoreError:
    labels = sorted({group.name for group in groups if group.name is not None})
    if isinstance(wanted, str):
        if not labels:
            return StoreError(f"{whose} has no body {wanted!r}: its bodies have numbers, but no labels")
        return unknown("body", wanted, labels, whose)
    ranges = sorted({(g.whole.start, g.whole.stop - 1) for g in groups})
    known = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in ranges[:_MOST])
    return StoreError(f"{whose} has no body {wanted}; it has: {known or 'none'}")

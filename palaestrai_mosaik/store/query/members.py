"""Queries of the members of a phase: environments, agents, channels, bodies, and the topologies and worlds that runs share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from sqlalchemy import Select, select

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.core.printing import joined, listed
from palaestrai_mosaik.experiment.model import BODY_NUMBER
from palaestrai_mosaik.types import Topology

from ..database import reads
from ..models import Agent, Body, Channel, Description, Environment, Phase
from .lookup import Lookup, Table, scope_of, unknown

if TYPE_CHECKING:
    import pandas as pd


class DescriptionQueries(Lookup):
    """Queries of topologies and worlds. Unknown names raise :class:`StoreError`."""

    def topology(self, run: str, environment: str, phase: int | str | None = None) -> Topology | None:
        """Return how the parts of an environment are connected, or ``None`` if it has no topology.

        The uids of sensors and actuators are those of the columns of :meth:`environment_states`, without
        ``reading.``. Those of a batched environment have ``{body}`` for the number of an incarnation.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            environment: uid of an environment.
            phase: number or name of a phase; ``None``: the newest one that has a topology of it.

        Raises:
            StoreError: there is no such run, phase or environment.
        """
        self._check_member(run, phase, "environment", environment)
        content = self._topology(run, environment, phase)
        return None if content is None else Topology.from_data(content)

    @reads
    def _topology(self, run: str, environment: str, phase: int | str | None) -> Any:
        statement = select(Description.content).join(Environment, Environment.topology_id == Description.id)
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            ids = self._phase_ids(session, instance, run, phase)
            statement = statement.where(Environment.uid == environment, Environment.phase_id.in_(ids))
            newest = statement.join(Phase, Phase.id == Environment.phase_id).order_by(Phase.number.desc())
            return session.scalar(newest.limit(1))

    @reads
    def world(self, run: str, phase: int | str | None = None) -> dict[str, Any] | None:
        """Return the world that a phase built for its first episode, or ``None`` if it is unknown.

        It has ``title``, ``simulators`` (each with ``simulator``, its id, ``what`` and ``entities``: ``entity``,
        ``model``, ``count``) and ``connections`` (``source`` and ``target``, each with ``simulator`` and
        ``entity``; ``data``, ``time_shifted``, ``values``), like the output of ``palaestrai-mosaik graph --json``. A
        large world is ``summarised``: an entity can then stand for ``count`` of them, and a connection for all
        between two entities. ``left_out`` has the numbers of simulators and connections that are omitted nevertheless.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: the newest one whose world is known.

        Raises:
            StoreError: there is no such run or phase.
        """
        statement = select(Description.content).join(Phase, Phase.world_id == Description.id)
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            ids = self._phase_ids(session, instance, run, phase)
            newest = statement.where(Phase.id.in_(ids)).order_by(Phase.number.desc())
            world: dict[str, Any] | None = session.scalar(newest.limit(1))
            return world

    @reads
    def _described(self, run: str) -> dict[str, list[dict[str, Any]]]:
        """Return all topologies and worlds of a run as plain data, under ``topologies`` and ``worlds``; each names its phase."""
        with self.database.reading() as session:
            instance, _ = self._find(session, run)
            of_run = Phase.instance_id == instance
            topologies = select(Phase.number, Environment.uid, Description.content).where(of_run)
            topologies = topologies.join(Environment, Environment.phase_id == Phase.id)
            topologies = topologies.join(Description, Description.id == Environment.topology_id)
            worlds = select(Phase.number, Description.content).where(of_run)
            worlds = worlds.join(Description, Description.id == Phase.world_id)
            queries = {
                "topologies": (("phase", "environment", "topology"), topologies),
                "worlds": (("phase", "world"), worlds),
            }
            return {
                title: [
                    dict(zip(names, row, strict=True))
                    for row in session.execute(statement.order_by(Phase.number, Description.id))
                ]
                for title, (names, statement) in queries.items()
            }


#: bodies: a number, a label, or several of both
Bodies = int | str | Sequence[int | str]

_MOST = 20


@dataclass(frozen=True, slots=True)
class BodyChoice:
    """A selection of bodies: all, those of an agent, in an environment, with a number or label (or several)."""

    agent: str | None = None
    environment: str | None = None
    body: Bodies | None = None

    @property
    def filters(self) -> dict[str, Any]:
        """Environment and bodies as arguments of queries."""
        return {"environment": self.environment, "body": self.body}

    def __bool__(self) -> bool:
        """Whether only some of an agent's bodies are selected."""
        return self.environment is not None or self.body is not None


@dataclass(frozen=True, slots=True)
class BodyGroup:
    """A group of identical bodies of an agent in a phase; ``numbers`` are the selected ones.

    ``environments`` maps each environment of the group to the incarnations of the bodies of
    ``whole``, in order; a single body may have several. ``several``: the agent
    has more than one body.
    """

    phase: int
    agent: str
    group: int
    name: str | None
    environment: str | None
    numbers: range | tuple[int, ...]
    whole: range
    environments: dict[str, Sequence[int]]
    several: bool

    @property
    def key(self) -> tuple[int, str, int]:
        return self.phase, self.agent, self.group

    @property
    def selected(self) -> Sequence[int] | None:
        """The numbers of the selected bodies; ``None``: all."""
        return None if self.numbers == self.whole else self.numbers

    def incarnations_of(self, environment: str, number: int) -> Sequence[int]:
        """Return the incarnations of ``environment`` in which the body with this number is."""
        incarnations = self.environments.get(environment, ())
        index = number - self.whole.start
        return incarnations if len(self.whole) == 1 else incarnations[index : index + 1]

    def incarnations(self, environment: str) -> set[int]:
        """Return the incarnations of ``environment`` in which the selected bodies are."""
        return {
            incarnation
            for number in self.numbers
            for incarnation in self.incarnations_of(environment, number)
        }


_ENVIRONMENTS = Table(
    {
        "phase": Phase.number,
        "environment": Environment.uid,
        "name": Environment.name,
        "params": Environment.params,
        "world_model": Environment.world_model,
        "start": Environment.start,
        "step_size": Environment.step_size,
        "incarnations": Environment.incarnations,
        "rewards_accumulate": Environment.rewards_accumulate,
    },
    lambda statement: statement.join(Environment),
    [Environment.id],
)
_AGENTS = Table(
    {
        "phase": Phase.number,
        "agent": Agent.name,
        "brain": Agent.brain,
        "muscle": Agent.muscle,
        "objective": Agent.objective,
    },
    lambda statement: statement.join(Agent),
    [Agent.id],
)
_BODIES = Table(
    {
        "phase": Phase.number,
        "agent": Agent.name,
        "group": Body.body_group,
        "name": Body.name,
        "first": Body.first,
        "count": Body.count,
        "environment": Body.environment,
        "number": Body.number,
        "incarnations": Body.incarnations,
        "muscle": Body.muscle,
        "objective": Body.objective,
        "proposed": Body.proposed,
    },
    lambda statement: statement.join(Body, Body.phase_id == Phase.id).join(Agent, Agent.id == Body.agent_id),
    [Agent.id, Body.body_group],
)


def _with_channels(statement: Select[Any]) -> Select[Any]:
    statement = statement.join(Channel, Channel.phase_id == Phase.id)
    return statement.outerjoin(Agent, Agent.id == Channel.agent_id)


_CHANNELS = Table(
    {
        "phase": Phase.number,
        "environment": Environment.uid,
        "agent": Agent.name,
        "group": Channel.body_group,
        "kind": Channel.kind,
        "position": Channel.position,
        "uid": Channel.uid,
        "space": Channel.space,
        "size": Channel.size,
        "unit": Channel.unit,
    },
    lambda statement: _with_channels(statement).outerjoin(
        Environment, Environment.id == Channel.environment_id
    ),
    [Channel.id],
    large=True,
)
#: the channels of agents, which are far fewer than those of environments
_CHANNELS_OF_AGENTS = Table(
    {
        "phase": Phase.number,
        "agent": Agent.name,
        "group": Channel.body_group,
        "kind": Channel.kind,
        "uid": Channel.uid,
    },
    lambda statement: _with_channels(statement).where(Channel.agent_id.is_not(None)),
    [Channel.id],
    large=True,
)
#: the sensors that declare a unit
_UNITS = Table(
    {"phase": Phase.number, "uid": Channel.uid, "unit": Channel.unit},
    lambda statement: statement.join(Channel, Channel.phase_id == Phase.id).where(Channel.unit.is_not(None)),
    [Channel.id],
)


class Members(Lookup):
    """Queries of environments, agents, channels and bodies. Unknown names raise :class:`StoreError`."""

    def environments(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return one row per phase and environment.

        Columns: ``phase``, ``environment`` (uid), ``name``, ``params``, ``world_model``, ``start`` (ISO date
        of tick 0), ``step_size`` (ticks), ``incarnations`` (of a batched environment, else 1),
        ``rewards_accumulate`` (whether the sum of an episode's rewards is what counts).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
        """
        return self._table(run, _ENVIRONMENTS, phase)

    def agents(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return one row per phase and agent.

        Columns: ``phase``, ``agent`` (name), ``brain``, ``muscle``, ``objective`` (class names), ``sensors``,
        ``actuators``, ``rewards`` (lists of uids, those of all bodies).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
        """
        return self._with_channels(self._table(run, _AGENTS, phase), run, phase, ["phase", "agent"])

    def agent_names(self, run: str) -> list[str]:
        """Return the names of a run's agents, in the order in which its phases name them.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.

        Raises:
            StoreError: there is no such run.
        """
        return list(dict.fromkeys(self._table(run, _AGENTS)["agent"]))

    def units(self, run: str, phase: int | str | None = None) -> dict[str, str]:
        """Return the units that sensors declare, by the uids of the sensors.

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.

        Raises:
            StoreError: there is no such run or phase.
        """
        rows = self._table(run, _UNITS, phase)
        return {uid: str(unit) for uid, unit in zip(rows["uid"], rows["unit"], strict=True)}

    def channels(self, run: str, phase: int | str | None = None) -> pd.DataFrame:
        """Return one row per sensor, actuator and reward of every environment and agent.

        Columns: ``phase``, ``environment``, ``agent`` (one of the two is the owner), ``group`` (of the
        agent's bodies, else 0), ``kind`` (``sensor``, ``actuator``, ``reward``), ``position``, ``uid``,
        ``space`` (its text), ``size`` (floats), ``unit`` (that a sensor declares, else ``None``).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
        """
        return self._table(run, _CHANNELS, phase)

    def bodies(
        self,
        run: str,
        phase: int | str | None = None,
        agent: str | None = None,
        environment: str | None = None,
        body: Bodies | None = None,
    ) -> pd.DataFrame:
        """Return one row per phase and selected group of identical bodies of an agent.

        Columns: ``phase``, ``agent``, ``group``, ``name`` (a label, or ``None``), ``first`` and ``count``
        (the bodies are ``first`` up to ``first + count - 1``), ``environment`` (``None``: a body that spans
        several), ``number`` (of the first body in names of channels), ``incarnations`` (list: the incarnation of a
        batched environment for each body, in order; a single body may have several; empty
        if it is not batched or spans several), ``muscle``, ``objective``, ``proposed`` (whether the set-points that the
        agent would have chosen are recorded), ``sensors``, ``actuators``, ``rewards`` (lists of uids; in those
        of several bodies, ``{body}`` stands for the number).

        Args:
            run: the run, in any form that :meth:`find_run` accepts.
            phase: number or name of a phase; ``None``: all.
            agent: name of an agent; ``None``: all.
            environment: uid of an environment: only the groups with bodies in it; ``None``: all.
            body: number or label of a body, or a list of them: only the groups that have them; ``None``: all.

        Raises:
            StoreError: there is no such run, phase, agent, environment or body.
        """
        rows = self._bodies(run, phase)
        rows["incarnations"] = self._incarnations(run, phase, rows)
        chosen = {group.key for group in self._body_groups(run, phase, agent, environment, body)}
        keys = rows[["phase", "agent", "group"]].itertuples(index=False, name=None)
        return rows[np.array([key in chosen for key in keys], dtype=bool)].reset_index(drop=True)

    def _body_groups(
        self,
        run: str,
        phase: int | str | None,
        agent: str | None = None,
        environment: str | None = None,
        body: Bodies | None = None,
    ) -> list[BodyGroup]:
        """Return the selected groups of bodies, in order of phase, agent and group."""
        self._check_member(run, phase, "agent", agent)
        self._check_member(run, phase, "environment", environment)
        groups = [group for group in self._all_groups(run, phase) if agent in (None, group.agent)]
        scope = scope_of(run, phase)
        owner = scope if agent is None else f"agent {agent!r} in {scope}"
        if environment is not None:
            uids = sorted({uid for group in groups for uid in group.environments})
            groups = [group for group in groups if environment in group.environments]
            if not groups and agent is not None:
                raise StoreError(
                    f"{owner} has no body in {environment!r}; it has bodies in: {listed(uids, _MOST) or 'none'}"
                )
        return groups if body is None else _with_bodies(groups, body, owner)

    def _all_groups(self, run: str, phase: int | str | None) -> list[BodyGroup]:
        whole = (self._remembered or {}).get(("groups", run, None))
        if isinstance(phase, int) and whole is not None:
            return [group for group in whole if group.phase == phase]
        return self._once(("groups", run, phase), lambda: self._read_groups(run, phase))

    def _read_groups(self, run: str, phase: int | str | None) -> list[BodyGroup]:
        rows = self._bodies(run, phase)
        if rows.empty:
            return []
        placed = self._incarnations(run, phase, rows)
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
        for row, incarnations in zip(rows.itertuples(index=False), placed, strict=True):
            whole = range(int(row.first), int(row.first) + int(row.count))
            environments: dict[str, Sequence[int]]
            if row.environment is not None:
                environments = {row.environment: incarnations or (0,) * len(whole)}
            else:
                environments = _around([*row.sensors, *row.actuators], offered.get(row.phase, {}))
            several = int(counts[row.phase, row.agent]) > 1
            result.append(
                BodyGroup(
                    *(int(row.phase), str(row.agent), int(row.group), row.name, row.environment),
                    *(whole, whole, environments, several),
                )
            )
        return result

    def _incarnations(self, run: str, phase: int | str | None, rows: pd.DataFrame) -> pd.Series:
        """List for each group of bodies the incarnations of its batched environment, in order."""
        import pandas as pd

        environments = self.environments(run, phase)
        counts = environments.set_index(["phase", "environment"])["incarnations"].to_dict()
        lists: list[list[int]] = []
        row: Any
        for row in rows.itertuples(index=False):
            numbers = row.incarnations
            if numbers is None and counts.get((row.phase, row.environment), 1) > 1:
                numbers = range(int(row.number), int(row.number) + int(row.count))
            lists.append([] if numbers is None else list(numbers))
        return pd.Series(lists, dtype=object)

    def _bodies(self, run: str, phase: int | str | None) -> pd.DataFrame:
        rows = self._table(run, _BODIES, phase)
        return self._with_channels(rows, run, phase, ["phase", "agent", "group"])

    def _with_channels(
        self, owners: pd.DataFrame, run: str, phase: int | str | None, keys: list[str]
    ) -> pd.DataFrame:
        """Add the uids of the channels of each owner, which is identified by ``keys``."""
        import pandas as pd

        channels = self._table(run, _CHANNELS_OF_AGENTS, phase)
        channels = channels.drop_duplicates([*keys, "kind", "uid"])
        owned = channels.groupby([*keys, "kind"])["uid"].agg(list)
        for kind in ("sensor", "actuator", "reward"):
            lists = [owned.get((*key, kind), []) for key in owners[keys].itertuples(index=False)]
            owners[f"{kind}s"] = pd.Series(lists, dtype=object)
        return owners


def _around(uids: Iterable[str], offered: Mapping[str, str]) -> dict[str, Sequence[int]]:
    """Find the environments and incarnations that offer the channels of a body that spans several.

    ``offered``: the environment of each channel, with ``{body}`` for the number of an incarnation.
    """
    incarnations: dict[str, set[int]] = {}
    batched = {owner for uid, owner in offered.items() if uid.startswith(f"{owner}.{BODY_NUMBER}.")}
    for uid in uids:
        if uid in offered:
            incarnations.setdefault(offered[uid], set()).add(0)
            continue
        for owner in batched:
            number, _, name = uid.removeprefix(f"{owner}.").partition(".")
            if number.isdecimal() and offered.get(f"{owner}.{BODY_NUMBER}.{name}") == owner:
                incarnations.setdefault(owner, set()).add(int(number))
    return {owner: sorted(numbers) for owner, numbers in incarnations.items()}


def is_one(wanted: Any) -> bool:
    """Whether this is a single number or label, not several."""
    return isinstance(wanted, str) or not isinstance(wanted, Iterable) or getattr(wanted, "ndim", 1) == 0


def _each(selection: Any, what: str) -> list[Any]:
    """List the selected items; ``what`` names them in errors."""
    items = [selection] if is_one(selection) else list(selection)
    if not items:
        raise StoreError(f"no {what} is named: expected is at least one, or None for all")
    return items


def _number(value: Any) -> int | None:
    """Convert to an integer, or ``None`` if it is none; ``True`` and ``False`` are none."""
    try:
        return None if isinstance(value, bool) else index(value)
    except TypeError:
        return None


def numbers_of(wanted: int | Sequence[int], count: int, what: str) -> tuple[int, ...]:
    """Check and list the selected numbers.

    Args:
        wanted: a number, or several.
        count: numbers must be from 0 up to ``count - 1``.
        what: names them in errors.

    Raises:
        StoreError: there is no such number, or none is selected.
    """
    numbers = []
    for item in _each(wanted, what):
        number = _number(item)
        if number is None:
            raise StoreError(f"{what} {wanted!r}: expected is a number, or several")
        if not 0 <= number < count:
            raise StoreError(f"there is no {what} {number}: they are 0 to {count - 1}")
        numbers.append(number)
    return tuple(numbers)


def _with_bodies(groups: Sequence[BodyGroup], body: Bodies, owner: str) -> list[BodyGroup]:
    chosen: list[set[int]] = [set() for _ in groups]
    for item in _each(body, "body"):
        number = None if isinstance(item, str) else _number(item)
        if number is None and not isinstance(item, str):
            raise StoreError(f"body {item!r}: expected is a number or a label, or a list of them")
        exists = False
        for group, numbers in zip(groups, chosen, strict=True):
            if group.name == item if number is None else number in group.whole:
                numbers.update(group.whole if number is None else (number,))
                exists = True
        if not exists:
            raise _no_body(groups, item if number is None else number, owner)
    return [
        group if len(numbers) == len(group.whole) else replace(group, numbers=tuple(sorted(numbers)))
        for group, numbers in zip(groups, chosen, strict=True)
        if numbers
    ]


def _no_body(groups: Sequence[BodyGroup], item: int | str, owner: str) -> StoreError:
    labels = sorted({group.name for group in groups if group.name is not None})
    if isinstance(item, str):
        if not labels:
            return StoreError(f"{owner} has no body {item!r}: its bodies have numbers, but no labels")
        return unknown("body", item, labels, owner)
    numbers: dict[str, set[int]] = {}
    for group in groups:
        numbers.setdefault(group.agent, set()).update(group.whole)
    ranges = [
        (f"{agent} " if len(numbers) > 1 else "") + _ranges(sorted(agent_numbers))
        for agent, agent_numbers in numbers.items()
    ]
    return StoreError(f"{owner} has no body {item}; it has: {listed(ranges, _MOST) or 'none'}")


def _ranges(numbers: Sequence[int]) -> str:
    starts = [n for i, n in enumerate(numbers) if i == 0 or numbers[i - 1] != n - 1]
    ends = [n for i, n in enumerate(numbers) if i + 1 == len(numbers) or numbers[i + 1] != n + 1]
    parts = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return joined(parts)

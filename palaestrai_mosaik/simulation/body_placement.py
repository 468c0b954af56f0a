"""Places the bodies of an agent in the environments of a world."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from palaestrai_mosaik.agent.muscle import BatchMuscle, BatchObjective
from palaestrai_mosaik.core.errors import did_you_mean
from palaestrai_mosaik.core.printing import counted_by_pattern, listed
from palaestrai_mosaik.experiment import resolve
from palaestrai_mosaik.experiment.model import BODY_NUMBER, AgentSpec, BodySpec

from .batch_body import BatchChannels
from .body import BodyIdentity
from .connections import Channels
from .environment_handle import BatchHandle, EnvironmentHandle, is_pattern, match_all, means_all

#: names of sensors, and of actuators
Names = tuple[tuple[str, ...], tuple[str, ...]]
#: a problem's message and its path relative to the agent's entry
Fault = tuple[str, tuple[str | int, ...]]


@dataclass(frozen=True)
class BodyGroup:
    """Identical bodies of an agent: one entry of ``bodies``, or the only body of an agent without ``bodies``.

    ``first`` is the number of the first of them among all bodies of the agent. ``batch`` is set
    if all of them sit in a batched environment, each in the incarnation with its
    number in this entry; ``local`` are then its channels' names within an incarnation.
    """

    agent: str
    spec: BodySpec
    index: int
    first: int
    #: whether the agent has ``bodies`` in the document
    numbered: bool
    handles: Sequence[EnvironmentHandle]
    batch: BatchHandle | None
    local: Names
    #: full ids for each body, without a ``batch``
    ids: Sequence[Names] = ()

    @property
    def count(self) -> int:
        """The number of bodies."""
        return self.spec.count

    @property
    def incarnations(self) -> range:
        """The incarnations of the bodies."""
        return range(self.spec.first, self.spec.first + self.spec.count)

    def names(self, index: int = 0) -> Names:
        """Return the full ids of the sensors and the actuators of the body at index ``index``."""
        if self.batch is None:
            return self.ids[index]
        start = f"{self.batch.uid}.{self.spec.first + index}."
        sensors, actuators = (tuple(start + name for name in names) for names in self.local)
        return sensors, actuators

    def channels(self, index: int = 0) -> Channels:
        """Return the channels of a body."""
        return Channels(self.handles, *self.names(index))

    @property
    def at_once(self) -> bool:
        """Whether one object serves all these bodies with arrays: muscle and objective support it."""
        spec = self.spec
        if self.batch is None or spec.filters:
            return False
        objective = spec.objective
        serves_all = objective is None or issubclass(resolve(objective.name, "objective"), BatchObjective)
        return serves_all and issubclass(resolve(spec.muscle.name, "muscle"), BatchMuscle)

    def batch_channels(self) -> BatchChannels:
        """Return the channels of bodies that one object serves."""
        assert self.batch is not None
        return BatchChannels(self.batch, self.incarnations, *self.local)

    def identity(self, index: int = 0) -> BodyIdentity:
        """Return the identity of the body at index ``index``."""
        number = self.first + index if self.numbered else None
        return BodyIdentity(self.agent, number, self.index, self.reward_names)

    @cached_property
    def environments(self) -> list[str]:
        """The uids of the environments that a body is in: one, if the agent has ``bodies``."""
        return list(dict.fromkeys(handle.root.uid for handle in self.channels().handles))

    @cached_property
    def reward_names(self) -> list[str]:
        """The names of a body's rewards, in the form shared by the group."""
        rewards = self.channels().rewards
        # a single environment has the same rewards for all bodies
        return rewards if self.batch is None else self.common(rewards)

    def common(self, names: Sequence[str], patterns: Sequence[str] = ()) -> list[str]:
        """Convert ``names`` of the first body to the form shared by the group.

        If one of the ``patterns`` has the placeholder, it replaces the number again.
        """
        if self.batch is not None:
            start = len(f"{self.batch.uid}.{self.spec.first}.")
            return [f"{self.batch.uid}.{BODY_NUMBER}.{name[start:]}" for name in names]
        shapes = [_shape(pattern, self.spec.first) for pattern in patterns if self.numbered]
        return [_with_placeholder(name, list(filter(None, shapes))) for name in names]


def _with_placeholder(name: str, shapes: Sequence[re.Pattern[str]]) -> str:
    """Replace the number in ``name`` at the groups of the first of ``shapes`` that matches."""
    match = next(filter(None, (shape.fullmatch(name) for shape in shapes)), None)
    if match is not None:
        for group in range(match.re.groups, 0, -1):
            name = name[: match.start(group)] + BODY_NUMBER + name[match.end(group) :]
    return name


def _shape(pattern: str, number: int) -> re.Pattern[str] | None:
    """Compile a regex that finds ``number`` at the placeholders of ``pattern``; ``None`` without placeholders."""
    parts = pattern.split(BODY_NUMBER)
    if len(parts) == 1:
        return None
    if any(part.count("[") != part.count("]") for part in parts):
        return None  # a number among other characters in brackets
    # strip the anchors of a whole name
    translated = [re.sub(r"\A\(\?s:(.*)\)\\[zZ]\Z", r"\1", fnmatch.translate(part)) for part in parts]
    return re.compile(f"({re.escape(str(number))})".join(translated), re.DOTALL)


def place_bodies(
    agent: AgentSpec, handles: Sequence[EnvironmentHandle], *, complete: bool = True
) -> tuple[list[BodyGroup], list[Fault]]:
    """Return the bodies of ``agent``, group by group, and the problems.

    Args:
        agent: the agent.
        handles: the environments of its phase.
        complete: whether ``handles`` are all of them; if not, channels of other environments are ignored.
    """
    groups: list[BodyGroup] = []
    faults: list[Fault] = []
    specs = agent.bodies or (
        BodySpec(agent.muscle, agent.objective, agent.sensors, agent.actuators, agent.filters),
    )
    first = 0
    for i, spec in enumerate(specs):
        numbered = bool(agent.bodies)
        path: tuple[str | int, ...] = ("bodies", i) if numbered else ()
        group = _Placing(agent.name, handles, spec, path, faults, complete).group(i, first, numbered)
        if group is not None:
            groups.append(group)
        first += spec.count
    return groups, faults


@dataclass
class _Placing:
    """Places the bodies of one entry at ``path`` of the agent's; adds problems to ``faults``."""

    agent: str
    handles: Sequence[EnvironmentHandle]
    spec: BodySpec
    path: tuple[str | int, ...]
    faults: list[Fault]
    complete: bool

    def group(self, index: int, first: int, numbered: bool) -> BodyGroup | None:
        """Return the group, or ``None`` if it has a problem."""
        patterns, before = self._patterns(), len(self.faults)
        batch = self._batch(patterns) if numbered else None
        local: Names = ((), ()) if batch is None else self._local(batch, patterns)
        ids = self._ids(patterns, numbered) if batch is None else []
        if len(self.faults) > before:
            return None
        return BodyGroup(self.agent, self.spec, index, first, numbered, self.handles, batch, local, ids)

    def _ids(self, patterns: dict[str, Sequence[str]], numbered: bool) -> list[Names]:
        """Return the full ids for each body, up to the first one with a problem."""
        spec, before = self.spec, len(self.faults)
        # bodies without a number in their channels share them
        alike = not any(BODY_NUMBER in pattern for names in patterns.values() for pattern in names)
        ids: list[Names] = []
        for number in range(spec.first, spec.first + (1 if alike else spec.count)):
            ids.append(self._resolved(patterns, number, self.handles))
            if numbered:
                self._check_environments(ids[-1], number)
            if len(self.faults) > before:
                break
        return ids * spec.count if alike else ids

    def _patterns(self) -> dict[str, Sequence[str]]:
        spec = self.spec
        if not spec.sensors and not spec.actuators and spec.environment is not None:
            for handle in self.handles:
                if handle.uid == spec.environment:
                    if isinstance(handle, BatchHandle):
                        everything = (f"{handle.uid}.{BODY_NUMBER}.*",)
                        return {"sensors": everything, "actuators": everything}
                    return {"sensors": handle.sensors.uids, "actuators": handle.actuators.uids}
        return {"sensors": spec.sensors, "actuators": spec.actuators}

    def _batch(self, patterns: dict[str, Sequence[str]]) -> BatchHandle | None:
        """Return the batched environment if all bodies sit in its incarnations."""
        every = [pattern for names in patterns.values() for pattern in names]
        for handle in self.handles:
            if isinstance(handle, BatchHandle) and every:
                start = f"{handle.uid}.{BODY_NUMBER}."
                if all(p.startswith(start) and BODY_NUMBER not in p[len(start) :] for p in every):
                    return handle
        return None

    def _local(self, batch: BatchHandle, patterns: dict[str, Sequence[str]]) -> Names:
        spec = self.spec
        last = spec.first + spec.count - 1
        if last >= batch.batch:
            several = f"bodies need the incarnations {spec.first} to {last}"
            which = several if spec.count > 1 else f"the body needs the incarnation {last}"
            message = f"{which}, but environment {batch.uid!r} has {batch.batch} (0 to {batch.batch - 1})"
            self.faults.append((message, (*self.path, "count")))
            return (), ()
        sensors, actuators = self._resolved(patterns, spec.first, [batch])
        start = len(f"{batch.uid}.{spec.first}.")
        return tuple(uid[start:] for uid in sensors), tuple(uid[start:] for uid in actuators)

    def _resolved(
        self, patterns: dict[str, Sequence[str]], number: int, handles: Sequence[EnvironmentHandle]
    ) -> Names:
        """Return the ids in ``handles`` that the patterns select for the body ``number``."""
        ids: list[tuple[str, ...]] = []
        for kind in ("sensors", "actuators"):
            names = [pattern.replace(BODY_NUMBER, str(number)) for pattern in patterns[kind]]
            # a selection of everything may be empty for one kind
            if getattr(self.spec, kind):
                self._check_names(kind, names, handles)
            ids.append(match_all(handles, kind, names))
        return ids[0], ids[1]

    def _check_names(self, kind: str, names: Sequence[str], handles: Sequence[EnvironmentHandle]) -> None:
        """Add a problem for each name that selects nothing in ``handles``."""
        for k, name in enumerate(names):
            if means_all(handles, name) or any(handle.match(kind, name) for handle in handles):
                continue
            if self.complete or any(name.startswith(f"{handle.uid}.") for handle in handles):
                self.faults.append((self._unknown(kind, name), (*self.path, kind, k)))

    def _check_environments(self, names: Names, number: int) -> None:
        """Add a problem if a body is in several environments."""
        homes = [
            next(filter(None, (handle.handle_of(name) for handle in self.handles)), None)
            for name in (*names[0], *names[1])
        ]
        uids = list(dict.fromkeys(home.uid for home in homes if home is not None))
        if len(uids) > 1:
            message = (
                f"body {number} would be in {len(uids)} environments ({listed(uids, 4)}); a body is one incarnation of "
                "its agent in one environment: give each of them an entry of its own"
            )
            self.faults.append((message, self.path))

    def _unknown(self, kind: str, name: str) -> str:
        offered = [uid for handle in self.handles for uid in getattr(handle, kind).uids]
        # compare only the literal part of a pattern
        near = did_you_mean(re.sub(r"[*?]|\[[^\]]*\]", "", name), offered)
        which = f"matches the pattern {name!r}" if is_pattern(name) else repr(name)
        return f"no {kind[:-1]} {which}{near}; {_offer(self.handles, kind, name)}"


#: the maximum number of names of channels, or of patterns, in a message
_MOST_NAMES = 12


def _offer(handles: Sequence[EnvironmentHandle], kind: str, name: str) -> str:
    offers = []
    for handle in handles:
        if name.startswith(f"{handle.uid}."):
            uids = getattr(handle, kind).uids
            numbers = (
                f" for {BODY_NUMBER} from 0 to {handle.batch - 1}" if isinstance(handle, BatchHandle) else ""
            )
            names = ", ".join(uids) if len(uids) <= _MOST_NAMES else counted_by_pattern(uids, _MOST_NAMES)
            total = f" ({len(uids)} in all)" if len(uids) > _MOST_NAMES else ""
            offers.append(f"environment {handle.uid!r} offers {names or 'none'}{total}{numbers}")
    return "; ".join(offers) or f"environments are {', '.join(repr(handle.uid) for handle in handles)}"

"""Descriptions of a phase for the store, as plain data, and the names of its folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from palaestrai_mosaik.errors import StoreError
from palaestrai_mosaik.types import Topology


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """A sensor, an actuator or a reward.

    ``uid`` is the full id (``"myenv.0"``), ``space`` the space's text, and ``size`` the
    number of floats that one value has when it is flattened. Where it stands for the channels
    of several incarnations, ``{body}`` is written for their number (``"cells.{body}.soc"``).
    """

    uid: str
    space: str
    size: int


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """An environment of a phase. ``start`` is the date of tick 0, where there is one.

    A batched environment has several ``incarnations``; its channels are then those of one. The
    ``topology`` has the uids of the channels. ``frames``: rendered frames are stored, too.
    """

    uid: str
    name: str
    params: Any = None
    sensors: list[ChannelRecord] = field(default_factory=list)
    actuators: list[ChannelRecord] = field(default_factory=list)
    rewards: list[ChannelRecord] = field(default_factory=list)
    world_model: Any = None
    start: datetime | None = None
    step_size: int = 1
    incarnations: int = 1
    topology: Topology | None = None
    frames: bool = False


@dataclass(frozen=True, slots=True)
class BodyRecord:
    """A group of identical bodies of an agent; their rows form one stream.

    ``group`` counts the agent's groups from 0; ``name`` is their label, if they have one. The
    agent's bodies are numbered through: these are ``first`` up to ``first + count - 1``.
    ``environment`` is where they are (``None``: a body that spans several environments).
    ``muscle`` and ``objective`` are class names. The channels are those of one body: with
    ``{body}`` for its number, if there are several; in those of body ``first``, ``{body}``
    stands for ``number``. ``rewards`` names the rewards that a body gets, in the order in
    which :meth:`AgentStream.append` receives them. With ``proposed``, the set-points of a row
    are what was done, and what the agent would have done stands beside them.

    ``incarnations`` says in which of a batched environment the bodies sit, one after the other;
    of a single body, it may name several. ``None``: in those from ``number`` on.
    """

    group: int = 0
    name: str | None = None
    first: int = 0
    count: int = 1
    environment: str | None = None
    muscle: str | None = None
    objective: str | None = None
    sensors: list[ChannelRecord] = field(default_factory=list)
    actuators: list[ChannelRecord] = field(default_factory=list)
    rewards: list[str] = field(default_factory=list)
    proposed: bool = False
    number: int = 0
    incarnations: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        found = self.incarnations
        if found is not None and (not found or len(found) != self.count != 1):
            raise StoreError(
                f"group {self.group}: {len(found)} incarnations for {self.count} bodies; expected is one for each"
            )


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent of a phase. ``brain``, ``muscle`` and ``objective`` are class names.

    ``bodies`` lists its groups of identical bodies, at least one, in order. An agent that the
    document gives no bodies has one group of one body.
    """

    name: str
    brain: str | None = None
    muscle: str | None = None
    objective: str | None = None
    bodies: list[BodyRecord] = field(default_factory=lambda: [BodyRecord()])

    def __post_init__(self) -> None:
        first = 0
        for group, body in enumerate(self.bodies):
            if body.group != group or body.first != first or body.count < 1:
                raise StoreError(
                    f"agent {self.name!r}: group {body.group} with {body.count} bodies from number {body.first} on "
                    f"cannot follow here; expected is group {group} from number {first} on"
                )
            first += body.count
        if not first:
            raise StoreError(f"agent {self.name!r} has no body")


_SAFE = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,46}[A-Za-z0-9_-])?")


def slug(name: str, taken: Iterable[str] = ()) -> str:
    """Return a file name for ``name``: a name that is safe already stays as it is.

    Any other loses what is not a letter, a digit, ``_`` or ``-``, and is distinguished by a
    hash, so no name can leave its folder. So is a name that differs from one in ``taken``
    in upper and lower case alone, which some file systems do not distinguish.
    """
    used = {other.casefold() for other in taken}
    if _SAFE.fullmatch(name) and name.casefold() not in used:
        return name
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:32]
    data = name.encode("utf-8", "surrogatepass")
    while True:
        data = hashlib.sha256(data).hexdigest().encode()
        candidate = f"{stem}-{data[:8].decode()}"
        if candidate.casefold() not in used:
            return candidate


def channel_columns(prefix: str, channels: Iterable[ChannelRecord]) -> list[str]:
    """Return one column name per float: ``reading.myenv.0``, or ``reading.myenv.0[2]``."""
    names: list[str] = []
    for channel in channels:
        name = f"{prefix}.{channel.uid}"
        names += [name] if channel.size == 1 else [f"{name}[{i}]" for i in range(channel.size)]
    return names


def distinct(names: Iterable[str]) -> list[str]:
    """Return ``names`` with ``#2``, ``#3``, ... added to those that came before."""
    taken: set[str] = set()
    result: list[str] = []
    for name in names:
        candidate, count = name, 1
        while candidate in taken:
            count += 1
            candidate = f"{name}#{count}"
        taken.add(candidate)
        result.append(candidate)
    return result

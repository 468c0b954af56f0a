"""Descriptions of a phase's members as plain data, and the names of its folders."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.types import Topology


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """A sensor, an actuator or a reward.

    ``uid`` is the full id (``"myenv.0"``), ``space`` the text form of the space, and ``size`` the
    number of floats of a flattened value. In a record for the channels
    of several incarnations, ``{body}`` replaces their number (``"cells.{body}.soc"``). ``unit`` is the one that a
    sensor declares.
    """

    uid: str
    space: str
    size: int
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class EnvironmentRecord:
    """An environment of a phase. ``start`` is the date of tick 0, if there is one.

    A batched environment has several ``incarnations``; its channels are those of one incarnation. The
    ``topology`` has the uids of the channels. ``frames``: rendered frames are stored, too. ``rewards_accumulate``:
    figures open with the sum of an episode's rewards.
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
    rewards_accumulate: bool = False


@dataclass(frozen=True, slots=True)
class BodyRecord:
    """A group of identical bodies of an agent; their rows form one stream.

    ``group`` counts the agent's groups from 0; ``name`` is their label, if they have one. The
    agent's bodies are numbered through: these are ``first`` up to ``first + count - 1``.
    ``environment`` is the uid of their environment (``None``: a body that spans several environments).
    ``muscle`` and ``objective`` are class names. The channels are those of one body: with
    ``{body}`` for its number, if there are several; in those of body ``first``, ``{body}``
    stands for ``number``. ``rewards`` names the rewards of a body, in the order in
    which :meth:`AgentStream.append` receives them. With ``proposed``, a row has the applied
    set-points, and beside them those that the agent would have chosen.

    ``incarnations`` lists the incarnation of a batched environment for each body, in order;
    for a single body, it may list several. ``None``: those from ``number`` on.
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
        numbers = self.incarnations
        if numbers is not None and (not numbers or len(numbers) != self.count != 1):
            raise StoreError(
                f"group {self.group}: {len(numbers)} incarnations for {self.count} bodies; expected is one for each"
            )


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """An agent of a phase. ``brain``, ``muscle`` and ``objective`` are class names.

    ``bodies`` lists its groups of identical bodies, at least one, in order. An agent without bodies in the
    document has one group of one body.
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
    """Make a file name from ``name``; a safe name stays unchanged.

    In any other, characters other than letters, digits, ``_`` and ``-`` are replaced, and a hash is appended, so no
    name can leave its folder. A hash also distinguishes a name that differs from one in ``taken`` only in upper and
    lower case, which some file systems do not distinguish.
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
    """List one column name per float: ``reading.myenv.0``, or ``reading.myenv.0[2]``."""
    names: list[str] = []
    for channel in channels:
        name = f"{prefix}.{channel.uid}"
        names += [name] if channel.size == 1 else [f"{name}[{i}]" for i in range(channel.size)]
    return names


def distinct(names: Iterable[str]) -> list[str]:
    """Add ``#2``, ``#3``, ... to repeated names."""
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

"""The bodies of an agent: the entries of ``bodies``, completed by the agent's own keys.

Source of the word: the seed "AEB Design" of SLM Lab. A body is one incarnation of an agent in
exactly one environment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from palaestrai_mosaik.errors import NameResolutionError, did_you_mean
from palaestrai_mosaik.text import listed

from .canonical import size_of
from .classes import split_id
from .fields import TEXT, id_list, items_of, optional_class
from .located import Findings, Located, show
from .model import BODY_NUMBER, MAX_BODIES, UNREAD, BodySpec, ClassSpec, Place
from .vocabulary import BODY

#: keys that an entry takes from the agent if it leaves them out
COMMON = ("muscle", "objective", "sensors", "actuators", "filters")
#: keys that belong to the agent, not to a body
_OF_THE_AGENT = ("brain", "load", "replay", "snapshots")
_IDS = ("sensors", "actuators")
#: keys of a body that depend on other parts of the document
_IN_CONTEXT = ("name", "environment", "muscle", *_IDS)
_BRACES = re.compile(r"\{[^{}]*\}|[{}]")
_INTEGER = re.compile(r"[+-]?\d+")

#: environments of ids, each with the first of its ids
Homes = Mapping[str, Located]


@dataclass(frozen=True, slots=True)
class Common:
    """The agent's own keys: the written parts, and their values.

    ``environments`` are the uids of the phase's (``None``: unknown, because one could not be
    read). Without a ``muscle`` every entry must have one; ``faulty``: the agent's muscle may
    be among the unreadable keys.
    """

    parts: Mapping[str, Located]
    muscle: ClassSpec | None
    objective: ClassSpec | None
    ids: Mapping[str, tuple[str, ...]]
    filters: tuple[ClassSpec, ...]
    environments: Collection[str] | None
    faulty: bool


def has_bodies(parts: Mapping[str, Located]) -> bool:
    """Whether an agent with these parts has ``bodies`` that are not null."""
    return _given(parts, "bodies")


def channel_list(
    found: Findings, at: Located | None, what: str, uids: Collection[str] | None
) -> tuple[str, ...]:
    """Read the ids of bodies at ``at``, which may contain ``{body}``; absent or null means none."""
    if at is None or at.value is None:
        return ()
    ids = id_list(found, at, what, uids)
    for item in items_of(at):
        wrong = _wrong_braces(item.value) if isinstance(item.value, str) else None
        if wrong is not None:
            found.error(
                item.place,
                f"{item.value!r} has {wrong!r}{did_you_mean(wrong, [BODY_NUMBER])}; between braces an agent "
                f"with bodies may have {BODY_NUMBER!r} only, which stands for the body's number",
            )
    return ids


def _wrong_braces(full_id: str) -> str | None:
    """Find the first braces of an id that are not ``{body}``."""
    return next((match[0] for match in _BRACES.finditer(full_id) if match[0] != BODY_NUMBER), None)


def body_list(found: Findings, at: Located, common: Common) -> tuple[BodySpec, ...]:
    """Read the bodies listed at ``at``, each completed by ``common``."""
    if not isinstance(at.value, list):
        found.error(at.place, f"bodies must be a list, found {show(at.value)}")
        return ()
    if not at.value:
        found.error(
            at.place,
            "bodies needs at least one entry; an agent without the key has one body, with its own sensors "
            "and actuators",
        )
    # computed once, because there may be many bodies, with many common ids
    homes = {key: _homes(common.parts.get(key), common.environments) for key in _IDS}
    bodies = tuple(_body(found, item, common, homes) for item in items_of(at))
    _check_names(found, items_of(at))
    if sum(body.count for body in bodies) > MAX_BODIES:
        found.error(at.place, f"an agent may have at most {MAX_BODIES:,} bodies; the counts come to more")
        return ()
    return bodies


def taken_by_bodies(parts: Mapping[str, Located], sizes: dict[int, int]) -> int:
    """Count the values that the bodies of an agent take from it: its canonical form writes them all out.

    ``sizes``: see :func:`~.canonical.size_of`.
    """
    entries = [item.value for item in items_of(parts.get("bodies")) if isinstance(item.value, dict)]
    common = [key for key in COMMON if key in parts] if entries else []
    return sum(
        size_of(parts[key].value, sizes) * sum(key not in entry for entry in entries) for key in common
    )


def origins_of(parts: Mapping[str, Located]) -> Iterator[tuple[Place, Place]]:
    """Yield places below the agent in the model, with their places in the text, if the two differ.

    They differ for keys that bodies take from the agent, and for the
    muscle of an agent that takes it from its first body.
    """
    for index, item in enumerate(items_of(parts["bodies"])):
        for key in COMMON if isinstance(item.value, dict) else ():
            if key not in item.value and key in parts:
                yield ("bodies", index, key), parts[key].place
    if not _given(parts, "muscle"):
        yield ("muscle",), (*parts["bodies"].place, 0, "muscle")


def _body(found: Findings, at: Located, common: Common, homes: Mapping[str, Homes]) -> BodySpec:
    data = at.value
    if isinstance(data, dict):
        for key in _OF_THE_AGENT:
            if key in data:
                found.error(
                    (*at.place, key),
                    f"{key!r} is one for all bodies of an agent; give it beside 'bodies'",
                )
        data = {key: value for key, value in data.items() if key not in _OF_THE_AGENT}
    parts = found.section(Located(data, at.place), BODY)
    if parts is None:
        return BodySpec(UNREAD)
    errors = found.count
    muscle = _muscle(found, at, parts, common)
    data = BODY.values(found, {key: part for key, part in parts.items() if key not in _IN_CONTEXT})
    objective = data["objective"] if "objective" in parts else common.objective
    filters = data["filters"] if "filters" in parts else common.filters
    ids = {
        key: channel_list(found, parts[key], key, common.environments) if key in parts else common.ids[key]
        for key in _IDS
    }
    count, first = data["count"], data["first"]
    if first > MAX_BODIES:
        found.error(parts["first"].place, f"first must be at most {MAX_BODIES:,}, found {show(first)}")
        first = 0
    environment = _environment(found, at, parts, common, homes)
    if found.count == errors:
        _warn(found, parts, ids, count)
    return BodySpec(
        muscle or UNREAD,
        objective,
        ids["sensors"],
        ids["actuators"],
        filters,
        environment,
        parts["name"].value if "name" in parts else None,
        count,
        first,
    )


def _muscle(found: Findings, at: Located, parts: Mapping[str, Located], common: Common) -> ClassSpec | None:
    if "muscle" not in parts:
        if common.muscle is None and not common.faulty and not _given(common.parts, "muscle"):
            found.error(at.place, "the body needs the key 'muscle', which neither it nor its agent gives")
        return common.muscle
    if parts["muscle"].value is None:
        found.error(parts["muscle"].place, "a body's muscle may not be left out")
    return optional_class(found, parts["muscle"], "muscle", "muscle")


def _given(parts: Mapping[str, Located], key: str) -> bool:
    return key in parts and parts[key].value is not None


def _environment(
    found: Findings, at: Located, parts: Mapping[str, Located], common: Common, homes: Mapping[str, Homes]
) -> str | None:
    """Return the uid of the body's single environment; ``homes`` are those of common ids."""
    home, why = None, ""
    uids = common.environments
    if _given(parts, "environment"):
        written = parts["environment"]
        home, why = TEXT.read(found, written, "a body's environment"), "given as its environment"
        if home is not None and uids is not None and home not in uids:
            near, allowed = did_you_mean(home, uids), listed([repr(uid) for uid in uids], 5)
            message = (
                f"there is no environment {home!r} in the phase{near}; environments: {allowed or 'none'}"
            )
            found.error(written.place, message)
            return None
    elif not any(_listed(parts.get(key, common.parts.get(key))) for key in _IDS):
        found.error(
            at.place,
            "the body has neither sensors nor actuators, of its own or of its agent's: name them, or give its "
            "'environment', of which it then has all",
        )
    for key in _IDS:
        for uid, item in (_homes(parts[key], uids) if key in parts else homes[key]).items():
            if home is None:
                home, why = uid, f"where {item.value!r} is"
            elif uid != home:
                found.error(
                    item.place if key in parts else at.place,
                    f"the body is in two environments, {home!r} ({why}) and {uid!r} (where {item.value!r} is); a "
                    "body is one incarnation of the agent in exactly one environment: give each an entry of its "
                    "own",
                )
                return None
    return home


def _listed(at: Located | None) -> bool:
    """Whether there are ids at ``at``; unreadable values count as ids, because they are reported elsewhere."""
    return at is not None and at.value is not None and at.value != []


def _homes(at: Located | None, uids: Collection[str] | None) -> Homes:
    """Find the environments of the ids at ``at``, each with its first id.

    Wrong ids are left out, because they are reported when they are read.
    """
    homes: dict[str, Located] = {}
    for item in items_of(at):
        if isinstance(item.value, str):
            with suppress(NameResolutionError):
                homes.setdefault(split_id(item.value, uids or ())[0], item)
    return homes


def _warn(
    found: Findings, parts: Mapping[str, Located], ids: Mapping[str, tuple[str, ...]], count: int
) -> None:
    """Warn of bodies that share actuators, and of a ``first`` without effect."""
    shared = [channel for channel in ids["actuators"] if BODY_NUMBER not in channel] if count > 1 else []
    if shared:
        found.warn(
            parts["count"].place,
            f"the {count} bodies have the same actuators ({listed(shared, 3)}), as {BODY_NUMBER} is not in them: "
            "of their set-points at one time, the last one holds",
        )
    if "first" in parts and parts["first"].value:
        channels = [*ids["sensors"], *ids["actuators"]]
        if channels and not any(BODY_NUMBER in channel for channel in channels):
            found.warn(
                parts["first"].place,
                f"'first' has no effect: {BODY_NUMBER} is in none of the body's sensors and actuators",
            )


def _check_names(found: Findings, entries: list[Located]) -> None:
    """Check that labels differ from one another and from the numbers of bodies."""
    seen: dict[str, int] = {}
    for index, entry in enumerate(entries):
        name = entry.value.get("name") if isinstance(entry.value, dict) else None
        if name is None:
            continue
        at = entry.child("name")
        if not isinstance(name, bool) and _INTEGER.fullmatch(str(name)):
            found.error(
                at.place,
                f"a body's name may not be a whole number, found {show(name)}: numbers count an agent's bodies "
                "from 0",
            )
        elif TEXT.read(found, at, "a body's name") is None:
            continue
        elif name in seen:
            found.error(at.place, f"the body's name {name!r} is given twice: first by entry {seen[name]}")
        else:
            seen[name] = index

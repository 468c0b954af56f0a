"""What a page in one file has of a run: its head, and the tabs that the served page has, as far as they are small."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from palaestrai_mosaik.errors import StoreError

from .carried import Carried, reserved
from .resources import address

#: of all that a file has of a run over time, of its log and of the picture of its world, in bytes
TIME, _LOG, _WORLD = 600_000, 60_000, 150_000
#: which machine executed a run
_PLACE = ("host", "pid")


def add_overview(carried: Carried, uid: str, *, statistics: bool = True) -> None:
    """Carry the curves of a run; without ``statistics``, what agents reported is left out."""
    carried.add(_overview(carried, uid, statistics))


def add_overview_if_small(carried: Carried, uid: str) -> bool:
    """Carry the curves of a run if the file stays small; return whether it has them."""
    return carried.add_if_small(_overview(carried, uid, True))


def _overview(carried: Carried, uid: str, statistics: bool) -> dict[str, object]:
    path = f"run/{uid}/curves"
    # (the page in one file asks for all that it has)
    return {path: carried.get(path, None if statistics else {"statistics": "0"})}


def add_record(carried: Carried, uid: str) -> None:
    """Carry how a run came about: document, failures, warnings, versions and digests; log and world if they are small.

    On which machine it ran, and where its store is there, stays with its user.
    """
    path = f"run/{uid}"
    record = carried.get(f"{path}/record")
    facts = {name: value for name, value in record["facts"].items() if name not in _PLACE}
    carried.add({f"{path}/record": {**record, "facts": facts, "again": None}})
    carried.add_if_small({f"{path}/log": carried.get(f"{path}/log")}, _LOG)
    world = carried.get(f"{path}/world")
    if world is not None:
        carried.add_if_small({f"{path}/world": world}, _WORLD)


def add_time(carried: Carried, uid: str, episodes: Mapping[int, Mapping[str, Any]]) -> Collection[int]:
    """Carry a run over simulated time: the panels that the page opens with, phase by phase, as long as they are small.

    Args:
        carried: what the file carries.
        uid: uid of the run.
        episodes: the episodes of phases that are shown elsewhere in the file; of other phases, the newest one is meant.

    Returns:
        The numbers of the phases that the file has.
    """
    path = f"run/{uid}"
    choices = carried.get(f"{path}/time")
    limit = min(carried.limit, carried.size + TIME)
    found: list[int] = []
    # the newest phases come first: one of them is what the page opens with
    for phase in sorted((int(one["phase"]) for one in choices["phases"]), reverse=True):
        named = {"phases": str(phase), "patterns": "\n".join(choices["patterns"])}
        episode = episodes.get(phase)
        if episode is not None:
            named |= {name: str(episode[name]) for name in ("worker", "episode")}
            named |= {"evaluation": "1"} if episode["evaluation"] else {}
        try:
            made = carried.get(f"{path}/series", named)
        except StoreError:  # nothing of it was recorded
            continue
        if not made["panels"]:
            continue
        # (a pattern that means nothing in this phase may mean something in another one)
        answer = {address(f"{path}/series", {"phases": str(phase)}): {**made, "problems": []}}
        with reserved(carried, carried.limit - limit):
            found += [phase] if carried.add_if_small(answer) else []
    if found:
        kept = [one for one in choices["phases"] if int(one["phase"]) in found]
        carried.add({f"{path}/time": {**choices, "phases": kept, "suggestions": []}})
    return sorted(found)

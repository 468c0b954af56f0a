"""The resources that a page in one file carries, within a size limit, and the parts of a run among them."""

from __future__ import annotations

import gzip
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from palaestrai_mosaik.core.errors import StoreError

from .data import get
from .data.episodes import episode_query
from .encoding import to_json
from .resources import Source, address

#: size in bytes above which optional parts are left out, and size of a file without data
SIZE, _EMPTY = 5_000_000, 800_000


def packed_size(*values: object) -> int:
    """Return the approximate number of bytes that values take in a file, compressed and as text."""
    return sum(len(gzip.compress(to_json(value, single=True), 6)) * 4 // 3 for value in values)


class Carried:
    """Collects the resources of a file.

    Attributes:
        source: provides the resources.
        resources: the carried resources by address.
        size: the approximate size of the file with these resources, in bytes.
        limit: the size that optional resources may not exceed, in bytes.
    """

    def __init__(self, source: Source):
        self.source = source
        self.resources: dict[str, object] = {}
        self.size = _EMPTY
        self.limit = SIZE

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Return the resource at ``path`` without carrying it."""
        return cast(Any, get(self.source, path, query))

    def take(self, path: str, query: Mapping[str, str] | None = None) -> Any:
        """Carry the resource at ``path``, and return it."""
        resource = self.get(path, query)
        self.add({address(path, query): resource})
        return resource

    def add(self, made: Mapping[str, object]) -> None:
        """Carry these resources regardless of their size."""
        self.size += packed_size(*made.values())
        self.resources |= made

    def add_if_small(self, made: Mapping[str, object], most: float = math.inf) -> bool:
        """Carry these resources if the file stays below its limit; return whether it did.

        Args:
            made: the resources.
            most: the size that they may have in bytes.
        """
        fits = packed_size(*made.values()) <= min(most, self.limit - self.size)
        if fits:
            self.add(made)
        return fits


@contextmanager
def reserved(carried: Carried, size: int) -> Iterator[None]:
    """Reserve ``size`` bytes of the file within the block, for resources that are added after it."""
    before, carried.limit = carried.limit, carried.limit - size
    try:
        yield
    finally:
        carried.limit = before


#: size limits in bytes of a run's data over time, its log and the picture of its world
TIME, _LOG, _WORLD = 600_000, 60_000, 150_000
#: facts that identify the machine that executed a run
_PLACE = ("host", "pid")


def add_overview(carried: Carried, uid: str, *, statistics: bool = True, required: bool = True) -> bool:
    """Carry the curves of a run; return whether the file has them.

    Args:
        carried: the resources of the file.
        uid: uid of the run.
        statistics: carry the agents' statistics, too.
        required: carry the curves regardless of the file's size.
    """
    path = f"run/{uid}/curves"
    # the page in one file always requests the resource without a query
    curves = {path: carried.get(path, None if statistics else {"statistics": "0"})}
    if required:
        carried.add(curves)
    return required or carried.add_if_small(curves)


def add_record(carried: Carried, uid: str) -> None:
    """Carry the record of a run: document, failures, warnings, versions and digests; log and world if small.

    The machine of the run and the location of its store are left out, because they are private.
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
    """Carry a run over simulated time: the default panels, phase by phase, while they are small.

    Args:
        carried: the resources of the file.
        uid: uid of the run.
        episodes: the episodes of phases that the file's other views show; the newest episode of other phases is
            carried.

    Returns:
        The numbers of the phases that the file has.
    """
    path = f"run/{uid}"
    choices = carried.get(f"{path}/time")
    limit = min(carried.limit, carried.size + TIME)
    added: list[int] = []
    # newest phases first, because the page opens with one of them
    for phase in sorted((int(entry["phase"]) for entry in choices["phases"]), reverse=True):
        query = {"phases": str(phase), "patterns": "\n".join(choices["patterns"])}
        if phase in episodes:
            query |= episode_query(episodes[phase])
        try:
            series = carried.get(f"{path}/series", query)
        except StoreError:  # none of it was recorded
            continue
        if not series["panels"]:
            continue
        # a pattern without columns in this phase may have some in another phase
        answer = {address(f"{path}/series", {"phases": str(phase)}): {**series, "problems": []}}
        with reserved(carried, carried.limit - limit):
            added += [phase] * carried.add_if_small(answer)
    if added:
        entries = [entry for entry in choices["phases"] if int(entry["phase"]) in added]
        carried.add({f"{path}/time": {**choices, "phases": entries, "suggestions": []}})
    return sorted(added)

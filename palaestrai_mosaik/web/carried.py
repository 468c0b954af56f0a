"""The resources that a page in one file carries: overviews, records, episodes in motion, and frames."""

from __future__ import annotations

import gzip
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, Literal, cast

import numpy as np

from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback

from .data import get
from .data.episodes import episode_key, episode_query
from .data.grid import motion
from .encoding import compact, to_json
from .resources import Query, Source, address

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
        self._add(made, packed_size(*made.values()))

    def add_if_small(self, made: Mapping[str, object], most: float = math.inf) -> bool:
        """Carry these resources if the file stays below its limit; return whether it did.

        Args:
            made: the resources.
            most: the size that they may have in bytes.
        """
        size = packed_size(*made.values())
        fits = size <= min(most, self.limit - self.size)
        if fits:
            self._add(made, size)
        return fits

    def _add(self, made: Mapping[str, object], size: int) -> None:
        self.size += size
        self.resources |= made


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
            if carried.add_if_small(answer):
                added.append(phase)
    if added:
        entries = [entry for entry in choices["phases"] if int(entry["phase"]) in added]
        carried.add({f"{path}/time": {**choices, "phases": entries, "suggestions": []}})
    return sorted(added)


#: growth of an image in the file: it is encoded as text, and the file's compressed data once more
_GROWTH = 1.4


class Films:
    """Selects the episodes with frames for a file, and carries their resources.

    Args:
        source: the source of the page.
        uid: uid of the run.
    """

    def __init__(self, source: Source, uid: str):
        self._source, self._path = source, f"run/{uid}"
        self.index = cast(dict[str, Any], get(source, f"{self._path}/frames"))
        self.carried: dict[str, object] = {}
        self.shown: list[dict[str, Any]] = []
        #: numbers of the phases for which only some frames are carried
        self.thinned: list[int] = []

    @property
    def phases(self) -> tuple[int, ...]:
        """The numbers of the phases that have frames."""
        return tuple(sorted({episode["phase"] for episode in self.index["episodes"]}))

    def add(self, phases: Iterable[int], others: Mapping[int, int], episode: int | str, room: float) -> None:
        """Carry an episode of each environment in each of these phases.

        Args:
            phases: numbers of the phases; phases without frames are skipped.
            others: the episode of each phase that the file shows in other views. It is preferred if it has frames.
            episode: the number of the episode in other phases; the newest one if this is not a number.
            room: bytes of the file available for frames. Only some frames of larger episodes are carried.

        Raises:
            StoreError: the episode with this number has no frames.
        """
        chosen = [
            entry
            for phase in dict.fromkeys(phases)
            for environment in dict.fromkeys(entry["environment"] for entry in self.index["episodes"])
            for entry in self._choose(phase, environment, others.get(phase), episode)
        ]
        for entry in chosen:
            # episodes smaller than their share leave more for the others, but a second pass is not worth it
            share = room / len(chosen) / _GROWTH
            self._carry(entry, max(1, -(-entry["bytes"] // max(1, int(share)))))
        if self.shown:
            self.carried[f"{self._path}/frames"] = {**self.index, "running": False, "episodes": self.shown}

    def opened(self, named: Sequence[int], beside: int | None) -> dict[str, str]:
        """Return the query that opens the page, see :func:`_opened`."""
        by_phase = {episode["phase"]: episode for episode in reversed(self.shown)}
        return {
            name: f"{episode_key(phase, by_phase[phase])}.{by_phase[phase]['environment']}"
            for name, phase in _opened(sorted(by_phase), named, beside).items()
        }

    def _choose(
        self, phase: int, environment: str, other: int | None, episode: int | str
    ) -> Sequence[dict[str, Any]]:
        """Return a list with the episode to carry for an environment in a phase; an empty list without frames."""
        of_phase = (entry for entry in self.index["episodes"] if entry["phase"] == phase)
        trained = _trained([entry for entry in of_phase if entry["environment"] == environment])
        number = episode if other is None else other
        matching = [entry for entry in trained if entry["episode"] == number]
        if trained and not matching and other is None and isinstance(episode, int):
            raise StoreError(
                f"phase {phase} has no frames of environment {environment!r} in episode {episode}; it has frames of: "
                f"{_listed(trained)}"
            )
        return (matching or trained)[-1:]

    def _carry(self, episode: dict[str, Any], every: int) -> None:
        query = {name: str(episode[name]) for name in ("environment", "phase")} | episode_query(episode)
        film = cast(dict[str, Any], get(self._source, f"{self._path}/film", query))
        count, together = film["frames"], film["together"]
        # the end of the episode is most important
        kept = sorted({*range(0, count, every), count - 1})
        if every > 1:
            self.thinned.append(episode["phase"])
        images = self._images(query, kept, together)
        shorter = {name: [film[name][i] for i in kept] for name in ("step", "time")}
        self.carried[address(f"{self._path}/film", query)] = {**film, **shorter, "frames": len(kept)}
        for first in range(0, len(kept), together):
            part = {"png": images[first : first + together]}
            self.carried[address(f"{self._path}/images", query | {"from": str(first)})] = part
        self.shown.append({**episode, "frames": len(kept)})

    def _images(self, query: Mapping[str, str], kept: Sequence[int], together: int) -> list[str]:
        images: dict[int, str] = {}
        for first in dict.fromkeys(i - i % together for i in kept):
            answer: Any = get(self._source, f"{self._path}/images", {**query, "from": str(first)})
            images |= dict(enumerate(answer["png"], first))
        return [images[i] for i in kept]


def _opened(phases: Iterable[int], named: Sequence[int], beside: int | None) -> dict[str, int]:
    """Return the phases that the page opens with: ``at``, and ``beside`` it.

    Args:
        phases: numbers of the phases in the file.
        named: numbers of phases: the first one in the file is opened, or else one other than ``beside``.
        beside: the number of the phase that is shown beside it; ``None``: none.
    """
    numbers = list(phases)
    others = [phase for phase in numbers if phase != beside] or numbers
    opened = {"at": next((phase for phase in named if phase in numbers), others[0])}
    return opened | ({} if beside is None or beside not in numbers else {"beside": beside})


def _trained(episodes: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    """Return the training episodes, or all if there are none."""
    return [entry for entry in episodes if not entry["evaluation"]] or episodes


def _listed(episodes: Sequence[dict[str, Any]]) -> str:
    return ", ".join(str(entry["episode"]) for entry in episodes[:20])


#: the episode of each phase: a number, the newest one, or the one with the voltage farthest from 1
EpisodeChoice = int | Literal["newest", "worst"]

#: episodes with more values are thinned
_MOST_VALUES = 1_500_000


def phases_in_motion(index: Mapping[str, Any]) -> set[int]:
    """Return the numbers of the phases that can be shown in motion.

    Args:
        index: the resource ``run/UID/grid``.
    """
    return {int(phase) for environment in index["environments"] for phase in environment["topologies"]}


def phase_number(index: Mapping[str, Any], uid: str, wanted: int | str, shown: Set[int]) -> int:
    """Return the number of a phase, given its number or name, if it is in ``shown``.

    Raises:
        StoreError: no such phase can be shown.
    """
    numbers = {phase["name"]: phase["phase"] for phase in index["phases"] if phase["phase"] in shown}
    for name, number in numbers.items():
        if wanted in (name, number):
            return int(number)
    hint = did_you_mean(str(wanted), list(numbers))
    listed = ", ".join(f"{number} {name!r}" for name, number in numbers.items()) or "none"
    raise StoreError(f"run {uid!r} has no phase {wanted!r} with a topology or frames{hint}; it has: {listed}")


class Motions:
    """Selects the episodes of a run that a file shows in motion, and carries their resources.

    Args:
        carried: the resources of the file.
        uid: uid of the run.
        index: the resource ``run/UID/grid``.
        episode: the episode of each phase.
    """

    def __init__(self, carried: Carried, uid: str, index: Mapping[str, Any], episode: EpisodeChoice):
        self._carried, self._uid, self._index, self._episode = carried, uid, index, episode
        #: number of a phase -> its episode
        self.shown: dict[int, dict[str, Any]] = {}
        self.left_out: list[int] = []
        self.thinned: list[int] = []

    def add(
        self, wanted: Sequence[int], *, others: bool, least: int = 1, progress: ProgressCallback | None = None
    ) -> None:
        """Carry the episodes of phases.

        Args:
            wanted: numbers of phases that are carried regardless of the file's size.
            others: also carry all other phases, as long as the file stays small.
            least: the minimum number of phases to carry regardless of the file's size.
            progress: called with the number of phases that have been read, and their total.
        """
        environments = self._index["environments"]
        possible = [
            int(entry["phase"])
            for entry in self._index["phases"]
            if entry["episodes"] and any(entry["phase"] in env["topologies"] for env in environments)
        ]
        # named phases first, so that they are not left out
        order = dict.fromkeys([*wanted, *possible] if others else wanted)
        counted = PartsProgress(progress, len(order))
        for phase in order:
            self._add(phase, required=phase in wanted or least > len(self.shown))
            counted.end()
        self.shown = dict(sorted(self.shown.items()))

    def _add(self, phase: int, *, required: bool) -> None:
        """Carry the episode of a phase, unless it is not ``required`` and the file would become too large."""
        episode = self._choose(phase)
        resources, thinned = self._resources(phase, episode)
        if required:
            self._carried.add(resources)
        elif not self._carried.add_if_small(resources):
            self.left_out.append(phase)
            return
        self.shown[phase] = episode
        self.thinned += [phase] * thinned

    def _choose(self, phase: int) -> dict[str, Any]:
        (episodes,) = [entry["episodes"] for entry in self._index["phases"] if entry["phase"] == phase]
        trained = _trained(episodes)
        if self._episode == "newest":
            return trained[-1]
        if self._episode == "worst":
            return max(trained, key=lambda entry: self._deviation(phase, entry))
        matching = [entry for entry in trained if entry["episode"] == self._episode]
        if not matching:
            raise StoreError(
                f"phase {phase} of run {self._uid!r} has no episode {self._episode}; it has: {_listed(trained)}"
            )
        return matching[0]

    def _deviation(self, phase: int, episode: Mapping[str, Any]) -> float:
        queries = [Query(query) for _, query in self._asked(phase, episode)]
        worst = [motion(self._carried.source, self._uid, query, _MOST_VALUES)["worst"] for query in queries]
        return max((abs(state["value"] - 1) for state in worst if state is not None), default=0.0)

    def _asked(
        self, phase: int, episode: Mapping[str, Any]
    ) -> Iterator[tuple[Mapping[str, Any], dict[str, str]]]:
        """Yield the environments of a phase, each with the page's query for the episode."""
        for environment in self._index["environments"]:
            if phase in environment["topologies"]:
                query = {"environment": str(environment["environment"]), "phase": str(phase)}
                yield environment, query | episode_query(episode)

    def _resources(self, phase: int, episode: Mapping[str, Any]) -> tuple[dict[str, object], bool]:
        """Return the resources of an episode, and whether it is thinned."""
        resources: dict[str, object] = {}
        thinned, path = False, f"run/{self._uid}"
        for environment, query in self._asked(phase, episode):
            first = {"environment": query["environment"], "phase": str(environment["topologies"][phase])}
            topology = address(f"{path}/topology", first)
            if topology not in self._carried.resources:
                resources[topology] = self._carried.get(f"{path}/topology", first)
            answer = motion(self._carried.source, self._uid, Query(query), _MOST_VALUES)
            states = len(answer["step"])
            thinned |= states < answer["states"]
            for name in ("readings", "setpoints"):
                block = answer[name]
                values = np.asarray(block["values"], dtype=np.float64).reshape(states, len(block["uids"]))
                answer[name] = {**block, "values": compact(values)}
            resources[address(f"{path}/motion", query)] = answer
        return resources, thinned

    def opened(self, named: Sequence[int], beside: int | None) -> dict[str, str]:
        """Return the query that opens the page, see :func:`_opened`."""
        phases = _opened(self.shown, named, beside)
        return {name: episode_key(phase, self.shown[phase]) for name, phase in phases.items()}

    def index(self) -> dict[str, Any]:
        """Return the index of the carried episodes, each environment in its first incarnation."""
        return {
            "running": False,
            "environments": [{**entry, "incarnations": 1} for entry in self._index["environments"]],
            "phases": [
                {**entry, "episodes": [self.shown[entry["phase"]]]}
                for entry in self._index["phases"]
                if entry["phase"] in self.shown
            ],
        }

"""The episodes in motion of a page that is one file, and the resources that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Literal

import numpy as np

from palaestrai_mosaik.core.errors import StoreError, did_you_mean
from palaestrai_mosaik.core.progress import PartsProgress, ProgressCallback

from .carried import Carried
from .compact import compact
from .data.episodes import episode_key, episode_query
from .data.grid import motion
from .resources import Query, address

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
        trained = [entry for entry in episodes if not entry["evaluation"]] or list(episodes)
        if self._episode == "newest":
            return dict(trained[-1])
        if self._episode == "worst":
            deviations = [self._deviation(phase, entry) for entry in trained]
            return dict(trained[deviations.index(max(deviations))])
        for entry in trained:
            if entry["episode"] == self._episode:
                return dict(entry)
        listed = ", ".join(str(entry["episode"]) for entry in trained[:20])
        raise StoreError(
            f"phase {phase} of run {self._uid!r} has no episode {self._episode}; it has: {listed}"
        )

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
        thinned = False
        for environment, query in self._asked(phase, episode):
            path = f"run/{self._uid}"
            topology_query = {
                "environment": query["environment"],
                "phase": str(environment["topologies"][phase]),
            }
            if address(f"{path}/topology", topology_query) not in self._carried.resources:
                resources[address(f"{path}/topology", topology_query)] = self._carried.get(
                    f"{path}/topology", topology_query
                )
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
        """Return the query that opens the page, as :meth:`.films.Films.opened` does."""
        phases = [phase for phase in self.shown if phase != beside] or list(self.shown)
        first = next((phase for phase in named if phase in self.shown), phases[0])
        opened = {"at": first} | ({"beside": beside} if beside in self.shown else {})
        return {name: episode_key(phase, self.shown[phase]) for name, phase in opened.items()}

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

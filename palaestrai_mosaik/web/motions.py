"""Episodes in motion in a page that is one file: which of them it has, and the resources that show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Literal

import numpy as np

from palaestrai_mosaik.errors import StoreError, did_you_mean
from palaestrai_mosaik.progress import ProgressCallback

from .carried import Carried
from .compact import compact
from .data.grid import motion
from .resources import Query, address

#: which episode of each phase: a number, the newest one, or the one with the voltage farthest from 1
EpisodeChoice = int | Literal["newest", "worst"]

#: an episode with more values is thinned
_MOST_VALUES = 1_500_000


def phases_in_motion(index: Mapping[str, Any]) -> set[int]:
    """Return the numbers of the phases that can be shown in motion.

    Args:
        index: the resource ``run/UID/grid``.
    """
    return {int(phase) for one in index["environments"] for phase in one["topologies"]}


def phase_number(index: Mapping[str, Any], uid: str, wanted: int | str, shown: Set[int]) -> int:
    """Return the number of a phase that can be shown, of those with the numbers ``shown``."""
    known = {one["name"]: one["phase"] for one in index["phases"] if one["phase"] in shown}
    for name, number in known.items():
        if wanted in (name, number):
            return int(number)
    hint = did_you_mean(str(wanted), list(known))
    listed = ", ".join(f"{number} {name!r}" for name, number in known.items()) or "none"
    raise StoreError(f"run {uid!r} has no phase {wanted!r} with a topology or frames{hint}; it has: {listed}")


class Motions:
    """The episodes of a run that a file shows in motion.

    Args:
        carried: what the file carries.
        uid: uid of the run.
        index: the resource ``run/UID/grid``.
        episode: which episode of each phase.
    """

    def __init__(self, carried: Carried, uid: str, index: Mapping[str, Any], episode: EpisodeChoice):
        self._carried, self._uid, self._index, self._episode = carried, uid, index, episode
        #: number of a phase -> the episode of it
        self.shown: dict[int, dict[str, Any]] = {}
        self.left_out: list[int] = []
        self.thinned: list[int] = []

    def add(
        self, wanted: Sequence[int], *, others: bool, least: int = 1, progress: ProgressCallback | None = None
    ) -> None:
        """Read phases.

        Args:
            wanted: numbers of phases that are read however large the file becomes.
            others: read all others, too, as long as the file stays small.
            least: so many phases are read however large the file becomes.
            progress: called with the number of phases that have been read, and of all.
        """
        environments = self._index["environments"]
        possible = [
            int(one["phase"])
            for one in self._index["phases"]
            if one["episodes"] and any(one["phase"] in env["topologies"] for env in environments)
        ]
        # (what is named comes first, so that it is not left out)
        order = dict.fromkeys([*wanted, *possible] if others else wanted)
        for done, phase in enumerate(order):
            if progress is not None:
                progress(done, len(order))
            episode = self._choose(phase)
            made, thinned = self._resources(phase, episode)
            if phase in wanted or (least > len(self.shown)):
                self._carried.add(made)
            elif not self._carried.add_if_small(made):
                self.left_out.append(phase)
                continue
            self.shown[phase] = episode
            self.thinned += [phase] if thinned else []
        if progress is not None:
            progress(len(order), len(order))
        self.shown = dict(sorted(self.shown.items()))

    def _choose(self, phase: int) -> dict[str, Any]:
        (episodes,) = [one["episodes"] for one in self._index["phases"] if one["phase"] == phase]
        trained = [one for one in episodes if not one["evaluation"]] or list(episodes)
        if self._episode == "newest":
            return dict(trained[-1])
        if self._episode == "worst":
            deviations = [self._deviation(phase, one) for one in trained]
            return dict(trained[deviations.index(max(deviations))])
        for one in trained:
            if one["episode"] == self._episode:
                return dict(one)
        known = ", ".join(str(one["episode"]) for one in trained[:20])
        raise StoreError(
            f"phase {phase} of run {self._uid!r} has no episode {self._episode}; it has: {known}"
        )

    def _deviation(self, phase: int, episode: Mapping[str, Any]) -> float:
        asked = [Query(query) for _, query in self._asked(phase, episode)]
        worst = [motion(self._carried.source, self._uid, query, _MOST_VALUES)["worst"] for query in asked]
        return max((abs(one["value"] - 1) for one in worst if one is not None), default=0.0)

    def _asked(
        self, phase: int, episode: Mapping[str, Any]
    ) -> Iterator[tuple[Mapping[str, Any], dict[str, str]]]:
        """Yield the environments of a phase, and what the page asks of each for the episode."""
        for one in self._index["environments"]:
            if phase in one["topologies"]:
                numbers = {name: str(episode[name]) for name in ("worker", "episode")}
                asked = {"environment": str(one["environment"]), "phase": str(phase), **numbers}
                yield one, asked | ({"evaluation": "1"} if episode["evaluation"] else {})

    def _resources(self, phase: int, episode: Mapping[str, Any]) -> tuple[dict[str, object], bool]:
        """Return the resources of an episode, and whether it is thinned."""
        made: dict[str, object] = {}
        thinned = False
        for environment, asked in self._asked(phase, episode):
            path = f"run/{self._uid}"
            drawn = {
                "environment": asked["environment"],
                "phase": str(environment["topologies"][phase]),
            }
            if address(f"{path}/topology", drawn) not in self._carried.resources:
                made[address(f"{path}/topology", drawn)] = self._carried.get(f"{path}/topology", drawn)
            found = motion(self._carried.source, self._uid, Query(asked), _MOST_VALUES)
            states = len(found["step"])
            thinned |= states < found["states"]
            for name in ("readings", "setpoints"):
                block = found[name]
                values = np.asarray(block["values"], dtype=np.float64).reshape(states, len(block["uids"]))
                found[name] = {**block, "values": compact(values)}
            made[address(f"{path}/motion", asked)] = found
        return made, thinned

    def first(self, other: int | None) -> int:
        """Return the first phase that is shown, and is not the ``other`` one, if there are several."""
        return next((phase for phase in self.shown if phase != other), next(iter(self.shown)))

    def key(self, phase: int) -> str:
        """Return how the page names the episode of a phase in its address."""
        one = self.shown[phase]
        return f"{phase}.{one['worker']}.{one['episode']}{'e' if one['evaluation'] else ''}"

    def index(self) -> dict[str, Any]:
        """Return the index of the episodes that the file has, each environment in its first incarnation."""
        return {
            "running": False,
            "environments": [{**one, "incarnations": 1} for one in self._index["environments"]],
            "phases": [
                {**one, "episodes": [self.shown[one["phase"]]]}
                for one in self._index["phases"]
                if one["phase"] in self.shown
            ],
        }

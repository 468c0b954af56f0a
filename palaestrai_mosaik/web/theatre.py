"""A run as one file: its head, its topologies in motion, rendered frames, and the curves of its overview, without a network."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Literal, cast
from urllib.parse import quote, urlencode

import numpy as np

from palaestrai_mosaik.errors import StoreError, did_you_mean
from palaestrai_mosaik.progress import ProgressCallback
from palaestrai_mosaik.store import Store

from .compact import compact
from .data import get
from .data.grid import motion
from .encoding import to_json
from .films import Films
from .page import single_file
from .resources import Query, Source, address

#: which episode of each phase: a number, the newest one, or the one with the voltage farthest from 1
EpisodeChoice = int | Literal["newest", "worst"]

#: what the overview asks for below ``run/ID``
_OVERVIEW = ("curves",)
#: an episode with more values is thinned
_MOST_VALUES = 1_500_000
#: phases are left out of a file that would be larger (bytes); without its data, a file has about this size
SIZE, _EMPTY = 5_000_000, 800_000


@dataclass(frozen=True)
class RunPage:
    """A run as one file.

    Attributes:
        run: uid of the instance.
        html: the file.
        phases: names of the phases that can be seen in motion, or have rendered frames.
        left_out: names of those for which the file would be too large.
        thinned: names of those of which not all states, or not all frames, are shown.
    """

    run: str
    html: str
    phases: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    thinned: tuple[str, ...] = ()


def run_page(
    store: Store,
    run: str,
    *,
    phases: Sequence[int | str] = (),
    episode: EpisodeChoice = "newest",
    beside: int | str | None = None,
    progress: ProgressCallback | None = None,
) -> RunPage:
    """Return a run as one file.

    Args:
        store: the store that has the run.
        run: which run, as :meth:`Store.find_run` takes it.
        phases: numbers or names of the phases to show in motion, and with their rendered frames. Without any: all,
            but phases are left out, the last ones first, for which the file would be larger than :data:`SIZE`. Frames
            take what is left of that size: of longer episodes, every second, third, ... frame.
        episode: which episode of each phase. Of an episode without frames, those of the newest one with frames are shown.
        beside: number or name of the phase that is shown beside the first one when the file is opened.
        progress: called with the number of phases that have been read, and of all.

    Raises:
        StoreError: there is no such run, phase or episode.
    """
    source = Source(store)
    uid = store.find_run(run)
    facts = cast(dict[str, Any], get(source, f"run/{uid}"))
    index = cast(dict[str, Any], get(source, f"run/{uid}/grid"))
    carried: dict[str, object] = {f"run/{uid}/{path}": get(source, f"run/{uid}/{path}") for path in _OVERVIEW}
    views = ["overview"]
    chosen, films = _Motions(source, uid, index, episode), Films(source, uid)
    possible = {phase for one in index["environments"] for phase in one["topologies"]}
    named = [_phase(index, uid, one, possible | {*films.phases}) for one in phases]
    second = None if beside is None else _phase(index, uid, beside, possible | {*films.phases})
    wanted = [*named, *([] if second is None else [second])]
    chosen.add([phase for phase in wanted if phase in possible], limited=not phases, progress=progress)
    films.add(
        wanted if phases else [*wanted, *films.phases],
        {phase: one["episode"] for phase, one in chosen.shown.items()},
        episode,
        max(0, SIZE - chosen.size),
    )
    home = f"#/run/{quote(uid)}"
    if chosen.shown:
        views.append("grid")
        carried |= chosen.carried
        carried[f"run/{uid}/grid"] = chosen.index()
        first = next((phase for phase in named if phase in chosen.shown), chosen.first(second))
        opened = {"at": chosen.key(first)}
        if second in chosen.shown:
            opened["beside"] = chosen.key(second)
        home += f"/grid?{urlencode(opened)}"
    if films.shown:
        views.append("frames")
        carried |= films.carried
        if not chosen.shown:
            home += f"/frames?{urlencode(films.opened(named, second))}"
    carried[f"run/{uid}"] = {**facts, "views": views}
    names = {int(one["phase"]): str(one["name"]) for one in index["phases"]}
    phases_shown = sorted({*chosen.shown, *(one["phase"] for one in films.shown)})
    return RunPage(
        uid,
        single_file(str(facts["document"]), home, carried),
        tuple(names[phase] for phase in phases_shown),
        tuple(names[phase] for phase in chosen.left_out if phase not in phases_shown),
        tuple(names[phase] for phase in sorted({*chosen.thinned, *films.thinned})),
    )


def _phase(index: Mapping[str, Any], uid: str, wanted: int | str, shown: Set[int]) -> int:
    """Return the number of a phase that can be shown, of those with the numbers ``shown``."""
    known = {one["name"]: one["phase"] for one in index["phases"] if one["phase"] in shown}
    for name, number in known.items():
        if wanted in (name, number):
            return int(number)
    hint = did_you_mean(str(wanted), list(known))
    listed = ", ".join(f"{number} {name!r}" for name, number in known.items()) or "none"
    raise StoreError(f"run {uid!r} has no phase {wanted!r} with a topology or frames{hint}; it has: {listed}")


class _Motions:
    """The episodes that a file has, and the resources that show them."""

    def __init__(self, source: Source, uid: str, index: Mapping[str, Any], episode: EpisodeChoice):
        self._source, self._uid, self._index, self._episode = source, uid, index, episode
        self.carried: dict[str, object] = {}
        #: number of a phase -> the episode of it
        self.shown: dict[int, dict[str, Any]] = {}
        self.left_out: list[int] = []
        self.thinned: list[int] = []
        #: about how many bytes the file has with them
        self.size = _EMPTY

    def add(self, wanted: Sequence[int], *, limited: bool, progress: ProgressCallback | None) -> None:
        """Read the phases ``wanted`` (of none: all); ``limited``: as long as the file stays small."""
        environments = self._index["environments"]
        possible = [
            int(one["phase"])
            for one in self._index["phases"]
            if one["episodes"] and any(one["phase"] in env["topologies"] for env in environments)
        ]
        # (what is named comes first, so that it is not left out)
        order = dict.fromkeys([*wanted, *possible] if limited else wanted)
        size = self.size
        for done, phase in enumerate(order):
            if progress is not None:
                progress(done, len(order))
            episode = self._choose(phase)
            made, thinned = self._resources(phase, episode)
            added = sum(len(gzip.compress(to_json(one, single=True), 6)) * 4 // 3 for one in made.values())
            size += added
            if limited and size > SIZE and self.shown and phase not in wanted:
                self.left_out.append(phase)
                continue
            self.size += added
            self.carried |= made
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
        worst = [motion(self._source, self._uid, query, _MOST_VALUES)["worst"] for query in asked]
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
            if address(f"{path}/topology", drawn) not in self.carried:
                made[address(f"{path}/topology", drawn)] = get(self._source, f"{path}/topology", drawn)
            found = motion(self._source, self._uid, Query(asked), _MOST_VALUES)
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

"""The rendered frames that a page in one file carries: of each phase, those of one episode of each environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from palaestrai_mosaik.errors import StoreError

from .data import get
from .resources import Source, address

#: bytes of a file for one of an image: it is written as text, and the packed data of the file are, too
_GROWTH = 1.4


class Films:
    """The episodes of frames that a file has, and the resources that show them.

    Args:
        source: what is shown.
        uid: uid of the run.
    """

    def __init__(self, source: Source, uid: str):
        self._source, self._path = source, f"run/{uid}"
        self.index = cast(dict[str, Any], get(source, f"{self._path}/frames"))
        self.carried: dict[str, object] = {}
        self.shown: list[dict[str, Any]] = []
        #: numbers of the phases of which not all frames are carried
        self.thinned: list[int] = []

    @property
    def phases(self) -> tuple[int, ...]:
        """The numbers of the phases that have frames."""
        return tuple(sorted({one["phase"] for one in self.index["episodes"]}))

    def add(self, phases: Iterable[int], others: Mapping[int, int], episode: int | str, room: float) -> None:
        """Carry an episode of each environment in each of some phases.

        Args:
            phases: numbers of the phases; of those without frames, nothing is carried.
            others: of which episode of a phase the file has something else. If there are frames of it, they are carried.
            episode: the number of the episode in other phases. Where it is no number, the newest one is carried.
            room: bytes of the file that they may take: of those that take more, only some frames are carried.

        Raises:
            StoreError: there are no frames of the episode with this number.
        """
        chosen = [
            one
            for phase in dict.fromkeys(phases)
            for environment in dict.fromkeys(one["environment"] for one in self.index["episodes"])
            for one in self._choose(phase, environment, others.get(phase), episode)
        ]
        for one in chosen:
            # (what needs less than its share leaves more for the others, which is not worth a second look)
            share = room / len(chosen) / _GROWTH
            self._carry(one, max(1, -(-one["bytes"] // max(1, int(share)))))
        if self.shown:
            self.carried[f"{self._path}/frames"] = {**self.index, "running": False, "episodes": self.shown}

    def opened(self, named: Sequence[int], beside: int | None) -> dict[str, str]:
        """Return the query with which the page opens: the first of the ``named`` phases, else one that is not ``beside``."""
        shown = {one["phase"]: one for one in reversed(self.shown)}
        others = [phase for phase in sorted(shown) if phase != beside] or list(shown)
        first = shown[next((phase for phase in named if phase in shown), others[0])]
        second = None if beside is None else shown.get(beside)
        return {"at": _key(first)} | ({} if second is None else {"beside": _key(second)})

    def _choose(
        self, phase: int, environment: str, other: int | None, episode: int | str
    ) -> Sequence[dict[str, Any]]:
        """Return the episode of an environment in a phase that is carried, in a list; an empty one without frames."""
        own = [
            one
            for one in self.index["episodes"]
            if (one["phase"], one["environment"]) == (phase, environment)
        ]
        trained = [one for one in own if not one["evaluation"]] or own
        wanted = episode if other is None else other
        found = [one for one in trained if one["episode"] == wanted]
        if own and not found and other is None and isinstance(episode, int):
            known = ", ".join(str(one["episode"]) for one in trained[:20])
            raise StoreError(
                f"phase {phase} has no frames of environment {environment!r} in episode {episode}; it has frames of: {known}"
            )
        return (found or trained)[-1:]

    def _carry(self, one: dict[str, Any], every: int) -> None:
        asked = {name: str(one[name]) for name in ("environment", "phase", "worker", "episode")}
        asked |= {"evaluation": "1"} if one["evaluation"] else {}
        film = cast(dict[str, Any], get(self._source, f"{self._path}/film", asked))
        count, together = film["frames"], film["together"]
        kept = list(range(0, count, every))
        if kept[-1] != count - 1:
            # (how it ended is worth most)
            kept.append(count - 1)
        if every > 1:
            self.thinned.append(one["phase"])
        images = self._images(asked, kept, together)
        shorter = {name: [film[name][i] for i in kept] for name in ("step", "time")}
        self.carried[address(f"{self._path}/film", asked)] = {**film, **shorter, "frames": len(kept)}
        for first in range(0, len(kept), together):
            part = {"png": images[first : first + together]}
            self.carried[address(f"{self._path}/images", asked | {"from": str(first)})] = part
        self.shown.append({**one, "frames": len(kept)})

    def _images(self, asked: Mapping[str, str], kept: Sequence[int], together: int) -> list[str]:
        found: dict[int, str] = {}
        wanted = set(kept)
        for first in dict.fromkeys(i - i % together for i in kept):
            made = get(self._source, f"{self._path}/images", {**asked, "from": str(first)})
            for i, image in enumerate(cast(dict[str, list[str]], made)["png"], first):
                if i in wanted:
                    found[i] = image
        return [found[i] for i in kept]


def _key(one: Mapping[str, Any]) -> str:
    """Return how the page names an episode in its address."""
    flag = "e" if one["evaluation"] else ""
    return f"{one['phase']}.{one['worker']}.{one['episode']}{flag}.{one['environment']}"

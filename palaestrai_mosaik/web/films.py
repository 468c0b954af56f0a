"""The rendered frames in a page that is one file: for each phase and environment, those of one episode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from palaestrai_mosaik.core.errors import StoreError

from .data import get
from .data.episodes import episode_key, episode_query
from .resources import Source, address

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
        """Return the query that opens the page.

        Args:
            named: numbers of phases. The page opens with the first one that has frames, else with a phase other than
                ``beside``.
            beside: the number of the phase that is shown beside it; ``None``: none.
        """
        by_phase = {episode["phase"]: episode for episode in reversed(self.shown)}
        candidates = [phase for phase in sorted(by_phase) if phase != beside] or list(by_phase)
        first = by_phase[next((phase for phase in named if phase in by_phase), candidates[0])]
        second = None if beside is None else by_phase.get(beside)
        return {"at": _key(first)} | ({} if second is None else {"beside": _key(second)})

    def _choose(
        self, phase: int, environment: str, other: int | None, episode: int | str
    ) -> Sequence[dict[str, Any]]:
        """Return a list with the episode to carry for an environment in a phase; an empty list without frames."""
        episodes = [
            entry
            for entry in self.index["episodes"]
            if (entry["phase"], entry["environment"]) == (phase, environment)
        ]
        trained = [entry for entry in episodes if not entry["evaluation"]] or episodes
        number = episode if other is None else other
        matching = [entry for entry in trained if entry["episode"] == number]
        if episodes and not matching and other is None and isinstance(episode, int):
            listed = ", ".join(str(entry["episode"]) for entry in trained[:20])
            raise StoreError(
                f"phase {phase} has no frames of environment {environment!r} in episode {episode}; it has frames of: {listed}"
            )
        return (matching or trained)[-1:]

    def _carry(self, episode: dict[str, Any], every: int) -> None:
        query = {name: str(episode[name]) for name in ("environment", "phase")} | episode_query(episode)
        film = cast(dict[str, Any], get(self._source, f"{self._path}/film", query))
        count, together = film["frames"], film["together"]
        kept = list(range(0, count, every))
        if kept[-1] != count - 1:
            # the end of the episode is most important
            kept.append(count - 1)
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
        images_by_index: dict[int, str] = {}
        indices = set(kept)
        for first in dict.fromkeys(i - i % together for i in kept):
            answer = get(self._source, f"{self._path}/images", {**query, "from": str(first)})
            for i, image in enumerate(cast(dict[str, list[str]], answer)["png"], first):
                if i in indices:
                    images_by_index[i] = image
        return [images_by_index[i] for i in kept]


def _key(episode: Mapping[str, Any]) -> str:
    """Return the key of an episode of an environment in the page's address."""
    return f"{episode_key(episode['phase'], episode)}.{episode['environment']}"

"""Episodes in queries and addresses of the page, with their environment and clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from palaestrai_mosaik.plot.columns import clock_of
from palaestrai_mosaik.store import Store

from ..resources import Query, ResourceError


def episode_of(query: Query) -> dict[str, Any]:
    """Return the ``worker``, ``episode`` and ``evaluation`` of a query; by default, the first training episode."""
    return {
        "worker": query.integer("worker", 0),
        "episode": query.integer("episode", 0),
        "evaluation": query.flag("evaluation"),
    }


def episode_query(episode: Mapping[str, Any]) -> dict[str, str]:
    """Return the page's query for an episode, without its environment and phase."""
    query = {name: str(episode[name]) for name in ("worker", "episode")}
    return query | ({"evaluation": "1"} if episode["evaluation"] else {})


def episode_key(phase: int, episode: Mapping[str, Any]) -> str:
    """Return the key of an episode in the page's address."""
    return f"{phase}.{episode['worker']}.{episode['episode']}{'e' if episode['evaluation'] else ''}"


def environment_of(query: Query, environments: Iterable[str]) -> str:
    """Return the environment of a query.

    Raises:
        ResourceError: the query names none; the message lists ``environments``.
    """
    if "environment" not in query:
        listed = ", ".join(dict.fromkeys(environments)) or "none"
        raise ResourceError(f"environment: name one of {listed}")
    return query["environment"]


def clock_data(store: Store, uid: str, phase: int) -> dict[str, Any] | None:
    """Return the date of tick 0 and the seconds of a tick in a phase; ``None`` without a calendar."""
    clock = clock_of(store, uid, phase)
    return None if clock is None else {"start": str(clock.start), "seconds": clock.seconds_per_tick}


def is_running(store: Store, uid: str) -> bool:
    """Whether a run is running."""
    return bool(store.runs(uid)["status"].iloc[0] == "running")

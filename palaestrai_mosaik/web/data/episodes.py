"""Episodes in queries and addresses of the page, and their rendered frames."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.plot.columns import clock_of
from palaestrai_mosaik.store import Store

from ..resources import Query, ResourceError, Source, resource

if TYPE_CHECKING:
    import pandas as pd


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


#: number of images per answer
TOGETHER = 25


@resource("run/{run}/frames", fixed=True)
def frames(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the episodes that have frames.

    ``episodes`` has ``environment``, ``phase``, ``worker``, ``episode``, ``evaluation``, ``frames`` (their number) and
    ``bytes``, evaluations of a phase last; ``phases`` has ``phase`` and ``name``. ``running``: more may come.
    """
    store, uid = source.store, source.store.find_run(run)
    columns = ["environment", "phase", "worker", "episode", "evaluation", "frames", "bytes"]
    return {
        "running": is_running(store, uid),
        "phases": store.phases(uid)[["phase", "name"]].to_dict("records"),
        "episodes": store.recorded_frames(uid)[columns].astype({"evaluation": bool}).to_dict("records"),
    }


def has_frames(store: Store, uid: str) -> bool:
    """Whether frames of the run were requested."""
    return bool((store.streams(uid)["kind"] == "frames").any())


@resource("run/{run}/film", fixed=True)
def film(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the ``step`` and ``time`` (ticks) of each frame of an episode, without the images.

    The query has ``environment``, ``phase``, ``worker``, ``episode`` and ``evaluation``. ``frames`` is the number of
    frames, ``together`` the number of images per request, ``clock`` the date of tick 0 and the seconds of a tick, or
    ``None``.
    """
    store, uid = source.store, source.store.find_run(run)
    rows = _rows(store, uid, query, png=False)
    return {
        "frames": len(rows),
        "step": [int(number) for number in rows["step"]],
        "time": [int(number) for number in rows["time"]],
        "clock": clock_data(store, uid, query.integer("phase", 0)),
        "together": TOGETHER,
    }


@resource("run/{run}/images", fixed=True)
def images(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return ``together`` images of an episode, from number ``from`` on, counted as in :func:`film`.

    ``png``: texts, each a PNG image in base64.
    """
    store, uid = source.store, source.store.find_run(run)
    first = query.integer("from", 0)
    if first < 0:
        raise ResourceError(f"from: expected is a number of at least 0, found {first}")
    times = _rows(store, uid, query, png=False)["time"].tolist()
    chosen = times[first : first + TOGETHER]
    if not chosen:
        return {"png": []}
    rows = _rows(store, uid, query, start=int(chosen[0]), stop=int(chosen[-1]) + 1)
    return {"png": [base64.b64encode(image).decode("ascii") for image in rows["png"]]}


def _rows(store: Store, uid: str, query: Query, **chosen: Any) -> pd.DataFrame:
    environment = environment_of(query, store.recorded_frames(uid)["environment"])
    return store.frames(uid, query.integer("phase", 0), environment, **episode_of(query), **chosen)

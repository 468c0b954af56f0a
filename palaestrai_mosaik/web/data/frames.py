"""What the page shows of rendered frames: of which episodes there are some, when their states are, and the images."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.analysis.columns import clock_of
from palaestrai_mosaik.store import Store

from ..resources import Query, ResourceError, Source, resource

if TYPE_CHECKING:
    import pandas as pd

#: images that are sent at once
TOGETHER = 25


@resource("run/{run}/frames")
def frames(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return of which episodes there are frames.

    ``episodes`` has ``environment``, ``phase``, ``worker``, ``episode``, ``evaluation``, ``frames`` (their number) and
    ``bytes``, evaluations of a phase last; ``phases`` has ``phase`` and ``name``. ``running``: more may come.
    """
    store, uid = source.store, source.store.find_run(run)
    runs, phases = store.runs(), store.phases(uid)
    found = store.recorded_frames(uid)
    return {
        "running": bool((runs.loc[runs["run"] == uid, "status"] == "running").all()),
        "phases": [
            {"phase": int(number), "name": str(name)}
            for number, name in zip(phases["phase"], phases["name"], strict=True)
        ],
        "episodes": [
            {
                "environment": str(row.environment),
                **{name: int(getattr(row, name)) for name in ("phase", "worker", "episode")},
                "evaluation": bool(row.evaluation),
                **{name: int(getattr(row, name)) for name in ("frames", "bytes")},
            }
            for row in found.itertuples(index=False)
        ],
    }


def has_frames(store: Store, uid: str) -> bool:
    """Whether frames of the run were requested."""
    return bool((store.streams(uid)["kind"] == "frames").any())


@resource("run/{run}/film")
def film(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return when the frames of an episode were rendered: ``step`` and ``time`` (ticks) of each, without the images.

    The query has ``environment``, ``phase``, ``worker``, ``episode`` and ``evaluation``. ``frames``: how many there
    are, ``together``: how many images a request gets, ``clock``: the date of tick 0 and the seconds of a tick, or
    ``None``.
    """
    store, uid = source.store, source.store.find_run(run)
    rows = _rows(store, uid, query, png=False)
    phase = query.integer("phase", 0)
    assert phase is not None
    clock = clock_of(store, uid, phase)
    return {
        "frames": len(rows),
        "step": [int(one) for one in rows["step"]],
        "time": [int(one) for one in rows["time"]],
        "clock": None if clock is None else {"start": f"{clock.start}", "seconds": clock.seconds_per_tick},
        "together": TOGETHER,
    }


@resource("run/{run}/images")
def images(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return some images of an episode, as :func:`film` counts them: ``together`` of them, from number ``from`` on.

    ``png``: texts, each a PNG image in base64.
    """
    store, uid = source.store, source.store.find_run(run)
    first = query.integer("from", 0) or 0
    if first < 0:
        raise ResourceError(f"from: expected is a number of at least 0, found {first}")
    times = _rows(store, uid, query, png=False)["time"].tolist()
    chosen = times[first : first + TOGETHER]
    if not chosen:
        return {"png": []}
    rows = _rows(store, uid, query, start=int(chosen[0]), stop=int(chosen[-1]) + 1)
    return {"png": [base64.b64encode(one).decode("ascii") for one in rows["png"]]}


def _rows(store: Store, uid: str, query: Query, **chosen: Any) -> pd.DataFrame:
    if "environment" not in query:
        known = ", ".join(dict.fromkeys(store.recorded_frames(uid)["environment"])) or "none"
        raise ResourceError(f"environment: name one of {known}")
    return store.frames(
        uid,
        query.integer("phase", 0),
        query["environment"],
        query.integer("worker", 0),
        query.integer("episode", 0),
        evaluation=query.flag("evaluation"),
        **chosen,
    )

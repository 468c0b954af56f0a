"""The curves of a run: objective, rewards, statistics and evaluations by episode; and what tells runs apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.store.parts import parts_so_far
from palaestrai_mosaik.store.query.lookup import inside

from ..extremes import places_of_extremes
from ..resources import Query, ResourceError, Source, resource

if TYPE_CHECKING:
    import pandas as pd

    from palaestrai_mosaik.store import Store

#: how many runs may be compared at once: as many lines as can be told apart
_MOST_RUNS = 24
_KEYS = ["phase", "evaluation", "agent", "kind", "name"]


@resource("run/{run}/curves")
def curves(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the curves of a run, and its phases.

    ``known`` (the ``version`` of an earlier answer) asks for them only if they have grown since: ``curves`` is ``null``
    otherwise. ``statistics=0`` leaves out what agents reported, which has to be read from part files.

    A curve has ``phase``, ``evaluation``, ``agent``, ``kind`` (``objective``, ``reward`` or ``statistic``), ``name``, ``x``
    (episodes within the phase, from 0; of an evaluation, the training episodes before it), ``mean`` and ``sum`` of an
    episode's values as the mean over the workers, ``low`` and ``high`` (means of the workers, where there are several), and
    ``episodes``, of which the points that are sent have the extremes.
    """
    store = source.store
    uid = store.find_run(run)
    phases = store.phases(uid)
    # (the phases say how many other episodes there are)
    evaluations = len(store.episodes(uid, evaluation=True))
    with_statistics = query.flag("statistics", True)
    size = _size_of_statistics(store, uid) if with_statistics else 0
    ended = phases["reason"].notna().sum()
    version = f"{phases['episodes_done'].sum()}-{evaluations}-{len(phases)}-{ended}-{size}"
    answer: dict[str, Any] = {"version": version, "phases": phases, "curves": None}
    if query.get("known") != version:
        found = list(_of_episodes(store.outcomes(uid, evaluation=None), store.evaluate_every(uid)))
        if with_statistics:
            found += _of_statistics(store.statistics(uid))
        answer["curves"] = found
    return answer


@resource("run/{run}/episodes")
def episodes(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the table of a run's episodes, the newest first: a row per episode and agent, in columns."""
    table = source.store.episodes(source.store.find_run(run), evaluation=None)
    kept = [name for name in table if not str(name).endswith(("_min", "_max")) and name != "flow"]
    return {"columns": kept, "rows": len(table), "values": table[kept].iloc[::-1]}


@resource("compare")
def compare(source: Source, query: Query) -> dict[str, Any]:
    """Return what tells ``runs`` apart: the paths of their documents with different values.

    ``differences`` has a row per path: ``path``, and ``values`` in the order of the runs (``null``: not in that document).
    """
    asked = query.texts("runs")
    if not 1 <= len(asked) <= _MOST_RUNS:
        raise ResourceError(f"runs: expected 1 to {_MOST_RUNS} runs, found {len(asked)}")
    store = source.store
    uids = [store.find_run(run) for run in asked]
    table = store.runs().set_index("run").loc[uids]
    documents = [dict(_leaves(store.document(uid))) for uid in uids]
    paths = list(dict.fromkeys(path for one in documents for path in one))
    missing = object()
    different = [
        {"path": path, "values": [one.get(path) for one in documents]}
        for path in paths
        if any(one.get(path, missing) != documents[0].get(path, missing) for one in documents[1:])
    ]
    facts = [
        {"run": uid, "document": row.document, "status": row.status, "seed": row.seed}
        for uid, row in zip(uids, table.itertuples(), strict=True)
    ]
    return {"runs": facts, "differences": different}


def _of_episodes(outcomes: pd.DataFrame, every: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    key: Any
    for key, own in outcomes.groupby(_KEYS, sort=False):
        phase, evaluation, *names = key
        by_episode = own.groupby("episode")
        means = by_episode["mean"].agg(["mean", "min", "max"])
        x = means.index.to_numpy(float)
        if evaluation:
            x = (x + 1) * every.get(int(phase), 1)
        several = own["worker"].nunique() > 1
        yield _curve((int(phase), bool(evaluation), *names), x, means, by_episode["sum"].mean(), several)


def _size_of_statistics(store: Store, uid: str) -> int:
    """Return how many bytes the statistics of a run have: another number as soon as there are more."""
    streams = store.streams(uid)
    own = streams.loc[
        (streams["kind"] == "statistics") & ~streams["evaluation"].astype(bool), ["folder", "parts"]
    ]
    directory = store.instance_directory(uid)
    total = 0
    for folder, count in own.itertuples(index=False):
        for path in parts_so_far(inside(directory, folder), count):
            with suppress(FileNotFoundError):  # an open part that has just become a part
                total += path.stat().st_size
    return total


def _of_statistics(statistics: pd.DataFrame) -> Iterator[dict[str, Any]]:
    key: Any
    for key, own in statistics.groupby(["phase", "agent", "key"], sort=False):
        phase, agent, name = key
        by_worker = own.groupby(["episode", "worker"])["value"]
        means = by_worker.mean().groupby("episode").agg(["mean", "min", "max"])
        sums = by_worker.sum().groupby("episode").mean()
        several = own["worker"].nunique() > 1
        names = (int(phase), False, agent, "statistic", name)
        yield _curve(names, means.index.to_numpy(float), means, sums, several)


def _curve(
    key: tuple[Any, ...], x: np.ndarray[Any, Any], means: pd.DataFrame, sums: pd.Series[float], several: bool
) -> dict[str, Any]:
    values = {name: means[name].to_numpy(float) for name in ("mean", "min", "max")}
    shown = places_of_extremes(values["min"], values["max"])
    curve = dict(zip(_KEYS, key, strict=True))
    curve |= {"episodes": len(x), "x": x[shown], "mean": values["mean"][shown]}
    curve["sum"] = sums.to_numpy(float)[shown]
    if several:
        curve |= {"low": values["min"][shown], "high": values["max"][shown]}
    return curve


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of everything in a document that is neither a mapping nor a list of such."""
    if isinstance(value, Mapping) and value:
        for name, one in value.items():
            yield from _leaves(one, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(one, Mapping | list) for one in value):
        for place, one in enumerate(value):
            yield from _leaves(one, f"{path}.{place}")
    else:
        yield path, value

"""The curves of a run: objective, rewards, statistics and evaluations by episode; and what tells runs apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.experiment.short_names import SHORT_NAMES
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.store.parts import parts_so_far
from palaestrai_mosaik.store.query.lookup import inside
from palaestrai_mosaik.text import escape_control_characters

from ..extremes import places_of_extremes
from ..resources import Query, ResourceError, Source, resource
from .bodies import agents_with_several_bodies, by_member, outcomes_of_bodies
from .grid import has_topology

if TYPE_CHECKING:
    import pandas as pd

#: how many runs may be compared at once: as many lines as can be told apart
_MOST_RUNS = 24
#: class of a condition -> its short name, as documents have it
_CONDITIONS = {spec.name.rpartition(":")[2]: name for name, spec in SHORT_NAMES["condition"].items()}
_KEYS = ["phase", "evaluation", "agent", "kind", "name"]
#: what is compared of the episodes of a phase
_COMPARED = ("episodes", "mean", "sum", "last_mean", "last_sum")
_MEMBERS = {"worker": "workers", "body": "bodies"}


@resource("run/{run}/curves")
def curves(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the curves of a run, its phases (``reason`` is the short name of the condition, where it has one) and warnings.

    ``known`` (the ``version`` of an earlier answer) asks for them only if they have grown since: ``curves`` is ``null``
    otherwise. ``statistics=0`` leaves out what agents reported, and ``bands=0`` the bodies that have not been read yet:
    both have to be read from part files. ``unread`` says whether agents with several bodies are whole therefore.

    A curve has ``phase``, ``evaluation``, ``agent``, ``kind`` (``objective``, ``reward`` or ``statistic``), ``name``,
    ``x`` (episodes within the phase, from 0; of an evaluation, the training episodes before it), ``mean`` and ``sum``
    of an episode's values as the mean over workers and bodies, and ``episodes``, of which the points that are sent have
    the extremes. Where there are several workers or bodies, ``over`` says which (``"workers"``, ``"bodies"`` or both),
    ``low`` and ``high`` are their lowest and highest ``mean``, and ``sum_low`` and ``sum_high`` their lowest and
    highest ``sum``; NaN in episodes of which the bodies have not been read yet.
    """
    store = source.store
    uid = store.find_run(run)
    phases = store.phases(uid)
    # (the phases say how many other episodes there are)
    evaluations = len(store.episodes(uid, evaluation=True))
    known = outcomes_of_bodies(store, uid)
    unread = not query.flag("bands", True) and known.version == 0
    if not unread:
        # (an episode that was cut short is not counted, and is the last of its phase)
        done = int(phases["episodes_done"].sum() + phases["reason"].notna().sum()) + evaluations
        known.look(store, uid, done, lambda: _is_running(store, uid))
    with_statistics = query.flag("statistics", True)
    size = _size_of_statistics(store, uid) if with_statistics else 0
    ended = phases["reason"].notna().sum()
    version = f"{phases['episodes_done'].sum()}-{evaluations}-{len(phases)}-{ended}-{size}-{known.version}"
    named = phases.assign(reason=phases["reason"].replace(_CONDITIONS))
    warnings = [escape_control_characters(text) for text in store.warnings(uid)["text"]]
    answer: dict[str, Any] = {"version": version, "phases": named, "warnings": warnings, "curves": None}
    answer["unread"] = unread and bool(agents_with_several_bodies(store, uid))
    if query.get("known") != version:
        rows = by_member(store.outcomes(uid, evaluation=None), known.rows)
        found = list(_of_episodes(rows, store.evaluate_every(uid)))
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
    """Return what tells ``runs`` apart: the paths of their documents with different values, and what the runs gave.

    ``runs`` are the facts of each. ``differences`` has a row per path: ``path``, and ``values`` in the order of the
    runs (``null``: not in that document). ``outcomes`` has a row per phase, agent, and objective or reward, evaluations
    apart: ``phase`` (its name), ``evaluation``, ``agent``, ``kind``, ``name``, and in the order of the runs
    ``episodes``, ``mean`` and ``sum`` (means over all episodes of the phase), and ``last_mean`` and ``last_sum`` (of
    its last episode); NaN where a run has none.
    """
    asked = query.texts("runs")
    if not 1 <= len(asked) <= _MOST_RUNS:
        raise ResourceError(f"runs: expected 1 to {_MOST_RUNS} runs, found {len(asked)}")
    store = source.store
    uids = [store.find_run(run) for run in asked]
    table = store.runs(uids).set_index("run").loc[uids]
    documents = [dict(_leaves(store.document(uid))) for uid in uids]
    paths = list(dict.fromkeys(path for one in documents for path in one))
    missing = object()
    different = [
        {"path": path, "values": [one.get(path) for one in documents]}
        for path in paths
        if any(one.get(path, missing) != documents[0].get(path, missing) for one in documents[1:])
    ]
    names = ("document", "status", "seed", "duration", "episodes", "steps")
    facts = [
        {"run": uid, "grid": has_topology(store, uid), **{name: row[name] for name in names}}
        for uid, (_, row) in zip(uids, table.iterrows(), strict=True)
    ]
    return {"runs": facts, "differences": different, "outcomes": _side_by_side(store, uids)}


def _side_by_side(store: Store, uids: Sequence[str]) -> list[dict[str, Any]]:
    """Return what each run gave by phase, agent, and objective or reward."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for place, uid in enumerate(uids):
        names = store.phases(uid).set_index("phase")["name"]
        outcomes = store.outcomes(uid, evaluation=None)
        outcomes = outcomes.assign(phase=outcomes["phase"].map(names))
        key: Any
        for key, own in outcomes.groupby(_KEYS, sort=False):
            one = rows.setdefault(key, {name: [np.nan] * len(uids) for name in _COMPARED})
            last = own[own["episode"] == own["episode"].max()]
            one["episodes"][place] = int(own["episode"].nunique())
            for fold in ("mean", "sum"):
                one[fold][place] = float(own[fold].mean())
                one[f"last_{fold}"][place] = float(last[fold].mean())
    return [{**dict(zip(_KEYS, key, strict=True)), **one} for key, one in rows.items()]


def _is_running(store: Store, uid: str) -> bool:
    return bool((store.run_rows(store.run_ids([uid]).values())["status"] == "running").any())


def _of_episodes(rows: pd.DataFrame, every: Mapping[int, int]) -> Iterator[dict[str, Any]]:
    key: Any
    for key, own in rows.groupby(_KEYS, sort=False):
        phase, evaluation, *names = key
        by_episode = own.groupby("episode")
        means = by_episode["mean"].agg(["mean", "min", "max"])
        sums = by_episode["sum"].agg(["mean", "min", "max"])
        over = [name for name in ("worker", "body") if own[name].nunique() > 1]
        if "body" in over:
            unread = by_episode["body"].min() < 0
            for moments in (means, sums):
                moments.loc[unread, ["min", "max"]] = np.nan
        x = means.index.to_numpy(float)
        if evaluation:
            x = (x + 1) * every.get(int(phase), 1)
        yield _curve((int(phase), bool(evaluation), *names), x, means, sums, over)


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
        sums = by_worker.sum().groupby("episode").agg(["mean", "min", "max"])
        over = ["worker"] if own["worker"].nunique() > 1 else []
        names = (int(phase), False, agent, "statistic", name)
        yield _curve(names, means.index.to_numpy(float), means, sums, over)


def _curve(
    key: tuple[Any, ...],
    x: np.ndarray[Any, Any],
    means: pd.DataFrame,
    sums: pd.DataFrame,
    over: Sequence[str],
) -> dict[str, Any]:
    """Return a curve; ``over``: of what ``means`` and ``sums`` are the moments, if of several."""
    values = {"mean": means["mean"], "sum": sums["mean"]}
    if over:
        values |= {"low": means["min"], "high": means["max"]}
        values |= {"sum_low": sums["min"], "sum_high": sums["max"]}
    low, high = (means[name].fillna(means["mean"]).to_numpy(float) for name in ("min", "max"))
    shown = places_of_extremes(low, high)
    curve = dict(zip(_KEYS, key, strict=True))
    curve |= {
        "episodes": len(x),
        "x": x[shown],
        "over": " and ".join(_MEMBERS[name] for name in over) or None,
    }
    return curve | {name: column.to_numpy(float)[shown] for name, column in values.items()}


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

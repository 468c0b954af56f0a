"""The curves of a run: objective, rewards, statistics and evaluations by episode; and comparisons of runs.

Unfinished episodes are no points of curves and count in no mean; ``unfinished`` has those of phases without others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from palaestrai_mosaik.core.printing import escape_control_characters
from palaestrai_mosaik.plot.colours import numbers_of_agents
from palaestrai_mosaik.plot.learning import leaves
from palaestrai_mosaik.plot.series import (
    CURVE_KEYS,
    MEMBERS,
    EpisodeCurve,
    agents_by_body,
    body_outcomes,
    by_member,
    episode_curves,
    mean_over_bodies,
    only_unfinished,
    unfinished_text,
)
from palaestrai_mosaik.store import BodyChoice, Store
from palaestrai_mosaik.store.parts import parts_so_far
from palaestrai_mosaik.store.query.lookup import inside
from palaestrai_mosaik.types.endings import ending

from ..encoding import places_of_extremes
from ..resources import Query, ResourceError, Source, resource
from .episodes import is_running
from .grid import has_topology

if TYPE_CHECKING:
    import pandas as pd


#: reading a running run takes at most one part in this number of the time
_SHARE = 10
#: maximum number of runs per store that are remembered
_MOST = 32


class BodyOutcomes:
    """The outcomes of the bodies of a run's agents that have been read so far.

    Attributes:
        version: the number of times that they have been read.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.version = 0
        #: the rows of the last read, as :meth:`look` returns them
        self.rows: pd.DataFrame | None = None
        self._episodes = -1
        self._looked = self._cost = 0.0
        #: the end and the duration of the last computation of the run's curves
        self.drawn = self.drawing = 0.0

    def look(self, store: Store, uid: str, episodes: int, running: Callable[[], bool]) -> pd.DataFrame | None:
        """Return the rows of agents with several bodies; ``None`` if no agent has several.

        Args:
            store: the store.
            uid: uid of the run.
            episodes: the number of ended episodes, or a number that grows with it. If it has changed, the outcomes are
                read again; for a running run, only if reading does not take most of the time.
            running: returns whether the run is running.

        Returns:
            The result of :func:`~palaestrai_mosaik.plot.series.body_outcomes`.
        """
        with self._lock:
            elapsed = time.monotonic() - self._looked
            if episodes != self._episodes and (elapsed >= _SHARE * self._cost or not running()):
                started = time.monotonic()
                self.rows = _read(store, uid)
                self._looked = time.monotonic()
                self._cost = self._looked - started
                self._episodes = episodes
                self.version += 1
            return self.rows


def _read(store: Store, uid: str) -> pd.DataFrame | None:
    return body_outcomes(store, uid, None, BodyChoice(), evaluation=None)


_OUTCOMES: WeakKeyDictionary[Store, dict[str, BodyOutcomes]] = WeakKeyDictionary()
_LOCK = threading.Lock()


def outcomes_of_bodies(store: Store, uid: str) -> BodyOutcomes:
    """Return the shared outcomes of the bodies of a run, the same object for the same store and run."""
    with _LOCK:
        by_run = _OUTCOMES.setdefault(store, {})
        if uid not in by_run and len(by_run) >= _MOST:
            del by_run[next(iter(by_run))]
        return by_run.setdefault(uid, BodyOutcomes())


#: maximum number of compared runs, limited by the lines that a reader can distinguish
_MOST_RUNS = 24
#: the compared values of a phase's episodes
_COMPARED = ("episodes", "mean", "sum", "last_mean", "last_sum")


@resource("run/{run}/curves", fixed=True)
def curves(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the curves of a run, its phases and its warnings.

    ``reason`` of a phase says in words why it has ended.

    ``known`` (the ``version`` of an earlier answer) requests the curves only if they have grown since; otherwise
    ``curves`` is ``null``. ``statistics=0`` leaves out the agents' statistics, and ``bands=0`` bodies that have not
    been read yet: both have to be read from part files. ``unread`` says whether agents with several bodies are
    therefore shown as a whole.

    A curve has ``phase``, ``evaluation``, ``agent``, ``kind`` (``objective``, ``reward`` or ``statistic``), ``name``,
    ``x`` (episodes within the phase, from 0; for an evaluation, the training episodes before it), ``mean`` and ``sum``
    of an episode's values as the mean over workers and bodies, and ``episodes``, the number of episodes. Only points
    with the extremes of long curves are sent. With several workers or bodies, ``over`` names them (``"workers"``,
    ``"bodies"`` or both), ``low`` and ``high`` are their lowest and highest ``mean``, and ``sum_low`` and ``sum_high``
    their lowest and highest ``sum``; NaN in episodes with unread bodies. ``colour`` is the number of the agent's colour
    (:func:`~palaestrai_mosaik.plot.colours.numbers_of_agents`), the same in all figures of the run.

    ``fold`` is the statistic to open with: ``sum``, the return, if rewards accumulate, else ``mean``.

    Episodes in which the run failed or was interrupted are no points of curves. If a phase has no other,
    ``unfinished`` has them, to be drawn open: ``phase``, ``evaluation``, ``agent``, ``kind``, ``name``, ``worker``, ``x``
    (the episode), ``mean``, ``sum``, ``label`` (such as ``unfinished, 4 of 10 steps``) and ``colour``. It is ``null``
    with ``curves``.
    """
    store = source.store
    uid = store.find_run(run)
    phases = store.phases(uid)
    # the table of phases counts all other episodes
    evaluations = len(store.episodes(uid, evaluation=True))
    bodies = outcomes_of_bodies(store, uid)
    unread = not query.flag("bands", True) and bodies.version == 0
    if not unread:
        # an episode that was cut short is not counted, but is the last of its phase
        done = int(phases["episodes_done"].sum() + phases["reason"].notna().sum()) + evaluations
        bodies.look(store, uid, done, lambda: is_running(store, uid))
    with_statistics = query.flag("statistics", True)
    size = _size_of_statistics(store, uid) if with_statistics else 0
    ended = phases["reason"].notna().sum()
    version = f"{phases['episodes_done'].sum()}-{evaluations}-{len(phases)}-{ended}-{size}-{bodies.version}"
    named = phases.assign(reason=phases["reason"].map(ending, na_action="ignore"))
    warnings = [escape_control_characters(text) for text in store.warnings(uid)["text"]]
    answer: dict[str, Any] = {"version": version, "phases": named, "warnings": warnings, "curves": None}
    answer |= {"fold": store.fold(uid), "unfinished": None}
    answer["unread"] = unread and bool(agents_by_body(store, uid, None, BodyChoice()))
    is_early = time.monotonic() - bodies.drawn < _SHARE * bodies.drawing
    if "known" in query and is_early and is_running(store, uid):
        # computing the curves takes at most one part in _SHARE of the time, so the page asks again
        answer["version"] = query["known"]
    elif query.get("known") != version:
        started = time.monotonic()
        every = store.evaluate_every(uid)
        outcomes = mean_over_bodies(store, uid, store.outcomes(uid, evaluation=None, finished=True))
        recorded = list(episode_curves(by_member(outcomes, bodies.rows)))
        if with_statistics:
            recorded += episode_curves(_statistics(store, uid))
        colours = numbers_of_agents(store, uid)
        answer["curves"] = [{**_curve(curve, every), "colour": colours[curve.key[2]]} for curve in recorded]
        answer["unfinished"] = _unfinished(store, uid)
        bodies.drawn = time.monotonic()
        bodies.drawing = bodies.drawn - started
    return answer


@resource("run/{run}/episodes", fixed=True)
def episodes(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the table of a run's episodes, newest first: a row per episode and agent, in columns."""
    table = source.store.episodes(source.store.find_run(run), evaluation=None)
    table["ended_by"] = [ending(reason, episode=True) for reason in table["ended_by"]]
    columns = [name for name in table if not str(name).endswith(("_min", "_max")) and name != "flow"]
    return {"columns": columns, "rows": len(table), "values": table[columns].iloc[::-1]}


@resource("compare")
def compare(source: Source, query: Query) -> dict[str, Any]:
    """Compare ``runs``: the paths at which their documents differ, and their outcomes.

    ``runs`` are the facts of each run. ``differences`` has a row per path: ``path``, and ``values`` in the order of the
    runs (``null``: missing in that document). ``outcomes`` has a row per phase, agent, and objective or reward,
    evaluations apart: ``phase`` (its name), ``evaluation``, ``agent``, ``kind``, ``name``, and in the order of the runs
    ``episodes``, ``mean`` and ``sum`` (means over all episodes of the phase), and ``last_mean`` and ``last_sum`` (of
    its last episode); NaN for runs without values. Unfinished episodes are left out. ``fold`` is the statistic to open
    with: ``sum`` if the rewards of all runs accumulate, else ``mean``.
    """
    runs = query.texts("runs")
    if not 1 <= len(runs) <= _MOST_RUNS:
        raise ResourceError(f"runs: expected 1 to {_MOST_RUNS} runs, found {len(runs)}")
    store = source.store
    uids = [store.find_run(run) for run in runs]
    table = store.runs(uids).set_index("run").loc[uids]
    fold = store.fold(*uids)
    different = _differences(
        [{".".join(path): value for path, value in leaves(store.document(uid))} for uid in uids]
    )
    names = ("document", "status", "seed", "duration", "episodes", "steps")
    facts = [
        {"run": uid, "grid": has_topology(store, uid), **{name: row[name] for name in names}}
        for uid, (_, row) in zip(uids, table.iterrows(), strict=True)
    ]
    return {"runs": facts, "differences": different, "outcomes": _side_by_side(store, uids), "fold": fold}


def _differences(documents: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the paths at which documents differ, with the value in each."""
    paths = dict.fromkeys(path for document in documents for path in document)
    missing = object()
    return [
        {"path": path, "values": [document.get(path) for document in documents]}
        for path in paths
        if any(document.get(path, missing) != documents[0].get(path, missing) for document in documents[1:])
    ]


def _side_by_side(store: Store, uids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the outcomes of each run by phase, agent, and objective or reward."""
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}
    for index, uid in enumerate(uids):
        names = store.phases(uid).set_index("phase")["name"]
        outcomes = mean_over_bodies(store, uid, store.outcomes(uid, evaluation=None, finished=True))
        outcomes = outcomes.assign(phase=outcomes["phase"].map(names))
        key: Any
        for key, group in outcomes.groupby(CURVE_KEYS, sort=False):
            row = rows.setdefault(key, {name: [np.nan] * len(uids) for name in _COMPARED})
            last = group[group["episode"] == group["episode"].max()]
            row["episodes"][index] = int(group["episode"].nunique())
            for fold in ("mean", "sum"):
                row[fold][index] = float(group[fold].mean())
                row[f"last_{fold}"][index] = float(last[fold].mean())
    return [{**dict(zip(CURVE_KEYS, key, strict=True)), **row} for key, row in rows.items()]


def _unfinished(store: Store, uid: str) -> list[dict[str, Any]]:
    """Return the unfinished episodes of the phases that have no finished one."""
    colours = numbers_of_agents(store, uid)
    rows = only_unfinished(store, uid, evaluation=None)
    kept = [*CURVE_KEYS, "worker", "episode", "mean", "sum"]
    return [
        {
            **{"x" if name == "episode" else name: row[name] for name in kept},
            "label": unfinished_text(row["steps"], row["planned"]),
            "colour": colours[row["agent"]],
        }
        for row in rows.to_dict("records")
    ]


def _size_of_statistics(store: Store, uid: str) -> int:
    """Return the size of a run's statistics in bytes, which changes whenever statistics are added."""
    streams = store.streams(uid)
    parts = streams.loc[
        (streams["kind"] == "statistics") & ~streams["evaluation"].astype(bool), ["folder", "parts"]
    ]
    directory = store.instance_directory(uid)
    total = 0
    for folder, count in parts.itertuples(index=False):
        for path in parts_so_far(inside(directory, folder), count):
            with suppress(FileNotFoundError):  # the open part has just been finished, and renamed
                total += path.stat().st_size
    return total


def _statistics(store: Store, uid: str) -> pd.DataFrame:
    """Return the mean and sum of each statistic in each episode of each worker, in the form of outcomes."""
    keys = ["phase", "agent", "key", "episode", "worker"]
    values = store.statistics(uid).groupby(keys, sort=False)["value"].agg(["mean", "sum"]).reset_index()
    return values.rename(columns={"key": "name"}).assign(evaluation=False, kind="statistic", body=-1)


def _curve(curve: EpisodeCurve, every: Mapping[int, int]) -> dict[str, Any]:
    """Return a curve as plain data; ``every`` has the training episodes between evaluations of each phase."""
    phase, evaluation, *_ = curve.key
    means, sums = curve.moments["mean"], curve.moments["sum"]
    x = means.index.to_numpy(float)
    if evaluation:
        x = (x + 1) * every.get(phase, 1)
    values = {"mean": means["mean"], "sum": sums["mean"]}
    if curve.over:
        values |= {"low": means["min"], "high": means["max"]}
        values |= {"sum_low": sums["min"], "sum_high": sums["max"]}
    low, high = (means[name].fillna(means["mean"]).to_numpy(float) for name in ("min", "max"))
    indices = places_of_extremes(low, high)
    return {
        **dict(zip(CURVE_KEYS, curve.key, strict=True)),
        "episodes": len(x),
        "x": x[indices],
        "over": " and ".join(MEMBERS[name] for name in curve.over) or None,
        **{name: column.to_numpy(float)[indices] for name, column in values.items()},
    }

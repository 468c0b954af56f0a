"""What the agents of a run do: their actions over an episode, how far these are from doing nothing, and where they deviate."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from palaestrai_mosaik.plot.columns import Moment, clock_of, unit_of
from palaestrai_mosaik.plot.curves import percentiles_across
from palaestrai_mosaik.plot.limits import Pair, bounds_of
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector, IntVector

from ..encoding import places_of_extremes
from ..resources import Query, ResourceError, Source, resource
from .time import common_clock, moments_of

if TYPE_CHECKING:
    import pandas as pd

_PREFIX = "setpoint."
#: percentiles over the actuators of a unit, by their names in the answer
_LEVELS = {"min": 0, "low": 5, "median": 50, "high": 95, "max": 100}
#: an agent with more actuators of a unit is described by percentiles only
_MOST_LINES = 8
#: the values of actuators that change nothing, by the ends of their names; of others, 0 changes nothing
_NEUTRAL = {"scaling": 1.0, "in_service": 1.0}
#: the default distance from which agents deviate, as a share of the actuators' ranges
_TOLERANCE = 0.05
_INDEX = re.compile(r"\[[\d, ]+\]$")


@dataclass(frozen=True)
class _Actions:
    """The set-points of an agent over an episode, a column per actuator; NaN where it sets nothing."""

    moment: Moment
    agent: str
    time: IntVector
    values: FloatMatrix
    uids: tuple[str, ...]


@dataclass(frozen=True)
class _Scales:
    """The neutral value and the range of each actuator, by uid."""

    neutral: dict[str, float]
    range: dict[str, float]

    def distances(self, actions: _Actions, uids: Sequence[str]) -> FloatMatrix:
        """Return how far each actuator of ``uids`` is from its neutral value, as a share of its range."""
        index_of = {uid: i for i, uid in enumerate(actions.uids)}
        columns = [index_of[uid] for uid in uids]
        neutral = np.array([self.neutral[uid] for uid in uids])
        scale = np.array([self.range[uid] for uid in uids])
        # an actuator that is not set is left alone
        shares: FloatMatrix = np.nan_to_num((actions.values[:, columns] - neutral) / scale)
        return shares


@resource("run/{run}/agent", fixed=True)
def agent(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the actions of agents in an episode of each phase.

    The query has ``phases`` (numbers, separated by commas; default: all with rows), ``worker``, ``episode``,
    ``evaluation``, ``start`` and ``stop``, as those of ``run/ID/series``, ``reference`` (a phase; default: the first one
    shown), and ``tolerance`` (a share; default 0.05).

    u_i(t) is the set-point of actuator i, n_i its neutral value, and r_i its range. n_i is 1 for ``scaling`` and
    ``in_service``, otherwise the value of the actuator's space that is nearest to 0. r_i is the width of the space; of
    an unbounded one, the largest distance of a set-point from n_i in all phases shown. A missing set-point (NaN) sets
    nothing and counts as n_i. Over the m actuators of an agent, and over the k actuators that two series share:

    - distance from doing nothing: d(t) = sqrt(1/m * sum_i ((u_i(t) - n_i) / r_i)^2), a share of the ranges;
    - norm: sqrt(sum_i (u_i(t) - n_i)^2), in the unit of the actuators, if all have the same;
    - deviation: e(t) = sqrt(1/k * sum_i ((u_i(t) - v_i(t)) / r_i)^2), at the ticks that both have.

    Returns:
        ``series``, one per phase and agent: ``phase`` (its index in ``phases``), ``agent``, ``actuators`` (uids),
        ``set`` (share of set-points that are not missing), ``x`` (ticks), ``distance`` and ``norm`` (``null`` with
        several units) at these ticks, ``unit``, ``mean`` and ``largest`` distance, ``at`` (tick of the largest), and
        ``bands``: for each unit of actuators ``unit``, ``count``, ``low_bound`` and ``high_bound`` (``null`` unless all
        have the same), ``x``, the percentiles ``min``, ``low`` (5 %), ``median``, ``high`` (95 %) and ``max`` over the
        actuators, and ``lines`` (``uid`` and ``y`` at ``x``) for up to eight actuators.

        ``deviations``, one per pair of series with common actuators, in one phase, or of the same agent in ``reference``
        and another phase: ``first`` and ``second`` (indices of series), ``actuators`` (number of common ones), ``x``,
        ``distance`` (e), ``mean``, ``largest``, ``at``, ``share`` of the ticks at which e is above ``tolerance``,
        ``since`` (the first of them, or ``null``), and ``spans`` (first and last tick of each run of such ticks).

        ``phases`` have ``phase``, ``name``, ``worker``, ``episode``, ``evaluation`` and ``last``, as in
        ``run/ID/series``, with its ``start`` and ``seconds_per_tick``; ``neutral`` and ``range`` are by uid. Long lines
        are sent with about 2,000 points; other figures are those of all ticks.
    """
    store = source.store
    uid = store.find_run(run)
    tolerance = _share(query)
    window = query.integer("start"), query.integer("stop")
    chosen = list(moments_of(store, uid, query, every=True))
    actions: list[_Actions] = []
    bounds: dict[str, Pair] = {}
    for moment, _ in chosen:
        bounds |= bounds_of(store, uid, moment.phase, "actuator")
        actions += _actions_of(store, uid, moment, window)
    scales = _scales(actions, bounds)
    numbers = [moment.phase for moment, _ in chosen]
    reference = query.integer("reference", numbers[0] if numbers else 0)
    if numbers and reference not in numbers:
        raise ResourceError(f"reference: expected one of the phases {', '.join(map(str, numbers))}")
    return {
        "phases": [
            {
                **{"phase": moment.phase, "name": moment.phase_name, "worker": moment.worker},
                **{"episode": moment.episode, "evaluation": moment.evaluation, "last": last},
            }
            for moment, last in chosen
        ],
        **common_clock([clock_of(store, uid, number) for number in numbers]),
        "tolerance": tolerance,
        "neutral": scales.neutral,
        "range": scales.range,
        "series": [
            {"phase": numbers.index(entry.moment.phase), **_series(entry, scales, bounds)}
            for entry in actions
        ],
        "deviations": list(_deviations(actions, scales, reference, tolerance)),
    }


def _share(query: Query) -> float:
    text = query.get("tolerance", str(_TOLERANCE))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ResourceError(f"tolerance: expected a number of at least 0, found {text!r}")
    return value


def _actions_of(
    store: Store, run: str, moment: Moment, window: tuple[int | None, int | None]
) -> Iterator[_Actions]:
    """Yield the actions of each agent with actuators in an episode, those of its bodies side by side."""
    bodies = store.bodies(run, moment.phase)
    for name in dict.fromkeys(bodies["agent"]):
        columns = map(str, store.steps(run, moment.phase, name, stop=0))
        names = [column for column in columns if column.startswith(_PREFIX)]
        if not names:
            continue
        start, stop = window
        frame = store.steps(*(run, moment.phase, name), columns=names, start=start, stop=stop, **moment.rows)
        table = _by_time(frame, names)
        uids = tuple(_uid(column) for column in table)
        yield _Actions(moment, str(name), table.index.to_numpy(np.int64), table.to_numpy(float), uids)


def _by_time(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return the set-points with a row for each tick, and a column for each actuator of each body."""
    if "body" not in frame:
        return frame.drop_duplicates("time", keep="last").set_index("time")[list(names)]
    last = frame.drop_duplicates(["time", "body"], keep="last")
    table = last.pivot(index="time", columns="body", values=list(names))
    # bodies of other groups have other actuators
    return table[[column for column in table if table[column].notna().any()] or list(table)]


def _uid(column: Any) -> str:
    """Return the uid of an actuator, with the number of the body that has it if there are several."""
    if isinstance(column, tuple):
        name, body = column
        uid = str(name).removeprefix(_PREFIX)
        return uid.replace("{body}", str(body)) if "{body}" in uid else f"{uid} (body {body})"
    return str(column).removeprefix(_PREFIX)


def _bounds(uid: str, bounds: dict[str, Pair]) -> Pair:
    """Return the bounds of an actuator, whose uid can have an index or the number of a body."""
    bare = _INDEX.sub("", uid.partition(" (body ")[0])
    # the channels of several bodies are recorded with a placeholder
    return (
        bounds.get(bare) or bounds.get(re.sub(r"(?<=\.)\d+(?=\.)", "{body}", bare, count=1)) or (None, None)
    )


def _neutral(uid: str, low: float | None, high: float | None) -> float:
    end = uid.partition(" (body ")[0].rpartition(".")[2]
    value = _NEUTRAL.get(end, 0.0)
    value = value if low is None else max(value, low)
    return value if high is None else min(value, high)


def _scales(actions: Sequence[_Actions], bounds: dict[str, Pair]) -> _Scales:
    neutral: dict[str, float] = {}
    ranges: dict[str, float] = {}
    largest: dict[str, float] = {}
    for entry in actions:
        for uid, values in zip(entry.uids, entry.values.T, strict=True):
            low, high = _bounds(uid, bounds)
            neutral[uid] = _neutral(uid, low, high)
            ranges[uid] = 0.0 if low is None or high is None else high - low
            finite = values[np.isfinite(values)]
            far = float(np.abs(finite - neutral[uid]).max(initial=0.0))
            largest[uid] = max(largest.get(uid, 0.0), far)
    return _Scales(neutral, {uid: width or largest[uid] or 1.0 for uid, width in ranges.items()})


def _series(entry: _Actions, scales: _Scales, bounds: dict[str, Pair]) -> dict[str, Any]:
    shares = scales.distances(entry, entry.uids)
    distance = _root_mean_square(shares)
    units = {unit_of(uid) for uid in entry.uids}
    unit = units.pop() if len(units) == 1 else None
    norm: FloatVector | None = None
    if unit is not None:
        norm = np.linalg.norm(shares * [scales.range[uid] for uid in entry.uids], axis=1)
    indices = places_of_extremes(distance)
    return {
        "agent": entry.agent,
        "actuators": list(entry.uids),
        "set": float(np.isfinite(entry.values).mean()) if entry.values.size else 0.0,
        "x": entry.time[indices],
        "distance": distance[indices],
        "norm": None if norm is None else norm[indices],
        "unit": unit,
        **_largest(entry.time, distance),
        "bands": list(_bands(entry, bounds)),
    }


def _root_mean_square(shares: FloatMatrix) -> FloatVector:
    result: FloatVector = np.sqrt((shares**2).sum(axis=1) / max(shares.shape[1], 1))
    return result


def _largest(time: IntVector, distance: FloatVector) -> dict[str, Any]:
    if not len(time):
        return {"mean": None, "largest": None, "at": None}
    index = int(distance.argmax())
    return {"mean": float(distance.mean()), "largest": float(distance[index]), "at": int(time[index])}


def _bands(entry: _Actions, bounds: dict[str, Pair]) -> Iterator[dict[str, Any]]:
    """Yield the percentiles over the actuators of each unit, and the values of a few."""
    columns: dict[str | None, list[int]] = {}
    for i, uid in enumerate(entry.uids):
        columns.setdefault(unit_of(uid), []).append(i)
    for unit, places in columns.items():
        values = entry.values[:, places]
        is_set = np.isfinite(values).any(axis=1)
        levels = np.full((len(_LEVELS), len(values)), np.nan)
        if is_set.any():
            levels[:, is_set] = percentiles_across(values[is_set].T, list(_LEVELS.values()))
        indices = places_of_extremes(levels[0], levels[-1])
        pairs = {_bounds(entry.uids[i], bounds) for i in places}
        low, high = pairs.pop() if len(pairs) == 1 else (None, None)
        few = places if len(places) <= _MOST_LINES else []
        yield {
            **{"unit": unit, "count": len(places), "low_bound": low, "high_bound": high},
            "x": entry.time[indices],
            **{name: level[indices] for name, level in zip(_LEVELS, levels, strict=True)},
            "lines": [{"uid": entry.uids[i], "y": entry.values[indices, i]} for i in few],
        }


def _deviations(
    actions: Sequence[_Actions], scales: _Scales, reference: int, tolerance: float
) -> Iterator[dict[str, Any]]:
    """Yield where agents deviate that share actuators, and each agent from its actions in the reference phase."""
    for i, j in combinations(range(len(actions)), 2):
        one, other = actions[i], actions[j]
        same_phase = one.moment.phase == other.moment.phase
        of_reference = reference in (one.moment.phase, other.moment.phase) and one.agent == other.agent
        if not (same_phase or of_reference):
            continue
        others = set(other.uids)
        common = [uid for uid in one.uids if uid in others]
        if not common:
            continue
        if other.moment.phase == reference and not same_phase:
            i, j, one, other = j, i, other, one
        time, at_one, at_other = np.intersect1d(one.time, other.time, return_indices=True)
        shares = scales.distances(one, common)[at_one] - scales.distances(other, common)[at_other]
        distance = _root_mean_square(shares)
        outside = distance > tolerance
        edges = np.flatnonzero(np.diff(np.concatenate([[False], outside, [False]]).astype(np.int8)))
        spans = [[int(time[a]), int(time[b - 1])] for a, b in edges.reshape(-1, 2)]
        indices = places_of_extremes(distance)
        yield {
            **{"first": i, "second": j, "actuators": len(common)},
            **{"x": time[indices], "distance": distance[indices], **_largest(time, distance)},
            "share": float(outside.mean()) if len(time) else 0.0,
            "since": spans[0][0] if spans else None,
            "spans": spans,
        }

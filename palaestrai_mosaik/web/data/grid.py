"""Topologies in motion in the page: the positions of nodes, and their readings state by state."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.plot.colours import numbers_of_agents
from palaestrai_mosaik.plot.columns import unit_of
from palaestrai_mosaik.plot.limits import FULL_LOADING, VOLTAGE_BAND, bounds_in
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.types import Topology
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector, IntVector

from ..layout import positions
from ..resources import Query, Source, resource
from .episodes import clock_data, environment_of, episode_of, is_running

if TYPE_CHECKING:
    import pandas as pd

#: episodes with more values are thinned, because a browser would take too long
MOST_VALUES = 6_000_000
#: below this voltage, a bus counts as dead
_DEAD = 1e-6


@resource("run/{run}/grid", fixed=True)
def grid(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the environments, phases and episodes that can be shown.

    ``environments`` are those with a topology: ``environment``, ``incarnations``, and ``topologies``, which maps each
    phase with the environment to the first phase with the same topology. ``phases`` has ``phase``, ``name``, ``mode``,
    and ``episodes`` (``worker``, ``episode``, ``evaluation``, in the order of recording). ``running``: more may come.
    """
    store, uid = source.store, source.store.find_run(run)
    recorded, phases = store.environments(uid), store.phases(uid)
    environments = []
    for name in recorded["environment"].unique():
        rows = recorded[recorded["environment"] == name]
        first_phases: dict[Topology, int] = {}
        topologies: dict[int, int] = {}
        for phase in map(int, rows["phase"]):
            topology = _topology(store, uid, str(name), phase)
            if topology is not None and topology.nodes:
                topologies[phase] = first_phases.setdefault(topology, phase)
        if topologies:
            entry = {
                "environment": name,
                "incarnations": int(rows["incarnations"].max()),
                "topologies": topologies,
            }
            environments.append(entry)
    used = {phase for entry in environments for phase in entry["topologies"]}
    return {
        "running": is_running(store, uid),
        "environments": environments,
        "phases": [
            {
                "phase": int(number),
                "name": name,
                "mode": mode,
                "episodes": _episodes(store, uid, int(number)) if number in used else [],
            }
            for number, name, mode in zip(phases["phase"], phases["name"], phases["mode"], strict=True)
        ],
    }


def has_topology(store: Store, uid: str) -> bool:
    """Whether an environment of the run has a topology."""
    names = store.environments(uid)["environment"].unique()
    return any(_topology(store, uid, str(name), None) is not None for name in names)


def _episodes(store: Store, uid: str, phase: int) -> list[dict[str, Any]]:
    """Return the episodes of a phase that have started, evaluations last."""
    keys: dict[tuple[bool, int, int], None] = {}
    running = bool(store.phases(uid).set_index("phase")["ended"].isna().loc[phase])
    for evaluation in (False, True):
        ended = store.episodes(uid, phase, evaluation=evaluation)
        keys |= dict.fromkeys((evaluation, *pair) for pair in _pairs(ended))
        # running episodes have rows, but no end
        if running:
            rows = store.environment_states(uid, phase, columns=[], evaluation=evaluation)
            keys |= dict.fromkeys((evaluation, *pair) for pair in _pairs(rows))
    return [
        {"worker": worker, "episode": episode, "evaluation": evaluation}
        for evaluation, worker, episode in keys
    ]


def _pairs(rows: pd.DataFrame) -> Iterator[tuple[int, int]]:
    """Yield each pair of worker and episode once."""
    pairs = rows[["worker", "episode"]].drop_duplicates()
    yield from zip(map(int, pairs["worker"]), map(int, pairs["episode"]), strict=True)


@lru_cache(maxsize=64)
def _remembered(store: Store, uid: str, environment: str, phase: int | None) -> Topology | None:
    topology = store.topology(uid, environment, phase)
    if topology is None:
        # raise, so that this is not cached: a run that has just started may still record it
        raise LookupError
    return topology


def _topology(store: Store, uid: str, environment: str, phase: int | None) -> Topology | None:
    try:
        return _remembered(store, uid, environment, phase)
    except LookupError:
        return None


def _drawn_topology(store: Store, uid: str, environment: str, phase: int | None) -> Topology:
    """Return the topology of an environment.

    Raises:
        StoreError: it has none.
    """
    topology = _topology(store, uid, environment, phase)
    if topology is None:
        raise StoreError(f"the environment {environment!r} of run {uid!r} has no topology")
    return topology


@resource("run/{run}/topology", fixed=True)
def topology(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the topology of an ``environment`` in a ``phase``, with positions in the drawing.

    ``nodes``, ``edges`` and ``devices`` are lists of mappings, as in :class:`~palaestrai_mosaik.types.Topology`; ``x``
    and ``y`` of nodes are positions in the drawing, from :func:`~palaestrai_mosaik.web.layout.positions`.
    """
    store, uid = source.store, source.store.find_run(run)
    environment = environment_of(query, store.environments(uid)["environment"])
    drawn = _drawn_topology(store, uid, environment, query.integer("phase"))
    data = drawn.to_data()
    for node, (x, y) in zip(data["nodes"], positions(drawn).tolist(), strict=True):
        node["x"], node["y"] = x, y
    return data


@resource("run/{run}/motion", fixed=True)
def _motion(source: Source, run: str, query: Query) -> dict[str, Any]:
    return motion(source, run, query, MOST_VALUES)


def motion(source: Source, run: str, query: Query, most: int) -> dict[str, Any]:
    """Return the readings of a topology's parts, and the agents' set-points, in each state of an episode.

    The query has ``environment``, ``phase``, ``worker``, ``episode``, ``evaluation`` and ``incarnation`` (0). The
    set-points of a state are those that led to it: the last ones that agents chose before its time. An episode with
    more values than ``most`` is thinned.

    Returns:
        ``step`` and ``time`` (ticks) of each state, ``clock`` (the date of tick 0 and the seconds of a tick, or
        ``None``), ``states`` (the number of recorded states; ``step`` is shorter if they are thinned), ``readings`` and
        ``setpoints`` (``uids``, ``units``, ``low`` and ``high`` bounds or ``None``, and ``values``: row after row, one
        for each state; ``setpoints`` also have ``agent``, the position of its owner in ``agents``), ``colours`` (the number of
        each agent's colour, as in ``run/ID/curves``), ``band`` and ``full`` (limits of voltages and loadings), and ``worst`` (``index`` of the state, ``node``, ``value``,
        ``outside`` of the band; ``None`` without voltages).
    """
    store, uid = source.store, source.store.find_run(run)
    environment = environment_of(query, store.environments(uid)["environment"])
    phase, episode = query.integer("phase", 0), episode_of(query)
    drawn = _drawn_topology(store, uid, environment, phase)
    batched = _incarnations(store, uid, phase, environment) > 1
    incarnation = query.integer("incarnation", 0) if batched else None
    channels = store.channels(uid, phase)
    recorded = _recorded(channels, environment)
    sensors = [name for name in _sensors(drawn) if name in recorded]
    columns = [f"reading.{name}" for name in sensors]
    states = store.environment_states(
        *(uid, phase, environment), columns=columns, incarnation=incarnation, **episode
    )
    time = states["time"].to_numpy(np.int64)
    # an episode that has just started has no rows yet
    readings = states.reindex(columns=columns).to_numpy(np.float64)
    agents, owners, setpoints = _setpoints(
        *(store, uid, phase, environment, drawn), incarnation, episode, time
    )
    worst = _worst(drawn, sensors, readings)
    kept = _thinned(len(time), readings.shape[1] + setpoints.shape[1], worst, most)
    if worst is not None:
        worst["index"] = int(np.searchsorted(kept, worst["index"]))
    names = list(owners)
    bounds, limits = bounds_in(channels, "sensor"), bounds_in(channels, "actuator")
    units = dict(channels.loc[channels["unit"].notna(), ["uid", "unit"]].itertuples(index=False, name=None))
    colours = numbers_of_agents(store, uid)
    return {
        "phase": phase,
        **episode,
        "states": len(time),
        "step": states["step"].to_numpy(np.int64)[kept],
        "time": time[kept],
        "clock": clock_data(store, uid, phase),
        "agents": agents,
        "colours": [colours[name] for name in agents],
        "readings": _block(sensors, readings[kept], bounds, units),
        "setpoints": {
            **_block(names, setpoints[kept], limits, {}),
            "agent": [owners[name] for name in names],
        },
        "band": list(VOLTAGE_BAND),
        "full": FULL_LOADING,
        "worst": worst,
    }


def _block(uids: Sequence[str], values: FloatMatrix, bounds: Any, units: Mapping[str, str]) -> dict[str, Any]:
    # a channel with several numbers has the same bounds for all of them
    pairs = [bounds.get(re.sub(r"\[\d+\]$", "", name), (None, None)) for name in uids]
    return {
        "uids": list(uids),
        "units": [units.get(name) or unit_of(name) or "" for name in uids],
        "low": [low for low, _ in pairs],
        "high": [high for _, high in pairs],
        "values": np.ascontiguousarray(values).ravel(),
    }


def _sensors(drawn: Topology) -> dict[str, None]:
    """Return the uids of all sensors of a topology in its order, without duplicates."""
    uids: dict[str | None, None] = dict.fromkeys(node.sensor for node in drawn.nodes)
    uids |= dict.fromkeys(edge.sensor for edge in drawn.edges)
    uids |= dict.fromkeys(sensor for device in drawn.devices for sensor in device.sensors)
    return {name: None for name in uids if name is not None}


def _actuators(drawn: Topology) -> set[str]:
    uids = {actuator for device in drawn.devices for actuator in device.actuators}
    return uids | {edge.actuator for edge in drawn.edges if edge.actuator is not None}


def _recorded(channels: pd.DataFrame, environment: str) -> set[str]:
    """Return the column names of an environment's readings."""
    sensors = channels[(channels["environment"] == environment) & (channels["kind"] == "sensor")]
    sizes = zip(map(str, sensors["uid"]), map(int, sensors["size"]), strict=True)
    return {f"{name}[{i}]" if size > 1 else name for name, size in sizes for i in range(size)}


def _incarnations(store: Store, uid: str, phase: int, environment: str) -> int:
    environments = store.environments(uid, phase)
    return int(environments.loc[environments["environment"] == environment, "incarnations"].iloc[0])


def _setpoints(  # noqa: PLR0913  (which episode, and where)
    store: Store,
    uid: str,
    phase: int,
    environment: str,
    drawn: Topology,
    incarnation: int | None,
    chosen: dict[str, Any],
    time: IntVector,
) -> tuple[list[str], dict[str, int], FloatMatrix]:
    """Return all agents, the owner of each actuator that has one, and the set-points that led to each state."""
    actuators = _actuators(drawn)
    agents = [str(name) for name in store.agents(uid, phase)["agent"]]
    owners: dict[str, int] = {}
    columns: list[FloatVector] = []
    for index, agent in enumerate(agents):
        bodies = store.bodies(uid, phase, agent)
        owned, numbers = _actuators_in(bodies, environment, incarnation)
        owned = [name for name in owned if name in actuators and name not in owners]
        if not owned:
            continue
        names = [f"setpoint.{name}" for name in owned]
        frame = store.steps(
            *(uid, phase, agent),
            columns=names,
            body=numbers if incarnation is not None else None,
            **chosen,
        ).reindex(columns=["time", *names])
        for name, column in zip(owned, names, strict=True):
            owners[name] = index
            columns.append(_held(frame["time"].to_numpy(), frame[column].to_numpy(np.float64), time))
    return agents, owners, np.column_stack(columns) if columns else np.zeros((len(time), 0))


def _actuators_in(
    bodies: pd.DataFrame, environment: str, incarnation: int | None
) -> tuple[list[str], list[int]]:
    """Return the actuators of an agent's bodies in an environment, and the numbers of these bodies."""
    names: dict[str, None] = {}
    numbers: list[int] = []
    row: Any
    for row in bodies.itertuples(index=False):
        if row.environment not in (None, environment):
            continue
        if incarnation is not None and row.incarnations:
            incarnations = list(row.incarnations)
            if incarnation not in incarnations:
                continue
            index = incarnations.index(incarnation) if row.count > 1 else 0
            numbers.append(int(row.first) + index)
        else:
            numbers += range(int(row.first), int(row.first) + int(row.count))
        names |= dict.fromkeys(row.actuators)
    return list(names), numbers


def _held(when: npt.NDArray[Any], values: FloatVector, time: IntVector) -> FloatVector:
    """Return the last value set before each time; NaN before the first one."""
    is_set = np.isfinite(values)
    when, values = when[is_set], values[is_set]
    indices = np.searchsorted(when, time, side="left") - 1
    held = np.full(len(time), np.nan)
    held[indices >= 0] = values[indices[indices >= 0]]
    return held


def _worst(drawn: Topology, uids: Sequence[str], readings: FloatMatrix) -> dict[str, Any] | None:
    """Return the state with the voltage farthest outside the band; if all are inside, the one farthest from 1."""
    column_of = {name: i for i, name in enumerate(uids) if unit_of(name) == "p.u."}
    voltages = [(node.id, column_of[node.sensor]) for node in drawn.nodes if node.sensor in column_of]
    values = readings[:, [column for _, column in voltages]]
    values = np.where(np.abs(values) > _DEAD, values, np.nan)
    if np.isnan(values).all():
        return None
    low, high = VOLTAGE_BAND
    outside = np.maximum(low - values, values - high)
    score = outside if np.nanmax(outside) > 0 else np.abs(values - 1)
    index, column = np.unravel_index(int(np.nanargmax(score)), score.shape)
    value = float(values[index, column])
    outside_band = bool(value < low or value > high)
    return {"index": int(index), "node": voltages[int(column)][0], "value": value, "outside": outside_band}


def _thinned(states: int, columns: int, worst: dict[str, Any] | None, most: int) -> npt.NDArray[np.int64]:
    """Return the indices of the states to send: all, or every n-th with the last and the worst one."""
    stride = max(1, -(-states * columns // most))
    kept = set(range(0, states, stride))
    if stride > 1:
        kept |= {states - 1} | ({worst["index"]} if worst is not None else set())
    return np.array(sorted(kept), dtype=np.int64)

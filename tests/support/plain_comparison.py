"""Compares what the engine records with what the plain loop says."""

from __future__ import annotations

import json
import math
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from support.loop_parts import journal, plain
from support.plain_loop import Phase, Run, expected

from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store

#: calls whose order across all parts is defined with the direct scheduler
ORDERED = {"step", "propose_actions", "thinking", "episode"}


def differences(document: dict[str, Any], store: Store, scheduler: str = "direct") -> list[str]:
    """Run a document by the engine and by plain loops; return the first difference of each kind."""
    run, seen = expected(document)
    journal.clear()
    for item in document["schedule"]:
        for phase in item.values():
            if "simulation" in phase:
                phase["simulation"]["scheduler"] = scheduler
    instance = execute(from_mapping(document), store=store, checkpoint_every=0).instance
    noted, journal[:] = list(journal), []
    found: list[str] = []
    in_process = all(phase.count == 1 for phase in run.phases)
    if in_process and scheduler == "direct":
        # what is different in this order first is the cause of what follows
        _compare(found, "parts", {"order": _ordered(noted)}, {"order": _ordered(seen)})
    _compare(found, "parts", _by_part(noted, run, in_process), _by_part(seen, run, in_process))
    for number, phase in enumerate(run.phases):
        _compare(found, f"phase {number}", _of_engine(store, instance, number), _of_loop(phase))
    phases = store.phases(instance)
    _compare(
        found, "run", {"reasons": phases["reason"].tolist()}, {"reasons": [p.reason for p in run.phases]}
    )
    return found


def _ordered(calls: list[Any]) -> list[Any]:
    """Return the calls within episodes; which brain thinks first at a tick is not defined."""
    result: list[Any] = []
    for thinking, group in groupby((list(c) for c in calls if c[1] in ORDERED), lambda c: c[1] == "thinking"):
        members = list(group)
        result += sorted(members, key=lambda c: c[0]) if thinking else members
    return result


def _by_part(calls: list[Any], run: Run, in_process: bool) -> dict[str, list[Any]]:
    """Return the calls of each part; of several workers, only those of brains are made in this process."""
    brains = {agent.name for phase in run.phases for agent in phase.agents}
    found: dict[str, list[Any]] = {}
    for who, *call in calls:
        if in_process or who in brains:
            found.setdefault(who, []).append(call)
    return found


def _compare(found: list[str], where: str, engine: dict[str, Any], loop: dict[str, Any]) -> None:
    """Add the first difference under each key to ``found``."""
    for key in sorted(engine.keys() | loop.keys()):
        one, other = engine.get(key, []), loop.get(key, [])
        for i in range(max(len(one), len(other))):
            mine, its = (values[i] if i < len(values) else "nothing" for values in (one, other))
            if plain(mine) != plain(its):
                place, mine, its = _narrowed(plain(mine), plain(its))
                found.append(f"{where}, {key} {i}{place}:\n  engine {mine}\n  loop   {its}")
                break


def _narrowed(one: Any, other: Any) -> tuple[str, Any, Any]:
    """Return the innermost lists that hold all differences of two lists."""
    place = ""
    while isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        differ = [i for i in range(len(one)) if one[i] != other[i]]
        if len(differ) != 1 or not isinstance(one[differ[0]], list):
            break
        place += f"[{differ[0]}]"
        one, other = one[differ[0]], other[differ[0]]
    return place, one, other


def _close(value: Any) -> Any:
    return None if value is None or math.isnan(value) else round(float(value), 9)


def _of_engine(store: Store, instance: str, number: int) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    streams = store.streams(instance)
    root = store.instance_directory(instance)
    for stream in streams[streams["phase"] == number].to_dict("records"):
        if stream["kind"] not in ("agent", "environment", "statistics"):
            continue
        for path in sorted((Path(root) / stream["folder"]).glob("part-*.parquet")):
            table = pq.read_table(path)
            evaluation = bool(stream["evaluation"])
            for row in table.to_pylist():
                _file(found, stream, evaluation, row)
    for row in store.episodes(instance, phase=number, evaluation=None).to_dict("records"):
        key = [bool(row.get("evaluation", False)), row["worker"], row["episode"]]
        what = [row["steps"], row["ticks"], row["ended_by"], row["flow"]]
        found.setdefault(f"episodes of {row['agent']}", []).append(
            [key, *what, _close(row["objective_sum"]), _close(row["objective_mean"])]
        )
    for rows in found.values():
        rows.sort(key=lambda row: row[0])
    return found


def _file(found: dict[str, list[Any]], stream: dict[str, Any], evaluation: bool, row: dict[str, Any]) -> None:
    """Add a row of a part file to ``found``; its first item orders it."""
    key = [evaluation, row["worker"], row["episode"]]
    numbers = {
        kind: [row[name] for name in row if name.startswith(f"{kind}.")]
        for kind in ("reading", "setpoint", "reward")
    }
    flags = [row.get("terminated"), row.get("truncated")]
    if stream["kind"] == "statistics":
        item = [[*key, row["step"], row["key"], row["value"]]]
        found.setdefault(f"statistics of {row['agent']}", []).append(item)
    elif stream["kind"] == "agent":
        name = stream["name"]
        key += [row["body"], row["step"]]
        item = [key, row["time"], row["environment_episode"], *numbers.values(), row["objective"], *flags]
        found.setdefault(f"rows of {name}", []).append(item)
    else:
        state = json.loads(row["state"]) if row["state"] else None
        key += [row["incarnation"], row["step"]]
        item = [
            key,
            row["time"],
            row["environment_episode"],
            numbers["reading"],
            numbers["reward"],
            *flags,
            state,
        ]
        found.setdefault(f"states of {stream['name']}", []).append(item)


def _of_loop(phase: Phase) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    batched = {
        e["environment"]["uid"]: "batch" in e["environment"]["params"] for e in phase.document["environments"]
    }
    for evaluation, worker, number, log in phase.episodes:
        key = [evaluation, worker, number]
        for agent, body, row in log.rows:
            numbers = [plain(row.readings), plain(row.setpoints), plain(row.rewards)]
            flags = [row.terminated, row.truncated]
            item = [
                [*key, body, row.step],
                row.time,
                row.environment_episode,
                *numbers,
                plain(row.objective),
                *flags,
            ]
            found.setdefault(f"rows of {agent}", []).append(item)
        for uid, incarnation, step, time, episode, state in log.states:
            flags = [state.terminated, state.truncated]
            told = None if batched[uid] else state.world_state
            item = [
                [*key, incarnation, step],
                time,
                episode,
                plain(state.readings),
                plain(state.rewards),
                *flags,
                told,
            ]
            found.setdefault(f"states of {uid}", []).append(item)
        for agent, step, name, value in log.statistics:
            found.setdefault(f"statistics of {agent}", []).append([[*key, step, name, float(value)]])
        for agent in phase.agents:
            values = log.objectives[agent.name]
            total = [_close(values.sum()), _close(values.mean())] if len(values) else [None, None]
            what = [log.steps, log.time, log.ended_by, log.flow.name]
            found.setdefault(f"episodes of {agent.name}", []).append([key, *what, *total])
    for rows in found.values():
        rows.sort(key=lambda row: row[0])
    return found

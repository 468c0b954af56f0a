"""A recorded world as a picture: a box for each simulator, its entities grouped, in the order in which they step."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from palaestrai_mosaik.text import count

# Of one model in one simulator, more entities than this are one row.
_SINGLE = 8
_NAMED = 3
#: simulator and entity, of a recorded world
_Key = tuple[str, str]


def picture(world: Mapping[str, Any]) -> dict[str, Any]:
    """Return the boxes and arrows of a world as ``Store.world`` gives it.

    Returns:
        ``boxes``: ``simulator``, ``what``, ``rank`` (its place in the order of steps within one time) and ``rows``
        (texts); ``arrows``: ``source`` and ``target`` (each a box and a row, by their numbers), ``label`` and
        ``time_shifted``.
    """
    rows: dict[str, list[str]] = {}
    row_of: dict[_Key, tuple[int, int]] = {}
    connected = {_key(one[end]) for one in world["connections"] for end in ("source", "target")}
    for number, simulator in enumerate(world["simulators"]):
        rows[simulator["simulator"]] = _rows(number, simulator, row_of, connected)
    sizes = Counter(row_of.values())
    flows: dict[tuple[tuple[int, int], tuple[int, int], bool], list[Mapping[str, Any]]] = defaultdict(list)
    for one in world["connections"]:
        source, target = (row_of.get(_key(one[end])) for end in ("source", "target"))
        if source is not None and target is not None:
            flows[source, target, bool(one["time_shifted"])].append(one)
    ranks = _ranks(len(rows), [(a[0], b[0]) for a, b, shifted in flows if not shifted and a[0] != b[0]])
    boxes = [
        {"simulator": uid, "what": simulator["what"], "rank": rank, "rows": own}
        for (uid, own), simulator, rank in zip(rows.items(), world["simulators"], ranks, strict=True)
    ]
    arrows = []
    for (source, target, shifted), connections in flows.items():
        ends = _ends(connections, "source", sizes[source]) + _ends(connections, "target", sizes[target])
        label = _label(connections) + ends
        arrows.append(
            {"source": list(source), "target": list(target), "time_shifted": shifted, "label": label}
        )
    return {"boxes": boxes, "arrows": arrows}


def _key(end: Mapping[str, Any]) -> _Key:
    return end["simulator"], end["entity"]


def _rows(
    number: int, simulator: Mapping[str, Any], row_of: dict[_Key, tuple[int, int]], connected: set[_Key]
) -> list[str]:
    """Return the rows of a box: one for each entity, or one for many entities of a model.

    If few of these are ``connected``, each of them has a row.
    """
    models: dict[str, list[Mapping[str, Any]]] = {}
    for entity in simulator["entities"]:
        models.setdefault(entity["model"], []).append(entity)
    rows: list[str] = []
    for model, entities in models.items():
        names = [entity["entity"] for entity in entities]
        group = _group([name for name in names if (simulator["simulator"], name) not in connected], names)
        grouped = set(group)
        for entity in entities:
            name = entity["entity"]
            if name not in grouped:
                row_of[simulator["simulator"], name] = number, len(rows)
                # the name of a summarised entity has its number already
                rows.append(name if entity.get("count", 1) > 1 else f"{name} [{model}]")
        if group:
            row_of |= {(simulator["simulator"], name): (number, len(rows)) for name in group}
            what = f"{len(group):,} other {model}" if len(group) < len(names) else f"{model} x {len(group):,}"
            rows.append(f"{what} ({group[0]}, ..., {group[-1]})")
    return rows


def _group(idle: list[str], names: list[str]) -> list[str]:
    """Return the entities of one model that share a row: of many, all but the connected ones if these are few."""
    if len(names) <= _SINGLE:
        return []
    return idle if len(names) - len(idle) < _SINGLE else names


def _ends(connections: list[Mapping[str, Any]], end: str, size: int) -> str:
    """Say how many entities of a row the connections begin or end at; ``""`` if all of them."""
    reached = len({one[end]["entity"] for one in connections})
    return "" if reached >= size else f" {'from' if end == 'source' else 'to'} {reached:,} of {size:,}"


def _label(connections: list[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(str(one["data"]) for one in connections))
    text = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} attributes"
    return f"{text} ({count(len(connections), 'connection')})" if len(connections) > len(names) else text


def _ranks(boxes: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return for each box the length of the longest way to it; mosaik has no cycles, what others recorded may."""
    ranks = [0] * boxes
    for _ in range(boxes):
        changed = False
        for source, target in edges:
            if ranks[target] <= ranks[source] < boxes - 1:
                ranks[target] = ranks[source] + 1
                changed = True
        if not changed:
            break
    return ranks

"""Draws a recorded world: a box per simulator, its entities grouped, in the order of their steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from palaestrai_mosaik.core.text import count

# larger groups of entities of one model in one simulator share a row
_SINGLE = 8
_NAMED = 3
#: simulator and entity of a recorded world
_Key = tuple[str, str]


def picture(world: Mapping[str, Any]) -> dict[str, Any]:
    """Return the boxes and arrows of a world from ``Store.world``.

    Returns:
        ``boxes``: ``simulator``, ``what``, ``rank`` (its position in the order of steps within one time) and ``rows``
        (texts); ``arrows``: ``source`` and ``target`` (each the numbers of a box and a row), ``label`` and
        ``time_shifted``.
    """
    rows: dict[str, list[str]] = {}
    row_of: dict[_Key, tuple[int, int]] = {}
    connected = {_key(connection[end]) for connection in world["connections"] for end in ("source", "target")}
    for number, simulator in enumerate(world["simulators"]):
        rows[simulator["simulator"]] = _rows(number, simulator, row_of, connected)
    sizes = Counter(row_of.values())
    flows: dict[tuple[tuple[int, int], tuple[int, int], bool], list[Mapping[str, Any]]] = defaultdict(list)
    for connection in world["connections"]:
        source, target = (row_of.get(_key(connection[end])) for end in ("source", "target"))
        if source is not None and target is not None:
            flows[source, target, bool(connection["time_shifted"])].append(connection)
    ranks = _ranks(len(rows), [(a[0], b[0]) for a, b, shifted in flows if not shifted and a[0] != b[0]])
    boxes = [
        {"simulator": uid, "what": simulator["what"], "rank": rank, "rows": box_rows}
        for (uid, box_rows), simulator, rank in zip(rows.items(), world["simulators"], ranks, strict=True)
    ]
    arrows = [
        {
            **{"source": list(source), "target": list(target), "time_shifted": shifted},
            "label": _label(connections)
            + _ends(connections, "source", sizes[source])
            + _ends(connections, "target", sizes[target]),
        }
        for (source, target, shifted), connections in flows.items()
    ]
    return {"boxes": boxes, "arrows": arrows}


def _key(end: Mapping[str, Any]) -> _Key:
    return end["simulator"], end["entity"]


def _rows(
    number: int, simulator: Mapping[str, Any], row_of: dict[_Key, tuple[int, int]], connected: set[_Key]
) -> list[str]:
    """Return the rows of a box: one per entity, or one for many entities of a model.

    If only few of many entities are ``connected``, each of these has its own row.
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
                # the name of a summarized entity already has its count
                rows.append(name if entity.get("count", 1) > 1 else f"{name} [{model}]")
        if group:
            row_of |= {(simulator["simulator"], name): (number, len(rows)) for name in group}
            what = f"{len(group):,} other {model}" if len(group) < len(names) else f"{model} x {len(group):,}"
            rows.append(f"{what} ({group[0]}, ..., {group[-1]})")
    return rows


def _group(idle: list[str], names: list[str]) -> list[str]:
    """Return the entities of one model that share a row: all if there are many, except a few connected ones."""
    if len(names) <= _SINGLE:
        return []
    return idle if len(names) - len(idle) < _SINGLE else names


def _ends(connections: list[Mapping[str, Any]], end: str, size: int) -> str:
    """Return the number of entities in a row that the connections start or end at, as text; ``""`` if all."""
    reached = len({connection[end]["entity"] for connection in connections})
    return "" if reached >= size else f" {'from' if end == 'source' else 'to'} {reached:,} of {size:,}"


def _label(connections: list[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(str(connection["data"]) for connection in connections))
    text = ", ".join(names) if len(names) <= _NAMED else f"{len(names)} attributes"
    return f"{text} ({count(len(connections), 'connection')})" if len(connections) > len(names) else text


def _ranks(boxes: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return the length of the longest path to each box.

    mosaik permits no cycles, but worlds that others recorded may have some.
    """
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

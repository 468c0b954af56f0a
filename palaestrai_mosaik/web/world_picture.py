"""A recorded world as a picture: a box for each simulator, its entities grouped, in the order in which they step."""

from __future__ import annotations

from collections import defaultdict
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
    for number, simulator in enumerate(world["simulators"]):
        rows[simulator["simulator"]] = _rows(number, simulator, row_of)
    flows: dict[tuple[tuple[int, int], tuple[int, int], bool], list[Mapping[str, Any]]] = defaultdict(list)
    for one in world["connections"]:
        source, target = (
            row_of.get((one[end]["simulator"], one[end]["entity"])) for end in ("source", "target")
        )
        if source is not None and target is not None:
            flows[source, target, bool(one["time_shifted"])].append(one)
    ranks = _ranks(len(rows), [(a[0], b[0]) for a, b, shifted in flows if not shifted and a[0] != b[0]])
    boxes = [
        {"simulator": uid, "what": simulator["what"], "rank": rank, "rows": own}
        for (uid, own), simulator, rank in zip(rows.items(), world["simulators"], ranks, strict=True)
    ]
    arrows = [
        {"source": list(source), "target": list(target), "time_shifted": shifted, "label": _label(found)}
        for (source, target, shifted), found in flows.items()
    ]
    return {"boxes": boxes, "arrows": arrows}


def _rows(number: int, simulator: Mapping[str, Any], row_of: dict[_Key, tuple[int, int]]) -> list[str]:
    models: dict[str, list[Mapping[str, Any]]] = {}
    for entity in simulator["entities"]:
        models.setdefault(entity["model"], []).append(entity)
    rows: list[str] = []
    for model, entities in models.items():
        names = [entity["entity"] for entity in entities]
        if len(entities) > _SINGLE:
            rows.append(f"{model} x {len(entities):,} ({names[0]}, ..., {names[-1]})")
        else:
            rows += [
                # (a group of a world that was recorded as a summary says so itself)
                name if entity.get("count", 1) > 1 else f"{name} [{model}]"
                for name, entity in zip(names, entities, strict=True)
            ]
        first = len(rows) - (1 if len(entities) > _SINGLE else len(entities))
        for i, name in enumerate(names):
            row_of[simulator["simulator"], name] = number, first if len(entities) > _SINGLE else first + i
    return rows


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

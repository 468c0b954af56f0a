"""The record of a run in the page: document, failures and the lines they concern, warnings, log, versions, digests, world.

The document is only read as YAML; nothing is imported, because its author is not trusted.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from palaestrai_mosaik.core.errors import DocumentError
from palaestrai_mosaik.core.printing import count, escape_control_characters
from palaestrai_mosaik.experiment.class_names import SHORT_NAMES, full_name
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.experiment.yaml_text import Lines, read
from palaestrai_mosaik.store import Store

from ..resources import Query, Source, resource

#: number of characters at a traceback's end that are searched: the end has the error and its origin
_MOST = 20_000
#: maximum number of paths that are searched; a text can be crafted to have any number
_MOST_PLACES = 200_000
#: keys of an agent that name classes
_CLASSES = ("muscle", "brain", "objective", "memory", "name")
_NAMED = re.compile(r"\b(agent|environment|sensor|actuator) ('(?:[^'\\\n]|\\.)*'|\"(?:[^\"\\\n]|\\.)*\")")
_PATH = re.compile(r"(?<![\w.])(?:schedule|run_config|definitions)(?:\.[\w-]+)+")
_FRAME = re.compile(r'^ *File "([^"\n]+)", line \d+', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of a document, counted from 1, and the part of the document there that a failure concerns."""

    line: int
    what: str


def marks(text: str, said: str, phase: int | None = None) -> list[Mark]:
    """Return the lines of a run document that a failure concerns, most relevant first.

    Args:
        text: the document.
        said: the failure's traceback with its message.
        phase: number of the phase in which the failure happened; entries of other phases come later.

    Returns:
        The marks; none if the failure names no part of the document, or the text cannot be read.
    """
    try:
        reading = read(text, "")
    except DocumentError:
        return []
    said = said[-_MOST:]
    document = _Document(reading.value, reading.lines, phase)
    candidates = [*document.of_paths(said), *document.of_names(said)] or list(document.of_classes(said))
    seen: dict[int, Mark] = {}
    for mark in candidates:
        seen.setdefault(mark.line, mark)
    return list(seen.values())


class _Document:
    """The plain data of a document, with its lines."""

    def __init__(self, value: Any, lines: Lines, phase: int | None):
        self._lines = lines
        entries = list(_places(value))
        # a phase's values are written in the phase itself, or in an earlier one
        order = sorted(range(len(entries)), key=lambda k: _distance(entries[k][0], phase))
        self._places = [entries[k] for k in order]

    def of_paths(self, said: str) -> Iterator[Mark]:
        """Yield the lines of paths that are written out (``schedule.0.train.agents.1``)."""
        for path in dict.fromkeys(_PATH.findall(said)):
            parts = path.split(".")
            for length in range(len(parts), 1, -1):
                line = self._lines.get(".".join(parts[:length]))
                if line:
                    yield Mark(line, path)
                    break

    def of_names(self, said: str) -> Iterator[Mark]:
        """Yield the lines of agents, environments and channels that are named, last named first."""
        files = _files(said)
        for kind, quoted in reversed(list(dict.fromkeys(_NAMED.findall(said)))):
            name = _unquoted(quoted)
            entries = [path for path, value in self._places if _is_called(path, value, kind, name)]
            if not entries:
                continue
            # the class that raised may be named in an earlier phase, because phases inherit agents
            classes = [mark for path in entries for mark in self._classes(path, files)]
            yield from classes[:1]
            yield from self._mark(entries[0], f"{kind} {name!r}")

    def of_classes(self, said: str) -> Iterator[Mark]:
        """Yield the lines of classes from the traceback's frames, innermost first."""
        files = _files(said)
        for path, value in self._places:
            if isinstance(value, str) and path and _is_class_in(path, value, files):
                yield from self._mark(path, value)

    def _classes(self, entry: Place, files: Sequence[str]) -> Iterator[Mark]:
        for path, value in self._places:
            inside = path[: len(entry)] == entry and len(path) <= len(entry) + 2
            if inside and isinstance(value, str) and _is_class_in(path, value, files):
                yield from self._mark(path, value)

    def _mark(self, path: Place, what: str) -> Iterator[Mark]:
        line = self._lines.nearest(path)
        if line:
            yield Mark(line, what)


def _places(value: Any) -> Iterator[tuple[Place, Any]]:
    """Yield all values with their paths. A value with several aliases is only expanded once."""
    seen: set[int] = set()
    stack: list[tuple[Place, Any]] = [((), value)]
    for _ in range(_MOST_PLACES):
        if not stack:
            return
        path, item = stack.pop()
        yield path, item
        if not isinstance(item, dict | list) or id(item) in seen:
            continue
        seen.add(id(item))
        entries: Iterable[tuple[Any, Any]] = item.items() if isinstance(item, dict) else enumerate(item)
        stack += reversed([((*path, key), child) for key, child in entries])


def _distance(path: Place, phase: int | None) -> int:
    if len(path) < 2 or path[0] != "schedule" or not isinstance(path[1], int):
        return 1_000_000
    return path[1] if phase is None else phase - path[1] if path[1] <= phase else 1_000 + path[1]


def _is_called(path: Place, value: Any, kind: str, name: str) -> bool:
    if kind in ("sensor", "actuator"):
        return value == name and f"{kind}s" in path
    key = {"agent": "name", "environment": "uid"}[kind]
    return isinstance(value, Mapping) and value.get(key) == name and f"{kind}s" in path


def _is_class_in(path: Place, name: str, files: Iterable[str]) -> bool:
    """Whether the class at this path, possibly given by its short name, is defined in one of the files."""
    if path[-1] not in _CLASSES:
        return False
    topic = path[-2] if path[-1] == "name" and len(path) > 1 else path[-1]
    return _is_in(full_name(name, str(topic)) if topic in SHORT_NAMES else name, files)


def _files(said: str) -> list[str]:
    """Return the files of a traceback's frames, innermost first."""
    return [file.replace("\\", "/") for file in reversed(_FRAME.findall(said))]


def _is_in(name: str, files: Iterable[str]) -> bool:
    """Whether one of the files is the module of ``module:Class``."""
    module, colon, _ = name.partition(":")
    path = "/" + module.replace(".", "/")
    return bool(colon and module) and any(
        file.endswith((f"{path}.py", f"{path}/__init__.py")) for file in files
    )


def _unquoted(text: str) -> str:
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text[1:-1]


# larger groups of entities of one model in one simulator share a row
_SINGLE = 8
_MOST_NAMED = 3
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
        rows[simulator["simulator"]] = _box_rows(number, simulator, row_of, connected)
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


def _box_rows(
    number: int, simulator: Mapping[str, Any], row_of: dict[_Key, tuple[int, int]], connected: set[_Key]
) -> list[str]:
    """Return the rows of a box: one per entity, or one for many entities of a model.

    If only few of many entities are ``connected``, each of these has its own row.
    """
    models: dict[str, list[Mapping[str, Any]]] = {}
    for entity in simulator["entities"]:
        models.setdefault(entity["model"], []).append(entity)
    uid = simulator["simulator"]
    rows: list[str] = []
    for model, entities in models.items():
        names = [entity["entity"] for entity in entities]
        idle = [name for name in names if (uid, name) not in connected]
        group = [] if len(names) <= _SINGLE else idle if len(names) - len(idle) < _SINGLE else names
        grouped = set(group)
        for entity, name in zip(entities, names, strict=True):
            if name not in grouped:
                row_of[uid, name] = number, len(rows)
                # the name of a summarized entity already has its count
                rows.append(name if entity.get("count", 1) > 1 else f"{name} [{model}]")
        if group:
            row_of |= {(uid, name): (number, len(rows)) for name in group}
            what = f"{len(group):,} other {model}" if len(group) < len(names) else f"{model} x {len(group):,}"
            rows.append(f"{what} ({group[0]}, ..., {group[-1]})")
    return rows


def _label(connections: list[Mapping[str, Any]]) -> str:
    names = list(dict.fromkeys(str(connection["data"]) for connection in connections))
    text = ", ".join(names) if len(names) <= _MOST_NAMED else f"{len(names)} attributes"
    return f"{text} ({count(len(connections), 'connection')})" if len(connections) > len(names) else text


def _ends(connections: list[Mapping[str, Any]], end: str, size: int) -> str:
    """Return the number of entities in a row that the connections start or end at, as text; ``""`` if all."""
    reached = len({connection[end]["entity"] for connection in connections})
    return "" if reached >= size else f" {'from' if end == 'source' else 'to'} {reached:,} of {size:,}"


def _ranks(boxes: int, edges: list[tuple[int, int]]) -> list[int]:
    """Return the length of the longest path to each box.

    mosaik permits no cycles, but worlds that others recorded may have some.
    """
    ranks = [0] * boxes
    for _ in range(boxes):
        before = list(ranks)
        for source, target in edges:
            if ranks[target] <= ranks[source] < boxes - 1:
                ranks[target] = ranks[source] + 1
        if ranks == before:
            break
    return ranks


@resource("run/{run}/record")
def record(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the run document, failures and their lines in the document, warnings, versions and digests."""
    store = source.store
    uid = store.find_run(run)
    facts = store.runs(uid).iloc[0]
    text = store.document_text(uid).replace("\r\n", "\n")
    phases, streams = store.phases(uid), store.streams(uid)
    # a failure without a phase belongs to the newest one, because no phase starts after a failure
    newest = int(phases["phase"].max()) if len(phases) else None
    failures = []
    for row in _rows(store.errors(uid)):
        said = f"{row['traceback'] or ''}\n{row['message']}"
        concerned = marks(text, said, newest if row["phase"] is None else row["phase"])
        facts_of_failure = {name: row[name] for name in ("phase", "kind", "message", "traceback", "time")}
        failures.append({**facts_of_failure, "marks": list(map(asdict, concerned))})
    names = ("run", "document", "experiment", "seed", "version", "host", "pid", "hash")
    columns = ["phase", "kind", "name", "group", "evaluation", "rows", "digest"]
    result: dict[str, Any] = visible(
        {
            "document": text.removesuffix("\n").split("\n"),
            "failures": failures,
            "warnings": _rows(store.warnings(uid)),
            "facts": {name: facts[name] for name in names},
            "packages": facts["packages"] or {},
            "again": again(store, uid),
            # wall-clock streams differ each time, so they have no digests; frames have none either
            "streams": _rows(streams.loc[~streams["kind"].isin(("wall", "frames")), columns]),
            "phases": _rows(phases[["phase", "name"]]),
        }
    )
    return result


@resource("run/{run}/log")
def log(source: Source, run: str, query: Query) -> dict[str, Any]:
    """Return the log from the character ``from`` on, and the position for the next request."""
    text = source.store.log(run)
    start = query.integer("from", 0)
    # leave out the last line while it is still being written
    stop = len(text) if text.endswith("\n") or not text else text.rfind("\n") + 1
    return {"text": escape_control_characters(text[start:stop]), "next": max(start, stop)}


@resource("run/{run}/world", fixed=True)
def world(source: Source, run: str, query: Query) -> dict[str, Any] | None:
    """Return the world of a phase (default: the newest with a world), as data and as boxes and arrows."""
    recorded = source.store.world(run, query.integer("phase"))
    return None if recorded is None else visible({**recorded, "picture": picture(recorded)})


def again(store: Store, run: str) -> str:
    """Return the command that executes the document of a run again."""
    is_file = store.database.name.startswith("sqlite")
    option = ["--store", str(store.directory) if is_file else store.database.name]
    folder = f"exported-{run}"
    export = shlex.join(["palaestrai-mosaik", "export", run, folder, *option])
    return f"{export} && {shlex.join(['palaestrai-mosaik', 'start', f'{folder}/document.yml', *option])}"


def visible(value: Any) -> Any:
    """Return plain data with control characters escaped, because terminals would obey them if they are pasted."""
    if isinstance(value, str):
        return escape_control_characters(value)
    if isinstance(value, Mapping):
        return {escape_control_characters(str(name)): visible(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [visible(item) for item in value]
    return value


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame, with ``None`` for missing values."""
    rows: Iterable[Mapping[Any, Any]] = frame.to_dict("records")
    return [
        {
            str(name): None if pd.api.types.is_scalar(value) and pd.isna(value) else value
            for name, value in row.items()
        }
        for row in rows
    ]

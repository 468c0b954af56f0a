"""Group runs that are repetitions of each other, and name the groups.

Runs are repetitions if their documents differ only in ``uid`` and ``seed``. Several runs of one
document and seed count once, because they give the same results (unless their workers are
asynchronous): the newest run represents them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik.store.query.runs import short_ids

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store

# Documents that differ in more keys than this are labelled by the ids of their runs.
_MOST_DIFFERENCES = 2
_LONGEST_VALUE = 24

_Path = tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Repetitions by their uids; ``left_out`` are older executions of one document and seed."""

    label: str
    runs: tuple[str, ...]
    left_out: tuple[str, ...] = ()


def find_groups(store: Store, runs: Sequence[str]) -> list[Group]:
    """Group the runs by repetition, in the order of their first members."""
    repetitions: list[tuple[Any, list[str]]] = []
    for run in runs:
        document = _comparable(store.document(run))
        same = next((members for other, members in repetitions if other == document), None)
        if same is None:
            repetitions.append((document, [run]))
        else:
            same.append(run)
    table = store.runs()
    names: dict[str, str] = dict(zip(table["run"], table["document"], strict=True))
    seeds: dict[str, int] = dict(zip(table["run"], table["seed"], strict=True))
    labels = _labels(repetitions, names)
    groups = []
    for label, (document, members) in zip(labels, repetitions, strict=True):
        # The uid of an instance begins with its date.
        newest = set(members) if _is_asynchronous(document) else _newest(members, seeds)
        left_out = tuple(run for run in members if run not in newest)
        groups.append(Group(label, tuple(run for run in members if run in newest), left_out))
    return groups


def learning_title(groups: Sequence[Group]) -> str:
    """Return a title with the sizes of groups: ``6 runs: ppo (3), cem (3)``."""
    sizes = [(group.label, len(group.runs)) for group in groups]
    if len(sizes) == 1:
        return f"{sizes[0][1]} runs of {sizes[0][0]}"
    return f"{sum(n for _, n in sizes)} runs: " + ", ".join(f"{label} ({n})" for label, n in sizes)


def _newest(runs: Sequence[str], seeds: Mapping[str, int]) -> set[str]:
    return set({seeds[run]: run for run in sorted(runs)}.values())


def _comparable(document: Mapping[str, Any]) -> Any:
    """Return the document without the parts that differ between repetitions.

    A document that loads its own brains by its uid is equivalent to one that names no run.
    """
    uid = document.get("uid")

    def without(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key: without(item)
                for key, item in value.items()
                if key != "experiment_run" or item not in (None, uid)
            }
        return [without(item) for item in value] if isinstance(value, list) else value

    return without({key: value for key, value in document.items() if key not in ("uid", "seed")})


def _is_asynchronous(document: Mapping[str, Any]) -> bool:
    phases = [phase for entry in document.get("schedule", []) for phase in entry.values()]
    return any(phase["phase_config"].get("asynchronous") for phase in phases)


def _labels(groups: Sequence[tuple[Any, Sequence[str]]], names: Mapping[str, str]) -> list[str]:
    """Return a label for each group: the common name of its documents, with the differences to groups of that name.

    ``names`` are those of the documents of all runs in the store.
    """
    labels = [_common([names[run] for run in members]) for _, members in groups]
    for label in {label for label in labels if labels.count(label) > 1}:
        indices = [i for i, other in enumerate(labels) if other == label]
        endings = _differences([groups[i][0] for i in indices])
        if len(set(endings)) < len(indices):
            short = short_ids(list(names))
            endings = [short[groups[i][1][0]] for i in indices]
        for i, ending in zip(indices, endings, strict=True):
            labels[i] = f"{label} [{ending}]"
    return labels


def _common(names: Sequence[str]) -> str:
    """Return the common prefix of the names of repetitions, without a number at the end."""
    if len(set(names)) == 1:
        return names[0]
    letters = takewhile(lambda column: len(set(column)) == 1, zip(*names, strict=False))
    return re.sub(r"[\W_]*(seed|run)?[\W_\d]*$", "", "".join(letter for letter, *_ in letters)) or names[0]


def _differences(documents: Sequence[Any]) -> list[str]:
    """Return the differences as ``key=value`` for each document; nothing if there are too many."""
    leaves = [dict(_leaves(document)) for document in documents]
    differing: dict[tuple[_Path, tuple[str, ...]], None] = {}
    for path in dict.fromkeys(path for flat in leaves for path in flat):
        values = tuple(flat.get(path, "none") for flat in leaves)
        if len(set(values)) > 1:
            # Later phases inherit a difference, which is shown once.
            differing[path[3:] if path[0] == "schedule" else path, values] = None
    if len(differing) > _MOST_DIFFERENCES:
        return []
    names = _short_names([path for path, _ in differing])
    texts = [
        [f"{name}={_end(value)}" for value in values]
        for name, (_, values) in zip(names, differing, strict=True)
    ]
    return [", ".join(parts) for parts in zip(*texts, strict=True)]


def _leaves(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Yield the key paths of a document with their values; a list of plain values counts as one value."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, (*path, str(key)))
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for i, item in enumerate(value):
            yield from _leaves(item, (*path, str(i)))
    else:
        yield path, str(value)


def _short_names(paths: Sequence[_Path]) -> list[str]:
    """Return the last two parts of each key, or full keys if the short ones are ambiguous."""
    full = [tuple(part for part in path if part != "params") or path for path in paths]
    short = [".".join(path[-2:]) for path in full]
    return short if len(set(short)) == len(short) else [".".join(path) for path in full]


def _end(value: str) -> str:
    # The end of a class's name is more distinctive than its beginning.
    return value if len(value) <= _LONGEST_VALUE else f"...{value[-_LONGEST_VALUE:]}"

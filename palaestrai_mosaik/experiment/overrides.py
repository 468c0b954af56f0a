"""Changes of single values of a run document, as ``start --set PATH=VALUE`` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from palaestrai_mosaik.errors import DocumentError, Problem

from .paths import Changes, Keys, Path
from .short_names import with_mappings
from .vocabulary import PHASE, TOP
from .yaml_text import read

#: path -> value
Overrides = Mapping[str, Any]


def parse(settings: Iterable[str]) -> dict[str, Any]:
    """Return the overrides that ``settings`` say (``PATH=VALUE``, the value in YAML).

    Raises :class:`~palaestrai_mosaik.errors.DocumentError` for what cannot be read, and a path that is given twice.
    """
    overrides: dict[str, Any] = {}
    problems = []
    for text in settings:
        path, equals, value = text.partition("=")
        path = path.strip()
        if not equals or not path:
            problems.append(
                Problem(f"--set {text}: write PATH=VALUE, such as schedule.train.phase_config.episodes=3")
            )
        elif path in overrides:
            problems.append(Problem(f"--set {text}: {path!r} is set twice"))
        else:
            try:
                reading = read(value, f"--set {text}") if value.strip() else None
            except DocumentError as error:
                problems += error.problems
                continue
            overrides[path] = None if reading is None else reading.value
            if reading is not None:
                problems += [Problem(f"--set {text}: {message}") for _, message, _ in reading.problems]
    if problems:
        raise DocumentError(problems)
    return overrides


def overridden(data: Any, overrides: Overrides, source: str) -> Any:
    """Return the run document ``data`` with other values at some paths; ``data`` is not written to.

    A path begins with a key of the document (``schedule.train.phase_config.episodes``, ``seed``), or with a key of
    a phase (``agents.defender.muscle.params.gain``): then it is set in every phase in which it leads somewhere. Its last
    key may be new, of a path in phases in the first of them that has the others.
    Raises :class:`~palaestrai_mosaik.errors.DocumentError` for paths that lead nowhere.
    """
    if not overrides or not isinstance(data, dict):
        return data
    whole = with_mappings(data)
    changes, problems = Changes(), []
    for text, value in overrides.items():
        try:
            places = _places(Path.parse(text), whole)
        except DocumentError as error:
            problems += [
                Problem(f"--set {text}: {problem.message}", file=source) for problem in error.problems
            ]
            continue
        for keys in places:
            changes.set(keys, value)
    if problems:
        raise DocumentError(problems)
    return changes.applied(whole)


def _places(path: Path, document: Mapping[str, Any]) -> list[Keys]:
    """Return where ``path`` leads. Raises :class:`DocumentError`."""
    first = path.parts[0]
    if first not in PHASE.keys or first in document:
        found = path.find(document, create=first in TOP.keys)
        if found.fault is not None:
            raise DocumentError([Problem(f"it leads nowhere: {found.fault}")])
        return [found.keys]
    places, faults = [], []
    for create in (False, True):
        for keys, phase in _phases(document):
            found = path.find(phase, create)
            if found.fault is None:
                places.append((*keys, *found.keys))
                if create:
                    break
            else:
                faults.append((len(found.keys), found.fault))
        if places:
            return places
    # of the phase in which it leads furthest
    fault = max(faults, default=(0, "there is no phase"), key=lambda one: one[0])[1]
    raise DocumentError([Problem(f"it leads nowhere in any phase: {fault}")])


def _phases(document: Mapping[str, Any]) -> Iterable[tuple[Keys, Any]]:
    schedule = document.get("schedule")
    if isinstance(schedule, dict):
        for name, phase in schedule.items():
            yield ("schedule", name), phase
    for index, item in enumerate(schedule if isinstance(schedule, list) else ()):
        if isinstance(item, dict):
            for name, phase in item.items():
                yield ("schedule", index, name), phase

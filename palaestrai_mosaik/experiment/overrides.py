"""Overrides of single values of a run document, as in ``start --set PATH=VALUE``."""

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
    """Parse ``settings`` (``PATH=VALUE``, the value in YAML).

    Raises :class:`~palaestrai_mosaik.errors.DocumentError` if a setting cannot be read, or a path is set twice.
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

    Args:
        data: the run document as plain data.
        overrides: values by path. A path begins with a key of the document
            (``schedule.train.phase_config.episodes``, ``seed``), or with a key of a phase
            (``agents.defender.muscle.params.gain``), which sets the value in every phase that has this path. Its
            last key may be new; in paths of phases, it is then set in the first phase that has the other keys.
        source: the name of the document in messages.

    Raises:
        DocumentError: a path does not exist.
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
    """Resolve ``path``. Raises :class:`DocumentError`."""
    first = path.parts[0]
    if first not in PHASE.keys or first in document:
        target = path.find(document, create=first in TOP.keys)
        if target.fault is not None:
            raise DocumentError([Problem(f"it leads nowhere: {target.fault}")])
        return [target.keys]
    places, faults = [], []
    for create in (False, True):
        for keys, phase in _phases(document):
            target = path.find(phase, create)
            if target.fault is None:
                places.append((*keys, *target.keys))
                if create:
                    break
            else:
                faults.append((len(target.keys), target.fault))
        if places:
            return places
    # report the phase with the longest match
    fault = max(faults, default=(0, "there is no phase"), key=lambda entry: entry[0])[1]
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

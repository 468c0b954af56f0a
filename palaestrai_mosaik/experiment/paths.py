"""Paths into a run document, and other values there: ``schedule.phase_0.agents.defender.muscle.params.gain``.

Each part selects a key of a mapping, or an item of a list by its ``uid`` or ``name`` (its own, or
that of its ``environment``), or the value below the only key of an item (a
phase of a schedule). Exactly one must match. ``[2]`` selects by index, and a part with
dots or brackets is written in double quotes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palaestrai_mosaik.core.errors import DocumentError, Problem, did_you_mean

from .class_names import default_uid
from .fields import show
from .vocabulary import PHASE, TOP
from .yaml_text import read

#: Keys and indices of plain data, from the top.
Keys = tuple[Any, ...]
_PART = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|\[(?P<index>\d+)\]|(?P<plain>[^."\[\]]+)')
_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Path:
    """A parsed path: ``parts`` are names, or integers for indices."""

    text: str
    parts: tuple[str | int, ...]

    @classmethod
    def parse(cls, text: str) -> Path:
        """Parse ``text``. Raises :class:`~palaestrai_mosaik.core.errors.DocumentError`."""
        parts: list[str | int] = []
        position = 0
        while True:
            match = _PART.match(text, position)
            if match is None:
                raise _unreadable(text, position)
            if match["index"] is not None:
                parts.append(int(match["index"]))
            else:
                parts.append(match["plain"] if match["quoted"] is None else _unquoted(match, text))
            position = match.end()
            if position == len(text):
                return cls(text, tuple(parts))
            if text[position] == ".":
                position += 1
            elif text[position] != "[":
                raise _unreadable(text, position)

    def find(self, document: Any, create: bool = False) -> Found:
        """Follow the path in ``document`` (plain data).

        With ``create`` the last key may be missing from an existing mapping, and so may the ``params`` of a
        class that hold it.
        """
        keys: Keys = ()
        node = document
        for number, part in enumerate(self.parts):
            rest = self.parts[number:]
            if create and len(rest) == 2 and _lacks_params(node, part):
                return Found((*keys, *rest), None)
            selected, fault = _select(node, part)
            if fault is not None:
                if len(rest) == 1 and _can_create(node, part):
                    if create:
                        return Found((*keys, part), None)
                    fault += "; to set what the document does not give, add create: true to the factor"
                return Found(keys, f"{quoted(keys) or 'the document'} {fault}")
            for key in selected:
                node = node[key]
            keys += selected
        return Found(keys, None)


@dataclass(frozen=True, slots=True)
class Found:
    """The result of following a path: ``keys`` as far as it goes, and the ``fault`` that ends it there."""

    keys: Keys
    fault: str | None


def quoted(keys: Iterable[str | int]) -> str:
    """Format ``keys`` as a path."""
    text = ""
    for key in keys:
        if isinstance(key, int) and not isinstance(key, bool):
            text += f"[{key}]"
            continue
        part = str(key)
        plain = re.fullmatch(r'[^."\[\]]+', part) is not None
        text += ("." if text else "") + (part if plain else json.dumps(part, ensure_ascii=False))
    return text


def _unreadable(text: str, position: int) -> DocumentError:
    where = f"at character {position + 1}" if position < len(text) else "at its end"
    message = (
        f"the path {text!r} is not understood {where}: parts stand between dots, an index in brackets ([2]), a part "
        'with dots in double quotes ("a.b")'
    )
    return DocumentError([Problem(message)])


def _unquoted(match: re.Match[str], text: str) -> str:
    try:
        part = json.loads(match[0])
    except ValueError:
        raise _unreadable(text, match.start()) from None
    return str(part)


def _can_create(node: Any, part: str | int) -> bool:
    return isinstance(node, dict) and isinstance(part, str)


def _lacks_params(node: Any, part: str | int) -> bool:
    """Whether ``node`` is a class without parameters (a name or a mapping) and ``part`` is ``params``."""
    if part != "params":
        return False
    if isinstance(node, dict):
        of_an_agent = not {"muscle", "sensors", "actuators", "bodies"}.isdisjoint(node)
        has_params = node.get("params") is not None or "parameters" in node
        return isinstance(node.get("name"), str) and not has_params and not of_an_agent
    return isinstance(node, str)


def _select(node: Any, part: str | int) -> tuple[Keys, str | None]:
    """Return the keys of ``node`` that ``part`` selects, or a fault."""
    if isinstance(node, dict):
        return _key(node, part)
    if isinstance(node, list):
        return _item(node, part)
    return (), f"is {show(node)}, which has no part {part!r}"


def _key(node: dict[Any, Any], part: str | int) -> tuple[Keys, str | None]:
    if isinstance(part, int):
        return (), f"is a mapping, [{part}] needs a list; keys: {_listed(node)}"
    if part in node:
        return (part,), None
    for key in node:  # a key that is a number or a boolean
        if not isinstance(key, str) and str(key) == part:
            return (key,), None
    return (), f"has no key {part!r}{did_you_mean(part, map(str, node))}; keys: {_listed(node)}"


def _item(node: list[Any], part: str | int) -> tuple[Keys, str | None]:
    if isinstance(part, int):
        if part < len(node):
            return (part,), None
        return (), f"has no [{part}]: it has {len(node)} items"
    matches = [index for index, item in enumerate(node) if part in _names(item)]
    if len(matches) == 1:
        index = matches[0]
        item = node[index]
        # an item named by its only key stands for the value below that key
        return ((index,) if _own_names(item) else (index, next(iter(item)))), None
    if matches:
        places = ", ".join(f"[{index}]" for index in matches)
        return (), f"has {len(matches)} items {part!r} ({places}); select one by its index"
    names = dict.fromkeys(name for item in node for name in _names(item))
    if not names:
        return (), f"is a list of {len(node)} items without names; select one by its index, [0]"
    return (), f"has no item {part!r}{did_you_mean(part, names)}; items: {_listed(names)}"


def _names(item: Any) -> list[str]:
    """List the names of an item of a list: its own, or else its only key."""
    if not isinstance(item, dict):
        return []
    return _own_names(item) or ([str(next(iter(item)))] if len(item) == 1 else [])


def _own_names(item: dict[Any, Any]) -> list[str]:
    inner = item.get("environment")
    holders = (item, inner if isinstance(inner, dict) else {})
    names = [holder[key] for holder in holders for key in ("uid", "name") if isinstance(holder.get(key), str)]
    uid = uid_of(inner)
    return names if uid is None or uid in names else [*names, uid]


def _listed(names: Iterable[Any]) -> str:
    texts = [str(name) for name in names]
    more = f", ... ({len(texts)} in all)" if len(texts) > _MAX_SHOWN else ""
    return ", ".join(texts[:_MAX_SHOWN]) + more if texts else "none"


class Changes:
    """Changes of a document, as a tree: branches without a change are shared, not copied."""

    def __init__(self) -> None:
        self._tree: dict[Any, Any] = {}

    def set(self, keys: Keys, value: Any) -> None:
        """Add a change of the value at ``keys``; no other change may be inside or around it."""
        node = self._tree
        for key in keys[:-1]:
            node = node.setdefault(key, {})
        node[keys[-1]] = _Value(value)

    def applied(self, document: Any) -> Any:
        """Return ``document`` with all changes; it is not written to, and unchanged parts are shared."""
        return _changed(document, self._tree)


class _Value:
    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def _changed(node: Any, tree: dict[Any, Any]) -> Any:
    copy = node.copy()
    for key, change in tree.items():
        if type(change) is _Value:
            copy[key] = change.value
            continue
        inner = node.get(key) if isinstance(node, dict) else node[key]
        if isinstance(inner, str):  # a class by its name alone
            inner = {"name": inner}
        copy[key] = _changed({} if inner is None else inner, change)
    return copy


def uid_of(environment: object) -> str | None:
    """Return the uid of an environment as written (a name or a mapping); ``None`` if it has none."""
    if isinstance(environment, str):
        return default_uid(environment)
    if not isinstance(environment, dict):
        return None
    uid, name = environment.get("uid"), environment.get("name")
    if uid is not None:
        return str(uid)
    return default_uid(name) if isinstance(name, str) else None


#: keys with classes, of entries of ``environments``, agents, bodies, ``simulation`` and ``run_config``
_ONE_CLASS = ("environment", "reward", "state_transformer", "brain", "muscle", "objective", "condition")
_CLASSES = ("filters", "conditions")


def with_mappings(document: Mapping[str, Any]) -> dict[str, Any]:
    """Expand every class of a run document to a mapping with name and params, so that paths can enter it.

    The first phase gets its ``simulation`` written out. Faulty parts stay unchanged.
    """
    whole = dict(document)
    defined = document.get("definitions")
    if not isinstance(defined, dict):
        defined = {}
    names = {topic: set(part) for topic, part in defined.items() if isinstance(part, dict)}
    if defined:
        whole["definitions"] = {topic: _each(part, _entry) for topic, part in defined.items()}
    schedule = document.get("schedule")
    if isinstance(schedule, list):
        whole["schedule"] = [_each(phase, lambda item: _phase(item, names)) for phase in schedule]
    elif isinstance(schedule, dict):
        whole["schedule"] = _each(schedule, lambda item: _phase(item, names))
    if "simulation" not in names:
        _write_out_simulation(whole)
    if "run_config" in document:
        whole["run_config"] = _entry(document["run_config"])
    return whole


def _write_out_simulation(document: Mapping[str, Any]) -> None:
    """Write out the defaults of ``simulation`` in the first phase that is a mapping."""
    first = next((phase for _, phase in _phases(document) if isinstance(phase, dict)), {})
    simulation = first.get("simulation")
    if simulation is None:
        simulation = {"conditions": [_class("environment")]}
    if isinstance(simulation, dict):
        first["simulation"] = {"name": "vanilla", **simulation}


def _each(value: Any, change: Callable[[Any], Any]) -> Any:
    return {key: change(item) for key, item in value.items()} if isinstance(value, dict) else value


def _phase(phase: Any, names: Mapping[str, set[Any]]) -> Any:
    if not isinstance(phase, dict):
        return phase
    whole = dict(phase)
    for topic in ("environments", "agents"):
        if isinstance(phase.get(topic), list):
            whole[topic] = [_entry(entry) for entry in phase[topic]]
    if isinstance(phase.get("environments"), list):
        defined = names.get("environments", set())
        whole["environments"] = [
            {"environment": _class(entry)} if isinstance(entry, str) and entry not in defined else entry
            for entry in whole["environments"]
        ]
    simulation = phase.get("simulation")
    if isinstance(simulation, str) and simulation not in names.get("simulation", set()):
        whole["simulation"] = {"name": simulation}
    elif simulation is not None:
        whole["simulation"] = _entry(simulation)
    return whole


def _entry(entry: Any, single: Sequence[str] = _ONE_CLASS) -> Any:
    """Expand the classes of an entry; the keys ``single`` have one class each."""
    if not isinstance(entry, dict):
        return entry
    whole = dict(entry)
    for key, value in entry.items():
        if key in single and isinstance(value, str):
            whole[key] = _class(value)
        elif key in _CLASSES and isinstance(value, list):
            whole[key] = [_class(item) if isinstance(item, str) else item for item in value]
        elif key == "bodies" and isinstance(value, list):
            # the environment of a body is a uid
            whole[key] = [_entry(item, _ONE_CLASS[1:]) for item in value]
    return whole


def _class(name: str) -> dict[str, Any]:
    return {"name": name, "params": {}}


#: path -> value
Overrides = Mapping[str, Any]


def parse(settings: Iterable[str]) -> dict[str, Any]:
    """Parse ``settings`` (``PATH=VALUE``, the value in YAML).

    Raises :class:`~palaestrai_mosaik.core.errors.DocumentError` if a setting cannot be read, or a path is set twice.
    """
    overrides: dict[str, Any] = {}
    problems: list[Problem] = []
    for text in settings:
        path, equals, value = text.partition("=")
        path, messages = path.strip(), []
        if not equals or not path:
            messages = ["write PATH=VALUE, such as schedule.train.phase_config.episodes=3"]
        elif path in overrides:
            messages = [f"{path!r} is set twice"]
        else:
            try:
                reading = read(value, f"--set {text}") if value.strip() else None
            except DocumentError as error:
                problems += error.problems
                continue
            overrides[path] = None if reading is None else reading.value
            messages = [] if reading is None else [message for _, message, _ in reading.problems]
        problems += [Problem(f"--set {text}: {message}") for message in messages]
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
            texts = [f"--set {text}: {problem.message}" for problem in error.problems]
            problems += [Problem(message, file=source) for message in texts]
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

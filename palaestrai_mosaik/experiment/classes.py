"""Do the classes that a document names exist, and do its params fit their constructors?"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from palaestrai_mosaik.errors import NameResolutionError, Problem, did_you_mean

from .located import show
from .model import ClassSpec, Place, RunDocument
from .names import resolve


def check_classes(
    document: RunDocument, bases: Mapping[str, type] | None = None, find: Callable[[str, str], type] = resolve
) -> list[Problem]:
    """Import every class that ``document`` names and return what is wrong with any of them.

    A class must be importable (``find`` returns it for a name and a topic), derive from its
    topic's class in ``bases`` (topics: ``names.TOPICS``; a topic left out is not checked), be no
    abstract class, and take the document's params as keywords of its constructor.
    """
    bases = bases or {}
    problems: dict[Problem, None] = {}
    checked: dict[tuple[str, int], list[tuple[str, Place]]] = {}
    for topic, name, params, place in named_classes(document):
        key = (topic, id(params))  # an inherited spec is shared: look at it once
        if key not in checked:
            checked[key] = list(_faults(find, topic, name, params, bases.get(topic)))
            for message, tail in checked[key]:
                problems[document.problem(message, *place, *tail)] = None
    return list(problems)


def named_classes(document: RunDocument) -> Iterator[tuple[str, str, dict[str, Any], Place]]:
    """Yield topic, name, params and place of every class that ``document`` names."""
    for index, phase in enumerate(document.phases):
        here: Place = ("phases", index)
        for number, environment in enumerate(phase.environments):
            place = (*here, "environments", number)
            yield "environment", environment.name, environment.params, place
            yield from _optional(environment, ("reward", "state_transformer"), place)
        for number, agent in enumerate(phase.agents):
            place = (*here, "agents", number)
            yield from _optional(agent, ("brain", "muscle", "objective"), place)
            yield from _listed("filter", agent.filters, (*place, "filters"))
            for body_number, body in enumerate(agent.bodies):
                there = (*place, "bodies", body_number)
                yield from _optional(body, ("muscle", "objective"), there)
                yield from _listed("filter", body.filters, (*there, "filters"))
        yield from _listed("condition", phase.simulation.conditions, (*here, "simulation", "conditions"))
    yield from _listed("condition", document.conditions, ("conditions",))


def _optional(
    owner: Any, topics: tuple[str, ...], place: Place
) -> Iterator[tuple[str, str, dict[str, Any], Place]]:
    for topic in topics:
        spec: ClassSpec | None = getattr(owner, topic)
        if spec is not None:
            yield topic, spec.name, spec.params, (*place, topic)


def _listed(
    topic: str, specs: tuple[ClassSpec, ...], place: Place
) -> Iterator[tuple[str, str, dict[str, Any], Place]]:
    for number, spec in enumerate(specs):
        yield topic, spec.name, spec.params, (*place, number)


def _faults(
    find: Callable[[str, str], type], topic: str, name: str, params: dict[str, Any], base: type | None
) -> Iterator[tuple[str, Place]]:
    """Yield what is wrong, with the place relative to the class's own."""
    try:
        cls = find(name, topic)
    except NameResolutionError as error:
        yield str(error), ("name",)
        return
    if base is not None and not issubclass(cls, base):
        yield f"{name!r} is no {topic}: it does not derive from {base.__module__}:{base.__name__}", ("name",)
        return
    if inspect.isabstract(cls):
        lacking = ", ".join(sorted(getattr(cls, "__abstractmethods__", ())))
        yield f"{name!r} is abstract: it does not implement {lacking}", ("name",)
    yield from _misfits(cls, name, params)


def _misfits(cls: type, name: str, params: dict[str, Any]) -> Iterator[tuple[str, Place]]:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):  # some classes written in C do not tell
        return
    accepted = signature.parameters.values()
    keywords = [p.name for p in accepted if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    if not any(p.kind is p.VAR_KEYWORD for p in accepted):
        for key in params:
            if key not in keywords:
                allowed = ", ".join(keywords) or "none"
                yield (
                    f"{name!r} takes no parameter {key!r}{did_you_mean(key, keywords)}; allowed: {allowed}",
                    ("params", key),
                )
    for parameter in accepted:
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        ):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            yield f"{name!r} takes {parameter.name!r} by position only; params are keywords", ("name",)
        elif parameter.name not in params:
            found = ", ".join(params) if params else show({})
            yield f"{name!r} needs the parameter {parameter.name!r}; found {found}", ("params",)

"""Checks of the classes that a document names: whether they exist, the params fit, and no hook is misspelt."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import SequenceMatcher
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from palaestrai_mosaik.core.errors import NameResolutionError, Problem, did_you_mean
from palaestrai_mosaik.core.importing import (
    COMMANDS,
    OURS,
    broken_overrides,
    check_origin,
    importable,
    load,
    load_entry_point,
)

from .class_names import (
    MOVED,
    PALAESTRAI_NAMES,
    SHORT_NAMES,
    canonical_name,
    entry_points_of,
    full_name,
    name_fault,
    naming,
)
from .fields import show
from .model import UNREAD, AgentSpec, BodySpec, ClassSpec, Place, RunDocument


def resolve(name: str, topic: str) -> type:
    """Import a class by name.

    Args:
        name: ``package.module:Class`` (the working directory is importable), one of palaestrAI's names, or a
            short name that a package registered as an entry point in the group ``palaestrai_mosaik.<topic>``.
        topic: the role of the class, one of :data:`TOPICS`.

    Returns:
        The class.

    Raises:
        NameResolutionError: there is no such class, or its import failed; then the message has the traceback.
    """
    fault = name_fault(name)
    if fault is not None:
        raise NameResolutionError(fault)
    name = full_name(name, topic)
    if ":" not in name:
        return _resolve_short(name, topic)
    target = canonical_name(name)
    try:
        cls = load(MOVED.get(target, target))
    except NameResolutionError as error:
        if target.startswith("palaestrai.") and not importable("palaestrai"):
            raise NameResolutionError(
                f"{name!r} is a class of palaestrAI, which is not installed here, and it is not one of "
                f"those that this package brings{did_you_mean(name, PALAESTRAI_NAMES)}"
            ) from None
        raise NameResolutionError(f"{name!r}: {error}") from error.__cause__
    return _as_class(cls, name)


def _as_class(cls: Any, name: str) -> type:
    if not inspect.isclass(cls):
        raise NameResolutionError(f"{name!r} is not a class but a {type(cls).__name__}")
    return cls


def _resolve_short(name: str, topic: str) -> type:
    registered = entry_points_of(topic)
    if name not in registered:
        names = sorted({*registered, *SHORT_NAMES[topic]})
        raise NameResolutionError(
            f"{name!r} is no short name of a class for {topic!r}{did_you_mean(name, names)}; short names: "
            f"{', '.join(names) or 'none'}; of your own class, write 'package.module:Class'"
        )
    entry = registered[name]
    cls = load_entry_point(entry)
    check_origin(cls, entry.value)
    return _as_class(cls, name)


def modules_of(document: RunDocument) -> set[str]:
    """Collect the modules that ``document`` names, without this package's own classes.

    They are the modules that :func:`~palaestrai_mosaik.core.importing.only_modules` has to allow for it, including
    ``cmd:`` and ``connect:`` if it has such simulators, and ``cmd:`` if it has an
    interpreter. Modules of objects in a grid's file are not included.
    """
    modules = {
        module
        for _, name, params, _ in named_classes(document)
        for module, _, ours in naming(name, params)
        if not (ours and module.partition(".")[0] == OURS)
    }
    return modules | ({COMMANDS} if _elsewhere(document) else set())


def _elsewhere(document: RunDocument) -> set[Place]:
    """Collect the places of the environments in separate interpreters, which have their classes."""
    return {
        ("phases", index, "environments", number)
        for index, phase in enumerate(document.phases)
        for number, environment in enumerate(phase.environments)
        if environment.interpreter is not None
    }


def check_classes(
    document: RunDocument, bases: Mapping[str, type] | None = None, find: Callable[[str, str], type] = resolve
) -> list[Problem]:
    """Import every class that a document names, and check it.

    A class must be importable, derive from its topic's class, not be abstract, and take the document's
    params as keywords of its constructor. An environment in a separate interpreter is not checked: its
    class may exist only there.

    Args:
        document: the document.
        bases: the required base class by topic (:data:`TOPICS`). A topic
            that is left out is not checked; ``None``: no topic is.
        find: returns the class for a name and a topic.

    Returns:
        All problems.
    """
    bases = bases or {}
    problems: dict[Problem, None] = {}
    checked: dict[tuple[str, int], list[tuple[str, Place]]] = {}
    for topic, name, params, path in _classes_here(document):
        key = (topic, id(params))  # an inherited spec is shared: check it once
        if key not in checked:
            faults = _faults(find, topic, name, params, bases.get(topic))
            checked[key] = [(message + _beside(document.source, message), tail) for message, tail in faults]
            for message, tail in checked[key]:
                problems[document.problem(message, *path, *tail)] = None
    return list(problems)


def hook_warnings(document: RunDocument, find: Callable[[str, str], type] = resolve) -> list[Problem]:
    """Warn of methods of a document's classes with nearly the name of a method of their contract.

    Args:
        document: the document. Classes that :func:`check_classes` reports are left out, and so are environments in
            separate interpreters.
        find: returns the class for a name and a topic.

    Returns:
        A warning for each such method.
    """
    messages: dict[tuple[str, str], list[str]] = {}
    warnings: dict[Problem, None] = {}
    for topic, name, _, path in _classes_here(document):
        if (topic, name) not in messages:
            messages[topic, name] = []
            with suppress(NameResolutionError):
                cls = find(name, topic)
                if not inspect.isabstract(cls):
                    messages[topic, name] += unused_methods(cls, name)
        for message in messages[topic, name]:
            warnings[document.problem(message, *path, "name")] = None
    return list(warnings)


def unused_methods(cls: type, name: str) -> Iterator[str]:
    """Yield a message for each method of ``cls`` that nothing calls; the document calls the class ``name``."""
    for method, hook in misspelt_hooks(cls).items():
        yield f"{name!r} has a method {method!r} that nothing calls (did you mean {hook!r}?)"


#: see :func:`~palaestrai_mosaik.core.importing.import_module`
_NO_MODULE = re.compile(r"there is no module '(\w+)'")


def _beside(source: str, message: str) -> str:
    """Advise what to do if a missing module is in the folder of the document at ``source``."""
    missing = _NO_MODULE.search(message)
    folder = Path(source).parent
    if missing is None or not any((folder / name).exists() for name in (f"{missing[1]}.py", missing[1])):
        return ""
    return (
        f"; it lies beside the document, and modules are found in the working directory: cd {folder} first, or set "
        f"PYTHONPATH={folder}"
    )


#: topic, name, params and place of a class in a document
NamedClass = tuple[str, str, dict[str, Any], Place]


def named_classes(document: RunDocument) -> Iterator[NamedClass]:
    """Yield every class in ``document``."""
    for index, phase in enumerate(document.phases):
        here: Place = ("phases", index)
        for number, environment in enumerate(phase.environments):
            path = (*here, "environments", number)
            yield "environment", environment.name, environment.params, path
            yield from _optional(environment, ("reward", "state_transformer"), path)
        for number, agent in enumerate(phase.agents):
            path = (*here, "agents", number)
            yield from _optional(agent, ("brain",), path)
            bodies = [(body, (*path, "bodies", i)) for i, body in enumerate(agent.bodies)]
            parts: list[tuple[AgentSpec | BodySpec, Place]] = [(agent, path), *bodies]
            for part, at in parts:
                yield from _optional(part, ("muscle", "objective"), at)
                yield from _listed("filter", part.filters, (*at, "filters"))
        yield from _listed("condition", phase.simulation.conditions, (*here, "simulation", "conditions"))
    yield from _listed("condition", document.conditions, ("conditions",))


def _classes_here(document: RunDocument) -> Iterator[NamedClass]:
    """Yield the classes of a document, except those of environments in separate interpreters."""
    elsewhere = _elsewhere(document)
    return (named for named in named_classes(document) if named[3] not in elsewhere)


def _optional(owner: Any, topics: tuple[str, ...], path: Place) -> Iterator[NamedClass]:
    for topic in topics:
        spec: ClassSpec | None = getattr(owner, topic)
        if spec is not None and spec is not UNREAD:
            yield topic, spec.name, spec.params, (*path, topic)


def _listed(topic: str, specs: tuple[ClassSpec, ...], path: Place) -> Iterator[NamedClass]:
    for number, spec in enumerate(specs):
        if spec is not UNREAD:
            yield topic, spec.name, spec.params, (*path, number)


def _faults(
    find: Callable[[str, str], type], topic: str, name: str, params: dict[str, Any], base: type | None
) -> Iterator[tuple[str, Place]]:
    """Yield the problems of a class, with places relative to the class's."""
    try:
        cls = find(name, topic)
    except NameResolutionError as error:
        yield str(error), ("name",)
        return
    if base is not None and not issubclass(cls, base):
        yield f"{name!r} is no {topic}: it does not derive from {base.__module__}:{base.__name__}", ("name",)
        return
    if inspect.isabstract(cls):
        near = {hook: method for method, hook in misspelt_hooks(cls).items()}
        lacking = ", ".join(
            f"{hook}, but has {near[hook]!r}" if hook in near else hook
            for hook in sorted(getattr(cls, "__abstractmethods__", ()))
        )
        yield f"{name!r} is abstract: it does not implement {lacking}", ("name",)
    for fault in () if base is None else broken_overrides(cls, base):
        yield f"{name!r}: {fault}", ("name",)
    yield from _misfits(cls, name, params)


#: booleans of YAML 1.1, which are text in YAML 1.2
_OLD_BOOLEANS = {
    **dict.fromkeys(("y", "yes", "on", "true"), "true"),
    **dict.fromkeys(("n", "no", "off", "false"), "false"),
}


def _is_boolean(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is annotated as a boolean, or has one as its default."""
    kind = parameter.annotation
    return isinstance(parameter.default, bool) or kind in (bool, "bool", "bool | None", "Optional[bool]")


def _misfits(cls: type, name: str, params: dict[str, Any]) -> Iterator[tuple[str, Place]]:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):  # some classes written in C have no signature
        return
    parameters = signature.parameters.values()
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        yield from _unknown_parameters(parameters, name, params)
    for parameter in parameters:
        value = params.get(parameter.name)
        meant = _OLD_BOOLEANS.get(value.lower()) if isinstance(value, str) else None
        if meant is not None and _is_boolean(parameter):
            yield (
                f"{parameter.name!r} of {name!r} is true or false, found {show(value)}, which is text in YAML 1.2; "
                f"write {meant}",
                ("params", parameter.name),
            )
        optional = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if not optional and parameter.default is parameter.empty:
            yield from _missing_parameter(parameter, name, params)


def _missing_parameter(
    parameter: inspect.Parameter, name: str, params: Mapping[str, Any]
) -> Iterator[tuple[str, Place]]:
    """Yield a problem if the ``params`` lack a parameter that the class ``name`` needs."""
    if parameter.kind is parameter.POSITIONAL_ONLY:
        yield f"{name!r} takes {parameter.name!r} by position only; params are keywords", ("name",)
    elif parameter.name not in params:
        names = ", ".join(params) if params else show({})
        yield f"{name!r} needs the parameter {parameter.name!r}; found {names}", ("params",)


def _unknown_parameters(
    parameters: Iterable[inspect.Parameter], name: str, params: Mapping[str, Any]
) -> Iterator[tuple[str, Place]]:
    """Yield a problem for each of the ``params`` that the class ``name`` does not take."""
    keywords = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    for key in params:
        if key not in keywords:
            allowed = ", ".join(keywords) or "none"
            near = did_you_mean(key, keywords)
            yield f"{name!r} takes no parameter {key!r}{near}; allowed: {allowed}", ("params", key)


#: packages with contracts; misspellings in their own classes are not the user's concern
_FRAMEWORKS = ("palaestrai_mosaik", "palaestrai", "mosaik_api_v3", "mosaik_api")
_METHODS = (FunctionType, classmethod, staticmethod)
#: the least similarity (0 to 1) of a method's name and a hook's, without case and underscores
_NEAR = 0.78


def misspelt_hooks(cls: type) -> dict[str, str]:
    """Find the methods of a class that nothing calls, and that have nearly the name of a hook.

    A hook is a public method of the class's contract: the nearest base class from this package, from palaestrAI
    or from mosaik. Hooks that the class overrides are not considered, nor are methods that another method of the
    class refers to.

    Args:
        cls: the class; an adapter for a class of palaestrAI is replaced by that class.

    Returns:
        The name of the hook by the name of the method.
    """
    cls = getattr(cls, "wrapped_class", cls)
    contract = next((base for base in cls.__mro__ if _is_framework(base)), None)
    if contract is None:
        return {}
    defined = _definitions(cls, contract)
    used = {name for _, value in defined for name in _names_in(value)}
    unused = [name for name, _ in defined if name not in used and not hasattr(contract, name)]
    methods = _public_methods(cls, unused)
    hooks = _public_methods(contract, {*dir(contract)} - {name for name, _ in defined}) if methods else []
    near = {name: _nearest_hook(name, hooks) for name in methods}
    return {name: hook for name, hook in near.items() if hook}


def _definitions(cls: type, contract: type) -> list[tuple[str, Any]]:
    """List the members, with names, that a class and its bases define, without those of frameworks."""
    users = [base for base in cls.__mro__ if issubclass(base, contract) and not _is_framework(base)]
    return [member for base in users for member in vars(base).items()]


def _public_methods(cls: type, names: Iterable[str]) -> list[str]:
    """List those of the ``names`` that are public methods of a class."""
    public = (name for name in names if not name.startswith("_"))
    return [name for name in public if isinstance(inspect.getattr_static(cls, name), _METHODS)]


def _nearest_hook(name: str, hooks: Sequence[str]) -> str:
    """Return the hook with a name most similar to ``name``; ``""`` if none is similar enough."""

    def similarity(hook: str) -> float:
        a, b = (text.lower().replace("_", "") for text in (name, hook))
        return SequenceMatcher(None, a, b).ratio()

    ratio, nearest = max(((similarity(hook), hook) for hook in hooks), default=(0.0, ""))
    return nearest if ratio >= _NEAR else ""


def _is_framework(cls: type) -> bool:
    return cls.__module__.partition(".")[0] in _FRAMEWORKS


def _names_in(value: Any) -> Iterator[str]:
    """Yield the names that the code of a method or property refers to."""
    if isinstance(value, property):
        functions = [value.fget, value.fset, value.fdel]
    else:
        functions = [getattr(value, "__func__", value)]
    codes = [function.__code__ for function in functions if isinstance(function, FunctionType)]
    while codes:
        code = codes.pop()
        yield from code.co_names
        codes += [constant for constant in code.co_consts if isinstance(constant, CodeType)]

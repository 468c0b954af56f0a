"""Checks of the classes, modules and channels that a document names: whether they exist, and the params fit."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from palaestrai_mosaik.errors import NameResolutionError, Problem, did_you_mean
from palaestrai_mosaik.importing import (
    COMMANDS,
    CONNECTIONS,
    OURS,
    broken_overrides,
    check_origin,
    importable,
    load,
    load_entry_point,
    only_modules,
    refusal,
)
from palaestrai_mosaik.text import listed

from .hooks import misspelt_hooks
from .located import show
from .model import UNREAD, ClassSpec, Place, RunDocument
from .short_names import SHORT_NAMES, full_name

__all__ = [
    "PALAESTRAI_NAMES",
    "TOPICS",
    "canonical_name",
    "name_fault",
    "named_modules",
    "only_modules",
    "resolve",
    "split_id",
]

_ENVIRONMENT = "palaestrai_mosaik.environment.dummy"
_MOSAIK = "palaestrai_mosaik.environment.mosaik_environment:MosaikEnvironment"
_LIBRARY = "palaestrai_mosaik.agent.library"
_FILTERS = "palaestrai_mosaik.agent.filters"
_CONDITIONS = "palaestrai_mosaik.simulation.conditions"
_EVALUATION = "palaestrai_mosaik.simulation.evaluation"


#: classes that have moved: the name in documents (and their hashes) -> the current name
MOVED: Mapping[str, str] = {
    _MOSAIK: "palaestrai_mosaik.palaestrai.mosaik_environment:MosaikEnvironment",
}


def _palaestrai_names() -> dict[str, str]:
    table: dict[str, str] = {}

    def add(package: str, module: str, name: str, target: str) -> None:
        table[f"{package}:{name}"] = table[f"{package}.{module}:{name}"] = f"{target}:{name}"

    add("palaestrai.environment", "dummy_environment", "DummyEnvironment", _ENVIRONMENT)
    for part in ("brain", "muscle", "objective"):
        add("palaestrai.agent", f"dummy_{part}", f"Dummy{part.title()}", f"{_LIBRARY}.dummy")
    add(
        "palaestrai.agent",
        "aggregate_rewards_objective",
        "AggregateRewardsObjective",
        f"{_LIBRARY}.aggregate",
    )
    # palaestrAI's documents name the conditions below both packages.
    for module, name in (
        ("agent_objective_termination_condition", "AgentObjectiveTerminationCondition"),
        ("environment_termination_condition", "EnvironmentTerminationCondition"),
        ("max_episodes_termination_condition", "MaxEpisodesTerminationCondition"),
        ("vanilla_rungovernor_termination_condition", "VanillaRunGovernorTerminationCondition"),
        ("vanilla_simcontroller_termination_condition", "VanillaSimControllerTerminationCondition"),
    ):
        for package in ("palaestrai.experiment", "palaestrai.simulation"):
            add(package, module, name, _CONDITIONS)
    add(
        "palaestrai.experiment",
        "agent_evaluation_objective_termination_condition",
        "AgentEvaluationObjectiveTerminationCondition",
        _EVALUATION,
    )
    for module, name in (
        ("absolute_deviation_filter", "AbsoluteDeviationFilter"),
        ("action_time_shift_filter", "ActionTimeShiftFilter"),
        ("delta_action_filter", "DeltaActionFilter"),
        ("delta_obs_filter", "DeltaObsFilter"),
        ("delta_step_filter", "DeltaStepFilter"),
        ("merge_steps_filter", "MergeStepsFilter"),
        ("normalization_filter", "NormFilter"),
        ("quadratic_penalty_filter", "QuadraticPenaltyFilter"),
    ):
        table[f"palaestrai.agent:{name}"] = f"{_FILTERS}:{name}"
        add("palaestrai.agent.filters", module, name, _FILTERS)
    # classes of the other package of this name, which connects mosaik to palaestrAI
    for module in ("mosaik_environment", "mp", "mp.mosaik_environment"):
        table[f"palaestrai_mosaik.{module}:MosaikEnvironment"] = _MOSAIK
    table["palaestrai_mosaik:MosaikEnvironment"] = table[MOVED[_MOSAIK]] = _MOSAIK
    for short in ("Norm", "DeltaStep", "MergeSteps", "DeltaObs"):
        table[f"palaestrai.agent.filters:{short}"] = f"{_FILTERS}:{short}Filter"
    return table


#: palaestrAI's names and our classes for them
PALAESTRAI_NAMES: Mapping[str, str] = _palaestrai_names()

#: The roles of classes; each has the entry-point group ``palaestrai_mosaik.<topic>``.
TOPICS = (
    "environment",
    "reward",
    "state_transformer",
    "brain",
    "muscle",
    "objective",
    "filter",
    "condition",
)

_IDENTIFIER = r"[^\W\d]\w*"
_FULL_NAME = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}")
_SHORT_NAME = re.compile(r"[\w-]+")


def name_fault(name: str) -> str | None:
    """Explain what is wrong with the form of a class name; ``None`` if it is correct."""
    if _FULL_NAME.fullmatch(name) or _SHORT_NAME.fullmatch(name):
        return None
    module, _, last = name.rpartition(".")
    corrected = f"{module}:{last}"
    hint = f" (did you mean {corrected!r}?)" if _FULL_NAME.fullmatch(corrected) else ""
    return f"{name!r} is not a class name of the form 'package.module:Class'{hint}"


def canonical_name(name: str) -> str:
    """Return the canonical name of a class: palaestrAI's names become ours."""
    return PALAESTRAI_NAMES.get(name, name)


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
    registered = _registered(topic)
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


def _registered(topic: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"palaestrai_mosaik.{topic}")}


def named_modules(name: str) -> list[str]:
    """List the modules that the class name ``name`` may refer to, without importing any.

    There are several if a short name is registered for several topics, and none if it is not registered.
    """
    if name_fault(name) is not None:
        return []
    if ":" in name:
        return [canonical_name(name).partition(":")[0]]
    shipped = [full_name(name, topic).partition(":")[0] for topic in TOPICS if name in SHORT_NAMES[topic]]
    entries = (_registered(topic).get(name) for topic in TOPICS)
    return list(dict.fromkeys([*shipped, *(entry.module for entry in entries if entry is not None)]))


def split_id(full_id: str, uids: Collection[str]) -> tuple[str, str]:
    """Split a sensor's or actuator's full id into environment uid and local id.

    The uid ends at a dot, and uids may contain dots themselves: the longest match wins.

    Args:
        full_id: the id, such as ``grid.bus-3.vm_pu``.
        uids: the uids of the environments.

    Returns:
        The uid, and the local id.

    Raises:
        NameResolutionError: the id begins with none of ``uids``.
    """
    end = full_id.rfind(".")
    while end > 0:
        if full_id[:end] in uids and end + 1 < len(full_id):
            return full_id[:end], full_id[end + 1 :]
        end = full_id.rfind(".", 0, end)
    allowed = listed([repr(uid) for uid in sorted(uids)], 5)
    if full_id in uids:
        raise NameResolutionError(
            f"{full_id!r} is an environment; name one of its sensors or actuators: '{full_id}.<id>'"
        )
    near = ""
    for head, _, tail in (full_id.rpartition("."), full_id.partition(".")):  # local ids may have dots, too
        if not near and did_you_mean(head, uids):
            near = did_you_mean(full_id, [f"{uid}.{tail}" for uid in uids])
    raise NameResolutionError(
        f"{full_id!r} must start with the uid of an environment of the phase and a dot{near}; "
        f"environments: {allowed or 'none'}"
    )


#: a module, or ``cmd:`` or ``connect:``; the place below the class that names it; whether ours are always allowed
Naming = tuple[str, Place, bool]


def naming(name: str, params: Mapping[str, Any]) -> Iterator[Naming]:
    """Yield the modules that a class and its ``params`` name, with places relative to the class's.

    Params of a wrong form are skipped: the class reports them.
    """
    for module in named_modules(name):
        yield module, ("name",), True
        inside = _INSIDE.get(name.rpartition(":")[2]) if module.partition(".")[0] == OURS else None
        if inside is not None:
            for module_name, place, ours in inside(params):
                yield module_name, ("params", *place), ours


def _in_copies(params: Mapping[str, Any]) -> Iterator[Naming]:
    inner_params = params.get("params")
    if isinstance(params.get("name"), str):
        yield from naming(params["name"], inner_params if isinstance(inner_params, Mapping) else {})


def _in_gymnasium(params: Mapping[str, Any]) -> Iterator[Naming]:
    module, colon, name = str(params.get("id")).rpartition(":")
    if colon:
        # a function is called with keywords of the document, so this package's are not exempt
        yield module, ("id",), not name.isidentifier()


def _in_described(params: Mapping[str, Any]) -> Iterator[Naming]:
    yield from _module_of(params.get("build"), ("build",))
    simulators = params.get("simulators")
    for uid, simulator in simulators.items() if isinstance(simulators, Mapping) else ():
        if isinstance(simulator, Mapping):
            place = ("simulators", uid)
            yield from _module_of(simulator.get("python"), (*place, "python"))
            for key, word in (("cmd", COMMANDS), ("connect", CONNECTIONS)):
                if simulator.get(key):
                    yield word, (*place, key), False


def _in_mosaik(params: Mapping[str, Any]) -> Iterator[Naming]:
    module = params.get("module")
    if isinstance(module, str):
        yield module.partition(":")[0], ("module",), False
    yield from _module_of(params.get("terminal_condition"), ("terminal_condition",))


def _in_pettingzoo(params: Mapping[str, Any]) -> Iterator[Naming]:
    yield from _module_of(params.get("id"), ("id",))


def _module_of(name: Any, place: Place) -> Iterator[Naming]:
    if isinstance(name, str) and ":" in name:
        yield name.partition(":")[0], place, False


#: classes of this package with further modules in their ``params``
_INSIDE: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Naming]]] = {
    "Copies": _in_copies,
    "DescribedCoSimulation": _in_described,
    "GymnasiumEnvironment": _in_gymnasium,
    "MosaikEnvironment": _in_mosaik,
    "PettingZooEnvironment": _in_pettingzoo,
}


def refusals(name: str, params: Mapping[str, Any]) -> Iterator[tuple[str, Place]]:
    """Yield the forbidden modules that a class and its ``params`` name, with places relative to the class's.

    Nothing is imported. See :func:`~palaestrai_mosaik.importing.only_modules`.
    """
    for module, place, ours in naming(name, params):
        fault = refusal(module, ours=ours)
        if fault is not None:
            yield fault, place


def modules_of(document: RunDocument) -> set[str]:
    """Collect the modules that ``document`` names, without this package's own classes.

    They are the modules that :func:`~palaestrai_mosaik.importing.only_modules` has to allow for it, including
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


def interpreter_refusal(fault: str) -> str:
    """Build the message for a forbidden interpreter, because of ``fault``."""
    return f"an interpreter is a program that is executed, and {fault}"


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
    remote = _elsewhere(document)
    for topic, name, params, place in named_classes(document):
        if place in remote:
            continue
        key = (topic, id(params))  # an inherited spec is shared: check it once
        if key not in checked:
            faults = _faults(find, topic, name, params, bases.get(topic))
            checked[key] = [(message + _beside(document.source, message), tail) for message, tail in faults]
            for message, tail in checked[key]:
                problems[document.problem(message, *place, *tail)] = None
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
    warnings: dict[Problem, None] = {}
    remote = _elsewhere(document)
    for topic, name, _, place in named_classes(document):
        try:
            cls = None if place in remote else find(name, topic)
        except NameResolutionError:
            continue
        for message in () if cls is None or inspect.isabstract(cls) else unused_methods(cls, name):
            warnings[document.problem(message, *place, "name")] = None
    return list(warnings)


def unused_methods(cls: type, name: str) -> Iterator[str]:
    """Yield a message for each method of ``cls`` that nothing calls; the document calls the class ``name``."""
    for method, hook in misspelt_hooks(cls).items():
        yield f"{name!r} has a method {method!r} that nothing calls (did you mean {hook!r}?)"


#: see :func:`~palaestrai_mosaik.importing.import_module`
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


def named_classes(document: RunDocument) -> Iterator[tuple[str, str, dict[str, Any], Place]]:
    """Yield topic, name, params and place of every class in ``document``."""
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
                body_place = (*place, "bodies", body_number)
                yield from _optional(body, ("muscle", "objective"), body_place)
                yield from _listed("filter", body.filters, (*body_place, "filters"))
        yield from _listed("condition", phase.simulation.conditions, (*here, "simulation", "conditions"))
    yield from _listed("condition", document.conditions, ("conditions",))


def _optional(
    owner: Any, topics: tuple[str, ...], place: Place
) -> Iterator[tuple[str, str, dict[str, Any], Place]]:
    for topic in topics:
        spec: ClassSpec | None = getattr(owner, topic)
        if spec is not None and spec is not UNREAD:
            yield topic, spec.name, spec.params, (*place, topic)


def _listed(
    topic: str, specs: tuple[ClassSpec, ...], place: Place
) -> Iterator[tuple[str, str, dict[str, Any], Place]]:
    for number, spec in enumerate(specs):
        if spec is not UNREAD:
            yield topic, spec.name, spec.params, (*place, number)


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
_TRUE, _FALSE = ("y", "yes", "on"), ("n", "no", "off")


def _is_old_boolean(value: Any) -> bool:
    return isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE, "true", "false")


def _is_boolean(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is annotated as a boolean, or has one as its default."""
    kind = parameter.annotation
    return (
        isinstance(parameter.default, bool)
        or kind is bool
        or kind in ("bool", "bool | None", "Optional[bool]")
    )


def _misfits(cls: type, name: str, params: dict[str, Any]) -> Iterator[tuple[str, Place]]:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):  # some classes written in C have no signature
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
        if parameter.name in params and _is_boolean(parameter) and _is_old_boolean(params[parameter.name]):
            value = params[parameter.name]
            meant = str(value.lower() in (*_TRUE, "true")).lower()
            yield (
                f"{parameter.name!r} of {name!r} is true or false, found {show(value)}, which is text in YAML 1.2; "
                f"write {meant}",
                ("params", parameter.name),
            )
        if parameter.default is not parameter.empty or parameter.kind in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        ):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            yield f"{name!r} takes {parameter.name!r} by position only; params are keywords", ("name",)
        elif parameter.name not in params:
            names = ", ".join(params) if params else show({})
            yield f"{name!r} needs the parameter {parameter.name!r}; found {names}", ("params",)

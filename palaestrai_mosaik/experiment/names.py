"""Names in documents: of classes (``package.module:Class``) and of sensors and actuators."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Collection, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from palaestrai_mosaik.errors import NameResolutionError, did_you_mean

_ENVIRONMENT = "palaestrai_mosaik.environment.dummy"
_LIBRARY = "palaestrai_mosaik.agent.library"
_FILTERS = "palaestrai_mosaik.agent.filters"
_CONDITIONS = "palaestrai_mosaik.simulation.conditions"
_EVALUATION = "palaestrai_mosaik.simulation.evaluation"


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
    for short in ("Norm", "DeltaStep", "MergeSteps", "DeltaObs"):
        table[f"palaestrai.agent.filters:{short}"] = f"{_FILTERS}:{short}Filter"
    return table


#: palaestrAI's names and the classes that stand for them here.
PALAESTRAI_NAMES: Mapping[str, str] = _palaestrai_names()

#: What a class can be named for; each has the entry-point group ``palaestrai_mosaik.<topic>``.
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
    """Return what is wrong with the form of a class name, ``None`` if nothing is."""
    if _FULL_NAME.fullmatch(name) or _SHORT_NAME.fullmatch(name):
        return None
    module, _, last = name.rpartition(".")
    corrected = f"{module}:{last}"
    hint = f" (did you mean {corrected!r}?)" if _FULL_NAME.fullmatch(corrected) else ""
    return f"{name!r} is not a class name of the form 'package.module:Class'{hint}"


def canonical_name(name: str) -> str:
    """Return the one name of a class that has several: palaestrAI's become ours."""
    return PALAESTRAI_NAMES.get(name, name)


def resolve(name: str, topic: str) -> type:
    """Import the class that ``name`` stands for.

    ``name`` is ``package.module:Class`` (the working directory is importable), one of
    palaestrAI's names, or a short name that a package registered as an entry point in
    the group ``palaestrai_mosaik.<topic>``. ``topic`` is one of :data:`TOPICS`.

    Raises :class:`NameResolutionError`; where the import itself raised, its traceback
    is in the message.
    """
    fault = name_fault(name)
    if fault is not None:
        raise NameResolutionError(fault)
    if ":" not in name:
        return _resolve_short(name, topic)
    target = canonical_name(name)
    module_name, _, class_name = target.partition(":")
    try:
        module = _import(module_name)
    except NameResolutionError as error:
        if target.startswith("palaestrai.") and not _importable("palaestrai"):
            raise NameResolutionError(
                f"{name!r} is a class of palaestrAI, which is not installed here, and it is not one of "
                f"those that this package brings{did_you_mean(name, PALAESTRAI_NAMES)}"
            ) from None
        raise NameResolutionError(f"{name!r}: {error}") from error.__cause__
    found = getattr(module, class_name, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if inspect.isclass(value)]
        near = did_you_mean(class_name, {*classes, *getattr(module, "__all__", ())})
        raise NameResolutionError(f"{name!r}: the module {module_name!r} has no class {class_name!r}{near}")
    return _as_class(found, name)


def _as_class(found: Any, name: str) -> type:
    if not inspect.isclass(found):
        raise NameResolutionError(f"{name!r} is not a class but a {type(found).__name__}")
    return found


def _resolve_short(name: str, topic: str) -> type:
    registered = _registered(topic)
    if name not in registered:
        known = f"; registered: {', '.join(sorted(registered))}" if registered else ""
        raise NameResolutionError(
            f"no package registers {name!r} in the entry-point group 'palaestrai_mosaik.{topic}'"
            f"{did_you_mean(name, registered)}{known}; or write 'package.module:Class'"
        )
    try:
        found = registered[name].load()
    except (Exception, SystemExit) as error:
        raise NameResolutionError(
            f"{name!r}: loading {registered[name].value!r} raised\n{_traceback(error)}"
        ) from error
    return _as_class(found, name)


def _registered(topic: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"palaestrai_mosaik.{topic}")}


def _import(module_name: str) -> Any:
    directory = os.getcwd()
    if directory not in sys.path and "" not in sys.path:
        sys.path.insert(0, directory)
        importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name == missing or module_name.startswith(f"{missing}."):
            raise NameResolutionError(
                f"there is no module {missing!r}{did_you_mean(missing, _siblings(missing))}"
            ) from None
        raise NameResolutionError(
            f"importing {module_name!r} needs the module {missing!r}, which is not installed\n"
            f"{_traceback(error)}"
        ) from error
    except (Exception, SystemExit) as error:
        raise NameResolutionError(f"importing {module_name!r} raised\n{_traceback(error)}") from error


def _traceback(error: BaseException) -> str:
    """Return the traceback's text without the frames of this module and of the import system."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "importlib" not in frame.filename and frame.filename != __file__
    ]
    # The source line of a syntax error comes with the exception itself.
    return "".join(traceback.format_list(frames) + traceback.format_exception_only(error)).rstrip()


def _siblings(module_name: str) -> list[str]:
    """Return the names of the modules beside a missing one."""
    package, _, _ = module_name.rpartition(".")
    if not package:
        return [*_top_level_modules(os.getcwd()), *sys.stdlib_module_names]
    path = getattr(sys.modules.get(package), "__path__", None)
    return [f"{package}.{module.name}" for module in pkgutil.iter_modules(path)] if path else []


@cache
def _top_level_modules(directory: str) -> tuple[str, ...]:
    return tuple(module.name for module in pkgutil.iter_modules())


def _importable(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def split_id(full_id: str, uids: Collection[str]) -> tuple[str, str]:
    """Split a sensor's or actuator's full id into environment uid and local id.

    The uid ends at a dot, and uids may contain dots themselves: the longest one that
    fits wins. Raises :class:`NameResolutionError` where none does.
    """
    end = full_id.rfind(".")
    while end > 0:
        if full_id[:end] in uids and end + 1 < len(full_id):
            return full_id[:end], full_id[end + 1 :]
        end = full_id.rfind(".", 0, end)
    allowed = ", ".join(repr(uid) for uid in sorted(uids)[:5]) + (", ..." if len(uids) > 5 else "")
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

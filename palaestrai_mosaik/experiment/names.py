"""Names in documents: of classes (``package.module:Class``) and of sensors and actuators."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from palaestrai_mosaik.errors import NameResolutionError, did_you_mean
from palaestrai_mosaik.importing import (
    check_origin,
    importable,
    load,
    only_modules,
    refusal,
    traceback_of,
)

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
    # those of the package of the same name that joins mosaik to palaestrAI
    for module in ("mosaik_environment", "mp", "mp.mosaik_environment"):
        table[f"palaestrai_mosaik.{module}:MosaikEnvironment"] = _MOSAIK
    table["palaestrai_mosaik:MosaikEnvironment"] = _MOSAIK
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
    try:
        found = load(target)
    except NameResolutionError as error:
        if target.startswith("palaestrai.") and not importable("palaestrai"):
            raise NameResolutionError(
                f"{name!r} is a class of palaestrAI, which is not installed here, and it is not one of "
                f"those that this package brings{did_you_mean(name, PALAESTRAI_NAMES)}"
            ) from None
        raise NameResolutionError(f"{name!r}: {error}") from error.__cause__
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
    entry = registered[name]
    fault = refusal(entry.module)
    if fault is not None:
        raise NameResolutionError(f"{name!r} stands for {entry.value!r}: {fault}")
    try:
        found = entry.load()
    except (Exception, SystemExit) as error:
        raise NameResolutionError(
            f"{name!r}: loading {entry.value!r} raised\n{traceback_of(error)}"
        ) from error
    check_origin(found, entry.value)
    return _as_class(found, name)


def _registered(topic: str) -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=f"palaestrai_mosaik.{topic}")}


def named_modules(name: str) -> list[str]:
    """Return the modules that the class name ``name`` may mean, without importing any.

    They are several where a short name is registered for several topics, and none where it is not.
    """
    if name_fault(name) is not None:
        return []
    if ":" in name:
        return [canonical_name(name).partition(":")[0]]
    found = (_registered(topic).get(name) for topic in TOPICS)
    return list(dict.fromkeys(entry.module for entry in found if entry is not None))


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

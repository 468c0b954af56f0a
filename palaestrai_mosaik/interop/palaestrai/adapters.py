"""Selects the adapters of classes written for palaestrAI."""

from __future__ import annotations

import importlib
import inspect
import sys
from functools import cache
from typing import Any

#: by topic of a document: palaestrAI's base class (module, name), and its adapter (module of this package and name)
_ADAPTERS: dict[str, tuple[str, str, str]] = {
    "brain": ("palaestrai.agent.brain", "Brain", ".brain:AdaptedBrain"),
    "muscle": ("palaestrai.agent.muscle", "Muscle", ".muscle:AdaptedMuscle"),
    "objective": ("palaestrai.agent.objective", "Objective", ".muscle:AdaptedObjective"),
    "filter": ("palaestrai.agent.filter", "Filter", ".filter:AdaptedFilter"),
    "environment": ("palaestrai.environment.environment", "Environment", ".environment:AdaptedEnvironment"),
    "reward": ("palaestrai.environment.reward", "Reward", ".environment:AdaptedReward"),
    "state_transformer": (
        "palaestrai.environment.environment_state_transformer",
        "EnvironmentStateTransformer",
        ".environment:AdaptedStateTransformer",
    ),
    "condition": (
        "palaestrai.experiment.termination_condition",
        "TerminationCondition",
        ".condition:AdaptedCondition",
    ),
}


def adapted(cls: type, topic: str) -> type | None:
    """Return a subclass of our contract that wraps ``cls``, or ``None`` if it is not a palaestrAI class.

    The class also derives from the adapter of ``topic``. Its attribute ``wrapped_class`` is ``cls``, and its
    constructor takes the document's ``params``. Repeated calls return the same class, and its objects can be pickled.
    """
    module, name, _ = _ADAPTERS[topic]
    # a subclass of a palaestrAI class has already imported it
    base = getattr(sys.modules.get(module), name, None)
    if base is None or not issubclass(cls, base):
        return None
    return _adapter(cls, topic)


@cache
def _adapter(cls: type, topic: str) -> type:
    module, _, name = _ADAPTERS[topic][2].partition(":")
    kind = getattr(importlib.import_module(module, __package__), name)
    members: dict[str, Any] = {
        "wrapped_class": cls,
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
        "__signature__": _signature(cls, getattr(kind, "injected", ())),
        "__reduce_ex__": lambda self, protocol: (_blank, (cls, topic), self.__getstate__()),
    }
    adapter = type(cls.__name__, (kind,), members)
    # for the reader of the document, the adapter is abstract if the class is
    adapter.__abstractmethods__ = getattr(cls, "__abstractmethods__", frozenset())  # type: ignore[attr-defined]
    return adapter


def _signature(cls: type, injected: tuple[str, ...]) -> inspect.Signature:
    """Return the signature of the constructor of ``cls`` without the parameters that the adapter passes."""
    signature = inspect.signature(cls)
    return signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in injected])


def _blank(cls: type, topic: str) -> Any:
    """Create an adapter without state, to be restored from a pickle."""
    kind = _adapter(cls, topic)
    return object.__new__(kind)

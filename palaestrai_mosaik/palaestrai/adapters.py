"""Which adapter a class that is written for palaestrAI gets."""

from __future__ import annotations

import importlib
import inspect
import sys
from functools import cache
from typing import Any

#: topic of a document -> palaestrAI's base class (module and name), and the adapter (module of this package and name)
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


def adapted(found: type, topic: str) -> type | None:
    """Return a class of our kind that wraps ``found``, if that is of palaestrAI's kind.

    The class returned derives from our contract for ``topic`` and from the adapter; its attribute
    ``wrapped_class`` is ``found``, and its constructor takes the document's ``params``. It is the same
    class for each call, and what it makes can be pickled.
    """
    module, name, _ = _ADAPTERS[topic]
    # what derives from a class of palaestrAI has imported it
    base = getattr(sys.modules.get(module), name, None)
    if base is None or not issubclass(found, base):
        return None
    return _adapter(found, topic)


@cache
def _adapter(found: type, topic: str) -> type:
    place, _, wanted = _ADAPTERS[topic][2].partition(":")
    kind = getattr(importlib.import_module(place, __package__), wanted)
    members: dict[str, Any] = {
        "wrapped_class": found,
        "__module__": found.__module__,
        "__doc__": found.__doc__,
        "__signature__": _signature(found, getattr(kind, "given", ())),
        "__reduce_ex__": lambda self, protocol: (_blank, (found, topic), self.__getstate__()),
    }
    made = type(found.__name__, (kind,), members)
    # what is abstract is so for the reader of the document, too
    made.__abstractmethods__ = getattr(found, "__abstractmethods__", frozenset())  # type: ignore[attr-defined]
    return made


def _signature(found: type, given: tuple[str, ...]) -> inspect.Signature:
    """Return what the constructor of ``found`` takes from a document: all but what it is ``given``."""
    signature = inspect.signature(found)
    return signature.replace(parameters=[p for p in signature.parameters.values() if p.name not in given])


def _blank(found: type, topic: str) -> Any:
    """Return an adapter as it is before its state is restored from a pickle."""
    kind = _adapter(found, topic)
    return object.__new__(kind)

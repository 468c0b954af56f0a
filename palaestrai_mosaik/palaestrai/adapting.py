"""Which adapter a class of palaestrAI's kind gets."""

from __future__ import annotations

import importlib
import sys

#: topic of a document -> palaestrAI's base class, and the adapter: module of this package and class.
#: An adapter's class is made with the class that it adapts (a subclass for each, see :func:`adapted`).
_ADAPTERS: dict[str, tuple[str, str, str]] = {
    "brain": ("palaestrai.agent", "Brain", ".brain:AdaptedBrain"),
    "muscle": ("palaestrai.agent", "Muscle", ".muscle:AdaptedMuscle"),
    "objective": ("palaestrai.agent", "Objective", ".objective:AdaptedObjective"),
    "filter": ("palaestrai.agent.filter", "Filter", ".filter:AdaptedFilter"),
    "environment": ("palaestrai.environment", "Environment", ".environment:AdaptedEnvironment"),
    "reward": ("palaestrai.environment", "Reward", ".reward:AdaptedReward"),
    "state_transformer": (
        "palaestrai.environment",
        "EnvironmentStateTransformer",
        ".state_transformer:AdaptedStateTransformer",
    ),
    "condition": ("palaestrai.experiment", "TerminationCondition", ".condition:AdaptedCondition"),
}


def adapted(found: type, topic: str) -> type | None:
    """Return a class of our kind that wraps ``found``, if that is of palaestrAI's kind.

    The class returned derives from our contract for ``topic`` and from the adapter; its attribute
    ``theirs`` is ``found``, and its constructor takes the document's ``params``.
    """
    module, name, adapter = _ADAPTERS[topic]
    # what derives from a class of palaestrAI has imported it
    base = getattr(sys.modules.get(module), name, None)
    if base is None or not issubclass(found, base):
        return None
    place, _, wanted = adapter.partition(":")
    kind = getattr(importlib.import_module(place, __package__), wanted)
    return type(found.__name__, (kind,), {"theirs": found, "__module__": found.__module__})

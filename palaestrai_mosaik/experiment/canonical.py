"""Plain data and the identity of a document: the hash of its canonical form.

The canonical form is the cascaded document in one spelling, with every default written
out. It does not know comments, anchors, the order of keys, or which of several names of
a class was used; any other difference in value is a difference in hash.
"""

from __future__ import annotations

import hashlib
import json
import math
import numbers
from collections.abc import Mapping
from typing import Any

from .located import Findings, show
from .model import AgentSpec, ClassSpec, EnvironmentSpec, PhaseSpec, Place
from .names import canonical_name
from .yaml_text import MAX_DEPTH


def plain_data(value: Any, found: Findings, place: Place = ()) -> Any:
    """Return ``value`` as plain data: own copies of strings, numbers, lists, mappings.

    Number types that register as integral or real (numpy's do) become ``int`` and
    ``float``, tuples become lists. Anything else is reported in ``found``.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, numbers.Real):
        return int(value) if isinstance(value, numbers.Integral) else float(value)
    if len(place) > MAX_DEPTH:
        found.error(place[:8], f"more than {MAX_DEPTH} collections inside one another (or inside themselves)")
        return None
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, (str, int, float, bool, type(None))):
                found.error(place, f"{show(key)} cannot be a key; use a string")
        return {key: plain_data(item, found, (*place, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain_data(item, found, (*place, index)) for index, item in enumerate(value)]
    found.error(
        place, f"{show(value)} ({type(value).__name__}) is not plain data (text, number, list, mapping)"
    )
    return None


def copy(value: Any) -> Any:
    """Return a deep copy of plain data in which nothing is shared."""
    if isinstance(value, dict):
        return {key: copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copy(item) for item in value]
    return value


def sorted_copy(value: Any) -> Any:
    """Return a deep copy of plain data with all keys in order."""
    if isinstance(value, dict):
        return {key: sorted_copy(value[key]) for key in sorted(value, key=_key_text)}
    if isinstance(value, list):
        return [sorted_copy(item) for item in value]
    return value


def canonical_json(value: Any) -> str:
    """Return plain data as JSON text: one text for one value.

    Keys are sorted, integers stay integers, floats are written by ``repr``. A key that
    is not a string is written as ``!<type> <value>``, so that ``1`` and ``"1"`` differ.
    """
    return json.dumps(_text_keys(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(canonical: Mapping[str, Any]) -> str:
    """Return the SHA-256 (hex) of the canonical JSON."""
    return hashlib.sha256(canonical_json(canonical).encode("utf-8", "surrogatepass")).hexdigest()


def _key_text(key: Any) -> str:
    if isinstance(key, str):
        return f"!str {key}" if key.startswith("!") else key
    if isinstance(key, float) and math.isnan(key):
        return "!float nan"
    return f"!{type(key).__name__} {key!r}"


def _text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key_text(key): _text_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_text_keys(item) for item in value]
    return value


def canonical_class(spec: ClassSpec | None) -> dict[str, Any] | None:
    """Return the canonical form of a class to load."""
    if spec is None:
        return None
    return {"name": canonical_name(spec.name), "params": sorted_copy(spec.params)}


def canonical_phase(phase: PhaseSpec) -> dict[str, Any]:
    """Return the canonical form of one phase, all defaults written out."""
    simulation = phase.simulation
    return {
        "agents": [_agent(agent) for agent in phase.agents],
        "environments": [_environment(environment) for environment in phase.environments],
        "phase_config": {"episodes": phase.episodes, "mode": phase.mode.value, "workers": phase.workers},
        "simulation": {
            "bridge": simulation.bridge,
            "conditions": [canonical_class(condition) for condition in simulation.conditions],
            "name": simulation.controller,
        },
    }


def _environment(spec: EnvironmentSpec) -> dict[str, Any]:
    return {
        "environment": {
            "name": canonical_name(spec.name),
            "params": sorted_copy(spec.params),
            "step_size": spec.step_size,
            "uid": spec.uid,
        },
        "reward": canonical_class(spec.reward),
        "state_transformer": canonical_class(spec.state_transformer),
    }


def _agent(spec: AgentSpec) -> dict[str, Any]:
    return {
        "actuators": list(spec.actuators),
        "brain": canonical_class(spec.brain),
        "load": sorted_copy(spec.load),
        "muscle": canonical_class(spec.muscle),
        "name": spec.name,
        "objective": canonical_class(spec.objective),
        "sensors": list(spec.sensors),
    }


def canonical_document(
    uid: str, seed: int, version: str, phases: tuple[PhaseSpec, ...], conditions: tuple[ClassSpec, ...]
) -> dict[str, Any]:
    """Return the canonical form of a whole document."""
    return {
        "run_config": {"conditions": [canonical_class(condition) for condition in conditions]},
        "schedule": [{phase.name: canonical_phase(phase)} for phase in phases],
        "seed": seed,
        "uid": uid,
        "version": version,
    }

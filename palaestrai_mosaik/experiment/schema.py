"""The JSON Schema of run documents, for editors; made from the vocabulary of the checks.

A schema sees one phase at a time and no cascade, so it is more lenient than loading: it
requires what every entry needs, and knows every key, spelling and allowed word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .vocabulary import (
    AGENT,
    BRIDGES,
    CLASS,
    CONTROLLERS,
    ENVIRONMENT,
    ENVIRONMENT_ENTRY,
    LOAD,
    MODES,
    PHASE,
    PHASE_CONFIG,
    REPLAY,
    RUN_CONFIG,
    SIMULATION,
    SNAPSHOTS,
    TOP,
    Section,
)

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1}
_INDEX: Schema = {"type": "integer", "minimum": 0}
_PHASE: Schema = {"anyOf": [_INDEX, {"type": "string", "minLength": 1}, {"type": "null"}]}
_FLAG: Schema = {"type": ["boolean", "null"]}
_MAYBE_TEXT: Schema = {"type": ["string", "null"], "minLength": 1}
_IDS: Schema = {"type": "array", "items": _TEXT, "uniqueItems": True}


def json_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of run documents as plain data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "palaestrai_mosaik experiment-run document",
        **_top(),
        "$defs": {
            "class": _section(CLASS, {"name": _TEXT, "params": _params()}, ("name",)),
            "environment_entry": _environment_entry(),
            "agent": _agent(),
            "simulation": _simulation(),
            "phase_config": _phase_config(),
            "run_config": _run_config(),
            "phase": _phase(),
        },
    }


def _section(section: Section, properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """Return the schema of one mapping: its keys, their spellings, the keys without effect.

    A required key that has several spellings is not required, as any of them may stand.
    """
    words = {key: properties[key] for key in section.keys}
    words |= {word: properties[key] for word, key in section.spellings.items()}
    words |= {word: {"description": "of palaestrAI; no effect here"} for word in section.ignored}
    spelled = set(section.spellings.values())
    schema: Schema = {"type": "object", "properties": words, "additionalProperties": False}
    needed = [key for key in required if key not in spelled]
    return schema | {"required": needed} if needed else schema


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _optional(name: str) -> Schema:
    return _maybe(_ref(name))


def _or_name(name: str) -> Schema:
    # A string refers to an entry of definitions.
    return {"anyOf": [_ref(name), _TEXT]}


def _params() -> Schema:
    return {"type": ["object", "null"]}


def _environment_entry() -> Schema:
    properties = {"uid": _TEXT, "name": _TEXT, "params": _params(), "step_size": _COUNT}
    environment = _section(ENVIRONMENT, properties, ENVIRONMENT.required)
    inner = {
        "environment": environment,
        "reward": _optional("class"),
        "state_transformer": _optional("class"),
    }
    return _section(ENVIRONMENT_ENTRY, inner, ENVIRONMENT_ENTRY.required)


def _agent() -> Schema:
    load: dict[str, Schema] = dict.fromkeys(LOAD.keys, _MAYBE_TEXT) | {"phase": _PHASE}
    properties = {
        "name": _TEXT,
        "brain": _optional("class"),
        "muscle": _ref("class"),
        "objective": _optional("class"),
        "sensors": _IDS,
        "actuators": _IDS,
        "load": _maybe(_section(LOAD, load)),
        "filters": _maybe({"type": "array", "items": _ref("class")}),
        "replay": _maybe({"type": "array", "items": _replay()}),
        "snapshots": _maybe(_section(SNAPSHOTS, {"every": _COUNT, "best": _FLAG}) | {"minProperties": 1}),
    }
    return _section(AGENT, properties, ("name",))


def _replay() -> Schema:
    channels = _maybe(_IDS | {"minItems": 1})
    properties: dict[str, Schema] = dict.fromkeys(REPLAY.keys, _MAYBE_TEXT) | {
        "phase": _PHASE,
        "mode": _maybe(_mode()),
        "repeat": _COUNT,
        "sensors": channels,
        "actuators": channels,
        "strict": _FLAG,
    }
    return _section(REPLAY, properties)


def _simulation() -> Schema:
    conditions = {"type": ["array", "null"], "items": _ref("class")}
    properties: dict[str, Schema] = {
        "name": {"enum": list(CONTROLLERS)},
        "conditions": conditions,
        "bridge": {"enum": list(BRIDGES)},
    }
    return _section(SIMULATION, properties)


def _mode() -> Schema:
    words = "|".join("".join(f"[{c}{c.upper()}]" for c in mode) for mode in MODES)
    return {"type": "string", "pattern": f"^({words})$", "examples": list(MODES)}


def _phase_config() -> Schema:
    properties: dict[str, Schema] = {
        "mode": _mode(),
        "workers": _COUNT,
        "episodes": _COUNT,
        "evaluate_every": _COUNT | {"minimum": 0},
        "sync_every": _COUNT,
        "asynchronous": _FLAG,
    }
    return _section(PHASE_CONFIG, properties)


def _run_config() -> Schema:
    conditions = {"type": "array", "items": _ref("class")}
    schema = _section(RUN_CONFIG, {"condition": _ref("class"), "conditions": conditions})
    return schema | {"oneOf": [{"required": ["condition"]}, {"required": ["conditions"]}]}


def _phase() -> Schema:
    properties = {
        "environments": {"type": "array", "items": _or_name("environment_entry")},
        "agents": {"type": "array", "items": _or_name("agent")},
        "simulation": _or_name("simulation"),
        "phase_config": _or_name("phase_config"),
        "inherit": _FLAG,
    }
    return _section(PHASE, properties)


def _top() -> Schema:
    phase: Schema = {"anyOf": [_ref("phase"), {"type": "null"}]}
    phases = {"type": "object", "minProperties": 1, "additionalProperties": phase}
    properties = {
        "uid": _TEXT,
        "experiment_uid": _MAYBE_TEXT,
        "seed": {"type": "integer"},
        "version": _TEXT,
        "schedule": {
            "anyOf": [{"type": "array", "minItems": 1, "items": phases | {"maxProperties": 1}}, phases]
        },
        "run_config": _or_name("run_config"),
        # The home of anchors: anything may stand here.
        "definitions": {"type": ["object", "null"]},
    }
    return _section(TOP, properties, TOP.required)

"""The JSON Schema of run documents, for editors; made from the vocabulary of the checks.

A schema sees one phase at a time and no cascade, so it is more lenient than loading: it
requires what every entry needs, and knows every key, spelling and allowed word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .model import MAX_BODIES
from .vocabulary import (
    AGENT,
    BODY,
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
    SCHEDULERS,
    SIMULATION,
    SNAPSHOTS,
    TOP,
    Section,
)

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
MAYBE_TEXT: Schema = {"type": ["string", "null"], "minLength": 1}
COUNT: Schema = {"type": ["integer", "null"], "minimum": 1}
FLAG: Schema = {"type": ["boolean", "null"]}


def section_schema(
    section: Section, properties: Mapping[str, Schema], required: tuple[str, ...] = ()
) -> Schema:
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


def ref(name: str) -> Schema:
    """Return a reference to the definition ``name``."""
    return {"$ref": f"#/$defs/{name}"}


def maybe(schema: Schema) -> Schema:
    """Return ``schema``, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


_INDEX: Schema = {"type": "integer", "minimum": 0}
_PHASE: Schema = {"anyOf": [_INDEX, {"type": "string", "minLength": 1}, {"type": "null"}]}
_IDS: Schema = {"type": "array", "items": TEXT, "uniqueItems": True}
#: ids in which ``{body}`` may stand, and no other braces
_BODY_IDS: Schema = maybe(_IDS | {"items": TEXT | {"pattern": r"^(\{body\}|[^{}])*$"}})


def json_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of run documents as plain data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "palaestrai_mosaik experiment-run document",
        **_top(),
        "$defs": {
            "class": section_schema(CLASS, {"name": TEXT, "params": _params()}, ("name",)),
            "environment_entry": _environment_entry(),
            "agent": _agent(),
            "body": _body(),
            "simulation": _simulation(),
            "phase_config": _phase_config(),
            "run_config": _run_config(),
            "phase": _phase(),
        },
    }


def _optional(name: str) -> Schema:
    return maybe(ref(name))


def _or_name(name: str) -> Schema:
    # A string refers to an entry of definitions.
    return {"anyOf": [ref(name), TEXT]}


def _params() -> Schema:
    return {"type": ["object", "null"]}


def _environment_entry() -> Schema:
    properties = {"uid": TEXT, "name": TEXT, "params": _params(), "step_size": COUNT}
    environment = section_schema(ENVIRONMENT, properties, ENVIRONMENT.required)
    inner = {
        "environment": environment,
        "reward": _optional("class"),
        "state_transformer": _optional("class"),
    }
    return section_schema(ENVIRONMENT_ENTRY, inner, ENVIRONMENT_ENTRY.required)


def _agent() -> Schema:
    load: dict[str, Schema] = dict.fromkeys(LOAD.keys, MAYBE_TEXT) | {"phase": _PHASE}
    properties = {
        "name": TEXT,
        "brain": _optional("class"),
        "muscle": _optional("class"),
        "objective": _optional("class"),
        # null takes away those of a phase before, from an agent with bodies
        "sensors": maybe(_IDS),
        "actuators": maybe(_IDS),
        "load": maybe(section_schema(LOAD, load)),
        "filters": maybe({"type": "array", "items": ref("class")}),
        "replay": maybe({"type": "array", "items": _replay()}),
        "snapshots": maybe(section_schema(SNAPSHOTS, {"every": COUNT, "best": FLAG}) | {"minProperties": 1}),
        "bodies": maybe({"type": "array", "items": ref("body"), "minItems": 1}),
    }
    return section_schema(AGENT, properties, ("name",))


def _body() -> Schema:
    properties: dict[str, Schema] = {
        "name": MAYBE_TEXT | {"pattern": r"^(?![+-]?\d+$)"},
        "count": COUNT | {"maximum": MAX_BODIES},
        "first": COUNT | {"minimum": 0, "maximum": MAX_BODIES},
        "environment": MAYBE_TEXT,
        "muscle": ref("class"),
        "objective": _optional("class"),
        "filters": maybe({"type": "array", "items": ref("class")}),
        "sensors": _BODY_IDS,
        "actuators": _BODY_IDS,
    }
    return section_schema(BODY, properties)


def _replay() -> Schema:
    channels = maybe(_IDS | {"minItems": 1})
    properties: dict[str, Schema] = dict.fromkeys(REPLAY.keys, MAYBE_TEXT) | {
        "phase": _PHASE,
        "mode": maybe(_mode()),
        "repeat": COUNT,
        "sensors": channels,
        "actuators": channels,
        "strict": FLAG,
    }
    return section_schema(REPLAY, properties)


def _simulation() -> Schema:
    conditions = {"type": ["array", "null"], "items": ref("class")}
    properties: dict[str, Schema] = {
        "name": {"enum": list(CONTROLLERS)},
        "conditions": conditions,
        "bridge": {"enum": list(BRIDGES), "description": "no effect any more", "deprecated": True},
        "scheduler": {"enum": list(SCHEDULERS)},
        "params": {"type": ["object", "null"], "maxProperties": 0},
    }
    return section_schema(SIMULATION, properties)


def _mode() -> Schema:
    words = "|".join("".join(f"[{c}{c.upper()}]" for c in mode) for mode in MODES)
    return {"type": "string", "pattern": f"^({words})$", "examples": list(MODES)}


def _phase_config() -> Schema:
    properties: dict[str, Schema] = {
        "mode": _mode(),
        "workers": COUNT,
        "episodes": COUNT,
        "evaluate_every": COUNT | {"minimum": 0},
        "sync_every": COUNT,
        "asynchronous": FLAG,
    }
    return section_schema(PHASE_CONFIG, properties)


def _run_config() -> Schema:
    conditions = {"type": "array", "items": ref("class")}
    schema = section_schema(RUN_CONFIG, {"condition": ref("class"), "conditions": conditions})
    return schema | {"oneOf": [{"required": ["condition"]}, {"required": ["conditions"]}]}


def _phase() -> Schema:
    properties = {
        "environments": {"type": "array", "items": _or_name("environment_entry")},
        "agents": {"type": "array", "items": _or_name("agent")},
        "simulation": _or_name("simulation"),
        "phase_config": _or_name("phase_config"),
        "inherit": FLAG,
    }
    return section_schema(PHASE, properties)


def _top() -> Schema:
    phase: Schema = {"anyOf": [ref("phase"), {"type": "null"}]}
    phases = {"type": "object", "minProperties": 1, "additionalProperties": phase}
    properties = {
        "uid": TEXT,
        "experiment_uid": MAYBE_TEXT,
        "seed": {"type": "integer"},
        "version": TEXT,
        "schedule": {
            "anyOf": [{"type": "array", "minItems": 1, "items": phases | {"maxProperties": 1}}, phases]
        },
        "run_config": _or_name("run_config"),
        # The home of anchors: anything may stand here.
        "definitions": {"type": ["object", "null"]},
    }
    return section_schema(TOP, properties, TOP.required)

"""The JSON Schema of design documents, for editors; made from the vocabulary of the checks.

A schema sees no other file and no names, so it is more lenient than loading: it knows every key
and word, and which keys belong together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaestrai_mosaik.experiment import json_schema

from .vocabulary import (
    ANALYSIS,
    BETTER,
    CONTINUOUS,
    DEFINITIONS,
    DESIGN,
    DISCRETE,
    DISTRIBUTIONS,
    EXECUTION,
    EXECUTORS,
    FACTOR,
    FOLDS,
    OF_BEGINNINGS,
    OF_WORDS,
    OUTCOME,
    PHASE,
    POLICIES,
    SEEDS,
    TYPES,
    Section,
)

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_MAYBE_TEXT: Schema = {"type": ["string", "null"], "minLength": 1}
_NUMBER: Schema = {"type": ["number", "null"]}
_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1}
_FLAG: Schema = {"type": ["boolean", "null"]}
_NAMES: Schema = {"type": "array", "items": _TEXT, "minItems": 1}
_OBJECT: Schema = {"type": ["object", "null"]}


def design_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of design documents as plain data."""
    run = json_schema()
    return {
        "$schema": run["$schema"],
        "title": "palaestrai_mosaik design document",
        **_top(run),
        "$defs": {
            **run["$defs"],
            "base": _base(run),
            "definitions": _definitions(run),
            "design_phase": _phase(),
            "factor": _factor(),
            "outcome": _outcome(),
        },
    }


def _section(section: Section, properties: Mapping[str, Schema]) -> Schema:
    words = {key: properties[key] for key in section.keys}
    words |= {word: properties[key] for word, key in section.spellings.items()}
    return {"type": "object", "properties": words, "additionalProperties": False}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


def _maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def _words(words: tuple[str, ...]) -> Schema:
    return {"enum": [*words, None]}


def _base(run: Schema) -> Schema:
    """The schema of a run document, without what is set for each run."""
    return {
        "type": "object",
        "properties": run["properties"],
        "additionalProperties": False,
    }


def _definitions(run: Schema) -> Schema:
    agent = run["$defs"]["agent"]
    by_phase = {"type": "object", "additionalProperties": agent["properties"]["load"]}
    load = {"anyOf": [agent["properties"]["load"], by_phase]}
    entry = run["$defs"]["environment_entry"]
    nameless = {"type": "object", "properties": {"name": {"const": ""}}, "required": ["name"]}
    environment = {
        **entry,
        "properties": {
            key: {"anyOf": [schema, nameless]} if key != "environment" else schema
            for key, schema in entry["properties"].items()
        },
    }
    ids = {
        "type": "object",
        "additionalProperties": {"type": "array", "items": {"type": ["string", "integer"]}},
    }

    def named(schema: Schema) -> Schema:
        return {"type": "object", "additionalProperties": schema}

    properties = {
        "environments": named(environment),
        "agents": named({**agent, "properties": {**agent["properties"], "load": load}}),
        "sensors": named(ids),
        "actuators": named(ids),
        "simulation": named(_ref("simulation")),
        "phase_config": named(_ref("phase_config")),
        "run_config": _ref("run_config"),
    }
    return _section(DEFINITIONS, properties)


def _phase() -> Schema:
    one = {"anyOf": [_TEXT, {"type": "array", "items": {"anyOf": [_TEXT, _NAMES]}, "minItems": 1}]}
    sets = {
        "anyOf": [
            _TEXT,
            {
                "type": "array",
                "items": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]},
                "minItems": 1,
            },
        ]
    }
    by_agent = {"type": "object", "additionalProperties": sets}
    properties = {key: by_agent if key in ("sensors", "actuators") else one for key in PHASE.keys}
    return _section(PHASE, properties)


def _factor() -> Schema:
    levels = {
        "anyOf": [
            {"type": "array", "minItems": 2},
            {"type": "object", "minProperties": 2},
            {"type": "null"},
        ]
    }
    positive = {"type": "number", "exclusiveMinimum": 0}
    properties: dict[str, Schema] = {
        "name": _MAYBE_TEXT,
        "path": _TEXT,
        "type": _words(TYPES),
        "low": _NUMBER,
        "high": _NUMBER,
        "dist": _words(DISTRIBUTIONS),
        "mean": _NUMBER,
        "std": _maybe(positive),
        "mode": _NUMBER,
        "levels": levels,
        "labels": _maybe({"type": "array", "items": {"type": ["string", "number"]}, "minItems": 2}),
        "weights": _maybe({"type": "array", "items": positive, "minItems": 2}),
        "ordered": _FLAG,
        "create": _FLAG,
        "when": _MAYBE_TEXT,
    }
    has_levels = {"properties": {"levels": {"type": ["array", "object"]}}, "required": ["levels"]}
    return _section(FACTOR, properties) | {
        "if": has_levels,
        "then": {"properties": {word: {"type": "null"} for word in CONTINUOUS}},
        "else": {"properties": {word: {"type": "null"} for word in DISCRETE}},
    }


def _outcome() -> Schema:
    of = {"type": "string", "pattern": f"^({'|'.join(OF_WORDS)}|({'|'.join(OF_BEGINNINGS)})\\..+)$"}
    properties: dict[str, Schema] = {
        "of": of,
        "phase": {"type": ["string", "integer", "null"], "minimum": 0, "minLength": 1},
        "agent": _MAYBE_TEXT,
        "step": _words(FOLDS),
        "episode": _words(FOLDS),
        "outside": _maybe({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
        "evaluation": _FLAG,
        "better": _words(BETTER),
    }
    return {"anyOf": [of, _section(OUTCOME, properties) | {"required": list(OUTCOME.required)}]}


def _analysis() -> Schema:
    names = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}, {"type": "null"}]}
    properties: dict[str, Schema] = {
        "methods": names,
        "compare": names,
        "baseline": {"type": ["string", "number", "null"], "minLength": 1},
        "confidence": {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "resamples": _COUNT,
    }
    return _section(ANALYSIS, properties)


def _execution() -> Schema:
    seconds: Schema = _NUMBER | {"minimum": 0}
    properties: dict[str, Schema] = {
        "executor": _words(EXECUTORS),
        "jobs": _COUNT,
        "timeout": seconds,
        "runs_per_process": _COUNT,
        "fail_fast": _FLAG,
        "checkpoint_every": seconds,
    }
    return _section(EXECUTION, properties)


def _top(run: Schema) -> Schema:
    phases = {"type": "object", "minProperties": 1, "additionalProperties": _maybe(_ref("design_phase"))}
    schedule = {"anyOf": [{"type": "array", "minItems": 1, "items": phases | {"maxProperties": 1}}, phases]}
    entry = _maybe(_ref("factor"))
    sampler = {"type": "object", "properties": {"name": _TEXT, "n": _COUNT}}
    properties: dict[str, Schema] = {
        "uid": _TEXT,
        "seed": {"type": "integer"},
        "version": _MAYBE_TEXT,
        "repetitions": _COUNT,
        "max_runs": {"anyOf": [_COUNT, {"const": -1}]},
        "output": _MAYBE_TEXT,
        "extends": _MAYBE_TEXT,
        "base": {"anyOf": [_TEXT, _ref("base"), {"type": "null"}]},
        "definitions": _maybe(_ref("definitions")),
        "schedule": _maybe(schedule),
        "factors": _maybe(
            {"anyOf": [{"type": "array", "items": entry}, {"type": "object", "additionalProperties": entry}]}
        ),
        "groups": _maybe({"type": "object", "additionalProperties": _NAMES}),
        "zip": {
            "anyOf": [
                {"type": "array", "items": _NAMES},
                {"type": "object", "additionalProperties": _NAMES},
                {"type": "null"},
            ]
        },
        "constraints": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}, {"type": "null"}]},
        "sampler": {"anyOf": [_TEXT, sampler, {"type": "null"}]},
        "seeds": _maybe(_section(SEEDS, {"policy": _words(POLICIES)})),
        "outcomes": _maybe({"type": "object", "additionalProperties": _ref("outcome")}),
        "analysis": _maybe(_analysis()),
        "execution": _maybe(_execution()),
    }
    # A design that extends another need not repeat what that one gives, in none of its parts.
    return _section(DESIGN, properties) | {"anyOf": [{"required": ["extends"]}, {"required": ["seed"]}]}

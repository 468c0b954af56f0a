"""The JSON Schema of design documents, for editors; made from the vocabulary of the checks.

A schema sees no other file and no names, so it is more lenient than loading: it knows every key
and word, and which keys belong together.
"""

from __future__ import annotations

from palaestrai_mosaik.experiment import json_schema
from palaestrai_mosaik.experiment.schema import (
    COUNT,
    FLAG,
    MAYBE_TEXT,
    TEXT,
    Schema,
    maybe,
    ref,
    section_schema,
)

from .execution import EXECUTION
from .vocabulary import (
    ANALYSIS,
    BETTER,
    CONTINUOUS,
    DEFINITIONS,
    DESIGN,
    DISCRETE,
    DISTRIBUTIONS,
    FACTOR,
    FOLDS,
    OF_BEGINNINGS,
    OF_WORDS,
    OUTCOME,
    PHASE,
    POLICIES,
    SEEDS,
    TYPES,
)

_NUMBER: Schema = {"type": ["number", "null"]}
_NAMES: Schema = {"type": "array", "items": TEXT, "minItems": 1}
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
        "simulation": named(ref("simulation")),
        "phase_config": named(ref("phase_config")),
        "run_config": ref("run_config"),
    }
    return section_schema(DEFINITIONS, properties)


def _phase() -> Schema:
    one = {"anyOf": [TEXT, {"type": "array", "items": {"anyOf": [TEXT, _NAMES]}, "minItems": 1}]}
    sets = {
        "anyOf": [
            TEXT,
            {
                "type": "array",
                "items": {"anyOf": [TEXT, {"type": "array", "items": TEXT}]},
                "minItems": 1,
            },
        ]
    }
    by_agent = {"type": "object", "additionalProperties": sets}
    properties = {key: by_agent if key in ("sensors", "actuators") else one for key in PHASE.keys}
    return section_schema(PHASE, properties)


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
        "name": MAYBE_TEXT,
        "path": TEXT,
        "type": _words(TYPES),
        "low": _NUMBER,
        "high": _NUMBER,
        "dist": _words(DISTRIBUTIONS),
        "mean": _NUMBER,
        "std": maybe(positive),
        "mode": _NUMBER,
        "levels": levels,
        "labels": maybe({"type": "array", "items": {"type": ["string", "number"]}, "minItems": 2}),
        "weights": maybe({"type": "array", "items": positive, "minItems": 2}),
        "ordered": FLAG,
        "create": FLAG,
        "when": MAYBE_TEXT,
    }
    has_levels = {"properties": {"levels": {"type": ["array", "object"]}}, "required": ["levels"]}
    return section_schema(FACTOR, properties) | {
        "if": has_levels,
        "then": {"properties": {word: {"type": "null"} for word in CONTINUOUS}},
        "else": {"properties": {word: {"type": "null"} for word in DISCRETE}},
    }


def _outcome() -> Schema:
    of = {"type": "string", "pattern": f"^({'|'.join(OF_WORDS)}|({'|'.join(OF_BEGINNINGS)})\\..+)$"}
    properties: dict[str, Schema] = {
        "of": of,
        "phase": {"type": ["string", "integer", "null"], "minimum": 0, "minLength": 1},
        "agent": MAYBE_TEXT,
        "step": _words(FOLDS),
        "episode": _words(FOLDS),
        "outside": maybe({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
        "evaluation": FLAG,
        "better": _words(BETTER),
    }
    return {"anyOf": [of, section_schema(OUTCOME, properties) | {"required": list(OUTCOME.required)}]}


def _analysis() -> Schema:
    names = {"anyOf": [TEXT, {"type": "array", "items": TEXT}, {"type": "null"}]}
    properties: dict[str, Schema] = {
        "methods": names,
        "compare": names,
        "baseline": {"type": ["string", "number", "null"], "minLength": 1},
        "confidence": {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "resamples": COUNT,
    }
    return section_schema(ANALYSIS, properties)


def _top(run: Schema) -> Schema:
    phases = {"type": "object", "minProperties": 1, "additionalProperties": maybe(ref("design_phase"))}
    schedule = {"anyOf": [{"type": "array", "minItems": 1, "items": phases | {"maxProperties": 1}}, phases]}
    entry = maybe(ref("factor"))
    sampler = {"type": "object", "properties": {"name": TEXT, "n": COUNT}}
    properties: dict[str, Schema] = {
        "uid": TEXT,
        "seed": {"type": "integer"},
        "version": MAYBE_TEXT,
        "repetitions": COUNT,
        "max_runs": {"anyOf": [COUNT, {"const": -1}]},
        "output": MAYBE_TEXT,
        "extends": MAYBE_TEXT,
        "base": {"anyOf": [TEXT, ref("base"), {"type": "null"}]},
        "definitions": maybe(ref("definitions")),
        "schedule": maybe(schedule),
        "factors": maybe(
            {"anyOf": [{"type": "array", "items": entry}, {"type": "object", "additionalProperties": entry}]}
        ),
        "groups": maybe({"type": "object", "additionalProperties": _NAMES}),
        "zip": {
            "anyOf": [
                {"type": "array", "items": _NAMES},
                {"type": "object", "additionalProperties": _NAMES},
                {"type": "null"},
            ]
        },
        "constraints": {"anyOf": [TEXT, {"type": "array", "items": TEXT}, {"type": "null"}]},
        "sampler": {"anyOf": [TEXT, sampler, {"type": "null"}]},
        "seeds": maybe(section_schema(SEEDS, {"policy": _words(POLICIES)})),
        "outcomes": maybe({"type": "object", "additionalProperties": ref("outcome")}),
        "analysis": maybe(_analysis()),
        "execution": EXECUTION.schema,
    }
    # A design that extends another need not repeat what that one gives, in none of its parts.
    return section_schema(DESIGN, properties) | {"anyOf": [{"required": ["extends"]}, {"required": ["seed"]}]}

"""The JSON Schema of design documents, for editors; made from the vocabulary of the checks.

A schema sees no other file and no names, so it is more lenient than loading: it knows every key
and word, and which keys belong together.
"""

from __future__ import annotations

from palaestrai_mosaik.experiment import json_schema
from palaestrai_mosaik.experiment.located import Schema

from .vocabulary import CONTINUOUS, DEFINITIONS, DESIGN, DISCRETE, FACTOR, OF, OUTCOME, PHASE


def design_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of design documents as plain data."""
    run = json_schema()
    # A design that extends another need not repeat what that one gives, in none of its parts.
    top = DESIGN.schema() | {"anyOf": [{"required": ["extends"]}, {"required": ["seed"]}]}
    return {
        "$schema": run["$schema"],
        "title": "palaestrai_mosaik design document",
        **top,
        "$defs": {
            **run["$defs"],
            # a run document, without what is set for each run
            "base": {"type": "object", "properties": run["properties"], "additionalProperties": False},
            "definitions": DEFINITIONS.schema(),
            "design_phase": PHASE.schema(),
            "factor": _factor(),
            "outcome": {"anyOf": [OF, OUTCOME.schema(OUTCOME.required)]},
        },
    }


def _factor() -> Schema:
    has_levels = {"properties": {"levels": {"type": ["array", "object"]}}, "required": ["levels"]}
    return FACTOR.schema() | {
        "if": has_levels,
        "then": {"properties": {word: {"type": "null"} for word in CONTINUOUS}},
        "else": {"properties": {word: {"type": "null"} for word in DISCRETE}},
    }

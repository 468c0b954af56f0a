"""The JSON Schema of run documents, for editors, generated from the vocabulary of the checks.

A schema sees one phase at a time and no cascade, so it is more lenient than loading: it
requires the keys that every entry needs, and knows every key, spelling and allowed word.
"""

from __future__ import annotations

from .classes import TOPICS
from .fields import class_schema
from .located import Schema
from .vocabulary import (
    AGENT,
    BODY,
    ENVIRONMENT_ENTRY,
    PHASE,
    PHASE_CONFIG,
    RUN_CONFIG,
    SIMULATION,
    TOP,
)


def json_schema() -> Schema:
    """Build the JSON Schema (draft 2020-12) of run documents as plain data."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "palaestrai_mosaik experiment-run document",
        **TOP.schema(TOP.required),
        "$defs": {
            **{topic: class_schema(topic) for topic in TOPICS if topic != "environment"},
            "environment_entry": ENVIRONMENT_ENTRY.schema(ENVIRONMENT_ENTRY.required),
            "agent": AGENT.schema(("name",)),
            "body": BODY.schema(),
            "simulation": SIMULATION.schema(),
            "phase_config": PHASE_CONFIG.schema(),
            "run_config": RUN_CONFIG.schema()
            | {"oneOf": [{"required": ["condition"]}, {"required": ["conditions"]}]},
            "phase": PHASE.schema(),
        },
    }

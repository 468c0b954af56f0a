"""What the schemas of all documents are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .vocabulary import Section

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

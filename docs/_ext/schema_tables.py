"""Sphinx directive ``schema-tables``: a table of keys for every object of a JSON Schema.

``.. schema-tables:: run`` is that of run documents, ``design`` that of designs. The tables are made
from the schema that the commands print, so they cannot say anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from palaestrai_mosaik.arsenai.design import design_schema
from palaestrai_mosaik.experiment import json_schema

SCHEMAS = {"run": json_schema, "design": design_schema}
_LIMITS = {
    "minLength": "at least {} characters",
    "minItems": "at least {} items",
    "minProperties": "at least {} keys",
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
}


class SchemaTables(SphinxDirective):
    """A section for every object of the schema, with a table of its keys."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        schema = SCHEMAS[self.arguments[0]]()
        objects = {"document": schema, **schema.get("$defs", {})}
        found: list[nodes.Node] = []
        for name, definition in objects.items():
            for way, one in _objects(name, definition):
                found.append(self._section(way, one))
        return found

    def _section(self, way: str, one: dict[str, Any]) -> nodes.section:
        section = nodes.section(ids=[f"{self.arguments[0]}-{way.replace('.', '-').replace('_', '-')}"])
        section += nodes.title(text=way.replace("_", " "))
        lines = [".. list-table::", "   :header-rows: 1", "   :widths: 25 60 15", ""]
        lines += _row("key", "value", "")
        required = one.get("required", ())
        for key, value in one["properties"].items():
            lines += _row(f"``{key}``", _told(value), "mandatory" if key in required else "")
        if one.get("additionalProperties") not in (False, None):
            lines += _row("*any other*", _told(one["additionalProperties"]), "")
        self.state.nested_parse(StringList(lines, source=f"schema {self.arguments[0]}"), 0, section)
        return section


def _row(*cells: str) -> list[str]:
    first, *others = cells
    return [f"   * - {first}", *(f"     - {cell}" for cell in others)]


def _objects(way: str, definition: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all objects with named keys in ``definition``, with their names."""
    if not isinstance(definition, dict):
        return
    if definition.get("properties"):
        yield way, definition
    for key, value in definition.get("properties", {}).items():
        yield from _objects(f"{way}.{key}", value)
    for word in ("anyOf", "oneOf", "allOf"):
        for value in definition.get(word, ()):
            yield from _objects(way, value)
    for word in ("items", "additionalProperties"):
        yield from _objects(way, definition.get(word))


def _told(value: Any) -> str:
    """Describe the values that a schema allows."""
    if value is True or value == {}:
        return "anything"
    if "$ref" in value:
        return value["$ref"].rpartition("/")[2].replace("_", " ")
    for word in ("anyOf", "oneOf"):
        if word in value:
            return ", or ".join(dict.fromkeys(_told(one) for one in value[word]))
    if "const" in value:
        return f"``{value['const']}``" if value["const"] != "" else "an empty text"
    if "enum" in value:
        return ", ".join(f"``{one}``" for one in value["enum"])
    kinds = value.get("type", "anything")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    text = " or ".join("nothing" if kind == "null" else kind for kind in kinds)
    if "items" in value and value["items"] is not True:
        text += f" of ({_told(value['items'])})"
    told = [words.format(value[key]) for key, words in _LIMITS.items() if key in value and value[key] != 1]
    if "pattern" in value:
        told.append(f"matches ``{value['pattern']}``")
    text += f" ({', '.join(told)})" if told else ""
    return f"{text}: {value['description']}" if "description" in value else text


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("schema-tables", SchemaTables)
    return {"parallel_read_safe": True}

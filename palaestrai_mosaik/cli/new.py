"""``palaestrai-mosaik new``: creates small working examples."""

from __future__ import annotations

import json
import keyword
import re
from pathlib import Path

from palaestrai_mosaik.core import files
from palaestrai_mosaik.core.errors import FINISHED, PalaestraiMosaikError

from .output import say_unless_quiet

#: the texts of the examples, with placeholders: NAME for the document and the module, CLASS for the class
_TEMPLATES = Path(__file__).with_name("templates")
#: by kind, the suffixes of the files
_SUFFIXES = {"run": (".yml",), "agent": (".yml", ".py"), "environment": (".yml", ".py"), "design": (".yml",)}


def new(kind: str, name: str) -> int:
    """Write the files of an example to the working directory, without replacing files.

    Raises :class:`PalaestraiMosaikError` if ``name`` is not a valid module name, or a file exists.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise PalaestraiMosaikError(
            f"{name!r} cannot be the name of a module; write it in lower case with underscores, such as my_{kind}"
        )
    for suffix in _SUFFIXES[kind]:
        if Path(name + suffix).exists():
            raise PalaestraiMosaikError(f"{name}{suffix} exists; nothing was written")
    schema = Path("design.schema.json" if kind == "design" else "run.schema.json")
    class_name = "".join(part.title() for part in name.split("_"))
    for suffix in _SUFFIXES[kind]:
        text = (_TEMPLATES / f"{kind}{suffix}.in").read_text(encoding="utf-8")
        text = text.replace("{schema}", schema.name).replace("NAME", name).replace("CLASS", class_name)
        files.write_text(name + suffix, text)
        say_unless_quiet(name + suffix)
    if not schema.exists():
        files.write_text(schema, json.dumps(_schema(kind)))
        say_unless_quiet(schema)
    say_unless_quiet(f"next: {'arsenai plan' if kind == 'design' else 'palaestrai-mosaik start'} {name}.yml")
    return FINISHED


def _schema(kind: str) -> object:
    if kind == "design":
        from palaestrai_mosaik.arsenai.design.vocabulary import design_schema

        return design_schema()
    from palaestrai_mosaik.experiment import json_schema

    return json_schema()

"""The program that checks a document for the page: it reads an order as JSON, and prints what is wrong as JSON.

A check imports the classes that a document names and sets up its environments. In a process of its own, no code of
users can stop the server, stay in its memory, or print into its answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.design.load import loads as load_design
from palaestrai_mosaik.design.vocabulary import DESIGN
from palaestrai_mosaik.errors import DocumentError, Problem
from palaestrai_mosaik.execution.design_check import check_design
from palaestrai_mosaik.execution.settings import allowed_modules
from palaestrai_mosaik.experiment import describe, loads
from palaestrai_mosaik.experiment.columns import columns_of
from palaestrai_mosaik.experiment.overrides import parse
from palaestrai_mosaik.experiment.vocabulary import TOP
from palaestrai_mosaik.experiment.yaml_text import read
from palaestrai_mosaik.importing import only_modules
from palaestrai_mosaik.runner.agent_check import check_document


def check_text(
    text: str, name: str, settings: Sequence[str] = (), allow_modules: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return what is wrong in a document, as ``palaestrai-mosaik check`` and ``arsenai check`` report it.

    Args:
        text: the document as YAML: a run document, or a design, which has keys that only designs have.
        name: what messages call it.
        settings: other values at some paths (``PATH=VALUE``) of a run document.
        allow_modules: the modules that it may name; ``None``: all.

    Returns:
        ``kind`` (``run`` or ``design``), ``uid``, ``problems`` and ``warnings`` (``file`` of what is in another file,
        ``line`` and ``column`` from 1, ``path``, ``message``), ``description`` of a sound run document.
    """
    kind = "design" if is_design(text, name) else "run"
    uid, description = None, ""
    problems: Sequence[Problem] = ()
    warnings: Sequence[Problem] = ()
    if kind == "design":
        try:
            spec = load_design(text, name)
            uid = spec.uid
            modules = allowed_modules(
                spec.resolved.get("execution"), None if allow_modules is None else tuple(allow_modules)
            )
            warnings = spec.warnings
            with only_modules(modules):
                warnings = [*warnings, *check_design(spec).failing]
        except DocumentError as error:
            problems = error.problems
    else:
        with only_modules(allow_modules):
            uid, description, problems, warnings = _check_run(text, name, settings)
    return {
        "kind": kind,
        "uid": uid,
        "problems": _data(problems, name, text),
        "warnings": _data(warnings, name, text),
        "description": "" if problems else description,
    }


def is_design(text: str, name: str = "<string>") -> bool:
    """Whether a text is a design: it has keys that only designs have."""
    try:
        value = read(text, name).value
    except DocumentError:
        return False
    return isinstance(value, Mapping) and bool((set(DESIGN.keys) - set(TOP.keys)) & set(value))


def _check_run(
    text: str, name: str, settings: Sequence[str]
) -> tuple[str | None, str, Sequence[Problem], Sequence[Problem]]:
    try:
        document = loads(text, name, parse(settings))
    except DocumentError as error:
        if error.partial is None:
            return None, "", error.problems, ()
        return None, "", *check_document(error.partial, error.problems)
    return document.uid, describe(document), *check_document(document)


def _data(problems: Iterable[Problem], name: str, text: str) -> list[dict[str, Any]]:
    each = list(dict.fromkeys(problems))
    return [
        {
            "file": None if problem.file in ("", name) else problem.file,
            "line": problem.line,
            "column": column,
            "path": problem.path or None,
            "message": problem.message,
        }
        for problem, column in zip(each, columns_of(each, {name: text}), strict=True)
    ]


def main() -> None:
    """Answer the order on standard input; what the code of documents prints goes to standard error."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # code of users is found where commands find it
    sys.path[0:1] = [os.getcwd()]
    order = json.load(sys.stdin.buffer)
    found = check_text(order["text"], order["name"], order.get("settings", ()), order.get("allow_modules"))
    answer.write(json.dumps(found).encode("utf-8", "backslashreplace"))
    answer.close()


if __name__ == "__main__":
    main()

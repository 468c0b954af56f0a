"""The program that checks a document for the page. It reads a request and prints the problems, both as JSON.

A check imports the classes that a document names and sets up its environments. In a separate process, users' code
cannot stop the server, stay in its memory, or print into its answer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from palaestrai_mosaik.arsenai.design.load import loads as load_design
from palaestrai_mosaik.arsenai.design.vocabulary import DESIGN
from palaestrai_mosaik.arsenai.execution.design_check import check_design
from palaestrai_mosaik.arsenai.execution.settings import allowed_modules
from palaestrai_mosaik.core.errors import DocumentError, Problem
from palaestrai_mosaik.core.importing import only_modules
from palaestrai_mosaik.experiment import describe, loads
from palaestrai_mosaik.experiment.paths import parse
from palaestrai_mosaik.experiment.vocabulary import TOP
from palaestrai_mosaik.experiment.yaml_text import columns_of, read
from palaestrai_mosaik.runner.preflight import check_setup


def check_text(
    text: str, name: str, settings: Sequence[str] = (), allow_modules: Sequence[str] | None = None
) -> dict[str, Any]:
    """Check a document like ``palaestrai-mosaik check`` and ``arsenai check``; return the problems.

    Args:
        text: the document as YAML: a run document, or a design, which is recognized by its keys.
        name: the name of the document in messages.
        settings: changed values of a run document (``PATH=VALUE``).
        allow_modules: the modules that the document may name; ``None``: all.

    Returns:
        ``kind`` (``run`` or ``design``), ``uid``, ``problems`` and ``warnings`` (``file`` if it is another file,
        ``line`` and ``column`` from 1, ``path``, ``message``), and ``description`` of a sound run document.
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
    """Whether a text is a design, which has keys that run documents do not have."""
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
        problems, warnings, _ = check_setup(error.partial, error.problems)
        return None, "", problems, warnings
    problems, warnings, matched = check_setup(document)
    return document.uid, describe(matched), problems, warnings


def _data(problems: Iterable[Problem], name: str, text: str) -> list[dict[str, Any]]:
    unique = list(dict.fromkeys(problems))
    return [
        {
            "file": None if problem.file in ("", name) else problem.file,
            "line": problem.line,
            "column": column,
            "path": problem.path or None,
            "message": problem.message,
        }
        for problem, column in zip(unique, columns_of(unique, {name: text}), strict=True)
    ]


def main() -> None:
    """Read a request from standard input, and print the answer.

    Output of users' code is redirected to standard error.
    """
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # users' modules are importable from the working directory, as in commands
    sys.path[0:1] = [os.getcwd()]
    request = json.load(sys.stdin.buffer)
    result = check_text(
        request["text"], request["name"], request.get("settings", ()), request.get("allow_modules")
    )
    answer.write(json.dumps(result).encode("utf-8", "backslashreplace"))
    answer.close()


if __name__ == "__main__":
    main()

"""``palaestrai-mosaik check`` and ``schema``: run documents, without running them."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from palaestrai_mosaik.errors import DocumentError, Problem
from palaestrai_mosaik.experiment import check_classes, describe, json_schema, load

from .common import FINISHED, UNSOUND, print_problems, say
from .tables import count


def check(paths: Sequence[str], *, environments: bool) -> int:
    """Print the cascaded phases of each document and everything that is wrong with it.

    Descriptions go to standard output, warnings and problems to standard error, one a
    line. Without ``environments`` none is set up, so the names of sensors and actuators
    and the end of phases are not checked.
    """
    codes = [_check(path, environments) for path in paths]
    return max(codes, default=FINISHED)


def schema() -> int:
    """Print the JSON Schema of run documents."""
    say(json.dumps(json_schema(), indent=2))
    return FINISHED


def _check(path: str, environments: bool) -> int:
    try:
        document = load(path)
    except DocumentError as error:
        return _report(path, error.problems)
    say(describe(document), end="")
    # what is on standard output comes first where both streams are one
    sys.stdout.flush()
    from palaestrai_mosaik.run.inspect import Inspection
    from palaestrai_mosaik.run.parts import BASES, class_of

    warnings: Sequence[Problem] = ()
    if environments:
        inspection = Inspection(document)
        inspection.close()
        problems, warnings = inspection.problems, inspection.warnings
    else:
        problems = list(check_classes(document, BASES, class_of))
    for warning in (*document.warnings, *warnings):
        say(f"warning: {warning}", error=True)
    if problems:
        return _report(path, problems)
    unchecked = "" if environments else " (environments not looked at)"
    say(f"{path}: sound{unchecked}")
    return FINISHED


def _report(path: str, problems: Sequence[Problem]) -> int:
    say(f"{path}: {count(print_problems(problems), 'problem')}", error=True)
    return UNSOUND

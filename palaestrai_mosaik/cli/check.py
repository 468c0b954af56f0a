"""``palaestrai-mosaik check`` and ``schema``: checks of run documents."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from palaestrai_mosaik.core.errors import FINISHED, UNSOUND, DocumentError, Problem
from palaestrai_mosaik.core.printing import count
from palaestrai_mosaik.experiment import (
    PartialDocument,
    PhaseSpec,
    RunDocument,
    check_classes,
    describe,
    hook_warnings,
    json_schema,
    load,
)
from palaestrai_mosaik.experiment.paths import Overrides, parse

from .common import print_problems
from .output import (
    answer,
    compose,
    note,
    problems_data,
    say,
    say_unless_quiet,
    select,
    status,
    wants_json,
    warn,
    wide,
    wrapped,
)


def check(documents: Sequence[str], *, environments: bool, settings: Sequence[str] = ()) -> int:
    """Describe each document with resolved inheritance, and print all its problems.

    Descriptions go to standard output, warnings and problems to standard error, one per line. With ``--verbose``, so do
    notes on what palaestrAI would interpret differently. Without ``environments``, these are not set up, so names of
    sensors and actuators and the end of phases are not checked. ``settings`` (``PATH=VALUE``) override values in all
    documents.
    """
    overrides = parse(settings)
    results = [_check(path, environments, overrides) for path in documents]
    answer({"documents": results})
    return FINISHED if all(result["sound"] for result in results) else UNSOUND


def schema() -> int:
    """Print the JSON Schema of run documents."""
    say(json.dumps(json_schema(), indent=2))
    return FINISHED


def _check(path: str, environments: bool, overrides: Overrides) -> dict[str, Any]:
    """Check one document, print the results, and return them as data."""
    document: RunDocument | PartialDocument
    earlier: Sequence[Problem] = ()
    try:
        document = load(path, overrides)
    except DocumentError as error:
        if error.partial is None:
            return _report(path, error.problems, [])
        document, earlier = error.partial, error.problems
    problems, warnings, matched = _find_problems(document, earlier, environments)
    if isinstance(document, RunDocument):
        lines = describe(matched, whole=wide()).splitlines()
        say_unless_quiet(*(wrapped(line, len(line) - len(line.lstrip()) + 4) for line in lines))
    warn(*warnings)
    if isinstance(document, RunDocument):
        note(*document.notes)
    if problems:
        return _report(path, problems, warnings)
    assert isinstance(document, RunDocument)
    unchecked = "" if environments else " (environments not checked)"
    say_unless_quiet(compose(f"{path}: ", status("sound"), unchecked))
    return _data(path, [], warnings) | {
        **select(document, "uid", "seed", "hash"),
        "phases": [_phase_data(phase) for phase in document.phases],
        "environments_checked": environments,
    }


def _find_problems(
    document: RunDocument | PartialDocument, earlier: Sequence[Problem], environments: bool
) -> tuple[Sequence[Problem], Sequence[Problem], RunDocument]:
    """Return all problems, including the ``earlier`` ones, the warnings, and the document, if possible without patterns."""
    from palaestrai_mosaik.runner.factory import BASES, class_of
    from palaestrai_mosaik.runner.preflight import check_setup

    if environments:
        return check_setup(document, earlier)
    whole = document.document if isinstance(document, PartialDocument) else document
    problems = {*earlier, *check_classes(whole, BASES, class_of)}
    in_order = sorted(problems, key=lambda problem: (problem.line or 0, problem.message))
    return in_order, [*whole.warnings, *hook_warnings(whole, class_of)], whole


def _data(path: str, problems: Sequence[Problem], warnings: Sequence[Problem]) -> dict[str, Any]:
    faults = (
        {"problems": problems_data(problems), "warnings": problems_data(warnings)} if wants_json() else {}
    )
    return {"file": path, "sound": not problems, **faults}


def _phase_data(phase: PhaseSpec) -> dict[str, Any]:
    return {
        "name": phase.name,
        "mode": phase.mode.name.lower(),
        **select(phase, "workers", "episodes"),
        "environments": [environment.uid for environment in phase.environments],
        "agents": [agent.name for agent in phase.agents],
    }


def _report(path: str, problems: Sequence[Problem], warnings: Sequence[Problem]) -> dict[str, Any]:
    counted = status(count(print_problems(problems), "problem"), "failed", error=True)
    say(compose(f"{path}: ", counted), error=True)
    return _data(path, problems, warnings)

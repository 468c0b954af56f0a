"""Checks run documents of a design as ``palaestrai-mosaik check`` does, before any of them is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from palaestrai_mosaik.design.expansion import Expansion
from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.design.rows import RowFaults, all_rows, draw_rows, representative_rows
from palaestrai_mosaik.design.run_names import run_file, run_uid
from palaestrai_mosaik.design.search import examples
from palaestrai_mosaik.errors import DocumentError, Problem
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.progress import ProgressCallback
from palaestrai_mosaik.runner.agent_check import check_agents
from palaestrai_mosaik.runner.preflight import Inspection, SharedEnvironments

#: which rows of a design are checked
Extent = Literal["levels", "all", "none"]
EXTENTS: dict[Extent, str] = {
    "levels": "rows that have each level and each extreme value at least once",
    "all": "every row",
    "none": "no row: classes and environments are not looked at",
}


def check_design(
    spec: DesignSpec, extent: Extent = "levels", progress: ProgressCallback | None = None
) -> int:
    """Check the documents of rows of ``spec``: classes, environments, sensors and actuators, set-up of agents.

    ``progress`` is called with the number of rows that are checked and of those that will be. Returns how many rows
    were checked. Raises :class:`~palaestrai_mosaik.errors.DocumentError` with each problem once: the first row that
    has it, and the factor that sets the place where it is.
    """
    if extent == "none":
        return 0
    spec = examples(spec)
    rows = draw_rows(spec)
    chosen = all_rows(spec, rows) if extent == "all" else representative_rows(spec, rows)
    expansion, faults, environments = Expansion(spec), RowFaults(spec), SharedEnvironments()
    try:
        for done, (number, values) in enumerate(chosen.items(), 1):
            problems = _problems(expansion, number, values, environments)
            if problems:
                faults.add(number, values, [_located(expansion, values, problem) for problem in problems])
            environments.trim()
            if progress is not None:
                progress(done, len(chosen))
    finally:
        environments.close()
    if faults.count:
        raise DocumentError(faults.problems())
    return len(chosen)


def _problems(
    expansion: Expansion, number: int, values: Mapping[str, Any], environments: SharedEnvironments
) -> list[Problem]:
    uid = run_uid(expansion.spec.uid, number, 0)
    try:
        data = expansion.mapping(values, uid, 0)
        document = from_mapping(data, run_file(expansion.spec.uid, number, 0), text="", hashed=False)
    except DocumentError as error:
        return list(error.problems)
    inspection = Inspection(document, shared=environments)
    check_agents(inspection)
    return inspection.problems


def _located(expansion: Expansion, values: Mapping[str, Any], problem: Problem) -> Problem:
    """Return ``problem`` with the line of the design: of the factor that sets what is wrong, else of the base."""
    spec = expansion.spec
    try:
        factor = expansion.factor_at(problem.path, values)
    except DocumentError:
        return problem  # the path of a factor leads nowhere, which is the problem
    if factor is not None:
        return replace(problem, line=spec.problem("", "factors", factor.name).line)
    if spec.base is None:
        return problem  # written in arsenAI's form, in which the document has other places
    return spec.problem(problem.message, "base", *problem.path.split("."))

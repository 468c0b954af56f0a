"""Checks run documents of a design like ``palaestrai-mosaik check``, before any of them is executed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from palaestrai_mosaik.arsenai.design.expansion import Expansion
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.rows import RowFaults, all_rows, draw_rows, representative_rows
from palaestrai_mosaik.arsenai.design.run_names import run_file, run_uid
from palaestrai_mosaik.arsenai.design.search import examples
from palaestrai_mosaik.core.errors import DocumentError, Problem
from palaestrai_mosaik.core.progress import ProgressCallback
from palaestrai_mosaik.experiment import from_mapping
from palaestrai_mosaik.runner.agent_check import check_agents
from palaestrai_mosaik.runner.preflight import Inspection, SharedEnvironments

from .outcome_check import OutcomeCheck

#: the rows of a design to check: some with each level and each extreme value, all, or none
Extent = Literal["levels", "all", "none"]


class Checked(NamedTuple):
    """The number of checked rows, and the problems of some possible settings of a search (``failing``)."""

    rows: int
    failing: tuple[Problem, ...] = ()


def check_design(
    spec: DesignSpec, extent: Extent = "levels", progress: ProgressCallback | None = None
) -> Checked:
    """Check the documents of a design: classes, environments, sensors, actuators, set-up of agents, outcomes.

    Args:
        spec: the design.
        extent: the rows to check.
        progress: called with the number of checked rows, and their total.

    Raises:
        DocumentError: documents have problems. Each problem is reported once, with its first row and the factor that
            causes it. For a search, this is only raised if all rows have problems, or a row has no document; any other
            setting with problems fails during the search, which continues.
    """
    if extent == "none":
        return Checked(0)
    searches, spec = spec.search is not None, examples(spec)
    rows = draw_rows(spec)
    chosen = all_rows(spec, rows) if extent == "all" else representative_rows(spec, rows)
    expansion, faults, environments = Expansion(spec), RowFaults(spec), SharedEnvironments()
    outcomes, refused = OutcomeCheck(spec), not searches
    try:
        for done, (number, values) in enumerate(chosen.items(), 1):
            problems, has_document = _problems(expansion, number, values, environments, outcomes)
            refused = refused or not has_document
            if problems:
                faults.add(number, values, [_located(expansion, values, problem) for problem in problems])
            environments.trim()
            if progress is not None:
                progress(done, len(chosen))
    finally:
        environments.close()
    if faults.count and (refused or faults.count == len(chosen)):
        raise DocumentError(faults.problems())
    missing = list(outcomes.problems())
    if missing:
        raise DocumentError(missing)
    return Checked(len(chosen), tuple(faults.problems()))


def _problems(
    expansion: Expansion,
    number: int,
    values: Mapping[str, Any],
    environments: SharedEnvironments,
    outcomes: OutcomeCheck,
) -> tuple[list[Problem], bool]:
    """Return the problems of a row, and whether its factors yield a document."""
    uid = run_uid(expansion.spec.uid, number, 0)
    try:
        data = expansion.mapping(values, uid, 0)
    except DocumentError as error:
        return list(error.problems), False
    try:
        document = from_mapping(data, run_file(expansion.spec.uid, number, 0), text="", hashed=False)
    except DocumentError as error:
        return list(error.problems), True
    inspection = Inspection(document, shared=environments)
    check_agents(inspection)
    if not inspection.problems:
        outcomes.look(inspection)
    return inspection.problems, True


def _located(expansion: Expansion, values: Mapping[str, Any], problem: Problem) -> Problem:
    """Return ``problem`` with the design's line of the factor that causes it, else with the line of the base."""
    spec = expansion.spec
    try:
        factor = expansion.factor_at(problem.path, values)
    except DocumentError:
        return problem  # the problem is that a factor's path does not exist
    if factor is not None:
        return replace(problem, line=spec.problem("", "factors", factor.name).line)
    if spec.base is None:
        return problem  # in arsenAI's form, the document has other paths
    return spec.problem(problem.message, "base", *problem.path.split("."))

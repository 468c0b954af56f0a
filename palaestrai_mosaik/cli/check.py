"""``palaestrai-mosaik check``, ``schema``, ``graph`` and ``plot``: run documents and their pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palaestrai_mosaik import files
from palaestrai_mosaik.errors import (
    FINISHED,
    UNSOUND,
    ContractError,
    DocumentError,
    PalaestraiMosaikError,
    Problem,
)
from palaestrai_mosaik.experiment import (
    PartialDocument,
    PhaseSpec,
    RunDocument,
    check_classes,
    describe,
    json_schema,
    load,
)
from palaestrai_mosaik.experiment.overrides import Overrides, parse
from palaestrai_mosaik.text import count

from .answers import answer, problems_data
from .common import print_problems
from .output import compose, say, say_unless_quiet, status, wants_json, warn

if TYPE_CHECKING:
    from palaestrai_mosaik.analysis import Fold, LearningChoice
    from palaestrai_mosaik.analysis.limits import Limits
    from palaestrai_mosaik.store import BodyChoice, Store
    from palaestrai_mosaik.store.location import StoreLocation


def check(documents: Sequence[str], *, environments: bool, settings: Sequence[str] = ()) -> int:
    """Print the cascaded phases of each document and everything that is wrong with it.

    Descriptions go to standard output, warnings and problems to standard error, one a
    line. Without ``environments`` none is set up, so the names of sensors and actuators
    and the end of phases are not checked. ``settings`` (``PATH=VALUE``) change all documents.
    """
    overrides = parse(settings)
    found = [_check(path, environments, overrides) for path in documents]
    if wants_json():
        answer({"documents": found})
    return FINISHED if all(one["sound"] for one in found) else UNSOUND


def schema() -> int:
    """Print the JSON Schema of run documents."""
    say(json.dumps(json_schema(), indent=2))
    return FINISHED


def _check(path: str, environments: bool, overrides: Overrides) -> dict[str, Any]:
    """Check one document, print what was found, and return it as data."""
    document: RunDocument | PartialDocument
    known: Sequence[Problem] = ()
    try:
        document = load(path, overrides)
        say_unless_quiet(describe(document), end="")
        warnings = [*document.warnings]
    except DocumentError as error:
        if error.partial is None:
            return _report(path, error.problems, [])
        document, known, warnings = error.partial, error.problems, []
    from palaestrai_mosaik.runner.agent_check import check_agents
    from palaestrai_mosaik.runner.factory import BASES, class_of
    from palaestrai_mosaik.runner.preflight import Inspection

    if environments:
        inspection = Inspection(document, known=known)
        try:
            check_agents(inspection)
        finally:
            inspection.close()
        problems, warnings = inspection.problems, warnings + inspection.warnings
    else:
        whole = document.document if isinstance(document, PartialDocument) else document
        problems = list(check_classes(whole, BASES, class_of))
    for warning in warnings:
        warn(warning)
    if known or problems:
        return _report(
            path,
            sorted({*known, *problems}, key=lambda problem: (problem.line or 0, problem.message)),
            warnings,
        )
    unchecked = "" if environments else " (environments not checked)"
    say_unless_quiet(compose(f"{path}: ", status("sound"), unchecked))
    assert isinstance(document, RunDocument)
    return _data(path, [], warnings) | {
        "uid": document.uid,
        "seed": document.seed,
        "hash": document.hash,
        "phases": [_phase_data(phase) for phase in document.phases],
        "environments_checked": environments,
    }


def _data(path: str, problems: Sequence[Problem], warnings: Sequence[Problem]) -> dict[str, Any]:
    found = {"problems": problems_data(problems), "warnings": problems_data(warnings)} if wants_json() else {}
    return {"file": path, "sound": not problems, **found}


def _phase_data(phase: PhaseSpec) -> dict[str, Any]:
    return {
        "name": phase.name,
        "mode": phase.mode.name.lower(),
        "workers": phase.workers,
        "episodes": phase.episodes,
        "environments": [environment.uid for environment in phase.environments],
        "agents": [agent.name for agent in phase.agents],
    }


def _report(path: str, problems: Sequence[Problem], warnings: Sequence[Problem]) -> dict[str, Any]:
    counted = status(count(print_problems(problems), "problem"), "failed", error=True)
    say(compose(f"{path}: ", counted), error=True)
    return _data(path, problems, warnings)


def graph(
    document: str,
    phase: int | str,
    output: str | None,
    settings: Sequence[str] = (),
) -> int:
    """Draw the world of a phase of the document at that path; print it if there is no ``output``."""
    from palaestrai_mosaik.runner import inspect
    from palaestrai_mosaik.runner.factory import BASES, class_of
    from palaestrai_mosaik.simulation.world_data import graph_data
    from palaestrai_mosaik.simulation.world_graph import draw_graph, graph_text, world_graph

    loaded = load(document, parse(settings))
    problems = check_classes(loaded, BASES, class_of)
    if problems:
        raise DocumentError(problems)
    try:
        world = world_graph(loaded, phase)
    except (ContractError, DocumentError):
        # most likely the document names what is not there: say so with all places and nearest names
        problems = inspect(loaded)
        if problems:
            raise DocumentError(problems) from None
        raise
    if wants_json():
        answer(graph_data(world))
    elif output is None:
        say(graph_text(world), end="")
    if output is not None:
        if Path(output).suffix.lower() == ".txt":
            _write(output, graph_text(world))
        else:
            draw_graph(world, output)
        say_unless_quiet(output)
    return FINISHED


def _write(path: str, text: str) -> None:
    try:
        files.write_text(path, text)
    except OSError as error:
        raise PalaestraiMosaikError(f"cannot write {path}: {error.strerror}") from error


def plot(  # noqa: PLR0913  (independent choices)
    location: StoreLocation,
    run: str,
    output: str | None,
    *,
    phase: int | str | None,
    choice: BodyChoice,
    sensors: Sequence[str],
    episode: int | None,
    fold: Fold | None,
    limits: Limits,
) -> int:
    """Plot a run into ``output``, or a file named after its document; print the file's name."""
    from palaestrai_mosaik.analysis import plot_run

    with location.look() as store:
        path = output or _named_after(store, run, "")
        say_unless_quiet(
            plot_run(
                *(store, run, path),
                phase=phase,
                choice=choice,
                sensors=sensors,
                episode=episode,
                fold=fold,
                limits=limits,
            )
        )
    return FINISHED


def plot_learning(
    location: StoreLocation, runs: Sequence[str], output: str | None, choice: LearningChoice
) -> int:
    """Plot how the agents of runs learned; print the file's name."""
    from palaestrai_mosaik.analysis import plot_learning

    with location.look() as store:
        say_unless_quiet(
            plot_learning(store, runs, output or _named_after(store, runs[0], "-learning"), choice)
        )
    return FINISHED


def _named_after(store: Store, run: str, ending: str) -> str:
    uid = store.find_run(run)
    runs = store.runs()
    document = runs.loc[runs["run"] == uid, "document"].iloc[0]
    return re.sub(r"[^\w.-]+", "_", f"{document}-{uid[:15]}").strip("_.") + f"{ending}.png"

"""Checks whether the agents of a document can be created and set up as in its phases."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from palaestrai_mosaik.core.errors import Problem
from palaestrai_mosaik.core.importing import users_place
from palaestrai_mosaik.experiment import (
    AgentSpec,
    BodySpec,
    ClassSpec,
    PartialDocument,
    PhaseSpec,
    RunDocument,
)
from palaestrai_mosaik.experiment.model import UNREAD, Place
from palaestrai_mosaik.simulation.body_placement import place_bodies
from palaestrai_mosaik.types import Mode

from .brains import brain_keeper
from .factory import WorkerPlan, make, make_bodies
from .learners import make_learner
from .preflight import Inspection
from .replay import ReplayContext


def check_document(
    document: RunDocument | PartialDocument, earlier: Sequence[Problem] = ()
) -> tuple[list[Problem], list[Problem]]:
    """Set up a document's environments and agents, and collect all problems, as the command ``check`` does.

    Args:
        document: the document, or the valid parts of it.
        earlier: problems reported while the document was read; they are included in the result.

    Returns:
        All problems in the order of their lines, and all warnings.
    """
    inspection = Inspection(document, earlier=earlier)
    try:
        check_agents(inspection)
    finally:
        inspection.close()
    problems = {*earlier, *inspection.problems}
    in_order = sorted(problems, key=lambda problem: (problem.line or 0, problem.message))
    return in_order, [*inspection.document.warnings, *inspection.warnings]


def check_agents(inspection: Inspection) -> None:
    """Report brains, muscles and objectives that cannot be created, and agents that cannot be set up.

    Parts with known problems are skipped. Models and sessions are not loaded, and no step is run.
    """
    placed = {phase.index: phase for phase in inspection.phases}
    checked: list[tuple[AgentSpec, object, Mode]] = []
    for phase in inspection.document.phases:
        for j, agent in enumerate(phase.agents):
            setup = (agent, phase.environments, phase.mode)
            path = ("phases", phase.index, "agents", j)
            if setup in checked:
                continue
            checked.append(setup)
            can_be_made = _can_be_made(inspection, agent, path)
            if can_be_made and phase.index in placed and inspection.is_sound(*path):
                _set_up(inspection, placed[phase.index], placed[phase.index].agents[j], path)


def _can_be_made(inspection: Inspection, agent: AgentSpec, path: Place) -> bool:
    """Create the agent's parts one by one, so that each problem names its part; return whether all succeeded."""
    sound = True
    for topic, spec, inside in _parts(agent):
        if spec is UNREAD or not inspection.is_sound(*path, *inside):
            continue
        try:
            make(spec, topic)
        except Exception as error:
            sound = False
            text = f"{topic} {spec.name!r} cannot be made: {type(error).__name__}: {error}"
            inspection.report(text, *path, *inside)
    return sound


def _set_up(inspection: Inspection, phase: PhaseSpec, agent: AgentSpec, path: Place) -> None:
    agent = replace(agent, load=None, replay=())
    phase = replace(phase, agents=(agent,), workers=1)
    handles = [inspection.handle(spec) for spec in phase.environments]
    groups, faults = place_bodies(agent, handles)
    if faults:
        return  # already reported
    document = inspection.document
    with tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-") as folder:
        try:
            keeper = brain_keeper(agent, phase, document, Path(folder), None)
            learner = make_learner(agent, ReplayContext(document, phase, None), keeper, groups, None)
            plan = WorkerPlan(
                phase, document.conditions, document.seed, 0, {agent.name: keeper}, inspection.stored
            )
            for _ in make_bodies(agent, plan, handles, learner):
                pass
        except Exception as error:
            text = (
                f"agent {agent.name!r} cannot be set up: {type(error).__name__}: {error}{users_place(error)}"
            )
            inspection.report(text, *path)


def _parts(agent: AgentSpec) -> Iterator[tuple[str, ClassSpec, Place]]:
    """Yield the topic, class and path within the agent of each of its parts."""
    if agent.brain is not None:
        yield "brain", agent.brain, ("brain",)
    if not agent.bodies:
        yield from _inside(agent, ())
    for number, body in enumerate(agent.bodies):
        yield from _inside(body, ("bodies", number))


def _inside(part: AgentSpec | BodySpec, path: Place) -> Iterator[tuple[str, ClassSpec, Place]]:
    yield "muscle", part.muscle, (*path, "muscle")
    if part.objective is not None:
        yield "objective", part.objective, (*path, "objective")

"""Makes and sets up the agents of a document as its phases would, to see whether that works."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from palaestrai_mosaik.errors import Problem
from palaestrai_mosaik.experiment import (
    AgentSpec,
    BodySpec,
    ClassSpec,
    PartialDocument,
    PhaseSpec,
    RunDocument,
)
from palaestrai_mosaik.experiment.model import Place
from palaestrai_mosaik.simulation.body_placement import place_bodies
from palaestrai_mosaik.types import Mode

from .brains import brain_keeper
from .factory import WorkerPlan, make, make_bodies
from .learners import make_learner
from .preflight import Inspection
from .replay import ReplayContext


def check_document(
    document: RunDocument | PartialDocument, known: Sequence[Problem] = ()
) -> tuple[list[Problem], list[Problem]]:
    """Return the problems of a document, in the order of its lines, and warnings: what ``check`` reports.

    Args:
        document: the document, or what could be read of it. Its environments and agents are set up.
        known: the problems that reading it has found, which are among those that are returned.
    """
    inspection = Inspection(document, known=known)
    try:
        check_agents(inspection)
    finally:
        inspection.close()
    problems = {*known, *inspection.problems}
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.message)), inspection.warnings


def check_agents(inspection: Inspection) -> None:
    """Report brains, muscles and objectives that cannot be made, and agents that cannot be set up.

    Agents with problems that are known already are left out, and what they load or replay is not read. No step is made.
    """
    placed = {phase.index: phase for phase in inspection.phases}
    tried: list[tuple[AgentSpec, object, Mode]] = []
    for phase in inspection.document.phases:
        for j, agent in enumerate(phase.agents):
            what = (agent, phase.environments, phase.mode)
            place = ("phases", phase.index, "agents", j)
            if what in tried or not inspection.is_sound(*place):
                continue
            tried.append(what)
            if _can_be_made(inspection, agent, place) and phase.index in placed:
                _set_up(inspection, placed[phase.index], placed[phase.index].agents[j], place)


def _can_be_made(inspection: Inspection, agent: AgentSpec, place: Place) -> bool:
    """Make the agent's parts one by one, so that a problem names its part."""
    sound = True
    for topic, spec, inside in _parts(agent):
        try:
            make(spec, topic)
        except Exception as error:
            sound = False
            text = f"{topic} {spec.name!r} cannot be made: {type(error).__name__}: {error}"
            inspection.report(text, *place, *inside)
    return sound


def _set_up(inspection: Inspection, phase: PhaseSpec, agent: AgentSpec, place: Place) -> None:
    agent = replace(agent, load=None, replay=())
    phase = replace(phase, agents=(agent,), workers=1)
    handles = [inspection.handle(spec) for spec in phase.environments]
    groups, faults = place_bodies(agent, handles)
    if faults:
        return  # reported already
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
            text = f"agent {agent.name!r} cannot be set up: {type(error).__name__}: {error}"
            inspection.report(text, *place)


def _parts(agent: AgentSpec) -> Iterator[tuple[str, ClassSpec, Place]]:
    """Yield topic, class and place within the agent of each of its parts."""
    if agent.brain is not None:
        yield "brain", agent.brain, ("brain",)
    if not agent.bodies:
        yield from _inside(agent, ())
    for number, body in enumerate(agent.bodies):
        yield from _inside(body, ("bodies", number))


def _inside(one: AgentSpec | BodySpec, place: Place) -> Iterator[tuple[str, ClassSpec, Place]]:
    yield "muscle", one.muscle, (*place, "muscle")
    if one.objective is not None:
        yield "objective", one.objective, (*place, "objective")

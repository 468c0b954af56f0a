"""Checks of a run document that need its environments: names of sensors, endless phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.errors import ContractError, DocumentError, Problem
from palaestrai_mosaik.experiment import AgentSpec, EnvironmentSpec, PhaseSpec, RunDocument, check_classes
from palaestrai_mosaik.palaestrai import is_adapted
from palaestrai_mosaik.simulation.body_placement import BodyGroup, place_bodies
from palaestrai_mosaik.simulation.conditions import (
    AgentObjectiveTerminationCondition,
    EnvironmentTerminationCondition,
    TerminationCondition,
)
from palaestrai_mosaik.simulation.connections import shared_actuators
from palaestrai_mosaik.simulation.environment_handle import EnvironmentHandle, match_all
from palaestrai_mosaik.simulation.evaluation import AgentEvaluationObjectiveTerminationCondition
from palaestrai_mosaik.types import Mode

from .factory import BASES, cannot_load, class_of, make_conditions, make_filters, make_handle, untold_muscles
from .recorded_sessions import DEFAULT_STORE, StoredSessions, check_sessions


class PlacedBodies(NamedTuple):
    """The bodies of an agent in the environments of a phase; ``sound``: all have their place."""

    groups: list[BodyGroup]
    sound: bool


class Inspection:
    """A run document with its environments set up.

    ``problems`` is empty if the document can be run; ``warnings`` are what it may not mean. ``phases`` are those of the document,
    with patterns among the sensors and actuators of agents (``grid.bus-*.vm_pu``) replaced
    by what they match, in the order of the environments. The environments that were made for
    looking at them are handed to whoever runs the document (:meth:`take`), or shut down
    (:meth:`close`).
    """

    def __init__(self, document: RunDocument, stored: StoredSessions = DEFAULT_STORE):
        self.document = document
        self.stored = stored
        self.problems: list[Problem] = list(check_classes(document, BASES, class_of))
        self.warnings: list[Problem] = []
        self.phases: list[PhaseSpec] = []
        self._handles: list[tuple[EnvironmentSpec, EnvironmentHandle]] = []
        self._spare: list[tuple[EnvironmentSpec, EnvironmentHandle]] = []
        if not self.problems:
            for i, phase in enumerate(document.phases):
                self._look_at(i, phase)

    def raise_problems(self) -> None:
        """Raise :class:`DocumentError` if there are problems."""
        if self.problems:
            self.close()
            raise DocumentError(self.problems)

    def handle(self, spec: EnvironmentSpec) -> EnvironmentHandle:
        """Return the environment of ``spec`` as it was set up for looking at it."""
        return next(handle for known, handle in self._handles if known == spec)

    def take(self, spec: EnvironmentSpec) -> EnvironmentHandle:
        """Return an environment for ``spec`` that nobody uses, made anew if need be."""
        for i, (known, handle) in enumerate(self._spare):
            if known == spec:
                del self._spare[i]
                return handle
        return make_handle(spec, self.stored)

    def close(self) -> None:
        """Shut down the environments that nobody took."""
        while self._spare:
            self._spare.pop()[1].domain.shutdown()

    def _look_at(self, i: int, phase: PhaseSpec) -> None:
        handles = []
        for j, spec in enumerate(phase.environments):
            if not any(known == spec for known, _ in self._handles):
                try:
                    handle = make_handle(spec, self.stored)
                except DocumentError as error:
                    for problem in error.problems:
                        self._report(
                            problem.message, i, "environments", j, "environment", "params", problem.path
                        )
                    continue
                except Exception as error:
                    self._report(
                        f"environment {spec.uid!r} cannot be set up: {type(error).__name__}: {error}",
                        i,
                        "environments",
                        j,
                    )
                    continue
                self._handles.append((spec, handle))
                self._spare.append((spec, handle))
                for key, reason in handle.domain.without_effect.items():
                    place = (i, "environments", j, "environment", "params", key)
                    self._report(f"{key!r} has no effect: {reason}", *place, into=self.warnings)
                try:
                    check_sessions(handle.domain)
                except ContractError as error:
                    self._report(str(error), i, "environments", j, "environment", "params", "source")
            handles.append(self.handle(spec))
        if len(handles) < len(phase.environments):
            return
        self._look_at_names(i, handles)
        agents, placed = self._look_at_agents(i, phase, handles)
        self._warn_of_shared_incarnations(i, phase, placed)
        self._warn_of_new_brains(i, phase)
        self._look_at_loading(i, phase)
        self.phases.append(replace(phase, agents=tuple(agents)))
        self._look_at_filters(i, placed)
        self._look_for_the_end(i, phase, handles)

    def _look_at_names(self, i: int, handles: Sequence[EnvironmentHandle]) -> None:
        """Look for environments and channels that are called alike."""
        names = [name for handle in handles for name in handle.names]
        for name in sorted(
            {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()
        ):
            self._report(
                f"two environments are called {name!r}: the incarnations of a batched environment are called by its "
                "uid and their number; choose other uids",
                i,
                "environments",
            )
        for kind in ("sensors", "actuators"):
            offered = [uid for handle in handles for uid in getattr(handle, kind).uids]
            for uid in sorted(
                {u for u in offered if offered.count(u) > 1} if len(set(offered)) < len(offered) else ()
            ):
                self._report(
                    f"several environments offer a {kind[:-1]} {uid!r}; choose other uids", i, "environments"
                )

    def _look_at_agents(
        self, i: int, phase: PhaseSpec, handles: Sequence[EnvironmentHandle]
    ) -> tuple[list[AgentSpec], list[PlacedBodies]]:
        """Place the bodies of all agents; return the agents with what their patterns match, and the bodies."""
        placed: list[PlacedBodies] = []
        agents: list[AgentSpec] = []
        owned: list[tuple[str, Sequence[str]]] = []
        owners: list[int] = []
        for j, agent in enumerate(phase.agents):
            groups, faults = place_bodies(agent, handles)
            placed.append(PlacedBodies(groups, not faults))
            for message, place in faults:
                self._report(message, i, "agents", j, *place)
            if not agent.bodies:
                sensors = match_all(handles, "sensors", agent.sensors)
                actuators = match_all(handles, "actuators", agent.actuators)
                agents.append(replace(agent, sensors=sensors, actuators=actuators))
            else:
                agents.append(agent)
            for group in groups:
                for b in range(group.count) if group.batch is None else ():
                    owned.append((_who(agent, group, b), group.names(b)[1]))
                    owners.append(j)
            self._warn_of_shared_channels(groups, i, j)
            for group in groups:
                if not any(group.names()):
                    who = _who(agent, group) if group.numbered else f"agent {agent.name!r}"
                    self._report(
                        f"{who} has neither sensors nor actuators; it would never act",
                        i,
                        "agents",
                        j,
                        *(("bodies", group.index) if group.numbered else ()),
                    )
        for k, told in shared_actuators(handles, owned):
            where = "bodies" if phase.agents[owners[k]].bodies else "actuators"
            self._report(told, i, "agents", owners[k], where)
        return agents, placed

    def _warn_of_shared_channels(self, groups: Sequence[BodyGroup], i: int, j: int) -> None:
        """Warn of bodies that fill themselves with the channels of an environment that is not batched."""
        for group in groups:
            spec = group.spec
            filled = group.numbered and not spec.sensors and not spec.actuators
            together = any(
                isinstance(p.domain, CoSimulation) for p in group.handles if p.uid == spec.environment
            )
            if together:
                continue  # which is an error, told elsewhere
            if filled and group.batch is None and group.count > 1 and group.names()[1]:
                self._report(
                    f"{group.count} bodies share all actuators of environment {spec.environment!r}, which is not "
                    "batched; of the set-points of one time, those of the last body hold",
                    i,
                    "agents",
                    j,
                    "bodies",
                    group.index,
                    "count",
                    into=self.warnings,
                )

    def _warn_of_shared_incarnations(self, i: int, phase: PhaseSpec, placed: Sequence[PlacedBodies]) -> None:
        """Warn of bodies that set the same actuators of an incarnation: the numbers of an entry start anew."""
        taken: dict[str, str] = {}
        for j, (agent, (groups, _)) in enumerate(zip(phase.agents, placed, strict=True)):
            for group in groups:
                batch = group.batch
                if batch is None or batch.replays:
                    continue  # what is set in an environment that replays has no effect
                mine = {
                    f"{batch.uid}.{k}.{name}": _who(agent, group, place)
                    for place, k in enumerate(group.incarnations)
                    for name in group.local[1]
                }
                shared = next((uid for uid in mine if uid in taken), None)
                if shared is not None:
                    self._report(
                        f"actuator {shared!r} is set by {taken[shared]} and by {mine[shared]}; of the set-points of one "
                        "time, those of the later one hold (the numbers of every entry of bodies begin with its "
                        "'first', 0 if it is not given)",
                        i,
                        "agents",
                        j,
                        "bodies",
                        group.index,
                        into=self.warnings,
                    )
                taken |= mine

    def _warn_of_new_brains(self, i: int, phase: PhaseSpec) -> None:
        """Warn of brains of palaestrAI's kind that palaestrAI would have loaded from the phase before."""
        if i == 0:
            return
        before = self.document.phases[i - 1]
        learned = {agent.name for agent in before.agents if agent.brain is not None}
        for j, agent in enumerate(phase.agents):
            if agent.brain is None or agent.load is not None or agent.name not in learned:
                continue
            if is_adapted(class_of(agent.brain.name, "brain")):
                self._report(
                    f"agent {agent.name!r} starts with a new brain; palaestrAI would load the one of phase "
                    f"{before.name!r}: write 'load: {{}}' for that",
                    i,
                    "agents",
                    j,
                    into=self.warnings,
                )

    def _look_at_loading(self, i: int, phase: PhaseSpec) -> None:
        """Look for models that nothing loads, or that do not reach the muscles in a test."""
        for j, agent in enumerate(phase.agents):
            if agent.load is None:
                continue
            problem, warning = cannot_load(agent), untold_muscles(agent, phase.mode)
            if problem:
                self._report(problem, i, "agents", j, "load")
            elif warning:
                self._report(warning, i, "agents", j, "load", into=self.warnings)

    def _look_at_filters(self, i: int, placed: Sequence[PlacedBodies]) -> None:
        phase = self.phases[-1]
        for j, (agent, (groups, sound)) in enumerate(zip(phase.agents, placed, strict=True)):
            for group in groups if sound else ():
                if not group.spec.filters:
                    continue
                place = ("bodies", group.index, "filters") if group.numbered else ("filters",)
                try:
                    make_filters(replace(agent, filters=group.spec.filters), group.channels(), phase.mode)
                except Exception as error:
                    self._report(f"the filters cannot be set up: {error}", i, "agents", j, *place)

    def _look_for_the_end(self, i: int, phase: PhaseSpec, handles: Sequence[EnvironmentHandle]) -> None:
        conditions: list[TerminationCondition] = []
        for where, specs in (
            (("phases", i, "simulation", "conditions"), phase.simulation.conditions),
            (("conditions",), self.document.conditions),
        ):
            for k, spec in enumerate(specs):
                try:
                    conditions += make_conditions([spec], of_run=where[0] == "conditions")
                except Exception as error:
                    self.problems.append(
                        self.document.problem(f"condition {spec.name} cannot be made: {error}", *where, k)
                    )
        for condition in conditions:
            condition.beside(conditions)
        if phase.episodes is None and not any(_can_end_phase(c, phase) for c in conditions):
            self._report(
                f"phase {phase.name!r} can never end: give phase_config.episodes, or a condition in run_config "
                "that ends phases (such as AgentObjectiveTerminationCondition with phase_avgN, or "
                "AgentEvaluationObjectiveTerminationCondition with evaluate_every)",
                i,
            )
        together = [
            c for c in conditions if isinstance(c, EnvironmentTerminationCondition) and c.when != "all"
        ]
        if together and not any(condition.environments_reset for condition in conditions):
            for j, handle in enumerate(handles):
                if len(handle.names) > 1 and handle.domain.ends:
                    self._report(
                        f"environment {handle.uid!r} has {len(handle.names)} incarnations, and the episode ends for all of "
                        "them with the first one that ends; with EnvironmentTerminationCondition and 'when: all' each "
                        "of them begins again on its own",
                        i,
                        "environments",
                        j,
                        into=self.warnings,
                    )
        self._look_for_those_who_never_end(i, handles, conditions)
        if not any(handle.domain.ends for handle in handles) and not any(map(_can_end_episode, conditions)):
            names = ", ".join(repr(handle.uid) for handle in handles)
            self._report(
                f"no episode of phase {phase.name!r} can ever end: neither environment {names} nor a condition "
                "ends it",
                i,
            )

    def _look_for_those_who_never_end(
        self, i: int, handles: Sequence[EnvironmentHandle], conditions: Sequence[TerminationCondition]
    ) -> None:
        """Look for an environment that ``when: all`` would wait for in vain."""
        own = [c for c in conditions if isinstance(c, EnvironmentTerminationCondition)]
        wanted = max((c.episodes for c in own if c.when == "all"), default=0)
        sooner = any(c.when == "any" for c in own) and any(handle.domain.ends for handle in handles)
        if not wanted or sooner or any(map(_can_end_episode, conditions)):
            return
        for j, handle in enumerate(handles):
            why = "never ends" if not handle.domain.ends else ""
            if not why and wanted > 1 and not handle.begins_again:
                why = f"ends once and cannot begin again, but is to end {wanted} times"
            if why:
                self._report(
                    f"environment {handle.uid!r} {why}, so that 'when: all' would wait forever; give a condition that "
                    "ends the episode, or 'when: any'",
                    i,
                    "environments",
                    j,
                )

    def _report(self, message: str, phase: int, *place: str | int, into: list[Problem] | None = None) -> None:
        problem = self.document.problem(message, "phases", phase, *place)
        known = self.problems if into is None else into
        # what a later phase inherits is told once, where it is written
        if problem not in known:
            known.append(problem)


def _can_end_episode(condition: TerminationCondition) -> bool:
    hook = type(condition).episode_flow_control
    if hook is TerminationCondition.episode_flow_control:
        return False
    if hook is EnvironmentTerminationCondition.episode_flow_control:
        return False
    return bool(getattr(condition, "brain", True))


def _can_end_phase(condition: TerminationCondition, phase: PhaseSpec) -> bool:
    """Whether the condition could end ``phase``, which gives no number of episodes."""
    if not condition.of_run:
        return isinstance(condition, AgentObjectiveTerminationCondition) and bool(condition.ends_phase)
    return condition.can_end_phase(None) or _ends_by_evaluations(condition, phase)


def _ends_by_evaluations(condition: TerminationCondition, phase: PhaseSpec) -> bool:
    """Whether evaluations of ``phase`` could make the condition end it."""
    if not phase.evaluate_every or phase.mode is not Mode.TRAIN:
        return False
    if isinstance(condition, AgentEvaluationObjectiveTerminationCondition):
        return set(condition.agents) <= {agent.name for agent in phase.agents}
    return type(condition).evaluation_flow_control is not TerminationCondition.evaluation_flow_control


def _who(agent: AgentSpec, group: BodyGroup, place: int = 0) -> str:
    return f"body {group.first + place} of agent {agent.name!r}" if group.numbered else repr(agent.name)


def inspect(document: RunDocument) -> list[Problem]:
    """Return everything that stands against running ``document``; leave nothing open."""
    inspection = Inspection(document)
    inspection.close()
    return inspection.problems

"""Checks of a run document that need its environments: names of sensors, endless phases."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from palaestrai_mosaik.agent import Brain
from palaestrai_mosaik.environment.cosimulation import CoSimulation
from palaestrai_mosaik.errors import ContractError, DocumentError, Problem, RenderError
from palaestrai_mosaik.experiment import (
    AgentSpec,
    EnvironmentSpec,
    PartialDocument,
    PhaseSpec,
    RunDocument,
    check_classes,
)
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

from .factory import (
    BASES,
    cannot_load,
    class_of,
    make_conditions,
    make_filters,
    make_handle,
    unused_model_warning,
)
from .recorded_sessions import DEFAULT_STORE, StoredSessions, check_sessions

logger = logging.getLogger(__name__)

#: sections of a document that say when phases and episodes end
_ENDINGS = ("phase_config", "simulation", "run_config", "condition")


class PlacedBodies(NamedTuple):
    """The bodies of an agent in the environments of a phase; ``sound``: all have their place."""

    groups: list[BodyGroup]
    sound: bool


class SharedEnvironments:
    """Environments that several inspections look at, the latest ``most`` of them; :meth:`close` shuts them down."""

    def __init__(self, most: int = 8):
        self._most = most
        self._handles: list[tuple[EnvironmentSpec, EnvironmentHandle]] = []

    def get(self, spec: EnvironmentSpec) -> EnvironmentHandle | None:
        """Return the environment of ``spec``, if it is set up."""
        found = next((one for one in self._handles if one[0] == spec), None)
        if found is None:
            return None
        self._handles.remove(found)
        self._handles.append(found)
        return found[1]

    def add(self, spec: EnvironmentSpec, handle: EnvironmentHandle) -> None:
        """Keep an environment that has been set up."""
        self._handles.append((spec, handle))

    def trim(self) -> None:
        """Shut down the environments that nobody has asked for longest, if there are too many; between two inspections."""
        while len(self._handles) > self._most:
            self._handles.pop(0)[1].domain.shutdown()

    def close(self) -> None:
        """Shut down all environments."""
        while self._handles:
            self._handles.pop()[1].domain.shutdown()


class Inspection:
    """A run document with its environments set up.

    ``problems`` is empty if the document can be run; ``warnings`` are what it may not mean. Of a document with
    problems that are ``known``, what is left is checked, without what would only follow from them. ``phases`` are those of the document,
    with patterns among the sensors and actuators of agents (``grid.bus-*.vm_pu``) replaced
    by what they match, in the order of the environments. The environments that were made for
    the checks are used by the run (:meth:`take`), or shut down
    (:meth:`close`). Environments that are ``shared`` with other inspections are set up once, and shut down by their owner.
    """

    def __init__(
        self,
        document: RunDocument | PartialDocument,
        stored: StoredSessions = DEFAULT_STORE,
        known: Sequence[Problem] = (),
        shared: SharedEnvironments | None = None,
    ):
        partial = document if isinstance(document, PartialDocument) else None
        self.document = document.document if isinstance(document, PartialDocument) else document
        self.stored = stored
        places = {problem.path for problem in known}
        self.problems: list[Problem] = [
            problem for problem in check_classes(self.document, BASES, class_of) if problem.path not in places
        ]
        #: what makes others look wrong that are not
        self.causes = [*known, *self.problems]
        self.warnings: list[Problem] = []
        self.phases: list[PhaseSpec] = []
        self._handles: list[tuple[EnvironmentSpec, EnvironmentHandle]] = []
        self._spare: list[tuple[EnvironmentSpec, EnvironmentHandle]] = []
        self._shared = shared
        for i, phase in enumerate(self.document.phases):
            if partial is None or partial.whole[i]:
                _PhaseCheck(self, i, phase).check()

    def raise_problems(self) -> None:
        """Raise :class:`DocumentError` if there are problems."""
        if self.problems:
            self.close()
            raise DocumentError(self.problems)

    def handle(self, spec: EnvironmentSpec) -> EnvironmentHandle:
        """Return the environment of ``spec`` as it was set up for looking at it."""
        return next(handle for known, handle in self._handles if known == spec)

    def take(self, spec: EnvironmentSpec) -> EnvironmentHandle:
        """Return an environment for ``spec`` that is not in use; create one if necessary."""
        for i, (known, handle) in enumerate(self._spare):
            if known == spec:
                del self._spare[i]
                return handle
        return make_handle(spec, self.stored)

    def close(self) -> None:
        """Shut down the environments that were not taken."""
        while self._spare:
            self._spare.pop()[1].domain.shutdown()

    def report(self, message: str, *place: str | int, warning: bool = False) -> None:
        """Add a problem, or a warning, at this place in the document."""
        problem = self.document.problem(message, *place)
        known = self.warnings if warning else self.problems
        # what a later phase inherits is reported once, where it is written
        if problem not in known:
            known.append(problem)

    def is_sound(self, *place: str | int) -> bool:
        """Whether nothing was found at this place of the document, or inside of it, before environments were set up."""
        here = self.document.problem("", *place).path
        return not any(cause.path == here or cause.path.startswith(f"{here}.") for cause in self.causes)

    def set_up(self, spec: EnvironmentSpec) -> EnvironmentHandle | None:
        """Return the environment of ``spec`` if it has been set up before."""
        found = next((handle for known, handle in self._handles if known == spec), None)
        if found is None and self._shared is not None:
            found = self._shared.get(spec)
            if found is not None:
                self._handles.append((spec, found))
        return found

    def add(self, spec: EnvironmentSpec) -> EnvironmentHandle:
        """Set up the environment of ``spec``. Raises whatever it raises."""
        began = time.perf_counter()
        handle = make_handle(spec, self.stored)
        logger.info("environment %r set up in %.2f s", spec.uid, time.perf_counter() - began)
        self._handles.append((spec, handle))
        if self._shared is None:
            self._spare.append((spec, handle))
        else:
            self._shared.add(spec, handle)
        return handle


class _PhaseCheck:
    """Checks phase ``i`` of a document."""

    def __init__(self, inspection: Inspection, i: int, phase: PhaseSpec):
        self._inspection = inspection
        self._i = i
        self._phase = phase
        self._handles: list[EnvironmentHandle] = []
        self._placed: list[PlacedBodies] = []

    def check(self) -> None:
        """Report what is wrong; add the phase to those of the inspection if all its environments can be set up."""
        phase = self._phase
        if not all(self._is_sound("environments", j) for j in range(len(phase.environments))):
            return
        for j, spec in enumerate(phase.environments):
            handle = self._inspection.set_up(spec)
            if handle is None:
                handle = self._set_up(j, spec)
            if handle is not None:
                self._handles.append(handle)
        if len(self._handles) < len(phase.environments):
            return
        self._check_names()
        agents = self._check_agents()
        self._warn_of_shared_incarnations()
        self._warn_of_new_brains()
        self._check_loading()
        self._inspection.phases.append(replace(phase, agents=tuple(agents)))
        self._check_filters()
        if not any(word in cause.path for cause in self._inspection.causes for word in _ENDINGS):
            self._check_end()

    def _set_up(self, j: int, spec: EnvironmentSpec) -> EnvironmentHandle | None:
        place = ("environments", j)
        params = (*place, "environment", "params")
        try:
            handle = self._inspection.add(spec)
        except DocumentError as error:
            for problem in error.problems:
                self._report(problem.message, *params, problem.path)
            return None
        except RenderError as error:
            self._report(str(error), *place, "frames")
            return None
        except Exception as error:
            text = f"environment {spec.uid!r} cannot be set up: {type(error).__name__}: {error}"
            self._report(text, *place)
            return None
        for key, reason in handle.domain.without_effect.items():
            self._report(f"{key!r} has no effect: {reason}", *params, key, warning=True)
        try:
            check_sessions(handle.domain)
        except ContractError as error:
            self._report(str(error), *params, "source")
        return handle

    def _check_names(self) -> None:
        """Look for environments and channels of the same name."""
        for name in _repeated([name for handle in self._handles for name in handle.names]):
            self._report(
                f"two environments are called {name!r}: the incarnations of a batched environment are called by its "
                "uid and their number; choose other uids",
                "environments",
            )
        for kind in ("sensors", "actuators"):
            for uid in _repeated([uid for handle in self._handles for uid in getattr(handle, kind).uids]):
                text = f"several environments offer a {kind[:-1]} {uid!r}; choose other uids"
                self._report(text, "environments")

    def _check_agents(self) -> list[AgentSpec]:
        """Place the bodies of all agents; return the agents with what their patterns match."""
        handles = self._handles
        agents: list[AgentSpec] = []
        owned: list[tuple[str, Sequence[str]]] = []
        owners: list[int] = []
        for j, agent in enumerate(self._phase.agents):
            if not self._is_sound("agents", j):
                agents.append(agent)
                self._placed.append(PlacedBodies([], False))
                continue
            groups, faults = place_bodies(agent, handles)
            self._placed.append(PlacedBodies(groups, not faults))
            for message, place in faults:
                self._report(message, "agents", j, *place)
            if not agent.bodies:
                sensors = match_all(handles, "sensors", agent.sensors)
                actuators = match_all(handles, "actuators", agent.actuators)
                agents.append(replace(agent, sensors=sensors, actuators=actuators))
            else:
                agents.append(agent)
            for group in groups:
                for b in range(group.count) if group.batch is None else ():
                    owned.append((_name_of(agent, group, b), group.names(b)[1]))
                    owners.append(j)
            self._warn_of_shared_channels(groups, j)
            for group in groups:
                if not any(group.names()):
                    name = _name_of(agent, group) if group.numbered else f"agent {agent.name!r}"
                    place = ("bodies", group.index) if group.numbered else ()
                    text = f"{name} has neither sensors nor actuators; it would never act"
                    self._report(text, "agents", j, *place)
        for k, problem in shared_actuators(handles, owned):
            where = "bodies" if self._phase.agents[owners[k]].bodies else "actuators"
            self._report(problem, "agents", owners[k], where)
        return agents

    def _warn_of_shared_channels(self, groups: Sequence[BodyGroup], j: int) -> None:
        """Warn of bodies that fill themselves with the channels of an environment that is not batched."""
        for group in groups:
            spec = group.spec
            filled = group.numbered and not spec.sensors and not spec.actuators
            together = any(
                isinstance(p.domain, CoSimulation) for p in group.handles if p.uid == spec.environment
            )
            if together:
                continue  # an error, which is reported elsewhere
            if filled and group.batch is None and group.count > 1 and group.names()[1]:
                text = (
                    f"{group.count} bodies share all actuators of environment {spec.environment!r}, which is not "
                    "batched; of the set-points of one time, those of the last body hold"
                )
                self._report(text, "agents", j, "bodies", group.index, "count", warning=True)

    def _warn_of_shared_incarnations(self) -> None:
        """Warn of bodies that set the same actuators of an incarnation: each entry counts its bodies from 0."""
        taken: dict[str, str] = {}
        for j, (agent, (groups, _)) in enumerate(zip(self._phase.agents, self._placed, strict=True)):
            for group in groups:
                batch = group.batch
                if batch is None or batch.replays:
                    continue  # what is set in an environment that replays has no effect
                setters = {
                    f"{batch.uid}.{k}.{name}": _name_of(agent, group, place)
                    for place, k in enumerate(group.incarnations)
                    for name in group.local[1]
                }
                shared = next((uid for uid in setters if uid in taken), None)
                if shared is not None:
                    text = (
                        f"actuator {shared!r} is set by {taken[shared]} and by {setters[shared]}; of the set-points of "
                        "one time, those of the later one hold (the numbers of every entry of bodies begin with its "
                        "'first', 0 if it is not given)"
                    )
                    self._report(text, "agents", j, "bodies", group.index, warning=True)
                taken |= setters

    def _warn_of_new_brains(self) -> None:
        """Warn of brains of palaestrAI's kind that palaestrAI would have loaded from the phase before."""
        if self._i == 0:
            return
        before = self._inspection.document.phases[self._i - 1]
        learned = {agent.name for agent in before.agents if agent.brain is not None}
        for j, agent in enumerate(self._phase.agents):
            if agent.brain is None or agent.load is not None or agent.name not in learned:
                continue
            if not self._is_sound("agents", j):
                continue
            brain = class_of(agent.brain.name, "brain")
            if issubclass(brain, Brain) and brain._continues:
                text = (
                    f"agent {agent.name!r} starts with a new brain; palaestrAI would load the one of phase "
                    f"{before.name!r}: write 'load: {{}}' for that"
                )
                self._report(text, "agents", j, warning=True)

    def _check_loading(self) -> None:
        """Look for models that nothing loads, or that do not reach the muscles in a test."""
        for j, agent in enumerate(self._phase.agents):
            if agent.load is None or not self._is_sound("agents", j):
                continue
            problem, warning = cannot_load(agent), unused_model_warning(agent, self._phase.mode)
            if problem or warning:
                self._report(problem or warning, "agents", j, "load", warning=not problem)

    def _check_filters(self) -> None:
        agents = self._inspection.phases[-1].agents
        for j, (agent, (groups, sound)) in enumerate(zip(agents, self._placed, strict=True)):
            for group in groups if sound else ():
                if not group.spec.filters:
                    continue
                place = ("bodies", group.index, "filters") if group.numbered else ("filters",)
                try:
                    filtered = replace(agent, filters=group.spec.filters)
                    make_filters(filtered, group.channels(), self._phase.mode)
                except Exception as error:
                    self._report(f"the filters cannot be set up: {error}", "agents", j, *place)

    def _check_end(self) -> None:
        """Check that episodes and the phase can end."""
        phase, handles = self._phase, self._handles
        conditions = self._conditions()
        if phase.episodes is None and not any(_can_end_phase(c, phase) for c in conditions):
            self._report(
                f"phase {phase.name!r} can never end: give phase_config.episodes, or a condition in run_config "
                "that ends phases (such as AgentObjectiveTerminationCondition with phase_avgN, or "
                "AgentEvaluationObjectiveTerminationCondition with evaluate_every)"
            )
        together = [
            c for c in conditions if isinstance(c, EnvironmentTerminationCondition) and c.when != "all"
        ]
        if together and not any(condition.environments_reset for condition in conditions):
            for j, handle in enumerate(handles):
                if len(handle.names) > 1 and handle.domain.ends:
                    text = (
                        f"environment {handle.uid!r} has {len(handle.names)} incarnations, and the episode ends for "
                        "all of them with the first one that ends; with EnvironmentTerminationCondition and 'when: "
                        "all' each of them begins again on its own"
                    )
                    self._report(text, "environments", j, warning=True)
        self._look_for_endless_waits(conditions)
        if not any(handle.domain.ends for handle in handles) and not any(map(_can_end_episode, conditions)):
            names = ", ".join(repr(handle.uid) for handle in handles)
            text = f"no episode of phase {phase.name!r} can ever end: neither environment {names} nor a condition ends it"
            self._report(text)

    def _conditions(self) -> list[TerminationCondition]:
        """Return the conditions of the phase and of the run."""
        conditions: list[TerminationCondition] = []
        for where, specs in (
            (("phases", self._i, "simulation", "conditions"), self._phase.simulation.conditions),
            (("conditions",), self._inspection.document.conditions),
        ):
            for k, spec in enumerate(specs):
                try:
                    conditions += make_conditions([spec], of_run=where[0] == "conditions")
                except Exception as error:
                    self._inspection.report(f"condition {spec.name} cannot be made: {error}", *where, k)
        for condition in conditions:
            condition.beside(conditions)
        return conditions

    def _look_for_endless_waits(self, conditions: Sequence[TerminationCondition]) -> None:
        """Look for an environment that ``when: all`` would wait for in vain."""
        of_environments = [c for c in conditions if isinstance(c, EnvironmentTerminationCondition)]
        wanted = max((c.episodes for c in of_environments if c.when == "all"), default=0)
        sooner = any(c.when == "any" for c in of_environments) and any(h.domain.ends for h in self._handles)
        if not wanted or sooner or any(map(_can_end_episode, conditions)):
            return
        for j, handle in enumerate(self._handles):
            why = "never ends" if not handle.domain.ends else ""
            if not why and wanted > 1 and not handle.begins_again:
                why = f"ends once and cannot begin again, but is to end {wanted} times"
            if why:
                text = (
                    f"environment {handle.uid!r} {why}, so that 'when: all' would wait forever; give a condition that "
                    "ends the episode, or 'when: any'"
                )
                self._report(text, "environments", j)

    def _is_sound(self, *place: str | int) -> bool:
        return self._inspection.is_sound("phases", self._i, *place)

    def _report(self, message: str, *place: str | int, warning: bool = False) -> None:
        self._inspection.report(message, "phases", self._i, *place, warning=warning)


def _repeated(names: Sequence[str]) -> list[str]:
    """Return the names that are there more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


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


def _name_of(agent: AgentSpec, group: BodyGroup, place: int = 0) -> str:
    return f"body {group.first + place} of agent {agent.name!r}" if group.numbered else repr(agent.name)


def inspect(document: RunDocument) -> list[Problem]:
    """Return everything that prevents ``document`` from running; leave nothing open.

    Args:
        document: the document, as :func:`palaestrai_mosaik.experiment.load` returned it. Its classes are
            imported, and its environments are set up.

    Returns:
        One problem for each thing that is wrong, with its place in the document; empty if it can run.
    """
    inspection = Inspection(document)
    inspection.close()
    return inspection.problems

"""Checks of a run document that need its environments and agents: names of sensors, endless phases, parts that cannot be made."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from palaestrai_mosaik.agent import Brain
from palaestrai_mosaik.agent.library.dummy import DummyObjective
from palaestrai_mosaik.core.errors import ContractError, DocumentError, Problem, RenderError, did_you_mean
from palaestrai_mosaik.core.importing import users_place
from palaestrai_mosaik.core.printing import joined
from palaestrai_mosaik.environment.cosimulation import CoSimulation, SimulatorSpec
from palaestrai_mosaik.environment.described import DescribedCoSimulation
from palaestrai_mosaik.environment.environment import World
from palaestrai_mosaik.experiment import (
    AgentSpec,
    BodySpec,
    ClassSpec,
    EnvironmentSpec,
    PartialDocument,
    PhaseSpec,
    RunDocument,
    check_classes,
    hook_warnings,
    unused_methods,
)
from palaestrai_mosaik.experiment.model import UNREAD, Place
from palaestrai_mosaik.simulation.body_placement import BodyGroup, place_bodies
from palaestrai_mosaik.simulation.conditions import (
    HOOKS,
    AgentObjectiveTerminationCondition,
    EnvironmentTerminationCondition,
    TerminationCondition,
)
from palaestrai_mosaik.simulation.connections import shared_actuators
from palaestrai_mosaik.simulation.environment_handle import EnvironmentHandle, match_all
from palaestrai_mosaik.simulation.evaluation import AgentEvaluationObjectiveTerminationCondition
from palaestrai_mosaik.types import Mode

from .brains import brain_keeper
from .environment_supply import EnvironmentSupply, SharedEnvironments
from .factory import (
    BASES,
    WorkerPlan,
    cannot_load,
    class_of,
    make,
    make_bodies,
    make_conditions,
    make_filters,
    resolved_class,
    unused_model_warning,
)
from .learners import make_learner
from .recorded_sessions import DEFAULT_SESSIONS, ReplayContext, StoredSessions, check_sessions

#: maximum number of agents and bodies listed in one message
_MOST = 5
#: keys of an agent or its bodies that list sensors and actuators
_CHANNELS = ("sensors", "actuators")
#: keys of an agent that do not concern sensors and actuators
_PARTS = ("brain", "muscle", "objective", "filters", "load", "replay", "snapshots")
#: sections of a document that determine when phases and episodes end
_ENDINGS = frozenset({"phase_config", "simulation", "run_config", "condition"})


class _Placed(NamedTuple):
    """Bodies of an agent without faults: the number of the agent in the document, its spec, the group of bodies."""

    number: int
    agent: AgentSpec
    group: BodyGroup


class _Setter(NamedTuple):
    """A body that sets an actuator: the index of its agent in the document, its group, its name."""

    agent: int
    group: BodyGroup
    name: str


class Inspection:
    """A run document with its environments set up.

    ``problems`` prevent the document from running. ``warnings`` are likely mistakes. ``phases`` are those in which
    all environments can be set up; patterns in the sensors and actuators of their agents (``grid.bus-*.vm_pu``) are
    replaced by the matching names, in the order of the environments. The run uses the ``environments`` set up here.

    Args:
        document: the document, or the valid parts of it.
        stored: reads recorded sessions.
        earlier: problems already reported; checks that depend on them are skipped.
        shared: environments shared with other documents.
    """

    def __init__(
        self,
        document: RunDocument | PartialDocument,
        stored: StoredSessions = DEFAULT_SESSIONS,
        earlier: Sequence[Problem] = (),
        shared: SharedEnvironments | None = None,
    ):
        partial = document if isinstance(document, PartialDocument) else None
        self.document = document.document if isinstance(document, PartialDocument) else document
        self.environments = EnvironmentSupply(stored, shared)
        paths = {problem.path for problem in earlier}
        self.problems: list[Problem] = [
            problem for problem in check_classes(self.document, BASES, class_of) if problem.path not in paths
        ]
        #: problems that could cause misleading further problems
        self.causes = [*earlier, *self.problems]
        self.warnings: list[Problem] = hook_warnings(self.document, class_of)
        self.phases: list[PhaseSpec] = []
        for i, phase in enumerate(self.document.phases):
            _PhaseCheck(self, i, phase, whole=partial is None or partial.whole[i]).check()

    def raise_problems(self) -> None:
        """Raise :class:`DocumentError` if there are problems."""
        if self.problems:
            self.environments.close()
            raise DocumentError(self.problems)

    def report(self, message: str, *path: str | int, warning: bool = False) -> None:
        """Add a problem or warning at a path in the document."""
        problem = self.document.problem(message, *path)
        problems = self.warnings if warning else self.problems
        # a problem that a later phase inherits is reported once, at its definition
        if problem not in problems:
            problems.append(problem)

    def is_sound(self, *path: str | int, apart_from: Collection[str] = ()) -> bool:
        """Return whether a part of the document had no problems before environments were set up.

        Args:
            path: the path of the part, as in :meth:`report`.
            apart_from: keys to ignore, with everything below them.
        """
        if not self.causes:
            return True
        here = self.document.problem("", *path).path
        inside = [cause.path.removeprefix(here) for cause in self.causes if cause.path.startswith(here)]
        return not any(
            suffix == "" or (suffix[0] == "." and not set(suffix.split(".")).intersection(apart_from))
            for suffix in inside
        )


class _PhaseCheck:
    """Checks phase ``i`` of a document."""

    def __init__(self, inspection: Inspection, i: int, phase: PhaseSpec, *, whole: bool):
        self._inspection = inspection
        self._i = i
        self._phase = phase
        #: whether all environments and their rewards are set up
        self._complete = whole
        self._handles: list[EnvironmentHandle] = []
        self._placed: list[_Placed] = []

    def check(self) -> None:
        """Report problems; add the phase to the inspection if all its environments can be set up."""
        phase = self._phase
        for j, spec in enumerate(phase.environments):
            handle = None
            if self._is_sound("environments", j, apart_from=("reward",)):
                if not self._is_sound("environments", j):
                    self._complete, spec = False, replace(spec, reward=None)
                handle = self._inspection.environments.find(spec) or self._set_up(j, spec)
            if handle is None:
                self._complete = False
            else:
                self._handles.append(handle)
        self._check_names()
        agents = self._place_agents()
        self._warn_of_shared_actuators()
        self._warn_of_new_brains()
        self._check_loading()
        self._check_filters()
        conditions = self._conditions()
        if not self._complete:
            return
        self._warn_of_no_reward()
        self._inspection.phases.append(replace(phase, agents=tuple(agents)))
        if all(_ENDINGS.isdisjoint(cause.path.split(".")) for cause in self._inspection.causes):
            self._check_end(conditions)

    def _set_up(self, j: int, spec: EnvironmentSpec) -> EnvironmentHandle | None:
        path = ("environments", j)
        params = (*path, "environment", "params")
        try:
            handle = self._inspection.environments.set_up(spec)
        except DocumentError as error:
            for problem in error.problems:
                self._report(problem.message, *params, problem.path)
            return None
        except RenderError as error:
            self._report(str(error), *path, "frames")
            return None
        except Exception as error:
            # this package's errors that name the environment need no prefix
            named = isinstance(error, ContractError) and f"environment {spec.uid!r}" in str(error)
            text = f"{type(error).__name__}: {error}{users_place(error)}"
            text = str(error) if named else f"environment {spec.uid!r} ({spec.name}) cannot be set up: {text}"
            self._report(text, *path)
            return None
        self._warn_of_params(handle.domain, params)
        try:
            check_sessions(handle.domain)
        except ContractError as error:
            self._report(str(error), *params, "source")
        return handle

    def _warn_of_params(self, domain: World, path: Place) -> None:
        """Warn of an environment's parameters without effect, and of slips in a described co-simulation."""
        for key, reason in domain.without_effect.items():
            self._report(f"{key!r} has no effect: {reason}", *path, key, warning=True)
        if isinstance(domain, DescribedCoSimulation):
            for problem in domain.warnings:
                self._report(problem.message, *path, problem.path, warning=True)
            for simulator, cls in _simulator_classes(domain):
                for message in unused_methods(cls, str(simulator.python)):
                    self._report(message, *path, "simulators", simulator.uid, "python", warning=True)

    def _check_names(self) -> None:
        """Report environments and channels with duplicate names."""
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

    def _place_agents(self) -> list[AgentSpec]:
        """Place the bodies of all agents; return the agents with resolved patterns."""
        agents = [self._place(j, agent) for j, agent in enumerate(self._phase.agents)]
        owned: list[tuple[str, Sequence[str]]] = []
        owners: list[int] = []
        for j, agent, group in self._placed:
            if group.batch is None:
                owned += [(_name_of(agent, group, b), group.names(b)[1]) for b in range(group.count)]
                owners += [j] * group.count
        for k, problem in shared_actuators(self._handles, owned):
            where = "bodies" if self._phase.agents[owners[k]].bodies else "actuators"
            self._report(problem, "agents", owners[k], where)
        return agents

    def _place(self, j: int, agent: AgentSpec) -> AgentSpec:
        """Place the bodies of agent ``j``; return the agent with resolved patterns."""
        if not agent.bodies and not self._is_sound("agents", j, "bodies"):
            return agent
        groups, faults = place_bodies(agent, self._handles, complete=self._complete)
        for message, path in faults:
            if self._is_sound("agents", j, *path):
                self._report(message, "agents", j, *path)
        if not agent.bodies:
            sensors = match_all(self._handles, "sensors", agent.sensors)
            actuators = match_all(self._handles, "actuators", agent.actuators)
            agent = replace(agent, sensors=sensors, actuators=actuators)
        if not faults and self._complete and self._is_sound("agents", j, apart_from=_PARTS):
            placed = [_Placed(j, agent, group) for group in groups]
            self._placed += placed
            self._check_channels(placed)
        return agent

    def _check_channels(self, placed: Sequence[_Placed]) -> None:
        """Report bodies without any sensor or actuator."""
        for j, agent, group in placed:
            if not any(group.names()):
                name = _name_of(agent, group) if group.numbered else f"agent {agent.name!r}"
                where = ("bodies", group.index) if group.numbered else ()
                text = f"{name} has neither sensors nor actuators; it would never act"
                self._report(text, "agents", j, *where)

    def _warn_of_shared_actuators(self) -> None:
        """Warn of agents or bodies that set the same actuators, once for each group of them."""
        setters = self._setters()
        shared: dict[tuple[tuple[int, int], ...], list[str]] = {}
        for uid, of_actuator in setters.items():
            if len(of_actuator) > 1:
                shared.setdefault(tuple((s.agent, s.group.index) for s in of_actuator), []).append(uid)
        for uids in shared.values():
            together = setters[uids[0]]
            names, last = [setter.name for setter in together], together[-1]
            several = f"{len(names)} bodies, from {names[0]} to {names[-1]}"
            owners = joined(names) if len(names) <= _MOST else several
            more = f" (and {len(uids) - 1} more)" if len(uids) > 1 else ""
            text = f"actuator {uids[0]!r}{more} is set by {owners}; {self._precedence(together)}"
            where: Place = ("bodies", last.group.index) if last.group.numbered else ("actuators",)
            self._report(text, "agents", last.agent, *where, warning=True)

    def _setters(self) -> dict[str, list[_Setter]]:
        """Return the bodies that set each actuator, without those of co-simulations and of replays."""
        # two setters in a co-simulation are an error, and replaying environments ignore set-points
        cosimulated = {
            u for h in self._handles if isinstance(h.domain, CoSimulation) for u in h.actuators.uids
        }
        setters: dict[str, list[_Setter]] = {}
        for j, agent, group in self._placed:
            if group.batch is not None and group.batch.replays:
                continue
            for index in range(group.count):
                setter = _Setter(j, group, _name_of(agent, group, index))
                for uid in group.names(index)[1]:
                    if uid not in cosimulated:
                        setters.setdefault(uid, []).append(setter)
        return setters

    def _precedence(self, setters: Sequence[_Setter]) -> str:
        """Say which of several set-points for one actuator holds."""
        last = setters[-1]
        if self._phase.simulation.controller == "taking_turns" and len({s.agent for s in setters}) > 1:
            rule = "they act in turns, and what one of them sets holds until the next one acts"
        else:
            rule = f"the latest set-point holds; of those of one time, that of {last.name}"
        if last.group.batch is not None:
            rule += " (the numbers of every entry of bodies begin with its 'first', 0 if it is not given)"
        return rule

    def _warn_of_no_reward(self) -> None:
        """Warn if objectives sum rewards but no environment has any."""
        if any(handle.rewards or handle.replays for handle in self._handles):
            return
        summing = [
            agent.name
            for j, agent in enumerate(self._phase.agents)
            if self._is_sound("agents", j, apart_from=("brain", "muscle", "filters", *_CHANNELS))
            and any(_sums_rewards(body.objective) for body in agent.bodies or (agent,))
        ]
        if summing:
            self._report(
                f"no environment gives a reward, so every objective of {joined([repr(name) for name in summing])} is 0: "
                "declare 'rewards' in the baseline of an environment, name a 'reward' beside it, or give the agent an "
                "'objective' that uses readings",
                "environments",
                warning=True,
            )

    def _warn_of_new_brains(self) -> None:
        """Warn of new palaestrAI brains that palaestrAI would have loaded from the previous phase."""
        if self._i == 0:
            return
        before = self._inspection.document.phases[self._i - 1]
        learned = {agent.name for agent in before.agents if agent.brain is not None}
        for j, agent in enumerate(self._phase.agents):
            if agent.brain is None or agent.load is not None or agent.name not in learned:
                continue
            sound = self._is_sound("agents", j, apart_from=("muscle", "objective", "filters", *_CHANNELS))
            if sound and _continues(agent.brain):
                text = (
                    f"agent {agent.name!r} starts with a new brain; palaestrAI would load the one of phase "
                    f"{before.name!r}: write 'load: {{}}' for that"
                )
                self._report(text, "agents", j, warning=True)

    def _check_loading(self) -> None:
        """Report models that cannot be loaded, or do not reach the muscles in a test."""
        for j, agent in enumerate(self._phase.agents):
            if agent.load is not None and self._is_sound("agents", j, apart_from=("objective", *_CHANNELS)):
                problem, warning = cannot_load(agent), unused_model_warning(agent, self._phase.mode)
                if problem or warning:
                    self._report(problem or warning, "agents", j, "load", warning=not problem)

    def _check_filters(self) -> None:
        for j, agent, group in self._placed:
            path = ("bodies", group.index, "filters") if group.numbered else ("filters",)
            if group.spec.filters and self._is_sound("agents", j, *path):
                try:
                    filtered = replace(agent, filters=group.spec.filters)
                    make_filters(filtered, group.channels(), self._phase.mode)
                except Exception as error:
                    self._report(f"the filters cannot be set up: {error}", "agents", j, *path)

    def _check_end(self, conditions: Sequence[TerminationCondition]) -> None:
        """Check that episodes and the phase can end."""
        phase, handles = self._phase, self._handles
        if phase.episodes is None and not any(_can_end_phase(c, phase) for c in conditions):
            self._report(
                f"phase {phase.name!r} can never end: give phase_config.episodes, or a condition in run_config "
                "that ends phases (such as AgentObjectiveTerminationCondition with phase_avgN, or "
                "AgentEvaluationObjectiveTerminationCondition with evaluate_every)"
            )
        self._warn_of_common_ends(conditions)
        self._look_for_endless_waits(conditions)
        if not any(handle.domain.ends for handle in handles) and not any(map(_can_end_episode, conditions)):
            names = ", ".join(repr(handle.uid) for handle in handles)
            text = f"no episode of phase {phase.name!r} can ever end: neither environment {names} nor a condition ends it"
            self._report(text)

    def _warn_of_common_ends(self, conditions: Sequence[TerminationCondition]) -> None:
        """Warn of batched environments whose first incarnation to end ends the episode of all."""
        ends_with_first = any(
            isinstance(c, EnvironmentTerminationCondition) and c.when != "all" for c in conditions
        )
        if not ends_with_first or any(condition.environments_reset for condition in conditions):
            return
        for j, handle in enumerate(self._handles):
            if len(handle.names) > 1 and handle.domain.ends:
                text = (
                    f"environment {handle.uid!r} has {len(handle.names)} incarnations, and the episode ends for "
                    "all of them with the first one that ends; with EnvironmentTerminationCondition and 'when: "
                    "all' each of them begins again on its own"
                )
                self._report(text, "environments", j, warning=True)

    def _conditions(self) -> list[TerminationCondition]:
        """Create the conditions of the phase and of the run, without those that fail."""
        conditions: list[TerminationCondition] = []
        for where, specs in (
            (("phases", self._i, "simulation", "conditions"), self._phase.simulation.conditions),
            (("conditions",), self._inspection.document.conditions),
        ):
            for k, spec in enumerate(specs):
                if not self._inspection.is_sound(*where, k):
                    continue
                try:
                    (condition,) = make_conditions([spec], of_run=where[0] == "conditions")
                except Exception as error:
                    self._inspection.report(f"condition {spec.name} cannot be made: {error}", *where, k)
                    continue
                conditions.append(condition)
                fault = _without_effect(condition, spec.name)
                if fault:
                    # a warning if palaestrAI would accept the condition
                    useless = not condition._hooks() and not hasattr(condition, "wrapped_class")
                    self._inspection.report(fault, *where, k, warning=not useless)
        for condition in conditions:
            condition.beside(conditions)
        return conditions

    def _look_for_endless_waits(self, conditions: Sequence[TerminationCondition]) -> None:
        """Report environments for which ``when: all`` would wait forever."""
        of_environments = [c for c in conditions if isinstance(c, EnvironmentTerminationCondition)]
        episodes = max((c.episodes for c in of_environments if c.when == "all"), default=0)
        sooner = any(c.when == "any" for c in of_environments) and any(h.domain.ends for h in self._handles)
        if not episodes or sooner or any(map(_can_end_episode, conditions)):
            return
        for j, handle in enumerate(self._handles):
            if why := _why_never_done(handle, episodes):
                text = (
                    f"environment {handle.uid!r} {why}, so that 'when: all' would wait forever; give a condition that "
                    "ends the episode, or 'when: any'"
                )
                self._report(text, "environments", j)

    def _is_sound(self, *path: str | int, apart_from: Collection[str] = ()) -> bool:
        return self._inspection.is_sound("phases", self._i, *path, apart_from=apart_from)

    def _report(self, message: str, *path: str | int, warning: bool = False) -> None:
        self._inspection.report(message, "phases", self._i, *path, warning=warning)


def _why_never_done(handle: EnvironmentHandle, episodes: int) -> str:
    """Return why an environment never ends ``episodes`` times in one episode of the run, or ``""`` if it may."""
    if not handle.domain.ends:
        return "never ends"
    if episodes > 1 and not handle.begins_again:
        return f"ends once and cannot begin again, but is to end {episodes} times"
    return ""


def _continues(brain: ClassSpec) -> bool:
    """Return whether palaestrAI would load a brain of this class from the previous phase."""
    cls = class_of(brain.name, "brain")
    return issubclass(cls, Brain) and cls._continues


def _sums_rewards(objective: ClassSpec | None) -> bool:
    """Return whether an objective is 0 without rewards."""
    return objective is None or resolved_class(objective, "objective") is DummyObjective


def _repeated(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once, sorted."""
    return sorted(name for name, times in Counter(names).items() if times > 1)


def _can_end_episode(condition: TerminationCondition) -> bool:
    hook = type(condition).episode_flow_control
    never = (TerminationCondition.episode_flow_control, EnvironmentTerminationCondition.episode_flow_control)
    return hook not in never and bool(getattr(condition, "brain", True))


def _without_effect(condition: TerminationCondition, name: str) -> str:
    """Return why the condition ``name`` can never end anything, or ``""`` if it can."""
    kind, hooks = type(condition), condition._hooks()
    if condition.environments_reset or kind.beside is not TerminationCondition.beside:
        return ""
    if not hooks:
        near = _misspelt_hook(getattr(kind, "wrapped_class", kind))
        return f"{name!r} never ends anything: it overrides none of {', '.join(HOOKS)}{near}"
    if not condition.of_run and HOOKS[0] not in hooks:
        return (
            f"{name!r} never ends anything here: below 'simulation', {' and '.join(hooks)} of a condition "
            f"{'is' if len(hooks) == 1 else 'are'} not called; move it to run_config"
        )
    return ""


def _misspelt_hook(kind: type) -> str:
    """Name a method of a condition with nearly the name of a hook, for the end of a message."""
    methods = [key for key in vars(kind) if not key.startswith("_") and callable(getattr(kind, key))]
    return next((f", but has {key!r}{hint}" for key in methods if (hint := did_you_mean(key, HOOKS))), "")


def _can_end_phase(condition: TerminationCondition, phase: PhaseSpec) -> bool:
    """Return whether the condition could end ``phase``, which has no fixed number of episodes."""
    if not condition.of_run:
        return isinstance(condition, AgentObjectiveTerminationCondition) and bool(condition.ends_phase)
    return condition.can_end_phase(None) or _ends_by_evaluations(condition, phase)


def _ends_by_evaluations(condition: TerminationCondition, phase: PhaseSpec) -> bool:
    """Return whether the condition could end ``phase`` because of its evaluations."""
    if not phase.evaluate_every or phase.mode is not Mode.TRAIN:
        return False
    if isinstance(condition, AgentEvaluationObjectiveTerminationCondition):
        return set(condition.agents) <= {agent.name for agent in phase.agents}
    return type(condition).evaluation_flow_control is not TerminationCondition.evaluation_flow_control


def _name_of(agent: AgentSpec, group: BodyGroup, index: int = 0) -> str:
    return f"body {group.first + index} of agent {agent.name!r}" if group.numbered else repr(agent.name)


def _simulator_classes(environment: DescribedCoSimulation) -> Iterator[tuple[SimulatorSpec, type]]:
    """Yield the already imported classes of simulators that run in this process."""
    for spec in environment.plan().simulators:
        module, _, name = (spec.python or "").partition(":")
        cls = getattr(sys.modules.get(module), name, None)
        if isinstance(cls, type):
            yield spec, cls


def inspect(document: RunDocument) -> list[Problem]:
    """Return all problems that prevent ``document`` from running.

    Args:
        document: the document, as returned by :func:`palaestrai_mosaik.experiment.load`. Its classes are imported, and
            its environments are set up and shut down again.

    Returns:
        The problems with their positions in the document; empty if it can run.
    """
    inspection = Inspection(document)
    inspection.environments.close()
    return inspection.problems


def check_setup(
    document: RunDocument | PartialDocument, earlier: Sequence[Problem] = ()
) -> tuple[list[Problem], list[Problem], RunDocument]:
    """Set up a document's environments and agents, and collect all problems, as the command ``check`` does.

    Args:
        document: the document, or the valid parts of it.
        earlier: problems reported while the document was read; they are included in the result.

    Returns:
        All problems in the order of their lines, all warnings, and the document with the names that its patterns of
        sensors and actuators match.
    """
    inspection = Inspection(document, earlier=earlier)
    try:
        check_agents(inspection)
    finally:
        inspection.environments.close()
    problems = {*earlier, *inspection.problems}
    in_order = sorted(problems, key=lambda problem: (problem.line or 0, problem.message))
    matched = {phase.index: phase for phase in inspection.phases}
    phases = tuple(matched.get(phase.index, phase) for phase in inspection.document.phases)
    warnings = [*inspection.document.warnings, *inspection.warnings]
    return in_order, warnings, replace(inspection.document, phases=phases)


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
                _set_up_agent(inspection, placed[phase.index], placed[phase.index].agents[j], path)


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


def _set_up_agent(inspection: Inspection, phase: PhaseSpec, agent: AgentSpec, path: Place) -> None:
    agent = replace(agent, load=None, replay=())
    phase = replace(phase, agents=(agent,), workers=1)
    environments = inspection.environments
    handles = [environments.handle(spec) for spec in phase.environments]
    groups, faults = place_bodies(agent, handles)
    if faults:
        return  # already reported
    document = inspection.document
    with tempfile.TemporaryDirectory(prefix="palaestrai-mosaik-") as folder:
        try:
            keeper = brain_keeper(agent, phase, document, Path(folder), None)
            learner = make_learner(agent, ReplayContext(document, phase, None), keeper, groups, None)
            plan = WorkerPlan(
                phase, document.conditions, document.seed, 0, {agent.name: keeper}, environments.stored
            )
            for _ in make_bodies(agent, plan, handles, learner):
                pass
        except Exception as error:
            cause = f"{type(error).__name__}: {error}{users_place(error)}"
            inspection.report(f"agent {agent.name!r} cannot be set up: {cause}", *path)


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

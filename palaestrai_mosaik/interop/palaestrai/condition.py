"""Termination conditions written for palaestrAI."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from copy import deepcopy
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from palaestrai.agent.memory import MemoryShard
from palaestrai.core.protocol import (
    EnvironmentUpdateResponse,
    MuscleUpdateRequest,
    SimulationControllerTerminationRequest,
)
from palaestrai.core.protocol.agent_evaluation_rsp import AgentEvaluationResponse
from palaestrai.experiment import TerminationCondition as Theirs
from palaestrai.types import Mode as TheirMode
from palaestrai.types import SimulationFlowControl as TheirFlow

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.simulation.body import AnyBody
from palaestrai_mosaik.simulation.conditions import (
    HOOKS,
    EpisodeView,
    EvaluationView,
    PhaseView,
    TerminationCondition,
)
from palaestrai_mosaik.simulation.coordinator import EpisodeCoordinator
from palaestrai_mosaik.simulation.learner import Learner
from palaestrai_mosaik.types import Mode, SimulationFlowControl

from .base import GlobalGenerators
from .environment import PalaestraiStates
from .translate import their_simtime

#: number of rows of earlier episodes in a brain's memory, as seen by conditions
_PAST = 10_000
_CONTINUE = SimulationFlowControl.CONTINUE


class AdaptedCondition(TerminationCondition):
    """Runs a palaestrAI termination condition; subclasses have its class in :attr:`wrapped_class`.

    Below ``simulation``, ``brain_flow_control`` is called for every muscle of an agent with a brain, on a separate
    object per agent, and ``check_termination`` for every new state of an environment (true ends the episode). In
    ``run_config``, ``phase_flow_control`` is called after every episode, and ``evaluation_flow_control`` after
    evaluations if ``requires_evaluation_outcomes`` is set. ``environment_flow_control`` is never called, as in
    palaestrAI 3.5. The condition's global generators are reseeded for every episode.

    The arguments imitate palaestrAI's objects as far as conditions use them: see :class:`BrainView` and
    :class:`GovernorView`. Messages are palaestrAI's own.
    """

    wrapped_class: ClassVar[type]

    def __init__(self, **params: Any):
        self.params = params
        self._generators = GlobalGenerators(0)
        #: the palaestrAI object for questions about environments and phases
        self.part = self._make()
        self._of_agents: dict[str, Any] = {}
        self._memories: dict[str, _Memory] = {}
        #: the answers about brains in the current episode, for ``phase_flow_control``
        self._reported: dict[str, Any] = {}
        self._episode = -1

    def _make(self) -> Any:
        with self._generators:
            return self.wrapped_class(**deepcopy(self.params))

    @property
    def brain(self) -> bool:
        """Whether the condition could end an episode."""
        return not self.of_run and self._of_episodes

    def can_end_phase(self, episodes: int | None) -> bool:
        return self._has("phase_flow_control")

    def _has(self, hook: str) -> bool:
        return getattr(self.wrapped_class, hook) is not getattr(Theirs, hook)

    @property
    def _of_episodes(self) -> bool:
        return self._has("brain_flow_control") or self._has("check_termination")

    def _hooks(self) -> list[str]:
        of_episodes = ["episode_flow_control"] if self._of_episodes else []
        return of_episodes + [hook for hook in HOOKS[1:] if self._has(hook)]

    def episode_flow_control(self, view: EpisodeView) -> SimulationFlowControl:
        assert isinstance(view, EpisodeCoordinator)
        flow, brains, messages = _CONTINUE, self._has("brain_flow_control"), self._has("check_termination")
        owner = "run" if self.of_run else "phase"
        self._generators.renew(view.handles[0].domain.rng, "condition", owner, self._place)
        if not (brains or messages):
            return flow
        with self._generators:
            if brains:
                flow = max(flow, self._ask_about_brains(view))
            if messages and any(self.part.check_termination(message) for message in _messages(view)):
                flow = max(flow, SimulationFlowControl.RESET)
        return _CONTINUE if self.of_run else flow

    def _ask_about_brains(self, view: EpisodeCoordinator) -> SimulationFlowControl:
        begins = view.episode != self._episode
        self._episode = view.episode
        flow = _CONTINUE
        for agent, bodies in view.agents.items():
            learner = bodies[0].learner
            if learner is None:
                continue
            memory = self._memories.setdefault(agent, _Memory())
            if begins:
                memory.begin()
            muscles = [muscle for body in bodies for muscle in body.muscles]
            memory.update(bodies)
            brain = BrainView(agent, bodies[0].muscle.mode, memory, learner)
            part = self._of_agents.setdefault(agent, self._make())
            for muscle in muscles:
                answer = part.brain_flow_control(brain, _update(agent, muscle, view, memory))
                requested, data = self._answer(answer, "brain_flow_control")
                self._reported.update(data if isinstance(data, dict) else {agent: data})
                flow = max(flow, requested)
        return flow

    def phase_flow_control(self, view: PhaseView) -> SimulationFlowControl:
        last = view.last
        flow = TheirFlow[last.flow.name]
        data: dict[str, Any] = {"EnvironmentTerminationCondition": (flow, {})}
        if self._reported:
            data[self.wrapped_class.__name__] = (flow, self._reported)
        request = SimulationControllerTerminationRequest(
            worker_uid(last.worker), "run-governor", "", TheirMode[view.mode.name], flow, data
        )
        with self._generators:
            answer = self.part.phase_flow_control(GovernorView(view), request)
        self._reported = {}
        return self._answer(answer, "phase_flow_control")[0]

    def evaluation_flow_control(self, view: EvaluationView) -> SimulationFlowControl:
        if self.part.requires_evaluation_outcomes is not True:
            return _CONTINUE
        outcomes = [
            AgentEvaluationResponse(
                *(agent, "run-governor", "", "", 0),
                agent_name=agent,
                evaluation_episode=view.number,
                evaluation_metrics=dict(view.metrics[agent]),
            )
            for agent in view.agents
        ]
        with self._generators:
            answer = self.part.evaluation_flow_control(GovernorView(view), outcomes)
        return self._answer(answer, "evaluation_flow_control")[0]

    def _answer(self, answer: Any, hook: str) -> tuple[SimulationFlowControl, Any]:
        """Convert the result of a hook to our flow control and the data."""
        match answer:
            case (TheirFlow() as flow, data) if flow.name in SimulationFlowControl.__members__:
                return SimulationFlowControl[flow.name], data
        raise ContractError(
            f"{self.wrapped_class.__name__}.{hook} returned {answer!r}; allowed are pairs of palaestrAI's "
            f"SimulationFlowControl ({', '.join(SimulationFlowControl.__members__)}) and data"
        )


class BrainView:
    """A brain as seen by a condition: ``name``, ``mode``, ``memory``.

    ``memory.tail`` has the objective values of current and earlier episodes, including the row that was just completed.
    Other attributes are read from the palaestrAI brain, if it is one and in this process.
    """

    def __init__(self, name: str, mode: Mode, memory: _Memory, learner: Any):
        self.name = name
        self.mode = TheirMode[mode.name]
        self.memory = memory
        self._learner = learner

    def __getattr__(self, name: str) -> Any:
        learner = self.__dict__.get("_learner")
        part = getattr(learner.brain, "part", None) if isinstance(learner, Learner) else None
        if part is None:
            raise AttributeError(
                f"a condition sees name, mode and memory of the brain of {self.__dict__.get('name')!r} here, "
                f"not {name!r}: it is no brain of palaestrAI, or in another process"
            )
        return getattr(part, name)


class GovernorView:
    """palaestrAI's run governor as seen by a condition.

    The attributes are ``current_phase`` (always 0, because a condition exists for one phase),
    ``current_episode_counts`` (by worker, without the episode that has just ended), ``max_eval_episodes``, and
    ``experiment_run``, which is this object, with ``get_episodes``, ``get_worker``, ``get_mode`` and
    ``get_evaluate_every``.
    """

    current_phase = 0
    max_eval_episodes = 0

    def __init__(self, view: PhaseView | EvaluationView):
        self._view = view
        self.current_episode_counts: dict[str, int] = {}
        if isinstance(view, PhaseView):
            for worker, episodes in enumerate(view.history):
                ended = len(episodes) - (worker == view.last.worker)
                self.current_episode_counts[worker_uid(worker)] = ended

    @property
    def experiment_run(self) -> GovernorView:
        """The run as seen by a condition."""
        return self

    def get_episodes(self, phase: int) -> int | None:
        """Return the phase's number of episodes, or ``None`` if the document does not set it."""
        return self._view.episodes

    def get_worker(self, phase: int) -> int:
        """Return the number of workers."""
        return self._view.workers

    def get_mode(self, phase: int) -> Any:
        """Return the phase's mode as palaestrAI's object."""
        return TheirMode[self._view.mode.name]

    def get_evaluate_every(self, phase: int) -> None:
        """Return ``None``, because evaluations do not count as episodes here."""
        return None


class _Memory:
    """The part of a palaestrAI brain's memory that conditions use: objective values and rewards."""

    def __init__(self) -> None:
        self._past = pd.DataFrame({"muscle": [], "objective": []})
        self._rows = self._past

    def begin(self) -> None:
        """Begin a new episode, keeping the rows of earlier ones."""
        self._past = pd.concat([self._past, self._rows], ignore_index=True)[-_PAST:]

    def update(self, bodies: Sequence[AnyBody]) -> None:
        """Copy the rows of the current episode."""
        frames = []
        names = [muscle for body in bodies for muscle in body.muscles]
        for body in bodies:
            table = body.history()
            frame = pd.DataFrame(table[:, 2:], columns=["objective", *body.reward_names])
            frame.insert(0, "muscle", [names[int(number)] for number in table[:, 1]])
            frames.append(frame.set_index(table[:, 0]))
        rows = frames[0] if len(frames) == 1 else pd.concat(frames).sort_index(kind="stable")
        self._rows = rows.reset_index(drop=True)

    def __len__(self) -> int:
        return len(self._past) + len(self._rows)

    def tail(self, n: int = 1, include_only: Collection[str] | None = None) -> MemoryShard:
        """Return the last ``n`` rows, oldest first, optionally only of the muscles ``include_only``."""
        rows = pd.concat([self._past, self._rows], ignore_index=True) if len(self._past) else self._rows
        if include_only:
            rows = rows[rows["muscle"].isin(list(include_only))]
        rows = rows.tail(n).reset_index(drop=True)
        shard = MemoryShard.concat([])
        shard.objective = rows["objective"].to_numpy(dtype=np.float64)
        shard.rewards = rows.drop(columns=["muscle", "objective"])
        return shard


def worker_uid(worker: int) -> str:
    """Return the uid of a worker in messages."""
    return f"worker-{worker}"


def _update(agent: str, muscle: str, view: EpisodeCoordinator, memory: _Memory) -> MuscleUpdateRequest:
    """Create the message that a palaestrAI muscle would send to its brain."""
    newest = memory.tail(1, [muscle]).objective
    return MuscleUpdateRequest(
        *(muscle, agent, agent, "", "", 0, None, None, None, None, None),
        objective=float(newest[0]) if len(newest) else float("nan"),
        done=any(any(flags) for flags in view.ended.values()),
        mode=TheirMode[view.bodies[0].muscle.mode.name],
        data=None,
        statistics={},
        episode=view.episode,
    )


def _messages(view: EpisodeCoordinator) -> Iterator[EnvironmentUpdateResponse]:
    """Yield palaestrAI's message for every new state of an environment, except the first."""
    for handle in view.fresh:
        if handle.state is None or handle.steps < 1:
            continue
        state = PalaestraiStates(handle.baseline)(handle.state)
        yield EnvironmentUpdateResponse(
            *(handle.uid, worker_uid(view.worker), "", "", 0, view.episode, handle.uid),
            sensors=state.sensor_information,
            setpoints=[],
            rewards=state.rewards,
            done=state.done,
            flow_control_indicator=TheirFlow.RESET if state.done else TheirFlow.CONTINUE,
            world_state=state.world_state,
            simtime=their_simtime(view.time, handle.baseline.start),
            terminated=state.terminated,
            truncated=state.truncated,
        )

"""Termination conditions, which end episodes and phases.

A condition under ``simulation.conditions`` decides after every step whether the episode
of its worker ends. A condition of ``run_config`` does so as well, and also decides after every
episode whether the phase ends. All conditions are called in the order of the
document; the strongest result takes precedence, and the first condition that returned it is recorded as
the reason.

Source: the seed "Simulation Flow Control" of palaestrAI's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.core.importing import class_name
from palaestrai_mosaik.core.printing import shorten
from palaestrai_mosaik.types import Mode, SimulationFlowControl
from palaestrai_mosaik.types.endings import describe_condition


class EpisodeView(Protocol):
    """A condition's view of a running episode, after a step."""

    worker: int
    episode: int
    #: mosaik ticks since the start of the episode
    time: int
    #: the pair (terminated, truncated) of every environment's newest state, by uid. The incarnations of a
    #: batched environment count as separate environments: ``<uid>.<number>``.
    ended: Mapping[str, tuple[bool, bool]]
    #: number of times that every environment has ended in this episode, by uid
    endings: Mapping[str, int]
    #: whether environments restart after their end (see :attr:`TerminationCondition.environments_reset`)
    environments_reset: bool

    def objectives(self, agent: str) -> npt.NDArray[np.float64]:
        """(n,): the agent's objective values of this episode and worker, oldest first."""


@dataclass(frozen=True)
class EpisodeOutcome:
    """A condition's view of a finished episode."""

    worker: int
    episode: int
    steps: int
    flow: SimulationFlowControl
    ended_by: str
    objectives: Mapping[str, npt.NDArray[np.float64]]

    def mean_objective(self, agent: str) -> float:
        """Return the mean of an agent's objective over the episode's steps; NaN if the agent never acted."""
        values = self.objectives.get(agent)
        return float(np.mean(values)) if values is not None and len(values) else float("nan")


@dataclass
class PhaseView:
    """A condition's view of a phase, after an episode.

    Attributes:
        episodes: the number in the document; ``None`` without one.
        history: for each worker, the mean objective of every agent in each of its episodes.
        last: the episode that has just ended.
    """

    mode: Mode
    workers: int
    episodes: int | None
    agents: Sequence[str]
    last: EpisodeOutcome
    history: list[list[Mapping[str, float]]] = field(default_factory=list)


@dataclass(frozen=True)
class EvaluationView:
    """A condition's view of an evaluation: one episode per worker, in test mode.

    Attributes:
        number: counts the phase's evaluations from 0.
        metrics: for each agent ``objective`` (the mean over workers of an episode's mean objective),
            ``objective_sum`` (of its sum), ``steps`` (of its length), and the metrics added by the brain's
            ``evaluated``.
    """

    mode: Mode
    workers: int
    episodes: int | None
    agents: Sequence[str]
    number: int
    outcomes: Sequence[EpisodeOutcome]
    metrics: Mapping[str, Mapping[str, float]]


#: the methods of a condition, called after a step, an episode, an evaluation
HOOKS = ("episode_flow_control", "phase_flow_control", "evaluation_flow_control")


class TerminationCondition:
    """Base of all conditions; a subclass overrides some of its methods.

    The constructor receives the document's ``params`` as keywords. If a phase has one
    worker, one object serves all of it. With several workers, each has its own object
    that is called after every step, and one more is called about the phase. Objects are
    pickled with a checkpoint.
    """

    #: details of the reason why the condition ended something; recorded with its name
    termination_reason: str | None = None
    #: whether environments restart after their end while the episode of the phase continues. They do
    #: so if any condition of the phase or the run has this set.
    environments_reset: bool = False
    #: whether it belongs to ``run_config``, not to ``simulation``; set before its first call
    of_run: bool = False
    #: its index among the conditions of the run or of the phase
    _place: int = 0

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        describe_condition(cls)

    def beside(self, conditions: Sequence[TerminationCondition]) -> None:
        """Learn about the other conditions. Called once, before all other methods.

        Args:
            conditions: all conditions of the phase and the run, including this one.
        """

    def episode_flow_control(self, view: EpisodeView) -> SimulationFlowControl:
        """Decide after a step.

        Args:
            view: the running episode.

        Returns:
            ``CONTINUE``; ``RESET`` to end the episode; ``STOP_PHASE`` to end the phase, too.
        """
        return SimulationFlowControl.CONTINUE

    def phase_flow_control(self, view: PhaseView) -> SimulationFlowControl:
        """Decide after an episode.

        Args:
            view: the phase with its finished episodes.

        Returns:
            ``CONTINUE``, or ``STOP_PHASE`` to end the phase.
        """
        return SimulationFlowControl.CONTINUE

    def evaluation_flow_control(self, view: EvaluationView) -> SimulationFlowControl:
        """Decide after an evaluation.

        Args:
            view: the newest evaluation.

        Returns:
            ``CONTINUE``, or ``STOP_PHASE`` to end the phase.
        """
        return SimulationFlowControl.CONTINUE

    def _hooks(self) -> list[str]:
        """Return the names of the overridden methods."""
        return [
            hook for hook in HOOKS if getattr(type(self), hook) is not getattr(TerminationCondition, hook)
        ]

    def can_end_phase(self, episodes: int | None) -> bool:
        """Return whether this condition could ever end a phase by its episodes, as a part of ``run_config``.

        An override of :meth:`evaluation_flow_control` is detected separately.

        Args:
            episodes: the number of episodes in the document; ``None`` without one.
        """
        overridden = type(self).phase_flow_control is not TerminationCondition.phase_flow_control
        return overridden


def check_flow(condition: TerminationCondition, hook: str, answer: Any) -> None:
    """Check the result of a condition's method.

    Args:
        condition: the condition.
        hook: the name of the method.
        answer: its result.

    Raises:
        ContractError: the result is no flow control value.
    """
    if isinstance(answer, SimulationFlowControl):
        return
    result = "None (is a return missing?)" if answer is None else shorten(repr(answer), 60)
    ends = "RESET` to end the episode" if hook.startswith("episode") else "STOP_PHASE` to end the phase"
    raise ContractError(
        f"condition {class_name(type(condition))}, {hook}: it must return a SimulationFlowControl, not {result}; write "
        f"`return SimulationFlowControl.CONTINUE` to go on, `return SimulationFlowControl.{ends}"
    )


class EnvironmentTerminationCondition(TerminationCondition):
    """Ends the episode when environments have terminated or were truncated.

    The incarnations of a batched environment count as separate environments.

    Source: the seed "AEB Design" of SLM Lab (``run_all_episodes``) for ``all``.

    Args:
        when: ``any`` ends the episode with the first environment that ends. With ``all`` every environment
            has its own timeline: it ends and restarts while the others continue. ``None``: ``any``, unless
            another condition of the phase or the run has ``all``.
        episodes: with ``all``, the phase's episode is over when each environment has ended at least this many
            times.

    Raises:
        ContractError: an argument is invalid, or ``episodes`` is above 1 without ``when: all``.
    """

    #: for subclasses that do not call ``super().__init__()``
    when: str | None = None
    episodes: int = 1

    def __init__(self, when: str | None = None, episodes: int = 1):
        if when not in (None, "any", "all"):
            raise ContractError(
                f"'when' must be 'any' or 'all', not {when!r}" + did_you_mean(str(when), ["any", "all"])
            )
        check_whole("'episodes'", episodes, 1)
        if episodes > 1 and when != "all":
            raise ContractError("'episodes' needs 'when: all': otherwise no environment begins again")
        self.when = when
        self.episodes = episodes
        self.environments_reset = when == "all"

    def episode_flow_control(self, view: EpisodeView) -> SimulationFlowControl:
        if self.when == "all":
            over = min(view.endings.values()) >= self.episodes
        elif self.when is None and view.environments_reset:
            over = False
        else:
            over = any(view.endings.values())
        return SimulationFlowControl.RESET if over else SimulationFlowControl.CONTINUE


class MaxEpisodesTerminationCondition(TerminationCondition):
    """Ends the phase when every worker has reached ``phase_config.episodes``."""

    def phase_flow_control(self, view: PhaseView) -> SimulationFlowControl:
        if view.episodes is None:
            return SimulationFlowControl.CONTINUE
        done = [len(episodes) >= view.episodes for episodes in view.history]
        if all(done):
            return SimulationFlowControl.STOP_PHASE
        if done[view.last.worker]:
            return SimulationFlowControl.STOP_SIMULATION
        return SimulationFlowControl.CONTINUE

    def can_end_phase(self, episodes: int | None) -> bool:
        return episodes is not None


class VanillaRunGovernorTerminationCondition(
    MaxEpisodesTerminationCondition, EnvironmentTerminationCondition
):
    """Environment termination ends the episode, the number of episodes ends the phase."""


class VanillaSimControllerTerminationCondition(EnvironmentTerminationCondition):
    """The default for episodes: :class:`EnvironmentTerminationCondition` under its old name."""


class AgentObjectiveTerminationCondition(TerminationCondition):
    """Ends episodes and phases by the success of agents.

    Several thresholds and several agents are ORed. If no condition of the phase or the run has a
    ``phase_avgM`` for an agent, its ``brain_avgN`` ends the whole phase.

    Args:
        agents: thresholds by name of the agent: ``{agent: {brain_avgN: x, phase_avgM: y}}``. ``brain_avgN``:
            the episode ends once the mean of the last N objective values of this episode and worker is at
            least ``x``. ``phase_avgM``: the phase ends once, for every worker, the mean over its last M
            episodes of the mean objective of each is at least ``y``; it is only used in ``run_config``.
            Nothing is computed before there are N values (M episodes).

    Raises:
        ContractError: a threshold is invalid, or there is none.
    """

    #: the agents without a ``phase_avgM``
    ends_phase: frozenset[str] = frozenset()

    _KEY = re.compile(r"(brain|phase)_avg([1-9][0-9]*)\Z")

    def __init__(self, **agents: Mapping[str, float]):
        self.brain: dict[str, dict[int, float]] = {}
        self.phase: dict[str, dict[int, float]] = {}
        for agent, thresholds in agents.items():
            if not isinstance(thresholds, Mapping):
                raise ContractError(f"thresholds of agent {agent!r} must be a mapping, not {thresholds!r}")
            for key, value in thresholds.items():
                match = self._KEY.match(str(key))
                if match is None:
                    raise ContractError(
                        f"{key!r} of agent {agent!r} is not a threshold; allowed are brain_avgN and phase_avgN"
                        f" with a number N > 0" + did_you_mean(str(key), ["brain_avg10", "phase_avg10"])
                    )
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise ContractError(f"{key!r} of agent {agent!r} must be a number, not {value!r}")
                kind = self.brain if match[1] == "brain" else self.phase
                kind.setdefault(agent, {})[int(match[2])] = float(value)
        if not self.brain and not self.phase:
            raise ContractError("no thresholds: give {agent: {brain_avgN: value, phase_avgN: value}}")
        self.beside([self])

    def beside(self, conditions: Sequence[TerminationCondition]) -> None:
        same_kind = [
            condition for condition in conditions if isinstance(condition, AgentObjectiveTerminationCondition)
        ]
        self.ends_phase = frozenset(self.brain).difference(*(condition.phase for condition in same_kind))

    def episode_flow_control(self, view: EpisodeView) -> SimulationFlowControl:
        flow = SimulationFlowControl.CONTINUE
        for agent, thresholds in self.brain.items():
            if self._holds(thresholds, view.objectives(agent)):
                if agent in self.ends_phase:
                    return SimulationFlowControl.STOP_PHASE
                flow = SimulationFlowControl.RESET
        return flow

    def phase_flow_control(self, view: PhaseView) -> SimulationFlowControl:
        for agent, thresholds in self.phase.items():
            if all(
                self._holds(thresholds, np.array([means.get(agent, np.nan) for means in episodes]))
                for episodes in view.history
            ):
                return SimulationFlowControl.STOP_PHASE
        return SimulationFlowControl.CONTINUE

    def can_end_phase(self, episodes: int | None) -> bool:
        return bool(self.ends_phase or self.phase)

    @staticmethod
    def _holds(thresholds: Mapping[int, float], values: npt.NDArray[np.float64]) -> bool:
        count = len(values)
        return any(
            count >= window and float(values[count - window :].mean()) >= threshold
            for window, threshold in thresholds.items()
        )

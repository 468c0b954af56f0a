"""Termination conditions: when an episode ends, when a phase ends.

A condition under ``simulation.conditions`` is asked after every step whether the episode
of its worker shall end. A condition of ``run_config`` is asked that too, and after every
episode whether the phase shall end. All conditions are asked in the order of the
document; the strongest answer wins, and the first condition that gave it is recorded as
the reason.

Source: the seed "Simulation Flow Control" of palaestrAI's documentation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.errors import ContractError, did_you_mean
from palaestrai_mosaik.types import Mode, SimulationFlowControl


class EpisodeView(Protocol):
    """What a condition may know about a running episode, after a step."""

    worker: int
    episode: int
    #: mosaik ticks since the start of the episode
    time: int
    #: (terminated, truncated) of every environment's newest state, by uid. The incarnations of a
    #: batched environment are environments of their own: ``<uid>.<number>``.
    ended: Mapping[str, tuple[bool, bool]]
    #: how often every environment has ended in this episode, by uid
    endings: Mapping[str, int]
    #: environments that have ended begin again (see :attr:`TerminationCondition.environments_reset`)
    environments_reset: bool

    def objectives(self, agent: str) -> npt.NDArray[np.float64]:
        """(n,): the agent's objective values of this episode and worker, oldest first."""


@dataclass(frozen=True)
class EpisodeOutcome:
    """What a condition may know about an episode that is over."""

    worker: int
    episode: int
    steps: int
    flow: SimulationFlowControl
    ended_by: str
    objectives: Mapping[str, npt.NDArray[np.float64]]

    def mean_objective(self, agent: str) -> float:
        """The mean over the episode's steps; NaN if the agent never acted."""
        values = self.objectives.get(agent)
        return float(np.mean(values)) if values is not None and len(values) else float("nan")


@dataclass
class PhaseView:
    """What a condition may know about a phase, after an episode.

    Attributes:
        episodes: the number that the document asks for; ``None``: not given.
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
    """What a condition may know about an evaluation: one episode per worker, in test mode.

    Attributes:
        number: counts the phase's evaluations from 0.
        metrics: for each agent ``objective`` (the mean over workers of an episode's mean objective),
            ``objective_sum`` (of its sum), ``steps`` (of its length), and whatever the brain's ``evaluated``
            adds.
    """

    mode: Mode
    workers: int
    episodes: int | None
    agents: Sequence[str]
    number: int
    outcomes: Sequence[EpisodeOutcome]
    metrics: Mapping[str, Mapping[str, float]]


class TerminationCondition:
    """Base of all conditions; a subclass overrides what it needs.

    The constructor receives the document's ``params`` as keywords. Where a phase has one
    worker, one object serves all of it. Of several workers, each has an object of its own
    that is asked after every step, and one more is asked about the phase. Objects are
    pickled with a checkpoint.
    """

    #: more about why the condition ended something; recorded with the condition's name
    termination_reason: str | None = None
    #: An environment that has ended begins again while the episode of the phase goes on. It is
    #: so where any condition of the phase or the run says it.
    environments_reset: bool = False
    #: whether it stands in ``run_config``, not below ``simulation``; set before it is asked
    of_run: bool = False
    #: its place among the conditions of the run or of the phase
    _place: int = 0

    def beside(self, conditions: Sequence[TerminationCondition]) -> None:
        """Called once, before it is asked, with all conditions of the phase and the run, this one included."""

    def episode_flow_control(self, view: EpisodeView) -> SimulationFlowControl:
        """Say how to go on after a step. ``RESET`` ends the episode, ``STOP_PHASE`` the phase, too."""
        return SimulationFlowControl.CONTINUE

    def phase_flow_control(self, view: PhaseView) -> SimulationFlowControl:
        """Say how to go on after an episode. ``STOP_PHASE`` ends the phase."""
        return SimulationFlowControl.CONTINUE

    def evaluation_flow_control(self, view: EvaluationView) -> SimulationFlowControl:
        """Say how to go on after an evaluation. ``STOP_PHASE`` ends the phase."""
        return SimulationFlowControl.CONTINUE

    def can_end_phase(self, episodes: int | None) -> bool:
        """Whether this condition (in ``run_config``) could ever end a phase by its episodes.

        An override of :meth:`evaluation_flow_control` is seen by itself.
        """
        overridden = type(self).phase_flow_control is not TerminationCondition.phase_flow_control
        return overridden


class EnvironmentTerminationCondition(TerminationCondition):
    """Ends the episode when environments have terminated or were truncated.

    The incarnations of a batched environment are environments of their own.

    Source: the seed "AEB Design" of SLM Lab (``run_all_episodes``) for ``all``.

    Args:
        when: ``any`` ends the episode with the first environment that ends. With ``all`` every environment
            has a timeline of its own: it ends and restarts while the others go on. ``None``: ``any``, which
            gives way where another condition of the phase or the run says ``all``.
        episodes: with ``all``, the phase's episode is over when each environment has ended at least so many
            times.

    Raises:
        ContractError: one of them is something else, or ``episodes`` is above 1 without ``when: all``.
    """

    #: for subclasses that do not call ``super().__init__()``
    when: str | None = None
    episodes: int = 1

    def __init__(self, when: str | None = None, episodes: int = 1):
        if when not in (None, "any", "all"):
            raise ContractError(
                f"'when' must be 'any' or 'all', not {when!r}" + did_you_mean(str(when), ["any", "all"])
            )
        if isinstance(episodes, bool) or not isinstance(episodes, int) or episodes < 1:
            raise ContractError(f"'episodes' must be a whole number of at least 1, not {episodes!r}")
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

    Several thresholds and several agents are ORed. Where no condition of the phase or the run has a
    ``phase_avgM`` for an agent, its ``brain_avgN`` ends the whole phase.

    Args:
        agents: thresholds by name of the agent: ``{agent: {brain_avgN: x, phase_avgM: y}}``. ``brain_avgN``:
            the episode ends once the mean of the last N objective values of this episode and worker is at
            least ``x``. ``phase_avgM``: the phase ends once, for every worker, the mean over its last M
            episodes of the mean objective of each is at least ``y``; it is asked in ``run_config`` only.
            Nothing is computed before there are N values (M episodes).

    Raises:
        ContractError: a threshold cannot be read, or there is none.
    """

    #: the agents that have no ``phase_avgM``
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
        own = [one for one in conditions if isinstance(one, AgentObjectiveTerminationCondition)]
        self.ends_phase = frozenset(self.brain).difference(*(one.phase for one in own))

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

"""The termination condition that ends a phase by its evaluations.

Source: the class of the same name in palaestrAI 3.5. There it allows one worker only; here
an evaluation is one episode of every worker, and its metrics are those of all workers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.experiment.conditions import AgentRules, read_rules
from palaestrai_mosaik.types import SimulationFlowControl

from .conditions import EvaluationView, VanillaRunGovernorTerminationCondition


@dataclass
class _Progress:
    """The progress of one agent's evaluations; ``count`` is the number of valid ones."""

    rules: AgentRules
    recent: deque[float]
    count: int = 0
    streak: int = 0
    stalled: int = 0
    best: float | None = None
    reported: set[str] = field(default_factory=set)

    def require(self, agent: str, metrics: Mapping[str, float]) -> None:
        """Raise :class:`ContractError` for a metric of the rules that ``agent`` has never had."""
        missing = [name for name in self.rules.metrics if name not in {*metrics, *self.reported}]
        if missing:
            raise ContractError(
                f"agent {agent!r} has no evaluation metric {missing[0]!r}{did_you_mean(missing[0], metrics)}; "
                f"there are {', '.join(metrics)}"
            )

    def take(self, metrics: Mapping[str, float]) -> None:
        """Add one evaluation; a missing or infinite metric only ends the streak."""
        values = {name: float(metrics.get(name, math.nan)) for name in self.rules.metrics}
        self.reported.update(metrics)
        if not all(map(math.isfinite, values.values())):
            self.streak = 0
            return
        self.count += 1
        success, plateau = self.rules.success, self.rules.plateau
        if success is not None:
            self.streak = self.streak + 1 if success.met_by(values[success.metric]) else 0
        if plateau is not None:
            self.recent.append(values[plateau.metric])
            if len(self.recent) < plateau.window:
                return
            mean = math.fsum(self.recent) / plateau.window
            if plateau.improves(mean, self.best):
                self.best = mean
                self.stalled = 0
            elif self.count >= plateau.min_evaluations:
                self.stalled += 1

    @property
    def succeeded(self) -> bool:
        rule = self.rules.success
        return rule is not None and self.count >= rule.min_evaluations and self.streak >= rule.consecutive

    @property
    def plateaued(self) -> bool:
        rule = self.rules.plateau
        return rule is not None and self.stalled >= rule.patience


class AgentEvaluationObjectiveTerminationCondition(VanillaRunGovernorTerminationCondition):
    """Ends the phase when the evaluations of all configured agents are good, or stop improving.

    All configured agents must satisfy a rule for it to end the phase; success is checked first. Training
    episodes only matter as in :class:`VanillaRunGovernorTerminationCondition`: an
    environment's end ends the episode, ``phase_config.episodes`` the phase.

    An evaluation with a metric that is missing or not finite ends the agent's streak of successes and has no
    other effect. An evaluation without one of the agents counts for no agent.

    Args:
        agents: the rules: ``{agent: {success: {...}, plateau: {...}}}``, one or both, the same ones for every
            agent. ``success`` has ``metric``, ``threshold``, ``direction`` (``greater_equal``,
            ``less_equal``), ``consecutive``, ``min_evaluations``; ``plateau`` has ``metric``, ``direction``
            (``maximize``, ``minimize``), ``min_delta``, ``patience``, ``min_evaluations``, ``window``; see
            :class:`~palaestrai_mosaik.experiment.conditions.SuccessRule` and ``PlateauRule`` for their
            meaning.

    Raises:
        ContractError: rules are invalid, or (from :meth:`evaluation_flow_control`) an agent never had a
            metric.
    """

    def __init__(self, agents: Mapping[str, Mapping[str, Any]]):
        rules, faults = read_rules(agents)
        if faults:
            texts = (": ".join([".".join(map(str, path)), text]) if path else text for path, text in faults)
            raise ContractError("; ".join(texts))
        self._progress = {
            agent: _Progress(of_agent, deque(maxlen=of_agent.plateau.window if of_agent.plateau else 1))
            for agent, of_agent in rules.items()
        }
        #: the rule that has ended the phase
        self.termination_reason: Literal["success", "plateau"] | None = None

    @property
    def agents(self) -> tuple[str, ...]:
        """The names of the agents with rules."""
        return tuple(self._progress)

    def evaluation_flow_control(self, view: EvaluationView) -> SimulationFlowControl:
        if self.termination_reason is None:
            self._take(view)
        return self._answer()

    def phase_flow_control(self, view: Any) -> SimulationFlowControl:
        return max(self._answer(), super().phase_flow_control(view))

    def _answer(self) -> SimulationFlowControl:
        ended = self.termination_reason is not None
        return SimulationFlowControl.STOP_PHASE if ended else SimulationFlowControl.CONTINUE

    def _take(self, view: EvaluationView) -> None:
        absent = [agent for agent in self._progress if agent not in view.metrics]
        for agent in absent:
            self._progress[agent].streak = 0
        if absent:
            return
        for agent, progress in self._progress.items():
            progress.require(agent, view.metrics[agent])
            progress.take(view.metrics[agent])
        if all(progress.succeeded for progress in self._progress.values()):
            self.termination_reason = "success"
        elif all(progress.plateaued for progress in self._progress.values()):
            self.termination_reason = "plateau"

"""Early stopping: reports intermediate outcomes of a search's run, and asks the pruner whether to continue.

After every episode (or evaluation, if the outcome is measured in evaluations), a run reports its outcome so far,
averaged with those of the setting's earlier runs. The pruner compares this value with the reports of other settings at
the same step. The journal has all reports and decisions, so a run that is executed again after it was killed does not
repeat them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from palaestrai_mosaik.arsenai.design.model import OutcomeSpec, Pruner
from palaestrai_mosaik.arsenai.design.outcomes import fold
from palaestrai_mosaik.arsenai.design.settings import STOPPED
from palaestrai_mosaik.experiment import PhaseSpec
from palaestrai_mosaik.runner import Interrupt
from palaestrai_mosaik.runner.worker import EpisodeReport
from palaestrai_mosaik.store import Store

from .journal import Journal, make_pruner, open_journal, quiet


@dataclass(frozen=True, slots=True)
class Reporting:
    """The outcome that a run of a search reports, and the journal for the reports; plain data.

    Attributes:
        folder: the design folder.
        study: the name of the study in the journal.
        direction: ``minimize`` or ``maximize``.
        trial: the number of the setting's trial.
        outcome: the outcome that the search optimizes.
        phase: the index of the outcome's phase.
        prune: the name of the pruner.
        earlier: the outcomes of the setting's earlier runs.
        first: the number of the first report of this run.
    """

    folder: Path
    study: str
    direction: str
    trial: int
    outcome: OutcomeSpec
    phase: int
    prune: Pruner
    earlier: tuple[float, ...] = ()
    first: int = 0


class EarlyStopping:
    """Reports the outcomes of one run, and has ``interrupt`` stop it if the pruner decides so."""

    def __init__(self, reporting: Reporting, interrupt: Interrupt):
        self._reporting, self._interrupt = reporting, interrupt
        self._journal: Journal | None = None
        #: the outcome of each episode so far
        self._values: list[float] = []
        self._next = reporting.first

    def resumed(self, store: Store, instance: str) -> None:
        """Load the recorded episodes of a resumed run. A new run has none."""
        outcome = self._reporting.outcome
        kind, _, name = outcome.of.partition(".")
        phase = self._reporting.phase
        if name:
            names = store.reward_names_across([instance], phase)
            name = next((reward for reward in names if _is_reward(reward, name)), name)
        frame = store.outcomes_across([instance], kind, name, phase, evaluation=outcome.evaluation)
        if outcome.agent is not None:
            frame = frame[frame["agent"] == outcome.agent]
        else:
            frame = frame.drop_duplicates(["episode", "worker"])
        self._values = [float(value) for value in frame[outcome.step]]
        self._next += len(set(frame["episode"]))

    def reports(self, phase: PhaseSpec, reports: Sequence[EpisodeReport]) -> None:
        """Report the outcome of the run after these episodes."""
        outcome = self._reporting.outcome
        if phase.index != self._reporting.phase or reports[0].evaluation != outcome.evaluation:
            return
        self._values += [_value(report, outcome) for report in reports]
        so_far = fold(np.array(self._values), outcome.episode)
        value = float(np.mean([*self._reporting.earlier, so_far]))
        step = self._next
        self._next += 1
        if math.isfinite(value):
            self._report(step, value)

    def _report(self, step: int, value: float) -> None:
        reporting = self._reporting
        if self._journal is None:
            self._journal = open_journal(reporting.folder, reporting.study, (reporting.direction,))
        journal, number = self._journal, reporting.trial
        trial = journal.trial(number)
        stopped = trial.user_attrs.get(STOPPED)
        if stopped is not None and reporting.first <= stopped["report"] <= step:
            # an earlier attempt was killed after this decision, before it ended
            self._stop(stopped["report"], stopped["value"])
            return
        if step in trial.intermediate_values:
            # an earlier attempt reported this step, and continued
            return
        id_ = journal.trial_id(number)
        journal.storage.set_trial_intermediate_value(id_, step, value)
        if asks_to_stop(journal, number, reporting.prune):
            journal.storage.set_trial_user_attr(id_, STOPPED, {"report": step, "value": value})
            self._stop(step, value)

    def _stop(self, step: int, value: float) -> None:
        reporting = self._reporting
        self._interrupt.prune(
            f"{reporting.prune} stops setting {reporting.trial} at its report {step + 1}: {value:.6g}"
        )


def asks_to_stop(journal: Journal, number: int, prune: Pruner) -> bool:
    """Whether the pruner stops the trial ``number`` at its last report."""
    with quiet():
        return bool(make_pruner(prune).prune(journal.study, journal.trial(number)))


def _value(report: EpisodeReport, outcome: OutcomeSpec) -> float:
    """Return the outcome of one episode; NaN if no agent has it, or if several have an objective."""
    source, _, name = outcome.of.partition(".")
    agents = [outcome.agent] if outcome.agent is not None else list(report.outcomes)
    aggregates = [_aggregate(report.outcomes.get(agent, {}), source, name) for agent in agents]
    values = [float(aggregate[outcome.step]) for aggregate in aggregates if aggregate is not None]
    values = [value for value in values if not math.isnan(value)]
    return values[0] if len(values) == 1 or (values and source == "reward") else math.nan


def _aggregate(of_agent: Mapping[str, Any], source: str, name: str) -> Mapping[str, Any] | None:
    """Return the aggregates of an agent's objective or reward in an episode, or None if it has none."""
    if source == "objective":
        return of_agent.get("objective")
    rewards = of_agent.get("rewards", {})
    return next((rewards[reward] for reward in rewards if _is_reward(reward, name)), None)


def _is_reward(whole: str, name: str) -> bool:
    """Whether ``name`` means the reward ``whole``, with or without the prefix of its environment's uid."""
    return whole == name or whole.endswith(f".{name}")

"""What a run of a search reports while it goes on, and whether it is worth going on.

After every episode (or evaluation, where the outcome is of evaluations) it reports what its outcome would be if it
ended now, as the mean with those of the setting's runs that have ended before. The pruner compares that with what
other settings had reported at the same place. All of it is in the journal, decisions included: a run that is executed
once more, after it was killed, does not ask again about what it has reported already.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from palaestrai_mosaik.design.folds import fold
from palaestrai_mosaik.design.model import OutcomeSpec, Pruner
from palaestrai_mosaik.design.search_journal import STOPPED
from palaestrai_mosaik.experiment import PhaseSpec
from palaestrai_mosaik.runner import Interrupt
from palaestrai_mosaik.runner.worker import EpisodeReport
from palaestrai_mosaik.store import Store

from .journal import Journal, make_pruner, open_journal, quiet


@dataclass(frozen=True, slots=True)
class Reporting:
    """What a run of a search reports, and where; plain data.

    ``folder``, ``study`` and ``direction`` name the journal, ``trial`` the setting in it. ``outcome`` is what is sought
    in the phase with the index ``phase``. ``earlier`` are the outcomes of the setting's runs that have ended before,
    and ``first`` is the number of the first report of this one.
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
    """Reports for one run, and asks ``interrupt`` to prune it."""

    def __init__(self, reporting: Reporting, interrupt: Interrupt):
        self._reporting, self._interrupt = reporting, interrupt
        self._journal: Journal | None = None
        #: the outcome of each episode so far
        self._values: list[float] = []
        self._next = reporting.first

    def resumed(self, store: Store, instance: str) -> None:
        """Take in what a run that is resumed had recorded before; of a new one that is nothing."""
        outcome = self._reporting.outcome
        kind, _, name = outcome.of.partition(".")
        phase = self._reporting.phase
        if name:
            names = store.reward_names_across([instance], phase)
            name = next((one for one in names if _is_reward(one, name)), name)
        frame = store.outcomes_across([instance], kind, name, phase, evaluation=outcome.evaluation)
        if outcome.agent is not None:
            frame = frame[frame["agent"] == outcome.agent]
        else:
            frame = frame.drop_duplicates(["episode", "worker"])
        self._values = [float(value) for value in frame[outcome.step]]
        self._next += len(set(frame["episode"]))

    def reports(self, phase: PhaseSpec, reports: Sequence[EpisodeReport]) -> None:
        """Report what the run has, now that these episodes are over."""
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
        given = self._reporting
        if self._journal is None:
            self._journal = open_journal(given.folder, given.study, (given.direction,))
        journal, number = self._journal, given.trial
        trial = journal.trial(number)
        stopped = trial.user_attrs.get(STOPPED)
        if stopped is not None and given.first <= stopped["report"] <= step:
            # an earlier attempt was killed between this decision and its end
            self._stop(stopped["report"], stopped["value"])
            return
        if step in trial.intermediate_values:
            # an earlier attempt has, and went on
            return
        id_ = journal.trial_id(number)
        journal.storage.set_trial_intermediate_value(id_, step, value)
        if asks_to_stop(journal, number, given.prune):
            journal.storage.set_trial_user_attr(id_, STOPPED, {"report": step, "value": value})
            self._stop(step, value)

    def _stop(self, step: int, value: float) -> None:
        given = self._reporting
        self._interrupt.prune(
            f"{given.prune} stops setting {given.trial} at its report {step + 1}: {value:.6g}"
        )


def asks_to_stop(journal: Journal, number: int, prune: Pruner) -> bool:
    """Whether the pruner stops the trial ``number``, by the last that it has reported."""
    with quiet():
        return bool(make_pruner(prune).prune(journal.study, journal.trial(number)))


def _value(report: EpisodeReport, outcome: OutcomeSpec) -> float:
    """Return the outcome of one episode; NaN where no agent, or several, have it."""
    source, _, name = outcome.of.partition(".")
    agents = [outcome.agent] if outcome.agent is not None else list(report.outcomes)
    found = []
    for agent in agents:
        of_agent = report.outcomes.get(agent, {})
        if source == "objective":
            aggregate = of_agent.get("objective")
        else:
            rewards = of_agent.get("rewards", {})
            key = next((one for one in rewards if _is_reward(one, name)), None)
            aggregate = None if key is None else rewards[key]
        value = math.nan if aggregate is None else float(aggregate[outcome.step])
        if not math.isnan(value):
            found.append(value)
    if source == "reward":
        return found[0] if found else math.nan
    return found[0] if len(found) == 1 else math.nan


def _is_reward(whole: str, name: str) -> bool:
    """Whether ``name`` means the reward ``whole``: the environment's uid before it may be left out."""
    return whole == name or whole.endswith(f".{name}")

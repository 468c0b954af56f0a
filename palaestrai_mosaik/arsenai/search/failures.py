"""The view of a sampler on failed settings (``search.failures``).

With ``worst``, a failed setting appears to be slightly worse than the worst finished one, so the sampler leaves the
region of failures. The journal keeps the actual failure. The view is computed from it before each proposal, so a
resumed search proposes the settings that it would have proposed without the interruption.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Container, Sequence
from typing import Any

from palaestrai_mosaik.arsenai.design.model import SearchSpec
from palaestrai_mosaik.arsenai.execution.journal import Journal, optuna

from .retries import marked_settings
from .settings import first_of

#: distance of a failure to the worst finished setting, as a share of the range of finished ones
_MARGIN = 0.1


def shown_to_sampler(search: SearchSpec, journal: Journal) -> Any:
    """Return Optuna's storage as the sampler should see it."""
    if search.failures == "exclude":
        return journal.storage
    # NSGA-II remembers the parents of a generation, so failures must not vanish from it.
    marked = () if search.sampler == "nsgaii" else marked_settings(journal)
    return _Shown(journal, marked)


class _Shown:
    """The storage of ``journal``, with failed settings as complete ones."""

    def __init__(self, journal: Journal, marked: Collection[int]):
        self._storage, self._study, self._marked = journal.storage, journal.study, marked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[Any] | None = None
    ) -> list[Any]:
        """Return the trials, as Optuna's storages do."""
        trials = self._storage.get_all_trials(study_id, deepcopy=False)
        values = _worse_than_all(trials, [direction.name for direction in self._study.directions])
        visible = trials if values is None else _completed(trials, _failed(trials, self._marked), values)
        kept = visible if states is None else [trial for trial in visible if trial.state in states]
        return copy.deepcopy(kept) if deepcopy else kept


def _failed(trials: Sequence[Any], marked: Collection[int]) -> set[int]:
    """Return the failed settings and those that repeat one, except settings marked for another execution."""
    failed = {trial.number for trial in trials if trial.state.name == "FAIL"}
    return {number for number in failed if first_of(trials[number]) in failed and number not in marked}


def _worse_than_all(trials: Sequence[Any], directions: Sequence[str]) -> list[float] | None:
    """Return, for each objective, a value worse than all finished ones, or None if no setting has finished."""
    complete = [trial.values for trial in trials if trial.state.name == "COMPLETE"]
    if not complete:
        return None
    worst = []
    for column, direction in zip(zip(*complete, strict=True), directions, strict=True):
        low, high = min(column), max(column)
        margin = _MARGIN * ((high - low) or abs(high) or 1.0)
        worst.append(high + margin if direction == "MINIMIZE" else low - margin)
    return worst


def _completed(trials: Sequence[Any], failed: Collection[int], values: Sequence[float]) -> list[Any]:
    """Return the trials, with copies of failed ones that are complete and have these values."""
    copies = list(trials)
    for number in failed:
        copies[number] = copy.copy(trials[number])
        copies[number].state = optuna().trial.TrialState.COMPLETE
        copies[number].values = list(values)
    return copies

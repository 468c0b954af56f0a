"""Which settings of a search are better than others."""

from __future__ import annotations

from collections.abc import Sequence

from palaestrai_mosaik.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.design.search import sought
from palaestrai_mosaik.design.settings_table import SettingRecord

#: settings that are shown, and confirmed at most
BEST, FRONT = 3, 5


def direction(outcome: OutcomeSpec) -> str:
    """Return what Optuna calls the direction of an outcome."""
    return "minimize" if outcome.better == "lower" else "maximize"


def is_better(one: float, other: float, outcome: OutcomeSpec) -> bool:
    """Whether the outcome ``one`` is better than ``other``."""
    return one < other if outcome.better == "lower" else one > other


def ranked(spec: DesignSpec, records: Sequence[SettingRecord]) -> list[SettingRecord]:
    """Return the best settings, the best first: of one objective :data:`BEST`, of several the whole Pareto front.

    A setting that was proposed twice counts once.
    """
    outcomes = sought(spec)
    signs = [1.0 if one.better == "lower" else -1.0 for one in outcomes]
    complete = [one for one in records if one.state == "complete" and one.first is None]
    costs = {
        one.number: [sign * value for sign, value in zip(signs, one.values, strict=True)] for one in complete
    }
    ordered = sorted(complete, key=lambda one: (costs[one.number], one.number))
    if len(outcomes) == 1:
        return ordered[:BEST]
    return [
        one
        for one in ordered
        if not any(
            _dominates(costs[other.number], costs[one.number]) for other in ordered if other is not one
        )
    ]


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and list(one) != list(other)

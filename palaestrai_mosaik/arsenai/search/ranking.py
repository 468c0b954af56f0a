"""The ranking of a search's settings."""

from __future__ import annotations

from collections.abc import Sequence

from palaestrai_mosaik.arsenai.design.model import DesignSpec, OutcomeSpec
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings_table import SettingRecord

#: the number of best settings to show, and the limit on confirmed ones
BEST, FRONT = 3, 5


def direction(outcome: OutcomeSpec) -> str:
    """Return Optuna's name of an outcome's better direction."""
    return "minimize" if outcome.better == "lower" else "maximize"


def is_better(value: float, other: float, outcome: OutcomeSpec) -> bool:
    """Whether ``value`` is better than ``other``."""
    return value < other if outcome.better == "lower" else value > other


def ranked(spec: DesignSpec, records: Sequence[SettingRecord]) -> list[SettingRecord]:
    """Return the best settings, the best first: :data:`BEST` for one objective, the Pareto front for several.

    Settings that repeat earlier ones do not count.
    """
    outcomes = sought(spec)
    signs = [1.0 if item.better == "lower" else -1.0 for item in outcomes]
    complete = [item for item in records if item.state == "complete" and item.first is None]
    costs = {
        item.number: [sign * value for sign, value in zip(signs, item.values, strict=True)]
        for item in complete
    }
    ordered = sorted(complete, key=lambda item: (costs[item.number], item.number))
    if len(outcomes) == 1:
        return ordered[:BEST]
    return [
        item
        for item in ordered
        if not any(
            _dominates(costs[other.number], costs[item.number]) for other in ordered if other is not item
        )
    ]


def best_pruned(spec: DesignSpec, records: Sequence[SettingRecord]) -> list[SettingRecord]:
    """Return the pruned settings to confirm, in the order of their last reports."""
    assert spec.search is not None
    sign = 1.0 if sought(spec)[0].better == "lower" else -1.0
    pruned = [
        record for record in records if record.state == "pruned" and record.values and record.first is None
    ]
    return sorted(pruned, key=lambda record: (sign * record.values[0], record.number))[
        : spec.search.confirm_pruned
    ]


def _dominates(costs: Sequence[float], others: Sequence[float]) -> bool:
    return all(a <= b for a, b in zip(costs, others, strict=True)) and list(costs) != list(others)

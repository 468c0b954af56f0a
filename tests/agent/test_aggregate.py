"""The objective that aggregates named rewards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from palaestrai_mosaik.agent import Memory
from palaestrai_mosaik.agent.library.aggregate import AggregateRewardsObjective
from palaestrai_mosaik.core.errors import ContractError

NAMES = ["grid.defender", "grid.cost", "market.price", "market.cost"]


def value(objective: AggregateRewardsObjective, *rewards: float, names: list[str] = NAMES) -> float:
    """Return the objective of the second of two rows; the first one is zero."""
    objective.setup(names)
    memory = Memory()
    for row in ([0.0] * len(rewards), rewards):
        memory.append(np.zeros(1), np.zeros(1), np.array(row, dtype=float))
    return objective.internal_reward(memory)


@pytest.mark.parametrize(
    ("rewards", "wanted"),
    [
        ("defender", 1.0),
        ("grid.defender", 1.0),
        ("price", 4.0),
        ("grid.cost", 2.0),
        ("market.cost", 8.0),
        (["defender", "price"], 5.0),
        (["market.cost", "grid.cost"], 10.0),
        (("price", "price"), 8.0),
    ],
)
def test_rewards_are_named_with_and_without_environment(rewards: Any, wanted: float) -> None:
    assert value(AggregateRewardsObjective(rewards), 1.0, 2.0, 4.0, 8.0) == wanted


@pytest.mark.parametrize(
    ("aggregation", "wanted"), [("sum", 1.5), ("mean", 0.5), ("min", -3.0), ("max", 4.0)]
)
@pytest.mark.parametrize("factor", [1.0, -2.0, 0.5])
def test_aggregations_by_hand(aggregation: str, wanted: float, factor: float) -> None:
    objective = AggregateRewardsObjective(["defender", "grid.cost", "price"], aggregation, factor)
    assert value(objective, 0.5, -3.0, 4.0, 100.0) == factor * wanted


def test_the_value_is_a_float_and_the_default_a_sum() -> None:
    found = value(AggregateRewardsObjective(["defender", "price"]), 1, 2, 3, 4)
    assert type(found) is float
    assert found == 4.0


@pytest.mark.parametrize(
    ("rewards", "text"),
    [
        ("defnder", r"reward 'defnder' names 0 .*: grid.defender, .* \(did you mean 'grid.defender'\?\)"),
        ("cost", r"reward 'cost' names 2 of the rewards"),
        (["defender", "profit"], r"reward 'profit' names 0"),
        ("fender", r"reward 'fender' names 0"),
        ("grid", r"reward 'grid' names 0"),
    ],
)
def test_unknown_and_ambiguous_names(rewards: Any, text: str) -> None:
    with pytest.raises(ContractError, match=text):
        AggregateRewardsObjective(rewards).setup(NAMES)


def test_an_agent_without_rewards() -> None:
    with pytest.raises(ContractError, match=r"names 0 of the rewards that the agent receives: none"):
        AggregateRewardsObjective("r").setup([])


def test_an_unknown_aggregation() -> None:
    with pytest.raises(
        ContractError, match=r"'meen' is not one of sum, mean, min, max \(did you mean 'mean'"
    ):
        AggregateRewardsObjective("r", aggregation="meen")
    with pytest.raises(ContractError, match="'median' is not one of sum, mean, min, max"):
        AggregateRewardsObjective("r", aggregation="median")


def test_setup_again_looks_up_again() -> None:
    objective = AggregateRewardsObjective("cost")
    assert value(objective, 1.0, 2.0, names=["e.x", "e.cost"]) == 2.0
    assert value(objective, 1.0, 2.0, names=["e.cost", "e.x"]) == 1.0

"""Boolean reasoning and tabular decision processes: known answers, and mistakes in their parameters."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from support.batches import begun

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.reasoning import BooleanReasoning
from palaestrai_mosaik.environment.tabular import SlipperyGrid, TabularMDP

# --- boolean reasoning ---------------------------------------------------------------------


def test_an_episode_of_questions_by_hand() -> None:
    stepper = begun(BooleanReasoning(batch=2, probability=1.0, cost=0.25, max_steps=5))
    for actions, seen, rewards, ends in (
        ([1, 5], [[-1, 1, -1, -1], [-1, -1, -1, -1]], [-0.25, 1.0], [False, True]),
        ([3, 5], [[-1, 1, -1, 1], [-1, -1, -1, -1]], [-0.25, 0.0], [False, True]),
        ([1, 5], [[-1, 1, -1, 1], [-1, -1, -1, -1]], [-0.25, 0.0], [False, True]),
        ([4, 5], [[-1, 1, -1, 1], [-1, -1, -1, -1]], [-1.0, 0.0], [True, True]),
    ):
        state = stepper.step(np.array(actions, dtype=float)[:, None])
        assert state.readings.tolist() == seen
        assert state.rewards[:, 0].tolist() == rewards
        assert state.terminated.tolist() == ends
    slow = begun(BooleanReasoning(max_steps=2))
    ends = [bool(slow.step(np.zeros((1, 1))).truncated[0]) for _ in range(2)]
    assert ends == [False, True]


def test_attributes_follow_from_the_rules() -> None:
    rules = [{"not": [0]}, {"xor": [0, 1]}, {"or": [2, 3]}, {"and": [0, 1, 4]}]
    task = BooleanReasoning(free=2, rules=rules)
    free = np.array([[False, False], [False, True], [True, False], [True, True]])
    assert task.attributes(free).astype(int).tolist() == [
        [0, 0, 1, 0, 1, 0],
        [0, 1, 1, 1, 1, 0],
        [1, 0, 0, 1, 1, 0],
        [1, 1, 0, 0, 0, 0],
    ]


class Fixed:
    """A generator that always draws the same numbers."""

    def __init__(self, drawn: float | np.ndarray):
        self.drawn = drawn

    def random(self, count: int | None = None) -> Any:
        assert np.shape(self.drawn) == (() if count is None else (count,))
        return self.drawn


def best(worlds: np.ndarray, cost: Fraction) -> tuple[Fraction, Callable[[tuple[int, ...]], int]]:
    """Return the best mean return over equally likely ``worlds``, and the action for what is seen."""
    askable = worlds.shape[1] - 1

    @cache
    def solve(seen: tuple[int, ...]) -> tuple[Fraction, int]:
        known = [i for i in range(askable) if seen[i] >= 0]
        possible = worlds[(worlds[:, known] == [seen[i] for i in known]).all(axis=1)]
        true = Fraction(int(possible[:, -1].sum()), len(possible))
        choices = [(1 - 2 * true, askable), (2 * true - 1, askable + 1)]
        for i in set(range(askable)) - set(known):
            value = -cost
            for answer in (0, 1):
                share = Fraction(int((possible[:, i] == answer).sum()), len(possible))
                if share:
                    value += share * solve((*seen[:i], answer, *seen[i + 1 :]))[0]
            choices.append((value, i))
        return max(choices)

    return solve((-1,) * askable)[0], lambda seen: solve(seen)[1]


@pytest.mark.parametrize(
    ("params", "value"),
    [
        # ask for 0; where it is true (a half), ask for 3: 1 - 0.1 - 0.1 / 2
        ({}, Fraction(85, 100)),
        # too dear to ask: false is right in 5 of 8 worlds
        ({"cost": 0.75}, Fraction(1, 4)),
        # an attribute that says it all, beside some that say nothing
        ({"free": 4, "rules": [{"xor": [0, 1]}, {"not": [4]}]}, Fraction(9, 10)),
    ],
)
def test_the_best_policy_has_the_return_that_enumeration_gives(params: Any, value: Fraction) -> None:
    free = params.get("free", 3)
    bits = np.array(list(itertools.product([False, True], repeat=free)))
    task = BooleanReasoning(batch=len(bits), **params)
    worlds = task.attributes(bits).astype(int)
    expected, policy = best(worlds, Fraction(task.cost).limit_denominator(100))
    assert expected == value
    # all worlds at once: 0.25 is below the probability (true), 0.75 is not
    stepper = begun(task)
    task.rngs = [Fixed(np.where(row, 0.25, 0.75)) for row in bits]  # type: ignore[misc]
    readings, returns = stepper.reset().readings, np.zeros(len(bits))
    over = np.zeros(len(bits), dtype=bool)
    while not over.all():
        actions = [policy(tuple(row)) for row in readings.astype(int).tolist()]
        state = stepper.step(np.array(actions, dtype=float)[:, None])
        readings, over = state.readings, state.terminated
        returns += state.rewards[:, 0]
    assert returns.mean() == pytest.approx(float(value), abs=1e-12)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"rules": [{"nad": [0, 1]}]},
            r"rules\[0\]: 'nad' is none of and, or, xor, not \(did you mean 'and'",
        ),
        (
            {"rules": [{"or": [0, 3]}]},
            r"rules\[0\]: or must be of attributes that come before it, 0 to 2, not \[0, 3\]",
        ),
        ({"rules": [{"or": [0, 1]}, {"not": [0, 3]}]}, r"rules\[1\]: not is of one attribute, not of 2"),
        ({"rules": [["or", 0, 1]]}, r"rules\[0\] must be a mapping with one key"),
        ({"rules": []}, "rules must have at least one entry"),
        ({"free": 0}, "free must be a whole number of at least 1, not 0"),
        ({"probability": 1.5}, "probability must lie within 0 and 1, not 1.5"),
    ],
)
def test_mistakes_in_a_reasoning_task(params: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        BooleanReasoning(**params)


# --- tables --------------------------------------------------------------------------------

#: from 0, action 0 stays or goes to 1 (an even chance), action 1 ends in 2; from 1 all go to 0
CHAIN = {
    "transitions": [
        [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]],
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
        [[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
    ],
    "rewards": [[[1, 2, 0], [0, 0, 10]], [[-3, 0, 0], [-4, 0, 0]], [[0, 0, 0], [0, 0, 0]]],
    "start": [0.25, 0.75, 0.0],
    "terminal": [2],
}


def test_a_chain_by_hand() -> None:
    task = TabularMDP(**CHAIN, batch=3)
    stepper = begun(task)

    def fix(*drawn: float) -> None:
        task.rngs = [Fixed(one) for one in drawn]  # type: ignore[misc]

    fix(0.2, 0.25, 0.999)
    assert stepper.reset().readings[:, 0].tolist() == [0, 1, 1]
    fix(0.5, 0.0, 0.7)
    state = stepper.step(np.array([[0.0], [0.0], [1.0]]))
    assert state.readings[:, 0].tolist() == [1, 0, 0]
    assert state.rewards[:, 0].tolist() == [2, -3, -4]
    state = stepper.step(np.array([[0.0], [1.0], [0.0]]))
    assert state.readings[:, 0].tolist() == [0, 2, 1]
    assert state.rewards[:, 0].tolist() == [-3, 10, 2]
    assert state.terminated.tolist() == [False, True, False]


def test_the_last_outcome_takes_what_rounding_leaves() -> None:
    # ten tenths add up to less than 1
    start = [0.1] * 10
    task = TabularMDP(np.full((10, 1, 10), 0.1), np.zeros((10, 1, 10)), start)
    stepper = begun(task)
    task.rngs = [Fixed(np.nextafter(1.0, 0.0))]  # type: ignore[misc]
    assert stepper.reset().readings.tolist() == [[9]]
    assert stepper.step(np.zeros((1, 1))).readings.tolist() == [[9]]


def expected_return(task: TabularMDP, policy: np.ndarray) -> float:
    """Solve v = r + P v for ``policy`` (states, actions), the probability of each action."""
    moves = np.einsum("sa,san->sn", policy, task.transitions)
    gains = np.einsum("sa,san,san->s", policy, task.transitions, task.rewards)
    live = np.flatnonzero(~task.terminal)
    values = np.zeros(len(task.start))
    values[live] = np.linalg.solve(np.eye(len(live)) - moves[np.ix_(live, live)], gains[live])
    return float(task.start @ values)


def test_the_value_of_the_chain_by_hand() -> None:
    # v0 = (1 + v0) / 4 + (2 + v1) / 4 + 10 / 2, v1 = v0 - 3.5: v0 = 9.75
    assert expected_return(TabularMDP(**CHAIN), np.full((3, 2), 0.5)) == pytest.approx(9.75 - 0.75 * 3.5)


@pytest.mark.parametrize(
    "make", [lambda **k: TabularMDP(**CHAIN, **k), lambda **k: SlipperyGrid(slip=0.3, max_steps=None, **k)]
)
def test_returns_of_a_random_policy_are_those_of_the_linear_equations(make: Any) -> None:
    batch = 4000
    task = make(batch=batch)
    states, actions = task.transitions.shape[:2]
    rng = np.random.default_rng(4)
    policy = rng.dirichlet(np.ones(actions), size=states)
    stepper = begun(task)
    readings, returns = stepper.reset().readings, np.zeros(batch)
    over = np.zeros(batch, dtype=bool)
    while not over.all():
        ladder = policy[readings[:, 0].astype(int)].cumsum(axis=1)
        chosen = (rng.random((batch, 1)) >= ladder[:, :-1]).sum(axis=1)
        state = stepper.step(chosen[:, None].astype(float))
        readings, over = state.readings, state.terminated
        returns += state.rewards[:, 0]
    error = returns.std() / np.sqrt(batch)
    assert error > 0
    assert abs(returns.mean() - expected_return(task, policy)) < 4 * error


def test_the_grid_is_that_of_gymnasium() -> None:
    gymnasium = pytest.importorskip("gymnasium", reason="the extra 'rl' (gymnasium) is not installed")
    for name, kwargs in (("4x4", {}), ("4x4", {"slip": 0.0})):
        theirs = gymnasium.make("FrozenLake-v1", map_name=name, is_slippery=not kwargs).unwrapped
        ours = SlipperyGrid(**kwargs)
        table = np.zeros_like(ours.transitions)
        for state, actions in theirs.P.items():
            for action, outcomes in actions.items():
                for chance, then, reward, terminated in outcomes:
                    table[state, action, then] += chance
                    assert terminated == ours.terminal[then]
                    if not ours.terminal[state]:
                        assert reward == ours.rewards[state, action, then]
        assert np.allclose(table, ours.transitions, rtol=0, atol=1e-12)
        assert (ours.start == theirs.initial_state_distrib).all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (
            {"transitions": [[[1.0, 0.0]]]},
            r"transitions must have the shape \(states, actions, states\), found \(1, 1, 2\)",
        ),
        (
            {"transitions": [[[0.5, 0.4]], [[0.0, 1.0]]], "rewards": np.zeros((2, 1, 2)), "start": [1, 0]},
            "add up to 1",
        ),
        ({"rewards": [[1.0]]}, r"rewards must have the shape \(3, 2, 3\), found \(1, 1\)"),
        ({"start": [1.5, -0.5, 0.0]}, "start: each row must be probabilities"),
        ({"start": [0.5, 0.0, 0.5]}, "start: an episode cannot begin in a terminal state"),
        ({"terminal": [3]}, "terminal: there are states 0 to 2, not 3"),
        ({"rewards": [[1.0], [1.0, 2.0]]}, "rewards must be a regular table of numbers"),
        ({"start": [np.nan, 0.0, 1.0]}, "start must hold finite numbers"),
    ],
)
def test_mistakes_in_tables(params: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        TabularMDP(**{**CHAIN, **params})


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"map": ["SF", "G"]}, "map must be rows of the same length"),
        ({"map": "SFG"}, "map must be rows"),
        ({"map": ["SX"]}, "map: 'X' is none of S "),
        ({"map": ["FG"]}, "map has no start, S"),
        ({"slip": -0.1}, "slip must lie within 0 and 1"),
    ],
)
def test_mistakes_in_a_grid(params: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        SlipperyGrid(**params)

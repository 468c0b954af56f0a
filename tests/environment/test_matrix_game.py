"""Zero-sum games: a game by hand, the contract, and the value of a game found by self-play."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from support.batches import begun
from support.documents import document, environment, named, phase

from palaestrai_mosaik.agent import Muscle
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.environment.matrix_game import MatrixGame
from palaestrai_mosaik.runner import execute
from palaestrai_mosaik.store import Store
from palaestrai_mosaik.testing import check_batch_environment

GAME = "palaestrai_mosaik.environment.matrix_game:MatrixGame"
AGGREGATE = "palaestrai_mosaik.agent.library.aggregate:AggregateRewardsObjective"
#: by hand: left mixes 2/5 and 3/5, right too, and the value is 1/5
SKEWED = [[2, -1], [-1, 1]]


def test_two_rounds_by_hand() -> None:
    stepper = begun(MatrixGame(payoff=[[1, 2, 3], [4, 5, 6]], batch=2, max_steps=2))
    # nobody has chosen: left has seen none of 3 choices, right none of 2
    assert stepper.reset().readings.tolist() == [[3, 2], [3, 2]]
    state = stepper.step(np.array([[0.0, 2.0], [1.0, 0.0]]))
    assert state.readings.tolist() == [[2, 0], [0, 1]]
    assert state.rewards.tolist() == [[3], [4]]
    assert not state.truncated.any()
    state = stepper.step(np.array([[1.0, 1.0], [1.0, 2.0]]))
    assert state.rewards.tolist() == [[5], [6]]
    assert state.truncated.all() and not state.terminated.any()
    anew = stepper.step(np.zeros((2, 2)), resets=True)
    assert anew.readings.tolist() == [[3, 2], [3, 2]]


@pytest.mark.parametrize("payoff", [SKEWED, [[0.0, -1.0, 1.0]]])
def test_it_keeps_the_contract(payoff: Any) -> None:
    check_batch_environment(partial(MatrixGame, payoff, max_steps=4))


@pytest.mark.parametrize("payoff", [[1, 2], [], [[1], [2, 3]], [["a"]], [[float("nan")]], None])
def test_what_is_no_table_is_refused(payoff: Any) -> None:
    with pytest.raises(ContractError, match=r"^payoff must be"):
        MatrixGame(payoff)


class Fictitious(Muscle):
    """Plays the best answer to what the other one has chosen so far (Brown 1951)."""

    def __init__(self, gains: Any):
        #: (own choices, choices of the other one)
        self.gains = np.array(gains, dtype=float)
        self.counts = np.zeros(self.gains.shape[1])

    def propose_actions(self, sensors: Any, actuators_available: Any) -> Any:
        seen = int(sensors[0].value)
        if seen < len(self.counts):
            self.counts[seen] += 1
        actuators_available.vector = np.array([float(np.argmax(self.gains @ self.counts))])
        return actuators_available, None


def test_self_play_finds_the_value_of_the_game(tmp_path: Any) -> None:
    """Fictitious play converges to the value in every zero-sum game (Robinson 1951)."""
    rounds = 1500
    bodies = [
        {"name": name, "sensors": [f"game.0.{name}.*"], "actuators": [f"game.0.{name}.*"],
         "objective": named(AGGREGATE, rewards="payoff", factor=factor),
         "muscle": named(f"{__name__}:Fictitious", gains=gains.tolist())}
        for name, factor, gains in (("left", 1, np.array(SKEWED)), ("right", -1, -np.array(SKEWED).T))
    ]  # fmt: skip
    game = environment("game", GAME, payoff=SKEWED, max_steps=rounds)
    with Store(tmp_path, create=True) as store:
        result = execute(document(phase([game], [{"name": "a", "bodies": bodies}], mode="test")), store=store)
        rows = store.steps(result.instance, agent="a")
    left, right = (rows[rows["body"] == body] for body in (0, 1))
    # what one of them wins, the other loses
    assert (left["objective"].to_numpy() == -right["objective"].to_numpy()).all()
    assert left["objective"].mean() == pytest.approx(1 / 5, abs=0.02)
    for one, name in ((left, "left"), (right, "right")):
        chosen = one[f"setpoint.game.0.{name}.action"]
        assert 1 - chosen.mean() == pytest.approx(2 / 5, abs=0.03)

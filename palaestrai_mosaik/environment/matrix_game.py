"""Repeated zero-sum games of two players, defined by a payoff matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import Discrete, Space
from palaestrai_mosaik.types.arrays import FloatVector, IndexVector

from .batch import Arrays, BatchEnvironment

#: rock, paper, scissors
_PAYOFF: Sequence[Sequence[float]] = ((0, -1, 1), (1, 0, -1), (-1, 1, 0))


class MatrixGame(BatchEnvironment):
    """Two players choose at the same time, round by round; one player's gain is the other's loss.

    The seats are called ``left`` and ``right``: actuator ``left.action`` takes 0 to m - 1, ``right.action`` 0
    to n - 1; sensor ``left.opponent`` reads the last choice of ``right``, 0 to n - 1, or n before the first
    round, ``right.opponent`` likewise. The reward ``payoff`` is the gain of ``left``; an objective with the
    factor -1 makes it that of ``right``.

    Made for self-play: two bodies of one agent, or one agent against another. Their progress is measurable,
    as every such game has a value v: there is a mixed strategy with which ``left`` gains at least v on
    average against any strategy of ``right``, and one with which ``right`` pays no more.

    Source: von Neumann 1928, "Zur Theorie der Gesellschaftsspiele".

    Args:
        payoff: (m, n): the payment of ``right`` to ``left`` for the choices i and j. The default is rock, paper,
            scissors: v is 0, with 1/3 for each choice.
        batch: number of incarnations.
        first: the seed number of the first incarnation.
        max_steps: rounds of a game; ``None``: it does not end.
    """

    rewards_accumulate = True
    # each player's last choice, or the number of its choices before the first round
    state_shapes = ((), ())
    state_dtypes = (np.int32, np.int32)
    observation_shapes = ((), ())
    observation_dtypes = (np.int32, np.int32)
    observation_names = ("left.opponent", "right.opponent")
    action_shapes = ((), ())
    action_names = ("left.action", "right.action")
    reward_names = ("payoff",)

    def __init__(
        self, payoff: npt.ArrayLike = _PAYOFF, batch: int = 1, first: int = 0, max_steps: int | None = 10
    ):
        super().__init__(batch=batch, first=first, max_steps=max_steps)
        try:
            self.payoff = np.asarray(payoff, dtype=np.float64)
        except (TypeError, ValueError):
            raise ContractError("payoff must be a regular table of numbers") from None
        if self.payoff.ndim != 2 or not self.payoff.size or not np.isfinite(self.payoff).all():
            raise ContractError(
                f"payoff must be a table (choices of left, choices of right) of finite numbers, found {payoff!r}"
            )

    def get_observation_spaces(self) -> Sequence[Space]:
        rows, columns = self.payoff.shape
        return [Discrete(columns + 1), Discrete(rows + 1)]

    def get_action_spaces(self) -> Sequence[Space]:
        return [Discrete(choices) for choices in self.payoff.shape]

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        states = [np.full(len(incarnations), choices, dtype=np.int32) for choices in self.payoff.shape]
        return states, states[::-1]

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        return actions, actions[::-1]

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> FloatVector:
        rewards: FloatVector = self.payoff[actions[0], actions[1]]
        return rewards

"""Finite Markov decision processes defined by tables, and walks on a slippery grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.printing import listed
from palaestrai_mosaik.types import Discrete, Space
from palaestrai_mosaik.types.arrays import BoolVector, FloatVector, IndexVector

from .batch import Arrays, BatchEnvironment


class TabularMDP(BatchEnvironment):
    """A finite Markov decision process, defined by its tables.

    With S states and A actions: sensor ``observation``: the state, 0 to S - 1; actuator ``action``: 0 to A -
    1.

    Source: Puterman 1994, "Markov Decision Processes".

    Args:
        transitions: (S, A, S), the probability of each next state.
        rewards: (S, A, S), the reward of each transition.
        start: (S,), the probability of each first state.
        terminal: states that end an episode; none of them can be a first state.
        batch: number of incarnations.
        first: the seed number of the first incarnation.
        max_steps: number of steps after which an incarnation is truncated; ``None``: no limit.
    """

    rewards_accumulate = True
    state_dtypes = (np.int32,)
    observation_dtypes = (np.int32,)
    action_shapes = ((),)

    def __init__(
        self,
        transitions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        start: npt.ArrayLike,
        terminal: Sequence[int] = (),
        batch: int = 1,
        first: int = 0,
        max_steps: int | None = None,
    ):
        super().__init__(batch=batch, first=first, max_steps=max_steps)
        self.transitions = _table("transitions", transitions, None)
        count, actions = self.transitions.shape[:2]
        self.rewards = _table("rewards", rewards, (count, actions, count))
        self.start = _table("start", start, (count,))
        for name, table in (("transitions", self.transitions), ("start", self.start)):
            sums = table.sum(axis=-1)
            if (table < 0).any() or not np.allclose(sums, 1.0, rtol=0, atol=1e-9):
                raise ContractError(f"{name}: each row must be probabilities that add up to 1")
        strange = [s for s in terminal if type(s) is not int or s not in range(count)]
        if strange:
            raise ContractError(f"terminal: there are states 0 to {count - 1}, not {listed(strange, 5)}")
        self.terminal = np.zeros(count, dtype=bool)
        self.terminal[list(terminal)] = True
        if self.start[self.terminal].any():
            raise ContractError("start: an episode cannot begin in a terminal state")
        self.ends = bool(self.terminal.any()) or max_steps is not None
        self._ladders, self._first_ladder = _ladder(self.transitions), _ladder(self.start)

    def get_observation_spaces(self) -> Sequence[Space]:
        return [Discrete(len(self.start))]

    def get_action_spaces(self) -> Sequence[Space]:
        return [Discrete(self.transitions.shape[1])]

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        drawn = np.array([self.rngs[k].random() for k in incarnations.tolist()])
        states = [_drawn(self._first_ladder, drawn)]
        return states, states

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        drawn = np.array([rng.random() for rng in self.rngs])
        states = [_drawn(self._ladders[last_states[0], actions[0]], drawn)]
        return states, states

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> FloatVector:
        rewards: FloatVector = self.rewards[last_states[0], actions[0], new_states[0]]
        return rewards

    def get_ends(self, new_states: Arrays) -> tuple[BoolVector, BoolVector]:
        return self.terminal[new_states[0]], np.zeros(self.batch, dtype=bool)


class SlipperyGrid(TabularMDP):
    """Walk over a frozen lake without falling into a hole.

    Actions: left, down, right, up (0 to 3); a move off the grid stays in place. The reward is 1 for
    reaching the goal. Holes and goals terminate. State and observation count the cells row by row. With the
    default ``slip`` it is Gymnasium's ``FrozenLake-v1``.

    Args:
        map: rows of ``S`` (start), ``F`` (frozen), ``H`` (hole), ``G`` (goal).
        slip: the probability that a step goes to one of the two sides instead.
        batch: number of incarnations.
        first: the seed number of the first incarnation.
        max_steps: number of steps after which an incarnation is truncated; ``None``: no limit.
    """

    def __init__(
        self,
        map: Sequence[str] = ("SFFF", "FHFH", "FFFH", "HFFG"),
        slip: float = 2 / 3,
        batch: int = 1,
        first: int = 0,
        max_steps: int | None = 100,
    ):
        cells = _cells(map)
        if not 0.0 <= slip <= 1.0:
            raise ContractError(f"slip must lie within 0 and 1, not {slip!r}")
        rows, columns = cells.shape
        flat = cells.reshape(-1)
        over = np.isin(flat, ["H", "G"])
        transitions = np.zeros((flat.size, 4, flat.size))
        moves = ((0, -1), (1, 0), (0, 1), (-1, 0))
        for cell in range(flat.size):
            row, column = divmod(cell, columns)
            for action in range(4):
                for turn, chance in ((-1, slip / 2), (0, 1 - slip), (1, slip / 2)):
                    down, right = moves[(action + turn) % 4]
                    to_row = min(max(row + down, 0), rows - 1)
                    to_column = min(max(column + right, 0), columns - 1)
                    next_cell = cell if over[cell] else to_row * columns + to_column
                    transitions[cell, action, next_cell] += chance
        rewards = np.zeros_like(transitions)
        rewards[~over] = flat == "G"
        starts, terminal = flat == "S", np.flatnonzero(over).tolist()
        super().__init__(transitions, rewards, starts / starts.sum(), terminal, batch, first, max_steps)


def _table(name: str, values: npt.ArrayLike, shape: tuple[int, ...] | None) -> FloatVector:
    try:
        table = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise ContractError(f"{name} must be a regular table of numbers") from None
    if shape is None:
        if table.ndim != 3 or table.shape[0] != table.shape[2] or not table.size:
            raise ContractError(f"{name} must have the shape (states, actions, states), found {table.shape}")
    elif table.shape != shape:
        raise ContractError(f"{name} must have the shape {shape}, found {table.shape}")
    if not np.isfinite(table).all():
        raise ContractError(f"{name} must hold finite numbers")
    return table


def _cells(map: Sequence[str]) -> npt.NDArray[np.str_]:
    if isinstance(map, str) or not map or len({len(row) for row in map}) != 1 or not map[0]:
        raise ContractError(f"map must be rows of the same length, such as ['SF', 'HG'], not {map!r}")
    cells = np.array([list(row) for row in map])
    unknown = sorted(set(cells.reshape(-1).tolist()) - set("SFHG"))
    if unknown:
        raise ContractError(f"map: {unknown[0]!r} is none of S (start), F (frozen), H (hole), G (goal)")
    if not (cells == "S").any():
        raise ContractError("map has no start, S")
    return cells


def _ladder(table: FloatVector) -> FloatVector:
    """Return the cumulated probabilities of ``table`` (..., S)."""
    ladder: FloatVector = np.cumsum(table, axis=-1)
    # rounding may leave a sum short of 1, so the last possible outcome is set to it
    ladder[ladder >= ladder[..., -1:]] = 1.0
    return ladder


def _drawn(ladder: FloatVector, drawn: FloatVector) -> npt.NDArray[np.int32]:
    """Map uniform numbers (n,) to outcomes (n,), with a ladder (S,) or one each (n, S)."""
    outcomes: npt.NDArray[np.int32] = (drawn[:, None] >= ladder).sum(axis=-1, dtype=np.int32)
    return outcomes

"""Boolean reasoning: ask for those hidden attributes that are worth the cost.

Modelled on AgentNet's experiment of this name (mentioned in the seed "Environment"): states are
booleans, actions integers, and all tasks of a batch are stepped as arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from palaestrai_mosaik.core.checks import check_whole
from palaestrai_mosaik.core.errors import ContractError, did_you_mean
from palaestrai_mosaik.types import Box, Discrete, Space
from palaestrai_mosaik.types.arrays import BoolMatrix, BoolVector, FloatVector, IndexVector

from .batch import Arrays, BatchEnvironment

#: the operators of rules; each maps several columns (n, columns) to their result (n,)
RULES: Mapping[str, Callable[[BoolMatrix], BoolVector]] = {
    "and": lambda columns: np.logical_and.reduce(columns, axis=1),
    "or": lambda columns: np.logical_or.reduce(columns, axis=1),
    "xor": lambda columns: np.logical_xor.reduce(columns, axis=1),
    "not": lambda columns: ~columns[:, 0],
}

#: attributes 0, 1 and 2 are drawn; 3 = 1 or 2; the target is 0 and 3
_RULES: Sequence[Mapping[str, Sequence[int]]] = ({"or": (1, 2)}, {"and": (0, 3)})


class BooleanReasoning(BatchEnvironment):
    """Find out whether a hidden attribute is true, with as few questions as possible.

    The attributes are 0, 1, ...: first the free ones, drawn independently in every episode, then one for
    each rule. The last one is the target.

    Actuator ``action``, with m attributes besides the target: 0 to m - 1 ask for an attribute, m answers that
    the target is false, m + 1 that it is true. Sensor ``observation`` (m,), int8: 1 (true), 0 (false), -1
    (not asked for yet). Reward: ``-cost`` for every question, even a repeated one; 1 for the right answer, -1
    for the wrong one, and the episode terminates.

    With the default rules, a fair coin and a cost of 0.1, the best strategy asks for attribute 0 and, only if
    it is true, for 3: the mean return is 0.85. Without a question it is 0.25.

    Args:
        batch: number of incarnations.
        first: the seed number of the first incarnation.
        max_steps: number of steps after which an incarnation is truncated; ``None``: no limit.
        free: number of free attributes.
        rules: the derivation of each further attribute from earlier ones: ``{or: [1, 2]}``, with ``and``,
            ``or``, ``xor`` or ``not``.
        probability: the probability that a free attribute is true.
        cost: the cost of a question.
    """

    state_dtypes = (np.bool_, np.bool_, np.bool_)
    observation_dtypes = (np.int8,)
    action_shapes = ((),)

    def __init__(
        self,
        batch: int = 1,
        first: int = 0,
        max_steps: int | None = 20,
        free: int = 3,
        rules: Sequence[Mapping[str, Sequence[int]]] = _RULES,
        probability: float = 0.5,
        cost: float = 0.1,
    ):
        super().__init__(batch=batch, first=first, max_steps=max_steps)
        check_whole("free", free, 1)
        if not 0.0 <= probability <= 1.0:
            raise ContractError(f"probability must lie within 0 and 1, not {probability!r}")
        self.free = free
        self.probability = float(probability)
        self.cost = float(cost)
        self._rules = [_rule(i, rule, free + i) for i, rule in enumerate(rules)]
        if not self._rules:
            raise ContractError("rules must have at least one entry: the last one is the target's")
        self._askable = free + len(self._rules) - 1
        # attributes; mask of those asked for; whether the target was answered
        self.state_shapes = ((self._askable + 1,), (self._askable,), ())
        self.observation_shapes = ((self._askable,),)

    def get_observation_spaces(self) -> Sequence[Space]:
        return [Box(-1, 1, shape=(self._askable,), dtype=np.int8)]

    def get_action_spaces(self) -> Sequence[Space]:
        return [Discrete(self._askable + 2)]

    def attributes(self, free: BoolMatrix) -> BoolMatrix:
        """Derive all attributes (n, attributes) from the drawn ones (n, ``free``)."""
        columns = [free]
        for kind, operands in self._rules:
            columns.append(RULES[kind](np.concatenate(columns, axis=1)[:, operands])[:, None])
        return np.concatenate(columns, axis=1)

    def get_first_states(self, incarnations: IndexVector) -> tuple[Arrays, Arrays]:
        count = len(incarnations)
        drawn = np.array([self.rngs[k].random(self.free) for k in incarnations.tolist()])
        asked = np.zeros((count, self._askable), dtype=bool)
        states = [self.attributes(drawn < self.probability), asked, np.zeros(count, dtype=bool)]
        return states, self._observed(states)

    def get_action_results(self, last_states: Arrays, actions: Arrays) -> tuple[Arrays, Arrays]:
        attributes, asked, _ = last_states
        (asks,) = np.nonzero(actions[0] < self._askable)
        asked = asked.copy()
        asked[asks, actions[0][asks]] = True
        states = [attributes, asked, actions[0] >= self._askable]
        return states, self._observed(states)

    def get_rewards(self, last_states: Arrays, actions: Arrays, new_states: Arrays) -> FloatVector:
        says = actions[0] == self._askable + 1
        right = says == last_states[0][:, -1]
        return np.where(actions[0] < self._askable, -self.cost, np.where(right, 1.0, -1.0))

    def get_ends(self, new_states: Arrays) -> tuple[BoolVector, BoolVector]:
        return new_states[2], np.zeros(self.batch, dtype=bool)

    def _observed(self, states: Arrays) -> Arrays:
        attributes, asked, _ = states
        return [np.where(asked, attributes[:, : self._askable], -1).astype(np.int8)]


def _rule(index: int, rule: Any, defined: int) -> tuple[str, list[int]]:
    """Return operator and attributes of ``rules[index]``, which defines the attribute ``defined``."""
    where = f"rules[{index}]"
    if not isinstance(rule, Mapping) or len(rule) != 1:
        raise ContractError(f"{where} must be a mapping with one key, such as {{or: [1, 2]}}, not {rule!r}")
    ((kind, of),) = rule.items()
    if kind not in RULES:
        raise ContractError(
            f"{where}: {kind!r} is none of {', '.join(RULES)}{did_you_mean(str(kind), RULES)}"
        )
    listed = isinstance(of, Sequence) and not isinstance(of, str)
    if not (listed and of and all(_is_index(attribute, defined) for attribute in of)):
        raise ContractError(
            f"{where}: {kind} must be of attributes that come before it, 0 to {defined - 1}, not {of!r}"
        )
    if kind == "not" and len(of) != 1:
        raise ContractError(f"{where}: not is of one attribute, not of {len(of)}")
    return kind, list(of)


def _is_index(value: Any, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit

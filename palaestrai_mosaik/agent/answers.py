"""The rules for the results of muscles and objectives, shared by runs and the conformance checks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.core.text import shorten
from palaestrai_mosaik.types import ActuatorInformation


def proposal(answer: Any) -> tuple[Any, Any]:
    """Return the result of ``propose_actions``: the actuators, and the data for the brain.

    Raises:
        ContractError: it is not a pair.
    """
    if not isinstance(answer, tuple | list) or len(answer) != 2 or isinstance(answer[0], ActuatorInformation):
        raise ContractError(
            f"propose_actions must return (actuators, data), not {_shown(answer)}; write `return "
            "actuators_available, None`, or the data for the brain instead of None"
        )
    return answer[0], answer[1]


def objective_value(answer: Any) -> float:
    """Convert the result of ``internal_reward`` to a float, NaN for ``None``.

    Raises:
        ContractError: it is not a number.
    """
    if answer is None:
        return math.nan
    number = isinstance(answer, int | float | np.integer | np.floating) and not isinstance(answer, bool)
    if not number and not (
        isinstance(answer, np.ndarray) and answer.size == 1 and answer.dtype.kind in "fiu"
    ):
        raise ContractError(
            f"internal_reward must return a number or None, not {_shown(answer)}; of several values, return their sum, "
            "for example"
        )
    return float(answer.item() if isinstance(answer, np.ndarray) else answer)


def _shown(answer: Any) -> str:
    return "None (is a return missing?)" if answer is None else shorten(repr(answer), 120)

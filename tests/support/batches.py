"""Driving batched environments without a world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from palaestrai_mosaik.environment.batch import BatchEnvironment, BatchStepper

E = TypeVar("E", bound=BatchEnvironment)


def generators(numbers: Sequence[int]) -> list[np.random.Generator]:
    """Return the generators of the incarnations ``numbers``."""
    return [np.random.default_rng([7, k]) for k in numbers]


def set_up(environment: E, numbers: Sequence[int] | None = None) -> E:
    """Set an environment up, with the generators of ``numbers`` (all of its incarnations)."""
    environment.uid = "world"
    environment.rngs = generators(range(environment.batch) if numbers is None else numbers)
    environment.baseline = environment.setup()
    return environment


def begun(environment: BatchEnvironment, numbers: Sequence[int] | None = None) -> BatchStepper:
    """Return a stepper of which all incarnations have begun."""
    stepper = BatchStepper(set_up(environment, numbers))
    stepper.reset()
    return stepper

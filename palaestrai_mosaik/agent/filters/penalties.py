"""A price for changing set-points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from ..memory import Experience
from .channels import need_bounds, number


class ActionChangePenaltyFilter(Filter):
    """Takes a penalty for changed set-points off the objective that the brain learns from.

    The penalty of a row is ``weight`` times the mean over all set-points of
    ``(|change| / (high - low)) ** power``, so at most ``weight``. The set-points are those that
    the environment gets, whatever the place in the chain, and their spaces must be bounded.
    The first row of an episode has no penalty. Where an action gave no new set-point (NaN), the
    one before holds: no change. An objective of NaN (none) stays NaN.

    Only what the brain learns from changes; the objective on record does not.
    """

    def __init__(self, weight: float = 1.0, power: float = 1.0):
        self.weight = number(self, "weight", weight)
        self.power = number(self, "power", power, above=True)
        #: the set-points in force in every muscle's running episode
        self._last: dict[str, FloatVector] = {}

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        outside = self.environment_actuators
        for uid, space in zip(outside.uids, outside.spaces, strict=True):
            need_bounds(self, uid, space)
        width = outside.high - outside.low
        # where there is one possible value, nothing changes
        self._per_width = 1.0 / np.where(width > 0.0, width, 1.0)
        return sensors, actuators

    def brain_pre_process(self, experience: Experience) -> Experience:
        new, muscle = experience.setpoints, experience.muscle
        last, penalty = self._last.get(muscle) if experience.step else None, 0.0
        if last is not None and len(new):
            change = np.abs(new - last) * self._per_width
            silent = np.isnan(change)
            if silent.any():
                change = np.where(silent, 0.0, change)
                new = np.where(np.isnan(new), last, new)
            penalty = self.weight * float((change**self.power).sum()) / len(new)
        self._last[muscle] = new
        return replace(experience, objective=experience.objective - penalty) if penalty else experience

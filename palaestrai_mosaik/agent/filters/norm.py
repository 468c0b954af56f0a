"""Normalisation by the moments of all values so far.

Source: T. F. Chan, G. H. Golub, R. J. LeVeque: Updating formulae and a pairwise algorithm for
computing sample variances. Stanford University, STAN-CS-79-773, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from palaestrai_mosaik.agent.filter import Filter
from palaestrai_mosaik.core.errors import ContractError
from palaestrai_mosaik.types import Mode
from palaestrai_mosaik.types.arrays import FloatVector
from palaestrai_mosaik.types.vectors import Layout

from ..memory import Experience
from .channels import flag, number, real_box, whole_number


class Moments(NamedTuple):
    """Elementwise moments of several vectors of shape ``(size,)``; never changed in place.

    ``n`` (number of values), ``mean``, ``m2`` (the sum of squared deviations from the mean), all of that shape.
    Values that are not finite are left out, so ``n`` may differ between elements.
    """

    n: FloatVector
    mean: FloatVector
    m2: FloatVector

    @classmethod
    def none(cls, size: int) -> Moments:
        """Return the moments of an empty sample."""
        return cls(np.zeros(size), np.zeros(size), np.zeros(size))

    @classmethod
    def of(cls, vectors: Sequence[FloatVector]) -> Moments:
        """Return the moments of one or more ``vectors``."""
        if len(vectors) == 1 and np.isfinite(vectors[0]).all():
            size = len(vectors[0])
            return cls(np.ones(size), vectors[0], np.zeros(size))
        rows = np.array(vectors)
        finite = np.isfinite(rows)
        n = finite.sum(axis=0, dtype=np.float64)
        mean = np.where(finite, rows, 0.0).sum(axis=0) / np.maximum(n, 1.0)
        # left-out values equal the mean, so they add nothing
        m2 = np.square(np.where(finite, rows, mean) - mean).sum(axis=0)
        return cls(n, mean, m2)

    def merged(self, other: Moments) -> Moments:
        """Return the moments of the joint sample."""
        n = self.n + other.n
        shift = other.mean - self.mean
        step = shift * other.n / np.maximum(n, 1.0)
        return Moments(n, self.mean + step, self.m2 + other.m2 + shift * step * self.n)

    def variance(self) -> FloatVector:
        """Return the variance of each element (mean squared deviation), 1 for fewer than two values."""
        return np.where(self.n > 1.0, self.m2 / np.maximum(self.n, 1.0), 1.0)


#: largest number of readings kept before they are merged
BATCH = 256

_MOMENTS = ("n", "mean", "m2")
_RETURNS = ("return_n", "return_mean", "return_m2")


class NormFilter(Filter):
    """Normalises readings to mean 0 and deviation 1, and the objective by the deviation of the return.

    A reading ``x`` becomes ``(x - mean) / sqrt(variance + epsilon)``, limited to ``+/-clip_obs``; mean and
    variance are those of all readings that have reached the brain, with a variance of 1 for fewer than two
    readings. An objective ``r`` becomes ``r / sqrt(variance + epsilon)``, limited to
    ``+/-clip_reward``, with the variance of the discounted return ``g <- gamma * g + r`` of all muscles up to
    this row; ``g`` starts at 0 in every episode. VecNormalize of Stable-Baselines3 scales rewards in the same
    way. Rows without an objective (NaN) and readings that are not finite are left out. An infinite
    objective does not enter the statistics either; it becomes the limit.

    In test mode nothing is learned. Set-points pass unchanged.

    Args:
        normalise_objective: whether the objective is normalised, too.
        clip_obs, clip_reward: limits; ``inf`` for none.
        epsilon: added to the variances.
        gamma: discount of the return, from 0 to 1; that of the learner.
        norm_objective_after: number of first rows in which the objective is not normalised.
        batch_size: has no effect; accepted because documents of palaestrAI set it. palaestrAI's statistics are
            made of batches of readings, these of every reading.
    """

    def __init__(
        self,
        normalise_objective: bool = True,
        clip_obs: float = 10.0,
        clip_reward: float = 10.0,
        epsilon: float = 1e-8,
        gamma: float = 0.99,
        norm_objective_after: int = 0,
        batch_size: int = 256,
    ):
        self.normalise_objective = flag(self, "normalise_objective", normalise_objective)
        self.clip_obs = number(self, "clip_obs", clip_obs, above=True, infinite=True)
        self.clip_reward = number(self, "clip_reward", clip_reward, above=True, infinite=True)
        self.epsilon = number(self, "epsilon", epsilon, above=True)
        self.gamma = number(self, "gamma", gamma)
        if self.gamma > 1.0:
            raise ContractError(f"filter NormFilter: gamma must be from 0 to 1, not {gamma!r}")
        self.norm_objective_after = whole_number(self, "norm_objective_after", norm_objective_after, least=0)
        whole_number(self, "batch_size", batch_size)
        #: the return of every muscle's running episode
        self._returns: dict[str, float] = {}
        self._return_n = self._return_mean = self._return_m2 = 0.0
        self._seen: list[FloatVector] = []
        self._pending: Moments | None = None
        #: mean and reciprocal deviation in use; ``None`` until computed
        self._in_use: tuple[FloatVector, FloatVector] | None = None

    def setup(self, sensors: Layout, actuators: Layout) -> tuple[Layout, Layout]:
        self._moments = Moments.none(sensors.size)
        boxes = [real_box(space, -self.clip_obs, self.clip_obs) for space in sensors.spaces]
        return Layout(sensors.uids, boxes), actuators

    def muscle_pre_process(self, readings: FloatVector) -> FloatVector:
        if self.mode is Mode.TRAIN:
            self._seen.append(readings)
            if len(self._seen) == BATCH:
                self._merge_seen()
        if self._in_use is None:
            self._in_use = self._moments.mean, 1.0 / np.sqrt(self._moments.variance() + self.epsilon)
        mean, factor = self._in_use
        normal = (readings - mean) * factor
        np.minimum(normal, self.clip_obs, out=normal)
        return np.maximum(normal, -self.clip_obs, out=normal)

    def _merge_seen(self) -> None:
        batch = Moments.of(self._seen)
        self._seen = []
        self._pending = batch if self._pending is None else self._pending.merged(batch)

    def news(self) -> Moments | None:
        if self._seen:
            self._merge_seen()
        news, self._pending = self._pending, None
        return news

    def learn(self, news: Moments) -> None:
        self._moments = self._moments.merged(news)
        self._in_use = None

    def brain_pre_process(self, experience: Experience) -> Experience:
        if not self.normalise_objective:
            return experience
        reward, muscle = experience.objective, experience.muscle
        if experience.step == 0:
            self._returns[muscle] = 0.0
        if math.isnan(reward):
            return experience
        if self.mode is Mode.TRAIN:
            self._learn_return(self.gamma * self._returns.get(muscle, 0.0) + reward, muscle)
        if self._return_n <= self.norm_objective_after > 0:
            return experience
        variance = self._return_m2 / self._return_n if self._return_n > 1.0 else 1.0
        normal = reward / math.sqrt(variance + self.epsilon)
        return replace(experience, objective=max(-self.clip_reward, min(normal, self.clip_reward)))

    def _learn_return(self, value: float, muscle: str) -> None:
        n = self._return_n + 1.0
        shift = value - self._return_mean
        mean = self._return_mean + shift / n
        m2 = self._return_m2 + shift * (value - mean)
        # an infinite value, or one too large to be squared, would spoil the statistics for good
        if math.isfinite(m2):
            self._returns[muscle] = value
            self._return_n, self._return_mean, self._return_m2 = n, mean, m2

    def state(self) -> dict[str, Any]:
        returns = (self._return_n, self._return_mean, self._return_m2)
        return {**self._moments._asdict(), **dict(zip(_RETURNS, returns, strict=True))}

    def set_state(self, state: Mapping[str, Any]) -> None:
        moments = Moments(*(np.asarray(state[name], dtype=np.float64) for name in _MOMENTS))
        for name, moment in zip(_MOMENTS, moments, strict=True):
            if moment.shape != self._moments.n.shape:
                raise ContractError(
                    f"filter NormFilter: {name} of the state has shape {moment.shape}, but the agent's "
                    f"readings have shape {self._moments.n.shape}"
                )
        n, mean, m2 = (float(state[name]) for name in _RETURNS)
        # NaN is not at least 0 either
        sound = np.minimum(moments.n, moments.m2).min(initial=0.0) >= 0.0 and n >= 0.0 and m2 >= 0.0
        if not sound or math.isnan(mean) or np.isnan(moments.mean).any():
            raise ContractError(
                "filter NormFilter: the state has NaN, or a negative number of values or sum of squares: "
                f"{dict(state)}"
            )
        self._moments, self._in_use = moments, None
        self._return_n, self._return_mean, self._return_m2 = n, mean, m2

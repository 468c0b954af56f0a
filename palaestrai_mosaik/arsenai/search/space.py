"""The space of a search: Optuna's distribution of each axis of a design, and proposals within its constraints.

A continuous axis is searched in [0, 1], which the inverse distribution function of its factors maps to values. Every
distribution of a factor is therefore possible, and regions that a design would sample more are at first searched more.
Levels, and small ranges of whole numbers, are searched by their index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from palaestrai_mosaik.arsenai.design.decode import decode, keep
from palaestrai_mosaik.arsenai.design.distributions import INSIDE, bounded, middles, whole_numbers
from palaestrai_mosaik.arsenai.design.expressions import Expression
from palaestrai_mosaik.arsenai.design.model import INACTIVE, Axis, DesignSpec
from palaestrai_mosaik.arsenai.execution.journal import Journal, optuna, quiet
from palaestrai_mosaik.core.errors import ExecutionError

from .failures import shown_to_sampler
from .samplers import proposers

#: the coordinate of an inactive axis, which is never used
_NOWHERE = 0.5
#: largest number of whole numbers that are searched by their index
_FEW = 1000


class Proposal(NamedTuple):
    """A setting within the constraints: its Optuna parameters, its point, and the number of rejected predecessors."""

    params: dict[str, Any]
    unit: tuple[float, ...]
    rejected: int


class Space:
    """The axes of ``spec`` as Optuna searches them."""

    def __init__(self, spec: DesignSpec):
        self.spec = spec
        self.distributions = {axis.name: _distribution(axis) for axis in spec.axes}
        self._order = tuple(_in_order(spec))

    def propose(self, journal: Journal, number: int) -> Proposal:
        """Propose a setting for the trial ``number``.

        Raises :class:`~palaestrai_mosaik.core.errors.ExecutionError` if the constraints reject all proposals.
        """
        assert self.spec.search is not None
        rejected = 0
        storage = shown_to_sampler(self.spec.search, journal)
        for sampler, tries in proposers(self.spec, number):
            with quiet():
                # A new study, because studies cache the trials that they have seen.
                study = optuna().load_study(
                    study_name=journal.study.study_name, storage=storage, sampler=sampler
                )
                trial = journal.trial(number)
                sampler.before_trial(study, trial)
                for _ in range(tries):
                    params, unit = self._sample(study, sampler, trial)
                    if keep(self.spec, decode(self.spec, np.array([unit], dtype=np.float64))):
                        return Proposal(params, tuple(unit), rejected)
                    rejected += 1
        raise ExecutionError(
            f"the constraints reject {rejected:,} proposals in a row for setting {number}: "
            f"{'; '.join(self.spec.constraints)}"
        )

    def _sample(self, study: Any, sampler: Any, trial: Any) -> tuple[dict[str, Any], list[float]]:
        """Sample Optuna's parameters of the active axes, and the point."""
        together = sampler.infer_relative_search_space(study, trial)
        relative: Mapping[str, Any] = sampler.sample_relative(study, trial, together)
        unit = [_NOWHERE] * len(self.spec.axes)
        params: dict[str, Any] = {}
        for index in self._order:
            axis = self.spec.axes[index]
            if not self._is_active(axis, unit):
                continue
            distribution = self.distributions[axis.name]
            if axis.name in relative:
                value = relative[axis.name]
            else:
                value = sampler.sample_independent(study, trial, axis.name, distribution)
            params[axis.name] = value
            unit[index] = coordinate(axis, value)
        return params, unit

    def _is_active(self, axis: Axis, unit: Sequence[float]) -> bool:
        """Whether any factor of ``axis`` is active at a point, which must have the coordinates of the axes before."""
        if all(factor.when is None for factor in axis.factors):
            return True
        values = decode(self.spec, np.array([unit], dtype=np.float64))[0]
        return any(values[factor.name] is not INACTIVE for factor in axis.factors)


def coordinate(axis: Axis, value: Any) -> float:
    """Return the coordinate of an Optuna parameter on the axis, in [0, 1]."""
    if axis.levels is not None:
        return float(middles(axis)[int(value)])
    count = _count(axis)
    if count is not None:
        return (int(value) + 0.5) / count
    if all(bounded(factor) for factor in axis.factors):
        return float(value)
    return min(max(float(value), INSIDE), 1 - INSIDE)


def _distribution(axis: Axis) -> Any:
    """Return Optuna's distribution for the axis."""
    distributions = optuna().distributions
    if axis.levels is not None:
        if axis.nominal:
            return distributions.CategoricalDistribution(tuple(range(axis.levels)))
        return distributions.IntDistribution(0, axis.levels - 1)
    count = _count(axis)
    if count is not None:
        return distributions.IntDistribution(0, count - 1)
    return distributions.FloatDistribution(0.0, 1.0)


def _count(axis: Axis) -> int | None:
    """Return the number of whole numbers on the axis, if it is small and all have the same probability."""
    if any(factor.kind != "int" or factor.dist != "uniform" for factor in axis.factors):
        return None
    counts = {whole_numbers(factor) for factor in axis.factors}
    count = counts.pop()
    return None if counts or count is None or count > _FEW else count


def _in_order(spec: DesignSpec) -> Iterator[int]:
    """Yield the indices of the axes, each after the axes that its factors' conditions depend on."""
    axis_of = {factor.name: index for index, axis in enumerate(spec.axes) for factor in axis.factors}
    needs = {
        index: {
            axis_of[name]
            for factor in axis.factors
            if factor.when is not None
            for name in Expression.parse(factor.when, spec.factors).names
        }
        - {index}
        for index, axis in enumerate(spec.axes)
    }
    left = list(needs)
    while left:
        free = [index for index in left if not needs[index] & set(left)]
        # Two zipped axes may depend on each other. Their order does not matter then.
        for index in free or left:
            yield index
            left = [other for other in left if other != index]

"""Shapley effects from a Saltelli sample: shares of variance that add up to 1.

The Shapley effect of a factor is what it adds to the closed Sobol index of others, averaged
over all orders in which factors can be added (Owen 2014, "Sobol' indices and Shapley value",
SIAM/ASA Journal on Uncertainty Quantification 2). With c(u) the closed index of the factors u,
and d_k(i) the mean of c over the sets of k factors with i less that over those without, it is

    Sh_i = (1 + d_1(i) + ... + d_{D-1}(i)) / D.

The rows of a Saltelli sample give c of all single factors and pairs and of all but one and all
but two of them (Saltelli 2002, Computer Physics Communications 145: the two rows of a product
share the coordinates u). As a function of k, d_k(i) is a polynomial whose degree is one less
than the number of factors in the largest interaction. So the d_k between, which the sample does
not give, are those of the polynomial through the ones that it gives: four, or three without
second order. The effects are thus exact (up to sampling) for up to 5 (4) factors, and for
more where no interaction is of more than 4 (3) of them. They add up to 1 in any case.
"""

from __future__ import annotations

from math import comb

import numpy as np

from palaestrai_mosaik.types.arrays import Array, FloatArray

from ..model import DesignSpec
from ..samplers import units
from ..samplers.sobol import SOBOL as SALTELLI
from .method import NEEDS_SALTELLI, Index, Indices, Method, MethodDisplay, Study
from .sobol import blocks, outputs

#: Shapley effects follow from a Saltelli sample with second order up to this number of axes: the
#: closed indices of all subsets are then among its pairs of rows.
_MOST_FACTORS = 5
# Resamples that are taken together: bounds the memory.
_AT_ONCE = 100


def shapley(study: Study) -> Indices:
    """Return the Shapley effect of every axis or group.

    Intervals are percentiles over bootstrapped blocks. Holds for nominal factors too.
    """
    count, second = blocks(study)
    players = study.players
    products = _Products(study, second)
    values = products.effects(np.full((1, count), 1.0))[0]
    rng = np.random.Generator(np.random.PCG64(study.seed))
    resampled = []
    for start in range(0, study.resamples, _AT_ONCE):
        size = min(_AT_ONCE, study.resamples - start)
        resampled.append(products.effects(rng.multinomial(count, np.full(count, 1 / count), size=size)))
        study.progress(start + size, study.resamples)
    tail = 100 * (1 - study.confidence) / 2
    low, high = np.nanpercentile(np.concatenate(resampled), [tail, 100 - tail], axis=0)
    rows = [
        Index("Sh", player, float(values[i]), float(low[i]), float(high[i]))
        for i, player in enumerate(players)
    ]
    known = _MOST_FACTORS if second else _MOST_FACTORS - 1
    if len(players) <= known:
        return Indices(rows)
    note = (
        f"Shapley effects of more than {known} factors hold where no interaction is of more than {known - 1}"
    )
    return Indices(rows, (note,))


class _Products:
    """The products of outputs whose means over the blocks are the closed indices."""

    def __init__(self, study: Study, second: bool):
        a, b, ab, ba = outputs(study, second)
        self._size = ab.shape[1]
        self._pairs = np.triu_indices(self._size, 1)
        i, j = self._pairs
        first = b[:, None] * (ab - a[:, None])
        total = (a[:, None] - ab) ** 2 / 2
        # two rows of one block that differ in both factors of a pair only
        pair_total = (ab[:, i] - ab[:, j]) ** 2 / 2
        parts = [first, total, pair_total]
        if ba is not None:
            parts[0] = (first + a[:, None] * (ba - b[:, None])) / 2
            parts[1] = (total + (b[:, None] - ba) ** 2 / 2) / 2
            parts[2] = (pair_total + (ba[:, i] - ba[:, j]) ** 2 / 2) / 2
            parts.append((ba[:, i] * ab[:, j] + ba[:, j] * ab[:, i]) / 2 - (a * b)[:, None])
        self._moments = np.column_stack([(a + b) / 2, (a**2 + b**2) / 2])
        self._parts = parts

    def effects(self, weights: Array) -> FloatArray:
        """Return the effects, shape (resamples, players), of ``weights``, shape (resamples, blocks)."""
        size = self._size
        if size == 1:
            return np.ones((len(weights), 1))
        share = weights / weights.sum(axis=1, keepdims=True)
        mean, square = (share @ self._moments).T
        variance = square - mean**2
        variance[variance <= np.finfo(float).eps] = np.nan  # a resample of equal outputs tells nothing
        first, total, *pairs = (share @ part / variance[:, None] for part in self._parts)
        # c of all but i is 1 - ST_i, so the difference of means of c is that of ST
        given = {1: self._single(first), size - 1: self._single(total)}
        if size == 2:
            given[1] = self._single((first + total) / 2)
        if size > 3:
            given[size - 2] = self._pair(pairs[0])
        if size > 2 and len(pairs) > 1:
            given.setdefault(2, self._pair(pairs[1]))
        summed = sum(weight * given[k] for k, weight in _weights(sorted(given), size).items())
        return np.asarray((1 + summed) / size)

    def _single(self, values: FloatArray) -> FloatArray:
        found: FloatArray = values - (values.sum(axis=1, keepdims=True) - values) / (self._size - 1)
        return found

    def _pair(self, values: FloatArray) -> FloatArray:
        of_player = np.zeros((len(values), self._size))
        for player in range(self._size):
            member = (self._pairs[0] == player) | (self._pairs[1] == player)
            of_player[:, player] = values[:, member].sum(axis=1)
        rest = values.sum(axis=1, keepdims=True) - of_player
        found: FloatArray = of_player / (self._size - 1) - rest / comb(self._size - 1, 2)
        return found


def _weights(nodes: list[int], size: int) -> dict[int, float]:
    """Return how much the value at each node adds to the sum over 1, ..., size - 1 of its polynomial."""
    wanted = np.arange(1, size)
    result = {}
    for node in nodes:
        basis = np.ones(size - 1)
        for other in nodes:
            if other != node:
                basis *= (wanted - other) / (node - other)
        result[node] = float(basis.sum())
    return result


def _check(spec: DesignSpec) -> str | None:
    """Return what a Saltelli sample lacks for Shapley effects, ``None`` where it has all."""
    if not SALTELLI.option(spec, "second_order"):
        return "it needs second_order: true"
    count = len(units(spec))
    if count > _MOST_FACTORS:
        return f"a Saltelli sample holds them for up to {_MOST_FACTORS} factors or groups, here are {count}"
    return None


SHAPLEY = Method(
    "shapley",
    shapley,
    indices=("Sh",),
    samplers=("sobol",),
    why=NEEDS_SALTELLI,
    groups=True,
    check=_check,
    drops="block",
    display=MethodDisplay(
        "Shapley effects",
        ("Sh",),
        "Sh",
        True,
        "Each factor's share of the variance; what factors explain together is parted equally among them, "
        "so that the shares sum to 1.",
    ),
)

"""Shapley effects from a Saltelli sample: shares of variance that add up to 1.

The Shapley effect of a factor is its contribution to the closed Sobol index of a set of factors,
averaged over all orders in which factors can be added (Owen 2014, "Sobol' indices and Shapley value",
SIAM/ASA Journal on Uncertainty Quantification 2). With c(u) the closed index of the factors u,
and d_k(i) the mean of c over the sets of k factors with i less that over those without, it is

    Sh_i = (1 + d_1(i) + ... + d_{D-1}(i)) / D.

The rows of a Saltelli sample yield c of all single factors and pairs, and of all sets that lack one
or two factors (Saltelli 2002, Computer Physics Communications 145: the two rows of a product
share the coordinates u). As a function of k, d_k(i) is a polynomial. Its degree is one less
than the number of factors in the largest interaction. The sample yields d_k at four values of k,
or three without second order; the others are interpolated by the polynomial through these. The
effects are thus exact (up to sampling) for up to 5 (4) factors, and for more factors if no
interaction has more than 4 (3) of them. They add up to 1 in any case.
"""

from __future__ import annotations

from math import comb

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from ..model import DesignSpec
from ..samplers.option import units
from ..samplers.sobol import SOBOL as SALTELLI
from .jackknife import jackknife
from .method import (
    NEEDS_SALTELLI,
    Indices,
    Method,
    MethodDisplay,
    Study,
    around,
    no_resamples,
)
from .significance import about_noise, by_repetition, noise_of, noise_row, noise_share
from .sobol import blocks, lacking_blocks, moments, outputs, significance, variance

#: Largest number of axes for which a Saltelli sample with second order yields Shapley effects: the closed indices of
#: all subsets are then among its pairs of rows.
_MOST_FACTORS = 5


def shapley(study: Study) -> Indices:
    """Compute the Shapley effect of every axis or group.

    Intervals are Student's t intervals, from the spread between randomisations of the sequence. Nominal factors are
    allowed. With repetitions, noise is subtracted: the effects and its share add up to 1.

    Raises:
        Refused: the rows are no Saltelli sample of two or more blocks, or the outcome is constant at its base points.
    """
    _, second = blocks(study)
    players = study.players
    products = _Products(study, second)
    estimates = jackknife(study, products.parts, products.effects)
    half = estimates.half_widths(study.confidence)
    rows = [around("Sh", player, estimates.value[i], half[i]) for i, player in enumerate(players)]
    noise = noise_share(study)
    rows += [*noise_row("Sh", noise), *significance(study)]
    notes = *estimates.notes, about_noise(noise, study, "Shapley effects")
    most = _MOST_FACTORS if second else _MOST_FACTORS - 1
    if len(players) <= most:
        return Indices(rows, notes)
    note = f"Shapley effects of more than {most} factors hold where no interaction is of more than {most - 1}"
    return Indices(rows, (*notes, note))


class _Products:
    """Products of outputs; their means over the blocks are the closed indices."""

    def __init__(self, study: Study, second: bool):
        a, b, ab, ba = outputs(study, second)
        self._size = ab.shape[1]
        self._pairs = np.triu_indices(self._size, 1)
        i, j = self._pairs
        share = noise_share(study)
        self._noise = 0.0 if np.isnan(share) else share
        y = by_repetition(study) / study.y.std()
        y = y.reshape(len(a), -1, y.shape[1])
        at_a, at_ab, at_ba, at_b = np.split(y, [1, self._size + 1, y.shape[1] - 1], axis=1)
        first = b[:, None] * (ab - a[:, None])
        total = ((a[:, None] - ab) ** 2 - noise_of(at_a - at_ab)) / 2
        # two rows of one block that differ in both factors of a pair only
        pair_total = ((ab[:, i] - ab[:, j]) ** 2 - noise_of(at_ab[:, i] - at_ab[:, j])) / 2
        parts = [first, total, pair_total]
        if ba is not None:
            parts[0] = (first + a[:, None] * (ba - b[:, None])) / 2
            parts[1] = (total + ((b[:, None] - ba) ** 2 - noise_of(at_b - at_ba)) / 2) / 2
            parts[2] = (
                pair_total + ((ba[:, i] - ba[:, j]) ** 2 - noise_of(at_ba[:, i] - at_ba[:, j])) / 2
            ) / 2
            parts.append((ba[:, i] * ab[:, j] + ba[:, j] * ab[:, i]) / 2 - (a * b)[:, None])
        self._cuts = np.cumsum([part.shape[1] for part in parts])[:-1]
        self.parts = np.column_stack([moments(a, b), *parts])

    def effects(self, means: FloatArray) -> FloatArray:
        """Compute the effects, (samples, players), from means of ``parts``, (samples, parts)."""
        size = self._size
        if size == 1:
            return np.full((len(means), 1), 1 - self._noise)
        shares = means[:, 2:] / variance(means)[:, None]
        first, total, *pairs = np.split(shares, self._cuts, axis=1)
        # c of all but i is 1 - ST_i, so the difference of means of c is that of ST
        nodes = {1: self._single(first), size - 1: self._single(total)}
        if size == 2:
            nodes[1] = self._single((first + total) / 2)
        if size > 3:
            nodes[size - 2] = self._pair(pairs[0])
        if size > 2 and len(pairs) > 1:
            nodes.setdefault(2, self._pair(pairs[1]))
        summed = sum(weight * nodes[k] for k, weight in _weights(sorted(nodes), size).items())
        return np.asarray((1 - self._noise + summed) / size)

    def _single(self, values: FloatArray) -> FloatArray:
        means: FloatArray = values - (values.sum(axis=1, keepdims=True) - values) / (self._size - 1)
        return means

    def _pair(self, values: FloatArray) -> FloatArray:
        of_player = np.zeros((len(values), self._size))
        for player in range(self._size):
            member = (self._pairs[0] == player) | (self._pairs[1] == player)
            of_player[:, player] = values[:, member].sum(axis=1)
        without = values.sum(axis=1, keepdims=True) - of_player
        means: FloatArray = of_player / (self._size - 1) - without / comb(self._size - 1, 2)
        return means


def _weights(nodes: list[int], size: int) -> dict[int, float]:
    """Return each node's weight in the sum over 1, ..., size - 1 of the polynomial through the nodes."""
    points = np.arange(1, size)
    result = {}
    for node in nodes:
        basis = np.ones(size - 1)
        for other in nodes:
            if other != node:
                basis *= (points - other) / (node - other)
        result[node] = float(basis.sum())
    return result


def _check(spec: DesignSpec) -> str | None:
    """Return why the design's Saltelli sample yields no Shapley effects, or None."""
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
    needs=lacking_blocks,
    drops="block",
    resamples=no_resamples,
    display=MethodDisplay(
        "Shapley effects",
        ("Sh",),
        "Sh",
        True,
        "Each factor's share of the variance; what factors explain together is parted equally among them, "
        "so that the shares sum to 1.",
    ),
)

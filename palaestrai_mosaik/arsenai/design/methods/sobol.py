"""Indices from a Saltelli sample: Sobol' indices and Shapley effects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from math import comb

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from ..model import DesignSpec
from ..samplers.sampler import units
from ..samplers.sobol import SOBOL as SALTELLI
from .jackknife import jackknife
from .method import (
    NEEDS_SALTELLI,
    Index,
    Indices,
    Method,
    MethodDisplay,
    Refused,
    Study,
    around,
    no_resamples,
    require,
)
from .significance import (
    about_noise,
    by_repetition,
    noise_of,
    noise_row,
    noise_share,
    p_rows,
    randomization_test,
)

#: half-width of a total index's interval above which a note recommends a larger sample
_WIDE = 0.1


def blocks(study: Study) -> tuple[int, bool]:
    """Return the number of Saltelli blocks, and whether they have the rows for second order.

    Raises:
        Refused: the rows are no Saltelli sample of two or more blocks.
    """
    require(lacking_blocks(study))
    size = int(np.unique(study.block, return_counts=True)[1][0])
    return len(study.y) // size, size == 2 * len(study.players) + 2


def lacking_blocks(study: Study) -> str | None:
    """Return why the rows are not enough Saltelli blocks, or None."""
    players = len(study.players)
    sizes = np.unique(np.unique(study.block, return_counts=True)[1])
    if len(sizes) != 1 or int(sizes[0]) not in (players + 2, 2 * players + 2):
        return "the rows are no Saltelli sample (sampler: sobol)"
    if len(study.y) // int(sizes[0]) < 2:
        return "a single block of the sample is left: no variance can be estimated"
    return None


def sobol(study: Study) -> Indices:
    """Compute S1 and ST of every axis or group, and S2 of pairs if the sample has second order.

    Intervals are Student's t intervals, from the spread between randomisations of the sequence. Those of ST end at 0
    and 1. With repetitions, the noise in ST is subtracted.

    Raises:
        Refused: the rows are no Saltelli sample of two or more blocks, or the outcome is constant at its base points.
    """
    count, second = blocks(study)
    players = study.players
    estimates = jackknife(study, *_products(study, second))
    half = estimates.half_widths(study.confidence)
    size = len(players)
    rows = [around("S1", player, estimates.value[i], half[i]) for i, player in enumerate(players)]
    for row in estimates.never_negative("ST", players, size, study.confidence):
        rows.append(replace(row, high=float(np.maximum(row.value, np.minimum(row.high, 1.0)))))
    if second:
        rows += [
            around("S2", players[i], estimates.value[number], half[number], players[j])
            for number, (i, j) in enumerate(combinations(range(size), 2), 2 * size)
        ]
    notes = *estimates.notes, *_wide(rows, count)
    noise = noise_share(study)
    rows += [*noise_row("ST", noise), *significance(study)]
    return Indices(rows, (*notes, about_noise(noise, study, "total indices")))


def _products(study: Study, second: bool) -> tuple[FloatArray, Callable[[FloatArray], FloatArray]]:
    """Return products of outputs, (blocks, products), and the function that maps their means to indices."""
    a, b, ab, ba = outputs(study, second)
    size = ab.shape[1]
    i, j = np.triu_indices(size, 1)
    noise = noise_of(differences(study)[0] / study.y.std())
    # ST is a mean of squares; S1 is a mean of products, which may be negative
    parts = [moments(a, b), b[:, None] * (ab - a[:, None]), ((a[:, None] - ab) ** 2 - noise) / 2]
    if ba is not None:
        parts.append(ba[:, i] * ab[:, j] - (a * b)[:, None])

    def indices(means: FloatArray) -> FloatArray:
        shares = means[:, 2:] / variance(means)[:, None]
        if ba is not None:
            shares[:, 2 * size :] -= shares[:, i] + shares[:, j]
        return shares

    return np.concatenate(parts, axis=1), indices


def _wide(rows: list[Index], count: int) -> tuple[str, ...]:
    widest = max(max(row.high - row.value, row.value - row.low) for row in rows if row.index == "ST")
    if not widest > _WIDE:
        return ()
    return (
        f"{count} blocks leave total indices uncertain by up to {widest:.2f} to either side; a larger n narrows it",
    )


def differences(study: Study) -> tuple[FloatArray, IntArray]:
    """Return AB minus A, (blocks, players, repetitions), and the numbers of the two runs, (blocks, players, 2)."""
    players, count = len(study.players), len(np.unique(study.block))
    y = by_repetition(study)
    y, run = y.reshape(count, -1, y.shape[1]), study.executed.reshape(count, -1)
    a, ab = np.broadcast_arrays(run[:, :1], run[:, 1 : players + 1])
    return y[:, 1 : players + 1] - y[:, :1], np.stack([a, ab], axis=-1)


def significance(study: Study) -> list[Index]:
    """Compute the adjusted p value of each axis or group from AB - A.

    Without repetitions, differences are weighted by B, as in S1. B shares no coordinates with A, so the weight does not
    depend on which of A and AB comes first.
    """
    steps, runs = differences(study)
    b = np.append(study.block[1:] != study.block[:-1], True)
    weight = np.broadcast_to((study.y - study.y.mean())[b, None], runs.shape[:2])
    run_of_b = np.broadcast_to(study.executed[b, None, None], (*runs.shape[:2], 1))
    runs = np.concatenate([runs, run_of_b], axis=-1)
    return list(p_rows(study.players, randomization_test(steps, study, runs, weight)))


def outputs(study: Study, second: bool) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
    """Return the standardised outcome at A, B, (blocks,), AB and BA, (blocks, players).

    AB has the coordinates of A, except for those of one player, which are B's; BA the reverse, or None without
    second order.

    Raises:
        Refused: the outcome is the same at all of A and B.
    """
    players = len(study.players)
    y = (study.y - study.y.mean()) / study.y.std()
    y = y.reshape(-1, 2 * players + 2 if second else players + 2)
    a, b = y[:, 0], y[:, -1]
    if np.ptp(y[:, [0, -1]]) <= np.finfo(float).eps:
        raise Refused("the outcome is the same at all base points: there is no variance to explain")
    return a, b, y[:, 1 : players + 1], y[:, players + 1 : -1] if second else None


def moments(a: FloatArray, b: FloatArray) -> FloatArray:
    """Compute the terms of :func:`variance`, (blocks, 2)."""
    return np.column_stack([(a + b) / 2, (a**2 + b**2) / 2])


def variance(means: FloatArray) -> FloatArray:
    """Compute the variance over A and B, (samples,), or NaN if it is 0.

    Args:
        means: (samples, parts) means of the terms of :func:`moments`, and of any other terms after them.
    """
    value = means[:, 1] - means[:, 0] ** 2
    return np.where(value > np.finfo(float).eps, value, np.nan)


SOBOL = Method(
    "sobol",
    sobol,
    indices=("S1", "ST"),
    samplers=("sobol",),
    why=NEEDS_SALTELLI,
    groups=True,
    needs=lacking_blocks,
    drops="block",
    resamples=no_resamples,
    display=MethodDisplay(
        "Sobol indices",
        ("S1", "ST"),
        "ST",
        True,
        "S1 is the share of the variance that a factor explains on its own, ST the share with all of its "
        "interactions. Estimates carry sampling error: they can lie a little below 0 or above 1.",
        "S2",
    ),
)


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

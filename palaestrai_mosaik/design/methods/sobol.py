"""Sobol indices from a Saltelli sample: the shares of variance that factors explain.

Sources: Saltelli et al. 2010, "Variance based sensitivity analysis of model output",
Computer Physics Communications 181 (S1, ST); Saltelli 2002, ibid. 145 (S2). By SALib.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from .method import NEEDS_SALTELLI, Index, Indices, Method, MethodDisplay, Refused, Study, above_zero, around

#: an interval of a total index wider than this to either side tells little
_WIDE = 0.1


def blocks(study: Study) -> tuple[int, bool]:
    """Return the number of Saltelli blocks, and whether they hold what second order needs.

    Raises :class:`Refused` where the rows are no Saltelli sample, or a single block of one.
    """
    players = len(study.players)
    sizes = np.unique(np.unique(study.block, return_counts=True)[1])
    if len(sizes) != 1 or int(sizes[0]) not in (players + 2, 2 * players + 2):
        raise Refused("the rows are no Saltelli sample (sampler: sobol)")
    count = len(study.y) // int(sizes[0])
    if count < 2:
        raise Refused("a single block of the sample is left: no variance can be estimated")
    return count, int(sizes[0]) == 2 * players + 2


def sobol(study: Study) -> Indices:
    """Return S1 and ST of every axis or group, and S2 of pairs where the sample has them.

    Intervals are normal, from the standard deviation over bootstrapped blocks.
    """
    from SALib.analyze import sobol as analyser

    count, second = blocks(study)
    found = analyser.analyze(
        study.problem,
        study.y,
        calc_second_order=second,
        num_resamples=study.resamples,
        conf_level=study.confidence,
        seed=study.seed,
    )
    players = study.players
    # ST is estimated by a mean of squares, S1 by a mean of products, which may be negative
    rows = [
        mark(index, player, found[index][i], found[f"{index}_conf"][i])
        for index, mark in (("S1", around), ("ST", above_zero))
        for i, player in enumerate(players)
    ]
    if second:
        rows += [
            around("S2", players[i], found["S2"][i, j], found["S2_conf"][i, j], players[j])
            for i, j in combinations(range(len(players)), 2)
        ]
    return Indices(rows, _wide(rows, count))


def _wide(rows: list[Index], count: int) -> tuple[str, ...]:
    widest = max(row.high - row.value for row in rows if row.index == "ST")
    if widest <= _WIDE:
        return ()
    return (
        f"{count} blocks leave total indices uncertain by up to {widest:.2f} to either side; a larger n narrows it",
    )


def outputs(study: Study, second: bool) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray | None]:
    """Return the outcome at A, B (blocks,), AB and BA (blocks, players), standardised.

    AB has the coordinates of A but for those of one player, which are B's; BA the other way
    round, ``None`` where the sample has none.
    """
    players = len(study.players)
    y = (study.y - study.y.mean()) / study.y.std()
    y = y.reshape(-1, 2 * players + 2 if second else players + 2)
    return y[:, 0], y[:, -1], y[:, 1 : players + 1], y[:, players + 1 : -1] if second else None


SOBOL = Method(
    "sobol",
    sobol,
    indices=("S1", "ST"),
    samplers=("sobol",),
    why=NEEDS_SALTELLI,
    groups=True,
    drops="block",
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

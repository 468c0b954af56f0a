"""Elementary effects of a Morris sample: a screening of many factors with few runs.

Sources: Morris 1991, "Factorial sampling plans for preliminary computational experiments",
Technometrics 33; mu* by Campolongo, Cariboni and Saltelli 2007, Environmental Modelling &
Software 22. By SALib. Effects are per unit of the unit cube, so those of factors of different
range can be compared.
"""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray

from .method import Index, Indices, Method, MethodDisplay, Refused, Study, above_zero

#: levels of the grid where the sampler was not told
LEVELS = 4
_NAMES = ("mu", "mu_star", "sigma", "mu_star_conf")


def morris(study: Study) -> Indices:
    """Return ``mu``, ``mu_star`` and ``sigma`` of every axis, of a group ``mu`` and ``mu_star``.

    The interval of ``mu_star`` is normal, from the standard deviation over bootstrapped
    trajectories.
    """
    from SALib.analyze import morris as analyser

    players = study.players
    if len(study.y) < 2 * (len(players) + 1):
        raise Refused("fewer than two trajectories are left: no spread of effects can be estimated")
    found = analyser.analyze(
        study.problem,
        study.unit,
        study.y,
        num_resamples=study.resamples,
        conf_level=study.confidence,
        num_levels=int(study.arguments.get("levels", LEVELS)),
        seed=study.seed,
    )
    values: dict[str, FloatArray] = {
        name: np.ma.filled(np.ma.asarray(found[name], dtype=float), np.nan) for name in _NAMES
    }
    rows = []
    for i, player in enumerate(players):
        rows.append(Index("mu", player, float(values["mu"][i])))
        rows.append(above_zero("mu_star", player, values["mu_star"][i], values["mu_star_conf"][i]))
        rows.append(Index("sigma", player, float(values["sigma"][i])))
    return Indices(rows)


MORRIS = Method(
    "morris",
    morris,
    indices=("mu", "mu_star", "sigma"),
    samplers=("morris",),
    why="it needs trajectories in which one factor moves at a time",
    factors="ordered",
    reason="an elementary effect is a step along an order of the levels, so that its size would depend on "
    "the order in which they happen to stand",
    groups=True,
    drops="block",
    display=MethodDisplay(
        "Morris screening",
        ("mu_star",),
        "mu_star",
        False,
        "mu* is the mean size of the effect of moving a factor across its range, sigma how much that effect "
        "varies: far below the line sigma = 0.1 mu* effects are almost linear, above sigma = mu* they change "
        "their sign or depend on other factors. It ranks factors; it parts no variance.",
    ),
)

"""Elementary effects of a Morris sample: a screening of many factors with few runs.

Sources: Morris 1991, "Factorial sampling plans for preliminary computational experiments",
Technometrics 33; mu* by Campolongo, Cariboni and Saltelli 2007, Environmental Modelling &
Software 22. The implementation is SALib's. Effects are per unit of the unit cube, so those of factors
with different ranges can be compared.
"""

from __future__ import annotations

import numpy as np

from palaestrai_mosaik.types.arrays import FloatArray, IntArray

from .method import Index, Indices, Method, MethodDisplay, Study, above_zero, require
from .significance import (
    NOISE,
    about_noise,
    by_repetition,
    noise_of,
    noise_row,
    noise_share,
    p_rows,
    randomization_test,
)

#: levels of the grid, if the sampler has no argument levels
LEVELS = 4
_NAMES = ("mu", "mu_star", "sigma", "mu_star_conf")


def morris(study: Study) -> Indices:
    """Compute ``mu``, ``mu_star`` and ``sigma`` of every axis; a group of several axes has no ``sigma``.

    The interval of ``mu_star`` is normal, from the standard deviation over bootstrapped trajectories.

    Raises:
        Refused: there are fewer than two trajectories.
    """
    from SALib.analyze import morris as analyser

    require(_needs(study))
    players = study.players
    result = analyser.analyze(
        study.problem,
        study.unit,
        study.y,
        num_resamples=study.resamples,
        conf_level=study.confidence,
        num_levels=int(study.arguments.get("levels", LEVELS)),
        seed=study.seed,
    )
    values: dict[str, FloatArray] = {
        name: np.ma.filled(np.ma.asarray(result[name], dtype=float), np.nan) for name in _NAMES
    }
    rows = []
    for i, player in enumerate(players):
        rows.append(Index("mu", player, float(values["mu"][i])))
        rows.append(above_zero("mu_star", player, values["mu_star"][i], values["mu_star_conf"][i]))
        rows.append(Index("sigma", player, float(values["sigma"][i])))
    differences, delta, runs = _differences(study)
    share = noise_share(study)
    if not np.isnan(share):
        # the mean size of a normal variable
        rows += noise_row("mu_star", float(np.sqrt(2 / np.pi * (noise_of(differences) / delta**2).mean())))
    rows += p_rows(players, randomization_test(differences, study, runs, 1 / delta))
    return Indices(rows, (_about_noise(share, study),))


def _differences(study: Study) -> tuple[FloatArray, FloatArray, IntArray]:
    """Return the differences of the outcome, their steps, and the two runs of each.

    Shapes: (trajectories, players, repetitions), (trajectories, players), (trajectories, players, 2).
    """
    players = study.players
    size = len(players) + 1
    y = by_repetition(study)
    steps = np.diff(study.unit.reshape(-1, size, len(study.names)), axis=1)
    moved = np.abs(steps).argmax(axis=2)
    delta = np.take_along_axis(steps, moved[:, :, None], axis=2)[:, :, 0]
    indices = np.array([players.index(group) for group in study.groups])[moved]
    order = np.argsort(indices, axis=1)
    differences = np.diff(y.reshape(-1, size, y.shape[1]), axis=1)
    runs = np.lib.stride_tricks.sliding_window_view(study.executed.reshape(-1, size), 2, axis=1)
    return (
        np.take_along_axis(differences, order[:, :, None], axis=1),
        np.take_along_axis(delta, order, axis=1),
        np.take_along_axis(runs, order[:, :, None], axis=1),
    )


def _about_noise(share: float, study: Study) -> str:
    if np.isnan(share):
        return about_noise(share, study, "mu_star and sigma")
    return (
        f"noise explains {share:.0%} of the variance of rows: a factor without any effect has a mu_star as large as that of "
        f"{NOISE}, on average"
    )


def _needs(study: Study) -> str | None:
    if len(study.y) < 2 * (len(study.players) + 1):
        return "fewer than two trajectories are left: no spread of effects can be estimated"
    return None


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
    needs=_needs,
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

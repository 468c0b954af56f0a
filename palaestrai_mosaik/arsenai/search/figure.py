"""A picture of the progress of a search."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.arsenai.design.folder import RESULTS, DesignFolder
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.execution.status import load_run_states
from palaestrai_mosaik.core.errors import ExecutionError
from palaestrai_mosaik.plot.figures import draw_panels
from palaestrai_mosaik.plot.series import Curve, Panel
from palaestrai_mosaik.store.location import StoreLocation

from .result import best_settings, history

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def history_figure(folder: str | Path, store: str | None = None) -> Figure:
    """Draw the outcomes of a search's settings over the steps of environments until then.

    A line shows the best outcome so far, points show each setting that was executed in full; the outcomes of pruned
    settings are unknown. Both are from the search itself. Confirmed settings have another point, the mean over fresh
    seeds, with a standard deviation to both sides. Notebooks show the picture. Of several objectives it shows the
    first.

    Args:
        folder: the folder of the search.
        store: the store of its runs; ``None``: ``results`` in the folder.

    Returns:
        The figure.

    Raises:
        DocumentError: ``folder`` is not the folder of a design.
        ExecutionError: the design has no search, no setting is complete yet, or the journal is damaged.
        StoreError: the store cannot be read.
    """
    opened = DesignFolder.open(folder)
    spec, path = opened.spec, opened.path
    if spec.search is None:
        raise ExecutionError(f"{path} is the folder of a design without a search")
    states = load_run_states(opened, StoreLocation.of(path / RESULTS, store), ask=False)
    records, outcome = states.settings, sought(spec)[0]
    points = history(spec, records)
    if not points:
        raise ExecutionError(f"{path}: no setting of the search is complete yet")
    steps = np.array([item.steps for item in points], dtype=float)
    values, best = (np.array([getattr(item, name) for item in points]) for name in ("value", "best"))
    curves = [
        Curve("best so far", steps, best, steps=True),
        Curve("each setting", steps, values, points=True),
    ]
    steps_at = {item.number: float(item.steps) for item in points}
    fresh = sorted(
        (
            (steps_at[item.number], item.confirmed[outcome.name])
            for item in best_settings(spec, path, records, store)
            if outcome.name in item.confirmed and item.confirmed[outcome.name].seeds
        ),
        key=lambda pair: pair[0],
    )
    if fresh:
        mean, std = (np.array([getattr(item, name) for _, item in fresh]) for name in ("mean", "std"))
        at = np.array([at for at, _ in fresh])
        curves.append(Curve("the best over fresh seeds", at, mean, mean - std, mean + std, points=True))
    title = f"{outcome.name}: {outcome.better} is better"
    return draw_panels([Panel(title, "steps of environments", outcome.name, tuple(curves))], spec.uid)

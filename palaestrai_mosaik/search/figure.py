"""The way of a search to its best settings, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.analysis.plot import draw_panels
from palaestrai_mosaik.analysis.series import Curve, Panel
from palaestrai_mosaik.design.folder import DesignFolder
from palaestrai_mosaik.design.search import sought
from palaestrai_mosaik.design.settings_table import read_settings
from palaestrai_mosaik.errors import ExecutionError

from .result import best_settings, history

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def history_figure(folder: str | Path, store: str | None = None) -> Figure:
    """Return a picture of a search: the outcomes of its settings over the steps of environments until then.

    A line shows the best outcome so far, points show each setting that was executed whole; of those that were stopped
    early, no outcome is known. Both are the search's own figures. Settings that were confirmed have one more point, the
    mean over fresh seeds, with a standard deviation to both sides. A notebook shows the picture. Of several objectives
    it shows the first.

    Args:
        folder: the folder of the search.
        store: where its runs are recorded; ``None``: ``results`` in the folder.

    Raises:
        DocumentError: ``folder`` is not that of a design.
        ExecutionError: the design has no search, or no setting is complete yet.
    """
    opened = DesignFolder.open(folder)
    spec, path = opened.spec, opened.path
    if spec.search is None:
        raise ExecutionError(f"{path} is the folder of a design without a search")
    records, outcome = read_settings(path), sought(spec)[0]
    points = history(spec, records)
    if not points:
        raise ExecutionError(f"{path}: no setting of the search is complete yet")
    steps = np.array([one.steps for one in points], dtype=float)
    values, best = (np.array([getattr(one, name) for one in points]) for name in ("value", "best"))
    curves = [
        Curve("best so far", steps, best, steps=True),
        Curve("each setting", steps, values, points=True),
    ]
    told = {one.number: float(one.steps) for one in points}
    fresh = sorted(
        (
            (told[one.number], one.confirmed[outcome.name])
            for one in best_settings(spec, path, records, store)
            if outcome.name in one.confirmed
        ),
        key=lambda pair: pair[0],
    )
    if fresh:
        mean, std = (np.array([getattr(one, name) for _, one in fresh]) for name in ("mean", "std"))
        at = np.array([at for at, _ in fresh])
        curves.append(Curve("the best over fresh seeds", at, mean, mean - std, mean + std, points=True))
    title = f"{outcome.name}: {outcome.better} is better"
    return draw_panels([Panel(title, "steps of environments", outcome.name, tuple(curves))], spec.uid)

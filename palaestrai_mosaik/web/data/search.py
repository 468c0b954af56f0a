"""Pictures of a search in the page: slices and contours of its outcomes, its reports, and its course in time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from palaestrai_mosaik.arsenai.design.model import Factor
from palaestrai_mosaik.arsenai.design.search import sought
from palaestrai_mosaik.arsenai.design.settings import SearchJournal, SettingRecord
from palaestrai_mosaik.arsenai.search.ranking import ranked
from palaestrai_mosaik.types.arrays import FloatMatrix, FloatVector

from ..resources import Query, ResourceError, Source, resource
from .design import DesignWatch, column_of, is_logarithmic, watch
from .design_analysis import version_of

#: number of values of each factor at which a contour is interpolated
_GRID = 40
#: the fewest settings for a contour
_FEWEST = 4


def _journal(source: Source) -> tuple[DesignWatch, SearchJournal, list[SettingRecord], str]:
    """Return the watch, the journal and the settings of a search, and the version of these.

    Raises:
        ResourceError: the design has no search, or its journal is damaged.
    """
    design_watch = watch(source)
    version = version_of(design_watch)
    states = design_watch.states().states
    rows = design_watch.folder.manifest["counts"]["rows"]
    # the folder follows the journal with a delay
    settings = [setting for setting in states.settings if setting.number < rows]
    return design_watch, states.journal, settings, version


def _factor(factors: Sequence[Factor], name: str) -> Factor:
    for factor in factors:
        if factor.name == name:
            return factor
    listed = ", ".join(factor.name for factor in factors)
    raise ResourceError(f"expected one of the factors {listed}, found {name!r}")


def _complete(settings: Sequence[SettingRecord]) -> list[SettingRecord]:
    """Return the settings that were executed in full; those that repeat earlier ones do not count."""
    return [setting for setting in settings if setting.state == "complete" and setting.first is None]


@resource("design/search/slices")
def slices(source: Source, query: Query) -> dict[str, Any]:
    """Return the outcomes of complete settings over each factor, and the Pareto front of several objectives.

    With ``since`` (a ``version``), only this version is returned if nothing has changed.

    Returns:
        ``version``; ``number`` of each complete setting that repeats no other one, in order; ``objectives``: ``name``,
        ``better`` and ``values`` of these settings; ``factors``: ``name``, ``levels`` (labels, or ``null`` for
        numbers), ``log``, and ``values`` in these settings (numbers, NaN if inactive; or indices of levels, -1 if
        inactive); ``front``: the numbers of the settings that no other one dominates, ordered by the first objective,
        or ``null`` with a single objective.
    """
    design_watch, _, settings, version = _journal(source)
    if query.get("since") == version:
        return {"version": version, "unchanged": True}
    folder = design_watch.folder
    complete, outcomes, values = _complete(settings), sought(folder.spec), folder.values()
    rows = [values[setting.number] for setting in complete]
    several = len(outcomes) > 1
    return {
        "version": version,
        "number": np.array([setting.number for setting in complete], dtype=np.int64),
        "objectives": [
            {
                **{"name": outcome.name, "better": outcome.better},
                "values": np.array([setting.values[i] for setting in complete], dtype=float),
            }
            for i, outcome in enumerate(outcomes)
        ],
        "factors": [_slice(factor, rows) for factor in folder.spec.factors],
        "front": [setting.number for setting in ranked(folder.spec, settings)] if several else None,
    }


def _slice(factor: Factor, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "name": factor.name,
        "levels": list(factor.labels) if factor.kind == "levels" else None,
        "log": is_logarithmic(factor),
        "values": column_of(factor, rows),
    }


@resource("design/search/contour")
def contour(source: Source, query: Query) -> dict[str, Any]:
    """Return an objective over two factors: the complete settings, and values interpolated between them.

    The query has ``x`` and ``y`` (names of factors) and ``objective`` (its name; default: the first). Values are
    interpolated linearly in the triangles between neighbouring settings (Delaunay), with both factors scaled to the
    range of the settings, and logarithmic factors by their logarithms. There are none outside of the settings' convex
    hull, with fewer than four settings, or for settings on a line. Settings with the same ``x`` and ``y`` count as one
    with the mean value.

    Returns:
        ``x`` and ``y``: ``name``, ``levels``, ``log`` and ``values`` as in ``design/search/slices``, without settings in
        which one of the two is inactive; ``number`` and ``values`` of these settings; ``grid``: ``x`` and ``y`` (the
        values of the grid's columns and rows) and ``values`` (row after row, from the lowest ``y``; NaN where unknown),
        or ``null``; ``version``.
    """
    design_watch, _, settings, version = _journal(source)
    folder = design_watch.folder
    factors, outcomes = folder.spec.factors, sought(folder.spec)
    for name in ("x", "y"):
        if name not in query:
            raise ResourceError(f"{name}: expected one of {', '.join(factor.name for factor in factors)}")
    pair = [_factor(factors, query[name]) for name in ("x", "y")]
    names = [outcome.name for outcome in outcomes]
    objective = query.get("objective", names[0])
    if objective not in names:
        raise ResourceError(f"objective: expected one of {', '.join(names)}, found {objective!r}")
    complete, values = _complete(settings), folder.values()
    rows = [values[setting.number] for setting in complete]
    columns = [column_of(factor, rows).astype(float) for factor in pair]
    is_active = np.isfinite(columns[0]) & np.isfinite(columns[1])
    for factor, column in zip(pair, columns, strict=True):
        if factor.kind == "levels":
            is_active &= column >= 0
    shown = [setting for setting, active in zip(complete, is_active, strict=True) if active]
    x, y = (column[is_active] for column in columns)
    index = names.index(objective)
    z = np.array([setting.values[index] for setting in shown], dtype=float)
    return {
        "version": version,
        "objective": objective,
        "better": outcomes[index].better,
        "number": np.array([setting.number for setting in shown], dtype=np.int64),
        "values": z,
        **{
            name: {**_slice(factor, ()), "values": column}
            for name, factor, column in zip(("x", "y"), pair, (x, y), strict=True)
        },
        "grid": _interpolated(pair, x, y, z),
    }


def _interpolated(
    pair: Sequence[Factor], x: FloatVector, y: FloatVector, z: FloatVector
) -> dict[str, Any] | None:
    from scipy.interpolate import LinearNDInterpolator
    from scipy.spatial import QhullError

    scaled = [np.log(v) if is_logarithmic(f) else v for f, v in zip(pair, (x, y), strict=True)]
    if len(z) < _FEWEST or any(np.ptp(values) == 0 for values in scaled):
        return None
    lows, widths = [values.min() for values in scaled], [np.ptp(values) for values in scaled]
    points: FloatMatrix = np.column_stack(
        [(values - low) / width for values, low, width in zip(scaled, lows, widths, strict=True)]
    )
    distinct, of = np.unique(points, axis=0, return_inverse=True)
    means = np.bincount(of.ravel(), weights=z) / np.bincount(of.ravel())
    steps = np.linspace(0.0, 1.0, _GRID)
    try:
        interpolate = LinearNDInterpolator(distinct, means)
    except (QhullError, ValueError):
        return None
    across, up = np.meshgrid(steps, steps)
    axes = [low + steps * width for low, width in zip(lows, widths, strict=True)]
    axes = [np.exp(axis) if is_logarithmic(f) else axis for f, axis in zip(pair, axes, strict=True)]
    return {"x": axes[0], "y": axes[1], "values": interpolate(across, up).ravel()}


@resource("design/search/course")
def course(source: Source, query: Query) -> dict[str, Any]:
    """Return when settings were executed, and what they reported meanwhile.

    With ``since`` (a ``version``), only this version is returned if nothing has changed.

    Returns:
        ``version``; ``timeline``: ``number``, ``state`` (as in ``design/search``), ``worker``, ``start`` and ``end``
        (seconds since 1970, UTC; NaN before the end) of each setting; ``reports``, one per setting that reported to a
        pruner: ``number``, ``state``, ``step`` (the number of the report, counted over the setting's seeds) and
        ``value`` (the mean of the objective so far, over these seeds). The last report of a pruned setting is the one at
        which it was stopped.
    """
    _, journal, settings, version = _journal(source)
    if query.get("since") == version:
        return {"version": version, "unchanged": True}
    state_of = {setting.number: setting.state for setting in settings}
    reports = []
    for trial in journal.trials:
        if trial.intermediate_values and trial.number in state_of:
            steps = sorted(trial.intermediate_values)
            values = [trial.intermediate_values[step] for step in steps]
            entry = {"number": trial.number, "state": state_of[trial.number]}
            reports.append({**entry, "step": np.array(steps), "value": np.array(values, dtype=float)})
    return {
        "version": version,
        "timeline": {
            "number": np.array([setting.number for setting in settings], dtype=np.int64),
            "state": [setting.state for setting in settings],
            "worker": [setting.worker for setting in settings],
            "start": np.array([_seconds(setting.asked) for setting in settings], dtype=float),
            "end": np.array([_seconds(setting.told) for setting in settings], dtype=float),
        },
        "reports": reports,
    }


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() if text else np.nan

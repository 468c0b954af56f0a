"""Phases of one episode each, such as the days of a scenario: their columns beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from palaestrai_mosaik.core.errors import StoreError
from palaestrai_mosaik.store import BodyChoice

from .columns import Moment, bare, clock_of, sources_of
from .limits import Limits, Pair, bounds_of, limits_of, pairs_of
from .series import (
    TICKS,
    TIME,
    Curve,
    Panel,
    by_scale,
    by_unit,
    find_moment,
    has_natural_scale,
    matching_curves,
    range_text,
    y_label_of,
)

if TYPE_CHECKING:
    from palaestrai_mosaik.store import Store

#: the maximum number of phases beside each other
MOST_BESIDE = 4


@dataclass(frozen=True)
class Beside:
    """Panels of phases, beside each other with one y axis.

    Attributes:
        title: title of the row.
        panels: a panel per phase, with its name as title.
    """

    title: str
    panels: tuple[Panel, ...]


def moments_beside(store: Store, run: str) -> list[Moment]:
    """Return the episodes of a run whose phases have one each; none if a phase has more, or there is one phase."""
    recorded = store.recorded_episodes(run)
    recorded = recorded[~recorded["evaluation"].astype(bool)]
    several = recorded["phase"].duplicated().any() or (recorded["last"] > recorded["first"]).any()
    if several or len(recorded) < 2:
        return []
    return [find_moment(store, run, int(phase), None) for phase in sorted(recorded["phase"])]


def rows_beside(
    store: Store,
    run: str,
    moments: Sequence[Moment],
    choice: BodyChoice,
    patterns: Sequence[str],
    limits: Limits = True,
) -> list[Beside]:
    """Return the rows of each pattern: the matching columns over the episode of each phase.

    Columns of different units have rows of their own, and so have those that would look flat beside others.

    Args:
        store: the open store.
        run: uid of the instance.
        moments: the episodes, one per phase.
        choice: the bodies to include.
        patterns: patterns of columns, as in :func:`~palaestrai_mosaik.plot.series.time_panels`.
        limits: the limits of all patterns, or of each.

    Raises:
        StoreError: a pattern matches no column of any phase.
        PalaestraiMosaikError: the limits are invalid.
    """
    sources = [sources_of(store, run, moment.phase, choice) for moment in moments]
    clocks = [clock_of(store, run, moment.phase) for moment in moments]
    bounds, actuators = (bounds_of(store, run, moments[0].phase, kind) for kind in ("sensor", "actuator"))
    rows = []
    for pattern, pair in zip(patterns, pairs_of(limits, len(patterns)), strict=True):
        named: list[tuple[Curve, str]] = []
        problems = []
        for index, moment in enumerate(moments):
            try:
                curves = matching_curves(sources[index], moment, pattern, clocks[index])
            except StoreError as error:
                problems.append(error)
                continue
            named += [
                (replace(curve, part=index), name) for curve, name in curves if np.isfinite(curve.y).any()
            ]
        if len(problems) == len(moments):
            raise problems[0]
        for same_unit in by_unit(named):
            groups = _by_scale(same_unit)
            if len(groups) > 1 and (shares := _shares(same_unit, actuators)):
                groups = [shares]
            for group in groups:
                title = pattern if len(groups) == 1 else f"{pattern}: {_range(group)}"
                names = [name for _, name in group]
                shown = limits_of(names, bounds, pair, several=len(groups) > 1)
                panels = [
                    Panel(
                        moment.phase_name + (f" ({moment.unfinished})" if moment.unfinished else ""),
                        TICKS if clocks[index] is None else TIME,
                        y_label_of(group),
                        tuple(curve for curve, _ in group if curve.part == index),
                        limits=shown,
                    )
                    for index, moment in enumerate(moments)
                ]
                rows.append(Beside(title, tuple(panels)))
    return rows


def _shares(named: Sequence[tuple[Curve, str]], bounds: Mapping[str, Pair]) -> list[tuple[Curve, str]] | None:
    """Return set-points of different size as percentages of the larger bound of their space; ``None``: not possible."""
    result = []
    for curve, name in named:
        low, high = bounds.get(bare(name), (None, None))
        most = max(abs(low), abs(high)) if low is not None and high is not None else 0.0
        if not name.startswith("setpoint.") or not most:
            return None
        result.append(
            (replace(curve, y=100.0 * curve.y / most, low=None, high=None, unit="% of the bound"), name)
        )
    return result


def _range(named: Sequence[tuple[Curve, str]]) -> str:
    return range_text([curve for curve, _ in named], named[0][0].unit)


def _by_scale(named: Sequence[tuple[Curve, str]]) -> list[list[tuple[Curve, str]]]:
    """Group curves by their size; those of one column stay together in all phases."""
    if has_natural_scale(named[0][0]):
        return [list(named)]
    columns = [(curve.label, name) for curve, name in named]
    numbers = {column: number for number, column in enumerate(dict.fromkeys(columns))}
    numbered = [replace(pair[0], colour=numbers[column]) for pair, column in zip(named, columns, strict=True)]
    groups = [{curve.colour for curve in group} for _, group in by_scale(numbered)]
    return [
        [pair for pair, column in zip(named, columns, strict=True) if numbers[column] in group]
        for group in groups
    ]

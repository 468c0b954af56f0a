"""Adds rows near the boundary of a condition, until the boxes in which the condition holds are stable.

The classifier of the analysis is trained on the runs, and predicts the probability of the condition for
many candidates. Most new rows are candidates with an uncertain prediction and a large distance from all other rows.
The others are chosen by their distance alone, so that no region is overlooked. Sources: Bryant and Lempert (2010),
"Thinking inside the box", for the boxes; Settles (2009), "Active learning literature survey", for uncertainty sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis import Results
from palaestrai_mosaik.arsenai.analysis.discovery import Relabelling, Surrogate, shares
from palaestrai_mosaik.arsenai.analysis.discovery.algorithms import METHODS, MOST_BOXES, Points
from palaestrai_mosaik.arsenai.analysis.discovery.boxes import Box, rule
from palaestrai_mosaik.arsenai.analysis.discovery.conditions import label_runs, parse_condition
from palaestrai_mosaik.arsenai.analysis.discovery.discover import points_of
from palaestrai_mosaik.arsenai.analysis.discovery.stability import jaccard
from palaestrai_mosaik.arsenai.analysis.discovery.surrogate import (
    allowed,
    code_with_points,
    nearest,
    positions,
)
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.rounds import Rounds
from palaestrai_mosaik.arsenai.design.sample import Sample
from palaestrai_mosaik.arsenai.design.samplers import single_rows
from palaestrai_mosaik.arsenai.design.samplers.adaptive import (
    batch_of,
    condition_of,
    most_rows,
    stopping_rule,
)
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatVector

from .decision import Decision

#: number of candidates per new row
_CANDIDATES = 200
#: share of new rows that are chosen by their distance alone
_EXPLORE = 0.2
#: weight of the distance if nothing is uncertain
_LITTLE = 1e-9


def decide_adaptive(results: Results) -> Decision:
    """Decide whether the boxes are stable, or add the rows of another round."""
    spec, folder = results.spec, results.folder
    rounds, unit = folder.rounds or Rounds(({"rows": len(folder.sample.unit)},)), folder.sample.unit
    runs = label_runs(results, parse_condition(results, condition_of(spec)))
    share = shares(runs, len(unit))
    relabelling = Relabelling(results, runs, share)
    points = points_of(relabelling.rows, runs)
    least_overlap, in_a_row = stopping_rule(spec)
    sizes = [int(measurements["rows"]) for measurements in rounds.measured][-in_a_row - 1 :]
    boxes_by_round = [_boxes(relabelling, points.only(points.row < size)) for size in sizes]
    common = [_overlap(before, after, relabelling) for before, after in pairwise(boxes_by_round)]
    measured: dict[str, Any] = {
        "rows": len(unit),
        "runs": len(runs.holds),
        "holds": int(runs.holds.sum()),
        **({"lost": len(runs.lost)} if len(runs.lost) else {}),
        "boxes": {
            method: [rule(box, relabelling.columns) for box in boxes]
            for method, boxes in boxes_by_round[-1].items()
        },
        "overlap": common[-1] if common else None,
    }
    if len(common) == in_a_row and min(common) >= least_overlap:
        last = "the last round" if in_a_row == 1 else f"the last {in_a_row} rounds"
        return Decision(measured, f"the boxes hold still: {100 * min(common):.0f} % in common over {last}")
    most = most_rows(spec)
    if len(unit) >= most:
        return Decision(measured, f"the design has {len(unit):,} rows (max_n)")
    size = min(batch_of(spec), most - len(unit))
    candidates = _candidates(results, size, rounds.number)
    if not len(candidates):
        return Decision(measured, "no other combination of the factors is left")
    chosen = candidates[_chosen(results, points, share, candidates, size)]
    sample: Sample = single_rows(np.concatenate([unit, chosen]), {"n": len(unit) + len(chosen)})
    return Decision(measured, sample=sample, drawn=folder.manifest["counts"]["drawn"] + len(chosen))


def _boxes(relabelling: Relabelling, runs: Points) -> Mapping[str, list[Box]]:
    """Find the boxes of each method, as in the analysis."""
    points = relabelling.points(runs) if len(runs.holds) else runs
    if not points.holds.any() or points.holds.all():
        return {method: [] for method in METHODS}
    return {method: [result.box for result in find(points, MOST_BOXES)] for method, find in METHODS.items()}


def _overlap(
    before: Mapping[str, list[Box]], after: Mapping[str, list[Box]], relabelling: Relabelling
) -> float:
    """Return the smallest overlap of the boxes of two rounds over all methods.

    Methods without boxes in both rounds are ignored; 0 if there is no other method.
    """
    overlaps = [
        jaccard(_region(before[method], relabelling), _region(after[method], relabelling))
        for method in METHODS
        if before[method] or after[method]
    ]
    return min(overlaps, default=0.0)


def _region(boxes: Sequence[Box], relabelling: Relabelling) -> BoolVector:
    """Return which points are in one of the boxes, (points,)."""
    inside = np.zeros(len(relabelling.columns[0].codes), dtype=bool)
    for box in boxes:
        inside |= box.contains(relabelling.columns)
    return inside


def _candidates(results: Results, size: int, number: int) -> FloatArray:
    """Return distinct points that are no rows yet.

    Args:
        results: the results so far.
        size: number of new rows.
        number: number of rounds so far.
    """
    spec, unit = results.spec, results.folder.sample.unit
    generator = seeding.generator(spec.seed, "sample", spec.sampler.name, "round", number)
    drawn = allowed(spec, generator.random((_CANDIDATES * size, len(spec.axes))))
    seen = set(_combinations(spec, unit))
    kept = []
    for i, combination in enumerate(_combinations(spec, drawn)):
        if combination not in seen:
            seen.add(combination)
            kept.append(i)
    candidates: FloatArray = drawn[kept]
    return candidates


def _combinations(spec: DesignSpec, unit: FloatArray) -> list[tuple[str, ...]]:
    return [tuple(map(repr, values.values())) for values in decode(spec, unit)]


def _chosen(
    results: Results, points: Points, share: FloatVector, candidates: FloatArray, size: int
) -> list[int]:
    """Return the indices of at most ``size`` candidates that become rows."""
    spec, unit = results.spec, results.folder.sample.unit
    rows, columns = code_with_points(results, share, candidates)
    uncertain = np.ones(len(candidates))
    if points.holds.any() and not points.holds.all():
        probability = Surrogate(replace(points, columns=rows)).probability(columns)
        uncertain = 4 * probability * (1 - probability) + _LITTLE
    coordinates = positions(spec, candidates)
    distance, _ = nearest(positions(spec, unit), coordinates)
    explored = round(_EXPLORE * size)
    chosen: list[int] = []
    while len(chosen) < min(size, len(candidates)):
        score = distance if len(chosen) < explored else distance * uncertain
        best = int(np.argmax(score))
        chosen.append(best)
        distance = np.minimum(distance, np.abs(coordinates - coordinates[best]).sum(axis=1))
        distance[best] = -1.0
    return chosen

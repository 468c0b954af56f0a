"""Adds rows where it is uncertain whether a condition holds, until the boxes in which it does hold still.

A classifier that has learnt from the runs (the one that the analysis uses, too) says of many candidates how probable it
is that the condition holds. Those are taken of which it is least sure, and which are far from all other rows; and some
that are just far from all others, so that no other region is overlooked. Source of the idea: Bryant and Lempert (2010),
"Thinking inside the box", for the boxes; Settles (2009), "Active learning literature survey", for uncertainty sampling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from palaestrai_mosaik import seeding
from palaestrai_mosaik.analysis import Results
from palaestrai_mosaik.analysis.discovery import Relabelling, Surrogate, shares
from palaestrai_mosaik.analysis.discovery.algorithms import METHODS, Points
from palaestrai_mosaik.analysis.discovery.boxes import Box, rule
from palaestrai_mosaik.analysis.discovery.conditions import label_runs, parse_condition
from palaestrai_mosaik.analysis.discovery.discover import MOST_BOXES, points_of
from palaestrai_mosaik.analysis.discovery.stability import jaccard
from palaestrai_mosaik.analysis.discovery.surrogate import allowed, code_with_points, nearest, positions
from palaestrai_mosaik.design.decode import decode
from palaestrai_mosaik.design.model import DesignSpec
from palaestrai_mosaik.design.rounds import Rounds
from palaestrai_mosaik.design.sample import Sample
from palaestrai_mosaik.design.samplers import single_rows
from palaestrai_mosaik.design.samplers.adaptive import batch_of, condition_of, most_rows, stopping_rule
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatVector

from .decision import Decision

#: candidates of a round, for each row that it adds
_CANDIDATES = 200
#: share of the rows of a round that are taken for being far from all others
_EXPLORE = 0.2
#: what distance counts where nothing is uncertain
_LITTLE = 1e-9


def decide_adaptive(results: Results) -> Decision:
    """Return whether the boxes hold still, or the rows with those of another round."""
    spec, folder = results.spec, results.folder
    rounds, unit = folder.rounds or Rounds(({"rows": len(folder.sample.unit)},)), folder.sample.unit
    runs = label_runs(results, parse_condition(results, condition_of(spec)))
    share = shares(runs, len(unit))
    relabelling = Relabelling(results, runs, share)
    points = points_of(relabelling.rows, runs)
    wanted, in_a_row = stopping_rule(spec)
    sizes = [int(one["rows"]) for one in rounds.measured][-in_a_row - 1 :]
    found = [_boxes(relabelling, points.only(points.row < size)) for size in sizes]
    common = [_overlap(before, after, relabelling) for before, after in pairwise(found)]
    measured: dict[str, Any] = {
        "rows": len(unit),
        "runs": len(runs.holds),
        "holds": int(runs.holds.sum()),
        **({"lost": len(runs.lost)} if len(runs.lost) else {}),
        "boxes": {
            method: [rule(box, relabelling.columns) for box in boxes] for method, boxes in found[-1].items()
        },
        "overlap": common[-1] if common else None,
    }
    if len(common) == in_a_row and min(common) >= wanted:
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
    """Return the boxes of each method, as the analysis finds them."""
    points = relabelling.points(runs) if len(runs.holds) else runs
    if not points.holds.any() or points.holds.all():
        return {method: [] for method in METHODS}
    return {method: [one.box for one in find(points, MOST_BOXES)] for method, find in METHODS.items()}


def _overlap(
    before: Mapping[str, list[Box]], after: Mapping[str, list[Box]], relabelling: Relabelling
) -> float:
    """Return what the boxes of two rounds have in common: of that method which has least.

    A method that finds none in both rounds does not count, unless no method finds any.
    """
    found = [
        jaccard(_region(before[method], relabelling), _region(after[method], relabelling))
        for method in METHODS
        if before[method] or after[method]
    ]
    return min(found, default=0.0)


def _region(boxes: Sequence[Box], relabelling: Relabelling) -> BoolVector:
    """Return which points lie in one of the boxes."""
    inside = np.zeros(len(relabelling.columns[0].codes), dtype=bool)
    for box in boxes:
        inside |= box.contains(relabelling.columns)
    return inside


def _candidates(results: Results, size: int, number: int) -> FloatArray:
    """Return points that are no rows yet, each once; ``number``: how many rounds there were."""
    spec, unit = results.spec, results.folder.sample.unit
    generator = seeding.generator(spec.seed, "sample", spec.sampler.name, "round", number)
    drawn = allowed(spec, generator.random((_CANDIDATES * size, len(spec.axes))))
    seen = set(_combinations(spec, unit))
    kept = []
    for i, combination in enumerate(_combinations(spec, drawn)):
        if combination not in seen:
            seen.add(combination)
            kept.append(i)
    found: FloatArray = drawn[kept]
    return found


def _combinations(spec: DesignSpec, unit: FloatArray) -> list[tuple[str, ...]]:
    return [tuple(map(repr, values.values())) for values in decode(spec, unit)]


def _chosen(
    results: Results, points: Points, share: FloatVector, candidates: FloatArray, size: int
) -> list[int]:
    """Return the numbers of the candidates that become rows, at most ``size``."""
    spec, unit = results.spec, results.folder.sample.unit
    rows, columns = code_with_points(results, share, candidates)
    uncertain = np.ones(len(candidates))
    if points.holds.any() and not points.holds.all():
        probability = Surrogate(replace(points, columns=rows)).probability(columns)
        uncertain = 4 * probability * (1 - probability) + _LITTLE
    places = positions(spec, candidates)
    distance, _ = nearest(positions(spec, unit), places)
    explored = round(_EXPLORE * size)
    chosen: list[int] = []
    while len(chosen) < min(size, len(candidates)):
        score = distance if len(chosen) < explored else distance * uncertain
        best = int(np.argmax(score))
        chosen.append(best)
        distance = np.minimum(distance, np.abs(places - places[best]).sum(axis=1))
        distance[best] = -1.0
    return chosen

"""Rounds of designs that grow: evaluate the results so far, and choose the next rows or stop.

:func:`run_rounds` executes a folder round by round; :func:`advance` adds the next round after the runs of all earlier
ones have ended. New rows depend only on the design and the results, so the same results yield the same folder.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from palaestrai_mosaik.arsenai.analysis import Results, SensitivityResult, sensitivity
from palaestrai_mosaik.arsenai.analysis.discovery import Relabelling, Surrogate, shares
from palaestrai_mosaik.arsenai.analysis.discovery.algorithms import (
    METHODS,
    MOST_BOXES,
    Points,
    check_installed,
)
from palaestrai_mosaik.arsenai.analysis.discovery.boxes import Box, rule
from palaestrai_mosaik.arsenai.analysis.discovery.conditions import label_runs, parse_condition
from palaestrai_mosaik.arsenai.analysis.discovery.discover import points_of
from palaestrai_mosaik.arsenai.analysis.discovery.surrogate import (
    allowed,
    code_with_points,
    nearest,
    positions,
)
from palaestrai_mosaik.arsenai.analysis.discovery.validation import jaccard
from palaestrai_mosaik.arsenai.analysis.sensitivity import is_constant
from palaestrai_mosaik.arsenai.design.decode import decode
from palaestrai_mosaik.arsenai.design.folder import DesignFolder, Rounds, refuse
from palaestrai_mosaik.arsenai.design.methods.significance import NOISE
from palaestrai_mosaik.arsenai.design.model import DesignSpec
from palaestrai_mosaik.arsenai.design.rows import SampledRows
from palaestrai_mosaik.arsenai.design.samplers import sample, single_rows
from palaestrai_mosaik.arsenai.design.samplers.adaptive import (
    ADAPTIVE,
    batch_of,
    condition_of,
    most_rows,
    stopping_rule,
)
from palaestrai_mosaik.arsenai.design.samplers.sampler import Sample
from palaestrai_mosaik.arsenai.design.samplers.sobol import (
    largest_n,
    wanted_interval,
    wanted_outcomes,
    with_n,
)
from palaestrai_mosaik.arsenai.design.writer import grow_folder
from palaestrai_mosaik.arsenai.execution import FolderProgress, Settings, Summary, run_folder
from palaestrai_mosaik.arsenai.execution.status import RunsToExecute
from palaestrai_mosaik.core import seeding
from palaestrai_mosaik.core.errors import DocumentError, StoreError
from palaestrai_mosaik.types.arrays import BoolVector, FloatArray, FloatVector


@dataclass(frozen=True)
class Decision:
    """The decision after a round.

    Attributes:
        measured: measurements of the round, as plain data.
        ended: reason for adding no more rows; empty if rows are added.
        sample: all rows of the design, including those of the next round; None if it has ended.
        drawn: number of points drawn for ``sample``, including those that constraints reject.
    """

    measured: Mapping[str, Any]
    ended: str = ""
    sample: Sample | None = None
    drawn: int = 0


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


#: indices with a required precision; those of pairs would need far more rows
_INDICES = ("S1", "ST")


def decide_sobol(results: Results) -> Decision:
    """Decide whether the indices are precise enough, or double the number of blocks.

    Raises:
        DocumentError: another version drew the sample.
    """
    spec, drawn = results.spec, results.folder.sample
    n = int(drawn.arguments["n"])
    target, most = wanted_interval(spec), largest_n(spec)
    indices = sensitivity(results, ("sobol",), wanted_outcomes(spec) or None)
    measured: dict[str, Any] = {"rows": len(drawn.unit), "n": n, **_widest(results, indices)}
    width = measured["interval"]
    if width is not None and width <= target:
        return Decision(measured, f"all intervals are within ±{target:g}")
    if 2 * n > most:
        return Decision(measured, f"n has reached {most:,} (max_n)")
    larger = sample(with_n(spec, 2 * n))
    if not np.array_equal(larger.unit[: len(drawn.unit)], drawn.unit):
        refuse(
            results.folder.path,
            "another version has drawn the rows of this folder, and this one draws others: they cannot be continued. "
            "Generate the design into another folder (-o), or leave until out",
        )
    return Decision(measured, sample=larger, drawn=len(larger.unit))


def _widest(results: Results, indices: Sequence[SensitivityResult]) -> dict[str, Any]:
    """Return the half-width of the widest interval, and its index.

    An outcome that is constant over all runs has no indices to wait for. If indices cannot be computed, the
    half-width is set to None, because more rows may help.
    """
    widest: dict[str, Any] = {"interval": 0.0}
    frame = results.outcomes()
    for result in indices:
        if result.refused:
            y = frame[result.outcome].to_numpy(dtype=float)
            y = y[np.isfinite(y)]
            if len(y) and is_constant(y):
                continue
            return {"interval": None, "outcome": result.outcome, "refused": result.refused}
        # the share of noise has no interval
        rows = result.frame[result.frame["index"].isin(_INDICES) & (result.frame["factor"] != NOISE)]
        for row in rows.to_dict("records"):
            # the upper end of ST is at most 1
            width = float(max(row["high"] - row["value"], row["value"] - row["low"]))
            index, outcome = row["index"], result.outcome
            if not math.isfinite(width):
                return {"interval": None, "outcome": outcome, "refused": f"{index} has no interval"}
            if width > widest["interval"]:
                widest = {"interval": width, "index": index, "factor": row["factor"], "outcome": outcome}
    return widest


def advance(folder: DesignFolder, store: str | None = None) -> DesignFolder:
    """Add the rows of the next round to a folder.

    Args:
        folder: the folder.
        store: the store of the results; None for ``results`` in the folder.

    Returns:
        The folder with the new rows. It is unchanged if it does not grow in rounds, if runs have not ended, or if no
        more rows are needed; the last is recorded in it.

    Raises:
        PalaestraiMosaikError: the sampler's criterion cannot be computed.
        DocumentError: a file of the folder was edited, a document of the new rows is invalid, or another process
            executes the folder.
    """
    if folder.rounds is None:
        return folder
    results = Results(folder, store)
    try:
        if (results.runs()["status"] == "missing").any():
            return folder
    except StoreError:
        # no run has been executed yet
        return folder
    # never add rows to edited ones
    problems = folder.verify()
    if problems:
        raise DocumentError(problems)
    return next_round(results)


def decide(results: Results) -> Decision:
    """Decide whether a design needs more rows. The same results yield the same decision.

    Args:
        results: the results of a design that grows in rounds.

    Returns:
        The measurements of the last round, and all rows of the next one or the reason for the end.

    Raises:
        PalaestraiMosaikError: the sampler's criterion cannot be computed, or the extra ``discovery`` is missing.
    """
    if results.spec.sampler.name == ADAPTIVE.name:
        return decide_adaptive(results)
    return decide_sobol(results)


def next_round(results: Results) -> DesignFolder:
    """Return the folder of ``results`` with the rows of the next round, or with the end recorded.

    Args:
        results: results of a folder in which all runs have ended.

    Raises:
        PalaestraiMosaikError: as :func:`advance`.
    """
    folder = results.folder
    rounds = folder.rounds
    if rounds is None:
        return folder
    decision = decide(results)
    measured = (*rounds.measured[:-1], dict(decision.measured))
    if decision.sample is None:
        final = Rounds(measured, decision.ended)
        rows = SampledRows(folder.sample, folder.manifest["counts"]["drawn"])
        return folder if final == rounds else grow_folder(folder, rows, final)
    rows = SampledRows(decision.sample, decision.drawn)
    return grow_folder(folder, rows, Rounds((*measured, {"rows": rows.count})))


def run_rounds(
    folder: DesignFolder,
    *,
    which: RunsToExecute = "missing",
    store: str | None = None,
    settings: Settings | None = None,
    progress: FolderProgress | None = None,
    ignore_queue: bool = False,
    on_round: Callable[[Rounds], None] | None = None,
) -> tuple[DesignFolder, Summary]:
    """Execute the runs of a folder, and add and execute further rounds until no more rows are needed.

    It ends earlier if runs have no result because they were interrupted or another process executes them. Failed runs
    are ignored, as in any analysis. A design that does not grow in rounds has one round.

    Args:
        folder: the design folder.
        which: runs to execute in the first round, see :func:`~palaestrai_mosaik.arsenai.execution.run_folder`.
        store: the store of the runs; None for ``results`` in the folder.
        settings: settings of the execution; None for those of the design.
        progress: called with the events of each round.
        ignore_queue: whether to treat the runs of submissions to a cluster as gone, without asking.
        on_round: called with the rounds after each of them.

    Returns:
        The folder in its final state, and the summary of all rounds.

    Raises:
        PalaestraiMosaikError: as :func:`~palaestrai_mosaik.arsenai.execution.run_folder` and :func:`.rounds`.
    """
    if folder.spec.sampler.name == ADAPTIVE.name:
        # fail now, not after the first round, which may take a day
        check_installed()
    whole: Summary | None = None
    while True:
        summary = run_folder(
            folder, which=which, store=store, settings=settings, progress=progress, ignore_queue=ignore_queue
        )
        whole = summary if whole is None else _together(whole, summary)
        stopped = summary.interrupted or summary.not_begun or summary.left_out
        if stopped or summary.not_collected or summary.not_read_back:
            return folder, whole
        rows = folder.manifest["counts"]["rows"]
        folder = advance(folder, store)
        if folder.rounds is not None and on_round is not None:
            on_round(folder.rounds)
        if folder.manifest["counts"]["rows"] == rows:
            return folder, whole
        which = "missing"


def _together(first: Summary, then: Summary) -> Summary:
    """Combine the summaries of consecutive rounds; ``then`` also considered the runs of ``first``."""
    if then.collected is not None and first.collected is not None:
        then.collected.runs += first.collected.runs
    return replace(
        then,
        # the runs that the first round executed existed before the second
        before=dict(Counter(then.before) - Counter(first.ended)),
        ended=dict(Counter(first.ended) + Counter(then.ended)),
        left_out=first.left_out + then.left_out,
        failures=[*first.failures, *then.failures],
        seconds=first.seconds + then.seconds,
        collected=then.collected or first.collected,
    )
